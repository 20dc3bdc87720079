"""Strategy ``mondrian``: the table is cut in two, and each part again, until no part can be cut.

All combinations are one part at first, unless levels or labels that are not allowed separate them. In each round one
cut of each part is tried along each attribute, and the cut with two feasible sides that saves the most loss is made:

- Numbers and times are cut along their order, at the mean: between cells of their grid, if they have one. A part within
  one cell is cut like other attributes, with the values as children of the cell: a second dimension of the attribute.
- For other attributes one child of the lowest common ancestor is cut off the other children.
- With ``summary = "set"`` the most frequent value is cut off the others.
- What is cut off has an eighth of the rows or more, if need be with the next children or values: rounds are few.

``cuts = "strict"``: equal values of the attribute that is cut stay on one side. ``"relaxed"``: along an order, the rows
of one value (or cell) may be divided between both sides, but not those of one combination of all attributes.

See `cuts` for the cuts, and `summaries` for the labels.

Source: LeFevre, DeWitt and Ramakrishnan, Mondrian multidimensional k-anonymity (2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlanon.strategies.lattice.limits import FIRST_GRACE
from sqlanon.strategies.local.core.evaluation import feasible_rows
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.nodes import NODE, Tree, level_column
from sqlanon.strategies.local.core.summaries import PART, make_allowed_nodes, summarize
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.strategies.local.cuts.dimensions import list_dimensions
from sqlanon.strategies.local.cuts.rounds import Rounds
from sqlanon.support.expressions import (
    aliased,
    col,
    fragment,
    is_not_null,
    number,
    select_star,
    table,
    template,
    union_all,
)


def mondrian(task: LocalTask) -> LocalOutcome:
    """Cut the table until no part can be cut, and release each part as a class.

    It ends sooner at the policy's ``time_limit``, or after ``max_checks`` rounds: all parts are always feasible.
    """
    with task.clock.in_time(FIRST_GRACE):
        allowed = make_allowed_nodes(task, "mondrian")
        cutting = Cutting(task, allowed)
    classes = cutting.run()
    return summarize(task, classes, allowed, "mondrian", cutting.rounds)


MAX_RECURSIVE = 200_000
"""Maximum number of combinations whose rounds are one statement, which keeps all of them in memory."""

_ALL_ROUNDS = template("""
    WITH RECURSIVE rounds AS (:rounds)
    SELECT combination, arg_max(part, round) AS part, max(round) AS round
    FROM rounds
    GROUP BY combination
""")


class Cutting:
    """The parts, and the rounds that cut them.

    ``classes`` has the combinations of the parts that are not cut further.
    """

    def __init__(self, task: LocalTask, allowed: tuple[exp.Table, ...], as_ancestors: bool = False) -> None:
        if as_ancestors:  # regardless of the policy's summary
            trees = tuple(replace(tree, is_ordered=False, grid=None, set_labels=None) for tree in task.trees)
            task = replace(task, trees=trees)
        self.task = task
        self.rounds = 0
        search = task.search_input.policy.search
        as_sets = search.summary == "set" and not as_ancestors
        dimensions = list_dimensions(task.trees, as_sets, relaxed=search.cuts == "relaxed")
        first_parts = self._first_parts(allowed)
        no_classes = template("SELECT combination, part FROM :parts WHERE FALSE")(parts=first_parts)
        self.classes = task.make("mondrian_classes", no_classes)
        self._open_parts = first_parts
        self._rounds = Rounds(task, dimensions) if dimensions else None
        if self._rounds:
            self._open_parts = task.make("mondrian_parts_0", self._rounds.add_items(task.combinations, first_parts))

    def run(self) -> exp.Table:
        """Cut until no part can be cut, or a limit is reached; the ``classes``."""
        task = self.task
        if self._rounds and task.clock.budget.seconds is None and task.runner.count(self._open_parts) <= MAX_RECURSIVE:
            self._cut_at_once(self._rounds)
            return self.classes
        with task.clock.until_limit():
            with task.clock.in_time(FIRST_GRACE):
                was_cut = self.cut_once()
            while was_cut:
                was_cut = self.cut_once()
        self.close_parts()
        return self.classes

    def _cut_at_once(self, rounds: Rounds) -> None:
        """Cut until no part can be cut, in one recursive statement: statements on small tables take most of their time
        to be prepared."""
        task = self.task
        following = rounds.cut(table("rounds"))
        if (checks := task.clock.remaining_checks) is not None:
            following = following.where(fragment("round < :checks")(checks=checks), copy=False)
        last = task.make("mondrian_rounds", _ALL_ROUNDS(rounds=union_all(select_star(self._open_parts), following)))
        task.engine.execute(
            fragment("INSERT INTO :classes SELECT combination, part FROM :last")(classes=self.classes, last=last)
        )
        rounds_with_cuts = int(task.fetch_value(template("SELECT coalesce(max(round), 0) FROM :last")(last=last)))
        self.rounds = rounds_with_cuts if rounds_with_cuts == checks else rounds_with_cuts + 1
        task.clock.checks += self.rounds

    def cut_once(self) -> bool:
        """Cut each open part once; whether any part was cut."""
        task, rounds = self.task, self._rounds
        if rounds is None:
            return False
        task.clock.spend()
        self.rounds += 1
        parts = task.make(f"mondrian_parts_{self.rounds}", rounds.cut(self._open_parts))
        # If a statement is interrupted, each part is still in one place: with the classes, or open.
        insert = fragment("""
            INSERT INTO :classes
            SELECT o.combination, o.part
            FROM :open_parts AS o
            ANTI JOIN (SELECT DISTINCT part FROM :parts) AS p ON o.part = p.part
        """)
        task.engine.execute(insert(classes=self.classes, open_parts=self._open_parts, parts=parts))
        former_parts, self._open_parts = self._open_parts, parts
        task.runner.drop(former_parts)
        count = task.fetch_value(template("SELECT count(DISTINCT part) FROM :parts")(parts=parts))
        task.progress(count, self.rounds, None)
        return bool(count)

    def close_parts(self) -> None:
        """Add the open parts to the classes."""
        insert = fragment("INSERT INTO :classes SELECT combination, part FROM :parts")
        self.task.engine.execute(insert(classes=self.classes, parts=self._open_parts))

    def _first_parts(self, allowed: tuple[exp.Table, ...]) -> exp.Table:
        task = self.task
        limited = {i: allowed[i] for i, tree in enumerate(task.trees) if tree.ceiling < tree.height or tree.forbidden}
        parts = task.make("mondrian_first", first_parts(task.combinations, task.trees, limited))
        feasible = task.make("mondrian_first_feasible", feasible_rows(parts, task.evaluate(parts, [PART]), [PART]))
        task.runner.drop(parts)
        return feasible


def first_parts(combinations: exp.Table, trees: Sequence[Tree], limited: Mapping[int, exp.Table]) -> exp.Select:
    """The parts to begin with: combinations that can be released as one class, by the allowed levels and labels."""
    highest = [col("highest_released", f"a{i}") for i in limited]
    part = fragment("dense_rank() OVER (ORDER BY :highest) - 1")(highest=highest) if highest else number(0)
    query = template("SELECT c.combination, c.row_count, :part::INTEGER AS part FROM :combinations AS c")(
        part=part, combinations=combinations
    )
    for i, nodes in limited.items():
        on = col(level_column(i, trees[i].floor), "c").eq(col(NODE, f"a{i}"))
        query = query.join(aliased(nodes, f"a{i}"), on=on, copy=False)
        query = query.where(is_not_null(col("highest_released", f"a{i}")), copy=False)
    return query


run = on_combinations(mondrian)
