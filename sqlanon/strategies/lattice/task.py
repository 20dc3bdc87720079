"""A search of the lattice of a prepared source: what it works on, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps

from sqlanon.engines.base import Engine, Queries
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


def source_facts(prepared: SearchInput) -> SourceFacts:
    """What a strategy may ask of the prepared source, beside checks."""
    asked, additive = prepared.requirements, prepared.frequency_sets.space.additive
    merges = additive or all(one.hereditary for one in asked.class_conditions)
    by_itself = not asked.shields and not asked.table_conditions and not asked.separate_conditions
    return SourceFacts(lambda: distance_vectors(prepared), merges and by_itself, lambda: distinct_values(prepared))


@dataclass(frozen=True)
class SearchTask:
    """What a strategy works on: a prepared source."""

    steps: StatementRunner
    prepared: SearchInput
    progress: Progress
    budget: Budget | None = None
    """None: the policy's limits."""

    @property
    def engine(self) -> Engine:
        """The engine that answers."""
        return self.steps.engine

    @cached_property
    def lattice(self) -> LatticeSearch:
        """The search of its lattice, with all that is learnt on the way."""
        engine, prepared, asked = self.engine, self.prepared, self.prepared.policy.search
        measure = policy_measure(prepared)

        def expected(levels: Levels) -> float:
            return search.forecast.guess(levels)

        check = Checker(engine, prepared, measure, expected, lambda: search.seeks_best_only)
        search = LatticeSearch(
            lattice=prepared.lattice,
            measure=measure,
            evaluate=check,
            judge=verdict_rules(prepared).judge,
            allowed_rows=prepared.limit.rows,
            progress=self.progress,
            budget=self.budget or Budget(asked.time_limit, asked.max_checks),
            source_facts=source_facts(prepared),
            evaluate_together=check.together,
            limit=prepared.limit,
        )
        return search


def task_engines(task: SearchTask) -> list[Queries]:
    """The engines that run the statements of a search."""
    return [task.engine, task.prepared.frequency_sets.steps.engine]


def lattice_strategy(strategy: Callable[[LatticeSearch], Outcome]) -> Callable[[SearchTask], SearchResult]:
    """A strategy of the full domain, as `registry.Strategy.run`: it ends with a generalization, or an error
    that says why there is none."""

    @wraps(strategy)
    def run(task: SearchTask) -> SearchResult:
        if not task.prepared.lattice.size:
            raise no_permitted_level_error(task.prepared)
        search = task.lattice
        seconds = search.budget.seconds
        late = None if seconds is None else seconds + GRACE
        with interrupt_after(late, task_engines(task), search.may_interrupt):
            try:
                outcome = strategy(search)
            except LimitReachedError:  # in the first check
                raise time_limit_error(task.prepared) from None
        levels = outcome.levels
        if levels is None and not search.figures:
            raise time_limit_error(task.prepared)
        if levels is None:
            raise infeasible_error(task.prepared, search, outcome)
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
