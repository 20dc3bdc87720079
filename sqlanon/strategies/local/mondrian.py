"""Strategy ``mondrian``: the table is cut in two, and each part again, until no part can be cut any more.

All combinations are one part at first, unless levels or labels that are not allowed separate them. In each round one
cut of each part is tried along each attribute, and the cut with two feasible sides that saves most loss is made:

- Numbers and times are cut along their order, at the border nearest to the middle of the rows: at borders of the cells
  of their grid, if they have one. A part within one cell is cut like other attributes, with the values as children of
  the cell: a second way to cut the attribute, with a number of its own.
- For other attributes one child of the lowest common ancestor is cut off the other children: the one that promises the
  least loss. (The paper cuts into all children at once, so that one rare child would keep all of them together.)
- With ``summary = "set"`` the most frequent value is cut off, or as many of the most frequent as have enough rows.
- If these have less than an eighth of the rows, the next ones go with them, so that rounds are few.

``cuts = "strict"``: equal values of the attribute that is cut stay on one side. ``"relaxed"``: along an order, the rows
of one value (or cell) may be divided between both sides, but not those of one combination of all attributes.

A table of cuts has a row for each item: by ``attribute``, ``part`` and ``item`` its side (``inside`` or not), and the
``gain`` of the cut: the fall in loss of the part's rows, times the attribute's weight. See `summaries` for the labels.

Source: LeFevre, DeWitt and Ramakrishnan, Mondrian multidimensional k-anonymity (2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice.limits import FIRST_GRACE
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import COMBINATION, NODE, Tree, level_column
from sqlanon.strategies.local.placement import feasible_rows
from sqlanon.strategies.local.summaries import PART, make_allowed_nodes, summarize
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.expressions import (
    aliased,
    col,
    fragment,
    is_not_null,
    is_null,
    number,
    select_star,
    subquery,
    template,
    union_all,
)

MAX_CUT_OFF = 8
"""Several values (or children) are cut off together if they have less than this part of the rows, so that thousands of
values do not take thousands of rounds."""

SIDE_COLUMNS = (PART, "attribute", "inside", "gain")
"""The columns that identify a side of a cut, and its gain."""


def mondrian(task: LocalTask) -> LocalOutcome:
    """Cut the table until no part can be cut, and release each part as a class.

    It ends sooner at the policy's ``time_limit``, or after ``max_checks`` rounds: all parts are always feasible.
    """
    with task.clock.in_time(FIRST_GRACE):
        allowed = make_allowed_nodes(task, "mondrian")
        cutting = Cutting(task, allowed)
    cutting.run()
    return summarize(task, cutting.classes, allowed, "mondrian", cutting.rounds)


class Cutting:
    """The parts, and the rounds that cut them.

    ``classes`` has the combinations of the parts that are not cut any more.
    """

    def __init__(self, task: LocalTask, allowed: tuple[exp.Table, ...], as_ancestors: bool = False) -> None:
        if as_ancestors:  # whatever the policy's summary is
            trees = tuple(replace(tree, is_ordered=False, grid=None, set_labels=None) for tree in task.trees)
            task = replace(task, trees=trees)
        self.task = task
        self.rounds = 0
        search = task.search_input.policy.search
        by_combination = [search.cuts == "relaxed" and tree.is_ordered for tree in task.trees]
        self._as_sets = search.summary == "set" and not as_ancestors
        self._least_class = task.evaluator.requirements.min_class_rows
        self._open_parts = self._first_parts(allowed)
        query = template("SELECT coalesce(max(part), 0) FROM :parts")(parts=self._open_parts)
        self._last_part = int(task.fetch_value(query))
        no_classes = template("SELECT combination, part FROM :parts WHERE FALSE")(parts=self._open_parts)
        self.classes = task.make("mondrian_classes", no_classes)
        self._attributes = attributes_with_levels(task.trees)
        self._cut_by_tree = [i for i, tree in self._attributes if not (tree.is_ordered or self._as_sets)]
        self._cut_by_tree += [len(task.trees) + i for i, tree in self._attributes if _has_levels_in_cells(tree)]
        if self._attributes:
            self._rows = task.make("mondrian_rows", cut_rows(task.combinations, task.trees, by_combination))
            self._values = task.make("mondrian_ground", cut_values(task.trees, by_combination))
            if self._cut_by_tree:
                self._ancestors = task.make("mondrian_ancestors", cut_ancestors(task.combinations, task.trees))

    def run(self) -> exp.Table:
        """Cut until no part can be cut, or a limit is reached; the ``classes``."""
        with self.task.clock.until_limit():
            while self.cut_once():
                pass
        self.close_parts()
        return self.classes

    def cut_once(self) -> bool:
        """Cut each open part once; whether any part was cut."""
        task = self.task
        if not self._attributes:
            return False
        task.clock.spend()
        self.rounds += 1
        cuts = task.make("mondrian_cuts", self._cuts())
        query = template("""
            SELECT r.combination, r.n, c.part, c.attribute, c.inside, c.gain
            FROM :rows AS r
            JOIN :parts AS p ON r.combination = p.combination
            JOIN :cuts AS c ON r.attribute = c.attribute AND r.item = c.item AND p.part = c.part
        """)(rows=self._rows, parts=self._open_parts, cuts=cuts)
        sides = task.make("mondrian_sides", query)
        # The attribute along which each part is cut: the greatest gain, then the first attribute.
        query = template("""
            WITH
                feasible_cuts AS (
                    SELECT part, attribute, gain
                    FROM :evaluated AS j
                    GROUP BY part, attribute, gain
                    HAVING bool_and(kept)
                ),
                ranked AS (
                    SELECT *, row_number() OVER (PARTITION BY part ORDER BY gain DESC, attribute) AS rank
                    FROM feasible_cuts
                )
            SELECT part, attribute, row_number() OVER (ORDER BY part) AS place
            FROM ranked
            WHERE rank = 1
        """)(evaluated=task.evaluate(sides, SIDE_COLUMNS))
        chosen = task.make("mondrian_chosen", query)
        cut_count = task.runner.count(chosen)
        # The inside keeps the number of its part; the outside gets a new one.
        query = template("""
            SELECT s.combination, s.n, CASE WHEN s.inside THEN s.part ELSE (h.place + :last_part)::INTEGER END AS part
            FROM :sides AS s
            JOIN :chosen AS h ON s.part = h.part AND s.attribute = h.attribute
        """)(sides=sides, chosen=chosen, last_part=self._last_part)
        parts = task.make(f"mondrian_parts_{self.rounds}", query)
        # If a statement is interrupted, each part is still in one place: with the classes, or open.
        insert = fragment("""
            INSERT INTO :classes
            SELECT p.combination, p.part
            FROM :parts AS p
            ANTI JOIN :chosen AS h ON p.part = h.part
        """)
        task.engine.execute(insert(classes=self.classes, parts=self._open_parts, chosen=chosen))
        former_parts, self._open_parts = self._open_parts, parts
        self._last_part += cut_count
        task.runner.drop(cuts, sides, chosen, former_parts)
        task.progress(2 * cut_count, self.rounds, None)
        return cut_count > 0

    def _cuts(self) -> exp.Query:
        """One cut of each part along each attribute."""
        by_value = [number(i) for i, tree in self._attributes if tree.is_ordered or self._as_sets]
        inputs = {
            "rows": self._rows,
            "parts": self._open_parts,
            "max_cut_off": number(MAX_CUT_OFF),
            "least_class": number(self._least_class),
        }
        cuts = []
        if by_value:
            facts, losses = _facts_of_sides()
            cuts.append(_CUT_OF_VALUES(**inputs, attributes=by_value, values=self._values, facts=facts, **losses))
        if self._cut_by_tree:
            cuts.append(
                _CUT_OF_HIERARCHY(
                    **inputs,
                    attributes=[number(i) for i in self._cut_by_tree],
                    ancestors=self._ancestors,
                    twice_least_class=2 * self._least_class,
                )
            )
        return union_all(*(select_star(subquery(cut, "c")) for cut in cuts))

    def close_parts(self) -> None:
        """Add the open parts to the classes."""
        insert = fragment("INSERT INTO :classes SELECT combination, part FROM :parts")
        self.task.engine.execute(insert(classes=self.classes, parts=self._open_parts))

    def _first_parts(self, allowed: tuple[exp.Table, ...]) -> exp.Table:
        task = self.task
        limited = {i: allowed[i] for i, tree in enumerate(task.trees) if tree.ceiling < tree.height or tree.forbidden}
        parts = task.make("mondrian_first", first_parts(task.combinations, task.trees, limited))
        feasible = task.make("mondrian_parts_0", feasible_rows(parts, task.evaluate(parts, [PART]), [PART]))
        task.runner.drop(parts)
        return feasible


def attributes_with_levels(trees: Sequence[Tree]) -> list[tuple[int, Tree]]:
    """The attributes that may be released at several levels, with their numbers."""
    return [(i, tree) for i, tree in enumerate(trees) if tree.floor < tree.height]


def first_parts(combinations: exp.Table, trees: Sequence[Tree], limited: Mapping[int, exp.Table]) -> exp.Select:
    """The parts to begin with: combinations that can be released as one class, by the allowed levels and labels."""
    highest = [col("highest_released", f"a{i}") for i in limited]
    part = fragment("dense_rank() OVER (ORDER BY :highest) - 1")(highest=highest) if highest else number(0)
    query = template("SELECT c.combination, c.n, :part::INTEGER AS part FROM :combinations AS c")(
        part=part, combinations=combinations
    )
    for i, table in limited.items():
        on = col(level_column(i, trees[i].floor), "c").eq(col(NODE, f"a{i}"))
        query = query.join(aliased(table, f"a{i}"), on=on, copy=False)
        query = query.where(is_not_null(col("highest_released", f"a{i}")), copy=False)
    return query


_ROWS = template("SELECT :attribute AS attribute, combination, :item AS item, :node AS node, n FROM :combinations")


def cut_rows(combinations: exp.Table, trees: Sequence[Tree], by_combination: Sequence[bool]) -> exp.Query:
    """``rows``: for each combination and attribute with several levels its lowest ``node``, or its cell, and its
    ``item``, which a cut does not divide: the node, the cell, or the combination."""
    branches = []
    for i, tree in attributes_with_levels(trees):
        name = level_column(i, tree.floor)
        if by_combination[i]:
            branches.append(_ROWS(attribute=i, item=col(COMBINATION), node=col(name), combinations=combinations))
        elif tree.grid is not None:
            ground = col(name, "c")
            query = template("""
                SELECT :attribute AS attribute, c.combination, g.cell AS item, g.cell AS node, c.n
                FROM :combinations AS c
                JOIN :grid AS g ON :ground = g.node
            """)(attribute=i, ground=ground, grid=tree.grid.table, combinations=combinations)
            branches.append(query)
        else:
            branches.append(_ROWS(attribute=i, item=col(name), node=col(name), combinations=combinations))
        if _has_levels_in_cells(tree):
            branches.append(_ROWS(attribute=len(trees) + i, item=col(name), node=col(name), combinations=combinations))
    return union_all(*branches)


def _has_levels_in_cells(tree: Tree) -> bool:
    """Whether a part within one cell of a grid can be released as less than the cell."""
    return tree.grid is not None and (tree.grid.level is None or tree.floor < tree.grid.level)


_VALUES = template("""
    SELECT
        :attribute AS attribute,
        node,
        low AS place,
        low,
        high,
        leaves,
        :stands_alone AS stands_alone,
        :root_loss::DOUBLE AS root_loss,
        :scale::DOUBLE AS scale,
        :is_ordered AS is_ordered
    FROM :nodes
    WHERE level = :floor
