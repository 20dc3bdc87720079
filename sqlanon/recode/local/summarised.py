"""What classes of combinations are released as, where the policy's ``summary`` says it: ranges, medians, sets, and
lowest
common ancestors.

Each query gives for every ``part`` the ``node`` of one attribute, with its ``label``, ``leaves`` and ``level``. A node
that the attribute's tree does not have gets a number above its root, and the level of the lowest common ancestor of its
values. Where a class cannot be shown in its own way (it mixes NULL with other values, or would show a label that must
not be released), it is released as the lowest ancestor that may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    is_null,
    named,
    number,
    select,
    subquery,
    text,
    total,
    union_all,
)
from sqlanon.recode.local import mondrian_statements as mn
from sqlanon.recode.local.cuts import PART, over, total_over, with_columns
from sqlanon.recode.local.nodes import NODE, Tree, may_be_shown, node_name
from sqlanon.recode.local.task import LocalOutcome, LocalTask

Summary: TypeAlias = Callable[[exp.Table, int, Tree, exp.Table], exp.Select]
"""Builds what an attribute is released as: of classes, by its number and tree, and what may be released of the tree
(`mondrian.allowed_nodes`)."""


def as_ancestor(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The lowest common ancestor."""
    return _summary(classes, attribute, tree, allowed, {}, exp.false(), exp.null(), number(0.0))


