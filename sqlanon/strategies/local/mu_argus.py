"""Strategy ``mu-argus``: make combinations of two and three attributes safe, by generalization and by blanks.

A combination of values is *unsafe* if fewer than k rows have it; `policy.guarantee` selects the attributes that are
combined. As in the paper,

1. each attribute is generalized until its values by themselves are safe;
2. while too many rows have unsafe combinations, the attribute whose cells are in most of them is generalized;
3. in the unsafe rows that remain, the cell that is in most unsafe combinations is blanked. This is repeated, as a blank
   may make others unsafe, until all combinations are safe.

The suppression limit decides how far to generalize: it limits the rows left to the third step, and the rows with rare
values in the first. A blank is the attribute's top label, a value like any other. A row without a cell left to blank is
suppressed. If that exceeds the limit at the top, the result is the optimal full-domain generalization.

Source: A. Hundepool, L. Willenborg, "µ- and τ-ARGUS: software for statistical disclosure control" (1996).

Columns: ``combination``, ``row_count`` and ``node_i`` in assignments; in unsafe rows ``unsafe_i``, the number of a
row's unsafe combinations of attributes that the cell of attribute ``i`` is in, if it is not blank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.policy.guarantee import select_combinations
from sqlanon.strategies.lattice.limits import Clock
from sqlanon.strategies.local.cells import can_be_blanked
from sqlanon.strategies.local.core.evaluation import feasible_rows, generalized_combinations
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.nodes import Tree, node_column
from sqlanon.strategies.local.core.task import START_SHARE, LocalOutcome, LocalTask
from sqlanon.support.expressions import (
    as_column,
    col,
    fragment,
    greatest,
    number,
    select_star,
    subquery,
    template,
    union_all,
)

MAX_CHECKED = 64
"""Maximum number of combinations of attributes checked by one statement."""


def unsafe_column(attribute: int) -> str:
    """The column with the number of unsafe combinations that an attribute's cell is in."""
    return f"unsafe_{attribute}"


def unsafe_rows(
    assignment: exp.Table,
    trees: Sequence[Tree],
    subsets: Sequence[Sequence[int]],
    evaluate: Callable[[exp.Expr, Sequence[str]], exp.Query],
) -> exp.Select:
    """The rows with an unsafe combination of some attributes: ``combination``, ``row_count``, ``unsafe_i``."""
    parts = []
    for attributes in subsets:
        keys = [node_column(i) for i in attributes]
        counts: list[exp.Expr] = []
        for i, tree in enumerate(trees):
            is_shown = (
                fragment("CASE WHEN :node <> :root THEN 1 ELSE 0 END")(node=col(node_column(i), "p"), root=tree.root)
                if i in attributes
                else number(0)
            )
            counts.append(as_column(is_shown, unsafe_column(i)))
        query = template("SELECT p.combination, p.row_count, :counts FROM :unsafe AS p")
        unsafe = feasible_rows(assignment, evaluate(assignment, keys), keys, feasible=False)
        parts.append(query(counts=counts, unsafe=unsafe))
    return sum_unsafe_counts(parts, trees)


def sum_unsafe_counts(parts: Sequence[exp.Query], trees: Sequence[Tree]) -> exp.Select:
    """The unsafe rows of several queries, with their counts added up."""
    sums = [
        as_column(fragment("sum(:count)::BIGINT")(count=col(unsafe_column(i))), unsafe_column(i))
        for i in range(len(trees))
    ]
    return template("SELECT combination, row_count, :sums FROM :parts AS e GROUP BY combination, row_count")(
        sums=sums, parts=union_all(*parts)
    )


def blank_cells(assignment: exp.Table, unsafe: exp.Table, trees: Sequence[Tree], order: Sequence[int]) -> exp.Select:
    """An assignment in which each unsafe row has a blank for the cell that is in most of its unsafe combinations, the
    first in an order of attributes.

    Rows without such a cell are left out.
    """
    most: exp.Expr = number(0)
    cell = exp.Case()
    for i in order:
        count = col(unsafe_column(i))
        most = greatest(most, count)
        cell = cell.when(count.eq(col("most")), number(i))
    nodes = []
    for i, tree in enumerate(trees):
        node = fragment("(CASE WHEN u.cell = :attribute THEN :root ELSE :node END)::INTEGER")(
            attribute=i, root=tree.root, node=col(node_column(i), "p")
        )
        nodes.append(as_column(node, node_column(i)))
    cell_or_none = cell if order else number(-1)
    return template("""
        WITH cells AS (
            SELECT combination, CASE WHEN most > 0 THEN :cell END AS cell
            FROM (SELECT *, :most AS most FROM :unsafe) AS c
        )
        SELECT p.combination, p.row_count, :nodes
        FROM :assignment AS p
        LEFT JOIN cells AS u ON p.combination = u.combination
        WHERE u.combination IS NULL OR u.cell IS NOT NULL
    """)(nodes=nodes, assignment=assignment, cell=cell_or_none, most=most, unsafe=unsafe)


def mu_argus(task: LocalTask) -> LocalOutcome:
    """Generalize and blank until the combinations of attributes are safe."""
    return _MuArgus(task).run()


