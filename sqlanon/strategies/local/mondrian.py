"""Strategy ``mondrian``: the table is cut in two, and each part again, until no part can be cut any more.

All combinations are one part at first. (Where levels or labels that are not allowed keep them apart, they are several
parts, and those that do not meet the requirements are suppressed.) In each round one cut of each part is tried along
each attribute:

- Numbers and times are cut along their order, at the border nearest to the middle of the rows.
- Of other attributes one child of the lowest common ancestor is cut off the other children: the one that promises to
  lose least. (The paper cuts into all children at once. That needs every child to meet the requirements, so that one
  rare child would keep all others together.)
- With ``summary = "set"`` there are no ancestors to mind: the most frequent value is cut off the others, or as many of
  the most frequent as it takes to have rows enough.
- Where these have less than an eighth of the rows, the next ones go with them: rounds are few however many values there
  are.

Of the cuts whose two sides meet all requirements, the one that saves most loss is made. (The paper takes the attribute
with the widest range.) The rounds are breadth first: each is a few statements over all parts. In the end no cut that is
tried leaves two classes that meet the requirements. That proves nothing of other recodings.

``cuts = "strict"``: equal values of the attribute that is cut stay on one side. ``"relaxed"``: along an order, the rows
of one value may be divided between both sides, but not those of one combination of all attributes, which has one place
in a release. So ranges may overlap at their ends, and a value that repeats a lot keeps no large class together.

A class is released as ranges of numbers and times (``summary = "range"``), as the values of their middle rows
(``"median"``), or as ranges, and sets of other values (``"set"``). With the first two, other attributes are released as
lowest common ancestors. See `recode.local.summaries`.

Ranges end on a grid, unless the policy has ``ends = "exact"`` (see `recode.local.grid`). So numbers and times are cut
at the borders of its cells, and the ranges of both sides have nothing in common. A part within one cell is cut like
other attributes, the values being the children of the cell: that is a second way to cut the attribute, with a number of
its own. With ``cuts = "relaxed"`` rows of one cell may be divided, and ranges overlap in this cell.

A cut is given by rows, one an item: by ``attribute``, ``part`` and ``item`` the side that it goes to (``inside`` or
not), with the ``gain`` that the cut promises: by how much the loss of the part's rows falls, times the attribute's
weight.

Source: LeFevre, DeWitt and Ramakrishnan, Mondrian multidimensional k-anonymity (2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice.limits import FIRST_GRACE, LimitReachedError
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import COMBINATION, NODE, Tree, node_name
from sqlanon.strategies.local.summaries import PART, allowed_nodes, summarise
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.expressions import (
    aliased,
    col,
    fragment,
    is_there,
    number,
    subquery,
    template,
    union_all,
)

SHARE = 8
"""Where no single value (or child) has one of so many parts of the rows, several are cut off together: thousands of
values do not take thousands of rounds."""

SIDES = (PART, "attribute", "inside", "gain")
"""The columns that tell the sides of all cuts apart, and their gains."""


def mondrian(task: LocalTask) -> LocalOutcome:
    """Cut the table until no part can be cut, and release each part as a class.

    It ends sooner at the policy's ``time_limit``, or after ``max_checks`` rounds: at any time the parts meet the
    requirements.
    """
    with task.clock.in_time(FIRST_GRACE):
        allowed = allowed_nodes(task, "mondrian")
        cutting = Cutting(task, allowed)
    cutting.run()
    return summarise(task, cutting.classes, allowed, "mondrian", cutting.rounds)


_GREATEST_PART = template("SELECT coalesce(max(part), 0) FROM :parts")
_NO_CLASSES = template("SELECT combination, part FROM :parts WHERE FALSE")
_CLASSES = fragment("INSERT INTO :classes SELECT combination, part FROM :parts")
_UNCUT = fragment("""
    INSERT INTO :classes
    SELECT p.combination, p.part
    FROM :parts AS p
    ANTI JOIN :chosen AS h ON p.part = h.part
