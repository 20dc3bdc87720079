"""Names and traits of the search strategies: data only, so that a policy is read without the code of any strategy.

`sqlanon.strategies.registry` loads the module of a strategy when it runs, and registers strategies from outside the
package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
    """Ends by itself; without a limit, other strategies may run for days."""
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
    """A strategy as policies know it."""

    name: str
    description: str
    """Its result, in a few words."""
    module: str | None
    """The module whose ``run`` searches; None for a strategy registered with its code."""
    traits: Traits = Traits()


CELLS = StrategyInfo(
    "cells", "a full-domain optimum with blanked cells", "sqlanon.strategies.local.cells", Traits(is_local=True)
)
"""Runs in place of a full-domain strategy where ``suppression = "cells"``."""

_FULL_DOMAIN, _LOCAL = "sqlanon.strategies.full_domain", "sqlanon.strategies.local"

STRATEGIES: dict[str, StrategyInfo] = {
    strategy.name: strategy
    for strategy in (
        StrategyInfo(
            "optimal", "the best of all generalizations", f"{_FULL_DOMAIN}.optimal", Traits(proves_optimum=True)
        ),
        StrategyInfo("k_minimal", "all k-minimal generalizations, and the best of them", f"{_FULL_DOMAIN}.k_minimal"),
        StrategyInfo("samarati", "all k-minimal generalizations, by distance vectors", f"{_FULL_DOMAIN}.samarati"),
        StrategyInfo("samarati-binary", "the best of the least height", f"{_FULL_DOMAIN}.samarati_binary"),
        StrategyInfo(
            "incognito",
            "all that satisfy, by subsets of attributes",
            f"{_FULL_DOMAIN}.incognito",
            Traits(proves_optimum=True),
        ),
        StrategyInfo("ola", "the best of the k-minimal ones", f"{_FULL_DOMAIN}.ola"),
        StrategyInfo("flash", "the best of what its paths meet", f"{_FULL_DOMAIN}.flash"),
        StrategyInfo("datafly", "one that satisfies, greedily", f"{_FULL_DOMAIN}.datafly"),
        StrategyInfo(
            "mu-argus",
            "rare pairs and triples of values are gone",
            f"{_LOCAL}.mu_argus",
            Traits(is_local=True, supported_requirements=frozenset({"k"}), protects_combinations_only=True),
        ),
        StrategyInfo(
            "iab",
            "the most distinct tuples that its steps lead to",
            f"{_LOCAL}.iab",
            Traits(is_local=True, supported_requirements=frozenset({"k", "k_anonymity"}), terminates=False),
        ),
        StrategyInfo(
            "mondrian",
            "splits rows into groups until a split would break the policy",
            f"{_LOCAL}.mondrian",
            Traits(is_local=True, summarizes=True, splits_classes=True),
        ),
        StrategyInfo(
            "k-similar",
            "groups of k to 2k − 1 similar rows",
            f"{_LOCAL}.similar",
            Traits(is_local=True, summarizes=True),
        ),
        StrategyInfo(
            "forest",
            "groups within a proven factor of the least loss",
            f"{_LOCAL}.forest",
            Traits(is_local=True, may_split_equal_rows=True, supported_requirements=frozenset({"k"})),
        ),
        StrategyInfo(
            "subtree", "a cut of each hierarchy, the same for all rows", f"{_LOCAL}.subtree", Traits(is_local=True)
        ),
        StrategyInfo(
            "local", "a full-domain optimum, improved row by row", f"{_LOCAL}.iterative", Traits(is_local=True)
        ),
    )
}
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
