"""Strategy ``k-similar``: similar tuples in groups of k to 2k − 1 rows, so that little is lost.

Equal tuples stay together: what is grouped are the distinct combinations, so that one of 2k rows or more is in a
group of its size or more. Groups are made by what they would lose as the lowest nodes that their members have in
common.

- Of at most `FEW` combinations every grouping is tried: by this loss, the result is the best.
- Of more, those that agree at a generalization on a path through the lattice (see `Groups.climb`) are blocks. In a
  block every combination is a group at first. In each round a group that does not hold joins another of its block:
  that with which it has fewer than 2k rows, if there is one, and loses least more. So groups stop to grow once they
  hold. A block that loses less undivided stays whole, whatever its size.

They are released as ``summary`` says: as ranges of numbers and times (``"range"``) or the values of their middle rows
(``"median"``), and other attributes as lowest common ancestors; with ``"set"`` as ranges and sets of values. (A range
shows less than the ancestor only where the hierarchy does not follow the order of the values.)

The least loss is hard to find (Meyerson and Williams, "On the complexity of optimal k-anonymity", 2004), and is
approximated within O(k log k) by their algorithm and within O(k) by that of Aggarwal and others ("Anonymizing
tables", 2005), which look at all pairs of tuples. Here pairs are looked at in blocks only, and no factor is
guaranteed: just that every group holds, and that as lowest common ancestors the groups lose no more than the optimal
full-domain generalization.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sqlanon.expressions import col, named, select, subquery
from sqlanon.recode.local import groups_statements as gr
from sqlanon.recode.local import similar_statements as sm
from sqlanon.recode.local.cuts import PART
from sqlanon.recode.local.groups import Grouping, Groups
from sqlanon.recode.local.nodes import COMBINATION
from sqlanon.recode.local.summarised import allowed_nodes, summarised
from sqlanon.recode.local.task import LocalOutcome, LocalTask
from sqlanon.search import Search
from sqlanon.search.budget import LimitReachedError

FEW = 10
"""Of so many combinations every grouping is tried: 1,023 groups, and 3¹⁰ steps."""

MOST_TOGETHER = 500
"""Blocks of more combinations are not divided: pairs are compared."""


def k_similar(task: LocalTask) -> LocalOutcome:
    """Group similar combinations.

    It ends sooner at the policy's ``time_limit`` or ``max_checks``: at any time there are groups that hold.

    Raises
    ------
    InfeasibleError
        No full-domain generalization satisfies the policy.
    """
    search, start, best, rounds = grouped(task)
    if best is start and task.prepared.requirements.shields:
        # What is less than the generalization might break what the shields ask of some attributes.
        nodes = gr.placed(best.members, best.classes, len(task.trees))
        return LocalOutcome(task.steps.make(task.work("similar_placed"), nodes), rounds=rounds, search=search)
    columns: list[exp.Expr] = [col(COMBINATION), named(col(gr.CELL), PART)]
    parts = task.steps.make(task.work("similar_parts"), select(columns, best.members.copy()))
    shown = summarised(task, parts, allowed_nodes(task, "similar"), "similar", rounds)
    return replace(shown, search=search)


def grouped(task: LocalTask) -> tuple[Search, Grouping, Grouping, int]:
    """The search for the full-domain optimum, its classes, the best groups, and how many rounds they took."""
    search, levels = task.start()
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
            if count <= FEW:
                return groups.better(best, self._best_of_all(count))
            best = groups.better(best, groups.grouping(groups.climb(groups.prices)))
            best = groups.better(best, self._divided(best))
        except LimitReachedError:
            pass
        return best

    def _best_of_all(self, count: int) -> Grouping:
        """Of all groupings of few combinations, numbered from 0, the one that costs least."""
        groups, task = self.groups, self.task
        groups.refuse_late()
        every = groups.make(sm.all_groups(task.combinations, count))
        classes = groups.tight(every).classes
        judged = task.judged(subquery(gr.sized(every, groups.prices), "s"), [gr.CELL])
        rows = {cell: (n, price) for cell, n, price in task.engine.rows(sm.group_prices(classes, judged))}
        chosen = best_grouping(count, rows, task.rows - task.allowed_rows)
        return groups.tight(groups.make(sm.in_cells(every, chosen)))

    def _divided(self, whole: Grouping) -> Grouping:
        groups, task, least = self.groups, self.task, self.task.members.requirements.least_class
        now = groups.make(sm.open_blocks(whole.members, whole.classes, 2 * least, MOST_TOGETHER))
        while True:
            groups.refuse_late()
            classes = groups.tight(now).classes
            judged = groups.make(task.judged(subquery(gr.sized(now, groups.prices), "s"), [gr.CELL]))
            proposed = groups.make(sm.proposals(classes, judged, now, groups.prices, task.trees, 2 * least))
            if not task.steps.count(proposed):
                break
            now = groups.make(sm.united(now, groups.make(sm.unions(proposed))))
        better = groups.make(sm.cheaper(now, classes, whole.classes))
        return groups.tight(groups.make(sm.divided(whole.members, better)))


def best_grouping(count: int, groups: dict[int, tuple[int, int]], needed: int) -> list[int]:
    """The groups that cost least together and have enough rows; none if there are no such.

    Parameters
    ----------
    count:
        How many things are grouped.
    groups:
        By the things in it, as bits, the rows of a group and what it costs. What is not there is no group.
    needed:
        So many rows must be in groups. A row that is in none costs `recode.local.groups_statements.UNIT`.

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
    enough = [one for one in best.values() if one[0] >= needed]
    return min(enough, key=lambda one: (one[1] - one[0] * gr.UNIT, one[2]), default=(0, 0, []))[2]
