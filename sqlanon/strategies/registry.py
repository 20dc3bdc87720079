"""The code of each strategy, loaded when it runs. `policy.strategies` has the names and traits."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from sqlanon.policy.sections import SearchSection
from sqlanon.policy.strategies import CELLS, STRATEGIES, StrategyInfo, Traits
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.strategies.lattice.task import SearchTask


class Strategy(Protocol):
    """A strategy from outside the package."""

    @property
    def name(self) -> str:
        """The name in policies."""

    @property
    def description(self) -> str:
        """The result in a few words."""

    @property
    def traits(self) -> Traits:
        """Properties that other modules rely on."""

    @property
    def run(self) -> Callable[[SearchTask], SearchResult]:
        """Searches: `lattice.task.lattice_strategy` makes it from a search of the lattice."""


_RUNS: dict[str, Callable[[SearchTask], SearchResult]] = {}
"""The code of strategies from outside the package, by name."""


def register(strategy: Strategy) -> None:
    """Add a strategy; policies may name it from now on."""
    if strategy.name in STRATEGIES:
        raise ValueError(f"strategy {strategy.name!r} is registered already")
    STRATEGIES[strategy.name] = StrategyInfo(strategy.name, strategy.description, None, strategy.traits)
    _RUNS[strategy.name] = strategy.run


def unregister(strategy: Strategy | StrategyInfo) -> None:
    """Remove a registered strategy."""
    del STRATEGIES[strategy.name], _RUNS[strategy.name]


def requested_strategy(search: SearchSection) -> StrategyInfo:
    """The strategy that ``[search]`` requests."""
    return CELLS if search.suppression == "cells" else STRATEGIES[search.strategy]


def run_strategy(task: SearchTask, strategy: StrategyInfo) -> SearchResult:
    """Search with a strategy."""
    run = _RUNS[strategy.name] if strategy.module is None else import_module(strategy.module).run
    result: SearchResult = run(task)
    return result


def find_lattice_search(strategy: StrategyInfo) -> Callable[[LatticeSearch], Outcome]:
    """The search of the lattice that a full-domain strategy runs."""
    run: Any = _RUNS[strategy.name] if strategy.module is None else import_module(strategy.module).run
    find: Callable[[LatticeSearch], Outcome] = run.__wrapped__
    return find
