"""The sections of a policy, each validated on its own; ``checks`` compares them with one another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema

from sqlanon.measures import MEASURES
from sqlanon.places.addresses import PostgresAddress, SparkAddress, postgres_name_flaws, spark_name_flaw
from sqlanon.places.databases import DatabaseLocation, DataFiles
from sqlanon.policy.compatibility import SEARCH, VERSIONS, PolicySections, find_conflicts
from sqlanon.policy.noise import Noise
from sqlanon.policy.query_files import with_folder
from sqlanon.policy.reading import THOUSANDS, ColumnType, reading_flaws
from sqlanon.policy.rules import DatesRule, Hierarchy, IntervalsRule
from sqlanon.policy.strategies import STRATEGIES, Traits
from sqlanon.support.encodings import check_encoding
from sqlanon.support.fields import (
    Count,
    ExactNumber,
    FilePath,
    FilePattern,
    Flaw,
    Name,
    NameSet,
    Natural,
    Number,
    RegistryName,
    Section,
    SparseSection,
    StrictBoolean,
    TextSet,
    as_list,
    as_real,
    as_set,
    in_words,
    one_or_more,
    policy_folder,
    policy_key,
)
from sqlanon.support.names import table_parts

Role: TypeAlias = Literal["identifying", "quasi", "sensitive", "insensitive"]
Aggregate: TypeAlias = Literal["mean", "geometric", "max", "sum"]
Identification: TypeAlias = Literal["identifying", "more", "most"]

FETCH_LIMIT = 20_000_000


_HIERARCHY_KEYS = ("weight", "min_level", "max_level", "forbidden", "identification")
"""The keys of an attribute that control its generalization."""

READING_KEYS = ("type", "format", "pivot", "missing")
"""The keys of an attribute that control how its values are read."""


class Attribute(SparseSection):
    """A column of the source table: its role, and for a quasi-identifier its hierarchy or noise."""

    _optional = ("forbidden", "identification", "noise", *READING_KEYS)
    _can_shift: ClassVar[bool] = False
    """Whether its dates can be moved: those of a person together, in all tables."""

    role: Role = policy_key("one of identifying, quasi, sensitive, insensitive", example="quasi", default=...)
    hierarchy: Hierarchy | None = policy_key("one rule, or a list of rules that compose", example={"mask": "right"})
    noise: Noise | None = policy_key("in place of a hierarchy, for numbers and dates", example={"epsilon": 4.0})
    weight: Annotated[float, Field(strict=True, gt=0, le=1e12, allow_inf_nan=False)] = policy_key(
        "how much the attribute counts in the measure", example=2.0, default=1.0
    )
    on_unknown: Literal["error", "suppress"] = policy_key(
        "values that the hierarchy lacks, or that cannot get noise: an error, or suppress their rows",
        example="suppress",
        default="error",
    )
    min_level: Natural = policy_key("the lowest level that may be released", example=1, default=0)
    max_level: Natural | None = policy_key(
        "the highest level that any cell may show, masked rows and blanks included", example=2
    )
    forbidden: NameSet = policy_key(
        "labels of the hierarchy, as text, that no release may show", example=["0213*"], default=()
    )
    identification: Identification = policy_key(
        "for mu-argus: how identifying the attribute is; it decides which combinations are checked",
        example="most",
        default="identifying",
    )
    type: ColumnType | None = policy_key(
        "for files and data frames: the type that the texts of the column are read as; values that are not "
        "of it are refused",
        example="date",
    )
    format: Name | None = policy_key(
        "how dates and timestamps are written, with the directives of strptime", example="%d.%m.%Y"
    )
    pivot: Annotated[int, Field(strict=True, ge=1000, le=9999)] | None = policy_key(
        "the last year that two digits (%y) can mean: with 2026, 26 is 2026 and 27 is 1927", example=2026
    )
    missing: TextSet = policy_key(
        "for files and data frames: texts of the column that mean NULL", example=["-9", "999"], default=()
    )

    @property
    def has_reading_keys(self) -> bool:
        """Whether a key controls how the values of the column are read."""
        return bool(self._set_keys(*READING_KEYS))

    @property
    def shift(self) -> int | None:
        """The maximum number of days by which its dates are moved; None if they are not."""
        return next((rule.shift for rule in self.hierarchy or () if isinstance(rule, DatesRule) and rule.shift), None)

    @property
    def has_open_ends(self) -> bool:
        """Whether a rule of the hierarchy has open ends, so that level 0 has labels and is text."""
        return any(isinstance(rule, IntervalsRule) and rule.has_open_ends for rule in self.hierarchy or ())

    def _flaws(self) -> Iterator[Flaw]:
        if self.role == "quasi" and self.hierarchy is None and self.noise is None:
            yield (), 'a quasi-identifier needs a hierarchy or noise; the simplest is hierarchy = "suppress"'
        if self.max_level is not None and self.min_level > self.max_level:
            yield ("min_level",), f"{self.min_level} is more than max_level, {self.max_level}"
        if self.shift is not None and not self._can_shift:
            message = (
                "shift moves the dates of a person in several tables by the same days, and this policy has one table"
            )
            yield ("hierarchy",), f"{message}: remove shift, or write the policy with [[table]]"
        yield from reading_flaws(self.type, self.format, self.pivot)
        if self.role == "identifying":
            advice = "controls how values are read, and identifying attributes are not read: remove it"
            yield from ((loc, advice) for loc in self._set_keys(*READING_KEYS))
        if self.role != "quasi":
            if self.hierarchy is not None and self.role != "sensitive":
                message = f"only quasi-identifiers are generalized, and this attribute is {self.role}: remove the"
                yield ("hierarchy",), f'{message} hierarchy, or set role = "quasi"'
            message = f"applies to quasi-identifiers, and this attribute is {self.role}: leave it out"
            yield from ((loc, message) for loc in self._set_keys("noise", "on_unknown", *_HIERARCHY_KEYS))
        elif self.noise is not None and self.hierarchy is not None:
            yield ("noise",), "an attribute has a hierarchy or noise, not both: remove one"
        elif self.noise is not None:
            message = "applies to attributes with a hierarchy, and this one has noise: remove it"
            yield from ((loc, message) for loc in self._set_keys(*_HIERARCHY_KEYS))

    def _set_keys(self, *names: str) -> list[tuple[str]]:
        """The keys that differ from their default, as the places of flaws."""
        return [(name,) for name in names if getattr(self, name) != type(self).model_fields[name].default]


_NAME_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1}


def _read_person(value: object) -> object:
    if value is None or value is False or (isinstance(value, str) and value):
        return value
    raise ValueError("must be the name of a column, or false: each row is a person")


Person: TypeAlias = Annotated[
    str | Literal[False] | None,
    PlainValidator(_read_person),
    WithJsonSchema({"anyOf": [_NAME_SCHEMA, {"type": "boolean", "const": False}]}),
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
        {"anyOf": [{"type": "boolean"}, _NAME_SCHEMA, {"type": "array", "items": _NAME_SCHEMA, "minItems": 1}]}
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


class CsvSection(SparseSection):
    """The format of CSV files. Unset keys are detected, and an ambiguous file is refused."""

    encoding: Annotated[str, AfterValidator(check_encoding)] | None = policy_key(
        "the encoding, by its Python name; default: utf-8, or utf-16 with a byte order mark", example="windows-1252"
    )
    delimiter: Annotated[str, AfterValidator(_require_character)] | None = policy_key(
        "the character between fields", example=";"
    )
    quote: Annotated[str, AfterValidator(lambda value: value and _require_character(value))] | None = policy_key(
        'the character around values that have delimiters or line ends; "": there is none', example="'"
    )
    header: StrictBoolean | None = policy_key("whether the first line has the names of the columns", example=True)
    skip: Natural | None = policy_key("lines above the header", example=2)
    footer: Natural = policy_key(
        "lines below the data, not counting blank lines at the end of the file", example=1, default=0
    )
    decimal: Literal[".", ","] | None = policy_key(
        "the mark before the decimals of numbers; default: a point", example=","
    )
    thousands: Annotated[str, AfterValidator(_require_thousands_mark)] | None = policy_key(
        "the mark between groups of three digits; default: none", example="."
    )
    missing: TextSet | None = policy_key(
        'the texts that mean NULL in every column; default: [""], the empty text; []: none',
        example=["", "NA", "?"],
    )
    on_bad_line: Literal["refuse", "drop"] = policy_key(
        "a line with another number of fields than the header, a stray quote or a NUL byte: the file is "
        "refused, or such lines are dropped and counted",
        example="drop",
        default="refuse",
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
            advice = "give another" if self.decimal else 'add decimal = ","'
            yield ("thousands",), f"is also the decimal mark: {advice}"


def _resolve_paths(query: str, info: ValidationInfo) -> str:
    return with_folder(query, policy_folder(info))


class _Relation(SparseSection):
    """The location of rows: a table or query of a database, or data files."""

    _optional: ClassVar[tuple[str, ...]] = ("value_labels", "user_missing", "csv")

    database: DatabaseLocation | None = policy_key(
        "a DuckDB or SQLite file, `mysql:...`, `ducklake:...` or the `https://` address of a DuckDB file, "
        "opened read-only; or `env:NAME`",
        example="hospital.duckdb",
    )
    table: Name | None = policy_key(
        "a table or view; of an Excel file, a sheet, or a range of cells: Patients!A3:F", example="patients"
    )
    query: Annotated[Name, AfterValidator(_resolve_paths)] | None = policy_key(
        "a query in place of a table", example="SELECT * FROM patients WHERE year = 2026"
    )
    files: Annotated[tuple[DataFiles, ...], as_list, one_or_more] = policy_key(
        "Parquet, CSV, JSON, Excel, SPSS, Stata or SAS files, patterns or addresses (`https://`, `s3://`) "
        "of them, `delta:FOLDER` or `iceberg:FOLDER`, in place of a database; or `env:NAME`",
        example="patients/*.parquet",
        default=(),
    )
    value_labels: ValueLabels = policy_key(
        "for files of SPSS, Stata and SAS: the columns that are read as their value labels; true: all with "
        "labels; false: codes are read",
        example=["sex", "region"],
    )
    user_missing: Literal["missing", "keep"] | None = policy_key(
        "for files of SPSS, Stata and SAS: user-missing values are NULL, or ordinary values", example="missing"
    )
    person: Person = policy_key(
        "the column that identifies a person: classes count persons, not rows; false: each row is a person",
        example="patient_id",
    )
    csv: CsvSection | None = policy_key("the format of CSV files; unset keys are detected", example={"skip": 2})

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

    postgres: PostgresAddress | None = policy_key(
        "a PostgreSQL server, in place of a database: its address without a password, or env:NAME",
        example="env:HOSPITAL",
    )
    frequency_set: Annotated[tuple[FilePattern, ...], as_list, one_or_more] = policy_key(
        "Parquet files of combinations of values with their counts, from a table in a warehouse",
        example="freq.parquet",
        default=(),
    )
    spark: SparkAddress | None = policy_key(
        "Spark, in place of a database: sc://host:port, or a master such as local[2]; or env:NAME",
        example="sc://cluster.example:15002",
    )
    fetch_limit: Count = policy_key(
        "for a source in Spark: the most combinations of values that are fetched and searched here",
        example=5_000_000,
        default=FETCH_LIMIT,
    )
    scratch: FilePath | None = policy_key(
        "for a source in Spark: a folder that Spark and this machine share, for large fetches",
        example="/shared/scratch",
    )
    undeclared: Literal["error", "drop"] = policy_key(
        "columns without a role: an error, or dropped from the release", example="drop", default="error"
    )
    key: NameSet = policy_key(
        "the columns that identify a row, never released: `extend` finds new rows by them, and "
        "strategy forest divides equal rows",
        example="id",
        default=(),
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
        if self.postgres is not None and (self.database is not None or self.files):
            yield ("postgres",), "give postgres = ..., database = ... or files = ...: only one"
        elif self.postgres is not None and self.table is None and self.query is None:
            yield (), 'has a PostgreSQL server and no table: add table = "schema.name" or query = ...'
        yield from self._spark_flaws()

    def _spark_flaws(self) -> Iterator[Flaw]:
        if self.database is not None or self.postgres is not None or self.frequency_set:
            if self.fetch_limit != FETCH_LIMIT:
                yield ("fetch_limit",), "applies to a source in Spark: leave it out"
            if self.scratch is not None:
                yield ("scratch",), "applies to a source in Spark: leave it out"
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

    person: Name | None = policy_key(
        "the column that identifies a person: classes match persons, not rows", example="person_id"
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

    strategy: Annotated[str, RegistryName(STRATEGIES)] = policy_key(
        "the algorithm; see docs/reference/strategies.md", example="mondrian", default="optimal"
    )
    suppression: Literal["rows", "cells"] = policy_key(
        "suppress rows whose class violates the policy, or blank some of their cells", example="cells", default="rows"
    )
    summary: Literal["range", "median", "set"] = policy_key(
        "for mondrian and k-similar: ranges or medians of ordered values; set: also sets of other values",
        example="set",
        default="range",
    )
    ends: Literal["grid", "exact"] = policy_key(
        "for mondrian and k-similar: ranges end on the grid of the hierarchy; exact: at values of rows, "
        "which reveals these values",
        example="exact",
        default="grid",
    )
    sets: Literal["text", "list"] = policy_key(
        "with sets: release them as text, {a, b}, or as lists of type VARCHAR[]", example="list", default="text"
    )
    cuts: Literal["strict", "relaxed"] = policy_key(
        "for mondrian: strict cuts keep equal values on one side", example="relaxed", default="strict"
    )
    suppression_limit: Annotated[
        ExactNumber, Field(ge=0, le=1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
    ] = policy_key(
        "the share of the rows (or persons) that may be suppressed",
        example=0.05,
        default=Decimal(0),
        json_schema_extra={"default": 0},
    )
    measure: Annotated[str, RegistryName(MEASURES)] = policy_key(
        "the quality measure", example="precision", default="loss"
    )
    aggregate: Aggregate = policy_key("how the attributes' figures combine", example="max", default="mean")
    time_limit: Annotated[Number, Field(gt=0), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})] | None = (
        policy_key("stop after this time in seconds, with the best found by then", example=600)
    )
    max_checks: Count | None = policy_key(
        "stop after checking this number of generalizations, with the best found by then", example=5000
    )

    def _flaws(self) -> Iterator[Flaw]:
        for problem in find_conflicts(SEARCH, PolicySections(search=self)):
            yield (problem.place.removeprefix("search."),), problem.message

    def _idle(self) -> set[str]:
        is_idle = {
            "aggregate": not MEASURES[self.measure].aggregates,
            "suppression": self.suppression == "rows",
            "sets": self.sets == "text",
        }
        return {*(name for name, idle in is_idle.items() if idle), *self.traits.ignored_keys}

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

    LOCATION_KEYS: ClassVar[tuple[str, ...]] = ("database", "file", "postgres", "spark")

    _optional = ("after", "decoys", "draft", "ledger", "keep", "postgres", "spark", "storage_version")

    database: FilePath | None = policy_key("a DuckDB file, written anew", example="release.duckdb")
    file: FilePath | None = policy_key("a Parquet file, in place of a database", example="release.parquet")
    postgres: PostgresAddress | None = policy_key(
        "a PostgreSQL server, in place of a file: its address without a password, or env:NAME", example="env:WAREHOUSE"
    )
    spark: StrictBoolean = policy_key(
        "publish in the Spark that holds the source, in place of a file", example=True, default=False
    )
    table: Name = policy_key(
        "the table; default: the source's name, else release", example="patients", default="release"
    )
    storage_version: Annotated[str, AfterValidator(_require_duckdb_version)] = policy_key(
        "of a DuckDB file: the oldest DuckDB that reads it",
        example="v1.0.0",
        default=STORAGE_VERSION,
        json_schema_extra={"pattern": _DUCKDB_VERSION.pattern},
    )
    suppressed: Literal["drop", "mask"] = policy_key(
        "omit suppressed rows, or keep them with every quasi-identifier masked", example="mask", default="drop"
    )
    after: Annotated[tuple[Name, ...], as_list, one_or_more] = policy_key(
        'earlier releases, by name, or "all": the new release must be safe together with them',
        example="all",
        default=(),
    )
    decoys: StrictBoolean = policy_key(
        "fill classes that remain too small with decoys: invented rows", example=True, default=False
    )
    ledger: StrictBoolean = policy_key("whether the catalog records the publication", example=False, default=True)
    draft: StrictBoolean = policy_key(
        "a draft, for testing: no other release is compared with it", example=True, default=False
    )
    keep: Count = policy_key(
        "the number of versions in the file: this one, and the newest earlier ones", example=3, default=1
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
        if self.postgres is not None:
            if self.database is not None or self.file is not None:
                yield ("postgres",), "give postgres = ..., database = ... or file = ...: only one"
            yield from postgres_name_flaws(self.table)
        if self.spark:
            if self.database is not None or self.file is not None or self.postgres is not None:
                yield ("spark",), "give spark = true, or another location of the release: only one"
            if flaw := spark_name_flaw(self.table):
                yield ("table",), flaw
        if self.file is not None and self.file.suffix.lower() != ".parquet":
            yield ("file",), f"must end in .parquet, and {self.file.name!r} does not"
        for problem in find_conflicts(VERSIONS, PolicySections(release=self)):
            yield (problem.place.removeprefix("release."),), problem.message


class AboutSection(Section):
    """Notes on a release for people, in the words of the data holder. The report page shows them as written.

    They are in no release, because a manifest holds no free text, and they do not change the policy's fingerprint, so
    that an approved policy stays the same policy.

    >>> AboutSection(purpose="planning of beds", approved_on=date(2026, 11, 23)).approved_on
    '2026-11-23'
    """

    purpose: Name | None = policy_key("what the release is for, and for whom", example="planning of beds")
    owner: Name | None = policy_key("the person or office responsible for it", example="Data office")
    approved_by: Name | None = policy_key("the person who signed it off", example="A. Keeper")
    approved_on: (
        Annotated[Name, BeforeValidator(lambda value: value.isoformat() if isinstance(value, date) else value)] | None
    ) = policy_key("when it was signed off: a date, or any text", example="2026-11-23")


class CatalogSection(Section):
    """The private database of hierarchies, runs and published releases."""

    database: FilePath = policy_key("a separate DuckDB file", example="private.duckdb", default=...)


_Fraction = Annotated[float, Field(ge=1e-12, le=1, allow_inf_nan=False), as_real]
_Threshold = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), as_real]


class Prior(Section):
    """An attacker's prior belief about the values of an attribute: a share for each value.

    Each key of ``[risk.priors]`` is a quasi-identifier, and its value is a table with one of these keys.

    >>> Prior(file="/census/sex.csv").file.name
    'sex.csv'
    """

    file: FilePath | None = policy_key(
        "a CSV file without a header, one line per value: value, share", example="sex.csv"
    )
    table: Name | None = policy_key(
        "in place of file: a table or view of two columns, value and share", example="shares_of_sex"
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

    population: Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)] | None = policy_key(
        "the rows (or persons) of the population that the source is a sample of", example=1_000_000
    )
    sampling_fraction: _Fraction | None = policy_key(
        "in place of population: the source's share of it, at most 1", example=0.1
    )
    weights: Name | None = policy_key("the column of sampling weights", example="weight")
    household: Name | None = policy_key("the column that identifies a household", example="household_id")
    threshold: Annotated[tuple[_Threshold, ...], Field(min_length=1), as_set, as_list, one_or_more] = policy_key(
        "rows with a greater risk are counted; one number or several", example=[0.1, 0.2], default=(0.2,)
    )
    priors: dict[str, Prior] | None = policy_key(
        "for leakage: by quasi-identifier, a file or table with the share of each value",
        example={"sex": {"file": "sex.csv"}},
    )

    @property
    def columns(self) -> dict[str, str]:
        """The columns that only `risk` reads, by key."""
        columns = {"weights": self.weights, "household": self.household}
        return {key: name for key, name in columns.items() if name is not None}

    def _flaws(self) -> Iterator[Flaw]:
        if self.population is not None and self.sampling_fraction is not None:
            yield ("sampling_fraction",), "give population = ... or sampling_fraction = ..., not both"
