"""Transfer values between engines as Arrow.

Types that Arrow or a driver does not transfer faithfully (decimals, UUIDs, dates and times, whose infinity would become
another day) are transferred as texts and cast on arrival: a value without an equal raises an error and never becomes
another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    least,
    number,
    select,
    subquery,
    text,
    unused_name,
)

DIRECT_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "DOUBLE[]"}
)
"""Types that every driver transfers without a cast to text."""


def encode_columns(
    query: exp.Query, types: Mapping[str, str], as_text: str = "TEXT", direct_types: frozenset[str] = DIRECT_TYPES
) -> exp.Select:
    """Cast the columns of a query to types that can be transferred."""
    values = {name: col(name) if type_ in direct_types else cast(col(name), as_text) for name, type_ in types.items()}
    return select([as_column(value, name) for name, value in values.items()], subquery(query, "rows"))


def decode_columns(
    relation: exp.Expr, types: Mapping[str, str], direct_types: frozenset[str] = DIRECT_TYPES
) -> exp.Select:
    """Restore the types of transferred columns in DuckDB."""
    columns: list[exp.Expr] = []
    for name, type_ in types.items():
        value: exp.Expr = col(name)
        if type_ == "TIMESTAMP" and type_ not in direct_types:
            # In 0044-03-15 00:00:00 BC DuckDB reads the era as a time zone, which a timestamp ignores. (BC) is refused.
            value = anonymous("replace", value, text(" BC"), text(" (BC)"))
        columns.append(as_column(value if type_ in direct_types else cast(value, type_), name))
    return select(columns, relation)


def row_count_column(columns: Iterable[str]) -> str:
    """A name for a column of row counts that none of these columns has.

    >>> row_count_column(["zip"]), row_count_column(["Rows of it"])
    ('rows of it', 'rows of it_')
    """
    return unused_name("rows of it", columns)


def repeat_rows(combinations: exp.Expr, columns: Iterable[str], count: str) -> exp.Select:
    """Repeat each combination as often as its count says, in DuckDB.

    DuckDB builds the list of a range before it unnests it, for some thousand combinations at a time. Counts are
    unnested in three steps, so that no list is long and memory use stays flat.
    """
    rows, remaining = combinations.copy(), count
    for i, step in enumerate((1024**2, 1024, 1)):
        offset, next_remaining = f"{count} offset {i}", f"{count} remaining {i}"
        range_ = anonymous("RANGE", cast(number(0), "BIGINT"), col(remaining), cast(number(step), "BIGINT"))
        parts = subquery(select([exp.Star(), as_column(anonymous("UNNEST", range_), offset)], rows), "rows")
        in_part = least(cast(number(step), "BIGINT"), col(remaining) - col(offset))
        rows = subquery(select([exp.Star(), as_column(in_part, next_remaining)], parts), "rows")
        remaining = next_remaining
    return select([col(name) for name in columns], rows)
