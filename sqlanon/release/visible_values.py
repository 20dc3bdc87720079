"""Compare released values as readers see them: GROUP BY would merge values that look different."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlanon.support.expressions import (
    all_of,
    anonymous,
    as_column,
    col,
    fragment,
    null_safe_equal,
    number,
    template,
    text,
)

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

_EXACT_TYPES = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "BLOB",
})  # fmt: skip
"""Types whose equal values look the same to every reader."""


def count_different_rows(
    released: exp.Expr, recoded: exp.Expr, types: Mapping[str, str], count: str | None = None
) -> exp.Select:
    """One row: the numbers of released rows that are not recoded ones (``added``), and of recoded rows that are not
    released (``missing``), as multisets.

    If each recoded row stands for several equal ones, ``count`` is the column with their number.
    """
    keys = [key for name, type_ in types.items() for key in distinguishing_parts(col(name), type_)]
    names = [f"k{i}" for i in range(len(keys))]
    return template("""
        WITH
            signed_rows AS (
                SELECT :keys, 1 AS surplus FROM :released
                UNION ALL
                SELECT :keys, -:count AS surplus FROM :recoded
            ),
            differences AS (
                SELECT sum(surplus) AS surplus FROM signed_rows GROUP BY :names
            )
        SELECT
            coalesce(sum(surplus) FILTER (WHERE surplus > 0)::BIGINT, 0) AS added,
            coalesce(sum(-surplus) FILTER (WHERE surplus < 0)::BIGINT, 0) AS missing
        FROM differences
    """)(
        keys=[as_column(key, name) for key, name in zip(keys, names, strict=True)],
        names=[col(name) for name in names],
        released=released,
        recoded=recoded,
        count=number(1) if count is None else col(count),
    )


def distinguishing_parts(value: exp.Expr, type_: str) -> list[exp.Expr]:
    """Expressions of a value of a DuckDB type that are all equal only if a reader sees the same value."""
    if type_ in _EXACT_TYPES or type_.startswith("DECIMAL("):
        return [value]
    if type_ == "VARCHAR":  # its column may have a collation
        return [anonymous("encode", value)]
    if type_ in ("FLOAT", "DOUBLE"):  # zero and NaN have a sign
        return [value, anonymous("signbit", value.copy())]
    return [value, fragment("encode(:value::VARCHAR)")(value=value)]


def look_equal(left: exp.Expr, right: exp.Expr, type_: str) -> exp.Expr:
    """The condition that two values look the same to every reader; NULL equals NULL."""
    parts = zip(distinguishing_parts(left, type_), distinguishing_parts(right, type_), strict=True)
    return all_of(null_safe_equal(*pair) for pair in parts)


@dataclass(frozen=True)
class Leaf:
    """A column, or a part of a nested one, with the steps to its values: functions, and struct fields with a leading
    dot."""

    name: str
    type: str
    steps: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        return self.type in ("VARCHAR", "JSON", "BLOB")


def leaf_columns(types: Mapping[str, DuckDBPyType]) -> list[Leaf]:
    return [leaf for name, type_ in types.items() for leaf in _find_leaves(name, type_)]


def _find_leaves(name: str, type_: DuckDBPyType, steps: tuple[str, ...] = ()) -> Iterator[Leaf]:
    children: dict[str, Any] = dict(type_.children) if type_.id in ("list", "array", "map", "struct") else {}
    if type_.id in ("list", "array"):
        yield from _find_leaves(name, children["child"], (*steps, "unnest"))
    elif type_.id == "map":
        for part in ("key", "value"):
            yield from _find_leaves(name, children[part], (*steps, f"map_{part}s", "unnest"))
    elif type_.id == "struct":
        for field, field_type in children.items():
            yield from _find_leaves(name, field_type, (*steps, f".{field}"))
    else:
        yield Leaf(name, str(type_), steps)


def leaf_values(leaf: Leaf, rows: exp.Expr, extra: exp.Alias) -> exp.Select:
    """The query for the values ``v`` of a leaf, with an extra column of their row."""
    query = template("SELECT :extra, :value AS v FROM :rows")(extra=extra, value=col(leaf.name), rows=rows)
    for step in leaf.steps:
        value = anonymous("struct_extract", col("v"), text(step[1:])) if step[0] == "." else anonymous(step, col("v"))
        query = template("SELECT :extra, :value AS v FROM :outer AS q")(
            extra=col(extra.alias), value=value, outer=query
        )
    return query


def count_signed_zeros(leaf: Leaf, rows: exp.Expr) -> exp.Select:
    """The query for the number of values of a floating-point leaf that are −0.0, or NaN with a sign.

    They equal 0.0 and NaN, and still look different to a reader.
    """
    return template("SELECT count(*) FROM :values AS q WHERE (isnan(v) OR v = 0) AND signbit(v)")(
        values=leaf_values(leaf, rows, as_column(exp.true(), "all"))
    )
