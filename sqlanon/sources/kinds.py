"""The kinds of sources, each registered once.

Which kind a source is follows from what `sqlanon.connect` was given, and from the policy's ``[source]``. The modules of
kinds are loaded when a source of that kind is bound.
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
from typing import Any, ClassVar, Protocol, TypeVar

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.places.databases import (
    format_address,
    is_attached,
    is_remote,
    read_data_files,
    read_database,
    resolve_data_files,
    strip_table_format,
    table_format,
)
from sqlanon.policy import FileRule, MaskRule, Policy, SourceSection, is_postgres, is_spark, table_parts
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.sources.doubtful_columns import ColumnChecks, build_column_checks
from sqlanon.sources.formats import file_kind
from sqlanon.sources.source import Source, WorkNames
from sqlanon.sources.typed_columns import ColumnReading, build_column_readings


class _Closes(Protocol):
    def close(self) -> None: ...


_Server = TypeVar("_Server", bound=_Closes)


class Servers:
    """The servers that a `Database` talks to: each is connected to once, when it is first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._open = stack, dict[str, Any]()

    def open(self, name: str, connect: Callable[[], _Server]) -> _Server:
        if name not in self._open:
            self._open[name] = server = connect()
            self._stack.callback(server.close)
        found: _Server = self._open[name]
        return found


@dataclass(frozen=True)
class Binding:
    engine: DuckDBEngine  # it reads the source, or stands beside the one that does
    policy: Policy  # the policy, and its ``[source]`` with what `sqlanon.connect` was given
    section: SourceSection
    work_names: WorkNames  # where relations are made
    servers: Servers  # connections, which stay open as long as the `Database`
    # what `sqlanon.connect` was given; of Arrow the table that it was copied to
    connect_argument: Any = field(default=None, repr=False)
    arrow_table: exp.Table | None = None
    database_id: str | None = None  # what tells a database of DuckDB from others, for the ledger

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
        """All columns that the policy names but the identifying, in lower case. Where it does not say who a person is,
        none, which stands for all: each may number people."""
        policy = self.policy
        if policy.source.person is None:
            return frozenset()
        more = policy.risk.columns.values() if policy.risk else ()
        return self.released_attributes | lower(*policy.source.key, *more, self.section.person_column)

    @cached_property
    def text_attributes(self) -> frozenset[str]:
        """The attributes whose values are texts, whatever they look like, in lower case."""
        return frozenset(
            name.lower()
            for name, attribute in self.policy.attributes.items()
            if attribute.type == "text"
            or (
                attribute.type is None
                and any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
            )
        )

    @cached_property
    def readings(self) -> Mapping[str, ColumnReading]:
        """How columns are read whose attributes say so, by name in lower case."""
        return build_column_readings(self.policy.attributes, self.text_attributes)

    @cached_property
    def checks(self) -> ColumnChecks:
        """The columns whose texts and dates must not be doubtful."""
        return build_column_checks(self.policy)


class SourceKind(ABC):
    """A kind of source: one file, and one registration."""

    name: ClassVar[str]  # its key in the policy's ``[source]``, or any other
    # why verbs that look at rows are refused, if they are: where the source is
    without_rows: ClassVar[str | None] = None
    verbs: ClassVar[str] = "anonymize, plan, compare and verify"
    reads_texts: ClassVar[bool] = False  # whether attributes may say how their texts are read
    opens_database: ClassVar[bool] = False  # whether it reads the DuckDB file that ``[source] database`` names
    dialect: ClassVar[str] = "duckdb"  # of its queries, and where its tables are that have none: for the ledger
    schema: ClassVar[str] = "main"

    def takes(self, given: object) -> bool:
        """Whether what `sqlanon.connect` was given is a source of this kind; what it takes by itself is not asked."""
        return False

    def identity(self, section: SourceSection, source: Source, is_live: bool) -> str:
        """What a source is, for the ledger: JSON, the same for the same table."""
        table, asked = source.names(section)
        parts = list(table_parts(table)) if table else []
        if not (is_live and len(parts) == 3):  # of another database that is attached
            parts = [self.schema, *parts][-2:] if parts else []  # patients is main.patients
        name = ".".join(parts).lower() if parts else table
        query = None if asked is None else _normal(asked, self.dialect)
        files = [_file_identity(resolve_data_files(one)) for one in section.files]
        return json.dumps({"database": source.database_id, "table": name, "query": query, "files": files})

    @abstractmethod
    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        """Bind a source; with the engine that runs what reads it."""


