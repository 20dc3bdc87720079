"""The policy of linked tables: one table of persons, and tables whose rows belong to them.

A policy file with ``[[table]]`` is read as a `LinkedPolicy`; without, as a `Policy`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
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

from sqlanon.errors import PolicyError, Problem
from sqlanon.places.addresses import PostgresAddress
from sqlanon.places.databases import DatabaseLocation, DataFiles
from sqlanon.policy.models import Policy, read_file, without_file_folders
from sqlanon.policy.privacy import PrivacySection, requirement_field
from sqlanon.policy.problems import join_key, read_part, unknown_key
from sqlanon.policy.redact import redact_attribute
from sqlanon.policy.rules import DatesRule, TableRule
from sqlanon.policy.sections import AboutSection, Attribute, CatalogSection, CsvSection, SearchSection, SourceSection
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements.base import ClassCondition, Domain, Requirement, SourceDomains
from sqlanon.requirements.confidence import Confidence
from sqlanon.requirements.registry import RequirementType, requirement_types_by_key
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
    as_list,
    in_words,
    nearest_word,
    one_or_more,
    policy_key,
)

Known: TypeAlias = int | Literal["all"]


def _read_known(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 3):
        return value
    raise ValueError(f'must be 1, 2, 3 or "all", not {in_words(value)}')


class LinkedSource(SparseSection):
    """The database of the tables, unless a table names its own; it is opened read-only."""

    database: DatabaseLocation | None = policy_key("a DuckDB file, or env:NAME", example="hospital.duckdb")
    postgres: PostgresAddress | None = policy_key(
        "a PostgreSQL server, in place of a database: its address without a password, or env:NAME",
        example="env:HOSPITAL",
    )
    csv: CsvSection | None = policy_key("how CSV files are written; what is not given is detected", example={"skip": 2})

    def _flaws(self) -> Iterator[Flaw]:
        if self.postgres is not None and self.database is not None:
            yield ("postgres",), "give postgres = ... or database = ...: only one"
        if self.postgres is not None and self.csv is not None:
            yield ("csv",), "is for CSV files, and the tables are in PostgreSQL: leave it out"


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
        The columns that identify a row, if other tables reference it or rows are suppressed by themselves.
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
    csv: CsvSection | None = policy_key("how CSV files are written; what is not given is detected", example={"skip": 2})
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


class LinkedPrivacy(Section):
    """The requirements of linked tables.

    k^m-anonymity: M. Terrovitis, N. Mamoulis, P. Kalnis, "Privacy-preserving anonymization of set-valued data" (PVLDB
    2008), with the person's own quasi-identifiers. Signatures: M. E. Nergiz, C. Clifton, A. E. Nergiz,
    "Multirelational k-anonymity" (TKDE 2009).
    """

    k: Annotated[int, Field(strict=True, ge=1)] = policy_key(
        "the fewest persons who look alike to an attacker", example=5, default=...
    )
    known: Annotated[
        int | str,
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
        for key in (*_group_requirement_types(), "confidence"):
            for i, requirement in enumerate(getattr(self, key)):
                yield key, i, requirement

    @model_serializer(mode="wrap")
    def _without_empty_lists(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value not in ((), [])}


def _group_requirement_types() -> dict[str, RequirementType]:
    """The requirements on the sensitive values of a class, by key."""
    return {
        key: type_
        for key, type_ in requirement_types_by_key().items()
        if type_.entry.scope == "class" and "attribute" in getattr(type_, "model_fields", ())
    }


_OWN_FIELDS: Mapping[str, FieldInfo] = dict(LinkedPrivacy.model_fields)


def _assemble() -> None:
    """Add the keys of the requirements on sensitive attributes."""
    definitions: dict[str, Any] = {key: requirement_field(type_) for key, type_ in _group_requirement_types().items()}
    fields = create_model("GroupRequirements", __base__=Section, **definitions).model_fields
    LinkedPrivacy.model_fields.clear()
    LinkedPrivacy.model_fields.update({**_OWN_FIELDS, **fields})
    LinkedPrivacy.model_rebuild(force=True)


_assemble()


_Share: TypeAlias = Annotated[
    ExactNumber, Field(ge=0, le=1), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
]


class LinkedSearch(SparseSection):
    """The search for the best generalization of all tables."""

    strategy: Annotated[str, RegistryName(STRATEGIES)] = policy_key(
        "the algorithm: a full-domain strategy, or mondrian", example="mondrian", default="optimal"
    )
    suppression_limit: _Share = policy_key(
        "the share of the persons that may be left out, with all their rows",
        example=0.05,
        default=Decimal(0),
        json_schema_extra={"default": 0},
    )
    row_suppression_limit: _Share = policy_key(
        "the share of the child rows that may be left out by themselves",
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


class LinkedRelease(SparseSection):
    """The location of the released tables, which have the names of the policy's tables."""

    LOCATION_KEYS: ClassVar = ("database", "folder", "postgres")

    database: FilePath | None = policy_key("a DuckDB file, written anew", example="release.duckdb")
    folder: FilePath | None = policy_key(
        "a folder of Parquet files, one for each table, in place of a database", example="release"
    )
    postgres: PostgresAddress | None = policy_key(
        "a PostgreSQL server, in place of a file: its address without a password, or env:NAME", example="env:WAREHOUSE"
    )
    schema_name: Name | None = policy_key("the schema in PostgreSQL, which has no other tables", example="release")

    @property
    def has_location(self) -> bool:
        """Whether a key names the location of the release."""
        return any(getattr(self, key) is not None for key in self.LOCATION_KEYS)

    def _flaws(self) -> Iterator[Flaw]:
        if len(location_keys := [key for key in self.LOCATION_KEYS if getattr(self, key) is not None]) > 1:
            yield (location_keys[1],), f"give {' = ... or '.join(location_keys)} = ...: only one"
        if self.postgres is not None and self.schema_name is None:
            yield ("schema_name",), 'is missing: name the schema of the released tables, schema_name = "release"'
        if self.postgres is None and self.schema_name is not None:
            yield ("schema_name",), "is for a release in PostgreSQL: add postgres = ..., or leave it out"
        if self.folder is not None and self.folder.suffix:
            yield ("folder",), f"names a folder, which has no ending, and {self.folder.name!r} has one"


