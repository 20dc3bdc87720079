"""Released values as readers see them: comparing rows as multisets, where GROUP BY would merge different values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlanon.support.expressions import all_of, anonymous, col, fragment, named, number, same, template, text

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

_EXACT = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
    "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID", "BLOB",
})  # fmt: skip
"""Types whose equal values look the same to every reader."""

_AS_TEXT = fragment("encode(:value::VARCHAR)")

_DIFFERENT_ROWS = template("""
    SELECT
        coalesce(sum(more) FILTER (WHERE more > 0)::BIGINT, 0) AS added,
        coalesce(sum(-more) FILTER (WHERE more < 0)::BIGINT, 0) AS missing
    FROM (
        SELECT sum(more) AS more
        FROM (
            SELECT :keys, 1 AS more FROM :released
            UNION ALL
            SELECT :keys, -:count AS more FROM :recoded
        ) AS rows_of_both
        GROUP BY :names
    ) AS left_over
""")


def count_different_rows(
    released: exp.Expr, recoded: exp.Expr, types: Mapping[str, str], counted: str | None = None
) -> exp.Select:
    """One row: how many rows the released ones have beside the recoded ones, and how many of these they lack. Where the
    recoded ones are ``counted``, this column says how often each is there."""
    keys = [key for name, type_ in types.items() for key in distinguishing_parts(col(name), type_)]
    names = [f"k{i}" for i in range(len(keys))]
    return _DIFFERENT_ROWS(
        keys=[named(key, name) for key, name in zip(keys, names, strict=True)],
        names=[col(name) for name in names],
        released=released,
        recoded=recoded,
        count=number(1) if counted is None else col(counted),
    )


def distinguishing_parts(value: exp.Expr, type_: str) -> list[exp.Expr]:
    """What of a value, of one of DuckDB's types, is equal only where a reader sees the same value."""
    if type_ in _EXACT or type_.startswith("DECIMAL("):
        return [value]
    if type_ == "VARCHAR":  # its column may have a collation
        return [anonymous("encode", value)]
    if type_ in ("FLOAT", "DOUBLE"):  # zero and NaN have a sign
        return [value, anonymous("signbit", value.copy())]
    return [value, _AS_TEXT(value=value)]


def look_equal(one: exp.Expr, other: exp.Expr, type_: str) -> exp.Expr:
    """Whether two values look the same to every reader; NULL equals NULL."""
    return all_of(
        same(*pair) for pair in zip(distinguishing_parts(one, type_), distinguishing_parts(other, type_), strict=True)
    )


_VALUES = template("SELECT :beside, :value AS v FROM :rows")
_INNER_VALUES = template("SELECT :beside, :value AS v FROM :outer AS q")
_WITH_SIGN = template("SELECT count(*) FROM :values AS q WHERE (isnan(v) OR v = 0) AND signbit(v)")


@dataclass(frozen=True)
class Leaf:
    """A column, or a part of a nested one, with the steps to its values: functions, and fields of structs with a dot
    before them."""

    name: str
    type: str
    steps: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        return self.type in ("VARCHAR", "JSON", "BLOB")


def leaf_columns(types: Mapping[str, DuckDBPyType]) -> list[Leaf]:
    return [leaf for name, type_ in types.items() for leaf in _leaves(name, type_)]


def _leaves(name: str, type_: DuckDBPyType, steps: tuple[str, ...] = ()) -> Iterator[Leaf]:
    children: dict[str, Any] = dict(type_.children) if type_.id in ("list", "array", "map", "struct") else {}
    if type_.id in ("list", "array"):
        yield from _leaves(name, children["child"], (*steps, "unnest"))
    elif type_.id == "map":
        for part in ("key", "value"):
            yield from _leaves(name, children[part], (*steps, f"map_{part}s", "unnest"))
    elif type_.id == "struct":
        for field, own in children.items():
            yield from _leaves(name, own, (*steps, f".{field}"))
    else:
        yield Leaf(name, str(type_), steps)


def leaf_values(leaf: Leaf, rows: exp.Expr, beside: exp.Alias) -> exp.Select:
    """The query for the values of a leaf, ``v``, and what else is wanted of each row, by its name."""
    query = _VALUES(beside=beside, value=col(leaf.name), rows=rows)
    for step in leaf.steps:
        inner = anonymous("struct_extract", col("v"), text(step[1:])) if step[0] == "." else anonymous(step, col("v"))
        query = _INNER_VALUES(beside=col(beside.alias), value=inner, outer=query)
    return query


def count_signed_zeros(leaf: Leaf, rows: exp.Expr) -> exp.Select:
    """The query for how many values of a leaf of floating-point numbers are −0.0, or NaN with a sign: they are equal to
    0.0 and NaN, and a reader can tell them apart."""
    return _WITH_SIGN(values=leaf_values(leaf, rows, named(exp.true(), "all")))
