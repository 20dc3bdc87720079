"""Strategy ``mu-argus``: combinations of two and three attributes are made safe, by generalization and by blanks.

A combination of values is *unsafe* if fewer than k rows have it. Which attributes are combined follows from their
``identification``: `policy.guarantee`. As the paper has it,

1. each attribute is generalized until its values by themselves are safe;
2. while too many rows have unsafe combinations, the attribute whose cells are in most of them is generalized;
3. in the rows that are left, the cell that is in most unsafe combinations is blanked, and this again, as a blank may
   make others unsafe, until nothing is.

In µ-Argus a person decides how far to generalize. Here the suppression limit does: as many rows may be left to the
third step, and as many may have rare values in the first; with a limit of 0 no cell is blanked. A blank is the
attribute's top label, and a value of its own: a combination with it has to occur k times too. (µ-Argus leaves missing
values out of account.) A row in which nothing is left to blank is suppressed. Where that takes more rows than it may,
generalization goes on; if that does not help either, the result is the optimal full-domain generalization, which is
safe in all combinations.

The result is k-anonymous in the combinations of `policy.guarantee`, and not over all quasi-identifiers
together:
L. Sweeney, "Achieving k-anonymity privacy protection using generalization and suppression" (2002), section 5, shows
tables of µ-Argus with single rows. A. Hundepool, L. Willenborg, "µ- and τ-ARGUS: software for statistical disclosure
control" (1996).

Names of columns, all ours: ``combination``, ``n`` and ``node_i`` in what is placed; ``count_i`` in the unsafe rows: in
how many of a row's unsafe combinations of attributes the cell of attribute ``i`` is, if it is not blank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.policy.guarantee import select_combinations
from sqlanon.strategies.lattice.limits import Clock, LimitReachedError
from sqlanon.strategies.local.cells import is_released
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import Tree, agree, node_name, released_name
from sqlanon.strategies.local.task import START_SHARE, LocalOutcome, LocalTask
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import aliased, col, fragment, greatest, named, number, subquery, template, union_all

TOGETHER = 64
"""So many combinations of attributes are checked by one statement, at most."""


def count_name(attribute: int) -> str:
    """The column with the unsafe combinations of attributes that an attribute's cell is in."""
    return f"count_{attribute}"


_PLACED = template("SELECT combination, n, :nodes FROM :combinations")


def placed_at(combinations: exp.Table, levels: Levels) -> exp.Select:
    """The combinations at a generalization: ``combination``, ``n``, ``node_i``."""
    nodes = [named(col(node_name(i, level)), released_name(i)) for i, level in enumerate(levels)]
    return _PLACED(nodes=nodes, combinations=combinations)


_UNSAFE = template("SELECT combination, n, :sums FROM :parts AS e GROUP BY combination, n")
_UNSAFE_IN_SOME = template("""
    SELECT p.combination, p.n, :counts
    FROM :placed AS p
    JOIN (SELECT :keys FROM :judged AS j WHERE NOT kept) AS f ON :same
""")
_IS_SHOWN = fragment("CASE WHEN :node <> :root THEN 1 ELSE 0 END")
_SUM = fragment("sum(:count)::BIGINT")


def unsafe(
    placed: exp.Table,
    trees: Sequence[Tree],
    checked: Sequence[Sequence[int]],
    judged: Callable[[exp.Expr, Sequence[str]], exp.Query],
) -> exp.Select:
    """The rows in which some combination of attributes breaks the policy: ``combination``, ``n``, ``count_i``."""
    parts = []
    for attributes in checked:
        keys = [released_name(i) for i in attributes]
        counts: list[exp.Expr] = []
        for i, tree in enumerate(trees):
            node = col(released_name(i), "p")
            shown = _IS_SHOWN(node=node, root=tree.root) if i in attributes else number(0)
            counts.append(named(shown, count_name(i)))
        parts.append(
            _UNSAFE_IN_SOME(
                counts=counts,
                placed=placed,
                keys=[col(key) for key in keys],
                judged=judged(aliased(placed, "g"), keys),
                same=agree(keys, "p", "f"),
            )
        )
    return _added(union_all(*parts), trees)


