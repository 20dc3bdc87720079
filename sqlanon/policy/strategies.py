"""The strategies by name: what each finds, and what of it the rest has to know. No other module lists them.

A policy is read without the code of any strategy: that is imported when the strategy runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol


@dataclass(frozen=True)
class Traits:
    """What a strategy is to the rest; by default, one of the full domain."""

    local: bool = False
    """It recodes below the full domain: each row, or each value, has a level of its own."""
    summarises: bool = False
    """It may release what no hierarchy has: ranges, medians, sets."""
    cuts: bool = False
    """It cuts classes in two, strictly or not."""
    knows: frozenset[str] | None = None
    """The only requirements that it looks at; None: all requirements on classes."""
    divides: bool = False
    """It may release equal rows with different labels."""
    of_combinations: bool = False
    """It guarantees k-anonymity of some quasi-identifiers at a time, and not of all together."""
    ends: bool = True
    """It ends by itself; else only a limit bounds what it looks at, for days."""
    proves: bool = False
    """Its result is proven to be the best, whatever the values are, unless a limit ends it."""

    @property
    def ignores(self) -> tuple[str, ...]:
        """The keys of ``[search]`` that are for other strategies."""
        known = {"summary": self.summarises, "ends": self.summarises, "cuts": self.cuts, "suppression": not self.local}
        return tuple(key for key, has in known.items() if not has)


class Strategy(Protocol):
    """How the version to release is searched for."""

    @property
    def name(self) -> str:
        """As policies name it."""

    @property
    def finds(self) -> str:
        """What it finds, in a few words."""

    @property
    def traits(self) -> Traits:
        """What it is to the rest."""

    def run(self, task: Any) -> Any:
        """Search a `search.full_domain.SearchTask`: a `search.result.SearchResult`."""


@dataclass(frozen=True)
class OwnStrategy:
    name: str
    finds: str
    module: str
    traits: Traits = Traits()

    def run(self, task: Any) -> Any:
        return import_module(self.module).run(task)


CELLS = OwnStrategy(
    "cells", "a full-domain optimum with blanked cells", "sqlanon.strategies.local.cells", Traits(local=True)
)
"""Stands for a strategy of the full domain where ``suppression = "cells"``."""

STRATEGIES: dict[str, Strategy] = {}
"""The strategies by the names of the policy."""


def register(strategy: Strategy) -> None:
    """Add a strategy. Policies know its name from now on."""
    if strategy.name in STRATEGIES:
        raise ValueError(f"there is a strategy {strategy.name!r} already")
    STRATEGIES[strategy.name] = strategy


def unregister(strategy: Strategy) -> None:
    del STRATEGIES[strategy.name]


for _one in (
    OwnStrategy(
        "optimal", "the best of all generalizations", "sqlanon.strategies.full_domain.optimal", Traits(proves=True)
    ),
    OwnStrategy(
        "k_minimal", "all k-minimal generalizations, and the best of them", "sqlanon.strategies.full_domain.k_minimal"
    ),
    OwnStrategy(
        "samarati", "all k-minimal generalizations, by distance vectors", "sqlanon.strategies.full_domain.samarati"
    ),
    OwnStrategy("samarati-binary", "the best of the least height", "sqlanon.strategies.full_domain.samarati_binary"),
    OwnStrategy(
        "incognito",
        "all that satisfy, by subsets of attributes",
        "sqlanon.strategies.full_domain.incognito",
        Traits(proves=True),
    ),
    OwnStrategy("ola", "the best of the k-minimal ones", "sqlanon.strategies.full_domain.ola"),
    OwnStrategy("flash", "the best of what its paths meet", "sqlanon.strategies.full_domain.flash"),
    OwnStrategy("datafly", "one that satisfies, greedily", "sqlanon.strategies.full_domain.datafly"),
    OwnStrategy(
        "mu-argus",
        "rare pairs and triples of values are gone",
        "sqlanon.strategies.local.mu_argus",
        Traits(local=True, knows=frozenset({"k"}), of_combinations=True),
    ),
    OwnStrategy(
        "iab",
        "the most distinct tuples that its steps lead to",
        "sqlanon.strategies.local.iab",
        Traits(local=True, knows=frozenset({"k", "k_anonymity"}), ends=False),
    ),
    OwnStrategy(
        "mondrian",
        "splits rows into groups until a split would break the policy",
        "sqlanon.strategies.local.mondrian",
        Traits(local=True, summarises=True, cuts=True),
    ),
    OwnStrategy(
        "k-similar",
        "groups of k to 2k − 1 similar rows",
        "sqlanon.strategies.local.similar",
        Traits(local=True, summarises=True),
    ),
    OwnStrategy(
        "forest",
        "groups within a proven factor of the least loss",
        "sqlanon.strategies.local.forest",
        Traits(local=True, divides=True, knows=frozenset({"k"})),
    ),
    OwnStrategy(
        "subtree",
        "a cut of each hierarchy, the same for all rows",
        "sqlanon.strategies.local.subtree",
        Traits(local=True),
    ),
    OwnStrategy(
        "local", "a full-domain optimum, improved row by row", "sqlanon.strategies.local.iterative", Traits(local=True)
    ),
):
    register(_one)


def strategy_of(search: Any) -> Strategy:
    """What searches for the version that ``[search]`` asks for."""
    return CELLS if search.suppression == "cells" else STRATEGIES[search.strategy]


def traits_of(strategy: object) -> Traits:
    """The traits of a strategy by its name; of anything else, those of the full domain."""
    return next((one.traits for name, one in STRATEGIES.items() if name == strategy), Traits())
