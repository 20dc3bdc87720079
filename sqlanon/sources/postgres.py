"""Bind a source in PostgreSQL, whose rows never leave the server.

One GROUP BY over the quasi-identifiers, and the sensitive attributes that requirements examine, counts the distinct
combinations. The local engine stores them in its private work database, and its relation of the source is a view that
repeats each combination by its count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import duckdb
from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.dialects import postgres as pg
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
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.queries import refuse_unless_select, verbatim_query
from sqlanon.sources.relation import find_local_types, source_errors
from sqlanon.sources.source import (
    REMOTE_ROWS,
    AllColumns,
    CountedCombinations,
    RecodingStatement,
    RemotePersons,
    RunQuery,
    SamplingRelation,
    Source,
)
from sqlanon.sources.tabular import refuse_ambiguous_names
from sqlanon.support.expressions import (
    as_column,
    cast,
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
    schema: str | None = None  # of the table; None for a query, which may read several
    # The table with its schema, or the query with the schemas of its tables, resolved on the user's search path.
    name: str | None = None
    query: str | None = None

    access = "counts"

    @property
    def location(self) -> str:
        return "PostgreSQL"

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The connection, if the text of the address is the same."""
        return self.engine if isinstance(self.engine, kind) and address in (None, self.address) else None

    def names(self, section: SourceSection) -> tuple[str | None, str | None]:
        return self.name, self.query

    def plan(self) -> Iterator[Stage]:
        note = "the combinations of values with their counts; nothing else leaves the server"
        yield Stage("count in PostgreSQL", note, (self.statement.sql(self.engine.dialect, pretty=True),))

    def release_note(self, to: str, note: str) -> str:
        return f"in PostgreSQL, over temporary tables with local values, to {to} ({note})"

    def render_statement(self, engine: Engine, query: exp.Expr) -> str:
        local_tables = {full_name(part): part for part in query.find_all(exp.Table) if part.catalog}
        local_tables.pop(full_name(self.relation), None)
        tables: dict[str, exp.Expr] = {full_name(self.relation): self.remote_relation}
        tables |= {name: table(part.name, "pg_temp") for name, part in local_tables.items()}
        return pg.translate_to_postgres(query, tables).sql(self.engine.dialect, pretty=True)

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        refuse_confined(recoding.select(shuffled), self._confined_columns, "PostgreSQL")
        with (
            self.engine.rolled_back_unless_committed(),
            self.shipped(engine, recoding.select(shuffled)) as query,
            self.engine.stream(encode_columns(query, types)) as reader,
            engine.register_arrow(reader) as relation,
        ):
            yield decode_columns(relation, types)

    @property
    def _relation_with_persons(self) -> exp.Subquery:
        """The source on the server, with the person column if persons are counted."""
        return self.persons.remote_relation if isinstance(self.persons, PostgresPersons) else self.remote_relation

    @property
    def _confined_columns(self) -> dict[str, frozenset[str]]:
        persons = self.persons
        return {full_name(self.relation): frozenset({persons.person})} if isinstance(persons, PostgresPersons) else {}

    @contextmanager
    def remote_release_query(self, engine: WorkEngine, recoding: RecodingStatement) -> Iterator[exp.Query]:
        """The statement that makes the rows of a release on the server, in the open transaction."""
        with self.shipped(engine, self.release_query(recoding)) as query:
            yield query

    @contextmanager
    def shipped(self, engine: WorkEngine, query: exp.Select, rows: exp.Expr | None = None) -> Iterator[exp.Select]:
        """Translate a query over the source, or over remote ``rows``, for the server; ship its local tables for the
        block."""
        shipped_tables: list[exp.Table] = []
        tables: dict[str, exp.Expr] = {full_name(self.relation): self._relation_with_persons}
        if rows is not None:
            tables[full_name(REMOTE_ROWS)] = rows
        for number, (local_table, columns) in enumerate(self._find_local_tables(engine, query)):
            tables[full_name(local_table)] = self._ship_table(engine, local_table, columns, number)
            shipped_tables.append(table(f"{_SHIPPED}_{number}", "pg_temp"))
        # The planner underestimates the rows of a sort: nested loops would seem cheap.
        self.engine.execute(pg.allow_nested_loops(allowed=False))
        yield pg.translate_to_postgres(query, tables)
        self.engine.execute(pg.allow_nested_loops(allowed=True))
        for shipped_table in shipped_tables:
            self.engine.execute(drop_table(shipped_table))

    def _find_local_tables(self, engine: WorkEngine, query: exp.Select) -> list[tuple[exp.Table, dict[str, str]]]:
        """The local tables of a query, with the columns of each that it names."""
        used = column_names(query)
        tables = {full_name(part): part for part in query.find_all(exp.Table) if part.catalog}
        tables.pop(full_name(self.relation), None)
        local_tables = [table(part.name, part.db, part.catalog) for part in tables.values()]
        return [
            (local_table, {name: type_ for name, type_ in engine.columns(local_table).items() if name in used})
            for local_table in local_tables
        ]

    def _ship_table(
        self, engine: WorkEngine, local_table: exp.Table, columns: Mapping[str, str], number: int
    ) -> exp.Table:
        values = select([col(name) for name in columns], local_table.copy())
        with engine.stream(encode_columns(values, columns, "VARCHAR")) as reader:
            as_text = self.engine.upload(f"{_SHIPPED}_as_text_{number}", reader)
        name = f"{_SHIPPED}_{number}"
        self.engine.execute(create_temporary_table(table(name), pg.decode_uploaded(as_text, columns)))
        self.engine.execute(drop_table(as_text.copy()))
        self.engine.execute(pg.analyze_table(table(name, "pg_temp")))
        return table(name, "pg_temp")

    @contextmanager
    def temporary_rows(
        self, engine: WorkEngine, query: exp.Select, share: float | None
    ) -> Iterator[tuple[RunQuery, exp.Table]]:
        confined = confined_columns(query, self._confined_columns)
        with self.engine.rolled_back_unless_committed(), self.shipped(engine, query) as remote_query:
            rows = remote_query if share is None else pg.sample_rows(rows=remote_query, share=share)
            self.engine.execute(create_temporary_table(table(_ROWS.name), rows))
            self.engine.execute(pg.analyze_table(_ROWS.copy()))
            yield partial(self._query_figures, confined), _ROWS

    def _query_figures(self, confined: frozenset[str], asked: exp.Query) -> list[tuple[Any, ...]]:
        """Run a query over `_ROWS` that returns only figures, and no confined column."""
        refuse_rows(asked, {full_name(_ROWS)}, {}, "PostgreSQL")
        refuse_confined(asked, {full_name(_ROWS): confined}, "PostgreSQL")
        return self.engine.rows(pg.translate_to_postgres(asked, {}))

    def render_temporary_rows(self, engine: Engine, query: exp.Select) -> tuple[exp.Table, list[str]]:
        return _ROWS, [self.render_statement(engine, create_temporary_table(table(_ROWS.name), query))]

    def drop(self) -> None:
        if self.persons is not None:
            self.persons.close()

    def count_distinct_values(self, engine: Engine, names: Sequence[str]) -> Sequence[int]:
        with self.engine.read_only():
            return self.engine.rows(pg.count_distinct_values(self.remote_relation, names))[0]

    def sampling_relation(self, engine: Engine) -> SamplingRelation:
        return SamplingRelation(self.engine, self.remote_relation, self.remote_relation.named_selects)

    def all_columns(self, engine: Engine) -> AllColumns:
        return AllColumns(self.engine, self.every, self.types)

    def query_remote_rows(self, query: exp.Query, relation: exp.Expr) -> list[tuple[Any, ...]]:
        with self.engine.read_only():
            return self.engine.rows(pg.translate_to_postgres(query, {full_name(REMOTE_ROWS): relation}))

    def query_remote_release(
        self, engine: WorkEngine, query_of: Callable[[exp.Table], exp.Select], every: AllColumns
    ) -> list[tuple[Any, ...]]:
        query = query_of(REMOTE_ROWS)
        with self.engine.rolled_back_unless_committed(), self.shipped(engine, query, every.relation) as remote_query:
            return self.engine.rows(remote_query)

    def measuring_obstacle(self) -> str | None:
        with self.engine.read_only():
            may = self.engine.rows(pg.has_temporary_privilege())[0][0]
        return None if may else "this role may make no temporary tables in PostgreSQL"

    def transfer_errors(self, types: Mapping[str, str]) -> AbstractContextManager[None]:
        return _transfer_errors(self.engine, self.remote_relation, types)

    def refuse_release(self, location: str, schema: str) -> None:
        """Refuse a release into the schema of its source, whose readers could see the source.

        A server may have several addresses, so that its identity is queried if necessary.
        """
        if self.schema != schema:
            return
        address = resolve_postgres_address(location)
        same = server_address(self.address) == server_address(address)
        if not same:
            with (
                closing(PostgresEngine.open(address, "release.postgres")) as release_server,
                release_server.read_only(),
                self.engine.read_only(),
            ):
                same = release_server.rows(pg.server_identity()) == self.engine.rows(pg.server_identity())
        if same:
            raise SourceError(f"release.table: {SOURCE_SCHEMA_MESSAGE.format(schema=repr(schema))}")


