"""Cell suppression: rows that a generalization would leave out are released with blanks, as few as may be.

A blank is the attribute's top label. It is a value of its own, as a reader sees it: a row with blanks is in the class
of the rows that read the same, blanks and all. Counting a blank as a wildcard, which matches any value, calls tables
k-anonymous in which a reader finds smaller classes.

Rows that read the same at the generalization are blanked alike, and kept rows stay as they are. What is sought is the
least weight of blanked cells, by the attributes' weights, a suppressed row counting as one that is all blank:

- Of up to `EXACT` failing classes, and where no kept row reads as blank, every way to part them into blocks is tried;
  a block is blanked where its rows differ. That is the least weight there is, if two classes that meet the policy meet
  it as one (all requirements but for persons who are in several combinations).
- Else in rounds, by sets of blanked attributes, the lightest first. Each class chooses, among those of its sets that
  would be in a class that meets the policy if all others chose so too, the lightest, then the largest class. What then
  does meet it stays; if nothing does, the best single class is made. There is no bound on how far that is from the
  least (the problem is NP-hard: Meyerson, Williams, "On the complexity of optimal k-anonymity", 2004).

What finds no place is suppressed.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sqlanon.coding import Levels
from sqlanon.expressions import aliased, col, drop_table, select, star, subquery
from sqlanon.recode.local import cells_statements as q
from sqlanon.recode.local import partitions as ws
from sqlanon.recode.local.nodes import released_name
from sqlanon.recode.local.placed import judged_groups
from sqlanon.recode.local.task import LocalOutcome, LocalTask
from sqlanon.search.budget import LimitReachedError

EXACT = 8
"""Of so many failing classes every way is tried: 21,147."""

TRIES = 2_000_000
"""So many rows are tried in one statement, at most: waiting combinations times sets of blanks, or times ways."""


def cells(task: LocalTask, levels: Levels) -> LocalOutcome:
    """Blank cells of the rows that a generalization would suppress.

    Parameters
    ----------
    task:
        The source.
    levels:
        The generalization: it satisfies the policy.
    """
    return _Cells(task, levels).run()


class _Cells:
    def __init__(self, task: LocalTask, levels: Levels) -> None:
        self.task, self.levels = task, levels
        self.count = len(task.trees)
        self.nodes = [released_name(i) for i in range(self.count)]
        self.rounds = 0
        self._made = 0

    def run(self) -> LocalOutcome:
        task, trees = self.task, self.task.trees
        seen = self._make("seen", q.as_read(task.combinations, trees, self.levels))
        # What the generalization keeps is kept as it is: here the shields are asked for as they are.
        members = replace(task.members, requirements=task.prepared.requirements)
        judged = judged_groups(members, aliased(seen, "s"), self.nodes)
        self.read = self._make("read", q.with_classes(seen, judged, self.count))
        self.blankable = [
            i
            for i, (tree, level) in enumerate(zip(trees, self.levels, strict=True))
            if level < tree.height and task.engine.rows(q.is_released(tree))[0][0]
        ]
        self.helpers = self._make("helpers", q.helpers(self.read, trees, self.blankable))
        self.rows = self._make("rows", q.waiting(self.read, self.count))
        choice = self._choice()
        placed = task.steps.make(
            task.work("cells_placed"), q.released(task.combinations, self.read, choice, trees, self.levels)
        )
        return LocalOutcome(placed, rounds=self.rounds)

    def _choice(self) -> exp.Table:
        """Where the rows of failing classes are placed: ``class`` and ``node_i``."""
        none = select([col(q.CLASS), *(col(node) for node in self.nodes)], self.rows.copy())
        nowhere = self._make("choice", none.where(exp.false(), copy=False))
        failing: list[exp.Expr] = [exp.Count(this=exp.Distinct(expressions=[col(q.CLASS)])), exp.Count(this=exp.Star())]
        classes, combinations = self.task.engine.rows(select(failing, self.rows.copy()))[0]
        if not classes or not self.blankable:
            return nowhere
        helped = self.task.steps.count(self.helpers)
        if classes <= EXACT and not helped and combinations * _ways(classes) <= TRIES:
            return self._exactly(classes)
        return self._in_rounds(nowhere)

    def _exactly(self, classes: int) -> exp.Table:
        trees, judged = self.task.trees, self.task.judged
        ways = self._make("ways", ws.first_ways())
        for done in range(classes):
            ways = self._make("ways", ws.more_ways(ways, done))
        parts = self._make("parts", ws.parted(ways, classes))
        placed = self._make("blocks", ws.blocks(parts, self.rows, trees, self.blankable))
        query = q.placed_rows(self.rows, placed, self.count).select(col(ws.WAY, "d"), copy=False)
        groups = self._make("groups", judged(subquery(query), [ws.WAY, *self.nodes]))
        self.rounds += 1
        best = self.task.engine.rows(ws.best_way(parts, placed, star(groups.copy()), self.rows, trees))
        return self._make("choice", ws.of_way(placed, star(groups.copy()), best[0][0], self.count))

    def _in_rounds(self, choice: exp.Table) -> exp.Table:
        patterns = self._make("patterns", q.patterns(self.task.trees, self.blankable))
        sizes = select([col(q.BUCKET), exp.Count(this=exp.Star())], patterns.copy(), [col(q.BUCKET)])
        first = 1
        for _, many in self.task.engine.rows(sizes.order_by(col(q.BUCKET), copy=False)):
            end = first + many
            while first < end:
                rows = self._make("waiting", q.waiting(self.read, self.count, choice))
                left = self.task.steps.count(rows)
                if not left:
                    return choice
                self.task.progress(left, self.rounds, None)
                last = min(first + max(TRIES // left, 1), end) - 1
                choice = self._place(choice, patterns, first, last)
                first = last + 1
        return choice

    def _place(self, choice: exp.Table, patterns: exp.Table, first: int, last: int) -> exp.Table:
        """Place all that can be with some of the patterns; the choice with it."""
        trees = self.task.trees
        while True:
            try:
                self.task.clock.spend()
            except LimitReachedError:
                return choice
            self.rounds += 1
            rows = self._make("waiting", q.waiting(self.read, self.count, choice))
            tried = self._make("tried", q.tries(rows, patterns, trees, self.blankable, first, last))
            fixed: list[exp.Expr] = [self.helpers, subquery(q.placed_rows(self.rows, choice, self.count))]
            judged = self._judged(tried, fixed)
            possible = self._make("options", q.options(tried, judged, self.count))
            if not self.task.steps.count(possible):
                self._drop(rows, tried, possible)
                return choice
            chosen = self._make("chosen", q.chosen(possible, self.count))
            there = self._judged(subquery(q.placed_rows(rows, chosen, self.count)), fixed)
            accepted = self._make("accepted", q.good(chosen, there, self.count))
            if not self.task.steps.count(accepted):
                accepted = self._make("accepted", q.single_best(possible, self.count))
            choice = self._make("choice", q.both(choice, accepted))
            self._drop(rows, tried, possible)

    def _judged(self, tried: exp.Expr, fixed: list[exp.Expr]) -> exp.Select:
        return self.task.judged(q.together(tried, fixed, self.count), self.nodes)

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._made += 1
        return self.task.steps.make(self.task.work(f"cells_{name}_{self._made}"), query)

    def _drop(self, *tables: exp.Table) -> None:
        for table in tables:
            self.task.engine.execute(drop_table(table.copy()))


def _ways(classes: int) -> int:
    """How many ways there are to part so many classes into blocks, of which one may be suppressed: a Bell number.

    >>> [_ways(classes) for classes in range(1, 9)]
    [2, 5, 15, 52, 203, 877, 4140, 21147]
    """
    row = [1]
    for _ in range(classes):
        following = [row[-1]]
        for value in row:
            following.append(following[-1] + value)
        row = following
    return row[-1]
