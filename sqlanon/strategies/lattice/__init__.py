"""The lattice of generalizations, and the search that full-domain strategies share."""

from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.lattice.limits import Budget
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.search import LatticeSearch

__all__ = ["Budget", "Lattice", "LatticeSearch", "Outcome"]
