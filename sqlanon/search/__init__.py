"""The search: one lattice, one signature, a module a strategy."""

from collections.abc import Callable, Mapping

from sqlanon.search.budget import Budget
from sqlanon.search.k_minimal import k_minimal
from sqlanon.search.lattice import Lattice
from sqlanon.search.optimal import optimal
from sqlanon.search.task import Outcome, Search

Strategy = Callable[[Search], Outcome]

STRATEGIES: Mapping[str, Strategy] = {"optimal": optimal, "k_minimal": k_minimal}
"""The strategies by the names of the policy."""

__all__ = ["STRATEGIES", "Budget", "Lattice", "Outcome", "Search", "Strategy"]
