"""What classes of combinations are released as, where the policy's ``summary`` says it: ranges, medians, sets, and
lowest common ancestors.

Each query gives for every ``part`` the ``node`` of one attribute, with its ``label``, ``leaves`` and ``level``. A node
that the attribute's tree does not have gets a number above its root, and the level of the lowest common ancestor of its
values. Where a class cannot be shown in its own way (it mixes NULL with other values, or would show a label that must
not be released), it is released as the lowest ancestor that may be.

No end of a range, no median and no member of a set is a value that few rows have, unless the policy has
``ends = "exact"``: see `recode.local.grid` for ranges and medians, and `set_members` for sets. A class within one cell
of the grid is released as the lowest common ancestor, which is that cell or lies in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.strategies.local.nodes import CELLS, NODE, Tree, may_be_shown, node_name, released_name
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.expressions import aliased, all_of, col, fragment, named, number, template, union_all

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
                    SELECT r.part, :levels_of_rows, r.n, v.low, v.high, v.label, v.leaves, v.released, :more
                    FROM (SELECT part, :levels, sum(n)::BIGINT AS n FROM :classes GROUP BY part, :levels) AS r
                    JOIN :values AS v ON :ground = v.node
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
    beside: tuple[exp.Table, Sequence[str]] | None = None,
) -> exp.Select:
    """What classes are released as: in their own way if they have several values, or are to be ``alone``.

    ``beside`` is a table with more columns of the lowest nodes, by ``node``.
    """
    values: exp.Expr = tree.nodes
    more: list[exp.Expr] = []
    if beside is not None:
        more = [col(name, "v") for name in beside[1]]
        values = _VALUES_BESIDE(nodes=tree.nodes, more=[col(name, "b") for name in beside[1]], beside=beside[0])
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
        values=values,
        more=more,
        allowed=allowed,
    )


_VALUES_BESIDE = template("SELECT n.*, :more FROM :nodes AS n JOIN :beside AS b ON n.node = b.node")


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

_ENDS_OF_CELLS = template("""
    SELECT
        min(cell_low) AS first_of_cells,
        max(cell_high) AS last_of_cells,
        arg_min(lower, cell_low) AS lower,
        arg_max(upper, cell_high) AS upper,
        arg_min(least, cell_low) AS least,
        arg_max(beyond, cell_high) AS beyond,
        bool_and(lower IS NOT NULL OR upper IS NOT NULL) AS in_cells,
        bool_or(lower IS NULL) AS open_below,
        bool_or(upper IS NULL) AS open_above,
        bool_and(closed) AS closed
""")
_WIDTH_OF_CELLS = fragment("last_of_cells - first_of_cells")
_IS_RANGE_OF_CELLS = fragment("in_cells AND :label IS NOT NULL AND m.level > :level")
_RANGE_OF_CELLS = fragment("""
    CASE
        WHEN open_below THEN CASE WHEN open_above THEN NULL ELSE '<' || beyond END
        WHEN open_above THEN '≥' || least
        WHEN closed THEN lower || CASE WHEN contains(lower || upper, '-') THEN ' to ' ELSE '-' END || upper
        ELSE '[' || lower || ', ' || upper || ')'
    END
""")


def as_range(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """From the least to the greatest value: ``20-29``, ``2020-01-01 to 2020-02-29``; one value is itself. With a grid,
    from the lower end of the first cell to the upper end of the last one.

    What is no number (NaN) is in no range. A range that reaches into an open end is open: ``≥85``, ``<21``. There is
    none of both open ends, nor a lower one of values that have no next value (``2.5``, times).
    """
    if tree.grid is not None:
        label = _RANGE_OF_CELLS()
        own = _IS_RANGE_OF_CELLS(label=label, level=tree.grid_level)
        beside = tree.grid.table, CELLS
        width = _WIDTH_OF_CELLS()
        return _summary(classes, attribute, tree, allowed, _ENDS_OF_CELLS(), own, label, width, beside=beside)
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
_MIDDLE_OF_CELL = template("""
    SELECT
        min(cell_low) AS first_of_cells,
        max(cell_high) AS last_of_cells,
        arg_min(middle, so_far) FILTER (WHERE 2 * so_far >= whole) AS label,
        bool_and(middle IS NOT NULL) AS in_cells
""")
_IS_MEDIAN_OF_CELLS = fragment("f.in_cells")


def as_median(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The value of the middle row; of two, the lower. It stands for the class's whole range, and costs as much. With a
    grid, the middle of the cell of this value."""
    label = col("label", "f")
    if tree.grid is None:
        return _summary(classes, attribute, tree, allowed, _MIDDLE(), _IS_MEDIAN(), label, _WIDTH())
    own, width, beside = _IS_MEDIAN_OF_CELLS(), _WIDTH_OF_CELLS(), (tree.grid.table, CELLS)
    return _summary(classes, attribute, tree, allowed, _MIDDLE_OF_CELL(), own, label, width, beside=beside)


