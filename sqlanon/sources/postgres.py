"""Bind a source in PostgreSQL, whose rows never leave the server.

One GROUP BY over the quasi-identifiers, and the sensitive attributes that requirements examine, counts the distinct
combinations. The local engine stores them in its private work database, and its relation of the source is a view that
repeats each combination by its count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import duckdb
from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.dialects import postgres as postgres_dialect
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.egress_guard import confined_columns, refuse_confined, refuse_rows
from sqlanon.engines.federation import FederatedEngine, RemoteTables
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.statement_runner import Stage
from sqlanon.engines.travel import decode_columns, encode_columns, repeat_rows, row_count_column
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.places.addresses import resolve_postgres_address, server_address
from sqlanon.policy import SourceSection
from sqlanon.policy.compatibility import SOURCE_SCHEMA_MESSAGE
from sqlanon.sources.columns import refuse_ambiguous_names
from sqlanon.sources.kinds import Binding, Linking, SourceKind
from sqlanon.sources.queries import refuse_unless_select, verbatim_query
from sqlanon.sources.relation import find_local_types, source_errors
from sqlanon.sources.source import (
    REMOTE_ROWS,
    Access,
    AllColumns,
    CountedCombinations,
    RecodingStatement,
    RemotePersons,
    RunQuery,
    SamplingRelation,
    Source,
)
from sqlanon.support.expressions import (
    as_column,
    col,
    column_names,
    create_table,
    create_temporary_table,
    create_temporary_view,
    drop_table,
    full_name,
    quote_name,
    select,
    select_star,
    subquery,
    table,
    values_query,
)
from sqlanon.support.names import table_parts

_NUMERIC_ADVICE = " (a numeric needs a precision of at most 38 and a scale: numeric(12,2))"

_QUERY = "sqlanon_source_query"

_SHIPPED = "sqlanon_shipped"

_ROWS = table("sqlanon_narrowing", "pg_temp")
"""A temporary table for the rows of a query."""

_Server = TypeVar("_Server")

_OPAQUE_PERSON_TYPES = ("numeric", "bytea")
"""Types without an equivalent in DuckDB that may identify persons: their values stay on the server."""

_PARTLY_SUPPORTED_TYPES = ("DECIMAL", "DATE", "TIMESTAMP")
"""Types with some values that have no equivalent in DuckDB."""


@dataclass(frozen=True, kw_only=True)
class PostgresSource(Source):
    """A source in PostgreSQL whose combinations are counted on the server and stored locally.

    Recoding runs on the server, by the same statement as locally. The other tables of that statement (values with
    their codes and labels, suppressed classes) are shipped as temporary tables, which other sessions cannot see and
    which end with the transaction. Rows of the source never leave the server; rows of the release may.
    """

    engine: PostgresEngine  # a connection to the server
    address: str = field(repr=False)  # may hold a password
    remote_relation: exp.Subquery  # its counted and released columns on the server, each plain
    every: exp.Subquery  # all of its columns on the server
    types: Mapping[str, str]  # the types of all columns
    statement: exp.Select  # counts the combinations
    schemas: frozenset[str]  # the schemas of the tables that it reads

    access: ClassVar[Access] = "counts"
    can_be_linked = False

    @property
    def location(self) -> str:
        return "PostgreSQL"

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The connection, if the text of the address is the same."""
        return self.engine if isinstance(self.engine, kind) and address in (None, self.address) else None

    def plan(self) -> Iterator[Stage]:
        note = "the combinations of values with their counts; nothing else leaves the server"
        yield Stage("count in PostgreSQL", note, (self.statement.sql(self.engine.dialect, pretty=True),))

    def release_note(self, to: str, note: str) -> str:
        return f"in PostgreSQL, over temporary tables with local values, to {to} ({note})"

    def render_statement(self, engine: Engine, query: exp.Expr) -> str:
        tables: dict[str, exp.Expr] = {full_name(self.relation): self.remote_relation}
        tables |= {name: table(part.name, "pg_temp") for name, part in self._local_tables(query).items()}
        return postgres_dialect.translate_to_postgres(query, tables).sql(self.engine.dialect, pretty=True)

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        refuse_confined(recoding.select(shuffled), self._confined_columns, "PostgreSQL")
        with (
            self.engine.rolled_back_unless_committed(),
            self.ship_tables(engine, recoding.select(shuffled)) as query,
            self.engine.stream(encode_columns(query, types)) as reader,
            engine.register_arrow(reader) as relation,
        ):
            yield decode_columns(relation, types)

    @property
    def _confined_columns(self) -> dict[str, frozenset[str]]:
        persons = self.persons
        return {full_name(self.relation): frozenset({persons.person})} if isinstance(persons, PostgresPersons) else {}

    @contextmanager
    def remote_release_query(self, engine: WorkEngine, recoding: RecodingStatement) -> Iterator[exp.Query]:
        """The statement that makes the rows of a release on the server, in the open transaction."""
        with self.ship_tables(engine, self.release_query(recoding)) as query:
            yield query

    @contextmanager
    def ship_tables(self, engine: WorkEngine, query: exp.Select, rows: exp.Expr | None = None) -> Iterator[exp.Select]:
        """Translate a query over the source, or over remote ``rows``, for the server; ship its local tables for the
        block, with the columns that it names."""
        persons = self.persons
        source = persons.remote_relation if isinstance(persons, PostgresPersons) else self.remote_relation
        tables: dict[str, exp.Expr] = {full_name(self.relation): source}
        if rows is not None:
            tables[full_name(REMOTE_ROWS)] = rows
        used, shipped_tables = column_names(query), list[exp.Table]()
        for name, part in self._local_tables(query).items():
            local_table = table(part.name, part.db, part.catalog)
            columns = {column: type_ for column, type_ in engine.columns(local_table).items() if column in used}
            shipped = self._ship_table(engine, local_table, columns, f"{_SHIPPED}_{len(shipped_tables)}")
            tables[name] = shipped
            shipped_tables.append(shipped.copy())
        # The planner underestimates the rows of a sort: nested loops would seem cheap.
        self.engine.execute(postgres_dialect.allow_nested_loops(allowed=False))
        yield postgres_dialect.translate_to_postgres(query, tables)
        self.engine.execute(postgres_dialect.allow_nested_loops(allowed=True))
        for shipped_table in shipped_tables:
            self.engine.execute(drop_table(shipped_table))

    def _local_tables(self, query: exp.Expr) -> dict[str, exp.Table]:
        """The local tables of a query, by their full names."""
        tables = {full_name(part): part for part in query.find_all(exp.Table) if part.catalog}
        tables.pop(full_name(self.relation), None)
        return tables

    def _ship_table(
        self, engine: WorkEngine, local_table: exp.Table, columns: Mapping[str, str], name: str
    ) -> exp.Table:
        values = select([col(column) for column in columns], local_table)
        with engine.stream(encode_columns(values, columns, "VARCHAR")) as reader:
            as_text = self.engine.upload(f"{name}_as_text", reader)
        self.engine.execute(
            create_temporary_table(table(name), postgres_dialect.POSTGRES.decode_uploaded(as_text, columns))
        )
        self.engine.execute(drop_table(as_text.copy()))
        shipped = table(name, "pg_temp")
        self.engine.execute(postgres_dialect.analyze_table(shipped.copy()))
        return shipped

    @contextmanager
    def temporary_rows(
        self, engine: WorkEngine, query: exp.Select, share: float | None
    ) -> Iterator[tuple[RunQuery, exp.Table]]:
        confined = confined_columns(query, self._confined_columns)
        with self.engine.rolled_back_unless_committed(), self.ship_tables(engine, query) as remote_query:
            rows = remote_query if share is None else postgres_dialect.sample_rows(rows=remote_query, share=share)
            self.engine.execute(create_temporary_table(table(_ROWS.name), rows))
            self.engine.execute(postgres_dialect.analyze_table(_ROWS.copy()))
            yield partial(self._query_figures, confined), _ROWS

    def _query_figures(self, confined: frozenset[str], query: exp.Query) -> list[tuple[Any, ...]]:
        """Run a query over `_ROWS` that returns only figures, and no confined column."""
        refuse_rows(query, {full_name(_ROWS)}, {}, "PostgreSQL")
        refuse_confined(query, {full_name(_ROWS): confined}, "PostgreSQL")
        return self.engine.rows(postgres_dialect.translate_to_postgres(query, {}))

    def render_temporary_rows(self, engine: Engine, query: exp.Select) -> tuple[exp.Table, list[str]]:
        return _ROWS, [self.render_statement(engine, create_temporary_table(table(_ROWS.name), query))]

    def drop(self) -> None:
        if self.persons is not None:
            self.persons.close()

    def count_distinct_values(self, engine: Engine, names: Sequence[str]) -> Sequence[int]:
        with self.engine.read_only():
            return self.engine.rows(postgres_dialect.count_distinct_values(self.remote_relation, names))[0]

    def sampling_relation(self, engine: Engine) -> SamplingRelation:
        return SamplingRelation(self.engine, self.remote_relation, self.remote_relation.named_selects)

    def all_columns(self, engine: Engine) -> AllColumns:
        return AllColumns(self.engine, self.every, self.types)

    def query_remote_rows(self, query: exp.Query, relation: exp.Expr) -> list[tuple[Any, ...]]:
        with self.engine.read_only():
            return self.engine.rows(postgres_dialect.translate_to_postgres(query, {full_name(REMOTE_ROWS): relation}))

    def query_remote_release(
        self, engine: WorkEngine, query_of: Callable[[exp.Table], exp.Select], every: AllColumns
    ) -> list[tuple[Any, ...]]:
        query = query_of(REMOTE_ROWS)
        with (
            self.engine.rolled_back_unless_committed(),
            self.ship_tables(engine, query, every.relation) as remote_query,
        ):
            return self.engine.rows(remote_query)

    def measuring_obstacle(self) -> str | None:
        may_create = _can_create_temporary(self.engine)
        return None if may_create else "this role may make no temporary tables in PostgreSQL"

    def transfer_errors(self, types: Mapping[str, str]) -> AbstractContextManager[None]:
        return _transfer_errors(self.engine, self.remote_relation, types)

    def refuse_release(self, postgres: str | None, schema: str, key: str = "release.table") -> None:
        if postgres is None or schema not in self.schemas:
            return
        address = resolve_postgres_address(postgres)
        if server_address(self.address) != server_address(address):  # a server may have several addresses
            with (
                closing(PostgresEngine.open(address, "release.postgres")) as release_server,
                release_server.read_only(),
                self.engine.read_only(),
            ):
                if release_server.rows(postgres_dialect.server_identity()) != self.engine.rows(
                    postgres_dialect.server_identity()
                ):
                    return
        raise SourceError(f"{key}: {SOURCE_SCHEMA_MESSAGE.format(schema=repr(schema))}")