class PostgresPersons(RemotePersons):
    """Counts the persons of a source in PostgreSQL.

    A separate connection counts them in one transaction: its temporary tables, which contain the ids, end with it, and
    all counts see the same rows.
    """

    def __init__(
        self,
        work: DuckDBEngine,
        server: PostgresEngine,
        address: str,
        relation: exp.Table,
        remote_relation: exp.Subquery,
        person: str,
    ) -> None:
        self._engine = FederatedEngine(work, RemoteTables(server, sys.maxsize, most=0, name="PostgreSQL"))
        self.relation, self._address, self._opened = relation, address, ExitStack()
        self.remote_relation, self.person, self._is_open = remote_relation, person.lower(), False

    @property
    def engine(self) -> FederatedEngine:
        return self._engine

    def open(self) -> None:
        if self._is_open:
            return
        server = PostgresEngine.open(self._address, "source.postgres")
        self._opened.callback(server.close)
        with server.read_only():
            may = server.rows(pg.has_temporary_privilege())[0][0]
        if not may:
            self._opened.close()
            raise SourceError(
                "source.person: PostgreSQL counts persons in temporary tables, and this role may make none: GRANT "
                "TEMPORARY ON DATABASE to it; and connect to the primary server, not to a replica"
            )
        self._opened.enter_context(
            server.rolled_back_unless_committed(mode="ISOLATION LEVEL REPEATABLE READ, READ WRITE")
        )
        server.execute(pg.allow_nested_loops(allowed=False))
        self.engine.remote.server, self._is_open = server, True

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for name in list(self.engine.remote.kept):
            self.engine.remote.tables.pop(name, None)
        self.engine.remote.kept.clear()
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
        source = _bind(binding, server, address)
        if release is not None and release.postgres is not None:
            source.refuse_release(release.postgres, table_parts(release.table)[0])
        return binding.engine, source


