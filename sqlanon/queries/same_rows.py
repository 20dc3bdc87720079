"""The rows of two relations compared as multisets: by what a reader can tell apart, not by what GROUP BY merges."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlanon.queries.names import anonymous, cast, col, named, number, or_zero, select, subquery, total, union_all

_EXACT = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "BLOB",
})  # fmt: skip
"""Types whose equal values are the same value."""

_COUNT = "rows of both"


def different_rows(released: exp.Expr, recoded: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """One row: how many rows the released ones have beside the recoded ones, and how many of these they lack.

    Parameters
    ----------
    released, recoded:
        Relations with the same columns.
    types:
        DuckDB's types of them.
    """
    keys = [key for name, type_ in types.items() for key in _told_apart(name, type_)]
    names = [f"k{i}" for i in range(len(keys))]

    def side(relation: exp.Expr, count: int) -> exp.Select:
        numbered = [named(key.copy(), name) for key, name in zip(keys, names, strict=True)]
        return select([*numbered, named(number(count), _COUNT)], relation.copy())

    both = subquery(union_all(side(released, 1), side(recoded, -1)), "both")
    left = select([named(exp.Sum(this=col(_COUNT)), _COUNT)], both, [col(name) for name in names])
    more, fewer = (kind(this=col(_COUNT), expression=number(0)) for kind in (exp.GT, exp.LT))
    counts: list[exp.Expr] = [
        or_zero(total(col(_COUNT), more)),
        or_zero(total(exp.Neg(this=col(_COUNT)), fewer)),
    ]
    return select(counts, subquery(left, "left_over"))


def _told_apart(name: str, type_: str) -> list[exp.Expr]:
    if type_ in _EXACT or type_.startswith("DECIMAL("):
        return [col(name)]
    if type_ == "VARCHAR":  # its column may have a collation
        return [anonymous("encode", col(name))]
    if type_ in ("FLOAT", "DOUBLE"):  # zero and NaN have a sign
        return [col(name), anonymous("signbit", col(name))]
    return [col(name), anonymous("encode", cast(col(name), "VARCHAR"))]