@dataclass(frozen=True, kw_only=True)
class LinkedPostgresSource(PostgresSource):
    """One of several tables of a server about the same persons.

    Statements on its rows run on the server, in a transaction that the tables share: they see the same rows, and their
    results are temporary tables. Only counts leave it, and the rows of a release.
    """

    transaction: PostgresTransaction | None  # None for a plan

    access = "remote"
    can_be_linked = True

    def plan(self) -> Iterator[Stage]:
        note = "the rows, in one transaction for all tables; only counts and released rows leave the server"
        yield Stage("read in PostgreSQL", note, (self.statement.sql(self.engine.dialect, pretty=True),))

    @contextmanager
    def read_released(self, query: exp.Select, types: Mapping[str, str]) -> Iterator[exp.Select]:
        assert self.transaction is not None
        with self.transfer_errors(types), self.transaction.engine.fetch_remote(query, types) as relation:
            yield relation


class PostgresTransaction:
    """A transaction of a separate connection, whose statements all see the same rows.

    What ``engine`` creates from the source stays in temporary tables, which end with the transaction.
    """

    def __init__(self, address: str, work: DuckDBEngine) -> None:
        self._opened = ExitStack()
        try:
            server = _open_transaction(address, self._opened, "source.postgres: PostgreSQL joins linked tables")
        except BaseException:
            self._opened.close()
            raise
        self.engine = FederatedEngine(work, RemoteTables(server, sys.maxsize, max_rows=0, name="PostgreSQL"))

    def close(self) -> None:
        """Roll back, which drops the temporary tables, and close the connection."""
        self._opened.close()


