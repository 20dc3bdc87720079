"""Figures of what a local strategy keeps."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.coding import KNOWN, ROWS, code_name
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    double_total,
    named,
    number,
    select,
    subquery,
    total,
    where,
)
from sqlanon.recode.local.nodes import Tree
from sqlanon.requirements.base import CLASS_COUNT, CLASS_SIZE


def class_figures(judged: exp.Select) -> exp.Select:
    """One row: ``classes``, ``rows``, ``smallest``, ``squares``, ``count`` and ``singles`` (those of one) of the
    groups that are kept."""
    size = col(CLASS_SIZE)
    squared = exp.Pow(this=cast(size.copy(), "DOUBLE"), expression=number(2))
    none = number(0)
    figures: list[exp.Expr] = [
        named(exp.Count(this=exp.Star()), "classes"),
        named(exp.Coalesce(this=total(size), expressions=[none]), "rows"),
        named(exp.Coalesce(this=exp.Min(this=size.copy()), expressions=[none.copy()]), "smallest"),
        named(exp.Coalesce(this=double_total(squared), expressions=[none.copy()]), "squares"),
        named(exp.Coalesce(this=total(col(CLASS_COUNT)), expressions=[none.copy()]), "count"),
        named(where(exp.Count(this=exp.Star()), exp.EQ(this=col(CLASS_COUNT), expression=number(1))), "singles"),
    ]
    return select(figures, subquery(judged, "j")).where(col("kept"), copy=False)


def attribute_figures(kept: exp.Table, attributes: int) -> exp.Select:
    """One row: by attribute, over the kept rows, ``leaves_i`` and ``levels_i`` (sums), ``low_i`` and ``high_i`` (the
    least and the greatest level)."""
    figures: list[exp.Expr] = []
    for i in range(attributes):
        level, leaves = col(f"level_{i}"), col(f"leaves_{i}")
        weighed = exp.Mul(this=cast(col(ROWS), "DOUBLE"), expression=leaves)
        figures += [
            named(double_total(weighed), f"leaves_{i}"),
            named(total(exp.Mul(this=col(ROWS), expression=level)), f"levels_{i}"),
            named(exp.Min(this=level.copy()), f"low_{i}"),
            named(exp.Max(this=level.copy()), f"high_{i}"),
        ]
    return select(figures, kept.copy())


def suppressed_ground(frequency: exp.Expr, kept: exp.Table, trees: tuple[Tree, ...]) -> exp.Select:
    """The combinations that are not kept, as classes of the generalization at the floor: ``code_i`` and ``known``.

    With those of unknown values.
    """
    below = [(i, tree) for i, tree in enumerate(trees) if tree.floor < tree.height]
    codes = [col(code_name(i, tree.floor), "f") for i, tree in below]
    output: list[exp.Expr] = [named(code, f"code_{i}") for code, (i, _) in zip(codes, below, strict=True)]
    keys: list[exp.Expr] = [
        exp.EQ(
            this=exp.Paren(this=exp.Add(this=cast(code.copy(), "INTEGER"), expression=number(tree.offsets[0]))),
            expression=col(f"ground_{i}", "k"),
        )
        for code, (i, tree) in zip(codes, below, strict=True)
    ]
    query = exp.Select(expressions=[*output, col(KNOWN, "f")], distinct=exp.Distinct())
    query = query.from_(aliased(frequency, "f"), copy=False)
    return query.join(aliased(kept, "k"), on=all_of([*keys, col(KNOWN, "f")]), join_type="anti", copy=False)
