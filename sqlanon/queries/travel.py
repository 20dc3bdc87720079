"""Values on their way from one engine to another.

They travel as Arrow. What Arrow, or a driver, does not carry faithfully (decimals, UUIDs, and dates and times, of which
infinity would come out as another day) travels as text, and is cast where it arrives: what has no equal there is an
error, and never another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from sqlanon.queries.names import cast, col, named, select, subquery

_PLAIN = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "DOUBLE[]"})
"""Types that travel as they are."""


def carried(expression: exp.Expr, type_: str, as_text: str = "TEXT") -> exp.Expr:
    """A value as it travels: itself, or its text."""
    return expression if type_ in _PLAIN else cast(expression, as_text)


def arrived(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """What has travelled, with the types that it had: for DuckDB."""
    values = {name: col(name) if type_ in _PLAIN else cast(col(name), type_) for name, type_ in types.items()}
    return select([named(value, name) for name, value in values.items()], relation)


def travelling(query: exp.Query, types: Mapping[str, str], as_text: str = "TEXT") -> exp.Select:
    """A query whose values can travel.

    Parameters
    ----------
    query, types:
        What, and DuckDB's types of its columns.
    as_text:
        The engine's own type of text.
    """
    values: list[exp.Expr] = [named(carried(col(name), type_, as_text), name) for name, type_ in types.items()]
    return select(values, subquery(query, "rows"))


def count_column(columns: Iterable[str]) -> str:
    """The name of a column that counts rows, beside some columns: none of them has it.

    >>> count_column(["zip"]), count_column(["Rows of it"])
    ('rows of it', 'rows of it_')
    """
    taken, name = {one.lower() for one in columns}, "rows of it"
    while name in taken:
        name += "_"
    return name


def repeated(combinations: exp.Expr, columns: Iterable[str], count: str) -> exp.Select:
    """As many rows as were counted: for DuckDB."""
    times = exp.Anonymous(this="UNNEST", expressions=[exp.Anonymous(this="RANGE", expressions=[col(count)])])
    rows = select([exp.Star(), named(times, f"{count} of")], combinations.copy())
    return select([col(name) for name in columns], subquery(rows, "rows"))