def _open_transaction(address: str, opened: ExitStack, purpose: str) -> PostgresEngine:
    """Open a connection with a transaction that may create temporary tables; both end with the stack."""
    server = PostgresEngine.open(address, "source.postgres")
    opened.callback(server.close)
    if not _can_create_temporary(server):
        raise SourceError(
            f"{purpose} in temporary tables, and this role may make none: GRANT TEMPORARY ON DATABASE to it; and "
            "connect to the primary server, not to a replica"
        )
    opened.enter_context(server.interruptible_transaction())
    server.execute(postgres_dialect.allow_nested_loops(allowed=False))
    server.execute(postgres_dialect.forbid_compilation())
    return server


class PostgresPersons(RemotePersons):
    """Counts the persons of a source in PostgreSQL.

    A separate connection counts them in one transaction: its temporary tables, which contain the ids, end with it, and
    all counts see the same rows.
    """

    engine: FederatedEngine

    def __init__(
        self, server: PostgresEngine, address: str, relation: exp.Table, remote_relation: exp.Subquery, person: str,
        work: DuckDBEngine,
    ) -> None:  # fmt: skip
        engine = FederatedEngine(work, RemoteTables(server, sys.maxsize, max_rows=0, name="PostgreSQL"))
        super().__init__(engine, relation)
        self._address, self._opened = address, ExitStack()
        self.remote_relation, self.person, self._is_open = remote_relation, person.lower(), False

    def open(self) -> None:
        if self._is_open:
            return
        try:
            server = _open_transaction(self._address, self._opened, "source.person: PostgreSQL counts persons")
        except BaseException:
            self._opened.close()
            raise
        self.engine.remote.server, self._is_open = server, True

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for name in list(self.engine.remote.materialized):
            self.engine.remote.tables.pop(name, None)
        self.engine.remote.materialized.clear()
        self._opened.close()

    @property
    def server(self) -> PostgresEngine:
        """The connection with the counted rows."""
        server = self.engine.remote.server
        assert isinstance(server, PostgresEngine)
        return server


