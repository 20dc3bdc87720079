"""The stage search: the best version of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

from sqlanon.coding import Levels
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.build import EXAMPLE_LEAVES
from sqlanon.measures import Figures, Measure
from sqlanon.policy.strategies import strategy_of
from sqlanon.search import Outcome, Search
from sqlanon.search.candidate import candidate
from sqlanon.search.examples import example_levels
from sqlanon.search.full_domain import SearchTask
from sqlanon.search.input import SearchInput
from sqlanon.search.lattice import Progress
from sqlanon.sources.earlier import EARLIER


class Placed(Protocol):
    """What a strategy below the full domain released each combination as: a `recode.local.finish.LocalResult`."""

    @property
    def generalization(self) -> Mapping[str, int | None]:
        """The level of each attribute that is released at one."""

    def score(self, measure: Measure) -> float:
        """By a measure."""


@dataclass(frozen=True)
class SearchResult:
    """The best version of a source that a strategy found: a generalization, or what each combination is released as.

    Its score is a cost, and nothing of its kind that meets the policy costs less than the bound. A strategy that does
    not search the lattice has no ``search``.
    """

    found: Outcome | Placed
    figures: Figures
    score: float
    bound: float
    optimal: bool
    search: Search | None = None
    rounds: int = 0

    @property
    def checked(self) -> int:
        """How many generalizations, and rounds over the combinations, were counted."""
        return self.rounds + (0 if self.search is None else len(self.search.figures))

    @property
    def minimal(self) -> tuple[Levels, ...] | None:
        """The k-minimal generalizations, where the strategy looks for them."""
        return self.found.minimal if isinstance(self.found, Outcome) else None

    @property
    def satisfying(self) -> tuple[Levels, ...] | None:
        """All generalizations that meet the policy, where the strategy finds them."""
        return self.found.satisfying if isinstance(self.found, Outcome) else None

    def lattice_rows(self) -> list[list[Any]] | None:
        """The lattice table, one list a column; None where the lattice was not searched."""
        if self.search is None:
            return None
        rows, own = self.search.rows(), [name != EARLIER for name in self.search.lattice.attributes]
        return [[list(compress(levels, own)) for levels in rows[0]], *rows[1:]]


def search(steps: StatementRunner, prepared: SearchInput, progress: Progress) -> SearchResult:
    """Find the best version of a prepared source with the policy's strategy; in a dry run one check stands for all."""
    asked, task = prepared.policy.search, SearchTask(steps, prepared, prepared.work, progress)
    if steps.dry and not asked.is_local:
        result = _example(steps, prepared)
    else:
        found = strategy_of(asked).run(task)
        result = _of_lattice(task, found) if isinstance(found, Outcome) else found
    note = "a check like this for every generalization that bounds leave open"
    if asked.is_local:
        note = f"rounds over the combinations and the nodes of the hierarchies (here: {EXAMPLE_LEAVES} a level)"
    cells = ", then cells are blanked" if asked.suppression == "cells" else ""
    steps.finish("search", f"strategy {asked.strategy}{cells}: {note}")
    return result


def _of_lattice(task: SearchTask, outcome: Outcome) -> SearchResult:
    lattice, levels = task.lattice, outcome.levels
    assert levels is not None  # else it is infeasible
    score, figures = lattice.scores[levels], lattice.figures[levels]
    return SearchResult(outcome, figures, score, outcome.bound, outcome.optimal, lattice)


def _example(steps: StatementRunner, prepared: SearchInput) -> SearchResult:
    """The check, and the version that a plan shows."""
    levels = example_levels(prepared.policy, prepared.marginals.heights)
    steps.show(candidate(prepared.sets.at(levels), levels))
    return SearchResult(Outcome(levels, optimal=False), Figures(1, 1), 0.0, 0.0, optimal=False)