""")
_GOOD_PARTS = template("SELECT * FROM :parts WHERE part IN (SELECT part FROM :judged AS j WHERE kept)")
_SIDES = template("""
    SELECT r.combination, r.n, c.part, c.attribute, c.inside, c.gain
    FROM :rows AS r
    JOIN :parts AS p ON r.combination = p.combination
    JOIN :cuts AS c ON r.attribute = c.attribute AND r.item = c.item AND p.part = c.part
""")
# For each part that can be cut, the attribute along which it is: the greatest gain, then the first attribute.
_CHOSEN = template("""
    SELECT *, row_number() OVER (ORDER BY part) AS place
    FROM (
        SELECT part, attribute
        FROM (
            SELECT *, row_number() OVER (PARTITION BY part ORDER BY gain DESC, attribute) AS rank
            FROM (
                SELECT part, attribute, gain
                FROM :judged AS j
                GROUP BY part, attribute, gain
                HAVING bool_and(kept)
            ) AS q
        ) AS r
        WHERE rank = 1
    ) AS q
""")
# What is inside keeps the number of its part, what is not gets one of its own.
_DIVIDED = template("""
    SELECT s.combination, s.n, CASE WHEN s.inside THEN s.part ELSE (h.place + :last)::INTEGER END AS part
    FROM :sides AS s
    JOIN :chosen AS h ON s.part = h.part AND s.attribute = h.attribute