class _Postgres(SourceKind):
    name = "postgres"
    without_rows = "in PostgreSQL, and its rows never leave it; this command reads rows"
    dialect, schema = "postgres", "public"

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, PostgresSource]:
        assert binding.section.postgres is not None
        address, release = resolve_postgres_address(binding.section.postgres), binding.policy.release
        server = binding.servers.open(address, lambda: PostgresEngine.open(address, "source.postgres"))
        if binding.linking is not None:
            return _bind_linked(binding, server, address, binding.linking)
        source = _bind(binding, server, address)
        if release is not None and release.postgres is not None:
            source.refuse_release(release.postgres, table_parts(release.table)[0])
        return binding.engine, source


KIND = _Postgres()


def _can_create_temporary(server: PostgresEngine) -> bool:
    with server.read_only():
        return bool(server.rows(postgres_dialect.has_temporary_privilege())[0][0])


def _bind_linked(
    binding: Binding, server: PostgresEngine, address: str, linking: Linking
) -> tuple[DuckDBEngine, LinkedPostgresSource]:
    """Bind one of several tables, whose keys never leave the server: no counts are fetched by person or row."""
    remote, columns, values = _read_columns(binding, server)
    relation, view = subquery(select(values, remote.relation.copy()), "source"), binding.work_names.view("source")
    types = {name: type_ for name, type_ in columns.items() if name.lower() in binding.released_attributes}
    transaction, engine = None, binding.engine
    if binding.work_names.reads_rows:
        transaction = linking.shared_engines.open(address, lambda: PostgresTransaction(address, binding.engine))
        engine = transaction.engine
        transaction.engine.register_remote(view, types, relation, confined=linking.keys)
    every, all_types = _select_all_columns(remote)
    return engine, LinkedPostgresSource(
        view,
        columns,
        in_place=False,
        database_id=server_address(address),
        table_name=remote.name,
        query=remote.query,
        engine=server,
        address=address,
        remote_relation=relation,
        every=every,
        types=all_types,
        statement=relation.this,
        schemas=remote.schemas,
        transaction=transaction,
    )


def _read_columns(
    binding: Binding, server: PostgresEngine
) -> tuple[_RemoteRelation, Mapping[str, str], list[exp.Expr]]:
    """Find the table or query of a policy; with DuckDB's types of its columns, and the released ones in plain form."""
    with server.read_only():
        if obstacle := server.find_release_obstacle():
            raise SourceError(f"{server.place}: {obstacle}")
    remote, wanted = _find_relation(server, binding.section), binding.released_attributes
    columns = find_local_types(
        [(column.name, column.type, column.local_type) for column in remote.columns], wanted, _NUMERIC_ADVICE
    )
    values: list[exp.Expr] = [
        as_column(
            postgres_dialect.canonical_column(column.name, column.type, columns[column.name], column.is_enum),
            column.name,
        )
        for column in remote.columns
        if column.name.lower() in wanted
    ]
    return remote, columns, values


