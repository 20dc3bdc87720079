"""What classes of combinations are released as, where the policy's ``summary`` says it: ranges, medians, sets, and
lowest common ancestors.

Each query gives for every ``part`` the ``node`` of one attribute, with its ``label``, ``leaves`` and ``level``. A node
that the attribute's tree does not have gets a number above its root, and the level of the lowest common ancestor of its
values. Where a class cannot be shown in its own way (it mixes NULL with other values, or would show a label that must
not be released), it is released as the lowest ancestor that may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.expressions import aliased, all_of, col, fragment, named, number, template, union_all
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.recode.local.nodes import NODE, Tree, may_be_shown, node_name, released_name
from sqlanon.recode.local.task import LocalOutcome, LocalTask

PART = "part"

Summary: TypeAlias = Callable[[exp.Table, int, Tree, exp.Table], exp.Select]
"""Builds what an attribute is released as: of classes, by its number and tree, and what may be released of the tree
(`allowed_nodes`)."""

_SUMMARY = template("""
    SELECT
        part,
        CASE
            WHEN own THEN (dense_rank() OVER (PARTITION BY own ORDER BY label, leaves, level) + :root)::INTEGER
            ELSE shown
        END AS node,
        label,
        leaves,
        level
    FROM (
        SELECT
            f.part,
            :is_own AS own,
            a.shown,
            CASE WHEN :is_own THEN :label ELSE s.label END AS label,
            (CASE WHEN :is_own THEN :leaves ELSE s.leaves END)::DOUBLE AS leaves,
            CASE WHEN :is_own THEN m.level ELSE s.level END AS level
        FROM (
            SELECT
                part,
                :common AS common,
                count(*) AS members,
                bool_or(label IS NULL) AS void,
                min(low) AS first,
                max(high) AS last,
                :facts
            FROM (
                SELECT
                    *,
                    (sum(n) OVER (PARTITION BY part ORDER BY low))::BIGINT AS so_far,
                    (sum(n) OVER (PARTITION BY part))::BIGINT AS whole
                FROM (
                    SELECT r.part, :levels_of_rows, r.n, v.low, v.high, v.label, v.leaves, v.released
                    FROM (SELECT part, :levels, sum(n)::BIGINT AS n FROM :classes GROUP BY part, :levels) AS r
                    JOIN :nodes AS v ON :ground = v.node
                ) AS q
            ) AS v
            GROUP BY part
        ) AS f
        JOIN :allowed AS a ON a.node = f.common
        JOIN :nodes AS m ON m.node = f.common
        JOIN :nodes AS s ON s.node = a.shown
    ) AS q
""")
_IS_OWN = fragment("(members > 1 OR :alone) AND NOT void AND :own AND :allowed")
_IS_OWN_OF_SEVERAL = fragment("members > 1 AND NOT void AND :own AND :allowed")
_IS_COMMON = fragment("min(:node) = max(:node)")


def _summary(
    classes: exp.Table,
    attribute: int,
    tree: Tree,
    allowed: exp.Table,
    facts: exp.Select,
    own: exp.Expr,
    label: exp.Expr,
    leaves: exp.Expr,
    alone: exp.Expr | None = None,
) -> exp.Select:
    """What classes are released as: in their own way if they have several values, or are to be ``alone``."""
    below = [node_name(attribute, level) for level in range(tree.floor, tree.height)]
    common: exp.Expr = number(tree.root)
    if below:
        case = exp.Case(default=common)
        for name in below:
            case = case.when(_IS_COMMON(node=col(name)), exp.Min(this=col(name)), copy=False)
        common = case
    may_be = may_be_shown(label, tree.forbidden)
    if alone is None:
        is_own = _IS_OWN_OF_SEVERAL(own=own, allowed=may_be)
    else:
        is_own = _IS_OWN(alone=alone, own=own, allowed=may_be)
    levels = below or [node_name(attribute, tree.height)]
    return _SUMMARY(
        root=tree.root,
        is_own=is_own,
        label=label,
        leaves=leaves,
        common=common,
        facts=facts.expressions,
        levels=[col(name) for name in levels],
        levels_of_rows=[col(name, "r") for name in levels],
        ground=col(levels[0], "r"),
        classes=classes,
        nodes=tree.nodes,
        allowed=allowed,
    )


def as_ancestor(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The lowest common ancestor."""
    return _summary(classes, attribute, tree, allowed, exp.Select(), exp.false(), exp.null(), number(0.0))


