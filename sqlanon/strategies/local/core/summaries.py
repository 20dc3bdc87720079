"""Labels of classes by the policy's ``summary``: ranges, medians, sets, and lowest common ancestors.

Each query gives the ``node`` of one attribute for every ``part``, with its ``label``, ``leaves`` and ``level``. A node
that the attribute's tree does not have gets a number above its root, and the level of the lowest common ancestor of its
values. A class that cannot be summarized (it mixes NULL with other values, or the label is forbidden) is released as
the lowest ancestor that may be released.

Ends of ranges, medians and members of sets are never values that few rows have, unless the policy has
``ends = "exact"``: see `grid` for ranges and medians, and `nodes.set_labels` for sets. A class within one cell of the
grid is released as the lowest common ancestor, which is the cell or a node in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.strategies.local.core.nodes import (
    CELL_COLUMNS,
    NODE,
    Grid,
    Tree,
    is_allowed,
    join_ancestors,
    level_column,
    node_column,
    node_columns,
)
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.expressions import (
    aliased,
    all_of,
    as_column,
    col,
    fragment,
    number,
    subquery,
    table,
    template,
    union_all,
)

PART = "part"


@dataclass(frozen=True)
class AttributeClasses:
    """The classes to summarize, for one attribute."""

    rows: exp.Expr  # combinations: ``part``, their number of rows ``row_count``, and the lowest node of each attribute
    attribute: int  # its number
    tree: Tree
    allowed: exp.Table  # its table of `make_allowed_nodes`


Summary: TypeAlias = Callable[[AttributeClasses], exp.Select]
"""Builds a query for the labels of classes."""


@dataclass(frozen=True)
class SummaryForm:
    """How a kind of summary is computed from the values of a class."""

    facts: exp.Select  # aggregates over the values, which the other expressions may use
    can_be_summarized: exp.Expr
    label: exp.Expr
    leaves: exp.Expr  # the ground values that the label may stand for, less one
    is_single_summary: exp.Expr = field(default_factory=exp.false)  # whether a single value needs a summary, too
    extra: tuple[exp.Table, Sequence[str]] | None = None  # a table by ``node``, and its columns that ``facts`` uses
    needs_order: bool = False  # ``facts`` uses the rows ``so_far`` in the order of the values, and all rows ``whole``


_SUMMARY = template("""
    WITH
        class_values AS (
            SELECT r.part, r.row_count, v.*
            FROM (
                SELECT part, :ground AS ground, sum(row_count)::BIGINT AS row_count
                FROM :classes
                GROUP BY part, :ground
            ) AS r
            JOIN :values AS v ON r.ground = v.node
        ),
        facts AS (
            SELECT
                part,
                :common AS common,
                count(*) AS value_count,
                bool_or(label IS NULL) AS has_null,
                min(low) AS first,
                max(high) AS last,
                :facts
            FROM :values_in_order AS v
            GROUP BY part
        ),
        summaries AS (
            SELECT
                f.part,
                :is_summary AS is_summary,
                a.released_node,
                CASE WHEN :is_summary THEN :label ELSE s.label END AS label,
                (CASE WHEN :is_summary THEN :leaves ELSE s.leaves END)::DOUBLE AS leaves,
                CASE WHEN :is_summary THEN m.level ELSE s.level END AS level
            FROM facts AS f
            JOIN :allowed AS a ON a.node = f.common
            JOIN :nodes AS m ON m.node = f.common
            JOIN :nodes AS s ON s.node = a.released_node
        )
    SELECT
        part,
        CASE
            WHEN is_summary
                THEN (dense_rank() OVER (PARTITION BY is_summary ORDER BY label, leaves, level) + :root)::INTEGER
            ELSE released_node
        END AS node,
        label,
        leaves,
        level
    FROM summaries
""")

_RUNNING = fragment("""
    (
        SELECT
            *,
            (sum(row_count) OVER (PARTITION BY part ORDER BY low))::BIGINT AS so_far,
            (sum(row_count) OVER (PARTITION BY part))::BIGINT AS whole
        FROM class_values
    )
