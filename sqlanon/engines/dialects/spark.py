"""What is asked of Spark, and how queries that are built for the engine beside us are put to it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from sqlanon.engines import travel
from sqlanon.engines.dialects.translation import translated
from sqlanon.engines.values import one_float
from sqlanon.expressions import aliased, anonymous, cast, col, name_of, named, number, select, subquery, table, text

TEXT = "STRING"
"""Spark's type of text."""

_TYPES: Mapping[str, str] = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}
"""Spark's name of a type, and DuckDB's."""

_THERE: Mapping[str, str] = {ours: theirs for theirs, ours in _TYPES.items()} | {
    "UTINYINT": "smallint",
    "USMALLINT": "int",
    "UINTEGER": "bigint",
    "UBIGINT": "decimal(20,0)",
    "HUGEINT": "decimal(38,0)",
    "UUID": "string",
}

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.IGNORECASE)
_TEXTS = re.compile(r"(?:var)?char\(\d+\)|string(?: collate \S+)?")
PLAIN = travel.PLAIN | {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
"""Types that travel as they are. Dates and times do, as numbers: Spark reads ``0045-01-01 (BC)`` as a day of our era,
and writes years above 9999 in a way of its own."""

_REFUSAL = "the rows of the source are in Spark, and are not read here"


def type_here(type_: str) -> str | None:
    """DuckDB's name of a type, by Spark's; None where it has no equal.

    >>> type_here("decimal(8,2)"), type_here("varchar(5)"), type_here("timestamp_ntz"), type_here("array<int>")
    ('DECIMAL(8,2)', 'VARCHAR', 'TIMESTAMP', None)
    """
    if match := _DECIMAL.fullmatch(type_):
        return f"DECIMAL({match[1]},{match[2]})"
    return "VARCHAR" if _TEXTS.fullmatch(type_) else _TYPES.get(type_)


def type_there(type_: str) -> str | None:
    """Spark's name of a type that holds DuckDB's values; None where there is none.

    >>> type_there("DECIMAL(8,2)"), type_there("VARCHAR"), type_there("UTINYINT"), type_there("INTEGER[]")
    ('decimal(8,2)', 'string', 'smallint', None)
    """
    return type_.lower() if _DECIMAL.fullmatch(type_) else _THERE.get(type_)


def plain_there(name: str, type_: str) -> exp.Expr:
    """A column of Spark whose equality is what a reader sees."""
    if "collate" in type_:  # a collation may take what a reader tells apart for the same
        return anonymous("collate", col(name), text("UTF8_BINARY"))
    if _TEXTS.fullmatch(type_):
        return cast(col(name), TEXT)
    if type_ in ("float", "double"):
        return one_float(col(name), type_, anonymous("isnan", col(name)))
    return col(name)


def leaving(query: exp.Query, types: Mapping[str, str], as_text: str) -> exp.Select:
    """A query whose values can travel between DuckDB and Spark; `arriving` is for DuckDB, `landed` for Spark."""
    return travel.travelling(query, types, as_text, PLAIN)


def arriving(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """What has travelled from Spark, with the types that it has here: for DuckDB."""
    return travel.arrived(relation, types, PLAIN)


def landed(relation: exp.Expr, types: Mapping[str, str]) -> exp.Subquery:
    """What has travelled to Spark, with the types that it had here."""
    values = {name: col(name) if type_ in PLAIN else cast(col(name), _there(type_)) for name, type_ in types.items()}
    return subquery(select([named(value, name) for name, value in values.items()], relation), "shipped")


def _there(type_: str) -> str:
    own = type_there(type_)
    if own is None:
        raise ValueError(f"{type_} has no equal in Spark")
    return own


def spelled_out(statement: exp.Expr) -> exp.Expr:
    """A statement without variables in its texts: Spark would replace ``${env:HOME}`` wherever it stands.

    >>> spelled_out(text("it's ${env:HOME}")).sql("spark")
    "'it\\\\'s \\\\u0024{env:HOME}'"
    """

    def escaped(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Literal) and node.is_string and "${" in node.name:
            return exp.Var(this=node.sql("spark").replace("${", "\\u0024{"))
        return node

    return statement.transform(escaped)


def shadow(types: Mapping[str, str]) -> exp.Select:
    """A relation with these columns, for DuckDB: it can be bound, and raises an error when it is read.

    (A constant would be looked at before anything is read, and NULLs be taken for an empty table.)
    """
    refused = anonymous("error", exp.DPipe(this=text(_REFUSAL), expression=cast(col("i", "r"), "VARCHAR")))
    none = anonymous("RANGE", number(1), number(2))
    one = exp.Table(this=none, alias=exp.TableAlias(this=exp.to_identifier("r"), columns=[exp.to_identifier("i")]))
    columns = [named(cast(refused.copy(), type_), name) for name, type_ in types.items()]
    return select([*columns], one).where(cast(refused.copy(), "BOOLEAN"), copy=False)


def has_star(query: exp.Query) -> bool:
    """Whether a query reads all columns of something by a star."""
    return any(not isinstance(one.parent, exp.Count) for one in query.find_all(exp.Star))


def with_names(query: exp.Query) -> exp.Query:
    """The same query, with a name for each column: engines do not make up the same ones.

    >>> from sqlglot import parse_one
    >>> with_names(parse_one("SELECT a, COUNT(*), COUNT(*) AS n FROM t GROUP BY a")).sql()
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


def put_there(query: exp.Query, relations: Mapping[str, exp.Expr]) -> exp.Query:
    """A query as Spark runs it, over other relations."""
    marks: dict[str, exp.Expr] = {}
    marked = query.copy()
    for found in list(marked.find_all(exp.Table)):
        if (other := relations.get(name_of(found))) is not None:
            mark = f"sqlanon_mark_{len(marks)}"
            marks[mark] = aliased(other, found.alias or found.name)
            found.replace(table(mark, alias=found.alias or found.name))
    put = translated(marked, "spark")
    # What is there is written in Spark's terms already.
    for found in list(put.find_all(exp.Table)):
        if (other := marks.get(found.name)) is not None:
            found.replace(other)
    assert isinstance(put, exp.Query)
    return put
