"""The task of a strategy, and the wrapper that runs a search of the lattice as a strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps

from sqlanon.engines.base import Engine, Queryable
from sqlanon.engines.deadline import interrupt_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.strategies.lattice.checker import Checker, policy_measure, verdict_rules
from sqlanon.strategies.lattice.infeasible import infeasible_error, no_permitted_level_error, time_limit_error
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress
from sqlanon.strategies.lattice.limits import GRACE, Budget, LimitReachedError
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.search import LatticeSearch, SourceFacts
from sqlanon.strategies.lattice.vectors import distance_vectors, distinct_values
from sqlanon.support.coding import Levels


def source_facts(search_input: SearchInput) -> SourceFacts:
    """The facts about a source that some strategies use in addition to checks."""
    requirements, additive = search_input.requirements, search_input.frequency_sets.space.additive
    merged_classes_comply = additive or all(condition.hereditary for condition in requirements.class_conditions)
    classes_comply_alone = not (
        requirements.shields or requirements.table_conditions or requirements.separate_conditions
    )
    return SourceFacts(
        lambda: distance_vectors(search_input),
        merged_classes_comply and classes_comply_alone,
        lambda: distinct_values(search_input),
    )


@dataclass(frozen=True)
class SearchTask:
    """The task of a strategy: a search input and its limits."""

    runner: StatementRunner
    search_input: SearchInput
    progress: Progress
    budget: Budget | None = None
    """None: the policy's limits."""

    @property
    def engine(self) -> Engine:
        """The engine that runs the statements."""
        return self.runner.engine

    @cached_property
    def lattice(self) -> LatticeSearch:
        """The search of the lattice."""
        search_input, search_section = self.search_input, self.search_input.policy.search
        measure = policy_measure(search_input)

        def expect_suppressed(levels: Levels) -> float:
            return search.forecast.predict(levels)

        checker = Checker(self.engine, search_input, measure, expect_suppressed, lambda: search.seeks_best_only)
        search = LatticeSearch(
            lattice=search_input.lattice,
            measure=measure,
            checker=checker,
            draw_verdict=verdict_rules(search_input).draw_verdict,
            allowed_rows=search_input.limit.rows,
            progress=self.progress,
            budget=self.budget or Budget(search_section.time_limit, search_section.max_checks),
            source_facts=source_facts(search_input),
            check_together=checker.check_together,
            limit=search_input.limit,
        )
        return search


def task_engines(task: SearchTask) -> list[Queryable]:
    """The engines that run the statements of a search."""
    return [task.engine, task.search_input.frequency_sets.runner.engine]


def lattice_strategy(find: Callable[[LatticeSearch], Outcome]) -> Callable[[SearchTask], SearchResult]:
    """Make a strategy (see `registry.Strategy.run`) of a search of the lattice.

    The strategy returns a generalization, or raises an error that explains why there is none.
    """

    @wraps(find)
    def run(task: SearchTask) -> SearchResult:
        if not task.search_input.lattice.size:
            raise no_permitted_level_error(task.search_input)
        search = task.lattice
        seconds = search.budget.seconds
        deadline = None if seconds is None else seconds + GRACE
        with interrupt_after(deadline, task_engines(task), search.clock.may_interrupt):
            try:
                outcome = find(search)
            except LimitReachedError:  # in the first check
                raise time_limit_error(task.search_input) from None
        levels = outcome.levels
        if levels is None and not search.figures:
            raise time_limit_error(task.search_input)
        if levels is None:
            raise infeasible_error(task.search_input, search, outcome)
        return SearchResult(
            search.figures[levels],
            search.scores[levels],
            outcome.bound,
            outcome.optimal,
            levels=levels,
            search=search,
            minimal=outcome.minimal,
            satisfying=outcome.satisfying,
        )

    return run
