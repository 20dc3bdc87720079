"""Names and traits of the search strategies: data only, so that a policy is read without the code of any strategy.

`sqlanon.strategies.registry` loads the module of a strategy when it runs, and registers strategies from outside the
package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Traits:
    """Strategy properties that other modules rely on. The defaults are those of a full-domain strategy."""

    is_local: bool = False
    """Recodes below the full domain: each row, or each value, has its own level."""
    summarizes: bool = False
    """May release labels that no hierarchy has: ranges, medians, sets."""
    splits_classes: bool = False
    """Splits classes in two, strictly or not."""
    supported_requirements: frozenset[str] | None = None
    """The only requirements that it considers; None: all requirements on classes."""
    may_split_equal_rows: bool = False
    """May release equal rows with different labels."""
    protects_combinations_only: bool = False
    """Guarantees k-anonymity of combinations of a few quasi-identifiers, not of all of them together."""
    terminates: bool = True
    """Terminates soon without a limit; other strategies may run for days."""
    proves_optimum: bool = False
    """Proves that its result is the optimum for every table, unless a limit ends the search."""

    @property
    def ignored_keys(self) -> tuple[str, ...]:
        """The keys of ``[search]`` that only other strategies use."""
        uses = {
            "summary": self.summarizes,
            "ends": self.summarizes,
            "cuts": self.splits_classes,
            "suppression": not self.is_local,
        }
        return tuple(key for key, is_used in uses.items() if not is_used)


@dataclass(frozen=True)
class StrategyInfo:
    """A registered strategy: the module that runs it, and the traits that policies check."""

    name: str
    description: str
    """The result in a few words."""
    module: str | None
    """The module whose ``run`` searches; None for a strategy registered with its code."""
    traits: Traits = Traits()


def _full_domain(name: str, description: str, **traits: Any) -> StrategyInfo:
    module = f"sqlanon.strategies.full_domain.{name.replace('-', '_')}"
    return StrategyInfo(name, description, module, Traits(**traits))


def _local(name: str, module: str, description: str, **traits: Any) -> StrategyInfo:
    return StrategyInfo(name, description, f"sqlanon.strategies.local.{module}", Traits(is_local=True, **traits))


CELLS = _local("cells", "cells", "a full-domain optimum with blanked cells")
"""Runs in place of a full-domain strategy where ``suppression = "cells"``."""

_K_ONLY, _K_AND_SHIELDS = frozenset({"k"}), frozenset({"k", "k_anonymity"})

STRATEGIES: dict[str, StrategyInfo] = {
    strategy.name: strategy
    for strategy in (
        _full_domain("optimal", "the best of all generalizations", proves_optimum=True),
        _full_domain("k_minimal", "all k-minimal generalizations, and the best of them"),
        _full_domain("samarati", "all k-minimal generalizations, by distance vectors"),
        _full_domain("samarati-binary", "the best generalization of the least height"),
        _full_domain("incognito", "all feasible generalizations, by subsets of attributes", proves_optimum=True),
        _full_domain("ola", "the best of the k-minimal ones"),
        _full_domain("flash", "the best generalization on its paths"),
        _full_domain("datafly", "a feasible generalization, greedily"),
        _local(
            "mu-argus", "mu_argus", "suppresses rare pairs and triples of values",
            supported_requirements=_K_ONLY, protects_combinations_only=True,
        ),
        _local(
            "iab", "iab", "the most distinct tuples that its steps lead to",
            supported_requirements=_K_AND_SHIELDS, terminates=False,
        ),
        _local(
            "mondrian", "mondrian", "splits rows into groups until a split would break the policy",
            summarizes=True, splits_classes=True,
        ),
        _local("k-similar", "k_similar", "groups of k to 2k − 1 similar rows", summarizes=True),
        _local(
            "forest", "forest", "groups within a proven factor of the least loss",
            may_split_equal_rows=True, supported_requirements=_K_ONLY,
        ),
        _local("subtree", "subtree", "a cut of each hierarchy, the same for all rows"),
        _local("local", "local", "a full-domain optimum, improved row by row"),
    )
}  # fmt: skip
"""The strategies by the names of the policy."""

SUGGESTED_SEARCHES: Mapping[str, Mapping[str, str]] = {
    "mondrian with sets": {"strategy": "mondrian", "summary": "set"},
    "mondrian": {"strategy": "mondrian", "summary": "range"},
    "optimal": {"strategy": "optimal"},
    "subtree": {"strategy": "subtree"},
    "local": {"strategy": "local"},
    "optimal with cells": {"strategy": "optimal", "suppression": "cells"},
}
"""The keys of ``[search]`` that trials on a sample compare, by names for people. Each guarantees all requirements on
classes. Fast strategies come first: their results do not depend on the time limit."""

FINER_SEARCHES = ("mondrian with sets", "local", "optimal with cells")
"""The suggested searches that may keep a column which other strategies fully suppress, the finest first."""


def strategy_traits(name: object) -> Traits:
    """The traits of the strategy of this name; those of the full domain for any other value."""
    return STRATEGIES[name].traits if isinstance(name, str) and name in STRATEGIES else Traits()