""")


def _summarize_classes(classes: AttributeClasses, form: SummaryForm) -> exp.Select:
    """The labels of classes: summaries of several values, and of single ones if the form needs them."""
    tree, attribute = classes.tree, classes.attribute
    first = f"n{tree.floor}"
    names = ("node", "low", "high", "label", "leaves", "released")
    values = template("SELECT :columns FROM :nodes WHERE :level = :floor")(
        columns=[col(name, first) for name in names],
        nodes=aliased(tree.nodes, first),
        level=col("level", first),
        floor=tree.floor,
    )
    if form.extra is not None:
        extra, columns = form.extra
        values = values.join(aliased(extra, "b"), on=col(NODE, first).eq(col(NODE, "b")), copy=False)
        values = values.select(*(col(name, "b") for name in columns), copy=False)
    below_root = range(tree.floor, tree.height)
    values = join_ancestors(values, tree, below_root[1:])
    ancestors = {level: level_column(attribute, level) for level in below_root}
    values = values.select(*(as_column(col(NODE, f"n{level}"), name) for level, name in ancestors.items()), copy=False)
    only_nodes = [
        fragment("CASE WHEN min(:node) = max(:node) THEN min(:node) END")(node=col(name)) for name in ancestors.values()
    ]
    is_summary = fragment("""
        (value_count > 1 OR :is_single_summary) AND NOT has_null AND :can_be_summarized AND :is_allowed
    """)(
        is_single_summary=form.is_single_summary,
        can_be_summarized=form.can_be_summarized,
        is_allowed=is_allowed(form.label, tree.forbidden),
    )
    return _SUMMARY(
        root=tree.root,
        is_summary=is_summary,
        label=form.label,
        leaves=form.leaves,
        common=fragment("coalesce(:nodes)")(nodes=[*only_nodes, number(tree.root)]),
        facts=form.facts.expressions,
        ground=col(level_column(attribute, tree.floor)),
        classes=classes.rows,
        nodes=tree.nodes,
        values=subquery(values),
        values_in_order=_RUNNING() if form.needs_order else table("class_values"),
        allowed=classes.allowed,
    )


def as_ancestor(classes: AttributeClasses) -> exp.Select:
    """The lowest common ancestor."""
    return _summarize_classes(classes, SummaryForm(exp.Select(), exp.false(), exp.null(), number(0.0)))


_WIDTH = fragment("last - first")
_WIDTH_OF_CELLS = fragment("last_of_cells - first_of_cells")
_NEXT_VALUE = {
    ColumnKind.INTEGER: fragment("(TRY_CAST(greatest AS HUGEINT) + 1)::VARCHAR"),
    ColumnKind.DATE: fragment("(TRY_CAST(greatest AS DATE) + 1)::VARCHAR"),
}
"""The first value beyond the greatest of a class, for types that have one."""


def as_range(classes: AttributeClasses) -> exp.Select:
    """The range from the least to the greatest value: ``20-29``, ``2020-01-01 to 2020-02-29``; a single value is
    unchanged. With a grid, from the lower end of the first cell to the upper end of the last one.

    NaN is in no range. A range that reaches into an open end is open: ``≥85``, ``<21``.
    """
    tree = classes.tree
    if tree.grid is not None:
        return _range_of_cells(classes, tree.grid)
    facts = template("""
        SELECT
            arg_min(label, low) AS least,
            arg_max(label, high) AS greatest,
            arg_min(released, low) AS least_released,
            arg_max(released, high) AS greatest_released,
            bool_and(NOT label IN ('nan', '-nan')) AS are_numbers
    """)()
    is_range = fragment("least_released AND greatest_released AND are_numbers")()
    label = fragment("(least || CASE WHEN contains(least || greatest, '-') THEN ' to ' ELSE '-' END || greatest)")()
    if tree.open_ends:
        kind = column_kind(tree.column_type)
        has_next = kind in _NEXT_VALUE and "TIME" not in tree.column_type
        open_range = fragment("CASE WHEN starts_with(least, '<') THEN '<' || :next_value ELSE '≥' || least END")(
            next_value=_NEXT_VALUE[kind]() if has_next else exp.null()
        )
        # A range with both ends open is not released, nor one open below without a next value.
        has_label = fragment("""
            (
                NOT (starts_with(greatest, '≥') OR starts_with(least, '<'))
                OR (starts_with(greatest, '≥') <> starts_with(least, '<') AND :open_range IS NOT NULL)
            )
        """)(open_range=open_range)
        is_range = all_of([is_range, has_label])
        label = fragment("""
            CASE WHEN (starts_with(greatest, '≥') OR starts_with(least, '<')) THEN :open_range ELSE :label END
        """)(open_range=open_range, label=label)
    return _summarize_classes(classes, SummaryForm(facts, is_range, label, _WIDTH()))


def _range_of_cells(classes: AttributeClasses, grid: Grid) -> exp.Select:
    facts = template("""
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
    """)()
    label = fragment("""
        CASE
            WHEN open_below THEN CASE WHEN open_above THEN NULL ELSE '<' || beyond END
            WHEN open_above THEN '≥' || least
            WHEN closed THEN lower || CASE WHEN contains(lower || upper, '-') THEN ' to ' ELSE '-' END || upper
            ELSE '[' || lower || ', ' || upper || ')'
        END
    """)()
    is_range = fragment("in_cells AND :label IS NOT NULL AND m.level > :grid_level")(
        label=label, grid_level=classes.tree.grid_level
    )
    extra = grid.table, CELL_COLUMNS
    return _summarize_classes(classes, SummaryForm(facts, is_range, label, _WIDTH_OF_CELLS(), extra=extra))


def as_median(classes: AttributeClasses) -> exp.Select:
    """The value of the middle row; of two, the lower. Its loss is that of the class's range. With a grid, the middle of
    the cell of this value."""
    label, grid = col("label", "f"), classes.tree.grid
    if grid is None:
        facts = template("""
            SELECT
                arg_min(label, so_far) FILTER (WHERE 2 * so_far >= whole) AS label,
                arg_min(released, so_far) FILTER (WHERE 2 * so_far >= whole) AS released,
                bool_and(NOT label IN ('nan', '-nan')) AS are_numbers
        """)()
        is_median = fragment("f.released AND f.are_numbers")()
        return _summarize_classes(classes, SummaryForm(facts, is_median, label, _WIDTH(), needs_order=True))
    facts = template("""
        SELECT
            min(cell_low) AS first_of_cells,
            max(cell_high) AS last_of_cells,
            arg_min(middle, so_far) FILTER (WHERE 2 * so_far >= whole) AS label,
            bool_and(middle IS NOT NULL) AS in_cells
    """)()
    extra = grid.table, CELL_COLUMNS
    form = SummaryForm(facts, col("in_cells", "f"), label, _WIDTH_OF_CELLS(), extra=extra, needs_order=True)
    return _summarize_classes(classes, form)


def as_set(classes: AttributeClasses) -> exp.Select:
    """The set of members: ``{a, b}``; the ancestor where they are all of its values.

    Members are the values of the class, or the labels above them at the lowest level at which each may be listed (see
    `nodes.set_labels`). A value that could be read as more or less than one value is quoted, its own quotes doubled:
    ``{"Bonn, Germany", Paris}``. So is a single value that begins like a set.
    """
    tree = classes.tree
    assert tree.set_labels is not None
    levels = range(tree.floor, tree.height)
    columns = [f"{name}_{level}" for level in levels for name in ("label", "size", "is_member")]
    facts = template("SELECT bool_or(starts_with(label, '{')) AS has_brace, bool_and(released) AS all_released")()
    members = exp.Case().when(
        fragment("value_count = 1 AND has_brace AND all_released")(), col(f"list_{tree.floor}"), copy=False
    )
    for level in levels:
        labels = fragment("list_sort(array_agg(DISTINCT {'label': :label, 'size': :size}))")(
            label=col(f"label_{level}"), size=col(f"size_{level}")
        )
        are_members = fragment("bool_and(:is_member)")(is_member=col(f"is_member_{level}"))
        facts = facts.select(as_column(labels, f"list_{level}"), as_column(are_members, f"all_{level}"), copy=False)
        members = members.when(col(f"all_{level}"), col(f"list_{level}"), copy=False)
    size = fragment("list_sum(list_transform(:members, lambda item: item.size))::DOUBLE")(members=members)
    is_set = fragment("""
        :members IS NOT NULL
        AND (
            (value_count = 1 AND has_brace)
            OR (length(:members) > 1 AND NOT (:size - 1 = m.leaves AND common = a.released_node))
        )
    """)(members=members, size=size)
    label = fragment(r"""
        ('{' || array_to_string(
            list_transform(
                :members,
                lambda item: CASE
                    WHEN regexp_matches(item.label, '[,{}"]|^\s|\s$|^$')
                        THEN '"' || replace(item.label, '"', '""') || '"'
                    ELSE item.label
                END
            ),
            ', '
        ) || '}')
    """)(members=members)
    is_single_set = fragment("value_count = 1 AND has_brace")()
    extra = tree.set_labels, columns
    form = SummaryForm(facts, is_set, label, size - 1, is_single_summary=is_single_set, extra=extra)
    return _summarize_classes(classes, form)


def summarize(
    task: LocalTask, parts: exp.Table, allowed: Sequence[exp.Table], prefix: str, rounds: int
) -> LocalOutcome:
    """Release classes as ranges of numbers and times or their medians, and other attributes as lowest common ancestors
    or sets of values."""
    search = task.search_input.policy.search
    ground = [level_column(i, tree.floor) for i, tree in enumerate(task.trees)]
    query = template("""
        SELECT c.combination, c.row_count, p.part, :ground
        FROM :combinations AS c
        JOIN :parts AS p ON c.combination = p.combination
    """)(ground=[col(name, "c") for name in ground], combinations=task.combinations, parts=parts)
    classes = task.make(f"{prefix}_members", query)
    ends = task.make(f"{prefix}_ends", _ends_of_classes(classes, ground))
    summaries, nodes, typed = [], {}, set()
    for i, tree in enumerate(task.trees):
        build: Summary = as_ancestor
        if tree.is_ordered:
            build = as_median if search.summary == "median" else as_range
        elif tree.set_labels is not None:
            build = as_set
        # Most classes have one value of most attributes, which takes no summary, unless it reads like a set.
        is_summarized: exp.Expr = _HAS_SEVERAL(first=col(f"first_{i}"), last=col(f"last_{i}"))
        if build is as_set:
            is_summarized = _READS_LIKE_SET(has_several=is_summarized, first=col(f"first_{i}"), nodes=tree.nodes)
        of_single_values = _OF_SINGLE_VALUES(
            ends=ends, is_summarized=is_summarized, first=col(f"first_{i}"), allowed=allowed[i], nodes=tree.nodes
        )
        several = _select_classes(classes, ends, is_summarized)
        of_several = build(AttributeClasses(several, i, tree, allowed[i]))
        summary = task.make(f"{prefix}_summary_{i}", union_all(of_several, of_single_values))
        summaries.append(summary)
        if build is not as_ancestor:
            hierarchy_nodes = template("SELECT node, label, leaves, level FROM :nodes")(nodes=tree.nodes)
            generated = template("SELECT DISTINCT node, label, leaves, level FROM :summaries WHERE node > :root")(
                summaries=summary, root=tree.root
            )
            nodes[i] = task.make(f"{prefix}_values_{i}", union_all(hierarchy_nodes, generated))
        if build is as_median and not tree.open_ends:
            ancestors = template("SELECT count(*) FROM :summaries WHERE node <= :root AND level > :floor")(
                summaries=summary, root=tree.root, floor=tree.floor
            )
            if not task.fetch_value(ancestors):
                typed.add(i)
    released = [as_column(col(NODE, f"s{i}"), node_column(i)) for i in range(len(summaries))]
    query = _with_summaries(template("SELECT c.part FROM :ends AS c")(ends=ends), summaries)
    labels = task.make(f"{prefix}_labels", query.select(*released, copy=False))
    query = template("SELECT c.combination, :nodes FROM :classes AS c JOIN :labels AS s ON c.part = s.part")(
        nodes=node_columns(len(summaries), "s"), classes=classes, labels=labels
    )
    assignment = task.make(f"{prefix}_assignment", query)
    exact_ends = None
    if search.ends == "exact":
        query = exact_end_flags(task, classes, summaries, search.summary)
        exact_ends = task.make(f"{prefix}_exact_ends", query)
    return LocalOutcome(task, assignment, nodes, frozenset(typed), rounds=rounds, exact_ends=exact_ends)


def _ends_of_classes(classes: exp.Table, ground: Sequence[str]) -> exp.Select:
    """The first and the last of the lowest nodes of each attribute in each part: ``part``, ``first_i``, ``last_i``."""
    ends: list[exp.Expr] = []
    for i, name in enumerate(ground):
        ends += [as_column(exp.Min(this=col(name)), f"first_{i}"), as_column(exp.Max(this=col(name)), f"last_{i}")]
    return template("SELECT part, :ends FROM :classes GROUP BY part")(ends=ends, classes=classes)


_HAS_SEVERAL = fragment("(:first < :last)")
_READS_LIKE_SET = fragment("""
    (:has_several OR :first IN (SELECT node FROM :nodes AS nodes WHERE starts_with(label, '{')))
