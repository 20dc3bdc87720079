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
lowest common ancestors. See `recode.local.summarised`.

Source: LeFevre, DeWitt and Ramakrishnan, Mondrian multidimensional k-anonymity (2006).
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.expressions import col, create_table, drop_table, select, star, subquery
from sqlanon.recode.local import mondrian_statements as mn
from sqlanon.recode.local.cuts import PART, cut_of_hierarchy, cut_of_values, items, union
from sqlanon.recode.local.nodes import COMBINATION
from sqlanon.recode.local.summarised import allowed_nodes, summarised
from sqlanon.recode.local.task import LocalOutcome, LocalTask, on_combinations
from sqlanon.search.budget import LimitReachedError


def mondrian(task: LocalTask) -> LocalOutcome:
    """Cut the table until no part can be cut, and release each part as a class.

    It ends sooner at the policy's ``time_limit``, or after ``max_checks`` rounds: at any time the parts meet the
    requirements.
    """
    allowed = allowed_nodes(task, "mondrian")
    cutting = Cutting(task, allowed)
    try:
        while cutting.go_on():
            pass
    except LimitReachedError:
        cutting.stop()
    return summarised(task, cutting.classes, allowed, "mondrian", cutting.rounds)


class Cutting:
    """The parts, and the rounds that cut them.

    Attributes
    ----------
    classes:
        The parts that are not cut any more: ``combination`` and ``part``.
    rounds:
        How many there were.
    """

    def __init__(self, task: LocalTask, allowed: tuple[exp.Table, ...]) -> None:
        self.task = task
        self.rounds = 0
        search = task.prepared.policy.search
        by_combination = [search.cuts == "relaxed" and tree.ordered for tree in task.trees]
        self._as_sets = search.summary == "set"
        self._least = task.members.requirements.least_class
        self._open = self._begin(allowed)
        self._last = int(task.engine.rows(mn.greatest_part(self._open))[0][0])
        nothing = select([col(COMBINATION), col(PART)], self._open.copy()).where(exp.false(), copy=False)
        self.classes = self._make("mondrian_classes", nothing)
        self._attributes = mn.several_levels(task.trees)
        if self._attributes:
            self._rows = self._make("mondrian_rows", mn.cut_rows(task.combinations, task.trees, by_combination))
            self._values = self._make("mondrian_ground", mn.cut_values(task.trees))
            self._ancestors = self._make("mondrian_ancestors", mn.cut_ancestors(task.combinations, task.trees))

    def go_on(self) -> bool:
        """Make one round of cuts; whether there was any."""
        task = self.task
        if not self._attributes:
            self.stop()
            return False
        task.clock.spend()
        self.rounds += 1
        cuts = self._make("mondrian_cuts", self._cuts())
        sides = self._make("mondrian_sides", mn.sides(self._open, self._rows, cuts))
        chosen = self._make("mondrian_chosen", mn.chosen(task.judged(sides, mn.SIDES)))
        made = task.steps.count(chosen)
        self._close(mn.closed(self._open, chosen))
        after = self._make(f"mondrian_parts_{self.rounds}", mn.divided(sides, chosen, self._last))
        self._last += made
        self._drop(cuts, sides, chosen, self._open)
        self._open = after
        task.progress(2 * made, self.rounds, None)
        return made > 0

    def _cuts(self) -> exp.Query:
        """One cut of each part along each attribute."""
        by_value = [i for i, tree in self._attributes if tree.ordered or self._as_sets]
        by_tree = [i for i, tree in self._attributes if not (tree.ordered or self._as_sets)]
        kinds = ((cut_of_values, self._values, by_value), (cut_of_hierarchy, self._ancestors, by_tree))
        return union(
            [
                star(subquery(cut(items(self._open, self._rows, attributes), table, self._least)))
                for cut, table, attributes in kinds
                if attributes
            ]
        )

    def stop(self) -> None:
        """Leave the parts as they are."""
        self._close(select([col(COMBINATION), col(PART)], self._open.copy()))

    def _begin(self, allowed: tuple[exp.Table, ...]) -> exp.Table:
        task = self.task
        bounded = {i: allowed[i] for i, tree in enumerate(task.trees) if tree.ceiling < tree.height or tree.forbidden}
        first = self._make("mondrian_first", mn.first_parts(task.combinations, task.trees, bounded))
        good = self._make("mondrian_parts_0", mn.good_parts(first, task.judged(first, [PART])))
        self._drop(first)
        return good

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        target = self.task.work(name)
        self.task.engine.execute(create_table(target, query))
        return target.copy()

    def _drop(self, *tables: exp.Table) -> None:
        for table in tables:
            self.task.engine.execute(drop_table(table))

    def _close(self, query: exp.Select) -> None:
        self.task.engine.execute(exp.Insert(this=self.classes.copy(), expression=query))


run = on_combinations(mondrian)