""")


class Cutting:
    """The parts, and the rounds that cut them.

    ``parts`` has the combinations of the parts that may still be cut, ``sides`` the combinations by each cut that is
    tried, ``classes`` the combinations of the parts that are not cut any more.
    """

    def __init__(self, task: LocalTask, allowed: tuple[exp.Table, ...], as_ancestors: bool = False) -> None:
        if as_ancestors:  # of all attributes, whatever the policy's summary is
            trees = tuple(replace(tree, ordered=False, grid=None, members=None) for tree in task.trees)
            task = replace(task, trees=trees)
        self.task = task
        self.rounds = 0
        search = task.prepared.policy.search
        by_combination = [search.cuts == "relaxed" and tree.ordered for tree in task.trees]
        self._as_sets = search.summary == "set" and not as_ancestors
        self._least = task.members.requirements.min_class_rows
        self._open = self._begin(allowed)
        self._last = int(task.engine.rows(_GREATEST_PART(parts=self._open))[0][0])
        self.classes = self._make("mondrian_classes", _NO_CLASSES(parts=self._open))
        self._attributes = several_levels(task.trees)
        self._cut_by_tree = [i for i, tree in self._attributes if not (tree.ordered or self._as_sets)]
        self._cut_by_tree += [len(task.trees) + i for i, tree in self._attributes if _has_levels_in_cells(tree)]
        if self._attributes:
            self._rows = self._make("mondrian_rows", cut_rows(task.combinations, task.trees, by_combination))
            self._values = self._make("mondrian_ground", cut_values(task.trees, by_combination))
            if self._cut_by_tree:
                self._ancestors = self._make("mondrian_ancestors", cut_ancestors(task.combinations, task.trees))

    def run(self) -> exp.Table:
        """Cut until nothing can be cut, or the time is over: ``classes``."""
        try:
            with self.task.clock.in_time():
                while self.go_on():
                    pass
        except LimitReachedError:
            self.stop()
        return self.classes

    def go_on(self) -> bool:
        """Make one round of cuts; whether there was any."""
        task = self.task
        if not self._attributes:
            self.stop()
            return False
        task.clock.spend()
        self.rounds += 1
        cuts = self._make("mondrian_cuts", self._cuts())
        sides = self._make("mondrian_sides", _SIDES(rows=self._rows, parts=self._open, cuts=cuts))
        chosen = self._make("mondrian_chosen", _CHOSEN(judged=subquery(task.judged(sides, SIDES))))
        divided = task.steps.count(chosen)
        after = self._make(f"mondrian_parts_{self.rounds}", _DIVIDED(sides=sides, chosen=chosen, last=self._last))
        # Where a statement is interrupted, a part is still in one place: with the classes, or open.
        task.engine.execute(_UNCUT(classes=self.classes, parts=self._open, chosen=chosen))
        before, self._open = self._open, after
        self._last += divided
        self._drop(cuts, sides, chosen, before)
        task.progress(2 * divided, self.rounds, None)
        return divided > 0

    def _cuts(self) -> exp.Query:
        """One cut of each part along each attribute."""
        by_value = [number(i) for i, tree in self._attributes if tree.ordered or self._as_sets]
        given = {"rows": self._rows, "parts": self._open, "share": number(SHARE), "least": number(self._least)}
        cuts = []
        if by_value:
            facts, lost = _facts_of_sides()
            cuts.append(_CUT_OF_VALUES(**given, attributes=by_value, values=self._values, facts=facts, **lost))
        if self._cut_by_tree:
            twice, by_tree = 2 * self._least, [number(i) for i in self._cut_by_tree]
            cuts.append(_CUT_OF_HIERARCHY(**given, attributes=by_tree, ancestors=self._ancestors, twice_least=twice))
        return union_all(*(_ALL(cut=subquery(cut)) for cut in cuts))

    def stop(self) -> None:
        """Leave the parts as they are."""
        self.task.engine.execute(_CLASSES(classes=self.classes, parts=self._open))

    def _begin(self, allowed: tuple[exp.Table, ...]) -> exp.Table:
        task = self.task
        bounded = {i: allowed[i] for i, tree in enumerate(task.trees) if tree.ceiling < tree.height or tree.forbidden}
        first = self._make("mondrian_first", first_parts(task.combinations, task.trees, bounded))
        good = self._make("mondrian_parts_0", _GOOD_PARTS(parts=first, judged=task.judged(first, [PART])))
        self._drop(first)
        return good

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        return self.task.steps.make(self.task.work(name), query)

    def _drop(self, *tables: exp.Table) -> None:
        self.task.steps.drop(*tables)


def several_levels(trees: Sequence[Tree]) -> list[tuple[int, Tree]]:
    """The attributes that may have several values, by number."""
    return [(i, tree) for i, tree in enumerate(trees) if tree.floor < tree.height]


_ALL = template("SELECT * FROM :cut")
_FIRST_PARTS = template("SELECT c.combination, c.n, :part::INTEGER AS part FROM :combinations AS c")
_PART = fragment("dense_rank() OVER (ORDER BY :highest) - 1")


def first_parts(combinations: exp.Table, trees: Sequence[Tree], bounded: Mapping[int, exp.Table]) -> exp.Select:
    """The parts to begin with: what can be released as one, for what levels and labels are allowed."""
    highest = [col("highest", f"a{i}") for i in bounded]
    query = _FIRST_PARTS(part=_PART(highest=highest) if highest else number(0), combinations=combinations)
    for i, table in bounded.items():
        on = col(node_name(i, trees[i].floor), "c").eq(col(NODE, f"a{i}"))
        query = query.join(aliased(table, f"a{i}"), on=on, copy=False)
        query = query.where(is_there(col("highest", f"a{i}")), copy=False)
    return query


_ROWS = template("SELECT :attribute AS attribute, combination, :item AS item, :node AS node, n FROM :combinations")
_ROWS_BY_CELL = template("""
    SELECT :attribute AS attribute, c.combination, g.cell AS item, g.cell AS node, c.n
    FROM :combinations AS c
    JOIN :grid AS g ON :ground = g.node