@dataclass(frozen=True)
class Registered:
    """A kind, which may be loaded when a source of it is bound."""

    name: str
    load: Callable[[], SourceKind]
    takes: Callable[[object], bool] = lambda given: False
    # whether a policy's ``[source]`` names a source of this kind
    named_by: Callable[[SourceSection], bool] = lambda section: False
    # what of ``[source]`` a text or a path stands for that `sqlanon.connect` was given, if it is of this kind
    read: Callable[[str | os.PathLike[str]], Mapping[str, Any] | None] = lambda given: None


KINDS: dict[str, Registered] = {}
"""The kinds by name. The first that a policy names says which kind a source is, and so does the first that reads what
`sqlanon.connect` was given."""


def register_source(kind: SourceKind) -> None:
    _register(Registered(kind.name, lambda: kind, kind.takes))


def unregister_source(kind: SourceKind) -> None:
    del KINDS[kind.name]


def _register(kind: Registered) -> None:
    if kind.name in KINDS:
        raise ValueError(f"there is a kind of source {kind.name!r} already")
    KINDS[kind.name] = kind


def _register_module(
    name: str,
    module: str,
    read: Callable[[str | os.PathLike[str]], Mapping[str, Any] | None] = lambda given: None,
    named_by: Callable[[SourceSection], bool] | None = None,
) -> None:
    """A kind of the package: the ``KIND`` of a module. It has a key of its name in ``[source]``, or `named_by`."""

    def load() -> SourceKind:
        kind: SourceKind = import_module(module).KIND
        return kind

    _register(
        Registered(name, load, named_by=named_by or (lambda section: bool(getattr(section, name, None))), read=read)
    )


def _read_postgres(given: str | os.PathLike[str]) -> None:
    if isinstance(given, str) and is_postgres(given):
        raise SourceError(
            "connect does not take the address of a PostgreSQL server: name it in the policy, [source] postgres = ..."
        )


def _read_spark(given: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    return {"spark": given} if isinstance(given, str) and is_spark(given) else None


def _read_files(given: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    files = read_data_files(given) if isinstance(given, str) else os.fspath(given)
    if file_kind(files) is None:
        return None
    return {"files": (files if is_remote(files) or table_format(files) else str(Path(files).absolute()),)}


def _read_database(given: str | os.PathLike[str]) -> Mapping[str, Any]:
    database = read_database(given)
    return {"database": database.absolute() if isinstance(database, Path) else database}


_register_module("postgres", "sqlanon.sources.postgres", _read_postgres)
_register_module("spark", "sqlanon.sources.spark", _read_spark)
_register_module("frequency_set", "sqlanon.sources.frequency_set")
_register_module("files", "sqlanon.sources.files", _read_files)
_register_module("arrow", "sqlanon.sources.arrow")
_register_module("attached", "sqlanon.sources.attached", named_by=lambda section: is_attached(section.database))
_register_module("database", "sqlanon.sources.duckdb", _read_database)


def parse_connect_argument(given: object) -> Mapping[str, Any] | None:
    """What of ``[source]`` a text or a path stands for; None of anything else, and of an address nobody knows."""
    if not isinstance(given, (str, os.PathLike)):
        return None
    try:
        return next(found for kind in KINDS.values() if (found := kind.read(given)) is not None)
    except ValueError as error:  # what a policy would not take
        raise error if isinstance(error, SqlanonError) else SourceError(f"the source {error}") from None


def find_kind_for_object(given: object) -> SourceKind | None:
    return next((kind.load() for kind in KINDS.values() if kind.takes(given)), None)


def find_section_kind(section: SourceSection, copied: bool = False) -> SourceKind:
    """The kind that ``[source]`` names; a connection has no key."""
    named = (one.name for one in KINDS.values() if one.named_by(section))
    return KINDS["arrow" if copied else next(named, "database")].load()


def _file_identity(files: str) -> str:
    """What tells files from others, for the ledger."""
    if is_remote(files):
        return format_address(files)
    named = table_format(files)
    return os.path.realpath(files) if named is None else f"{named}:{os.path.realpath(strip_table_format(files))}"


def lower(*names: str | None) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name)


def _normal(query: str, dialect: str) -> str:
    """A query in one spelling, as far as it can be read."""
    try:
        return parse_one(query, dialect=dialect).sql(dialect=dialect, comments=False)
    except SqlglotError:
        return query
