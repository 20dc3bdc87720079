"""The sections of a policy of linked tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    create_model,
    model_serializer,
)
from pydantic.fields import FieldInfo

from sqlanon.places.addresses import SERVER_NAMES, PostgresAddress, SparkAddress
from sqlanon.places.databases import DatabaseLocation, DataFiles
from sqlanon.policy.linked_requirements import group_requirement_types
from sqlanon.policy.privacy import requirement_field
from sqlanon.policy.rules import DatesRule
from sqlanon.policy.sections import Attribute, CsvSection
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements.base import Requirement
from sqlanon.requirements.confidence import Confidence
from sqlanon.support.fields import (
    Count,
    ExactNumber,
    FilePath,
    Flaw,
    Name,
    Number,
    RegistryName,
    Section,
    SparseSection,
    StrictBoolean,
    as_list,
    in_words,
    one_or_more,
    policy_key,
)

Known: TypeAlias = int | Literal["all"]


def _read_known(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 3):
        return value
    raise ValueError(f'must be 1, 2, 3 or "all", not {in_words(value)}')


class LinkedSourceSection(SparseSection):
    """The database of the tables, unless a table names its own; it is opened read-only."""

    database: DatabaseLocation | None = policy_key("a DuckDB file, or env:NAME", example="hospital.duckdb")
    postgres: PostgresAddress | None = policy_key(
        "a PostgreSQL server, in place of a database: its address without a password, or env:NAME",
        example="env:HOSPITAL",
    )
    spark: SparkAddress | None = policy_key(
        "Spark, in place of a database: sc://host:port, or a master such as local[2]; or env:NAME",
        example="sc://cluster.example:15002",
    )
    scratch: FilePath | None = policy_key(
        "for tables in Spark: a folder that Spark and this machine share, for large fetches", example="/shared/scratch"
    )
    csv: CsvSection | None = policy_key("the format of CSV files; unset keys are detected", example={"skip": 2})

    @property
    def server(self) -> dict[str, Any]:
        """The keys of a server that has the tables."""
        return {"postgres": self.postgres, "spark": self.spark, "scratch": self.scratch}

    @property
    def server_key(self) -> str | None:
        """The key that names a server; None for files."""
        return next((key for key in ("postgres", "spark") if getattr(self, key) is not None), None)

    def _flaws(self) -> Iterator[Flaw]:
        locations = [key for key in ("postgres", "spark", "database") if getattr(self, key) is not None]
        if len(locations) > 1:
            yield (locations[0],), f"give {' = ... or '.join(locations)} = ...: only one"
        if self.server_key is not None and self.csv is not None:
            yield ("csv",), f"is for CSV files, and the tables are in {SERVER_NAMES[self.server_key]}: leave it out"
        if self.scratch is not None and self.spark is None:
            yield ("scratch",), "applies to tables in Spark: leave it out"


class LinkedAttribute(Attribute):
    """A column of one of several tables. Keys link the tables, and are replaced in every release."""

    _can_shift: ClassVar[bool] = True

    role: Literal["identifying", "quasi", "sensitive", "insensitive", "key"] = policy_key(  # type: ignore[assignment]
        "one of identifying, quasi, sensitive, insensitive, key", example="key", default=...
    )

    def _flaws(self) -> Iterator[Flaw]:
        yield from super()._flaws()
        if any(isinstance(rule, DatesRule) and rule.shift for rule in (self.hierarchy or ())[1:]):
            yield ("hierarchy",), "shift moves the values themselves: give it to the first rule"


class TableSection(SparseSection):
    """A table: its location, its keys, and the roles of its columns.

    Attributes
    ----------
    person:
        The key of the person table; only that table has it.
    key:
        The columns that identify a row, if other tables reference it or rows are suppressed individually.
    references:
        The columns that name a row of another table, with the name of that table. A row belongs to the row of the
        nearest of these tables; the others are tables that this row belongs to, and must name the same rows.
    orphans:
        Rows without a person are an error, or they are left out and counted as suppressed.
    """

    name: Name = policy_key("the table or view, and its name in the release", example="visits", default=...)
    database: DatabaseLocation | None = policy_key(
        "its database, if it is not the one of [source]", example="lab.duckdb"
    )
    table: Name | None = policy_key(
        "its table or view, if it is named otherwise in the source", example="hospital.visits"
    )
    query: Name | None = policy_key("a query in place of a table", example="SELECT * FROM visits WHERE year = 2026")
    files: Annotated[tuple[DataFiles, ...], as_list, one_or_more] = policy_key(
        "data files in place of a database", example="visits/*.parquet", default=()
    )
    csv: CsvSection | None = policy_key("the format of CSV files; unset keys are detected", example={"skip": 2})
    person: Annotated[tuple[Name, ...], as_list, one_or_more] = policy_key(
        "the columns that identify a person; they make this the table of persons", example=["patient_id"], default=()
    )
    key: Annotated[tuple[Name, ...], as_list, one_or_more] = policy_key(
        "the columns that identify a row", example=["visit_id"], default=()
    )
    references: dict[str, str] = policy_key(
        "by column, the table whose row it names", example={"patient_id": "patients"}, default={}
    )
    orphans: Literal["error", "suppress"] = policy_key(
        "rows without a person: an error, or suppress them", example="suppress", default="error"
    )
    undeclared: Literal["error", "drop"] = policy_key(
        "a column without a role: an error, or not released", example="drop", default="error"
    )
    attributes: dict[str, LinkedAttribute] = policy_key(
        "the role of each column", example={"ward": {"role": "quasi", "hierarchy": "suppress"}}, default={}
    )

    def _flaws(self) -> Iterator[Flaw]:
        if self.person and self.references:
            yield ("references",), "the table of persons references no other table: remove person or references"
        elif not self.person and not self.references:
            yield (
                (),
                'names no person: add person = [...] to the table of persons, or references = { column = "table" }',
            )
        yield from self._key_flaws()
        yield from self._attribute_flaws()

    def _key_flaws(self) -> Iterator[Flaw]:
        keys = {name: place for place in ("person", "key", "references") for name in getattr(self, place)}
        for name, place in keys.items():
            attribute = self.attributes.get(name)
            if attribute is None:
                yield (place,), f'{name!r} has no role: add {name} = {{ role = "key" }} to its attributes'
            elif attribute.role != "key":
                yield ("attributes", name, "role"), f'must be "key", because {place} names the column'

    def _attribute_flaws(self) -> Iterator[Flaw]:
        keys = {*self.person, *self.key, *self.references}
        by_lower: dict[str, str] = {}
        for name in self.attributes:
            if (first := by_lower.setdefault(name.lower(), name)) != name:
                message = f"differs from {first!r} only in case: in SQL they are one column; keep one"
                yield ("attributes", name), message
        for name, attribute in self.attributes.items():
            if attribute.role == "key" and name not in keys:
                message = "a key is named by person, key or references, and this one is not: give it another role"
                yield ("attributes", name, "role"), message
            if attribute.noise is not None:
                yield ("attributes", name, "noise"), "is not supported with several tables: give a hierarchy"
            if attribute.on_unknown == "suppress":
                yield ("attributes", name, "on_unknown"), "is not supported with several tables: complete the hierarchy"
            if attribute.identification != "identifying":
                message = "is for a strategy that is not supported with several tables: leave it out"
                yield ("attributes", name, "identification"), message

    @property
    def is_key_partly_reference(self) -> bool:
        """Whether some columns of the key name a row of another table, and others do not."""
        return 0 < len({*self.key} & {*self.references}) < len(self.key)

    def columns_naming(self, table: str) -> tuple[str, ...]:
        """The columns that name a row of a table."""
        return tuple(column for column, target in self.references.items() if target == table)

    def names_of(self, role: str) -> tuple[str, ...]:
        """The attributes with a role, in the order of the policy."""
        return tuple(name for name, attribute in self.attributes.items() if attribute.role == role)


class LinkedPrivacySection(Section):
    """The requirements of linked tables.

    k^m-anonymity: M. Terrovitis, N. Mamoulis, P. Kalnis, "Privacy-preserving anonymization of set-valued data" (PVLDB
    2008), with the person's own quasi-identifiers. Signatures: M. E. Nergiz, C. Clifton, A. E. Nergiz,
    "Multirelational k-anonymity" (TKDE 2009).
    """

    k: Annotated[int, Field(strict=True, ge=1)] = policy_key(
        "the least number of persons whom an attacker cannot distinguish", example=5, default=...
    )
    known: Annotated[
        Known,
        PlainValidator(_read_known),
        WithJsonSchema({"anyOf": [{"enum": ["all"]}, {"type": "integer", "minimum": 1, "maximum": 3}]}),
    ] = policy_key("the number of child rows of a person that an attacker knows, or all", example=2, default=2)
    confidence: Annotated[tuple[Confidence, ...], as_list, one_or_more] = policy_key(
        "the greatest share of a group's persons with the same sensitive value",
        example={"attribute": "visits.diagnosis", "max": 0.5},
        default=(),
    )

    @property
    def named_requirements(self) -> Iterator[tuple[str, int, Requirement | Confidence]]:
        """The requirements on sensitive attributes, with their key and number."""
        for key in (*group_requirement_types(), "confidence"):
            for i, requirement in enumerate(getattr(self, key)):
                yield key, i, requirement

    @model_serializer(mode="wrap")
    def _without_empty_lists(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value not in ((), [])}


_OWN_FIELDS: Mapping[str, FieldInfo] = dict(LinkedPrivacySection.model_fields)


def _assemble() -> None:
    """Add the keys of the requirements on sensitive attributes."""
    definitions: dict[str, Any] = {key: requirement_field(type_) for key, type_ in group_requirement_types().items()}
    fields = create_model("GroupRequirements", __base__=Section, **definitions).model_fields
    LinkedPrivacySection.model_fields.clear()
    LinkedPrivacySection.model_fields.update({**_OWN_FIELDS, **fields})
    LinkedPrivacySection.model_rebuild(force=True)


_assemble()


_Share: TypeAlias = Annotated[
    ExactNumber, Field(ge=0, le=1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
]


class LinkedSearchSection(SparseSection):
    """The search for the best generalization of all tables."""

    strategy: Annotated[str, RegistryName(STRATEGIES)] = policy_key(
        "the algorithm: a full-domain strategy, or mondrian", example="mondrian", default="optimal"
    )
    suppression_limit: _Share = policy_key(
        "the share of the persons that may be suppressed, with all their rows",
        example=0.05,
        default=Decimal(0),
        json_schema_extra={"default": 0},
    )
    row_suppression_limit: _Share = policy_key(
        "the share of the child rows that may be suppressed individually",
        example=0.05,
        default=Decimal(0),
        json_schema_extra={"default": 0},
    )
    measure: Literal["loss"] = policy_key("the quality measure", example="loss", default="loss")
    time_limit: Annotated[Number, Field(gt=0), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})] | None = (
        policy_key("stop after this time in seconds, with the best found by then", example=600)
    )
    max_checks: Count | None = policy_key("stop after checking this number of generalizations", example=5000)

    def _flaws(self) -> Iterator[Flaw]:
        if self.strategy not in linked_strategies():
            message = f"{self.strategy!r} is not supported with several tables"
            yield ("strategy",), f'{message}: use "mondrian" for local recoding, or "optimal" for the full domain'


def linked_strategies() -> tuple[str, ...]:
    """The strategies that anonymize several tables."""
    return tuple(name for name, entry in STRATEGIES.items() if not entry.traits.is_local or name == "mondrian")


class LinkedReleaseSection(SparseSection):
    """The location of the released tables, which have the names of the policy's tables."""

    LOCATION_KEYS: ClassVar[tuple[str, ...]] = ("database", "folder", "postgres", "spark")

    database: FilePath | None = policy_key("a DuckDB file, written anew", example="release.duckdb")
    folder: FilePath | None = policy_key(
        "a folder of Parquet files, one for each table, in place of a database", example="release"
    )
    postgres: PostgresAddress | None = policy_key(
        "a PostgreSQL server, in place of a file: its address without a password, or env:NAME", example="env:WAREHOUSE"
    )
    spark: StrictBoolean = policy_key(
        "publish in the Spark that holds the source, in place of a file", example=True, default=False
    )
    schema_name: Name | None = policy_key(
        "the schema in PostgreSQL or Spark, which has no other tables", example="release"
    )
    after: Name | None = policy_key(
        "the name of an earlier release of the same tables, from which the new one is made; for one table, the key has "
        "another meaning",
        example="research.duckdb",
    )

    @property
    def has_location(self) -> bool:
        """Whether a key names the location of the release."""
        return any(getattr(self, key) for key in self.LOCATION_KEYS)

    def _flaws(self) -> Iterator[Flaw]:
        if len(location_keys := [key for key in self.LOCATION_KEYS if getattr(self, key)]) > 1:
            yield (location_keys[1],), f"give {' = ... or '.join(location_keys)} = ...: only one"
        is_on_server = self.postgres is not None or self.spark
        if is_on_server and self.schema_name is None:
            yield ("schema_name",), 'is missing: name the schema of the released tables, schema_name = "release"'
        if not is_on_server and self.schema_name is not None:
            message = "is for a release in PostgreSQL or Spark: add postgres = ... or spark = true, or leave it out"
            yield ("schema_name",), message
        if self.folder is not None and self.folder.suffix:
            yield ("folder",), f"names a folder, which has no ending, and {self.folder.name!r} has one"
