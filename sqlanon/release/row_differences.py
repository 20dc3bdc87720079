"""The rows of two relations compared as multisets: by what a reader can tell apart, not by what GROUP BY merges."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlanon.expressions import (
    all_of,
    anonymous,
    cast,
    col,
    named,
    number,
    or_zero,
    same,
    select,
    subquery,
    total,
    union_all,
)

_EXACT = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "BLOB",
})  # fmt: skip
"""Types whose equal values are the same value."""

_COUNT = "rows of both"


def different_rows(
    released: exp.Expr, recoded: exp.Expr, types: Mapping[str, str], counted: str | None = None
) -> exp.Select:
    """One row: how many rows the released ones have beside the recoded ones, and how many of these they lack."""
    keys = [key for name, type_ in types.items() for key in told_apart(col(name), type_)]
    names = [f"k{i}" for i in range(len(keys))]

    def side(relation: exp.Expr, count: exp.Expr) -> exp.Select:
        numbered = [named(key.copy(), name) for key, name in zip(keys, names, strict=True)]
        return select([*numbered, named(count, _COUNT)], relation.copy())

    less = number(-1) if counted is None else exp.Neg(this=col(counted))
    both = subquery(union_all(side(released, number(1)), side(recoded, less)), "both")
    left = select([named(exp.Sum(this=col(_COUNT)), _COUNT)], both, [col(name) for name in names])
    more, fewer = (kind(this=col(_COUNT), expression=number(0)) for kind in (exp.GT, exp.LT))
    counts: list[exp.Expr] = [
        or_zero(total(col(_COUNT), more)),
        or_zero(total(exp.Neg(this=col(_COUNT)), fewer)),
    ]
    return select(counts, subquery(left, "left_over"))


def told_apart(value: exp.Expr, type_: str) -> list[exp.Expr]:
    """What of a value, of one of DuckDB's types, is equal only where a reader sees the same value."""
    if type_ in _EXACT or type_.startswith("DECIMAL("):
        return [value]
    if type_ == "VARCHAR":  # its column may have a collation
        return [anonymous("encode", value)]
    if type_ in ("FLOAT", "DOUBLE"):  # zero and NaN have a sign
        return [value, anonymous("signbit", value.copy())]
    return [value, anonymous("encode", cast(value.copy(), "VARCHAR"))]


def same_to_readers(one: exp.Expr, other: exp.Expr, type_: str) -> exp.Expr:
    """Whether two values are one to every reader: NULL is equal to NULL."""
    return all_of(same(*pair) for pair in zip(told_apart(one, type_), told_apart(other, type_), strict=True))
