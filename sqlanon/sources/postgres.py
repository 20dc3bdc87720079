"""A source in PostgreSQL: what its rows have in common is counted there, and nothing else leaves it.

One GROUP BY over the quasi-identifiers, and the sensitive attributes that requirements look at, gives the distinct
combinations with their counts. The engine beside us has these in its private work database, and as its relation of the
source a view that repeats each as often as it was counted.
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
    cast,
    col,
    column_names,
    create_table,
    create_temporary_table,
    create_temporary_view,
    drop_table,
    full_name,
    named,
    quote_name,
    select,
    star,
    subquery,
    table,
)
from sqlanon.support.names import table_parts

_NUMERIC = " (a numeric needs a precision of at most 38 and a scale: numeric(12,2))"

_QUERY = "sqlanon_source_query"

_SHIPPED = "sqlanon_shipped"

_ROWS = table("sqlanon_narrowing", "pg_temp")
"""Rows of a query, for a while."""

_Server = TypeVar("_Server")

_PERSON_TYPES = ("numeric", "bytea")
"""Types without an equal here whose values tell persons apart: they stay there."""

_PARTLY_UNLIKE = ("DECIMAL", "DATE", "TIMESTAMP")
"""Types some of whose values there have no equal here."""


@dataclass(frozen=True, kw_only=True)
class PostgresSource(Source):
    """A source in PostgreSQL: its combinations were counted there, and are here.

    Recoding runs there, by the same statement as here. What that reads beside the source (values with their codes and
    labels, the suppressed classes) is shipped as temporary tables, which nobody else sees and which go with the
    transaction. Rows of the source never come here: the rows of its release may.
    """

    engine: PostgresEngine  # a connection to it, and where that leads; it may hold a password
    address: str = field(repr=False)
    there: exp.Subquery  # the source there: its columns that are looked at or released, each plain
    every: exp.Subquery  # the source there: all of its columns
    types: Mapping[str, str]  # the types of these
    statement: exp.Select  # what counted it
    schema: str | None = None  # of the table there; None of a query, which may read many
    # the table with its schema, or the query with the schemas of its tables, as the user's own path found them
    name: str | None = None
    query: str | None = None

    access = "counts"

    @property
    def location(self) -> str:
        return "PostgreSQL"

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The connection, for the very text of its address."""
        return self.engine if isinstance(self.engine, kind) and address in (None, self.address) else None

    def names(self, section: SourceSection) -> tuple[str | None, str | None]:
        return self.name, self.query

    def plan(self) -> Iterator[Stage]:
        note = "the combinations of values with their counts; of the rows, nothing else leaves it"
        yield Stage("count in PostgreSQL", note, (self.statement.sql(self.engine.dialect, pretty=True),))

    def release_note(self, to: str, note: str) -> str:
        return f"in PostgreSQL, over temporary tables of what is here, to {to} ({note})"

    def render_statement(self, engine: Engine, query: exp.Expr) -> str:
        own = full_name(self.relation)
        others = {full_name(one): one for one in query.find_all(exp.Table) if one.catalog}
        others.pop(own, None)
        tables: dict[str, exp.Expr] = {own: self.there}
        tables |= {name: table(one.name, "pg_temp") for name, one in others.items()}
        return pg.translate_to_postgres(query, tables).sql(self.engine.dialect, pretty=True)

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        refuse_confined(recoding.select(shuffled), self._confined, "PostgreSQL")
        with (
            self.engine.rolled_back_unless_committed(),
            self.shipped(engine, recoding.select(shuffled)) as query,
            self.engine.stream(encode_columns(query, types)) as reader,
            engine.register_arrow(reader) as relation,
        ):
            yield decode_columns(relation, types)

    @property
    def _rows_with_persons(self) -> exp.Subquery:
        """The source there, with the person column where persons are counted."""
        return self.persons.there if isinstance(self.persons, PostgresPersons) else self.there

    @property
    def _confined(self) -> dict[str, frozenset[str]]:
        persons = self.persons
        return {full_name(self.relation): frozenset({persons.person})} if isinstance(persons, PostgresPersons) else {}

    @contextmanager
    def remote_release_query(self, engine: WorkEngine, recoding: RecodingStatement) -> Iterator[exp.Query]:
        """The statement that makes the rows of a release there, in the transaction that is open."""
        with self.shipped(engine, self.release_query(recoding)) as query:
            yield query

    @contextmanager
    def shipped(self, engine: WorkEngine, query: exp.Select, rows: exp.Expr | None = None) -> Iterator[exp.Select]:
        """A query over the source, or these rows there, and over tables beside us, as it runs there, while these are
        there."""
        made: list[exp.Table] = []
        tables: dict[str, exp.Expr] = {full_name(self.relation): self._rows_with_persons}
        if rows is not None:
            tables[full_name(REMOTE_ROWS)] = rows
        for number, (found, columns) in enumerate(self._beside(engine, query)):
            tables[full_name(found)] = self._ship(engine, found, columns, number)
            made.append(table(f"{_SHIPPED}_{number}", "pg_temp"))
        # It knows little of how many rows come out of a sort: loops in loops would seem cheap.
        self.engine.execute(pg.allow_nested_loops(allowed=False))
        yield pg.translate_to_postgres(query, tables)
        self.engine.execute(pg.allow_nested_loops(allowed=True))
        for one in made:
            self.engine.execute(drop_table(one))

    def _beside(self, engine: WorkEngine, query: exp.Select) -> list[tuple[exp.Table, dict[str, str]]]:
        """The tables beside us that a query reads, each once, with the columns of them that it names."""
        used = column_names(query)
        found = {full_name(one): one for one in query.find_all(exp.Table) if one.catalog}
        found.pop(full_name(self.relation), None)
        plain = [table(one.name, one.db, one.catalog) for one in found.values()]
        return [(one, {name: type_ for name, type_ in engine.columns(one).items() if name in used}) for one in plain]

    def _ship(self, engine: WorkEngine, found: exp.Table, columns: Mapping[str, str], number: int) -> exp.Table:
        values = select([col(name) for name in columns], found.copy())
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
        confined = confined_columns(query, self._confined)
        with self.engine.rolled_back_unless_committed(), self.shipped(engine, query) as there:
            some = there if share is None else pg.sample_rows(rows=there, share=share)
            self.engine.execute(create_temporary_table(table(_ROWS.name), some))
            self.engine.execute(pg.analyze_table(_ROWS.copy()))
            yield partial(self._figures, confined), _ROWS

    def _figures(self, confined: frozenset[str], asked: exp.Query) -> list[tuple[Any, ...]]:
        """The answer to a query over `_ROWS`, of which it tells figures alone, and nobody's id."""
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
            return self.engine.rows(pg.count_distinct_values(self.there, names))[0]

    def sampling_relation(self, engine: Engine) -> SamplingRelation:
        return SamplingRelation(self.engine, self.there, self.there.named_selects)

    def all_columns(self, engine: Engine) -> AllColumns:
        return AllColumns(self.engine, self.every, self.types)

    def query_remote_rows(self, query: exp.Query, relation: exp.Expr) -> list[tuple[Any, ...]]:
        with self.engine.read_only():
            return self.engine.rows(pg.translate_to_postgres(query, {full_name(REMOTE_ROWS): relation}))

    def query_remote_release(
        self, engine: WorkEngine, query_of: Callable[[exp.Table], exp.Select], every: AllColumns
    ) -> list[tuple[Any, ...]]:
        query = query_of(REMOTE_ROWS)
        with self.engine.rolled_back_unless_committed(), self.shipped(engine, query, every.relation) as there:
            return self.engine.rows(there)

    def measuring_obstacle(self) -> str | None:
        with self.engine.read_only():
            may = self.engine.rows(pg.has_temporary_privilege())[0][0]
        return None if may else "this role may make no temporary tables in PostgreSQL"

    def transfer_errors(self, types: Mapping[str, str]) -> AbstractContextManager[None]:
        return _carrying(self.engine, self.there, types)

    def refuse_release(self, place: str, schema: str) -> None:
        """A release does not go into the schema of its source: who may read it would be let into that one.

        One server may have many addresses: it is asked, if need be.
        """
        if self.schema != schema:
            return
        address = resolve_postgres_address(place)
        same = server_address(self.address) == server_address(address)
        if not same:
            with (
                closing(PostgresEngine.open(address, "release.postgres")) as other,
                other.read_only(),
                self.engine.read_only(),
            ):
                same = other.rows(pg.server_identity()) == self.engine.rows(pg.server_identity())
        if same:
            raise SourceError(f"release.table: {SOURCE_SCHEMA_MESSAGE.format(schema=repr(schema))}")