KIND = _Postgres()


def _bind(binding: Binding, server: PostgresEngine, address: str) -> PostgresSource:
    engine, section, work_names = binding.engine, binding.section, binding.work_names
    combinations, attributes, wanted = work_names.table, binding.counted_attributes, binding.released_attributes
    with server.read_only():
        if why := server.find_release_obstacle():
            raise SourceError(f"{server.place}: {why}")
    remote = _find_relation(server, section)
    remote_types = [
        (name, kind, "VARCHAR" if is_enum else pg.to_duckdb_type(kind)) for name, kind, is_enum in remote.columns
    ]
    columns = find_local_types(remote_types, wanted, _NUMERIC_ADVICE)
    values: list[exp.Expr] = [
        as_column(pg.canonical_column(name, kind, columns[name], is_enum), name)
        for name, kind, is_enum in remote.columns
        if name.lower() in wanted
    ]
    plain = select(values, remote.relation.copy())
    enums = {name for name, _, is_enum in remote.columns if is_enum}
    every, types_of_every = _select_all_columns(remote.relation, remote_types, enums)
    persons = _bind_persons(binding, server, address, remote, columns, values)
    by_lower = {name.lower(): name for name in columns}
    names = [by_lower[name.lower()] for name in attributes if name.lower() in by_lower]
    count = row_count_column(by_lower)
    types = {name: columns[name] for name in dict.fromkeys(names)}
    relation = subquery(plain, "source")
    statement = pg.count_combinations(relation, types, count)
    arrive = {**types, count: "BIGINT"}
    if work_names.copy_target is None or not types:
        engine.execute(create_table(combinations, _empty_query(arrive)))
    else:
        if persons is not None:
            persons.open()
        seen = server.read_only() if persons is None else nullcontext()
        reading = server if persons is None else persons.server
        with _transfer_errors(server, relation, types), source_errors(), seen, reading.stream(statement) as reader:
            engine.copy_arrow(combinations, reader, lambda arrow: decode_columns(arrow, arrive))
    view = work_names.view("source")
    engine.execute(create_temporary_view(view, repeat_rows(combinations, types or [count], count)))
    return PostgresSource(
        view,
        columns,
        in_place=False,
        combinations=CountedCombinations(combinations, count),
        database_id=server_address(address),
        persons=persons,
        engine=server,
        address=address,
        remote_relation=relation,
        every=every,
        types=types_of_every,
        statement=statement,
        schema=remote.schema,
        name=remote.name,
        query=remote.query,
    )


