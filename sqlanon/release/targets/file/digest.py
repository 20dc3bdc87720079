"""The content digest of many rows in DuckDB: the same number as that of ``sqlanon.digest``, which hashes every value.

Each value of a column with repeated values is hashed once. DuckDB does so for texts by itself, and integers are not
hashed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce

from sqlglot import exp

from sqlanon.audit.visible_values import distinguishing_parts
from sqlanon.release.digests import INTEGER_TYPES, column_multipliers
from sqlanon.support.expressions import aliased, as_column, cast, col, fragment, number, select, subquery, template

MIN_ROWS = 1_000_000
"""Minimum number of rows for which values are hashed once."""

MIN_REPETITIONS, MAX_VALUES = 8, 2_000_000
"""Columns that are hashed by value: minimum average frequency of a value, and maximum number of values in memory."""

_TEXT_CELL = fragment("((md5_number('=' || :value::VARCHAR) >> 97)::BIGINT * :high)")
_INTEGER_CELL = fragment("""
    xor(((:value::BIGINT & 2147483647) + 1431655765) * :high, (:value::BIGINT >> 31) * :low)
""")
_CELLS_OF_VALUES = template("SELECT v.value, :cell AS cell FROM (SELECT DISTINCT :value AS value FROM :rows) AS v")
_XOR = fragment("xor(:left, :right)")
_CELL_OR_ZERO = fragment("coalesce(:cell, 0)")
_DIGEST = template("""
    SELECT coalesce(sum((line >> 32) * (line & 2147483647)), 0)::VARCHAR AS digest
    FROM :lines
""")
_APPROXIMATE_COUNT = fragment("approx_count_distinct(:value)")


def columns_to_hash_once(types: Mapping[str, str]) -> list[str]:
    """The columns whose equal values have the same text, so that each value can be hashed once."""
    return [
        name
        for name, type_ in types.items()
        if type_ not in (*INTEGER_TYPES, "VARCHAR") and distinguishing_parts(col(name), type_) == [col(name)]
    ]


def approximate_counts(rows: exp.Table, names: Collection[str]) -> exp.Select:
    """Estimate the numbers of distinct values of columns, in one row."""
    return select([_APPROXIMATE_COUNT(value=col(name)) for name in names], rows)


def has_repeated_values(values: int, rows: int) -> bool:
    return values <= min(rows // MIN_REPETITIONS, MAX_VALUES)


def digest_by_value(rows: exp.Table, types: Mapping[str, str], repeated: Collection[str]) -> exp.Select:
    """Compute the digest of rows; each value of the repeated columns is hashed once."""
    query, cells = exp.Select().from_(aliased(rows, "r"), copy=False), []
    for i, (name, type_) in enumerate(types.items()):
        if name not in repeated:
            cells.append(_cell_number(col(name, "r"), name, type_))
            continue
        alias = f"v{i}"
        values = _CELLS_OF_VALUES(cell=_cell_number(col("value", "v"), name, type_), value=col(name), rows=rows)
        is_same = col(name, "r").eq(col("value", alias))
        query = query.join(subquery(values, alias), on=is_same, join_type="left", copy=False)
        cells.append(col("cell", alias))
    numbers = [_CELL_OR_ZERO(cell=cell) for cell in cells]
    line = reduce(lambda left, right: _XOR(left=left, right=right), numbers)
    return _DIGEST(lines=subquery(query.select(as_column(line, "line"), copy=False), "lines"))


def _cell_number(value: exp.Expr, name: str, type_: str) -> exp.Expr:
    high, low = (cast(number(multiplier), "BIGINT") for multiplier in column_multipliers(name))
    if type_ in INTEGER_TYPES:
        return _INTEGER_CELL(value=value, high=high, low=low)
    return _TEXT_CELL(value=value, high=high)
