"""The search: one lattice, and a module a strategy. Those of the full domain are here, the others in `recode.local`."""

from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.lattice.limits import Budget
from sqlanon.strategies.lattice.memory import Search
from sqlanon.strategies.lattice.outcome import Outcome

__all__ = ["Budget", "Lattice", "Outcome", "Search"]
