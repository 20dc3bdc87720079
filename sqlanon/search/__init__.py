"""The search: one lattice, and a module a strategy. Those of the full domain are here, the others in `recode.local`."""

from sqlanon.search.budget import Budget
from sqlanon.search.lattice import Lattice
from sqlanon.search.task import Outcome, Search

__all__ = ["Budget", "Lattice", "Outcome", "Search"]