_WIDTH = fragment("last - first")

_ENDS = template("""
    SELECT
        arg_min(label, low) AS least,
        arg_max(label, high) AS greatest,
        arg_min(released, low) AS least_released,
        arg_max(released, high) AS greatest_released,
        bool_and(NOT label IN ('nan', '-nan')) AS numbers
""")
_IS_RANGE = fragment("least_released AND greatest_released AND numbers")
_RANGE = fragment("(least || CASE WHEN contains(least || greatest, '-') THEN ' to ' ELSE '-' END || greatest)")
_HAS_ENDS = fragment("(starts_with(greatest, '≥') OR starts_with(least, '<'))")
_IS_SHOWN = fragment("""
    (
        NOT (starts_with(greatest, '≥') OR starts_with(least, '<'))
        OR (starts_with(greatest, '≥') <> starts_with(least, '<') AND :open_range IS NOT NULL)
    )
""")
_OPEN_RANGE = fragment("CASE WHEN starts_with(least, '<') THEN '<' || :beyond ELSE '≥' || least END")
_BEYOND = {
    ColumnKind.INTEGER: fragment("(TRY_CAST(greatest AS HUGEINT) + 1)::VARCHAR"),
    ColumnKind.DATE: fragment("(TRY_CAST(greatest AS DATE) + 1)::VARCHAR"),
}
"""The first value beyond the greatest of a class, where the type has one."""