class PostgresPersons(RemotePersons):
    """The persons of a source in PostgreSQL.

    They are counted over a connection of their own, in one transaction: its temporary tables, which have the ids, go
    with it, whatever ends it, and all counts are of the same rows.
    """

    def __init__(
        self,
        work: DuckDBEngine,
        server: PostgresEngine,
        address: str,
        relation: exp.Table,
        there: exp.Subquery,
        person: str,
    ) -> None:
        self._engine = FederatedEngine(work, RemoteTables(server, sys.maxsize, most=0, name="PostgreSQL"))
        self.relation, self._address, self._opened = relation, address, ExitStack()
        self.there, self.person, self._is_open = there, person.lower(), False

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
        for made in list(self.engine.remote.kept):
            self.engine.remote.tables.pop(made, None)
        self.engine.remote.kept.clear()
        self._opened.close()

    @property
    def server(self) -> PostgresEngine:
        """The connection that sees what the counts are of."""
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
    engine, section, place = binding.engine, binding.section, binding.work_names
    combinations, looked_at, wanted = place.table, binding.counted_attributes, binding.released_attributes
    with server.read_only():
        if why := server.find_release_obstacle():
            raise SourceError(f"{server.place}: {why}")
    there = _found(server, section)
    own = there.columns
    types_there = [(name, kind, "VARCHAR" if is_enum else pg.to_duckdb_type(kind)) for name, kind, is_enum in own]
    columns = find_local_types(types_there, wanted, _NUMERIC)
    values: list[exp.Expr] = [
        named(pg.canonical_column(name, kind, columns[name], is_enum), name)
        for name, kind, is_enum in own
        if name.lower() in wanted
    ]
    plain = select(values, there.relation.copy())
    enums = {name for name, _, is_enum in own if is_enum}
    every, types_of_every = _every_column(there.relation, types_there, enums)
    persons = _persons(binding, server, address, there, columns, values)
    by_lower = {name.lower(): name for name in columns}
    names = [by_lower[name.lower()] for name in looked_at if name.lower() in by_lower]
    count = row_count_column(by_lower)
    types = {name: columns[name] for name in dict.fromkeys(names)}
    relation = subquery(plain, "source")
    statement = pg.count_combinations(relation, types, count)
    arrive = {**types, count: "BIGINT"}
    if place.copy_target is None or not types:
        engine.execute(create_table(combinations, _no_rows(arrive)))
    else:
        if persons is not None:
            persons.open()
        seen = server.read_only() if persons is None else nullcontext()
        reading = server if persons is None else persons.server
        with _carrying(server, relation, types), source_errors(), seen, reading.stream(statement) as reader:
            engine.copy_arrow(combinations, reader, lambda arrow: decode_columns(arrow, arrive))
    view = place.view("source")
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
        there=relation,
        every=every,
        types=types_of_every,
        statement=statement,
        schema=there.schema,
        name=there.name,
        query=there.query,
    )


