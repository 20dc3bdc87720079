"""A source in PostgreSQL: what its rows have in common is counted there, and nothing else leaves it.

One GROUP BY over the quasi-identifiers, and the sensitive attributes that requirements look at, gives the distinct
combinations with their counts. The engine beside us has these in its private work database, and as its relation of the
source a view that repeats each as often as it was counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.engines.travel import arrived, count_column, repeated
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.expressions import (
    cast,
    create_table,
    create_temporary_view,
    ident,
    named,
    qualified,
    select,
    star,
    subquery,
    table,
)
from sqlanon.policy import SourceSection, address_of, server_of, table_parts
from sqlanon.sources.bind import readable
from sqlanon.sources.bound import Counted, InPostgres, Place, Source
from sqlanon.sources.plain import refuse_ambiguous

_QUERY = "sqlanon_source_query"

_PARTLY_UNLIKE = ("DECIMAL", "DATE", "TIMESTAMP")
"""Types some of whose values there have no equal here."""


def bind_postgres(
    engine: DuckDBEngine,
    server: PostgresEngine,
    address: str,
    section: SourceSection,
    place: Place,
    combinations: exp.Table,
    looked_at: Sequence[str],
    wanted: Collection[str],
) -> Source:
    """Count a source in PostgreSQL."""
    there = _found(server, section)
    own = there.columns
    columns = _columns(own, wanted)
    values: list[exp.Expr] = [
        named(pg.plain_there(name, kind, columns[name], is_enum), name)
        for name, kind, is_enum in own
        if name.lower() in wanted
    ]
    plain = select(values, there.relation)
    by_lower = {name.lower(): name for name in columns}
    names = [by_lower[name.lower()] for name in looked_at if name.lower() in by_lower]
    count = count_column(by_lower)
    types = {name: columns[name] for name in dict.fromkeys(names)}
    relation = subquery(plain, "source")
    statement = pg.grouped(relation, types, count)
    arrive = {**types, count: "BIGINT"}
    if place.copy is None:
        engine.execute(create_table(combinations, _no_rows(arrive)))
    elif types:
        with (
            carrying(server, relation, types),
            readable(),
            server.reading(),
            server.stream(statement) as reader,
        ):
            engine.copy_arrow(combinations, reader, lambda arrow: arrived(arrow, arrive))
    else:
        engine.execute(create_table(combinations, _no_rows(arrive)))
    view = place.view("source")
    engine.execute(create_temporary_view(view, repeated(combinations, types or [count], count)))
    remote = InPostgres(server, address, relation, statement, there.schema, there.name, there.query)
    return Source(view, columns, in_place=False, counted=Counted(combinations, count), postgres=remote)


@contextmanager
def carrying(server: PostgresEngine, relation: exp.Expr, types: Mapping[str, str]) -> Iterator[None]:
    """Where a value cannot travel from there, say of which column."""
    try:
        yield
    except SqlanonError as error:
        names = [name for name, type_ in types.items() if type_.startswith(_PARTLY_UNLIKE)]
        if not (isinstance(error.__cause__, duckdb.ConversionException) and names):
            raise
        with server.reading():
            found = server.rows(pg.unlike_here(relation, names))[0]
        if strange := [repr(name) for name, is_there in zip(names, found, strict=True) if is_there]:
            raise SourceError(
                f"{server.place}: {', '.join(strange)} cannot be read: NaN in a numeric and dates before Christ have "
                "no equal here; turn these into NULL with query = ... under [source]"
            ) from None
        raise


def refuse_schema_of_source(remote: InPostgres, place: str, schema: str) -> None:
    """A release does not go into the schema of its source: who may read it would be let into that one.

    One server may have many addresses: it is asked, if need be.
    """
    if remote.schema != schema:
        return
    address = address_of(place)
    same = server_of(remote.address) == server_of(address)
    if not same:
        with (
            closing(PostgresEngine.open(address, "release.postgres")) as other,
            other.reading(),
            remote.engine.reading(),
        ):
            same = other.rows(pg.same_server()) == remote.engine.rows(pg.same_server())
    if same:
        raise SourceError(
            f"release.table: is in the source's schema {schema!r}: readers of the release would be let into that one; "
            "use another"
        )


def _no_rows(types: Mapping[str, str]) -> exp.Select:
    nothing = [named(cast(exp.null(), type_), name) for name, type_ in types.items()]
    return exp.Select(expressions=nothing).limit(0, copy=False)


@dataclass(frozen=True)
class _Found:
    """The table or query there; its columns: name, type, whether it is an enumeration; and what `InPostgres` says."""

    relation: exp.Expr
    columns: list[tuple[str, str, bool]]
    schema: str | None = None
    name: str | None = None
    query: str | None = None


def _found(server: PostgresEngine, section: SourceSection) -> _Found:
    if section.query is not None:
        return _of_query(server, section.query)
    parts = table_parts(section.table or "")
    with server.reading():
        found = _numbers(server, [qualified(*parts)])[0] if parts else None
        if found is None:
            raise SourceError(
                f"source.table: there is no table or view {section.table!r} in PostgreSQL that this user may see: "
                "write it as schema.name, in upper and lower case as it is there"
            )
        ((schema, name),) = server.rows(pg.name_by_number(), [found])
        own = server.rows(pg.columns_of(), [found])
    columns = [(column, kind, is_enum) for column, kind, is_enum in own]
    return _Found(table(name, schema), columns, schema, qualified(schema, name))


def _numbers(server: PostgresEngine, names: Sequence[str]) -> list[int | None]:
    """The relations of these names, as the user's own path finds them."""
    with server.on_own_path():
        return [server.rows(pg.number_of(), [name])[0][0] for name in names]


