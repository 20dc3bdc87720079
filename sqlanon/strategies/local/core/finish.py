"""The result of a local strategy: its assignment as readers see it, evaluated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps

from sqlglot import exp

from sqlanon.engines.deadline import interrupt_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.measures import Figures, Measure
from sqlanon.measures.base import RecodingTotals
from sqlanon.policy.guarantee import guaranteed_combinations
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import SubsetCondition
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.strategies.lattice.infeasible import describe_remedies, time_limit_error
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.limits import FIRST_GRACE, GRACE, Budget, Clock, LimitReachedError
from sqlanon.strategies.lattice.persons import PersonFigures, person_figures
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.task import SearchTask, task_engines
from sqlanon.strategies.local.core.evaluation import attribute_figures, class_figures, feasible_rows
from sqlanon.strategies.local.core.label_sorting import sort_labels
from sqlanon.strategies.local.core.nodes import Tree
from sqlanon.strategies.local.core.placement import (
    LocalRecoding,
    readable_combinations,
    released_labels,
    suppressed_combinations,
)
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask, prepare_local_task
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import col, fragment, template, union_all
from sqlanon.support.notices import Notice

MAX_SHIELDS = 64
"""Maximum number of shields evaluated by one statement: more would take minutes and gigabytes."""


@dataclass(frozen=True)
class LocalResult:
    """The result of a local strategy as readers see it.

    ``table`` has the kept combinations with the codes of their labels, ``labels`` the labels by attribute. ``levels``
    are the lowest and the highest level that each attribute is released at. ``generated`` are the attributes with
    nodes that their hierarchies do not have; ``typed``, those that keep the types of their columns. With a strategy
    that divides equal rows, a combination may occur several times, each time with some of its rows.
    """

    trees: tuple[Tree, ...]
    table: exp.Table
    labels: tuple[exp.Table, ...]
    figures: Figures
    totals: RecodingTotals
    smallest_class: int
    levels: tuple[tuple[int, int], ...]
    generated: frozenset[int] = frozenset()
    typed: frozenset[int] = frozenset()
    persons: PersonFigures | None = None
    warnings: tuple[Notice, ...] = ()

    @property
    def floor(self) -> Levels:
        return tuple(tree.floor for tree in self.trees)

    @property
    def generalization(self) -> dict[str, int | None]:
        """The level of each attribute that is released at a single one; None for ranges and sets of values."""
        return {
            tree.name: low if low == high and (low == 0 or i not in self.generated) else None
            for i, (tree, (low, high)) in enumerate(zip(self.trees, self.levels, strict=True))
        }

    def score(self, measure: Measure) -> float:
        return measure.score_recoding(self.figures, self.totals)

    def make_suppressed(self, runner: StatementRunner, search_input: SearchInput) -> exp.Table:
        """Make ``suppressed``: the combinations that are not kept, as classes of the generalization at the floor."""
        frequency = search_input.frequency_sets.class_space(self.floor).frequency
        query = suppressed_combinations(frequency, self.table, self.trees)
        return runner.create_table(search_input.work("suppressed"), query)

    def recoding(self, search_input: SearchInput, mask: bool) -> LocalRecoding:
        """The builder of the release's statement."""
        ground = (i for i, (_, high) in enumerate(self.levels) if high == 0 and not self.trees[i].open_ends)
        return LocalRecoding(
            source=search_input.source.relation,
            columns=search_input.released_columns,
            attributes=search_input.attributes,
            tops=tuple(hierarchy.top for hierarchy in search_input.hierarchies),
            trees=self.trees,
            kept_combinations=self.table,
            labels=self.labels,
            ground=frozenset(ground),
            types=tuple(type_ if i in self.typed else None for i, type_ in enumerate(search_input.types)),
            mask=mask,
            lists=self._set_attributes() if search_input.policy.search.sets == "list" else frozenset(),
            division_key=search_input.columns.key if search_input.policy.search.traits.may_split_equal_rows else (),
        )

    def _set_attributes(self) -> frozenset[int]:
        """The attributes that may be released as sets."""
        return frozenset(i for i in self.generated if not self.trees[i].is_ordered)


def example_result(task: LocalTask) -> LocalResult:
    """A result for plans: every attribute is released at several levels."""
    attributes = range(len(task.trees))
    labels = tuple(task.work(f"released_{i}") for i in attributes)
    totals = RecodingTotals((0.0,) * len(task.trees), (0,) * len(task.trees))
    levels = ((0, 1),) * len(task.trees)
    return LocalResult(task.trees, task.work("kept"), labels, Figures(1, 1), totals, 0, levels)


