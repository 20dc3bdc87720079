"""The result of a search, of whatever strategy."""

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
from sqlanon.support.names import EARLIER
from sqlanon.support.notices import Notice


class LocalResult(Protocol):
    """What a strategy below the full domain released each combination as."""

    @property
    def floor(self) -> Levels:
        """The levels at which combinations are told apart."""

    @property
    def generalization(self) -> Mapping[str, int | None]:
        """The level of each attribute that is released at one."""

    @property
    def figures(self) -> Figures:
        """Of its classes."""

    @property
    def smallest_class(self) -> int:
        """The rows of its smallest class."""

    @property
    def persons(self) -> PersonFigures | None:
        """Its persons, where persons are counted."""

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """What the released labels reveal, where the policy lets them."""

    def score(self, measure: Measure) -> float:
        """By a measure."""

    def suppressed(self, steps: StatementRunner, prepared: SearchInput) -> exp.Table:
        """Make ``suppressed``: the combinations that are not kept, as classes of the generalization at the floor."""

    def recoding(self, prepared: SearchInput, mask: bool) -> Any:
        """A `recode.full_domain.ByClass`: how its rows are made from the source."""


@dataclass(frozen=True)
class SearchResult:
    """The best version of a source that a strategy found: a generalization, or what each combination is released as.

    Its score is a cost, and nothing of its kind that meets the policy costs less than the bound. A strategy that does
    not search the lattice has no ``search``.
    """

    figures: Figures
    score: float
    bound: float
    optimal: bool
    levels: Levels | None = None  # of all rows; None below the full domain
    local_result: LocalResult | None = None  # below the full domain
    search: LatticeSearch | None = None
    rounds: int = 0
    minimal: tuple[Levels, ...] | None = None  # the k-minimal generalizations, where the strategy looks for them
    satisfying: tuple[Levels, ...] | None = None  # all that meet the policy, where the strategy finds them

    @property
    def checked(self) -> int:
        """How many generalizations, and rounds over the combinations, were counted."""
        return self.rounds + (0 if self.search is None else len(self.search.figures))

    def lattice_rows(self) -> list[list[Any]] | None:
        """The lattice table, one list a column; None where the lattice was not searched."""
        if self.search is None:
            return None
        rows, own = self.search.lattice_columns(), [name != EARLIER for name in self.search.lattice.attributes]
        return [[list(compress(levels, own)) for levels in rows[0]], *rows[1:]]