class _MuArgus:
    def __init__(self, task: LocalTask) -> None:
        budget = task.clock.budget
        if budget.seconds is not None:  # the remaining time is reserved for the full domain
            budget = replace(budget, seconds=(1 - START_SHARE) * budget.seconds)
        self.task, self.clock = task, Clock(budget)
        self.attributes = range(len(task.trees))
        self.rounds = 0
        self._number = 0
        names = [tree.name for tree in task.trees]
        specs = task.search_input.policy.attributes
        subsets = select_combinations({name: specs[name].identification for name in names})
        self.subsets = [[names.index(name) for name in subset] for subset in subsets]
        self.known_rows = task.count_rows(task.combinations)
        self.levels = [task.search_input.lattice.levels(i) for i in self.attributes]
        self.blankable = [i for i, tree in enumerate(task.trees) if can_be_blanked(task, tree)]

    def run(self) -> LocalOutcome:
        with self.task.clock.until_limit():
            if all(self.levels):
                return self._generalize_and_blank()
        return self._full_domain()

    def _generalize_and_blank(self) -> LocalOutcome:
        steps = [self._first_safe_step(i) for i in self.attributes]
        while True:
            assignment = self._generalize(steps)
            unsafe, rows, counts = self._find_unsafe(assignment, self.subsets)
            if self._can_be_blanked(assignment, unsafe, rows):
                assignment = self._blank_until_safe(assignment, unsafe, rows, counts)
                released = self.task.count_rows(assignment)
                if released and self.task.can_suppress(self.task.row_count - released, assignment):
                    return LocalOutcome(self.task, assignment, rounds=self.rounds)
            below_top = [i for i in self.attributes if steps[i] + 1 < len(self.levels[i])]
            if not below_top:
                return self._full_domain()
            steps[max(below_top, key=lambda i: (counts[i], -i))] += 1

    def _first_safe_step(self, i: int) -> int:
        """The first step of an attribute's levels at which its values by themselves are safe, but for as many rows as
        may be suppressed."""
        last = len(self.levels[i]) - 1
        for step in range(last):
            assignment = self._generalize([step if j == i else 0 for j in self.attributes])
            unsafe, rows, _ = self._find_unsafe(assignment, [[i]])
            if self._can_be_blanked(assignment, unsafe, rows):
                return step
        return last

    def _can_be_blanked(self, assignment: exp.Table, unsafe: exp.Table, rows: int) -> bool:
        """Whether unsafe rows are few enough to be blanked: the suppression limit counts them and rows of unknown
        values, which are in no combination."""
        rows += self.task.row_count - self.known_rows
        return self.task.can_suppress(
            rows,
            subquery(
                template(
                    "SELECT p.combination FROM :assignment AS p ANTI JOIN :unsafe AS u ON p.combination = u.combination"
                )(assignment=assignment, unsafe=unsafe)
            ),
        )

    def _blank_until_safe(self, assignment: exp.Table, unsafe: exp.Table, rows: int, counts: list[int]) -> exp.Table:
        """Blank a cell of each unsafe row, or leave the row out, until all are safe."""
        while rows:
            order = sorted(self.blankable, key=lambda i: (-counts[i], i))
            assignment = self._make("assignment", blank_cells(assignment, unsafe, self.task.trees, order))
            unsafe, rows, counts = self._find_unsafe(assignment, self.subsets)
        return assignment

    def _find_unsafe(self, assignment: exp.Table, subsets: list[list[int]]) -> tuple[exp.Table, int, list[int]]:
        """The unsafe rows, their number, and the number of unsafe combinations that each attribute's cells are in."""
        self.rounds += 1
        task = self.task
        self.clock.spend()
        unsafe = self._make_unsafe(assignment, subsets)
        occurrences = [
            fragment("coalesce(sum(row_count * :count)::BIGINT, 0)")(count=col(unsafe_column(i)))
            for i in self.attributes
        ]
        query = template("SELECT coalesce(sum(row_count)::BIGINT, 0), :counts FROM :unsafe")(
            counts=occurrences, unsafe=unsafe
        )
        rows, *counts = task.fetch_row(query)
        task.progress(rows, self.rounds, None)
        return unsafe, rows, counts

    def _make_unsafe(self, assignment: exp.Table, subsets: list[list[int]]) -> exp.Table:
        """Make the unsafe rows; in several statements if subsets are many, so that rows in several of them are few."""
        task = self.task
        parts = []
        for first in range(0, len(subsets), MAX_CHECKED):
            self.clock.refuse_over_time()
            query = unsafe_rows(assignment, task.trees, subsets[first : first + MAX_CHECKED], task.evaluate)
            parts.append(self._make("unsafe", query))
        if not parts[1:]:
            return parts[0]
        unsafe = self._make("unsafe", sum_unsafe_counts([select_star(part) for part in parts], task.trees))
        task.runner.drop(*parts)
        return unsafe

    def _generalize(self, steps: list[int]) -> exp.Table:
        levels = tuple(self.levels[i][step] for i, step in enumerate(steps))
        return self._make("assignment", generalized_combinations(self.task.combinations, self.task.trees, levels))

    def _full_domain(self) -> LocalOutcome:
        """The optimal generalization: classes over all quasi-identifiers are safe in subsets of them."""
        task = self.task
        search, levels = task.search_full_domain()
        generalized = self._make("assignment", generalized_combinations(task.combinations, task.trees, levels))
        keys = [node_column(i) for i in self.attributes]
        assignment = self._make("assignment", feasible_rows(generalized, task.evaluate(generalized, keys), keys))
        return LocalOutcome(task, assignment, rounds=self.rounds, search=search)

    def _make(self, name: str, query: exp.Query) -> exp.Table:
        self._number += 1
        return self.task.make(f"mu_argus_{name}_{self._number}", query)


run = on_combinations(mu_argus)
