"""A search of the lattice of a prepared source: what it works on, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps

from sqlanon.engines.base import Engine, Queries
from sqlanon.engines.deadline import interrupted_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.policy.strategies import Strategy
from sqlanon.strategies.lattice.checker import Checker, measure_of, rules_of
from sqlanon.strategies.lattice.infeasible import infeasible, nothing_allowed, nothing_in_time
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress
from sqlanon.strategies.lattice.limits import GRACE, Budget, LimitReachedError
from sqlanon.strategies.lattice.memory import Data, Search
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.vectors import distance_vectors, distinct_values
from sqlanon.support.coding import Levels


def data_of(prepared: SearchInput) -> Data:
    """What a strategy may ask of the prepared source, beside checks."""
    asked, additive = prepared.requirements, prepared.sets.space.additive
    merges = additive or all(one.hereditary for one in asked.class_conditions)
    by_itself = not asked.shields and not asked.table_conditions and not asked.separate_conditions
    return Data(lambda: distance_vectors(prepared), merges and by_itself, lambda: distinct_values(prepared))


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
    def lattice(self) -> Search:
        """The search of its lattice, with all that is learnt on the way."""
        engine, prepared, asked = self.engine, self.prepared, self.prepared.policy.search
        measure = measure_of(prepared)

        def expected(levels: Levels) -> float:
            return search.forecast.guess(levels)

        check = Checker(engine, prepared, measure, expected, lambda: search.only_best)
        search = Search(
            lattice=prepared.lattice,
            measure=measure,
            check=check,
            judge=rules_of(prepared).judge,
            allowed_rows=prepared.limit.rows,
            progress=self.progress,
            budget=self.budget or Budget(asked.time_limit, asked.max_checks),
            data=data_of(prepared),
            check_first=check.together,
            limit=prepared.limit,
        )
        return search


def engines_of(task: SearchTask) -> list[Queries]:
    """The engines that run the statements of a search."""
    return [task.engine, task.prepared.sets.steps.engine]


def on_lattice(strategy: Callable[[Search], Outcome]) -> Callable[[SearchTask], SearchResult]:
    """A strategy of the full domain, as `policy.strategies.Strategy.run`: it ends with a generalization, or an error
    that says why there is none."""

    @wraps(strategy)
    def run(task: SearchTask) -> SearchResult:
        if not task.prepared.lattice.size:
            raise nothing_allowed(task.prepared)
        search = task.lattice
        seconds = search.budget.seconds
        late = None if seconds is None else seconds + GRACE
        with interrupted_after(late, engines_of(task), search.may_interrupt):
            try:
                outcome = strategy(search)
            except LimitReachedError:  # in the first check
                raise nothing_in_time(task.prepared) from None
        levels = outcome.levels
        if levels is None and not search.figures:
            raise nothing_in_time(task.prepared)
        if levels is None:
            raise infeasible(task.prepared, search, outcome)
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


def find(task: SearchTask, strategy: Strategy) -> SearchResult:
    """Search with a strategy."""
    result: SearchResult = strategy.run(task)
    return result