def as_range(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """From the least to the greatest value: ``20-29``, ``2020-01-05 to 2020-02-10``; one value is itself.

    What is no number (NaN) is in no range.
    """
    facts = {
        "least": exp.ArgMin(this=col("label"), expression=col("low")),
        "greatest": exp.ArgMax(this=col("label"), expression=col("high")),
        "least_released": exp.ArgMin(this=col("released"), expression=col("low")),
        "greatest_released": exp.ArgMax(this=col("released"), expression=col("high")),
        "numbers": _numbers(),
    }
    ends = exp.DPipe(this=col("least"), expression=col("greatest"))
    has_dash = anonymous("contains", ends, text("-"))
    dash = exp.If(this=has_dash, true=text(" to "), false=text("-"))
    label = _joined(col("least"), dash, col("greatest"))
    own = all_of([col("least_released"), col("greatest_released"), col("numbers")])
    return _summary(classes, attribute, tree, allowed, facts, own, label, _width())


def as_median(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The value of the middle row; of two, the lower. It stands for the class's whole range, and costs as much."""
    half = (number(2) * col("so_far")) >= col("whole")
    facts: dict[str, exp.Expr] = {
        name: exp.Filter(
            this=exp.ArgMin(this=col(name), expression=col("so_far")), expression=exp.Where(this=half.copy())
        )
        for name in ("label", "released")
    }
    own = all_of([col("released", "f"), col("numbers", "f")])
    facts["numbers"] = _numbers()
    return _summary(classes, attribute, tree, allowed, facts, own, col("label", "f"), _width())


def as_set(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The values: ``{a, b}``; where they are all that an ancestor has, that ancestor.

    A value that would be read as more or less than one stands in quotes, its own quotes twice:
    ``{"Bonn, Germany", Paris}``. So does one alone that begins as a set does.
    """
    listed = exp.ArrayAgg(this=exp.Order(this=_quoted(col("label")), expressions=[exp.Ordered(this=col("label"))]))
    sizes = exp.Sum(this=col("leaves") + 1)
    facts = {
        "listed": anonymous("array_to_string", listed, text(", ")),
        "size": cast(sizes, "DOUBLE"),
        "fine": exp.LogicalAnd(this=col("released")),
        "begun": exp.LogicalOr(this=anonymous("starts_with", col("label"), text("{"))),
    }
    leaves = col("size") - 1
    is_ancestor = leaves.eq(col("leaves", "m")) & col("common").eq(col("shown", "a"))
    alone = col("members").eq(1) & col("begun")
    own = col("fine") & exp.Paren(this=exp.Paren(this=alone) | (~exp.Paren(this=is_ancestor)))
    label = _joined(text("{"), col("listed"), text("}"))
    return _summary(classes, attribute, tree, allowed, facts, own, label, leaves.copy(), alone)


def own_values(shown: exp.Table, tree: Tree) -> exp.Query:
    """All nodes that an attribute is released as: those of its tree, and those that `shown` has of its own."""
    columns = [NODE, "label", "leaves", "level"]
    mine = exp.Select(expressions=[col(name) for name in columns], distinct=exp.Distinct())
    mine = mine.from_(shown.copy(), copy=False).where(col(NODE) > number(tree.root), copy=False)
    theirs = select([col(name) for name in columns], tree.nodes.copy())
    return union_all(theirs, mine)


def ancestors(shown: exp.Table, tree: Tree) -> exp.Select:
    """One number: the classes that are released as a node above the lowest level of the tree."""
    above = (col(NODE) <= number(tree.root)) & (col("level") > number(tree.floor))
    return select([exp.Count(this=exp.Star())], shown.copy()).where(above, copy=False)


def _summary(
    classes: exp.Table,
    attribute: int,
    tree: Tree,
    allowed: exp.Table,
    facts: Mapping[str, exp.Expr],
    own: exp.Expr,
    label: exp.Expr,
    leaves: exp.Expr,
    alone: exp.Expr | None = None,
) -> exp.Select:
    """What classes are released as."""
    columns = [node_name(attribute, level) for level in range(tree.floor, tree.height)]
    common = exp.Case()
    for name in columns:
        same = exp.Min(this=col(name)).eq(exp.Max(this=col(name)))
        common = common.when(same, exp.Min(this=col(name)), copy=False)
    every = {
        "common": common.else_(number(tree.root), copy=False) if columns else number(tree.root),
        "members": exp.Count(this=exp.Star()),
        "void": exp.LogicalOr(this=is_null(col("label"))),
        "first": exp.Min(this=col("low")),
        "last": exp.Max(this=col("high")),
        **facts,
    }
    found = select(
        [col(PART), *(named(value, name) for name, value in every.items())],
        subquery(_values(classes, attribute, tree), "v"),
        [col(PART)],
    )
    several: exp.Expr = col("members") > 1
    if alone is not None:
        several = exp.Paren(this=several | exp.Paren(this=alone.copy()))
    is_own = all_of([several, ~col("void"), exp.Paren(this=own), may_be_shown(label.copy(), tree.forbidden)])
    output: list[exp.Expr] = [
        col(PART, "f"),
        named(is_own, "own"),
        col("shown", "a"),
        named(exp.If(this=is_own.copy(), true=label, false=col("label", "s")), "label"),
        named(cast(exp.If(this=is_own.copy(), true=leaves, false=col("leaves", "s")), "DOUBLE"), "leaves"),
        named(exp.If(this=is_own.copy(), true=col("level", "m"), false=col("level", "s")), "level"),
    ]
    query = select(output, subquery(found, "f"))
    for relation, alias, on in (
        (allowed, "a", col(NODE, "a").eq(col("common", "f"))),
        (tree.nodes, "m", col(NODE, "m").eq(col("common", "f"))),
        (tree.nodes, "s", col(NODE, "s").eq(col("shown", "a"))),
    ):
        query = query.join(aliased(relation, alias), on=on, copy=False)
    order: list[exp.Expr] = [exp.Ordered(this=col(name)) for name in ("label", "leaves", "level")]
    rank = over(exp.DenseRank(), ["own"], order)
    new = cast(rank + number(tree.root), "INTEGER")
    node = exp.If(this=col("own"), true=new, false=col("shown"))
    return select(
        [col(PART), named(node, NODE), *(col(name) for name in ("label", "leaves", "level"))], subquery(query, "q")
    )


def _values(classes: exp.Table, attribute: int, tree: Tree) -> exp.Select:
    """The values of each class, with what is known of them, and the rows up to each in their order."""
    columns = [node_name(attribute, level) for level in range(tree.floor, tree.height)] or [
        node_name(attribute, tree.height)
    ]
    keys = [PART, *columns]
    rows = select(
        [*(col(key) for key in keys), named(total(col(ROWS)), ROWS)], classes.copy(), [col(key) for key in keys]
    )
    output: list[exp.Expr] = [*(col(key, "r") for key in [*keys, ROWS])]
    output += [col(name, "v") for name in ("low", "high", "label", "leaves", "released")]
    on = col(columns[0], "r").eq(col(NODE, "v"))
    found = select(output, subquery(rows, "r")).join(aliased(tree.nodes, "v"), on=on, copy=False)
    order: list[exp.Expr] = [exp.Ordered(this=col("low"))]
    return with_columns(found, {"so_far": total_over([PART], order), "whole": total_over([PART])})


def _numbers() -> exp.Expr:
    """Whether all values of a class have a place in their order: NaN has none."""
    is_none = exp.In(this=col("label"), expressions=[text("nan"), text("-nan")])
    return exp.LogicalAnd(this=~exp.Paren(this=is_none))


def _quoted(label: exp.Expr) -> exp.Expr:
    """A value as it stands in a set."""
    twice = anonymous("replace", label, text('"'), text('""'))
    ambiguous = anonymous("regexp_matches", label.copy(), text(r'[,{}"]|^\s|\s$|^$'))
    return exp.If(this=ambiguous, true=_joined(text('"'), twice, text('"')), false=label.copy())


def _width() -> exp.Sub:
    """The values of the hierarchy within a range, less one."""
    return col("last") - col("first")


def _joined(*texts: exp.Expr) -> exp.Expr:
    found = texts[0]
    for one in texts[1:]:
        found = exp.DPipe(this=found, expression=one)
    return exp.Paren(this=found)


def summarised(
    task: LocalTask, parts: exp.Table, allowed: Sequence[exp.Table], prefix: str, rounds: int
) -> LocalOutcome:
    """Release groups as ranges of numbers and times or their medians, other attributes as lowest common ancestors or
    as sets of values.
    """
    steps, work, summary = task.steps, task.work, task.prepared.policy.search.summary
    classes = steps.make(work(f"{prefix}_members"), mn.members(task.combinations, parts))
    shown, values, typed = [], {}, set()
    for i, tree in enumerate(task.trees):
        build: Summary = as_ancestor
        if tree.ordered:
            build = as_median if summary == "median" else as_range
        elif summary == "set":
            build = as_set
        mine = steps.make(work(f"{prefix}_shown_{i}"), build(classes, i, tree, allowed[i]))
        shown.append(mine)
        if build is not as_ancestor:  # those are nodes of the hierarchy
            values[i] = steps.make(work(f"{prefix}_values_{i}"), own_values(mine, tree))
        if build is as_median and not task.engine.rows(ancestors(mine, tree))[0][0]:
            typed.add(i)
    placed = steps.make(work(f"{prefix}_placed"), mn.placed(classes, shown))
    return LocalOutcome(task, placed, values, frozenset(typed), rounds=rounds)


def allowed_nodes(task: LocalTask, prefix: str) -> tuple[exp.Table, ...]:
    """Make, by attribute, the nodes that may be released; under names with a prefix."""
    return tuple(
        task.steps.make(task.work(f"{prefix}_allowed_{i}"), mn.allowed_nodes(tree)) for i, tree in enumerate(task.trees)
    )