def _select_all_columns(
    relation: exp.Expr, own: Sequence[tuple[str, str, str | None]], enums: Collection[str]
) -> tuple[exp.Subquery, dict[str, str]]:
    """Select all columns of a remote relation that have a text form; with DuckDB's types of them."""
    kinds = {name: kind for name, kind, _ in own}
    # A numeric without precision has no equivalent in DuckDB except a text.
    types = {name: "VARCHAR" if kind == "numeric" else type_ for name, kind, type_ in own}
    types_by_name = {name: type_ for name, type_ in types.items() if type_ is not None}
    columns: list[exp.Expr] = [
        as_column(pg.canonical_column(name, kinds[name], type_, name in enums), name)
        for name, type_ in types_by_name.items()
    ]
    return subquery(select(columns, relation.copy()), "source"), types_by_name


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
    matches = [(name, kind, is_enum) for name, kind, is_enum in remote.columns if name.lower() == wanted]
    if not wanted or not matches:  # missing columns are reported together
        return None
    ((person, kind, is_enum),) = matches
    if not is_enum and pg.to_duckdb_type(kind) is None and kind not in _OPAQUE_PERSON_TYPES:
        raise SourceError(
            f"source.person: {person!r} is of type {kind}, whose equality may be a user's function: cast it to text "
            "with query = ... under [source]"
        )
    types = {name: type_ for name, type_ in columns.items() if name.lower() in binding.released_attributes}
    types |= {person: columns[person] if pg.to_duckdb_type(kind) else "VARCHAR"}
    relation = subquery(
        select(
            [*(value.copy() for value in values), as_column(pg.person_id_column(person, kind, is_enum), person)],
            remote.relation.copy(),
        )
    )
    relation.set("alias", exp.TableAlias(this=exp.to_identifier("source")))
    view = binding.work_names.view("persons")
    persons = PostgresPersons(binding.engine, server, address, view, relation, person)
    persons.engine.register_remote(persons.relation, types, relation, confined=[person])
    return persons