""")


def cut_rows(combinations: exp.Table, trees: Sequence[Tree], by_combination: Sequence[bool]) -> exp.Query:
    """``rows``: for each combination and attribute that has several levels its ``node`` at the lowest, or its cell, and
    its ``item``, what a cut keeps together: the node, the cell, or the combination."""
    branches = []
    for i, tree in several_levels(trees):
        name = node_name(i, tree.floor)
        by_node = _ROWS(attribute=i, item=col(name), node=col(name), combinations=combinations)
        if by_combination[i]:
            branches.append(_ROWS(attribute=i, item=col(COMBINATION), node=col(name), combinations=combinations))
        elif tree.grid is not None:
            ground = col(name, "c")
            branches.append(_ROWS_BY_CELL(attribute=i, ground=ground, grid=tree.grid.table, combinations=combinations))
        else:
            branches.append(by_node)
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
        :void AS void,
        :top::DOUBLE AS top,
        :scale::DOUBLE AS scale,
        :ordered AS ordered
    FROM :nodes
    WHERE level = :floor
""")
_VALUES_OF_GRID = template("""
    SELECT DISTINCT
        :attribute AS attribute,
        :node AS node,
        :place AS place,
        g.cell_low AS low,
        g.cell_high AS high,
        (g.cell_high - g.cell_low)::DOUBLE AS leaves,
        g.lower IS NULL AND g.upper IS NULL AS void,
        :top::DOUBLE AS top,
        :scale::DOUBLE AS scale,
        TRUE AS ordered
    FROM :grid AS g
    JOIN :nodes AS v ON g.node = v.node
""")
_IS_VOID = fragment("label IS NULL")
_IS_NO_MEMBER = fragment("node NOT IN (SELECT node FROM :members AS m WHERE :is_member)")


def cut_values(trees: Sequence[Tree], by_combination: Sequence[bool]) -> exp.Query:
    """``values``: the attributes' lowest nodes, or the cells of their grids, in the order of ``place``, with what their
    tree's root loses (``top``), what a lost leaf counts (``scale``), and whether they are ``ordered``. What is ``void``
    is in no range or set with others."""
    branches = []
    for i, tree in several_levels(trees):
        common = {"attribute": i, "top": tree.leaves - 1, "scale": _scale(tree), "nodes": tree.nodes}
        if tree.grid is not None:
            by_value = by_combination[i]
            node, place = (col(NODE, "g"), col("low", "v")) if by_value else (col("cell", "g"), col("cell_low", "g"))
            branches.append(_VALUES_OF_GRID(**common, node=node, place=place, grid=tree.grid.table))
            continue
        void = _IS_VOID()
        if tree.members is not None:
            may_be = exp.or_(*(col(f"is_member_{level}") for level in range(tree.floor, tree.height)))
            void = _IS_NO_MEMBER(members=tree.members, is_member=may_be)
        ordered = exp.true() if tree.ordered else exp.false()
        branches.append(_VALUES(**common, void=void, ordered=ordered, floor=tree.floor))
    return union_all(*branches)


def _scale(tree: Tree) -> float:
    return tree.weight / max(tree.leaves - 1, 1)


_ANCESTORS = template("""
    SELECT :attribute AS attribute, p.item, :level AS level, p.node, v.leaves, :scale::DOUBLE AS scale
    FROM (SELECT DISTINCT :ground AS item, :node AS node FROM :combinations) AS p
    JOIN :nodes AS v ON p.node = v.node
""")
_CELL_ABOVE = template("""
    SELECT
        :attribute AS attribute,
        node AS item,
        :level AS level,
        cell AS node,
        (cell_high - cell_low)::DOUBLE AS leaves,
        :scale::DOUBLE AS scale
    FROM :grid
""")


def cut_ancestors(combinations: exp.Table, trees: Sequence[Tree]) -> exp.Query:
    """``ancestors``: for each lowest node of an attribute that has several levels, itself and those above it; within
    the cells of a grid, those up to the cell."""
    branches: list[exp.Query] = []
    for i, tree in several_levels(trees):
        top, attribute = tree.height, i
        if tree.grid is not None:
            if not _has_levels_in_cells(tree):
                continue
            attribute = len(trees) + i
            top = tree.floor if tree.grid.level is None else tree.grid.level
            if tree.grid.level is None:
                cell = _CELL_ABOVE(attribute=attribute, level=top + 1, scale=_scale(tree), grid=tree.grid.table)
                branches.append(cell)
        branches += [
            _ANCESTORS(
                attribute=attribute,
                level=level,
                scale=_scale(tree),
                ground=col(node_name(i, tree.floor)),
                node=col(node_name(i, level)),
                combinations=combinations,
                nodes=tree.nodes,
            )
            for level in range(tree.floor, top + 1)
        ]
    return union_all(*branches)