def as_range(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """From the least to the greatest value: ``20-29``, ``2020-01-05 to 2020-02-10``; one value is itself.

    What is no number (NaN) is in no range. A range that reaches into an open end is open: ``≥85``, ``<21``. There is
    none of both open ends, nor a lower one of values that have no next value (``2.5``, times).
    """
    is_range, label = _IS_RANGE(), _RANGE()
    if tree.open_ends:
        kind = column_kind(tree.type)
        beyond = _BEYOND[kind]() if kind in _BEYOND and "TIME" not in tree.type else exp.null()
        open_range = _OPEN_RANGE(beyond=beyond)
        is_range = all_of([is_range, _IS_SHOWN(open_range=open_range)])
        label = exp.Case(ifs=[exp.If(this=_HAS_ENDS(), true=open_range)], default=label)
    return _summary(classes, attribute, tree, allowed, _ENDS(), is_range, label, _WIDTH())


_MIDDLE = template("""
    SELECT
        arg_min(label, so_far) FILTER (WHERE 2 * so_far >= whole) AS label,
        arg_min(released, so_far) FILTER (WHERE 2 * so_far >= whole) AS released,
        bool_and(NOT label IN ('nan', '-nan')) AS numbers
""")
_IS_MEDIAN = fragment("f.released AND f.numbers")


def as_median(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The value of the middle row; of two, the lower. It stands for the class's whole range, and costs as much."""
    return _summary(classes, attribute, tree, allowed, _MIDDLE(), _IS_MEDIAN(), col("label", "f"), _WIDTH())


_LISTED = template(r"""
    SELECT
        array_to_string(
            array_agg(
                CASE
                    WHEN regexp_matches(label, '[,{}"]|^\s|\s$|^$') THEN '"' || replace(label, '"', '""') || '"'
                    ELSE label
                END
                ORDER BY label
            ),
            ', '
        ) AS listed,
        sum(leaves + 1)::DOUBLE AS size,
        bool_and(released) AS fine,
        bool_or(starts_with(label, '{')) AS begun
""")
_IS_SET = fragment("fine AND ((members = 1 AND begun) OR NOT (size - 1 = m.leaves AND common = a.shown))")
_SET = fragment("('{' || listed || '}')")
_SET_LEAVES = fragment("size - 1")
_IS_BEGUN = fragment("members = 1 AND begun")


def as_set(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The values: ``{a, b}``; where they are all that an ancestor has, that ancestor.

    A value that would be read as more or less than one stands in quotes, its own quotes twice:
    ``{"Bonn, Germany", Paris}``. So does one alone that begins as a set does.
    """
    return _summary(classes, attribute, tree, allowed, _LISTED(), _IS_SET(), _SET(), _SET_LEAVES(), alone=_IS_BEGUN())


_RELEASED_NODES = template("SELECT node, label, leaves, level FROM :nodes")
_OWN_NODES = template("SELECT DISTINCT node, label, leaves, level FROM :shown WHERE node > :root")
# The classes that are released as a node above the lowest level of the tree.
_ANCESTORS = template("SELECT count(*) FROM :shown WHERE node <= :root AND level > :floor")


_WITH_PARTS = template("""
    SELECT c.*, p.part
    FROM :combinations AS c
    JOIN :parts AS p ON c.combination = p.combination
""")


def summarise(
    task: LocalTask, parts: exp.Table, allowed: Sequence[exp.Table], prefix: str, rounds: int
) -> LocalOutcome:
    """Release groups as ranges of numbers and times or their medians, other attributes as lowest common ancestors or
    as sets of values."""
    steps, work, summary = task.steps, task.work, task.prepared.policy.search.summary
    classes = steps.make(work(f"{prefix}_members"), _WITH_PARTS(combinations=task.combinations, parts=parts))
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
            own = _OWN_NODES(shown=mine, root=tree.root)
            values[i] = steps.make(work(f"{prefix}_values_{i}"), union_all(_RELEASED_NODES(nodes=tree.nodes), own))
        ancestors = _ANCESTORS(shown=mine, root=tree.root, floor=tree.floor)
        if build is as_median and not tree.open_ends and not task.engine.rows(ancestors)[0][0]:
            typed.add(i)
    placed = steps.make(work(f"{prefix}_placed"), _placed(classes, shown))
    return LocalOutcome(task, placed, values, frozenset(typed), rounds=rounds)


_PLACED = template("SELECT c.combination FROM :classes AS c")


def _placed(classes: exp.Table, shown: Sequence[exp.Table]) -> exp.Select:
    """What is released: ``combination`` and ``node_i``; ``shown`` says by attribute and part the node."""
    query = _PLACED(classes=classes)
    for i, table in enumerate(shown):
        on = col(PART, f"s{i}").eq(col(PART, "c"))
        query = query.join(aliased(table, f"s{i}"), on=on, copy=False)
        query = query.select(named(col(NODE, f"s{i}"), released_name(i)), copy=False)
    return query


_ALLOWED = template("SELECT n0.node, coalesce(:upwards) AS shown, coalesce(:downwards) AS highest FROM :nodes AS n0")
_IF_RELEASED = fragment("CASE WHEN :released THEN :node END")


def allowed_nodes(task: LocalTask, prefix: str) -> tuple[exp.Table, ...]:
    """Make, by attribute, for each node the nearest that may be released, itself or above it, as ``shown``; and the
    ``highest``. Both are NULL where there is none."""
    tables = []
    for i, tree in enumerate(task.trees):
        levels = range(tree.height - tree.floor + 1)
        found = [_IF_RELEASED(released=col("released", f"n{j}"), node=col(NODE, f"n{j}")) for j in levels]
        query = _ALLOWED(upwards=found, downwards=found[::-1], nodes=tree.nodes)
        for j in levels[1:]:
            on = col("parent", f"n{j - 1}").eq(col(NODE, f"n{j}"))
            query = query.join(aliased(tree.nodes, f"n{j}"), on=on, join_type="left", copy=False)
        tables.append(task.steps.make(task.work(f"{prefix}_allowed_{i}"), query))
    return tuple(tables)