@contextmanager
def _transfer_errors(server: PostgresEngine, relation: exp.Expr, types: Mapping[str, str]) -> Iterator[None]:
    """Name the column of a value that cannot be transferred."""
    try:
        yield
    except SqlanonError as error:
        names = [name for name, type_ in types.items() if type_.startswith(_PARTLY_SUPPORTED_TYPES)]
        if not (isinstance(error.__cause__, duckdb.ConversionException) and names):
            raise
        with server.read_only():
            are_unknown = server.rows(pg.has_values_unknown_to_duckdb(relation, names))[0]
        if strange := [repr(name) for name, is_unknown in zip(names, are_unknown, strict=True) if is_unknown]:
            raise SourceError(
                f"{server.place}: {', '.join(strange)} cannot be read: NaN in a numeric column, dates before Christ "
                "and timestamps after the year 294246 are not supported; turn them into NULL with query = ... under "
                "[source]"
            ) from None
        raise


def _empty_query(types: Mapping[str, str]) -> exp.Select:
    nothing = [as_column(cast(exp.null(), type_), name) for name, type_ in types.items()]
    return exp.Select(expressions=nothing).limit(0, copy=False)


@dataclass(frozen=True)
class _RemoteRelation:
    """A table or query on the server; other fields as in `PostgresSource`."""

    relation: exp.Expr
    columns: list[tuple[str, str, bool]]  # name, type, and whether it is an enumeration
    schema: str | None = None
    name: str | None = None
    query: str | None = None


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
        ((schema, name),) = server.rows(pg.relation_name(), [relation_id])
        columns = [
            (column, kind, is_enum) for column, kind, is_enum in server.rows(pg.relation_columns(), [relation_id])
        ]
    return _RemoteRelation(table(name, schema), columns, schema, quote_name(schema, name))


def _find_relation_ids(server: PostgresEngine, names: Sequence[str]) -> list[int | None]:
    """Find relations by name on the user's search path."""
    with server.on_user_path():
        return [server.rows(pg.relation_oid(), [name])[0][0] for name in names]


def _find_query(server: PostgresEngine, query: str) -> _RemoteRelation:
    """Qualify the tables of a query with their schemas, and read the types of its columns.

    Tables are resolved on the user's search path. Functions, operators and types without a schema are the server's
    own, so that other users cannot replace them.
    """
    refuse_unless_select(query, PostgresEngine.dialect, "PostgreSQL")
    places = pg.unqualified_table_spans(query)
    with server.read_only():
        relation_ids = _find_relation_ids(server, [query[first : last + 1] for first, last in places])
        for (first, last), number in reversed(list(zip(places, relation_ids, strict=True))):
            if number is not None:
                ((schema, name),) = server.rows(pg.relation_name(), [number])
                query = f"{query[:first]}{quote_name(schema, name)}{query[last + 1 :]}"
        may_view = server.rows(pg.has_temporary_privilege())[0][0]
    relation = verbatim_query(query)
    try:
        columns = (
            _read_columns_of_view(server, relation.this) if may_view else _read_columns_without_view(server, relation)
        )
    except SourceError as error:
        if "does not exist" not in str(error):
            raise
        raise SourceError(
            f"{error}; in source.query, write your functions, operators and types with their schema "
            "(schema.name, OPERATOR(schema.+)), or make a view in PostgreSQL"
        ) from None
    return _RemoteRelation(relation, columns, query=query)


def _read_columns_of_view(server: PostgresEngine, statement: exp.Expr) -> list[tuple[str, str, bool]]:
    """Read the columns of a temporary view, created in a transaction that is rolled back."""
    with server.rolled_back_unless_committed():
        server.execute(create_temporary_view(table(_QUERY), statement))
        view_oid = server.rows(pg.relation_oid(), [quote_name("pg_temp", _QUERY)])[0][0]
        return [(name, kind, is_enum) for name, kind, is_enum in server.rows(pg.relation_columns(), [view_oid])]


def _read_columns_without_view(server: PostgresEngine, relation: exp.Subquery) -> list[tuple[str, str, bool]]:
    """Read the columns if no view may be created; a numeric then has no precision."""
    with server.read_only():
        names = server.names(select_star(relation.copy()).limit(0, copy=False))
        refuse_ambiguous_names(names, "the source")
        types = server.rows(pg.query_column_types(relation, names))
    return [(name, kind, is_enum) for name, (kind, is_enum) in zip(names, types, strict=True)]