# Numbers and times are cut along their order, at the border nearest to the middle of the rows, the first of equals;
# NULL is the least value. Of other values the most frequent is cut off, or as many of the most frequent as have
# ``least`` rows, and one of `SHARE` parts of all. Equal gains are ties, however they were worked out: they are rounded.
_CUT_OF_VALUES = template("""
    WITH sides AS MATERIALIZED (
        SELECT
            *,
            CASE
                WHEN ordered THEN
                    so_far <= arg_min(
                        so_far, 2 * abs(2 * so_far - whole) + CASE WHEN 2 * so_far - whole > 0 THEN 1 ELSE 0 END
                    ) FILTER (WHERE so_far < whole) OVER (PARTITION BY attribute, part)
                ELSE so_far - n < :least OR (so_far - n) * :share < whole
            END AS inside
        FROM (
            SELECT
                *,
                (
                    sum(n) OVER (PARTITION BY attribute, part ORDER BY CASE WHEN ordered THEN place ELSE -n END, item)
                )::BIGINT AS so_far,
                (sum(n) OVER (PARTITION BY attribute, part))::BIGINT AS whole
            FROM (
                SELECT
                    i.attribute, i.part, i.item, i.n,
                    v.place, v.low, v.high, v.leaves, v.void, v.top, v.scale, v.ordered
                FROM (
                    SELECT r.attribute, p.part, r.item, r.node, sum(r.n)::BIGINT AS n
                    FROM :rows AS r
                    JOIN :parts AS p ON r.combination = p.combination
                    WHERE r.attribute IN (:attributes)
                    GROUP BY r.attribute, p.part, r.item, r.node
                ) AS i
                JOIN :values AS v ON i.node = v.node AND i.attribute = v.attribute
            ) AS q
        ) AS q
    ),
    gains AS MATERIALIZED (
        SELECT attribute, part, (:lost_all - :lost_in - :lost_out) * scale AS gain
        FROM (
            SELECT
                attribute,
                part,
                any_value(top) AS top,
                any_value(scale) AS scale,
                any_value(ordered) AS ordered,
                :facts
            FROM sides
            GROUP BY attribute, part
        ) AS g
        WHERE low_all < last_all AND rows_in >= :least AND rows_out >= :least
    )
    SELECT i.attribute, i.part, i.item, i.inside AS inside, round(b.gain, 9) AS gain
    FROM sides AS i
    JOIN gains AS b ON i.attribute = b.attribute AND i.part = b.part
""")
_FACTS = template("""
    SELECT
        (sum(n) FILTER (WHERE :here))::BIGINT AS rows,
        min(low) FILTER (WHERE :here) AS low,
        max(low) FILTER (WHERE :here) AS last,
        max(high) FILTER (WHERE :here) AS high,
        bool_or(void) FILTER (WHERE :here) AS void,
        sum(leaves + 1) FILTER (WHERE :here) AS size
""")
# What is shown as one range loses its width, and what is shown as one set the values in it. Where NULL is among
# several, all is lost.
_LOST = fragment("""
    :rows * CASE
        WHEN :void AND :low < :last THEN top
        ELSE CASE WHEN ordered THEN :high - :low ELSE :size - 1 END
    END
""")
_CONDITIONS = {"all": fragment("TRUE"), "in": fragment("inside"), "out": fragment("NOT inside")}


def _facts_of_sides() -> tuple[list[exp.Expr], dict[str, exp.Expr]]:
    """The facts of a part and of both sides of its cut, and what each of them loses."""
    facts: list[exp.Expr] = []
    lost: dict[str, exp.Expr] = {}
    for name, condition in _CONDITIONS.items():
        found = _FACTS(here=condition()).expressions
        facts += [exp.alias_(fact.this, f"{fact.alias}_{name}", quoted=True, copy=False) for fact in found]
        lost[f"lost_{name}"] = _LOST(**{fact.alias: col(f"{fact.alias}_{name}") for fact in found})
    return facts, lost