@dataclass(frozen=True)
class GroupRequirement:
    """A requirement on a sensitive attribute: its key, as it is written, its condition on groups, and the attribute."""

    key: str
    parameters: Mapping[str, Any]
    condition: ClassCondition
    section: TableSection
    attribute: str


class LinkedPolicy(Section):
    """The policy of several tables about the same persons.

    Parameters
    ----------
    table:
        The tables; exactly one has ``person``, the others reference it directly or through other tables.
    source, privacy, search, release, catalog, about:
        As in `Policy`.

    Raises
    ------
    PolicyError
        Lists every mistake of the policy with its place.
    """

    source: LinkedSource = Field(default_factory=LinkedSource)
    table: tuple[TableSection, ...]
    privacy: LinkedPrivacy
    search: LinkedSearch = Field(default_factory=LinkedSearch)
    release: LinkedRelease | None = None
    catalog: CatalogSection | None = None
    about: AboutSection | None = None

    def __init__(self, /, **tree: Any) -> None:
        super().__init__(**read_linked_tree(tree))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LinkedPolicy:
        """Read a policy from a TOML file, as `Policy.load` does."""
        tree, folder = read_file(path)
        return cls(**read_linked_tree(tree, folder))

    @cached_property
    def shift(self) -> int | None:
        """The most days by which all dates of a person are moved; None if they are not."""
        shifts = (attribute.shift for section in self.table for attribute in section.attributes.values())
        return next((shift for shift in shifts if shift is not None), None)

    @cached_property
    def ordered_tables(self) -> tuple[TableSection, ...]:
        """The tables, parents before children, the table of persons first."""
        by_name, ordered = {section.name: section for section in self.table}, list[TableSection]()

        def add(section: TableSection) -> None:
            if section not in ordered:
                for parent in section.references.values():
                    add(by_name[parent])
                ordered.append(section)

        add(next(section for section in self.table if section.person))
        for section in self.table:
            add(section)
        return tuple(ordered)

    def fingerprint(self) -> str:
        """The SHA-256 of the policy, which is independent of how it is written; see `Policy.fingerprint`."""
        tree = self.model_dump(mode="json", exclude_none=True, exclude={"about": True})
        return hashlib.sha256(json.dumps(without_file_folders(tree), separators=(",", ":")).encode()).hexdigest()

    def redact(self) -> dict[str, Any]:
        """The part of the policy that a manifest may show; see `Policy.redact`."""
        return {
            "tables": {
                section.name: {name: redact_attribute(attribute) for name, attribute in section.attributes.items()}
                for section in self.ordered_tables
            },
            "privacy": self.privacy.model_dump(mode="json", exclude_none=True),
            "search": self.search.model_dump(mode="json", exclude_none=True),
        }

    @cached_property
    def group_requirements(self) -> tuple[GroupRequirement, ...]:
        """The requirements on sensitive attributes, with their tables."""
        requirements, parameters = [], self.privacy.model_dump(mode="json", exclude_none=True)
        for key, i, requirement in self.privacy.named_requirements:
            section, name = find_sensitive(self.table, requirement.sensitive_attributes[0])[0]
            requirements.append(GroupRequirement(key, parameters[key][i], _bind(requirement), section, name))
        return tuple(requirements)

    def parent_of(self, section: TableSection) -> TableSection | None:
        """The table whose rows a table's rows belong to, the nearest that they name; None for the table of persons."""
        names = set(section.references.values())
        return next((table for table in reversed(self.ordered_tables) if table.name in names), None)

    def policy_of(self, section: TableSection) -> Policy:
        """The policy of one table by itself, as the stages before the search read it."""
        is_elsewhere = bool(section.files) or section.database is not None
        location: dict[str, Any] = {"database": section.database if is_elsewhere else self.source.database}
        location["postgres"] = None if is_elsewhere else self.source.postgres
        location["table"] = None if section.query or section.files else section.table or section.name
        location |= {"query": section.query, "files": section.files, "csv": section.csv or self.source.csv}
        location |= {"undeclared": section.undeclared, "person": False}
        attributes = {
            name: Attribute.model_construct(**{**dict(attribute), "role": "insensitive"})
            if attribute.role == "key"
            else attribute
            for name, attribute in section.attributes.items()
        }
        return Policy.model_construct(
            source=SourceSection().model_copy(update=location),
            attributes=attributes,
            privacy=PrivacySection.model_validate({"k": 1}),
            search=SearchSection(),
            population=None,
            risk=None,
            release=None,
            catalog=None,
            about=None,
        )


