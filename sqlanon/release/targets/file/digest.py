"""The content digest of many rows in DuckDB: the number that ``sqlanon.digest`` gives, which hashes every row's value.

Here each value of a column that repeats is hashed once. DuckDB does so for texts by itself, and numbers are not hashed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce

from sqlglot import exp

from sqlanon.audit.visible_values import distinguishing_parts
from sqlanon.release.content_digest import NUMBERS, column_multipliers
from sqlanon.support.expressions import aliased, cast, col, fragment, named, number, subquery, template

MANY = 1_000_000
"""Of fewer rows each is hashed."""

OFTEN, MOST = 8, 2_000_000
"""A value that repeats is there so often on average, and there are at most so many of them: they are held in memory."""

_CELL_OF_TEXT = fragment("((md5_number('=' || :value::VARCHAR) >> 97)::BIGINT * :high)")
_CELL_OF_NUMBER = fragment("""
    xor(((:value::BIGINT & 2147483647) + 1431655765) * :high, (:value::BIGINT >> 31) * :low)
""")
_CELLS_OF_VALUES = template("SELECT v.value, :cell AS cell FROM (SELECT DISTINCT :value AS value FROM :rows) AS v")
_XOR = fragment("xor(:one, :other)")
_CELL = fragment("coalesce(:cell, 0)")
_DIGEST = template("""
    SELECT coalesce(sum((line >> 32) * (line & 2147483647)), 0)::VARCHAR AS digest FROM :lines
""")
_DISTINCT = template("SELECT :counts FROM :rows")
_ABOUT = fragment("approx_count_distinct(:value)")


def hashed_by_value(types: Mapping[str, str]) -> list[str]:
    """The columns whose values may be hashed once each: equal ones have the same text, and the digest is of the
    text."""
    return [
        name
        for name, type_ in types.items()
        if type_ not in (*NUMBERS, "VARCHAR") and distinguishing_parts(col(name), type_) == [col(name)]
    ]


def approximate_counts(rows: exp.Table, names: Collection[str]) -> exp.Select:
    """One row: about how many values each of some columns has."""
    return _DISTINCT(counts=[_ABOUT(value=col(name)) for name in names], rows=rows)


def repeats(values: int, rows: int) -> bool:
    """Whether so many values in so many rows are to be hashed once each."""
    return values <= min(rows // OFTEN, MOST)


def digest_by_value(rows: exp.Table, types: Mapping[str, str], repeating: Collection[str]) -> exp.Select:
    """One row: the digest."""
    query, cells = exp.Select().from_(aliased(rows, "r"), copy=False), []
    for i, (name, type_) in enumerate(types.items()):
        if name not in repeating:
            cells.append(_cell(col(name, "r"), name, type_))
            continue
        values = f"v{i}"
        found = _CELLS_OF_VALUES(cell=_cell(col("value", "v"), name, type_), value=col(name), rows=rows)
        on = col(name, "r").eq(col("value", values))
        query = query.join(subquery(found, values), on=on, join_type="left", copy=False)
        cells.append(col("cell", values))
    line = reduce(lambda one, other: _XOR(one=one, other=other), [_CELL(cell=cell) for cell in cells])
    return _DIGEST(lines=subquery(query.select(named(line, "line"), copy=False), "lines"))


def _cell(value: exp.Expr, name: str, type_: str) -> exp.Expr:
    high, low = (cast(number(one), "BIGINT") for one in column_multipliers(name))
    if type_ in NUMBERS:
        return _CELL_OF_NUMBER(value=value, high=high, low=low)
    return _CELL_OF_TEXT(value=value, high=high)