# One child of the lowest common ancestor is cut off the others: the one that promises most, or as many of those that
# promise most as have one of `SHARE` parts of the rows. Their rows are promised their child, and where there are two
# children, those of the other the other. Only children are cut off that have rows enough, in and beside them.
_CUT_OF_HIERARCHY = template("""
    WITH items AS MATERIALIZED (
        SELECT r.attribute, p.part, r.item, r.node, sum(r.n)::BIGINT AS n
        FROM :rows AS r
        JOIN :parts AS p ON r.combination = p.combination
        WHERE r.attribute IN (:attributes)
        GROUP BY r.attribute, p.part, r.item, r.node
    ),
    wide AS MATERIALIZED (
        SELECT *
        FROM (
            SELECT attribute, part, sum(n)::BIGINT AS whole, count(*) AS members
            FROM items
            GROUP BY attribute, part
        ) AS g
        WHERE members > 1 AND whole >= :twice_least
    ),
    common AS MATERIALIZED (
        SELECT attribute, part, min(level) AS level, arg_min(leaves, level) AS leaves
        FROM (
            SELECT attribute, part, level, any_value(leaves) AS leaves
            FROM (
                SELECT i.attribute, i.part, a.level, a.node, a.leaves
                FROM items AS i
                JOIN wide AS b ON i.attribute = b.attribute AND i.part = b.part
                JOIN :ancestors AS a ON i.item = a.item AND i.attribute = a.attribute
            ) AS m
            GROUP BY attribute, part, level
            HAVING min(node) = max(node)
        ) AS l
        GROUP BY attribute, part
    ),
    split AS MATERIALIZED (
        SELECT
            i.attribute, i.part, i.item, i.n, a.node AS child, a.scale,
            i.n * (b.leaves - a.leaves) AS saved
        FROM items AS i
        JOIN common AS b ON i.attribute = b.attribute AND i.part = b.part
        JOIN :ancestors AS a ON i.item = a.item AND i.attribute = a.attribute AND a.level = b.level - 1
    ),
    children AS MATERIALIZED (
        SELECT *
        FROM (
            SELECT
                *,
                CASE
                    WHEN children = 2 THEN saved_all
                    ELSE sum(saved) FILTER (WHERE taken) OVER (PARTITION BY attribute, part)
                END * scale AS gain,
                bool_or(taken) OVER (PARTITION BY attribute, part) AS any_taken
            FROM (
                SELECT *, fits AND so_far <= whole - :least AND (so_far - border) * :share < whole AS taken
                FROM (
                    SELECT
                        *,
                        sum(border) OVER (
                            PARTITION BY attribute, part ORDER BY fits DESC, saved DESC, child
                        ) AS so_far
                    FROM (
                        SELECT *, border >= :least AND border <= whole - :least AS fits
                        FROM (
                            SELECT
                                *,
                                sum(border) OVER (PARTITION BY attribute, part) AS whole,
                                sum(saved) OVER (PARTITION BY attribute, part) AS saved_all,
                                count(*) OVER (PARTITION BY attribute, part) AS children
                            FROM (
                                SELECT
                                    attribute, part, child,
                                    sum(n)::BIGINT AS border, sum(saved) AS saved, any_value(scale) AS scale
                                FROM split
                                GROUP BY attribute, part, child
                            ) AS q
                        ) AS q
                    ) AS q
                ) AS q
            ) AS q
        ) AS g
        WHERE any_taken
    )
    SELECT i.attribute, i.part, i.item, b.taken AS inside, round(b.gain, 9) AS gain
    FROM split AS i
    JOIN children AS b ON i.attribute = b.attribute AND i.part = b.part AND i.child = b.child
""")


run = on_combinations(mondrian)