def finish(task: LocalTask, outcome: LocalOutcome) -> LocalResult:
    """Keep the classes that meet the policy, as readers see them: rows with equal labels are one class.

    Makes ``released_i`` (see `placement.released_labels`), ``readable``, ``evaluated`` and ``kept`` in the work schema;
    and ``sorted_i`` for attributes of numbers that are released as ranges or medians.
    """
    runner, attributes = task.runner, range(len(task.trees))
    labels = tuple(
        task.make(
            f"released_{i}", released_labels(outcome.nodes.get(i, tree.nodes), outcome.assignment, i, tree.forbidden)
        )
        for i, tree in enumerate(task.trees)
    )
    has_shares = task.search_input.policy.search.traits.may_split_equal_rows
    readable = task.make(
        "readable", readable_combinations(task.combinations, outcome.assignment, labels, task.trees, has_shares)
    )
    # From here on the classes are those of the release, so shields are conditions on subsets again.
    requirements = _guaranteed_requirements(task)
    if len(requirements.shields) > MAX_SHIELDS:
        readable, requirements = _drop_small_subsets(task, readable, requirements.shields), Requirements()
    keys = [f"code_{i}" for i in attributes]
    evaluated = task.make("evaluated", replace(task.evaluator, requirements=requirements).evaluate(readable, keys))
    kept_combinations = task.make("kept", feasible_rows(readable, evaluated, keys))
    figures = runner.fetch_figures(class_figures(evaluated=evaluated))
    sums = runner.fetch_figures(attribute_figures(kept_combinations, len(task.trees)))
    persons = _person_figures(task, kept_combinations, figures["fewest"])
    return LocalResult(
        trees=task.trees,
        table=kept_combinations,
        labels=tuple(sort_labels(task, outcome, kept_combinations, i, table) for i, table in enumerate(labels)),
        figures=Figures(
            classes=figures["classes"],
            suppressed_rows=task.row_count - figures["rows"],
            squared_sizes=figures["squares"],
            kept_count=figures["kept_count"],
            suppressed_persons=None if persons is None else persons.suppressed,
        ),
        totals=RecodingTotals(
            tuple(sums[f"leaves_{i}"] or 0.0 for i in attributes), tuple(sums[f"levels_{i}"] or 0 for i in attributes)
        ),
        smallest_class=figures["smallest"],
        levels=tuple((sums[f"low_{i}"] or 0, sums[f"high_{i}"] or 0) for i in attributes),
        generated=frozenset(outcome.nodes),
        typed=outcome.typed,
        persons=persons,
        warnings=_warn_of_exact_ends(task, outcome, kept_combinations),
    )


_EXACT_VALUES = {
    "range": "as an end of a range",
    "median": "as the median of its class",
    "set": "as an end of a range, or in a set although few rows have it",
}


def _warn_of_exact_ends(task: LocalTask, outcome: LocalOutcome, kept_combinations: exp.Table) -> tuple[Notice, ...]:
    """With ``ends = "exact"``, report the share of released rows whose exact value the release shows."""
    if outcome.exact_ends is None:
        return ()
    flags = [col(f"is_end_{i}", "e") for i in range(len(task.trees))]
    counts: list[exp.Expr] = [
        fragment("coalesce((sum(k.row_count) FILTER (WHERE :condition))::BIGINT, 0)")(condition=flag)
        for flag in (*flags, exp.or_(*flags), exp.true())
    ]
    query = template("""
        SELECT :counts
        FROM :kept AS k
        JOIN :exact_ends AS e ON k.combination = e.combination
    """)(counts=counts, kept=kept_combinations, exact_ends=outcome.exact_ends)
    *by_attribute, affected, rows = task.fetch_row(query)
    if not affected:
        return ()
    counts_and_names = sorted(zip(by_attribute, (tree.name for tree in task.trees), strict=True), reverse=True)
    shares = ", ".join(f"{name} {count / rows:.1%}" for count, name in counts_and_names if count)
    place = _EXACT_VALUES[task.search_input.policy.search.summary]
    message = (
        f'search.ends = "exact": the release shows the exact value of {affected / rows:.1%} of its rows, '
        f"{place} ({shares}); a reader who knows such a value can identify the class of the row. "
        'Remove ends = "exact": ranges then end on the grid of the hierarchy, and sets list values that k rows have'
    )
    return (Notice(message, affected),)


