"""How queries that are built for the engine beside us, and values, get to an engine that has tables of its own.

One description for each dialect: which types it has, how values travel, and how a query is put to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines import travel
from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.values import person_id
from sqlanon.support.expressions import (
    aliased,
    cast,
    col,
    fragment,
    full_name,
    named,
    select,
    subquery,
    table,
    template,
)

_SHADOW = template("SELECT :columns FROM range(1, 2) AS r(i) WHERE :refused")
_REFUSAL = fragment("error('the rows of the source are elsewhere, and are not read here' || CAST(r.i AS VARCHAR))")


def _same(type_: str) -> str | None:
    return type_


def _as_it_is(statement: exp.Expr) -> exp.Expr:
    return statement


@dataclass(frozen=True)
class RemoteDialect:
    """A dialect, as that of an engine that has tables of its own; by default DuckDB's."""

    name: str
    text: str = "VARCHAR"  # its type of text
    plain: frozenset[str] = travel.DIRECT_TYPES  # types that travel as they are
    # DuckDB's name of a type, by its own, and its own by DuckDB's; None where there is no equal
    type_here: Callable[[str], str | None] = _same
    type_there: Callable[[str], str | None] = _same
    # a column of its own type whose equality is what a reader sees
    plain_there: Callable[[str, str], exp.Expr] = lambda name, type_: col(name)
    # the ids of a column of persons; its own equality tells them apart
    person_there: Callable[[str, str], exp.Expr] = lambda name, type_: (
        person_id(col(name)) if type_ == "VARCHAR" else col(name)
    )
    spelled_out: Callable[[exp.Expr], exp.Expr] = _as_it_is  # a statement as its parser must find it
    # the number of values of a text column that are not UTF-8; None where the engine has no such texts
    count_invalid_texts: Callable[[str], exp.Expr] | None = None

    def leaving(self, query: exp.Query, types: Mapping[str, str], as_text: str = "VARCHAR") -> exp.Select:
        """A query whose values can travel; `arriving` is for DuckDB, `landed` for the engine."""
        return travel.encode_columns(query, types, as_text, self.plain)

    def arriving(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
        return travel.decode_columns(relation, types, self.plain)

    def landed(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Subquery:
        values = {
            name: col(name) if type_ in self.plain else cast(col(name), self._there(type_))
            for name, type_ in types.items()
        }
        return subquery(select([named(value, name) for name, value in values.items()], relation), "shipped")

    def _there(self, type_: str) -> str:
        own = self.type_there(type_)
        if own is None:
            raise ValueError(f"{type_} has no equal in {self.name}")
        return own

    def put_there(self, query: exp.Query, relations: Mapping[str, exp.Expr]) -> exp.Query:
        marks: dict[str, exp.Expr] = {}
        marked = query.copy()
        for found in list(marked.find_all(exp.Table)):
            if (other := relations.get(full_name(found))) is not None:
                mark = f"sqlanon_mark_{len(marks)}"
                marks[mark] = aliased(other, found.alias or found.name)
                found.replace(table(mark, alias=found.alias or found.name))
        put = translate_query(marked, self.name)
        # What is there is written in its own terms already.
        for found in list(put.find_all(exp.Table)):
            if (other := marks.get(found.name)) is not None:
                found.replace(other)
        assert isinstance(put, exp.Query)
        return put

    def shown(self, query: exp.Query, relations: Mapping[str, exp.Expr]) -> str:
        return self.spelled_out(self.put_there(query, relations)).sql(self.name, pretty=True)


DUCKDB = RemoteDialect(
    "duckdb", plain=travel.DIRECT_TYPES | {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "HUGEINT"}
)


def shadow_query(types: Mapping[str, str]) -> exp.Select:
    """A relation with these columns, for DuckDB: it can be bound, and raises an error when it is read.

    (A constant would be looked at before anything is read, and NULLs be taken for an empty table.)
    """
    columns = [named(cast(_REFUSAL(), type_), name) for name, type_ in types.items()]
    return _SHADOW(columns=columns, refused=cast(_REFUSAL(), "BOOLEAN"))


def has_star(query: exp.Query) -> bool:
    return any(not isinstance(one.parent, exp.Count) for one in query.find_all(exp.Star))


def name_columns(query: exp.Query) -> exp.Query:
    """The same query, with a name for each column: engines do not make up the same ones.

    >>> from sqlglot import parse_one
    >>> name_columns(parse_one("SELECT a, COUNT(*), COUNT(*) AS n FROM t GROUP BY a")).sql()
    'SELECT a, COUNT(*) AS "c1", COUNT(*) AS n FROM t GROUP BY a'
    """
    query = query.copy()
    first: exp.Expr = query
    while not isinstance(first, exp.Select):
        first = first.this
    for i, one in enumerate(list(first.expressions)):
        if not isinstance(one, (exp.Alias, exp.Column, exp.Star)):
            one.replace(named(one.copy(), f"c{i}"))
    return query