def _every_column(
    relation: exp.Expr, own: Sequence[tuple[str, str, str | None]], enums: Collection[str]
) -> tuple[exp.Subquery, dict[str, str]]:
    """A relation there with each of its columns whose text is known, and DuckDB's names of their types."""
    kinds = {name: kind for name, kind, _ in own}
    # A numeric without precision has no equal here, but a text.
    types = {name: "VARCHAR" if kind == "numeric" else type_ for name, kind, type_ in own}
    known = {name: type_ for name, type_ in types.items() if type_ is not None}
    columns: list[exp.Expr] = [
        named(pg.canonical_column(name, kinds[name], type_, name in enums), name) for name, type_ in known.items()
    ]
    return subquery(select(columns, relation.copy()), "source"), known


def _persons(
    binding: Binding,
    server: PostgresEngine,
    address: str,
    there: _Found,
    columns: Mapping[str, str],
    values: Sequence[exp.Expr],
) -> PostgresPersons | None:
    """Where persons are counted, if the policy counts persons. They are told apart by the column's own equality."""
    wanted = (binding.section.person_column or "").lower()
    named_so = [(name, kind, is_enum) for name, kind, is_enum in there.columns if name.lower() == wanted]
    if not wanted or not named_so:  # a column that is missing is reported with all others that are
        return None
    ((person, kind, is_enum),) = named_so
    if not is_enum and pg.to_duckdb_type(kind) is None and kind not in _PERSON_TYPES:
        raise SourceError(
            f"source.person: {person!r} is of type {kind}, whose equality may be anybody's function: cast it to text "
            "with query = ... under [source]"
        )
    types = {name: type_ for name, type_ in columns.items() if name.lower() in binding.released_attributes}
    types |= {person: columns[person] if pg.to_duckdb_type(kind) else "VARCHAR"}
    relation = subquery(
        select(
            [*(one.copy() for one in values), named(pg.person_id_column(person, kind, is_enum), person)],
            there.relation.copy(),
        )
    )
    relation.set("alias", exp.TableAlias(this=exp.to_identifier("source")))
    view = binding.work_names.view("persons")
    persons = PostgresPersons(binding.engine, server, address, view, relation, person)
    persons.engine.register_remote(persons.relation, types, relation, confined=[person])
    return persons


