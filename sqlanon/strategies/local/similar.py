"""Strategy ``k-similar``: similar tuples in groups of k to 2k − 1 rows, so that little is lost.

Equal tuples stay together: what is grouped are the distinct combinations, so that one of 2k rows or more is in a
group of its size or more. Groups are made by what they would lose as the lowest nodes that their members have in
common.

- Of at most `FEW` combinations every grouping is tried: by this loss, the result is the best.
- Of more, those that agree at a generalization on a path through the lattice (see `Groups.climb`) are blocks. In a
  block every combination is a group at first. In each round a group that does not hold joins another of its block:
  that with which it has fewer than 2k rows, if there is one, and loses least more. So groups stop to grow once they
  hold. A block that loses less undivided stays whole, whatever its size.
- On a lattice of more than a million generalizations the blocks are the parts that `mondrian` cuts the table into.

They are released as ``summary`` says: as ranges of numbers and times (``"range"``) or the values of their middle rows
(``"median"``), and other attributes as lowest common ancestors; with ``"set"`` as ranges and sets of values. (A range
shows less than the ancestor only where the hierarchy does not follow the order of the values.)

The least loss is hard to find (Meyerson and Williams, "On the complexity of optimal k-anonymity", 2004), and is
approximated within O(k log k) by their algorithm and within O(k) by that of Aggarwal and others ("Anonymizing
tables", 2005; see `forest`), which look at all pairs of tuples. Here pairs are looked at in blocks only, and no factor
is guaranteed: just that every group holds, and that as lowest common ancestors the groups lose no more than the optimal
full-domain generalization.

The name and the aim, data that are distorted least, are those of k-Similar in L. Sweeney, "Computational disclosure
control" (2001). Its steps are not reproduced here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice import LatticeSearch
from sqlanon.strategies.lattice.limits import FIRST_GRACE, LimitReachedError
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.groups import (
    UNIT,
    Grouping,
    Groups,
    common_price,
    placed,
    summed,
)
from sqlanon.strategies.local.nodes import Tree
from sqlanon.strategies.local.summaries import allowed_nodes, summarise
from sqlanon.strategies.local.task import SHARE_BEFORE_CUTS, LocalOutcome, LocalTask
from sqlanon.support.expressions import fragment, number, template

FEW = 10
"""Of so many combinations every grouping is tried: 1,023 groups, and 3¹⁰ steps."""

MOST_TOGETHER = 500
"""Blocks of more combinations are not divided: pairs are compared."""

# Every group that so many combinations can form, as the number in which the bits of its combinations are set.
_ALL_GROUPS = template("""
    SELECT c.combination, s.cell::INTEGER AS cell
    FROM range(1, :end) AS s(cell)
    CROSS JOIN :combinations AS c
    WHERE ((s.cell::INTEGER >> c.combination) & 1) = 1
""")
# The groups that hold and may be released, with the price of all their rows.
_GROUP_PRICES = template("""
    SELECT g.cell, g.n, g.n * g.price
    FROM :classes AS g
    JOIN :judged AS j ON g.cell = j.cell
    WHERE j.kept AND g.price IS NOT NULL
""")
# How many persons have rows in the same combinations, and the number in which the bits of these are set; it is below 0
# where a row is in none.
_SETTLED_BY_PLACES = template("""
    SELECT coalesce(1 << combination, -1)::BIGINT AS places, sum(persons)::BIGINT AS persons
    FROM :members AS m
    GROUP BY combination
""")
_PERSONS_BY_PLACES = template("""
    SELECT places, sum(persons)::BIGINT AS persons
    FROM (
        SELECT coalesce(1 << combination, -1)::BIGINT AS places, sum(persons)::BIGINT AS persons
        FROM :members AS m
        WHERE mover IS NULL
        GROUP BY combination
        UNION ALL
        SELECT bit_or(coalesce(1 << combination, -1)::BIGINT) AS places, 1 AS persons
        FROM :members AS m
        WHERE mover IS NOT NULL
        GROUP BY mover
    ) AS p
    GROUP BY places
""")
_IN_CELLS = template("SELECT combination, cell FROM :members WHERE cell IN (:cells)")
# The members of groups that may be worth dividing, each a group of its own; their group is the block.
_OPEN_BLOCKS = template("""
    SELECT combination, block, cell
    FROM (
        SELECT
            m.combination,
            m.cell AS block,
            m.combination AS cell,
            count(*) OVER (PARTITION BY m.cell) AS together
        FROM :members AS m
        JOIN :classes AS g ON m.cell = g.cell
        WHERE g.n >= :rows AND g.price > 0
    ) AS b
    WHERE together <= :most
