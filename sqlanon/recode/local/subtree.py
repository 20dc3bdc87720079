"""Strategy ``subtree``: a cut of each attribute's hierarchy, the same for all rows: a subtree is generalized or not.

Full-domain generalization gives all values of an attribute one level; here each ground value is released as the one
node of the cut that stands above it, or as itself, so that a part of the hierarchy where values are rare may be
generalized further than another. Classes that break the policy are suppressed, whole, at most as many rows as may be.

It starts at the optimal full-domain generalization and goes

- top-down: a node of a cut is *split* into those below it. One statement tells for all nodes of an attribute what
  splitting gains and how many rows it suppresses beside. The split with the most gain for each suppressed row is next.
  A split of one attribute mostly takes from what the splits of the others gain, so that those are looked at again only
  once they are next, and at the end;
- bottom-up: where no split is left, a node above a cut is *raised* to replace what is below it, and all that can be
  split is split again, itself last. Of the `TRIED` cheapest such moves the best is made, until none is worth it.

The price is the mean loss with the attributes' weights; a suppressed row costs a little more than one that shows
nothing. It never rises, so that the result is never worse than its start. It is no proven optimum.

Sources: top-down specialization by information gained per anonymity lost, Fung, Wang, Yu, "Top-down specialization for
information and privacy preservation" (2005); bottom-up, by information lost per anonymity gained, Wang, Yu,
Chakraborty, "Bottom-up generalization: a data mining solution to privacy protection" (2004); cuts, Iyengar,
"Transforming data to satisfy privacy constraints" (2002). Theirs take one direction each, and start at an end of the
lattice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import aliased, col, drop_table, select, total
from sqlanon.recode.local import subtree_statements as cuts
from sqlanon.recode.local.nodes import NODE, released_name
from sqlanon.recode.local.placed import Members, judged_groups
from sqlanon.recode.local.task import LocalOutcome, LocalTask
from sqlanon.search.budget import LimitReachedError

TRIED = 32
"""So many of the moves up are tried, those that cost least, before the best of them is made."""


def subtree(task: LocalTask) -> LocalOutcome:
    """Find a cut of each attribute's hierarchy.

    Raises
    ------
    InfeasibleError
        No full-domain generalization satisfies the policy.
    """
    return _Cuts(task).run()


@dataclass(frozen=True)
class _Cut:
    """A cut of each hierarchy.

    Attributes
    ----------
    cutting, classes:
        Made by `recode.local.subtree_statements`.
    price, lost, count:
        The price of all rows, the rows that are suppressed, and the kept classes.
    """

    cutting: exp.Table
    classes: exp.Table
    price: int
    lost: int
    count: int


@dataclass(frozen=True)
class _Split:
    """A node that may be split, what that gains, and how many rows it suppresses beside."""

    node: int
    gain: int
    lost: int

    @property
    def worth(self) -> float:
        """The gain for each row that is suppressed beside."""
        return self.gain / (1 + max(self.lost, 0))


class _Cuts:
    """The search for cuts; it counts its checks."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.attributes = range(len(task.trees))
        self.checks = 0
        self._made = 0
        self._nodes = [released_name(i) for i in self.attributes]

    def run(self) -> LocalOutcome:
        task, work, trees = self.task, self.task.work, self.task.trees
        search, levels = task.start()
        self.down, self.up = (
            [task.steps.make(work(f"subtree_{name}_{i}"), moves(task.combinations, trees, i)) for i in self.attributes]
            for name, moves in (("splits", cuts.splits), ("raises", cuts.raises))
        )
        # Rows of unknown values are in no combination, and suppressed in any case.
        rows = task.engine.rows(select([total(col(ROWS))], task.combinations.copy()))
        self._allowed = task.allowed_rows - (task.rows - int(rows[0][0] or 0))
        at_levels = cuts.cutting_at(task.combinations, trees, levels)
        start = self._cut(at_levels.copy(), replace(task.members, requirements=task.prepared.requirements))
        best = start if self._is_over() or not start.price else self._descend(self._cut(at_levels))
        while best.price and (better := self._exchange(best)) is not None:
            self._drop(best)
            best = self._descend(better)
        # What shields ask of some attributes is asked of all of them on the way, and may be too much.
        best = best if best.lost <= self._allowed and best.price <= start.price else start
        placed = task.steps.make(work("subtree_placed"), cuts.kept(best.cutting, best.classes, len(trees)))
        return LocalOutcome(placed, rounds=self.checks, search=search)

    def _cut(self, query: exp.Select, members: Members | None = None) -> _Cut:
        """Make a cutting, and judge its classes."""
        task = self.task
        self._made += 1
        self._count()
        cutting = task.steps.make(task.work(f"subtree_cutting_{self._made}"), query)
        judged = judged_groups(members or task.members, aliased(cutting, "p"), [*self._nodes, cuts.COST])
        classes = task.steps.make(task.work(f"subtree_classes_{self._made}"), cuts.priced(judged, task.trees))
        price, lost, count = task.engine.rows(cuts.whole(classes))[0]
        return _Cut(cutting, classes, int(price or 0), lost, count)

    def _count(self) -> None:
        self.checks += 1
        self.task.clock.checks += 1

    def _is_over(self) -> bool:
        """Whether a limit of the search says to end with what there is: it satisfies the policy."""
        try:
            self.task.clock.refuse_more()
        except LimitReachedError:
            return True
        return False

    def _drop(self, cut: _Cut) -> None:
        for table in (cut.cutting, cut.classes):
            self.task.engine.execute(drop_table(table.copy()))

    def _splits(self, cut: _Cut, i: int) -> list[_Split]:
        """The nodes of an attribute that are worth splitting, the best first."""
        self._count()
        task = self.task
        split = cuts.all_split(cut.cutting, task.trees, i, self.down[i])
        judged = task.judged(exp.Subquery(this=split), [*self._nodes, cuts.SPLIT, cuts.COST])
        rows = task.engine.rows(cuts.gains(cuts.priced(judged, task.trees), cut.classes, i))
        found = [_Split(node, int(gain), int(lost)) for node, gain, lost in rows]
        return sorted(found, key=lambda one: (-one.worth, one.node))

    def _descend(self, cut: _Cut, raised: tuple[int, int] | None = None) -> _Cut:
        """Split until nothing is left to split. The tables of the cut go, and it with them.

        Parameters
        ----------
        cut:
            Where from.
        raised:
            An attribute and its node that is split only when nothing else is left. Then what was not worth a split is
            not looked at again, either: this is one of many moves that are tried.
        """
        is_trial = raised is not None
        waiting = {i: self._splits(cut, i) for i in self.attributes}
        fresh = set(self.attributes)
        while not self._is_over():
            open_ = {i: self._possible(cut, waiting[i], i, raised) for i in self.attributes}
            order = sorted((i for i in open_ if open_[i]), key=lambda i: (-open_[i][0].worth, i))
            if not order and raised is not None:
                raised = None
                continue
            # Where rows are suppressed a split may have become worth it: it loses rows that are lost already.
            stale = order[:1] if order else [] if is_trial else list(self.attributes)
            if not fresh.issuperset(stale):
                waiting |= {i: self._splits(cut, i) for i in stale if i not in fresh}
                fresh.update(stale)
                continue
            if not order:
                break
            i, rival = order[0], open_[order[1]][0].worth if len(order) > 1 else 0.0
            chosen = list(self._taken(cut, open_[i], rival))
            after = self._cut(cuts.moved(cut.cutting, self.task.trees, i, self.down[i], NODE, chosen))
            self._drop(cut)
            cut, waiting[i], fresh = after, self._splits(after, i), {i}
        return cut

    def _possible(self, cut: _Cut, splits: list[_Split], i: int, raised: tuple[int, int] | None) -> list[_Split]:
        room = self._allowed - cut.lost
        return [one for one in splits if one.lost <= room and (i, one.node) != raised]

    def _taken(self, cut: _Cut, splits: list[_Split], rival: float) -> Iterator[int]:
        """The first of an attribute's splits, and those after it that would be next anyhow: they are in different
        classes, and worth more than any of another attribute."""
        lost = cut.lost
        for place, one in enumerate(splits):
            lost += max(one.lost, 0)
            if place and (lost > self._allowed or one.worth <= rival):
                return
            yield one.node

    def _exchange(self, cut: _Cut) -> _Cut | None:
        """The best of what a move up and then all splits lead to, if it is better than the cut."""
        best: _Cut | None = None
        ways = sorted(
            (int(extra), i, node)
            for i in self.attributes
            for node, extra in self.task.engine.rows(cuts.ways_up(cut.cutting, self.task.trees, i, self.up[i]))
        )
        for place, (_, i, node) in enumerate(ways[:TRIED]):
            if self._is_over():
                break
            self.task.progress(len(ways) - place, self.checks, None)
            after = self._cut(cuts.moved(cut.cutting, self.task.trees, i, self.up[i], cuts.OTHER, [node]))
            if after.lost <= self._allowed and after.count:
                after = self._descend(after, (i, node))
            if after.lost <= self._allowed and after.count and after.price < (best or cut).price:
                if best is not None:
                    self._drop(best)
                best = after
            else:
                self._drop(after)
        return best