_ALL = template("SELECT * FROM :found")


def added(parts: Sequence[exp.Table], trees: Sequence[Tree]) -> exp.Select:
    """What `unsafe` found of some combinations and of others, together."""
    return _added(union_all(*(_ALL(found=one) for one in parts)), trees)


def _added(parts: exp.Query, trees: Sequence[Tree]) -> exp.Select:
    sums = [named(_SUM(count=col(count_name(i))), count_name(i)) for i in range(len(trees))]
    return _UNSAFE(sums=sums, parts=parts)


# One row: the unsafe rows; and for each attribute in how many unsafe combinations of them its cells are.
_OCCURRENCES = template("SELECT coalesce(sum(n)::BIGINT, 0), :counts FROM :unsafe")
_OCCURRENCE = fragment("coalesce(sum(n * :count)::BIGINT, 0)")


_BLANKED = template("""
    SELECT p.combination, p.n, :nodes
    FROM :placed AS p
    LEFT JOIN (
        SELECT combination, CASE WHEN most > 0 THEN :choice END AS cell
        FROM (SELECT *, :most AS most FROM :unsafe) AS c
    ) AS u ON p.combination = u.combination
    WHERE u.combination IS NULL OR u.cell IS NOT NULL
""")
_BLANK_OR_OWN = fragment("(CASE WHEN u.cell = :attribute THEN :root ELSE :node END)::INTEGER")


def blanked(placed: exp.Table, found: exp.Table, trees: Sequence[Tree], order: Sequence[int]) -> exp.Select:
    """What is placed, with the cell of each unsafe row blank that is in most of its unsafe combinations.

    Rows without such a cell are left out.
    """
    most: exp.Expr = number(0)
    choice = exp.Case()
    for i in order:
        most = greatest(most, col(count_name(i)))
        choice = choice.when(col(count_name(i)).eq(col("most")), number(i))
    nodes = []
    for i, tree in enumerate(trees):
        node = _BLANK_OR_OWN(attribute=i, root=tree.root, node=col(released_name(i), "p"))
        nodes.append(named(node, released_name(i)))
    return _BLANKED(nodes=nodes, placed=placed, choice=choice if order else number(-1), most=most, unsafe=found)


# The rows whose group meets the policy.
_KEPT = template("SELECT p.* FROM :placed AS p JOIN :judged AS j ON :same WHERE j.kept")
_SAFE = template("SELECT p.combination FROM :placed AS p ANTI JOIN :found AS u ON p.combination = u.combination")
_ROW_COUNT = template("SELECT sum(n)::BIGINT FROM :placed")


def mu_argus(task: LocalTask) -> LocalOutcome:
    """Generalize and blank until the combinations of attributes are safe."""
    return _Argus(task).run()