def _person_figures(task: LocalTask, kept_combinations: exp.Table, fewest: int) -> PersonFigures | None:
    """Figures of the persons in the kept combinations; None if rows are counted instead of persons."""
    person_count = task.search_input.limit.all_persons
    suppressed, released = (
        task.count_suppressed_persons(kept_combinations),
        task.count_released_persons(kept_combinations),
    )
    if person_count is None or suppressed is None or released is None:
        return None
    return person_figures(person_count, suppressed, released, fewest)


def _guaranteed_requirements(task: LocalTask) -> Requirements:
    """The policy's requirements; shields alone where k-anonymity is guaranteed for subsets of attributes."""
    policy = task.search_input.policy
    subsets = guaranteed_combinations(policy.redact())
    if not subsets or policy.privacy.k is None:
        return task.search_input.requirements
    names = [tree.name for tree in task.trees]
    shields = [
        SubsetCondition(tuple(names.index(name) for name in subset), subset, policy.privacy.k) for subset in subsets
    ]
    return Requirements(shields=tuple(shields))


def _drop_small_subsets(task: LocalTask, readable: exp.Table, shields: Sequence[SubsetCondition]) -> exp.Table:
    """The largest set of combinations in which all shields hold. They all require the policy's k."""
    evaluator = replace(task.evaluator, requirements=Requirements((KAnonymity(shields[0].k),)))

    def too_small(attributes: Sequence[int]) -> exp.Select:
        keys = [f"code_{i}" for i in attributes]
        return feasible_rows(readable, evaluator.evaluate(readable, keys), keys, feasible=False)

    # Classes of k rows over all attributes are large enough over subsets of them.
    failing = task.make("failing_0", too_small(range(len(task.trees))))
    if not task.runner.count(failing):
        return readable
    row_count, number = task.runner.count(readable), 0
    while True:
        for first in range(0, len(shields), MAX_SHIELDS):
            number += 1
            removed = [too_small(shield.attributes) for shield in shields[first : first + MAX_SHIELDS]]
            readable = task.make(
                f"safe_{number}",
                template("SELECT s.* FROM :readable AS s ANTI JOIN (:removed) AS f ON s.combination = f.combination")(
                    readable=readable, removed=union_all(*removed)
                ),
            )
        if row_count == (row_count := task.runner.count(readable)):
            return readable


def on_combinations(strategy: Callable[[LocalTask], LocalOutcome]) -> Callable[[SearchTask], SearchResult]:
    """Wrap a strategy that assigns nodes to combinations as `policy.strategies.Strategy.run`."""

    @wraps(strategy)
    def run(task: SearchTask) -> SearchResult:
        runner, search_input = task.runner, task.search_input
        search = search_input.policy.search
        clock = Clock(Budget(search.time_limit, search.max_checks))
        if runner.dry:
            local = prepare_local_task(runner, search_input, task.progress, clock)
            return SearchResult(Figures(1, 1), 0.0, 0.0, optimal=False, local_result=example_result(local))
        deadline = None if search.time_limit is None else search.time_limit + GRACE
        with interrupt_after(deadline, task_engines(task), clock.may_interrupt):
            try:
                with clock.in_time(FIRST_GRACE):
                    local = prepare_local_task(runner, search_input, task.progress, clock)
                outcome = strategy(local)
            except LimitReachedError:
                raise time_limit_error(search_input) from None
        return _search_result(outcome)

    return run


def _search_result(outcome: LocalOutcome) -> SearchResult:
    task, result = outcome.task, finish(outcome.task, outcome)
    search_input = task.search_input
    limit, strategy = search_input.limit, search_input.policy.search.strategy
    suppressed, persons = result.figures.suppressed_rows, result.figures.suppressed_persons
    if not result.figures.classes or not limit.allows(suppressed, persons):
        message = f"strategy {strategy} found no recoding that meets the policy: it would suppress "
        message += limit.sentence(suppressed, task.row_count, persons)
        names = [requirement.name for requirement in search_input.requirements.class_conditions]
        message += describe_remedies(search_input, result.figures, names)
        raise InfeasibleError(message, None, suppressed, limit.rows, persons, limit.persons)
    measure = policy_measure(search_input)
    score = result.score(measure)
    # No recoding scores less than the rows at the floor without suppression.
    bound = min(score, max(measure.bound(task.floor), outcome.bound))
    return SearchResult(
        result.figures, score, bound, score <= bound, local_result=result, search=outcome.search, rounds=outcome.rounds
    )