_SECTIONS: Mapping[str, type[Section]] = {
    "source": LinkedSource,
    "privacy": LinkedPrivacy,
    "search": LinkedSearch,
    "release": LinkedRelease,
    "catalog": CatalogSection,
    "about": AboutSection,
}


def is_linked(tree: Mapping[str, Any]) -> bool:
    """Whether the tree of a policy is of several tables."""
    return "table" in tree


_COPY = "copy them to a DuckDB file, or export them to Parquet files, with files = ... for each [[table]]"
_NOT_SUPPORTED: Mapping[tuple[str, str], str] = {
    ("source", "spark"): f"several tables are not read from Spark yet: {_COPY}",
    ("release", "spark"): "several tables are not released to Spark yet: release them to a folder of Parquet files, "
    "which Spark reads",
}
"""By section and key, why a server is refused, and the way without it."""


def _remove_servers(raw: dict[str, Any]) -> Iterator[Problem]:
    """Remove the keys of servers that are not supported, and say so."""
    for (key, name), message in _NOT_SUPPORTED.items():
        if isinstance(raw.get(key), Mapping) and raw[key].get(name):
            yield Problem(f"{key}.{name}", message)
            raw[key] = {entry: value for entry, value in raw[key].items() if entry != name}


def read_linked_tree(
    tree: Mapping[str, Any], folder: Path | None = None, known_problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Read a whole policy of several tables. A `PolicyError` lists every mistake."""
    context = {"folder": folder}
    section_names = ["source", "table", *(key for key in _SECTIONS if key != "source")]
    problems = [
        *known_problems,
        *(
            Problem(join_key("", key), unknown_key(key, section_names, "section"))
            for key in tree
            if key not in section_names
        ),
    ]
    raw = {"privacy": {}, **{key: value for key, value in tree.items() if value is not None}}
    problems += _remove_servers(raw)
    parts: dict[str, Any] = {}
    sections: list[TableSection] = []
    for key, model in _SECTIONS.items():
        if key in raw:
            part, part_problems = read_part(model, raw[key], key, context)
            problems += part_problems
            if part is not None:
                parts[key] = part
    tables = raw.get("table")
    if not isinstance(tables, list | tuple) or not tables:
        problems.append(Problem("table", "must be one table or more: [[table]] with name, person or references"))
        tables = ()
    for i, value in enumerate(tables):
        section, section_problems = read_part(TableSection, value, f"table[{i}]", context)
        problems += section_problems
        if section is not None:
            sections.append(section)
    if len(sections) == len(tables) and sections:
        problems += _check_sections(sections, parts.get("privacy"), parts.get("search"))
        if (source := parts.get("source")) is not None and source.postgres is not None:
            problems += _check_server(sections, parts.get("privacy"), parts.get("search"))
    if problems:
        raise PolicyError(problems)
    return {**parts, "table": tuple(sections)}


def _check_sections(
    sections: Sequence[TableSection], privacy: LinkedPrivacy | None, search: LinkedSearch | None
) -> Iterator[Problem]:
    """Check the tables against one another, and against the requirements and the search."""
    yield from _check_links(sections)
    if search is not None and search.row_suppression_limit:
        for i, section in enumerate(sections):
            if not section.person and not section.key:
                message = "is missing: rows that are suppressed by themselves need a key; name its columns"
                yield Problem(f"table[{i}].key", message)
    if privacy is not None:
        yield from _check_requirements(privacy, sections, search)


_ON_SERVER = "is not supported for tables in PostgreSQL, whose rows never leave it"


def _check_server(
    sections: Sequence[TableSection], privacy: LinkedPrivacy | None, search: LinkedSearch | None
) -> Iterator[Problem]:
    """Check that the tables of a server need nothing that reads their rows."""
    for i, section in enumerate(sections):
        for key in ("database", "files", "csv"):
            if getattr(section, key):
                message = "[source] postgres has all tables of the policy: leave it out, or copy all of them"
                yield Problem(f"table[{i}].{key}", message)
        for name, attribute in section.attributes.items():
            if any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ()):
                message = "names a table of a DuckDB source, and these are in PostgreSQL: export it, and use file = ..."
                yield Problem(f"table[{i}].attributes.{name}.hierarchy", message)
    if search is not None and STRATEGIES[search.strategy].traits.is_local:
        yield Problem("search.strategy", f'{search.strategy!r} {_ON_SERVER}: use "optimal", or {_COPY}')
    if search is not None and search.row_suppression_limit:
        yield Problem("search.row_suppression_limit", f"{_ON_SERVER}: leave it out, or {_COPY}")
    for key, i, _ in [] if privacy is None else privacy.named_requirements:
        yield Problem(f"privacy.{key}[{i}]", f"{_ON_SERVER}: leave it out, or {_COPY}")


def find_sensitive(sections: Sequence[TableSection], reference: str) -> list[tuple[TableSection, str]]:
    """The sensitive attributes that a reference may mean: ``diagnosis``, or ``visits.diagnosis``."""
    return [
        (section, name)
        for section in sections
        for name in section.names_of("sensitive")
        if reference in (name, f"{section.name}.{name}")
    ]


def _bind(requirement: Requirement | Confidence) -> ClassCondition:
    if isinstance(requirement, Confidence):
        return requirement
    condition = requirement.bind(SourceDomains(domains={requirement.sensitive_attributes[0]: Domain(None)}))
    assert isinstance(condition, ClassCondition)
    return condition


def read_requirement(key: str, parameters: Mapping[str, Any]) -> ClassCondition:
    """The condition of a requirement on sensitive attributes; a `ValueError` if it is none."""
    types: Mapping[str, Any] = {**_group_requirement_types(), "confidence": Confidence}
    if key not in types:
        raise ValueError(f"{key!r} is not a requirement on sensitive attributes of several tables")
    requirement = types[key].model_validate(parameters)
    if isinstance(requirement, Requirement) and _depends_on_source(requirement):
        raise ValueError(f"{key!r} compares groups with the whole source")
    return _bind(requirement)


def _check_requirements(
    privacy: LinkedPrivacy, sections: Sequence[TableSection], search: LinkedSearch | None
) -> Iterator[Problem]:
    """Check the requirements on sensitive attributes."""
    requirements = list(privacy.named_requirements)
    for key, i, requirement in requirements:
        place, reference = f"privacy.{key}[{i}]", requirement.sensitive_attributes[0]
        candidates = find_sensitive(sections, reference)
        if len(candidates) != 1:
            names = [f"{section.name}.{name}" for section in sections for name in section.names_of("sensitive")]
            having = f"the sensitive attributes are {', '.join(names)}" if names else "no attribute is sensitive"
            advice = f"name its table, as in {candidates[0][0].name}.{candidates[0][1]}" if candidates else having
            problem = "is an attribute of several tables" if candidates else "is not a sensitive attribute"
            yield Problem(f"{place}.attribute", f"{reference!r} {problem}: {advice}")
        elif isinstance(requirement, Requirement):
            section, _ = candidates[0]
            if not section.person:
                message = f"{reference!r} is an attribute of {section.name}, and a person may have several rows in it"
                yield Problem(f"{place}.attribute", f"{message}: use [[privacy.confidence]]")
            elif _depends_on_source(requirement):
                message = "compares groups with the whole source, which is not supported with several tables"
                yield Problem(place, f"{message}: use [[privacy.confidence]], which limits what a group reveals")
    if requirements and search is not None:
        key = requirements[0][0]
        if search.row_suppression_limit:
            message = f"is not supported with privacy.{key}: the rows that are put back are tested for k alone"
            yield Problem("search.row_suppression_limit", f"{message}; leave it out")
        if STRATEGIES[search.strategy].traits.is_local:
            message = f"{search.strategy!r} is not supported with privacy.{key}, which it does not test"
            yield Problem("search.strategy", f'{message}: use "optimal"')


def unsupported_requirement_keys() -> dict[str, frozenset[str] | None]:
    """By requirement, the keys that make it depend on more than a group; None if it always does."""
    keys: dict[str, frozenset[str] | None] = {}
    for name, type_ in _group_requirement_types().items():
        fields: Mapping[str, FieldInfo] = getattr(type_, "model_fields", {})
        examples = {key: field.examples[0] for key, field in fields.items() if field.examples}
        required = {key: example for key, example in examples.items() if fields[key].is_required()}

        def is_supported(
            *optional: str, type_: Any = type_, required: Any = required, examples: Any = examples
        ) -> bool:
            try:
                requirement = type_.model_validate({**required, **{key: examples[key] for key in optional}})
            except ValueError:  # the key needs others
                return True
            return not _depends_on_source(requirement)

        optional_keys = frozenset(key for key in examples if key not in required and not is_supported(key))
        keys[name] = optional_keys if is_supported() else None
    return keys


def _depends_on_source(requirement: Requirement) -> bool:
    """Whether a requirement needs more than the values of a group."""
    if requirement.uses_all_sensitive or requirement.needed_hierarchies or requirement.ordered_attributes:
        return True
    return _bind(requirement).compares_with_source


def _check_links(sections: Sequence[TableSection]) -> Iterator[Problem]:
    """Check that the tables are a tree below one table of persons."""
    if problems := [*_check_names(sections), *_check_persons(sections)]:
        yield from problems
        return
    by_name = {section.name: section for section in sections}
    if problems := [problem for i, section in enumerate(sections) for problem in _check_targets(i, section, by_name)]:
        yield from problems
        return
    if problems := list(_check_cycles(sections, by_name)):
        yield from problems
        return
    for i, section in enumerate(sections):
        yield from _check_nearest_table(i, section, by_name)
    yield from _check_shifts(sections)
    if not any(section.names_of("quasi") for section in sections):
        advice = "give this role to the columns that other people may know about a person"
        yield Problem("table", f'no attribute has role = "quasi", so nothing is generalized: {advice}')


def _check_names(sections: Sequence[TableSection]) -> Iterator[Problem]:
    names: set[str] = set()
    for i, section in enumerate(sections):
        if section.name.lower() in names:
            message = f"two tables are named {section.name!r}, in any case: rename one, with table = ... for the source"
            yield Problem(f"table[{i}].name", message)
        names.add(section.name.lower())
    for i, section in enumerate(sections):
        version = re.fullmatch(r"(.+)_v\d+", section.name.lower())
        if version is not None and version[1] in names:
            message = f"a release keeps versions of {version[1]!r} under such names: give the table another name"
            yield Problem(f"table[{i}].name", message)


def _check_persons(sections: Sequence[TableSection]) -> Iterator[Problem]:
    persons = [section.name for section in sections if section.person]
    if len(persons) != 1:
        having = f"{len(persons)} tables have it: {', '.join(persons)}" if persons else "no table has it"
        yield Problem("table", f"exactly one table has person = [...], its key, and {having}")


def _check_targets(i: int, section: TableSection, by_name: Mapping[str, TableSection]) -> Iterator[Problem]:
    """Check the tables that a table references."""
    place, targets = f"table[{i}].references", sorted(set(section.references.values()))
    for column, target in section.references.items():
        if target not in by_name:
            guess = nearest_word(target, by_name)
            advice = f"did you mean {guess!r}?" if guess else f"the tables are {', '.join(by_name)}"
            yield Problem(f"{place}.{column}", f"table {target!r} does not exist; {advice}")
        elif by_name[target].is_key_partly_reference:
            advice = f"give {target!r} a key of its own with query = ..."
            message = (
                f"a part of the key of {target!r} is a reference itself, and gets another new number than the rest"
            )
            yield Problem(f"{place}.{column}", f"{message}: {advice}")
        elif not (by_name[target].person or by_name[target].key):
            yield Problem(f"{place}.{column}", f"table {target!r} has no key: add key = [...] to it")
    for target in targets:
        key = () if target not in by_name else by_name[target].person or by_name[target].key
        columns = section.columns_naming(target)
        if key and len(key) != len(columns):
            yield Problem(place, f"{len(columns)} columns name a row of {target!r}, whose key has {len(key)}")


def _check_nearest_table(i: int, section: TableSection, by_name: Mapping[str, TableSection]) -> Iterator[Problem]:
    """Check that a row that names rows of several tables belongs to one of them, and that one to the others."""
    place, targets = f"table[{i}].references", sorted(set(section.references.values()))
    nearest = [name for name in targets if {*targets} <= {name, *_ancestors(name, by_name)}]
    if section.references and not nearest:
        message = (
            f"the tables {', '.join(targets)}: a row belongs to a row of one table, and may name only tables that this "
            "row belongs to; keep one reference, and give the other column the role identifying, which is not released"
        )
        yield Problem(place, message)
    elif nearest and set(section.key) <= set(section.references) != set():
        columns = section.columns_naming(nearest[0])
        if section.key and set(section.key) != set(columns):
            message = f"has references to several tables: add a column of its own, or take {', '.join(columns)} alone"
            yield Problem(f"table[{i}].key", message)


def _ancestors(name: str, by_name: Mapping[str, TableSection]) -> set[str]:
    """The tables that the rows of a table belong to."""
    targets = set(by_name[name].references.values())
    return targets.union(*(_ancestors(target, by_name) for target in targets))


def _check_shifts(sections: Sequence[TableSection]) -> Iterator[Problem]:
    """Check that all dates are moved by the same days."""
    shifts = [
        (f"table[{i}].attributes.{name}.hierarchy", attribute.shift)
        for i, section in enumerate(sections)
        for name, attribute in section.attributes.items()
        if attribute.shift is not None
    ]
    for place, shift in shifts:
        if shift != shifts[0][1]:
            message = f"all dates of a person are moved by the same days, and {shifts[0][0]} has shift = {shifts[0][1]}"
            yield Problem(place, f"shift = {shift}: {message}; give all the same shift")


def _check_cycles(sections: Sequence[TableSection], by_name: Mapping[str, TableSection]) -> Iterator[Problem]:
    for i, section in enumerate(sections):
        if cycle := _find_cycle([section.name], by_name):
            message = f"{' > '.join(cycle)} is a cycle: no row of these tables belongs to a person"
            yield Problem(f"table[{i}].references", message)


def _find_cycle(path: Sequence[str], by_name: Mapping[str, TableSection]) -> Sequence[str]:
    """Extend a path of references until a table occurs twice; empty if none does."""
    for target in dict.fromkeys(by_name[path[-1]].references.values()):
        if target in path:
            return [*path, target]
        if cycle := _find_cycle([*path, target], by_name):
            return cycle
    return []