def _bind(binding: Binding, server: PostgresEngine, address: str) -> PostgresSource:
    engine, work_names = binding.engine, binding.work_names
    remote, columns, values = _read_columns(binding, server)
    persons = _bind_persons(binding, server, address, remote, columns, values)
    by_lower = {name.lower(): name for name in columns}
    names = [by_lower[name.lower()] for name in binding.counted_attributes if name.lower() in by_lower]
    types, count = {name: columns[name] for name in dict.fromkeys(names)}, row_count_column(by_lower)
    relation = subquery(select(values, remote.relation.copy()), "source")
    statement = postgres_dialect.count_combinations(relation, types, count)
    combinations, counted_types = work_names.table, {**types, count: "BIGINT"}
    if not work_names.reads_rows or not types:
        engine.execute(create_table(combinations, values_query(counted_types, [])))
    else:
        if persons is not None:
            persons.open()
        transaction = server.read_only() if persons is None else nullcontext()
        reading = server if persons is None else persons.server
        with (
            _transfer_errors(server, relation, types),
            source_errors(),
            transaction,
            reading.stream(statement) as reader,
        ):
            engine.copy_arrow(combinations, reader, lambda arrow: decode_columns(arrow, counted_types))
    view = work_names.view("source")
    engine.execute(create_temporary_view(view, repeat_rows(combinations, types or [count], count)))
    every, all_types = _select_all_columns(remote)
    return PostgresSource(
        view,
        columns,
        in_place=False,
        combinations=CountedCombinations(combinations, count),
        database_id=server_address(address),
        table_name=remote.name,
        query=remote.query,
        persons=persons,
        engine=server,
        address=address,
        remote_relation=relation,
        every=every,
        types=all_types,
        statement=statement,
        schemas=remote.schemas,
    )


def _select_all_columns(remote: _RemoteRelation) -> tuple[exp.Subquery, dict[str, str]]:
    """Select all columns of a remote relation that have a text form; with DuckDB's types of them."""
    types, values = dict[str, str](), list[exp.Expr]()
    for column in remote.columns:
        # A numeric without precision has no equivalent in DuckDB except a text.
        type_ = "VARCHAR" if column.type == "numeric" else column.local_type
        if type_ is not None:
            types[column.name] = type_
            value = postgres_dialect.canonical_column(column.name, column.type, type_, column.is_enum)
            values.append(as_column(value, column.name))
    return subquery(select(values, remote.relation.copy()), "source"), types


def _bind_persons(
    binding: Binding,
    server: PostgresEngine,
    address: str,
    remote: _RemoteRelation,
    columns: Mapping[str, str],
    values: Sequence[exp.Expr],
) -> PostgresPersons | None:
    """Bind the persons if the policy counts them; the equality of the column's type distinguishes them."""
    wanted = (binding.section.person_column or "").lower()
    person = next((column for column in remote.columns if column.name.lower() == wanted), None)
    if person is None:  # missing columns are reported together
        return None
    if person.local_type is None and person.type not in _OPAQUE_PERSON_TYPES:
        raise SourceError(
            f"source.person: {person.name!r} is of type {person.type}, whose equality may be a user's function: cast "
            "it to text with query = ... under [source]"
        )
    types = {name: type_ for name, type_ in columns.items() if name.lower() in binding.released_attributes}
    types |= {person.name: columns[person.name] if postgres_dialect.to_duckdb_type(person.type) else "VARCHAR"}
    id_column = as_column(postgres_dialect.person_id_column(person.name, person.type, person.is_enum), person.name)
    relation = subquery(select([*(value.copy() for value in values), id_column], remote.relation.copy()))
    relation.set("alias", exp.TableAlias(this=exp.to_identifier("source")))
    view = binding.work_names.view("persons")
    persons = PostgresPersons(server, address, view, relation, person.name, binding.engine)
    persons.engine.register_remote(persons.relation, types, relation, confined=[person.name])
    return persons