def _of_query(server: PostgresEngine, query: str) -> _Found:
    """A query, with the schemas of its tables; and its columns, with the types of a view over it.

    Its tables are found on the user's own path. Its functions, operators and types are the server's own, unless it
    names their schema: nobody else can put one of theirs in their place.
    """
    try:
        is_one = pg.is_one_query(query)
        places = pg.names_without_schema(query) if is_one else []
    except SqlglotError:
        raise SourceError("source.query: cannot be read as one SELECT: make a view of it in PostgreSQL") from None
    if not is_one:
        raise SourceError("source.query: must be one SELECT statement")
    with server.reading():
        found = _numbers(server, [query[first : last + 1] for first, last in places])
        for (first, last), number in reversed(list(zip(places, found, strict=True))):
            if number is not None:
                ((schema, name),) = server.rows(pg.name_by_number(), [number])
                query = f"{query[:first]}{qualified(schema, name)}{query[last + 1 :]}"
        may_view = server.rows(pg.may_make_temporary())[0][0]
    statement = pg.query_as_it_stands(query)
    relation = exp.Subquery(this=statement, alias=exp.TableAlias(this=ident("query")))
    try:
        own = _columns_of_view(server, statement) if may_view else _columns_without_view(server, relation)
    except SourceError as error:
        if "does not exist" not in str(error):
            raise
        raise SourceError(
            f"{error}; functions, operators and types of source.query that are not PostgreSQL's own need their schema "
            "(schema.name, OPERATOR(schema.+)), or make a view of it in PostgreSQL"
        ) from None
    return _Found(relation, own, query=query)


def _columns_of_view(server: PostgresEngine, statement: exp.Expr) -> list[tuple[str, str, bool]]:
    """Of a view that is made in a transaction that leaves nothing."""
    with server.undone_unless_committed():
        server.execute(create_temporary_view(table(_QUERY), statement))
        found = server.rows(pg.number_of(), [qualified("pg_temp", _QUERY)])[0][0]
        return [(name, kind, is_enum) for name, kind, is_enum in server.rows(pg.columns_of(), [found])]


def _columns_without_view(server: PostgresEngine, relation: exp.Subquery) -> list[tuple[str, str, bool]]:
    """Where no view may be made, temporary ones included: then a numeric has no precision."""
    with server.reading():
        names = server.names(star(relation.copy()).limit(0, copy=False))
        refuse_ambiguous(names, "the source")
        types = server.rows(pg.types_without_a_view(relation, names))
    return [(name, kind, is_enum) for name, (kind, is_enum) in zip(names, types, strict=True)]


def _columns(own: Sequence[tuple[str, str, bool]], wanted: Collection[str]) -> dict[str, str]:
    """DuckDB's types by name; of columns that are not wanted PostgreSQL's."""
    refuse_ambiguous([name for name, _, _ in own], "the source")
    columns, strange = {}, []
    for name, kind, is_enum in own:
        type_ = "VARCHAR" if is_enum else pg.type_here(kind)
        if type_ is None and name.lower() in wanted:
            strange.append(f"{name!r} ({kind})")
        columns[name] = type_ or kind
    if strange:
        raise SourceError(
            f"columns of types that have no equal here: {', '.join(strange)}; cast them with query = ... under "
            "[source] (a numeric needs a precision of at most 38 and a scale: numeric(12,2))"
        )
    return columns