@contextmanager
def _carrying(server: PostgresEngine, relation: exp.Expr, types: Mapping[str, str]) -> Iterator[None]:
    """Where a value cannot travel from there, say of which column."""
    try:
        yield
    except SqlanonError as error:
        names = [name for name, type_ in types.items() if type_.startswith(_PARTLY_UNLIKE)]
        if not (isinstance(error.__cause__, duckdb.ConversionException) and names):
            raise
        with server.read_only():
            found = server.rows(pg.has_values_unknown_to_duckdb(relation, names))[0]
        if strange := [repr(name) for name, is_there in zip(names, found, strict=True) if is_there]:
            raise SourceError(
                f"{server.place}: {', '.join(strange)} cannot be read: NaN in a numeric column, dates before Christ "
                "and timestamps after the year 294246 are not supported; turn them into NULL with query = ... under "
                "[source]"
            ) from None
        raise


def _no_rows(types: Mapping[str, str]) -> exp.Select:
    nothing = [named(cast(exp.null(), type_), name) for name, type_ in types.items()]
    return exp.Select(expressions=nothing).limit(0, copy=False)


@dataclass(frozen=True)
class _Found:
    """The table or query there; its columns: name, type, whether it is an enumeration; and as `PostgresSource`."""

    relation: exp.Expr
    columns: list[tuple[str, str, bool]]
    schema: str | None = None
    name: str | None = None
    query: str | None = None


def _found(server: PostgresEngine, section: SourceSection) -> _Found:
    if section.query is not None:
        return _of_query(server, section.query)
    parts = table_parts(section.table or "")
    with server.read_only():
        found = _numbers(server, [quote_name(*parts)])[0] if parts else None
        if found is None:
            raise SourceError(
                f"source.table: this user sees no table or view {section.table!r} in PostgreSQL; write schema.name, in "
                "upper and lower case as it is there"
            )
        ((schema, name),) = server.rows(pg.relation_name(), [found])
        own = server.rows(pg.relation_columns(), [found])
    columns = [(column, kind, is_enum) for column, kind, is_enum in own]
    return _Found(table(name, schema), columns, schema, quote_name(schema, name))


def _numbers(server: PostgresEngine, names: Sequence[str]) -> list[int | None]:
    """The relations of these names, as the user's own path finds them."""
    with server.on_user_path():
        return [server.rows(pg.relation_oid(), [name])[0][0] for name in names]


def _of_query(server: PostgresEngine, query: str) -> _Found:
    """A query, with the schemas of its tables; and its columns, with the types of a view over it.

    Its tables are found on the user's own path. Its functions, operators and types are the server's own, unless it
    names their schema: nobody else can put one of theirs in their place.
    """
    refuse_unless_select(query, PostgresEngine.dialect, "PostgreSQL")
    places = pg.unqualified_table_spans(query)
    with server.read_only():
        found = _numbers(server, [query[first : last + 1] for first, last in places])
        for (first, last), number in reversed(list(zip(places, found, strict=True))):
            if number is not None:
                ((schema, name),) = server.rows(pg.relation_name(), [number])
                query = f"{query[:first]}{quote_name(schema, name)}{query[last + 1 :]}"
        may_view = server.rows(pg.has_temporary_privilege())[0][0]
    relation = verbatim_query(query)
    try:
        own = _columns_of_view(server, relation.this) if may_view else _columns_without_view(server, relation)
    except SourceError as error:
        if "does not exist" not in str(error):
            raise
        raise SourceError(
            f"{error}; in source.query, write functions, operators and types of your own with their schema "
            "(schema.name, OPERATOR(schema.+)), or make a view in PostgreSQL"
        ) from None
    return _Found(relation, own, query=query)


def _columns_of_view(server: PostgresEngine, statement: exp.Expr) -> list[tuple[str, str, bool]]:
    """Of a view that is made in a transaction that leaves nothing."""
    with server.rolled_back_unless_committed():
        server.execute(create_temporary_view(table(_QUERY), statement))
        found = server.rows(pg.relation_oid(), [quote_name("pg_temp", _QUERY)])[0][0]
        return [(name, kind, is_enum) for name, kind, is_enum in server.rows(pg.relation_columns(), [found])]


def _columns_without_view(server: PostgresEngine, relation: exp.Subquery) -> list[tuple[str, str, bool]]:
    """Where no view may be made, temporary ones included: then a numeric has no precision."""
    with server.read_only():
        names = server.names(star(relation.copy()).limit(0, copy=False))
        refuse_ambiguous_names(names, "the source")
        types = server.rows(pg.query_column_types(relation, names))
    return [(name, kind, is_enum) for name, (kind, is_enum) in zip(names, types, strict=True)]
