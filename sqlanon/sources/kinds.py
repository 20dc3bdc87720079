"""The registry of source kinds.

The argument of `sqlanon.connect` and the policy's ``[source]`` determine the kind of a source. The module of a kind is
loaded when a source of that kind is bound.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.places.addresses import is_postgres, is_spark
from sqlanon.places.databases import (
    file_kind,
    format_address,
    is_remote,
    read_data_files,
    read_database,
    resolve_data_files,
    strip_table_format,
    table_format,
)
from sqlanon.policy import FileRule, MaskRule, Policy, PopulationSection, SourceSection
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.sources.files.doubtful_columns import ColumnChecks, build_column_checks
from sqlanon.sources.files.typed_columns import ColumnReading, build_column_readings
from sqlanon.sources.source import Source, WorkNames
from sqlanon.support.names import table_parts

_Server = TypeVar("_Server")


class Servers:
    """The connections of a `Database` to servers, each opened when it is first needed, and closed with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._open = stack, dict[str, Any]()

    def open(self, name: str, connect: Callable[[], _Server]) -> _Server:
        if name not in self._open:
            self._open[name] = connect()
            self._stack.callback(self._open[name].close)
        return cast(_Server, self._open[name])


@dataclass(frozen=True)
class Linking:
    """How a table is bound as one of several whose rows are joined."""

    shared_engines: Servers  # one for all tables of a server
    keys: tuple[str, ...]  # its columns that identify a row or name one, which never leave a server


@dataclass(frozen=True)
class Binding:
    engine: DuckDBEngine  # reads the source, or works together with the engine that does
    policy: Policy
    section: SourceSection  # ``[source]``, completed by the argument of `sqlanon.connect`
    work_names: WorkNames  # for relations of the source
    servers: Servers  # open as long as the `Database`
    connect_argument: Any = field(default=None, repr=False)
    arrow_table: exp.Table | None = None  # the copy of an Arrow argument
    database_id: str | None = None  # identity of a DuckDB database, for the ledger
    linking: Linking | None = None

    @cached_property
    def counted_attributes(self) -> tuple[str, ...]:
        return (
            *self.policy.generalized_attributes,
            *examined_sensitive_attributes(self.policy.privacy, self.policy.attributes_with_role("sensitive")),
        )

    @cached_property
    def released_attributes(self) -> frozenset[str]:
        """The attributes that are not identifying, in lower case."""
        return lower(*(name for name, attribute in self.policy.attributes.items() if attribute.role != "identifying"))

    @cached_property
    def needed_columns(self) -> frozenset[str]:
        """All columns that the policy names except identifying ones, in lower case.

        Empty, which stands for all columns, if the policy has no ``person`` key: each column may number persons.
        """
        policy = self.policy
        if policy.source.person is None:
            return frozenset()
        more = policy.risk.columns.values() if policy.risk else ()
        return self.released_attributes | lower(*policy.source.key, *more, self.section.person_column)

    @cached_property
    def text_attributes(self) -> frozenset[str]:
        """The attributes whose values are always texts, in lower case."""
        return lower(
            *(
                name
                for name, attribute in self.policy.attributes.items()
                if attribute.type == "text"
                or (not attribute.type and any(isinstance(r, (MaskRule, FileRule)) for r in attribute.hierarchy or ()))
            )
        )

    @cached_property
    def readings(self) -> Mapping[str, ColumnReading]:
        """The readings that attributes declare, by column in lower case."""
        return build_column_readings(self.policy.attributes, self.text_attributes)

    @cached_property
    def checks(self) -> ColumnChecks:
        """The columns whose texts and dates must not be in doubt."""
        return build_column_checks(self.policy)


