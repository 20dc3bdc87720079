"""The search: one lattice, and a module a strategy. Those of the full domain are here, the others in `recode.local`."""

from sqlanon.search.lattice import Lattice
from sqlanon.search.outcome import Outcome
from sqlanon.search.task import Budget, Search

__all__ = ["Budget", "Lattice", "Outcome", "Search"]
