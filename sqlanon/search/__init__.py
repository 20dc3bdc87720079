"""The search: one lattice, and a module a strategy. Those of the full domain are here, the others in `recode.local`."""

from sqlanon.search.lattice import Lattice
from sqlanon.search.limits import Budget
from sqlanon.search.memory import Search
from sqlanon.search.outcome import Outcome

__all__ = ["Budget", "Lattice", "Outcome", "Search"]
