"""The search: one lattice, and a module a strategy. Those of the full domain are here, the others in `recode.local`."""

from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.lattice.limits import Budget
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.search import LatticeSearch

__all__ = ["Budget", "Lattice", "LatticeSearch", "Outcome"]