""")
_OF_SINGLE_VALUES = template("""
    SELECT e.part, s.node, s.label, s.leaves, s.level
    FROM (SELECT part, :first AS node FROM :ends WHERE NOT :is_summarized) AS e
    JOIN :allowed AS a ON a.node = e.node
    JOIN :nodes AS s ON s.node = a.released_node
""")


def _select_classes(classes: exp.Table, ends: exp.Table, condition: exp.Expr) -> exp.Subquery:
    query = template("""
        SELECT c.*
        FROM :classes AS c
        SEMI JOIN (SELECT part FROM :ends WHERE :condition) AS e ON c.part = e.part
    """)(classes=classes, ends=ends, condition=condition)
    return subquery(query, "c")


def _with_summaries(query: exp.Select, summaries: Sequence[exp.Table]) -> exp.Select:
    """A query of classes ``c``, joined with their summaries ``s0``, ``s1``, ..."""
    for i, summary in enumerate(summaries):
        on = col(PART, f"s{i}").eq(col(PART, "c"))
        query = query.join(aliased(summary, f"s{i}"), on=on, copy=False)
    return query


_IS_VALUE = fragment("(NOT starts_with(:label, '<') AND NOT starts_with(:label, '≥'))")


def exact_end_flags(task: LocalTask, classes: exp.Table, summaries: Sequence[exp.Table], summary: str) -> exp.Select:
    """Whether the summary of a combination's class shows its exact value, by attribute: as an end, as the median or as
    a rare member. Columns: ``combination``, ``is_end_i``."""
    query = _with_summaries(template("SELECT c.combination FROM :classes AS c")(classes=classes), summaries)
    for i, tree in enumerate(task.trees):
        value, node = f"v{i}", col(level_column(i, tree.floor), "c")
        query = query.join(aliased(tree.nodes, value), on=node.eq(col(NODE, value)), copy=False)
        summary_node: dict[str, exp.Expr | int] = {"summary": col(NODE, f"s{i}"), "root": tree.root}
        is_end: exp.Expr = exp.false()
        is_value = _IS_VALUE(label=col("label", value))  # values of open cells are released as these
        if tree.is_ordered and summary == "median":
            is_end = fragment("(:summary > :root AND :is_value AND :value = :label)")(
                **summary_node, is_value=is_value, value=col("label", value), label=col("label", f"s{i}")
            )
        elif tree.is_ordered:
            low, high = col("low", value), col("high", value)
            is_end = fragment("""
                (
                    :summary > :root
                    AND :is_value
                    AND (:low = min(:low) OVER (PARTITION BY c.part) OR :high = max(:high) OVER (PARTITION BY c.part))
                )
            """)(**summary_node, is_value=is_value, low=low, high=high)
        elif tree.set_labels is not None:
            is_end = fragment("(:summary > :root AND :node IN (SELECT node FROM :set_labels AS m WHERE is_rare))")(
                **summary_node, node=node, set_labels=tree.set_labels
            )
        query = query.select(as_column(is_end, f"is_end_{i}"), copy=False)
    return query


def make_allowed_nodes(task: LocalTask, prefix: str) -> tuple[exp.Table, ...]:
    """Make a table by attribute: for each node the lowest node that may be released, itself or an ancestor,
    ``released_node``; and the highest one, ``highest_released``. Both are NULL without such a node."""
    tables = []
    for i, tree in enumerate(task.trees):
        released = [
            fragment("CASE WHEN :released THEN :node END")(
                released=col("released", f"n{level}"), node=col(NODE, f"n{level}")
            )
            for level in tree.levels
        ]
        query = template("""
            SELECT :node, coalesce(:upwards) AS released_node, coalesce(:downwards) AS highest_released
            FROM :nodes
        """)(
            node=col(NODE, f"n{tree.floor}"),
            upwards=released,
            downwards=released[::-1],
            nodes=aliased(tree.nodes, f"n{tree.floor}"),
        )
        query = join_ancestors(query, tree, tree.levels[1:], "left")
        tables.append(task.make(f"{prefix}_allowed_{i}", query))
    return tuple(tables)
