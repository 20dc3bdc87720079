"""Judging groups of combinations, and what was placed: each combination with the nodes it is released as, and the
figures
of what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.coding import KNOWN, ROWS, code_name, rank_of
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
from sqlanon.frequency.distribution import SHARE, VALUE
from sqlanon.frequency.statements import MOVER, PERSONS
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, may_be_shown, node_name, released_name
from sqlanon.requirements import Distribution, Requirements
from sqlanon.requirements.base import CLASS_COUNT, CLASS_SIZE
from sqlanon.search.classes import KEPT, ClassSpace, SensitiveTable, judged


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
        named(where(exp.Count(this=exp.Star()), col(CLASS_COUNT).eq(1)), "singles"),
    ]
    return select(figures, subquery(judged, "j")).where(col("kept"), copy=False)


def attribute_figures(kept: exp.Table, attributes: int) -> exp.Select:
    """One row: by attribute, over the kept rows, ``leaves_i`` and ``levels_i`` (sums), ``low_i`` and ``high_i`` (the
    least and the greatest level)."""
    figures: list[exp.Expr] = []
    for i in range(attributes):
        level, leaves = col(f"level_{i}"), col(f"leaves_{i}")
        weighed = cast(col(ROWS), "DOUBLE") * leaves
        figures += [
            named(double_total(weighed), f"leaves_{i}"),
            named(total(col(ROWS) * level), f"levels_{i}"),
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
        exp.Paren(this=cast(code.copy(), "INTEGER") + number(tree.offsets[0])).eq(col(f"ground_{i}", "k"))
        for code, (i, tree) in zip(codes, below, strict=True)
    ]
    query = exp.Select(expressions=[*output, col(KNOWN, "f")], distinct=exp.Distinct())
    query = query.from_(aliased(frequency, "f"), copy=False)
    return query.join(aliased(kept, "k"), on=all_of([*keys, col(KNOWN, "f")]), join_type="anti", copy=False)


@dataclass(frozen=True)
class Members:
    """What is counted of combinations.

    Attributes
    ----------
    requirements:
        What is asked of each group of them.
    persons:
        Where persons are counted: ``combination``, ``persons`` and, with movers, ``mover``; else None.
    moving:
        Whether there are movers.
    sensitive:
        The counts of sensitive values, with ``combination`` in place of codes.
    """

    requirements: Requirements
    persons: exp.Table | None = None
    moving: bool = False
    sensitive: Mapping[Distribution, SensitiveTable] | None = None


def judged_groups(members: Members, placed: exp.Expr, keys: Sequence[str]) -> exp.Select:
    """The groups that a relation makes of combinations, judged.

    Makes one row a group: the keys, ``class_size`` (rows), ``class_count`` (rows or persons) and ``kept``.
    """
    # To the queries of classes, the keys are attributes at their ground level.
    codes = [code_name(i, 0) for i in range(len(keys))]
    renamed = [named(col(key, "p"), code) for key, code in zip(keys, codes, strict=True)]
    rows: list[exp.Expr] = [*renamed, named(col(ROWS, "p"), ROWS)]
    if members.persons is None:
        frequency = select(rows, aliased(placed, "p"))
    else:
        moving = [named(col(MOVER, "c"), MOVER)] if members.moving else []
        # Rows are counted once for each combination, persons for each of its movers.
        frequency = select(
            [*renamed, named(col(ROWS, "c"), ROWS), named(col(PERSONS, "c"), PERSONS), *moving], aliased(placed, "p")
        )
        frequency = frequency.join(aliased(members.persons, "c"), on=_same_combination("c"), copy=False)
    space = ClassSpace(
        subquery(frequency, "f"),
        (1,) * len(keys),
        members.requirements,
        sensitive={
            one: replace(table, table=subquery(_of_sensitive(table, placed, keys, members.moving), "f"))
            for one, table in (members.sensitive or {}).items()
        },
        persons=members.persons is not None,
        moving=members.moving,
    )
    extra: list[exp.Expr] = [named(col(code), key) for code, key in zip(codes, keys, strict=True)]
    output: list[exp.Expr] = [*(col(key) for key in keys), col(CLASS_SIZE), col(CLASS_COUNT), col(KEPT)]
    return select(output, subquery(judged(space, (0,) * len(keys), extra), "j"))


def _same_combination(alias: str) -> exp.Expr:
    return col(COMBINATION, "p").eq(col(COMBINATION, alias))


def _of_sensitive(table: SensitiveTable, placed: exp.Expr, keys: Sequence[str], moving: bool) -> exp.Select:
    names = [*(f"o{i}" for i in range(table.inner)), VALUE, SHARE, ROWS, *([MOVER] if moving else [])]
    renamed = [named(col(key, "p"), code_name(i, 0)) for i, key in enumerate(keys)]
    query = select([*renamed, *(col(name, "s") for name in names)], aliased(placed, "p"))
    return query.join(aliased(table.table, "s"), on=_same_combination("s"), copy=False)


def released_values(values: exp.Table, placed: exp.Table, attribute: int, forbidden: Sequence[str]) -> exp.Select:
    """The nodes that an attribute is released as, with what readers see of them. Labels that are forbidden never are.

    Makes ``node``, ``code`` (of the label: nodes with equal labels read the same), ``label``, ``leaves``, ``level``.
    """
    used = select([col(released_name(attribute))], placed.copy())
    is_used = exp.In(this=col(NODE), query=exp.Subquery(this=used))
    output: list[exp.Expr] = [
        col(NODE),
        named(rank_of([col("label")]), "code"),
        col("label"),
        col("leaves"),
        col("level"),
    ]
    return select(output, values.copy()).where(is_used, may_be_shown(col("label"), forbidden), copy=False)


def readable(
    combinations: exp.Table, placed: exp.Table, values: Sequence[exp.Table], trees: Sequence[Tree]
) -> exp.Select:
    """Combinations as readers see them: ``combination``, ``n``, the codes of the labels ``code_i``, and by attribute
    ``leaves_i`` and ``level_i``; with the ground nodes ``ground_i`` by which the source's rows find them."""
    query = exp.Select().from_(aliased(placed, "p"), copy=False)
    query = query.join(aliased(combinations, "c"), on=_same_combination("c"), copy=False)
    output: list[exp.Expr] = [col(COMBINATION, "c"), col(ROWS, "c")]
    for i, (table, tree) in enumerate(zip(values, trees, strict=True)):
        on = col(released_name(i), "p").eq(col(NODE, f"v{i}"))
        query = query.join(aliased(table, f"v{i}"), on=on, copy=False)
        output += [named(col(name, f"v{i}"), f"{name}_{i}") for name in ("code", "leaves", "level")]
        output.append(named(col(node_name(i, tree.floor), "c"), f"ground_{i}"))
    return query.select(*output, copy=False)