class SourceKind(ABC):
    """A kind of source."""

    name: ClassVar[str]  # the key in ``[source]``, if there is one
    # Where the source is, if commands that read rows are refused.
    without_rows: ClassVar[str | None] = None
    verbs: ClassVar[str] = "anonymize, plan, compare and verify"  # the commands that need only counts
    reads_texts: ClassVar[bool] = False  # attributes may declare how texts are read
    dialect: ClassVar[str] = "duckdb"  # the dialect of its queries
    schema: ClassVar[str] = "main"  # the schema of tables without one, for the ledger

    def takes(self, argument: object) -> bool:
        """Whether this kind accepts an argument of `sqlanon.connect` that the built-in kinds do not."""
        return False

    def identity(self, section: SourceSection, source: Source, is_live: bool) -> str:
        """Identify a source in the ledger: JSON, the same for the same table."""
        table, query = source.names(section)
        parts = list(table_parts(table)) if table else []
        if not (is_live and len(parts) == 3):  # a table of another attached database
            parts = [self.schema, *parts][-2:] if parts else []  # patients is main.patients
        name = ".".join(parts).lower() if parts else table
        query = None if query is None else _normalize_query(query, self.dialect)
        files = []
        for pattern in map(resolve_data_files, section.files):
            format_, path = table_format(pattern), strip_table_format(pattern)
            prefix = "" if format_ is None else f"{format_}:"
            files.append(format_address(pattern) if is_remote(pattern) else f"{prefix}{os.path.realpath(path)}")
        return json.dumps({"database": source.database_id, "table": name, "query": query, "files": files})

    @abstractmethod
    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        """Bind a source; returned with the engine that runs queries on it."""


KINDS: dict[str, SourceKind | str] = {
    "postgres": "sqlanon.sources.postgres",
    "spark": "sqlanon.sources.spark",
    "frequency_set": "sqlanon.sources.frequency_set",
    "files": "sqlanon.sources.files.binding",
    "arrow": "sqlanon.sources.arrow",
    "database": "sqlanon.sources.duckdb",
}
"""The kinds by name: a kind, or the module with its ``KIND``. A source has the first kind whose name is a key of its
``[source]``."""


def register_source(kind: SourceKind) -> None:
    if kind.name in KINDS:
        raise ValueError(f"the kind of source {kind.name!r} is registered already")
    KINDS[kind.name] = kind


def unregister_source(kind: SourceKind) -> None:
    del KINDS[kind.name]


def parse_connect_argument(argument: object) -> Mapping[str, Any] | None:
    """The keys of ``[source]`` for a text or path; None for other objects."""
    if not isinstance(argument, (str, os.PathLike)):
        return None
    try:
        return _parse_address(argument)
    except ValueError as error:  # a value that a policy would not accept
        raise error if isinstance(error, SqlanonError) else SourceError(f"the source {error}") from None


def _parse_address(argument: str | os.PathLike[str]) -> Mapping[str, Any]:
    if isinstance(argument, str) and is_postgres(argument):
        raise SourceError(
            "connect does not accept the address of a PostgreSQL server: set it in the policy, [source] postgres = ..."
        )
    if isinstance(argument, str) and is_spark(argument):
        return {"spark": argument}
    files = read_data_files(argument) if isinstance(argument, str) else os.fspath(argument)
    if file_kind(files) is not None:
        return {"files": (files if is_remote(files) or table_format(files) else str(Path(files).absolute()),)}
    database = read_database(argument)
    return {"database": database.absolute() if isinstance(database, Path) else database}


def find_kind_for_object(argument: object) -> SourceKind | None:
    return next((kind for kind in KINDS.values() if isinstance(kind, SourceKind) and kind.takes(argument)), None)


def find_section_kind(section: SourceSection, is_copied: bool = False) -> SourceKind:
    """The kind that ``[source]`` names; a connection has no key."""
    names = (name for name in KINDS if getattr(section, name, None))
    kind = KINDS["arrow" if is_copied else next(names, "database")]
    return kind if isinstance(kind, SourceKind) else cast(SourceKind, import_module(kind).KIND)


def refuse_query(section: SourceSection | PopulationSection) -> None:
    if section.query is not None:
        raise SourceError(
            "source.query: works in databases only, and this source is files or a data frame; leave it out"
        )


def lower(*names: str | None) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name)


def _normalize_query(query: str, dialect: str) -> str:
    """Normalize the spelling of a query, if it can be parsed."""
    try:
        return parse_one(query, dialect=dialect).sql(dialect=dialect, comments=False)
    except SqlglotError:
        return query