""")


def cut_values(trees: Sequence[Tree], by_combination: Sequence[bool]) -> exp.Query:
    """``values``: the attributes' lowest nodes, or the cells of their grids, in the order of ``place``, with the loss
    of their tree's root, the ``scale`` of a leaf's loss, and whether they are ordered. A value that ``stands_alone`` is
    in no range or set with others."""
    branches = []
    for i, tree in attributes_with_levels(trees):
        common = {"attribute": i, "root_loss": tree.leaves - 1, "scale": _scale(tree), "nodes": tree.nodes}
        if tree.grid is not None:
            node, place = col("cell", "g"), col("cell_low", "g")
            if by_combination[i]:
                node, place = col(NODE, "g"), col("low", "v")
            query = template("""
                SELECT DISTINCT
                    :attribute AS attribute,
                    :node AS node,
                    :place AS place,
                    g.cell_low AS low,
                    g.cell_high AS high,
                    (g.cell_high - g.cell_low)::DOUBLE AS leaves,
                    g.lower IS NULL AND g.upper IS NULL AS stands_alone,
                    :root_loss::DOUBLE AS root_loss,
                    :scale::DOUBLE AS scale,
                    TRUE AS is_ordered
                FROM :grid AS g
                JOIN :nodes AS v ON g.node = v.node
            """)(**common, node=node, place=place, grid=tree.grid.table)
            branches.append(query)
            continue
        stands_alone: exp.Expr = is_null(col("label"))
        if tree.set_labels is not None:
            is_member = exp.or_(*(col(f"is_member_{level}") for level in range(tree.floor, tree.height)))
            stands_alone = fragment("node NOT IN (SELECT node FROM :set_labels AS m WHERE :is_member)")(
                set_labels=tree.set_labels, is_member=is_member
            )
        is_ordered = exp.true() if tree.is_ordered else exp.false()
        branches.append(_VALUES(**common, stands_alone=stands_alone, is_ordered=is_ordered, floor=tree.floor))
    return union_all(*branches)


def _scale(tree: Tree) -> float:
    return tree.weight / max(tree.leaves - 1, 1)


_ANCESTORS = template("""
    SELECT :attribute AS attribute, p.item, :level AS level, p.node, v.leaves, :scale::DOUBLE AS scale
    FROM (SELECT DISTINCT :ground AS item, :node AS node FROM :combinations) AS p
    JOIN :nodes AS v ON p.node = v.node
