"""The result of a search by any strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.measures import Figures, Measure
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import PersonFigures
from sqlanon.strategies.lattice.search import LatticeSearch
from sqlanon.support.coding import Levels
from sqlanon.support.names import EARLIER_RELEASES_COLUMN
from sqlanon.support.notices import Notice


class LocalResult(Protocol):
    """The result of a local strategy: labels for each combination of quasi-identifiers."""

    @property
    def floor(self) -> Levels:
        """The levels at which combinations are distinguished."""

    @property
    def generalization(self) -> Mapping[str, int | None]:
        """The level of each attribute; None for an attribute with several levels."""

    @property
    def figures(self) -> Figures:
        """The figures of its classes."""

    @property
    def smallest_class(self) -> int:
        """The rows of its smallest class."""

    @property
    def persons(self) -> PersonFigures | None:
        """The persons of the result, if persons are counted."""

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Warnings about disclosure by the released labels, where the policy permits it."""

    def score(self, measure: Measure) -> float:
        """The score by a measure."""

    def make_suppressed(self, runner: StatementRunner, search_input: SearchInput) -> exp.Table:
        """Make ``suppressed``: the suppressed combinations, as classes of the generalization at the floor."""

    def recoding(self, search_input: SearchInput, mask: bool) -> Any:
        """The `strategies.recoding.ClassRecoding` that makes the released rows from the source."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a strategy: a generalization of all rows, or a local result.

    The score is a cost; nothing of its kind that meets the policy costs less than the bound. Only strategies that
    search the lattice have a ``search``.
    """

    figures: Figures
    score: float
    bound: float
    optimal: bool
    levels: Levels | None = None  # the levels of a full-domain result
    local_result: LocalResult | None = None  # the result of a local strategy
    search: LatticeSearch | None = None
    rounds: int = 0
    minimal: tuple[Levels, ...] | None = None  # the k-minimal generalizations, if the strategy looks for them
    satisfying: tuple[Levels, ...] | None = None  # all that meet the policy, if the strategy finds them

    @property
    def checked(self) -> int:
        """Number of checked generalizations and of rounds over the combinations."""
        return self.rounds + (0 if self.search is None else len(self.search.figures))

    def lattice_columns(self) -> list[list[Any]] | None:
        """The columns of the lattice table; None without a search of the lattice."""
        if self.search is None:
            return None
        levels_column, *columns = self.search.lattice_columns()
        is_released = [name != EARLIER_RELEASES_COLUMN for name in self.search.lattice.attributes]
        return [[list(compress(levels, is_released)) for levels in levels_column], *columns]