@contextmanager
def _transfer_errors(server: PostgresEngine, relation: exp.Expr, types: Mapping[str, str]) -> Iterator[None]:
    """Name the column of a value that cannot be transferred."""
    try:
        yield
    except (SqlanonError, duckdb.ConversionException) as error:
        names = [name for name, type_ in types.items() if type_.startswith(_PARTLY_SUPPORTED_TYPES)]
        cause = error.__cause__ if isinstance(error, SqlanonError) else error
        if not (isinstance(cause, duckdb.ConversionException) and names):
            raise
        with server.read_only():
            are_unknown = server.rows(postgres_dialect.has_values_unknown_to_duckdb(relation, names))[0]
        if unknown := [repr(name) for name, is_unknown in zip(names, are_unknown, strict=True) if is_unknown]:
            raise SourceError(
                f"{server.place}: {', '.join(unknown)} cannot be read: NaN in a numeric column, dates before Christ "
                "and timestamps after the year 294246 are not supported; turn them into NULL with query = ... under "
                "[source]"
            ) from None
        raise


class _RemoteColumn(NamedTuple):
    name: str
    type: str
    is_enum: bool

    @property
    def local_type(self) -> str | None:
        return "VARCHAR" if self.is_enum else postgres_dialect.to_duckdb_type(self.type)


@dataclass(frozen=True)
class _RemoteRelation:
    """A table or query on the server, resolved on the user's search path."""

    relation: exp.Expr
    columns: Sequence[_RemoteColumn]
    schemas: frozenset[str]
    name: str | None = None  # the name of the table, with its schema
    query: str | None = None  # the query, with the schemas of its tables


def _find_relation(server: PostgresEngine, section: SourceSection) -> _RemoteRelation:
    if section.query is not None:
        return _find_query(server, section.query)
    parts = table_parts(section.table or "")
    with server.read_only():
        relation_id = _find_relation_ids(server, [quote_name(*parts)])[0] if parts else None
        if relation_id is None:
            raise SourceError(
                f"source.table: this user sees no table or view {section.table!r} in PostgreSQL; write schema.name "
                "with the exact upper and lower case"
            )
        ((schema, name),) = server.rows(postgres_dialect.relation_name(), [relation_id])
        columns = [_RemoteColumn(*column) for column in server.rows(postgres_dialect.relation_columns(), [relation_id])]
    return _RemoteRelation(table(name, schema), columns, frozenset((schema,)), quote_name(schema, name))


def _find_relation_ids(server: PostgresEngine, names: Sequence[str]) -> list[int | None]:
    """Find relations by name on the user's search path."""
    with server.on_user_path():
        return [server.rows(postgres_dialect.relation_oid(), [name])[0][0] for name in names]


def _find_query(server: PostgresEngine, query: str) -> _RemoteRelation:
    """Qualify the tables of a query with their schemas, and read the types of its columns.

    Tables are resolved on the user's search path. Functions, operators and types without a schema are the server's
    own, so that other users cannot replace them.
    """
    refuse_unless_select(query, PostgresEngine.dialect, "PostgreSQL")
    spans = postgres_dialect.unqualified_table_spans(query)
    with server.read_only():
        relation_ids = _find_relation_ids(server, [query[first : last + 1] for first, last in spans])
        for (first, last), relation_id in reversed(list(zip(spans, relation_ids, strict=True))):
            if relation_id is not None:
                ((schema, name),) = server.rows(postgres_dialect.relation_name(), [relation_id])
                query = f"{query[:first]}{quote_name(schema, name)}{query[last + 1 :]}"
    relation = verbatim_query(query)
    try:
        columns = _read_query_columns(server, relation)
        return _RemoteRelation(relation, columns, postgres_dialect.table_schemas(query), query=query)
    except SourceError as error:
        if "does not exist" not in str(error):
            raise
        raise SourceError(
            f"{error}; in source.query, write your functions, operators and types with their schema "
            "(schema.name, OPERATOR(schema.+)), or make a view in PostgreSQL"
        ) from None


def _read_query_columns(server: PostgresEngine, relation: exp.Subquery) -> list[_RemoteColumn]:
    """Read the columns of a temporary view, which is rolled back; without one, a numeric has no precision."""
    if _can_create_temporary(server):
        with server.rolled_back_unless_committed():
            server.execute(create_temporary_view(table(_QUERY), relation.this))
            view_oid = server.rows(postgres_dialect.relation_oid(), [quote_name("pg_temp", _QUERY)])[0][0]
            return [_RemoteColumn(*column) for column in server.rows(postgres_dialect.relation_columns(), [view_oid])]
    with server.read_only():
        names = server.names(select_star(relation.copy()).limit(0, copy=False))
        refuse_ambiguous_names(names, "the source")
        types = server.rows(postgres_dialect.query_column_types(relation, names))
    return [_RemoteColumn(name, *type_) for name, type_ in zip(names, types, strict=True)]
