"""The values inside nested ones: each field, element, key and value of a column, as a relation of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlanon.expressions import anonymous, col, named, select, subquery, text

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType


@dataclass(frozen=True)
class Leaf:
    """What has values: a column, or a part of a nested one.

    Attributes
    ----------
    name, type:
        The column, and the type of the values.
    steps:
        How they are reached from the column: functions, and fields of structs with a dot before them.
    """

    name: str
    type: str
    steps: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it is text, or bytes."""
        return self.type in ("VARCHAR", "JSON", "BLOB")


def leaves_of(types: Mapping[str, DuckDBPyType]) -> list[Leaf]:
    """All there are in columns of these types, in the order of Parquet's columns."""
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


def values_of(leaf: Leaf, rows: exp.Expr, beside: exp.Alias) -> exp.Select:
    """The query for the values of a leaf, ``v``, and what else is wanted of each row, by its name."""
    query = select([beside, named(col(leaf.name), "v")], rows)
    for step in leaf.steps:
        inner = anonymous("struct_extract", col("v"), text(step[1:])) if step[0] == "." else anonymous(step, col("v"))
        query = select([col(beside.alias), named(inner, "v")], subquery(query, "q"))
    return query


def with_sign(leaf: Leaf, rows: exp.Expr) -> exp.Select:
    """The query for how many values of a leaf of floating-point numbers are −0.0, or NaN with a sign: they are equal to
    0.0 and NaN, and a reader can tell them apart."""
    one_of = exp.Or(
        this=anonymous("isnan", col("v")), expression=exp.EQ(this=col("v"), expression=exp.Literal.number(0))
    )
    query = select([exp.Count(this=exp.Star())], subquery(values_of(leaf, rows, named(exp.true(), "all")), "q"))
    return query.where(exp.Paren(this=one_of), anonymous("signbit", col("v")), copy=False)
