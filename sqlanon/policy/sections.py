"""The sections of a policy, each validated on its own; ``checks`` compares them with one another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from sqlanon.measures import MEASURES
from sqlanon.places.addresses import PostgresAddress, SparkAddress, postgres_name_flaws, spark_name_flaw
from sqlanon.places.databases import DatabaseLocation, DataFiles
from sqlanon.policy.compatibility import SEARCH, VERSIONS, PolicySections, find_conflicts
from sqlanon.policy.noise import Noise
from sqlanon.policy.query_files import with_folder
from sqlanon.policy.reading import THOUSANDS, ColumnType, reading_flaws
from sqlanon.policy.rules import Hierarchy, IntervalsRule
from sqlanon.policy.strategies import STRATEGIES, Traits
from sqlanon.support.encodings import check_encoding
from sqlanon.support.fields import (
    ExactNumber,
    FilePath,
    FilePattern,
    Flaw,
    Name,
    Number,
    RegistryName,
    Section,
    SparseSection,
    StrictBoolean,
    StrictInteger,
    as_list,
    as_real,
    as_set,
    in_words,
    one_or_more,
    policy_folder,
)
from sqlanon.support.names import table_parts

Role: TypeAlias = Literal["identifying", "quasi", "sensitive", "insensitive"]
Aggregate: TypeAlias = Literal["mean", "geometric", "max", "sum"]
Identification: TypeAlias = Literal["identifying", "more", "most"]

FETCH_LIMIT = 20_000_000


def _day_as_text(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


_HIERARCHY_KEYS = ("weight", "min_level", "max_level", "forbidden", "identification")
"""The keys of an attribute that control its generalization."""

READING_KEYS = ("type", "format", "pivot", "missing")
"""The keys of an attribute that control how its values are read."""


class Attribute(SparseSection):
    """A column of the source table: its role, and for a quasi-identifier its hierarchy or noise."""

    _optional = ("forbidden", "identification", "noise", *READING_KEYS)

    role: Role = Field(description="one of identifying, quasi, sensitive, insensitive", examples=["quasi"])
    hierarchy: Hierarchy | None = Field(
        default=None, description="one rule, or a list of rules that compose", examples=[{"mask": "right"}]
    )
    noise: Noise | None = Field(
        default=None, description="in place of a hierarchy, for numbers and dates", examples=[{"epsilon": 4.0}]
    )
    weight: Annotated[float, Field(strict=True, gt=0, le=1e12, allow_inf_nan=False)] = Field(
        default=1.0, description="how much the attribute counts in the measure", examples=[2.0]
    )
    on_unknown: Literal["error", "suppress"] = Field(
        default="error",
        description="values that the hierarchy lacks, or that cannot get noise: an error, or suppress their rows",
        examples=["suppress"],
    )
    min_level: Annotated[StrictInteger, Field(ge=0)] = Field(
        default=0, description="the lowest level that may be released", examples=[1]
    )
    max_level: Annotated[StrictInteger, Field(ge=0)] | None = Field(
        default=None,
        description="the highest level that any cell may show, masked rows and blanks included",
        examples=[2],
    )
    forbidden: Annotated[tuple[Name, ...], as_list, as_set, one_or_more] = Field(
        default=(), description="labels of the hierarchy, as text, that no release may show", examples=[["0213*"]]
    )
    identification: Identification = Field(
        default="identifying",
        description="for mu-argus: how identifying the attribute is; it decides which combinations are checked",
        examples=["most"],
    )
    type: ColumnType | None = Field(
        default=None,
        description="for files and data frames: the type that the texts of the column are read as; values that are not "
        "of it are refused",
        examples=["date"],
    )
    format: Name | None = Field(
        default=None,
        description="how dates and timestamps are written, with the directives of strptime",
        examples=["%d.%m.%Y"],
    )
    pivot: Annotated[StrictInteger, Field(ge=1000, le=9999)] | None = Field(
        default=None,
        description="the last year that two digits (%y) can mean: with 2026, 26 is 2026 and 27 is 1927",
        examples=[2026],
    )
    missing: Annotated[tuple[str, ...], as_list, as_set, one_or_more] = Field(
        default=(),
        description="for files and data frames: texts of the column that mean NULL",
        examples=[["-9", "999"]],
    )

    @property
    def has_reading_keys(self) -> bool:
        """Whether a key controls how the values of the column are read."""
        return any(self._is_set(name) for name in READING_KEYS)

    @property
    def has_open_ends(self) -> bool:
        """Whether a rule of the hierarchy has open ends, so that level 0 has labels and is text."""
        return any(isinstance(rule, IntervalsRule) and rule.has_open_ends for rule in self.hierarchy or ())

    def _flaws(self) -> Iterator[Flaw]:
        if self.role == "quasi" and self.hierarchy is None and self.noise is None:
            yield (), 'a quasi-identifier needs a hierarchy or noise; the simplest is hierarchy = "suppress"'
        if self.max_level is not None and self.min_level > self.max_level:
            yield ("min_level",), f"{self.min_level} is more than max_level, {self.max_level}"
        yield from self._reading_flaws()
        if self.role == "quasi":
            if self.noise is not None:
                yield from self._noise_flaws()
            return
        if self.hierarchy is not None and self.role != "sensitive":
            yield (
                ("hierarchy",),
                f"only quasi-identifiers are generalized, and this attribute is {self.role}: "
                'remove the hierarchy, or set role = "quasi"',
            )
        for name in ("noise", "on_unknown", *_HIERARCHY_KEYS):
            if self._is_set(name):
                yield (name,), f"applies to quasi-identifiers, and this attribute is {self.role}: leave it out"

    def _reading_flaws(self) -> Iterator[Flaw]:
        yield from reading_flaws(self.type, self.format, self.pivot)
        for name in READING_KEYS if self.role == "identifying" else ():
            if self._is_set(name):
                yield (
                    (name,),
                    "controls how values are read, and identifying attributes are not read: remove it",
                )

    def _noise_flaws(self) -> Iterator[Flaw]:
        if self.hierarchy is not None:
            yield ("noise",), "an attribute has a hierarchy or noise, not both: remove one"
            return
        for name in _HIERARCHY_KEYS:
            if self._is_set(name):
                yield (name,), "applies to attributes with a hierarchy, and this one has noise: remove it"

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)


def _read_person(value: object) -> object:
    if value is None or value is False or (isinstance(value, str) and value):
        return value
    raise ValueError("must be the name of a column, or false: each row is a person")


Person: TypeAlias = Annotated[
    str | Literal[False] | None,
    PlainValidator(_read_person),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "boolean", "const": False}]}),
]


def _read_value_labels(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) and name for name in names):
        return tuple(sorted(set(names)))
    raise ValueError("must be true, false, or a list of the columns that are read as their labels")


ValueLabels: TypeAlias = Annotated[
    bool | tuple[str, ...] | None,
    BeforeValidator(_read_value_labels),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]


def _require_character(value: str) -> str:
    if len(value) != 1 or value in "\0\r\n":
        raise ValueError(f"must be one character other than a line end, not {in_words(value)}")
    return value


def _require_thousands_mark(value: str) -> str:
    if value not in THOUSANDS:
        raise ValueError(f"must be one of {' '.join(mark for mark in THOUSANDS if mark.strip())} or a space")
    return value


def _require_quote(value: str) -> str:
    return _require_character(value) if value else value


class CsvSection(SparseSection):
    """The format of CSV files. Unset keys are detected, and an ambiguous file is refused."""

    _optional = (
        "encoding",
        "delimiter",
        "quote",
        "header",
        "skip",
        "footer",
        "decimal",
        "thousands",
        "missing",
        "on_bad_line",
    )

    encoding: Annotated[str, AfterValidator(check_encoding)] | None = Field(
        default=None,
        description="the encoding, by its Python name; default: utf-8, or utf-16 with a byte order mark",
        examples=["windows-1252"],
    )
    delimiter: Annotated[str, AfterValidator(_require_character)] | None = Field(
        default=None, description="the character between fields", examples=[";"]
    )
    quote: Annotated[str, AfterValidator(_require_quote)] | None = Field(
        default=None,
        description='the character around values that have delimiters or line ends; "": there is none',
        examples=["'"],
    )
    header: StrictBoolean | None = Field(
        default=None, description="whether the first line has the names of the columns", examples=[True]
    )
    skip: Annotated[StrictInteger, Field(ge=0)] | None = Field(
        default=None, description="lines above the header", examples=[2]
    )
    footer: Annotated[StrictInteger, Field(ge=0)] = Field(
        default=0, description="lines below the data, without blank ones at the end of the file", examples=[1]
    )
    decimal: Literal[".", ","] | None = Field(
        default=None, description="the mark before the decimals of numbers; default: a point", examples=[","]
    )
    thousands: Annotated[str, AfterValidator(_require_thousands_mark)] | None = Field(
        default=None, description="the mark between groups of three digits; default: none", examples=["."]
    )
    missing: Annotated[tuple[str, ...], as_list, as_set, one_or_more] | None = Field(
        default=None,
        description='the texts that mean NULL in every column; default: the empty text, [""]. []: none does',
        examples=[["", "NA", "?"]],
    )
    on_bad_line: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="a line with another number of fields than the header, a stray quote or a NUL byte: the file is "
        "refused, or such lines are dropped and counted",
        examples=["drop"],
    )

    @property
    def has_number_marks(self) -> bool:
        """Whether a key sets the marks of numbers."""
        return self.decimal is not None or self.thousands is not None

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """The texts that mean NULL in every column."""
        return ("",) if self.missing is None else self.missing

    def _flaws(self) -> Iterator[Flaw]:
        if self.delimiter is not None and self.delimiter == self.quote:
            yield ("quote",), "is also the delimiter: give another character"
        if self.thousands == (self.decimal or "."):
            yield (
                ("thousands",),
                "is also the decimal mark: " + ("give another" if self.decimal else 'add decimal = ","'),
            )


def _read_query(query: str, info: ValidationInfo) -> str:
    return with_folder(query, policy_folder(info))


Query: TypeAlias = Annotated[Name, AfterValidator(_read_query)]


class _Relation(SparseSection):
    """The location of rows: a table or query of a database, or data files."""

    _optional: ClassVar[tuple[str, ...]] = ("value_labels", "user_missing", "csv")

    database: DatabaseLocation | None = Field(
        default=None,
        description="a DuckDB or SQLite file, `mysql:...`, `ducklake:...` or the `https://` address of a DuckDB file, "
        "opened read-only; or `env:NAME`",
        examples=["hospital.duckdb"],
    )
    table: Name | None = Field(
        default=None,
        description="a table or view; of an Excel file, a sheet, or a range of cells: Patients!A3:F",
        examples=["patients"],
    )
    query: Query | None = Field(
        default=None, description="a query in place of a table", examples=["SELECT * FROM patients WHERE year = 2026"]
    )
    files: Annotated[tuple[DataFiles, ...], as_list, one_or_more] = Field(
        default=(),
        description="Parquet, CSV, JSON, Excel, SPSS, Stata or SAS files, patterns or addresses (`https://`, `s3://`) "
        "of them, `delta:FOLDER` or `iceberg:FOLDER`, in place of a database; or `env:NAME`",
        examples=["patients/*.parquet"],
    )
    value_labels: ValueLabels = Field(
        default=None,
        description="for files of SPSS, Stata and SAS: the columns that are read as their value labels; true: all with "
        "labels; false: codes are read",
        examples=[["sex", "region"]],
    )
    user_missing: Literal["missing", "keep"] | None = Field(
        default=None,
        description="for files of SPSS, Stata and SAS: user-missing values are NULL, or values like others",
        examples=["missing"],
    )
    person: Person = Field(
        default=None,
        description="the column that identifies a person: classes count persons, not rows; false: each row is a person",
        examples=["patient_id"],
    )
    csv: CsvSection | None = Field(
        default=None, description="how CSV files are written; what is not given is detected", examples=[{"skip": 2}]
    )

    def _flaws(self) -> Iterator[Flaw]:
        if self.table is not None and self.query is not None:
            yield ("query",), "give table = ... or query = ..., not both"
        if self.files and self.database is not None:
            yield ("files",), "give database = ... or files = ..., not both"
        elif self.files and self.query is not None:
            yield ("query",), "applies to a database: with files = ..., remove it"
        if self.database is not None:
            for name in ("value_labels", "user_missing"):
                if getattr(self, name) is not None:
                    yield (name,), "applies to files of SPSS, Stata and SAS: leave it out"
        if self.database is not None and self.table is None and self.query is None:
            yield (), "names a database but no table: add table = ... or query = ..."
        if self.csv is not None and not self._may_have_csv_files:
            yield ("csv",), "applies to CSV files: remove it"

    @property
    def _may_have_csv_files(self) -> bool:
        return self.database is None


class SourceSection(_Relation):
    """The location of the source table: a table or query of a database, or data files.

    It is opened read-only. Without this section, the source is the connection, file or data frame that
    `sqlanon.connect` opens.

    Attributes
    ----------
    person:
        A column that is never released. With it, classes count distinct persons: k, l and k-map are in persons, and
        distributions are of (person, value) pairs. False states that each row is a person; if unset, `anonymize`
        refuses a source whose classes hold too few values of a column that appears to number people.
    """

    _optional = (*_Relation._optional, "key", "postgres", "frequency_set", "spark", "fetch_limit", "scratch")

    postgres: PostgresAddress | None = Field(
        default=None,
        description="a PostgreSQL server, in place of a database: its address without a password, or env:NAME",
        examples=["env:HOSPITAL"],
    )
    frequency_set: Annotated[tuple[FilePattern, ...], as_list, one_or_more] = Field(
        default=(),
        description="Parquet files of combinations of values with their counts, from a table in a warehouse",
        examples=["freq.parquet"],
    )
    spark: SparkAddress | None = Field(
        default=None,
        description="Spark, in place of a database: sc://host:port, or a master such as local[2]; or env:NAME",
        examples=["sc://cluster.example:15002"],
    )
    fetch_limit: Annotated[StrictInteger, Field(ge=1)] = Field(
        default=FETCH_LIMIT,
        description="for a source in Spark: the most combinations of values that are fetched and searched here",
        examples=[5_000_000],
    )
    scratch: FilePath | None = Field(
        default=None,
        description="for a source in Spark: a folder that Spark and this machine share, for large fetches",
        examples=["/shared/scratch"],
    )
    undeclared: Literal["error", "drop"] = Field(
        default="error", description="columns without a role: an error, or dropped from the release", examples=["drop"]
    )
    key: Annotated[tuple[Name, ...], as_list, as_set, one_or_more] = Field(
        default=(),
        description="the columns that identify a row, never released: `extend` finds new rows by them, and "
        "strategy forest divides equal rows",
        examples=["id"],
    )

    @property
    def _may_have_csv_files(self) -> bool:
        return not (self.database or self.postgres or self.spark or self.frequency_set)

    @property
    def person_column(self) -> str | None:
        """The column that identifies a person; None if each row is a person or the key is unset."""
        return self.person or None

    def _flaws(self) -> Iterator[Flaw]:
        yield from super()._flaws()
        if self.frequency_set:
            yield from self._frequency_set_flaws()
        if self.postgres is not None:
            if self.database is not None or self.files:
                yield ("postgres",), "give postgres = ..., database = ... or files = ...: only one"
            elif self.table is None and self.query is None:
                yield (), 'has a PostgreSQL server and no table: add table = "schema.name" or query = ...'
        yield from self._spark_flaws()

    def _spark_flaws(self) -> Iterator[Flaw]:
        if self.database is not None or self.postgres is not None or self.frequency_set:
            for name, is_set in (
                ("fetch_limit", self.fetch_limit != FETCH_LIMIT),
                ("scratch", self.scratch is not None),
            ):
                if is_set:
                    yield (name,), "applies to a source in Spark: leave it out"
        if self.spark is None:
            return
        if self.database is not None or self.postgres is not None:
            yield ("spark",), "give spark = ..., database = ... or postgres = ...: only one"
        elif self.table is None and self.query is None and not self.files:
            yield (), 'has Spark and no table: add table = "schema.name", query = ... or files = "x/*.parquet"'
        elif unsupported := [pattern for pattern in self.files if not pattern.lower().endswith((".parquet", "/"))]:
            yield ("files",), f"must be Parquet files for Spark, and {unsupported[0]!r} does not end in .parquet"

    def _frequency_set_flaws(self) -> Iterator[Flaw]:
        if self.database is not None or self.files or self.postgres is not None or self.spark is not None:
            yield ("frequency_set",), "give frequency_set = ..., or a database, files or a server: only one"
        elif self.table is None and self.query is None:
            yield (), "has a frequency set and no table: add table = ..., its name in the warehouse, or query = ..."
        elif self.table is not None and not table_parts(self.table):
            yield ("table",), "must be table, schema.table or database.schema.table, as the warehouse has it"


class PopulationSection(_Relation):
    """The location of the population that contains the source, for k-map and δ-presence. It is opened read-only.

    It needs a column of the same name for each quasi-identifier. Without a database, the table or query is read from
    the database of the source.

    Attributes
    ----------
    person:
        With it, distinct persons are counted; otherwise rows.
    """

    person: Name | None = Field(
        default=None,
        description="the column that identifies a person: classes match persons, not rows",
        examples=["person_id"],
    )

    def _flaws(self) -> Iterator[Flaw]:
        yield from super()._flaws()
        if self.files and self.table is not None:
            yield ("table",), "give table = ... or files = ..., not both"
        if not self.files and self.database is None and self.table is None and self.query is None:
            yield (), "names no table: add table = ..., query = ... or files = ..."

    @property
    def _may_have_csv_files(self) -> bool:
        return bool(self.files)


class SearchSection(SparseSection):
    """The search for the best generalization, and the measure of quality."""

    strategy: Annotated[str, RegistryName(STRATEGIES)] = Field(
        default="optimal",
        description="the algorithm; see docs/reference/strategies.md",
        examples=["mondrian"],
    )
    suppression: Literal["rows", "cells"] = Field(
        default="rows",
        description="leave out rows whose class breaks the policy, or blank some of their cells",
        examples=["cells"],
    )
    summary: Literal["range", "median", "set"] = Field(
        default="range",
        description="for mondrian and k-similar: ranges or medians of ordered values; set: also sets of other values",
        examples=["set"],
    )
    ends: Literal["grid", "exact"] = Field(
        default="grid",
        description="for mondrian and k-similar: ranges end on the grid of the hierarchy; exact: at values of rows, "
        "which reveals these values",
        examples=["exact"],
    )
    sets: Literal["text", "list"] = Field(
        default="text",
        description="with sets: release them as text, {a, b}, or as lists of type VARCHAR[]",
        examples=["list"],
    )
    cuts: Literal["strict", "relaxed"] = Field(
        default="strict",
        description="for mondrian: strict cuts keep equal values on one side",
        examples=["relaxed"],
    )
    suppression_limit: Annotated[
        ExactNumber,
        Field(ge=0, le=1),
        WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
    ] = Field(
        default=Decimal(0),
        description="the share of the rows (or persons) that may be left out",
        json_schema_extra={"default": 0},
        examples=[0.05],
    )
    measure: Annotated[str, RegistryName(MEASURES)] = Field(
        default="loss", description="the quality measure", examples=["precision"]
    )
    aggregate: Aggregate = Field(default="mean", description="how the attributes' figures combine", examples=["max"])
    time_limit: Annotated[Number, Field(gt=0), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})] | None = (
        Field(default=None, description="stop after this time in seconds, with the best found by then", examples=[600])
    )
    max_checks: Annotated[StrictInteger, Field(ge=1)] | None = Field(
        default=None,
        description="stop after checking this number of generalizations, with the best found by then",
        examples=[5000],
    )

    def _flaws(self) -> Iterator[Flaw]:
        for problem in find_conflicts(SEARCH, PolicySections(search=self)):
            yield (problem.place.removeprefix("search."),), problem.message

    def _idle(self) -> set[str]:
        idle = {"aggregate"} if not MEASURES[self.measure].aggregates else set[str]()
        if self.suppression == "rows":
            idle.add("suppression")
        if self.sets == "text":
            idle.add("sets")
        return idle.union(self.traits.ignored_keys)

    @property
    def traits(self) -> Traits:
        """The traits of the strategy."""
        return STRATEGIES[self.strategy].traits

    @property
    def is_local(self) -> bool:
        """Whether the search recodes below the full domain."""
        return self.traits.is_local or self.suppression == "cells"


STORAGE_VERSION = "v1.4.0"
"""The default; every DuckDB that sqlanon supports knows it."""
_DUCKDB_VERSION = re.compile(r"^v[1-9]\d*\.\d+\.\d+$")


def _require_duckdb_version(value: str) -> str:
    if not _DUCKDB_VERSION.match(value):
        raise ValueError(f"must be a version of DuckDB from v1.0.0 on, such as 'v1.4.0', not {in_words(value)}")
    return value


class ReleaseSection(SparseSection):
    """The location of the release, and the treatment of suppressed rows.

    In Python, `publish` can name the location instead.
    """

    _optional = ("after", "decoys", "draft", "ledger", "keep", "postgres", "spark", "storage_version")

    database: FilePath | None = Field(
        default=None, description="a DuckDB file, written anew", examples=["release.duckdb"]
    )
    file: FilePath | None = Field(
        default=None, description="a Parquet file, in place of a database", examples=["release.parquet"]
    )
    postgres: PostgresAddress | None = Field(
        default=None,
        description="a PostgreSQL server, in place of a file: its address without a password, or env:NAME",
        examples=["env:WAREHOUSE"],
    )
    spark: StrictBoolean = Field(
        default=False, description="publish in the Spark that holds the source, in place of a file", examples=[True]
    )
    table: Name = Field(
        default="release", description="the table; default: the source's name, else release", examples=["patients"]
    )
    storage_version: Annotated[str, AfterValidator(_require_duckdb_version)] = Field(
        default=STORAGE_VERSION,
        description="of a DuckDB file: the oldest DuckDB that reads it",
        examples=["v1.0.0"],
        json_schema_extra={"pattern": _DUCKDB_VERSION.pattern},
    )
    suppressed: Literal["drop", "mask"] = Field(
        default="drop",
        description="omit suppressed rows, or keep them with every quasi-identifier masked",
        examples=["mask"],
    )
    after: Annotated[tuple[Name, ...], as_list, one_or_more] = Field(
        default=(),
        description='earlier releases that this one must be safe beside, by name; or "all" of them',
        examples=["all"],
    )
    decoys: StrictBoolean = Field(
        default=False,
        description="fill classes that remain too small with decoys: invented rows",
        examples=[True],
    )
    ledger: StrictBoolean = Field(
        default=True, description="whether the catalog records the publication", examples=[False]
    )
    draft: StrictBoolean = Field(
        default=False, description="a draft, for trying out: no other release is compared with it", examples=[True]
    )
    keep: Annotated[StrictInteger, Field(ge=1)] = Field(
        default=1, description="the number of versions in the file: this one, and the newest earlier ones", examples=[3]
    )

    @property
    def name(self) -> str:
        """The name of the released table, without its schema on a server."""
        return table_parts(self.table)[-1] if self.postgres is not None or self.spark else self.table

    @property
    def has_location(self) -> bool:
        """Whether a key names the location of the release."""
        return self.spark or any(key is not None for key in (self.database, self.file, self.postgres))

    def _flaws(self) -> Iterator[Flaw]:
        if self.database is not None and self.file is not None:
            yield ("file",), "give database = ... or file = ..., not both"
        yield from self._postgres_flaws()
        yield from self._spark_flaws()
        if self.file is not None and self.file.suffix.lower() != ".parquet":
            yield ("file",), f"must end in .parquet, and {self.file.name!r} does not"
        for problem in find_conflicts(VERSIONS, PolicySections(release=self)):
            yield (problem.place.removeprefix("release."),), problem.message

    def _postgres_flaws(self) -> Iterator[Flaw]:
        if self.postgres is None:
            return
        if self.database is not None or self.file is not None:
            yield ("postgres",), "give postgres = ..., database = ... or file = ...: only one"
        yield from postgres_name_flaws(self.table)

    def _spark_flaws(self) -> Iterator[Flaw]:
        if not self.spark:
            return
        if self.database is not None or self.file is not None or self.postgres is not None:
            yield ("spark",), "give spark = true, or another location of the release: only one"
        if flaw := spark_name_flaw(self.table):
            yield ("table",), flaw


class AboutSection(Section):
    """Notes on a release for people, in the words of the data holder. The report page shows them as written.

    They are in no release, because a manifest holds no free text, and they do not change the policy's fingerprint, so
    that an approved policy stays the same policy.

    >>> AboutSection(purpose="planning of beds", approved_on=date(2026, 11, 23)).approved_on
    '2026-11-23'
    """

    purpose: Name | None = Field(
        default=None, description="what the release is for, and for whom", examples=["planning of beds"]
    )
    owner: Name | None = Field(
        default=None, description="the person or office that answers for it", examples=["Data office"]
    )
    approved_by: Name | None = Field(default=None, description="the person who signed it off", examples=["A. Keeper"])
    approved_on: Annotated[Name, BeforeValidator(_day_as_text)] | None = Field(
        default=None, description="when it was signed off: a date, or any text", examples=["2026-11-23"]
    )


class CatalogSection(Section):
    """The private database of hierarchies, runs and published releases."""

    database: FilePath = Field(description="a separate DuckDB file", examples=["private.duckdb"])


_Fraction = Annotated[float, Field(ge=1e-12, le=1, allow_inf_nan=False), as_real]
_Threshold = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), as_real]


def _sort_unique(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(set(values)))


class Prior(Section):
    """An attacker's prior belief about the values of an attribute: a share for each value.

    Each key of ``[risk.priors]`` is a quasi-identifier, and its value is a table with one of these keys.

    >>> Prior(file="/census/sex.csv").file.name
    'sex.csv'
    """

    file: FilePath | None = Field(
        default=None, description="a CSV file without a header, one line per value: value, share", examples=["sex.csv"]
    )
    table: Name | None = Field(
        default=None,
        description="in place of file: a table or view of two columns, value and share",
        examples=["shares_of_sex"],
    )

    def _flaws(self) -> Iterator[Flaw]:
        if (self.file is None) == (self.table is None):
            yield (), "give file = ... or table = ..., and only one of them"


class RiskSection(Section):
    """Parameters of `sqlanon risk`. They change no release and appear in none.

    Attributes
    ----------
    population, sampling_fraction:
        At most one of them: the rows (or persons) of the population that the source is a sample of, or the source's
        share of it.
    weights:
        A column of sampling weights: the number of people of the population that a row stands for. Never a
        quasi-identifier.
    household:
        A column that identifies a household. Never released.
    threshold:
        The risks above which rows are counted; ascending.
    priors:
        By quasi-identifier, the probability of each value for the person that an attacker looks for. Only the leakage
        uses them. Without priors all rows are equally likely.

    >>> RiskSection(population=1000, threshold=0.5).threshold
    (0.5,)
    """

    population: Annotated[StrictInteger, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None,
        description="the rows (or persons) of the population that the source is a sample of",
        examples=[1_000_000],
    )
    sampling_fraction: _Fraction | None = Field(
        default=None, description="in place of population: the source's share of it, at most 1", examples=[0.1]
    )
    weights: Name | None = Field(default=None, description="the column of sampling weights", examples=["weight"])
    household: Name | None = Field(
        default=None, description="the column that identifies a household", examples=["household_id"]
    )
    threshold: Annotated[
        tuple[_Threshold, ...], Field(min_length=1), AfterValidator(_sort_unique), as_list, one_or_more
    ] = Field(
        default=(0.2,), description="rows with a greater risk are counted; one number or several", examples=[[0.1, 0.2]]
    )
    priors: dict[str, Prior] | None = Field(
        default=None,
        description="for leakage: by quasi-identifier, a file or table with the share of each value",
        examples=[{"sex": {"file": "sex.csv"}}],
    )

    @property
    def columns(self) -> dict[str, str]:
        """The columns that only `risk` reads, by key."""
        columns = {"weights": self.weights, "household": self.household}
        return {key: name for key, name in columns.items() if name is not None}

    def _flaws(self) -> Iterator[Flaw]:
        if self.population is not None and self.sampling_fraction is not None:
            yield ("sampling_fraction",), "give population = ... or sampling_fraction = ..., not both"