_LIST_OF_LEVEL = fragment("list_sort(array_agg(DISTINCT {'label': :label, 'size': :size}))")
_ARE_MEMBERS = fragment("bool_and(:is_member)")
_BEGUN = template("SELECT bool_or(starts_with(label, '{')) AS begun, bool_and(released) AS all_released")
_SIZE = fragment("list_sum(list_transform(:members, lambda item: item.size))::DOUBLE")
_IS_SET = fragment("""
    :members IS NOT NULL
    AND ((members = 1 AND begun) OR (length(:members) > 1 AND NOT (:size - 1 = m.leaves AND common = a.shown)))
""")
_SET = fragment(r"""
    ('{' || array_to_string(
        list_transform(
            :members,
            lambda item: CASE
                WHEN regexp_matches(item.label, '[,{}"]|^\s|\s$|^$') THEN '"' || replace(item.label, '"', '""') || '"'
                ELSE item.label
            END
        ),
        ', '
    ) || '}')
""")
_SET_LEAVES = fragment(":size - 1")
_IS_BEGUN = fragment("members = 1 AND begun")
_MAY_BE_BEGUN = fragment("members = 1 AND begun AND all_released")


def as_set(classes: exp.Table, attribute: int, tree: Tree, allowed: exp.Table) -> exp.Select:
    """The members of a set: ``{a, b}``; where they are all that an ancestor has, that ancestor.

    They are the values of the class, or the labels above them at the lowest level at which each may be a member (see
    `set_members`). A value that would be read as more or less than one stands in quotes, its own quotes twice:
    ``{"Bonn, Germany", Paris}``. So does one alone that begins as a set does.
    """
    assert tree.members is not None
    levels = range(tree.floor, tree.height)
    names = [f"{name}_{level}" for level in levels for name in ("label", "size", "is_member")]
    facts = _BEGUN()
    members = exp.Case().when(_MAY_BE_BEGUN(), col(f"list_{tree.floor}"), copy=False)
    for level in levels:
        listed = _LIST_OF_LEVEL(label=col(f"label_{level}"), size=col(f"size_{level}"))
        all_ = _ARE_MEMBERS(is_member=col(f"is_member_{level}"))
        facts = facts.select(named(listed, f"list_{level}"), named(all_, f"all_{level}"), copy=False)
        members = members.when(col(f"all_{level}"), col(f"list_{level}"), copy=False)
    size = _SIZE(members=members)
    own, label = _IS_SET(members=members, size=size), _SET(members=members)
    return _summary(
        classes, attribute, tree, allowed, facts, own, label, _SET_LEAVES(size=size), _IS_BEGUN(),
        (tree.members, names),
    )  # fmt: skip


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
        elif tree.members is not None:
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
    exact_ends = None
    if task.prepared.policy.search.ends == "exact":
        exact_ends = steps.make(work(f"{prefix}_exact_ends"), _exact_ends(task, classes, shown, summary))
    return LocalOutcome(task, placed, values, frozenset(typed), rounds=rounds, exact_ends=exact_ends)


_EXACT_ENDS = template("SELECT c.combination FROM :classes AS c")
_IS_END_OF_RANGE = fragment("""
    (
        :shown > :root
        AND NOT starts_with(:value, '<') AND NOT starts_with(:value, '≥')
        AND (:low = min(:low) OVER (PARTITION BY c.part) OR :high = max(:high) OVER (PARTITION BY c.part))
    )
""")
_IS_SHOWN_MEDIAN = fragment("(:shown > :root AND :value = :label)")
_IS_RARE_MEMBER = fragment("(:shown > :root AND :node IN (SELECT node FROM :members AS m WHERE is_rare))")


def _exact_ends(task: LocalTask, classes: exp.Table, shown: Sequence[exp.Table], summary: str) -> exp.Select:
    """``combination`` and ``is_end_i``: whether what is shown of its class has its own value as an end, as the median
    or as a rare member."""
    query = _EXACT_ENDS(classes=classes)
    for i, (tree, table) in enumerate(zip(task.trees, shown, strict=True)):
        values, classes_shown, node = f"v{i}", f"s{i}", col(node_name(i, tree.floor), "c")
        query = query.join(aliased(tree.nodes, values), on=node.eq(col(NODE, values)), copy=False)
        query = query.join(aliased(table, classes_shown), on=col(PART, classes_shown).eq(col(PART, "c")), copy=False)
        given: dict[str, exp.Expr | int] = {"shown": col(NODE, classes_shown), "root": tree.root}
        is_end: exp.Expr = exp.false()
        if tree.ordered and summary == "median":
            is_end = _IS_SHOWN_MEDIAN(**given, value=col("label", values), label=col("label", classes_shown))
        elif tree.ordered:
            given["value"] = col("label", values)
            is_end = _IS_END_OF_RANGE(**given, low=col("low", values), high=col("high", values))
        elif tree.members is not None:
            is_end = _IS_RARE_MEMBER(**given, node=node, members=tree.members)
        query = query.select(named(is_end, f"is_end_{i}"), copy=False)
    return query


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
