"""Recoding a source where it is, by the same statement as here: in PostgreSQL. (In Spark, `engines.federated` does it.)

What the statement reads beside the source (values with their codes and labels, the suppressed classes) is shipped there
as temporary tables, which nobody else sees and which go with the transaction. Rows of the source never come here: the
rows of its release may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlglot import exp

from sqlanon.engines.base import ArrowEngine
from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.travel import arrived, travelling
from sqlanon.expressions import col, create_temporary_table, drop_table, name_of, select, table, used_columns
from sqlanon.sources import InPostgres, Source

_SHIPPED = "sqlanon_shipped"


@contextmanager
def shipped(engine: ArrowEngine, source: Source, query: exp.Select) -> Iterator[exp.Select]:
    """A query over a source, and over tables beside us, as PostgreSQL runs it, while these are there.

    In a transaction of the source's connection.
    """
    remote = source.in_postgres
    made: list[exp.Table] = []
    tables: dict[str, exp.Expr] = {name_of(source.relation): remote.relation}
    for number, (found, columns) in enumerate(_beside(engine, source, query)):
        tables[name_of(found)] = _ship(engine, remote, found, columns, number)
        made.append(_there(number))
    # It knows little of how many rows come out of a sort: loops in loops would seem cheap.
    remote.engine.execute(pg.nested_loops(allowed=False))
    yield pg.put_there(query, tables)
    remote.engine.execute(pg.nested_loops(allowed=True))
    for one in made:
        remote.engine.execute(drop_table(one))


def shown_there(source: Source, query: exp.Expr) -> str:
    """A statement over a source, as it would run where that is; nothing is shipped."""
    if source.spark is not None:
        return source.spark.engine.shown(query)
    remote = source.in_postgres
    own = name_of(source.relation)
    others = {name_of(one): one for one in query.find_all(exp.Table) if one.catalog}
    others.pop(own, None)
    tables: dict[str, exp.Expr] = {own: remote.relation}
    tables |= {name: table(one.name, "pg_temp") for name, one in others.items()}
    return pg.put_there(query, tables).sql(remote.engine.dialect, pretty=True)


@contextmanager
def recoded(engine: ArrowEngine, source: Source, query: exp.Select, types: Mapping[str, str]) -> Iterator[exp.Select]:
    """A query over a source, run where that is: as a relation of ours, which can be read once."""
    if source.spark is not None:
        with source.spark.engine.fetched(query, types) as relation:
            yield relation
        return
    remote = source.in_postgres
    with (
        remote.engine.undone_unless_committed(),
        shipped(engine, source, query) as there,
        remote.engine.stream(travelling(there, types)) as reader,
        engine.registered(reader) as relation,
    ):
        yield arrived(relation, types)


def _beside(engine: ArrowEngine, source: Source, query: exp.Select) -> list[tuple[exp.Table, dict[str, str]]]:
    """The tables beside us that a query reads, each once, with the columns of them that it names."""
    used = used_columns(query)
    found = {name_of(one): one for one in query.find_all(exp.Table) if one.catalog}
    found.pop(name_of(source.relation), None)
    plain = [table(one.name, one.db, one.catalog) for one in found.values()]
    return [(one, {name: type_ for name, type_ in engine.columns(one).items() if name in used}) for one in plain]


def _there(number: int) -> exp.Table:
    return table(f"{_SHIPPED}_{number}", "pg_temp")


def _ship(
    engine: ArrowEngine, remote: InPostgres, found: exp.Table, columns: Mapping[str, str], number: int
) -> exp.Table:
    """Copy a table to PostgreSQL: first as it travels, then with the types that it has."""
    values = select([col(name) for name in columns], found.copy())
    with engine.stream(travelling(values, columns, "VARCHAR")) as reader:
        as_text = remote.engine.ingest(f"{_SHIPPED}_as_text_{number}", reader)
    target = _there(number)
    remote.engine.execute(create_temporary_table(table(target.name), pg.landed(as_text, columns)))
    remote.engine.execute(drop_table(as_text.copy()))
    remote.engine.execute(pg.analyzed(target.copy()))
    return target
