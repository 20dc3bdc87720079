"""Values on their way from one engine to another.

They travel as Arrow. What Arrow, or a driver, does not carry faithfully (decimals, UUIDs, and dates and times, of which
infinity would come out as another day) travels as text, and is cast where it arrives: what has no equal there is an
error, and never another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from sqlanon.support.expressions import anonymous, cast, col, least, named, number, select, subquery, text, unused_name

DIRECT_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "DOUBLE[]"}
)
"""Types that travel as they are, by every driver."""


def decode_columns(relation: exp.Expr, types: Mapping[str, str], plain: frozenset[str] = DIRECT_TYPES) -> exp.Select:
    """What has travelled, with the types that it had: for DuckDB."""
    values = {name: col(name) if type_ in plain else _cast_text(name, type_) for name, type_ in types.items()}
    return select([named(value, name) for name, value in values.items()], relation)


def _cast_text(name: str, type_: str) -> exp.Expr:
    """A column of texts as a type.

    DuckDB takes the era of ``0044-03-15 00:00:00 BC`` for the name of a time zone, which a timestamp leaves out: as
    ``(BC)``, it cannot be cast.
    """
    value: exp.Expr = col(name)
    if type_ == "TIMESTAMP":
        value = anonymous("replace", value, text(" BC"), text(" (BC)"))
    return cast(value, type_)


def encode_columns(
    query: exp.Query, types: Mapping[str, str], as_text: str = "TEXT", plain: frozenset[str] = DIRECT_TYPES
) -> exp.Select:
    values = {name: col(name) if type_ in plain else cast(col(name), as_text) for name, type_ in types.items()}
    return select([named(value, name) for name, value in values.items()], subquery(query, "rows"))


def row_count_column(columns: Iterable[str]) -> str:
    """The name of a column that counts rows, beside some columns: none of them has it.

    >>> row_count_column(["zip"]), row_count_column(["Rows of it"])
    ('rows of it', 'rows of it_')
    """
    return unused_name("rows of it", columns)


_AT_A_TIME = 1024


def repeat_rows(combinations: exp.Expr, columns: Iterable[str], count: str) -> exp.Select:
    """As many rows as were counted: for DuckDB.

    It makes the list of a range before it makes rows of that, of some thousand combinations at a time: a count is taken
    apart until no list is long, so that memory does not grow with it.
    """
    rows, left = combinations.copy(), count
    for number_, step in enumerate((_AT_A_TIME**2, _AT_A_TIME, 1)):
        begun, rest = f"{count} of {number_}", f"{count} left {number_}"
        every = anonymous(
            "UNNEST", anonymous("RANGE", cast(number(0), "BIGINT"), col(left), cast(number(step), "BIGINT"))
        )
        parts = subquery(select([exp.Star(), named(every, begun)], rows), "rows")
        remaining = least(cast(number(step), "BIGINT"), col(left) - col(begun))
        rows, left = subquery(select([exp.Star(), named(remaining, rest)], parts), "rows"), rest
    return select([col(name) for name in columns], rows)