""")
# For each group that does not hold, ``one``, the ``other`` of its block that it is to join; whether both together are
# ``large``; and how much ``more`` they cost. Those that are not large come first, then those that cost least.
# What is least is one whole number for each pair, the other group last: of one group, pairs in the order of their least
# cells and then of their greatest are in that of the other's.
_PROPOSALS = template("""
    SELECT
        one,
        (best % 2147483648)::INTEGER AS other,
        best // 2147483648 >= 2305843009213693952 AS large,
        (best // 2147483648 % 2305843009213693952)::BIGINT AS more
    FROM (
        SELECT
            one,
            min(
                (CASE WHEN :large THEN 2305843009213693952 ELSE 0 END + :more)::HUGEINT * 2147483648 + other
            ) AS best
        FROM (
            SELECT
                f.cell AS one, g.cell AS other, f.n AS n_f, g.n AS n_g, f.price AS p_f, g.price AS p_g, :price AS price
            FROM (
                SELECT f.*, b.block, j.kept
                FROM :classes AS f
                JOIN :blocks AS b ON f.cell = b.combination
                JOIN :judged AS j ON f.cell = j.cell
            ) AS f
            JOIN (
                SELECT g.*, b.block, j.kept
                FROM :classes AS g
                JOIN :blocks AS b ON g.cell = b.combination
                JOIN :judged AS j ON g.cell = j.cell
            ) AS g ON f.block = g.block AND f.cell <> g.cell
            JOIN :prices AS x ON f.cell = x.combination
            JOIN :prices AS y ON g.cell = y.combination
            WHERE NOT f.kept
        ) AS p
        WHERE price IS NOT NULL
        GROUP BY one
    ) AS b
""")
_IS_LARGE = fragment("(n_f + n_g) >= :rows")
_MORE = fragment("(n_f + n_g) * price - n_f * p_f - n_g * p_g")
# The groups that are united in a round: ``cell``, and ``into``, the lesser of both. Two that propose each other are;
# and a group that holds takes in the one that fits it best. No group is in two unions.
_UNIONS = template("""
    SELECT *
    FROM (
        SELECT greatest(p.one, p.other) AS cell, least(p.one, p.other) AS "into"
        FROM :proposed AS p
        JOIN :proposed AS q ON p.other = q.one AND p.one = q.other AND p.one < q.one
        UNION ALL
        SELECT greatest(one, other) AS cell, least(one, other) AS "into"
        FROM (
            SELECT arg_min(p.one, (p.large, p.more, p.one)) AS one, p.other
            FROM :proposed AS p
            ANTI JOIN :proposed AS q ON p.other = q.one
            GROUP BY p.other
        ) AS t
    ) AS u
""")
_UNITED = template("""
    SELECT m.combination, m.block, coalesce(u."into", m.cell) AS cell
    FROM :blocks AS m
    LEFT JOIN :united AS u ON m.cell = u.cell
""")
# The members of the blocks that cost no more as they are divided.
_CHEAPER = template("""
    SELECT o.*
    FROM :blocks AS o
    JOIN (
        SELECT m.block, sum(g.n * g.price)::BIGINT AS whole
        FROM :blocks AS m
        JOIN :classes AS g ON g.cell = m.combination
        GROUP BY m.block
    ) AS s ON o.block = s.block
    JOIN :before AS b ON o.block = b.cell
    WHERE s.whole <= b.n * b.price
""")
_DIVIDED = template("""
    SELECT m.combination, coalesce(d.cell, m.cell) AS cell
    FROM :members AS m
    LEFT JOIN :better AS d ON m.combination = d.combination
""")
_PARTS = template("SELECT combination, cell AS part FROM :members")


def k_similar(task: LocalTask) -> LocalOutcome:
    """Group similar combinations.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``: at any time there are groups that hold.
    """
    search, start, best, rounds = grouped(task)
    if best is start and task.prepared.requirements.shields:
        # What is less than the generalization might break what the shields ask of some attributes.
        nodes = placed(best.members, best.classes, len(task.trees))
        return LocalOutcome(task, task.steps.make(task.work("similar_placed"), nodes), rounds=rounds, search=search)
    parts = task.steps.make(task.work("similar_parts"), _PARTS(members=best.members))
    outcome = summarise(task, parts, allowed_nodes(task, "similar"), "similar", rounds)
    return replace(outcome, search=search)


def grouped(task: LocalTask) -> tuple[LatticeSearch, Grouping, Grouping, int]:
    """The search for the full-domain optimum, its classes, the best groups, and how many rounds they took."""
    with task.clock.in_time(FIRST_GRACE):
        search, levels = task.start(share=SHARE_BEFORE_CUTS)
        similar = _Similar(task)
        start = similar.groups.at(levels)
    return search, start, similar.run(start), similar.groups.rounds


class _Similar:
    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.groups = Groups(task, "similar")

    def run(self, start: Grouping) -> Grouping:
        groups, best = self.groups, start
        count = self.task.steps.count(self.task.combinations)
        try:
            with self.task.clock.in_time():
                if count <= FEW:
                    return groups.better(best, self._best_of_all(count))
                if self.task.is_large:
                    best = groups.better(best, groups.cut(as_ancestors=False))
                else:
                    best = groups.better(best, groups.grouping(groups.climb(groups.prices)))
                return groups.better(best, self._divided(best))
        except LimitReachedError:
            return groups.best or start

    def _best_of_all(self, count: int) -> Grouping:
        """Of all groupings of few combinations, numbered from 0, the one that costs least."""
        groups, task = self.groups, self.task
        groups.refuse_over_time()
        every = groups.make(_ALL_GROUPS(end=2**count, combinations=task.combinations))
        classes = groups.tight(every).classes
        holding = task.engine.rows(_GROUP_PRICES(classes=classes, judged=groups.judged_cells(every)))
        rows = {cell: (n, price) for cell, n, price in holding}
        chosen = best_grouping(count, rows, task.rows - task.allowed_rows, self._too_many_persons())
        cells = [number(cell) for cell in chosen]
        return groups.tight(groups.make(_IN_CELLS(members=every, cells=cells)))

    def _too_many_persons(self) -> Callable[[int], bool]:
        """Whether too many persons have rows in combinations that some, as bits, are kept without."""
        members, limit = self.task.members, self.task.prepared.limit.persons
        if members.persons is None or limit is None:
            return lambda kept: False
        query = _PERSONS_BY_PLACES if members.moving else _SETTLED_BY_PLACES
        persons = self.task.engine.rows(query(members=members.persons))

        def too_many(kept: int) -> bool:
            return sum(int(count) for places, count in persons if places < 0 or places & ~kept) > limit

        return too_many

    def _divided(self, whole: Grouping) -> Grouping:
        groups, least = self.groups, self.task.members.requirements.min_class_rows
        blocks = groups.make(
            _OPEN_BLOCKS(members=whole.members, classes=whole.classes, rows=2 * least, most=MOST_TOGETHER)
        )
        while True:
            groups.refuse_over_time()
            classes = groups.tight(blocks).classes
            judged = groups.make(groups.judged_cells(blocks))
            proposed = groups.make(proposals(classes, judged, blocks, groups.prices, self.task.trees, 2 * least))
            if not self.task.steps.count(proposed):
                break
            united = groups.make(_UNIONS(proposed=proposed))
            blocks = groups.make(_UNITED(blocks=blocks, united=united))
        better = groups.make(_CHEAPER(blocks=blocks, classes=classes, before=whole.classes))
        return groups.tight(groups.make(_DIVIDED(members=whole.members, better=better)))


def proposals(
    classes: exp.Table, judged: exp.Table, blocks: exp.Table, prices: exp.Table, trees: Sequence[Tree], rows: int
) -> exp.Select:
    """For each group that does not hold the other of its block that it is to join; together they are large from so
    many rows on."""
    price = summed([common_price(i, tree, "y", ("f", "g")) for i, tree in enumerate(trees)])
    large, more = _IS_LARGE(rows=rows), _MORE()
    return _PROPOSALS(large=large, more=more, price=price, classes=classes, blocks=blocks, judged=judged, prices=prices)


def best_grouping(
    count: int, groups: dict[int, tuple[int, int]], needed: int, refused: Callable[[int], bool] = lambda things: False
) -> list[int]:
    """The groups that cost least together, have enough rows and are of no refused things; none if there are no such.

    >>> best_grouping(3, {0b011: (5, 7), 0b100: (4, 0), 0b111: (9, 20)}, 9)
    [3, 4]
    """
    # By things, as bits: their rows, the least cost of groups of just these, and the groups.
    best: dict[int, tuple[int, int, list[int]]] = {0: (0, 0, [])}
    for things in range(1, 2**count):
        low = things & -things
        others = part = things ^ low
        options = []
        while True:  # the group of the first thing: with each part of the others
            if part | low in groups and others ^ part in best:
                rows, cost, chosen = best[others ^ part]
                more_rows, more_cost = groups[part | low]
                options.append((rows + more_rows, cost + more_cost, [part | low, *chosen]))
            if not part:
                break
            part = (part - 1) & others
        if options:
            best[things] = min(options, key=lambda one: one[1:])
    enough = [one for things, one in best.items() if one[0] >= needed and not refused(things)]
    return min(enough, key=lambda one: (one[1] - one[0] * UNIT, one[2]), default=(0, 0, []))[2]


run = on_combinations(k_similar)
