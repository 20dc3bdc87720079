"""The search: one lattice, one signature, a module a strategy."""

from collections.abc import Callable, Mapping

from sqlanon.search.budget import Budget
from sqlanon.search.datafly import datafly
from sqlanon.search.flash import flash
from sqlanon.search.incognito import incognito
from sqlanon.search.k_minimal import k_minimal
from sqlanon.search.lattice import Lattice
from sqlanon.search.ola import ola
from sqlanon.search.optimal import optimal
from sqlanon.search.samarati import samarati, samarati_binary
from sqlanon.search.task import Outcome, Search

Strategy = Callable[[Search], Outcome]

STRATEGIES: Mapping[str, Strategy] = {
    "optimal": optimal,
    "k_minimal": k_minimal,
    "samarati": samarati,
    "samarati-binary": samarati_binary,
    "incognito": incognito,
    "ola": ola,
    "flash": flash,
    "datafly": datafly,
}
"""The strategies by the names of the policy."""

__all__ = ["STRATEGIES", "Budget", "Lattice", "Outcome", "Search", "Strategy"]