""")


def cut_ancestors(combinations: exp.Table, trees: Sequence[Tree]) -> exp.Query:
    """``ancestors``: the lowest nodes of attributes with several levels and their ancestors; within the cells of a
    grid, the ancestors up to the cell."""
    branches: list[exp.Query] = []
    for i, tree in attributes_with_levels(trees):
        top, attribute = tree.height, i
        if tree.grid is not None:
            if not _has_levels_in_cells(tree):
                continue
            attribute = len(trees) + i
            top = tree.floor if tree.grid.level is None else tree.grid.level
            if tree.grid.level is None:
                query = template("""
                    SELECT
                        :attribute AS attribute,
                        node AS item,
                        :level AS level,
                        cell AS node,
                        (cell_high - cell_low)::DOUBLE AS leaves,
                        :scale::DOUBLE AS scale
                    FROM :grid
                """)(attribute=attribute, level=top + 1, scale=_scale(tree), grid=tree.grid.table)
                branches.append(query)
        branches += [
            _ANCESTORS(
                attribute=attribute,
                level=level,
                scale=_scale(tree),
                ground=col(level_column(i, tree.floor)),
                node=col(level_column(i, level)),
                combinations=combinations,
                nodes=tree.nodes,
            )
            for level in range(tree.floor, top + 1)
        ]
    return union_all(*branches)


# Numbers and times are cut along their order, at the border nearest to the middle of the rows, the first of equals;
# NULL is the least value. Of other values the most frequent is cut off, or as many of the most frequent as have
# ``least_class`` rows, and one of ``max_cut_off`` parts of all. Gains are rounded, so that equal ones are ties whatever
# the order of summation.
_CUT_OF_VALUES = template("""
    WITH
        items AS (
            SELECT r.attribute, p.part, r.item, r.node, sum(r.n)::BIGINT AS n
            FROM :rows AS r
            JOIN :parts AS p ON r.combination = p.combination
            WHERE r.attribute IN (:attributes)
            GROUP BY r.attribute, p.part, r.item, r.node
        ),
        ordered_items AS (
            SELECT
                i.attribute, i.part, i.item, i.n,
                v.low, v.high, v.leaves, v.stands_alone, v.root_loss, v.scale, v.is_ordered,
                (
                    sum(i.n) OVER (
                        PARTITION BY i.attribute, i.part
                        ORDER BY CASE WHEN v.is_ordered THEN v.place ELSE -i.n END, i.item
                    )
                )::BIGINT AS so_far,
                (sum(i.n) OVER (PARTITION BY i.attribute, i.part))::BIGINT AS whole
            FROM items AS i
            JOIN :values AS v ON i.node = v.node AND i.attribute = v.attribute
        ),
        sides AS MATERIALIZED (
            SELECT
                *,
                CASE
                    WHEN is_ordered THEN
                        so_far <= arg_min(
                            so_far, 2 * abs(2 * so_far - whole) + CASE WHEN 2 * so_far - whole > 0 THEN 1 ELSE 0 END
                        ) FILTER (WHERE so_far < whole) OVER (PARTITION BY attribute, part)
                    ELSE so_far - n < :least_class OR (so_far - n) * :max_cut_off < whole
                END AS inside
            FROM ordered_items
        ),
        facts AS (
            SELECT
                attribute,
                part,
                any_value(root_loss) AS root_loss,
                any_value(scale) AS scale,
                any_value(is_ordered) AS is_ordered,
                :facts
            FROM sides
            GROUP BY attribute, part
        ),
        gains AS MATERIALIZED (
            SELECT attribute, part, (:loss_all - :loss_in - :loss_out) * scale AS gain
            FROM facts
            WHERE low_all < last_all AND rows_in >= :least_class AND rows_out >= :least_class
        )
    SELECT i.attribute, i.part, i.item, i.inside AS inside, round(b.gain, 9) AS gain
    FROM sides AS i
    JOIN gains AS b ON i.attribute = b.attribute AND i.part = b.part