class _Argus:
    def __init__(self, task: LocalTask) -> None:
        budget = task.clock.budget
        if budget.seconds is not None:  # the rest is for the full domain, where this does not end
            budget = replace(budget, seconds=(1 - START_SHARE) * budget.seconds)
        self.task, self.clock = task, Clock(budget)
        self.attributes = range(len(task.trees))
        self.rounds = 0
        self._number = 0
        names = [tree.name for tree in task.trees]
        specs = task.prepared.policy.attributes
        listed = select_combinations({name: specs[name].identification for name in names})
        self.checked = [[names.index(name) for name in one] for one in listed]
        self.known = self._rows(task.combinations)
        self.levels = [task.prepared.lattice.levels(i) for i in self.attributes]
        self.blankable = [i for i, tree in enumerate(task.trees) if is_released(task, tree)]

    def run(self) -> LocalOutcome:
        try:
            with self.task.clock.in_time():
                if all(self.levels):
                    return self._safe_release()
        except LimitReachedError:
            pass
        return self._full_domain()

    def _safe_release(self) -> LocalOutcome:
        steps = [self._safe_alone(i) for i in self.attributes]
        while True:
            placed = self._at(steps)
            found, rows, counts = self._unsafe(placed, self.checked)
            if self._may_be_left(placed, found, rows):
                placed = self._safe(placed, found, rows, counts)
                left = self._rows(placed)
                if left and self.task.may_suppress(self.task.rows - left, placed):
                    return LocalOutcome(self.task, placed, rounds=self.rounds)
            open_ = [i for i in self.attributes if steps[i] + 1 < len(self.levels[i])]
            if not open_:
                return self._full_domain()
            steps[max(open_, key=lambda i: (counts[i], -i))] += 1

    def _safe_alone(self, i: int) -> int:
        """The first step of an attribute's levels at which its own values are safe, but for as many rows as may be."""
        last = len(self.levels[i]) - 1
        for step in range(last):
            placed = self._at([step if j == i else 0 for j in self.attributes])
            found, rows, _ = self._unsafe(placed, [[i]])
            if self._may_be_left(placed, found, rows):
                return step
        return last

    def _may_be_left(self, placed: exp.Table, found: exp.Table, rows: int) -> bool:
        """Whether so many unsafe rows may be left to be blanked: as many as may be suppressed. Rows of unknown values
        are in no combination, and suppressed in any case."""
        rows += self.task.rows - self.known
        return self.task.may_suppress(rows, subquery(_SAFE(placed=placed, found=found)))

    def _safe(self, placed: exp.Table, found: exp.Table, rows: int, counts: list[int]) -> exp.Table:
        """Blank cells of the unsafe rows until there are none. Each round blanks a cell of each, or leaves it out."""
        while rows:
            order = sorted(self.blankable, key=lambda i: (-counts[i], i))
            placed = self._make("placed", blanked(placed, found, self.task.trees, order))
            found, rows, counts = self._unsafe(placed, self.checked)
        return placed

    def _unsafe(self, placed: exp.Table, checked: list[list[int]]) -> tuple[exp.Table, int, list[int]]:
        """The unsafe rows, how many there are, and in how many unsafe combinations each attribute's cells are."""
        self.rounds += 1
        task = self.task
        self.clock.spend()
        found = self._unsafe_in(placed, checked)
        occurrences = [_OCCURRENCE(count=col(count_name(i))) for i in self.attributes]
        rows, *counts = task.engine.rows(_OCCURRENCES(counts=occurrences, unsafe=found))[0]
        task.progress(rows, self.rounds, None)
        return found, rows, counts

    def _unsafe_in(self, placed: exp.Table, checked: list[list[int]]) -> exp.Table:
        """The unsafe rows; of many combinations some at a time, so that rows that are in several of them are few."""
        task = self.task
        parts = []
        for first in range(0, len(checked), TOGETHER):
            self.clock.refuse_over_time()
            found = unsafe(placed, task.trees, checked[first : first + TOGETHER], task.judged)
            parts.append(self._make("unsafe", found))
        if not parts[1:]:
            return parts[0]
        together = self._make("unsafe", added(parts, task.trees))
        task.steps.drop(*parts)
        return together

    def _at(self, steps: list[int]) -> exp.Table:
        levels = tuple(self.levels[i][step] for i, step in enumerate(steps))
        return self._make("placed", placed_at(self.task.combinations, levels))

    def _full_domain(self) -> LocalOutcome:
        """The optimal generalization: where all quasi-identifiers together are safe, so are some of them."""
        task = self.task
        search, levels = task.start()
        placed = self._make("placed", placed_at(task.combinations, levels))
        nodes = [released_name(i) for i in self.attributes]
        judged = task.judged(aliased(placed, "p"), nodes)
        kept = self._make("placed", _KEPT(placed=placed, judged=judged, same=agree(nodes, "p", "j")))
        return LocalOutcome(task, kept, rounds=self.rounds, search=search)

    def _rows(self, placed: exp.Table) -> int:
        return int(self.task.engine.rows(_ROW_COUNT(placed=placed))[0][0] or 0)

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._number += 1
        return self.task.steps.make(self.task.work(f"mu_argus_{name}_{self._number}"), query)


run = on_combinations(mu_argus)