""")
# A range loses its width, a set the number of its values. Several values with one that stands alone lose everything.
_LOSS = fragment("""
    :rows * CASE
        WHEN :stands_alone AND :low < :last THEN root_loss
        ELSE CASE WHEN is_ordered THEN :high - :low ELSE :size - 1 END
    END
""")
_SIDE_CONDITIONS = {"all": exp.true(), "in": col("inside"), "out": exp.Not(this=col("inside"))}


def _facts_of_sides() -> tuple[list[exp.Expr], dict[str, exp.Expr]]:
    """The facts of a part and of both sides of its cut, and the loss of each of them."""
    facts: list[exp.Expr] = []
    losses: dict[str, exp.Expr] = {}
    for side, condition in _SIDE_CONDITIONS.items():
        side_facts = template("""
            SELECT
                (sum(n) FILTER (WHERE :is_in_side))::BIGINT AS rows,
                min(low) FILTER (WHERE :is_in_side) AS low,
                max(low) FILTER (WHERE :is_in_side) AS last,
                max(high) FILTER (WHERE :is_in_side) AS high,
                bool_or(stands_alone) FILTER (WHERE :is_in_side) AS stands_alone,
                sum(leaves + 1) FILTER (WHERE :is_in_side) AS size
        """)(is_in_side=condition).expressions
        facts += [exp.alias_(fact.this, f"{fact.alias}_{side}", quoted=True, copy=False) for fact in side_facts]
        losses[f"loss_{side}"] = _LOSS(**{fact.alias: col(f"{fact.alias}_{side}") for fact in side_facts})
    return facts, losses


# One child of the lowest common ancestor is cut off the others: the one that promises most, or as many of those that
# promise most as have one of ``max_cut_off`` parts of the rows. Their rows are promised their child, and if there are
# two children, the other rows the other child. Children are cut off only with enough rows in and beside them.
_CUT_OF_HIERARCHY = template("""
    WITH
        items AS MATERIALIZED (
            SELECT r.attribute, p.part, r.item, r.node, sum(r.n)::BIGINT AS n
            FROM :rows AS r
            JOIN :parts AS p ON r.combination = p.combination
            WHERE r.attribute IN (:attributes)
            GROUP BY r.attribute, p.part, r.item, r.node
        ),
        divisible AS MATERIALIZED (
            SELECT attribute, part
            FROM items
            GROUP BY attribute, part
            HAVING count(*) > 1 AND sum(n)::BIGINT >= :twice_least_class
        ),
        common_nodes AS (
            SELECT i.attribute, i.part, a.level, any_value(a.leaves) AS leaves
            FROM items AS i
            JOIN divisible AS b ON i.attribute = b.attribute AND i.part = b.part
            JOIN :ancestors AS a ON i.item = a.item AND i.attribute = a.attribute
            GROUP BY i.attribute, i.part, a.level
            HAVING min(a.node) = max(a.node)
        ),
        lowest_common AS MATERIALIZED (
            SELECT attribute, part, min(level) AS level, arg_min(leaves, level) AS leaves
            FROM common_nodes
            GROUP BY attribute, part
        ),
        split_items AS MATERIALIZED (
            SELECT
                i.attribute, i.part, i.item, i.n, a.node AS child, a.scale,
                i.n * (b.leaves - a.leaves) AS saved
            FROM items AS i
            JOIN lowest_common AS b ON i.attribute = b.attribute AND i.part = b.part
            JOIN :ancestors AS a ON i.item = a.item AND i.attribute = a.attribute AND a.level = b.level - 1
        ),
        children AS (
            SELECT
                attribute, part, child,
                sum(n)::BIGINT AS child_rows, sum(saved) AS saved, any_value(scale) AS scale
            FROM split_items
            GROUP BY attribute, part, child
        ),
        totals AS (
            SELECT
                *,
                sum(child_rows) OVER (PARTITION BY attribute, part) AS whole,
                sum(saved) OVER (PARTITION BY attribute, part) AS saved_all,
                count(*) OVER (PARTITION BY attribute, part) AS child_count
            FROM children
        ),
        fitting AS (
            SELECT *, child_rows >= :least_class AND child_rows <= whole - :least_class AS fits FROM totals
        ),
        cumulated AS (
            SELECT
                *,
                sum(child_rows) OVER (PARTITION BY attribute, part ORDER BY fits DESC, saved DESC, child) AS so_far
            FROM fitting
        ),
        taken AS (
            SELECT
                *,
                fits AND so_far <= whole - :least_class AND (so_far - child_rows) * :max_cut_off < whole AS is_taken
            FROM cumulated
        ),
        gains AS MATERIALIZED (
            SELECT
                *,
                CASE
                    WHEN child_count = 2 THEN saved_all
                    ELSE sum(saved) FILTER (WHERE is_taken) OVER (PARTITION BY attribute, part)
                END * scale AS gain,
                bool_or(is_taken) OVER (PARTITION BY attribute, part) AS any_taken
            FROM taken
        )
    SELECT i.attribute, i.part, i.item, b.is_taken AS inside, round(b.gain, 9) AS gain
    FROM split_items AS i
    JOIN gains AS b ON i.attribute = b.attribute AND i.part = b.part AND i.child = b.child
    WHERE b.any_taken
""")


run = on_combinations(mondrian)
