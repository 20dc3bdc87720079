"""The lattice of generalizations, and what a search has learnt of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlanon.quality import Figures, Measure
from sqlanon.queries.classes import Levels
from sqlanon.search.border import Dominance
from sqlanon.search.verdict import Verdict

TOLERANCE = 1e-12
"""Scores this close, relatively, are ties."""


@dataclass(frozen=True)
class Lattice:
    """All generalizations between a bottom and a top, attributes in the policy's order.

    >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3))
    >>> lattice.size, list(lattice.successors((1, 1)))
    (8, [(1, 2)])
    """

    attributes: tuple[str, ...]
    bottom: Levels
    top: Levels

    @property
    def size(self) -> int:
        """The number of generalizations."""
        return math.prod(high - low + 1 for low, high in zip(self.bottom, self.top, strict=True))

    def successors(self, levels: Levels) -> Iterator[Levels]:
        """One level up in one attribute."""
        return (self._moved(levels, i, 1) for i, top in enumerate(self.top) if levels[i] < top)

    def predecessors(self, levels: Levels) -> Iterator[Levels]:
        """One level down in one attribute."""
        return (self._moved(levels, i, -1) for i, bottom in enumerate(self.bottom) if levels[i] > bottom)

    def children(self, levels: Levels) -> Iterator[Levels]:
        """The successors that raise the last raised attribute or a later one.

        Each generalization is the child of exactly one other: a walk over children meets everything once.
        """
        last = max((i for i, bottom in enumerate(self.bottom) if levels[i] > bottom), default=0)
        return (self._moved(levels, i, 1) for i in range(last, len(levels)) if levels[i] < self.top[i])

    def named(self, levels: Levels) -> dict[str, int]:
        """Level by attribute."""
        return dict(zip(self.attributes, levels, strict=True))

    @staticmethod
    def _moved(levels: Levels, attribute: int, by: int) -> Levels:
        return (*levels[:attribute], levels[attribute] + by, *levels[attribute + 1 :])


Progress = Callable[[int, int, float | None], None]
"""Told how many generalizations are open, how many are checked, and the best score so far."""


@dataclass
class Search:
    """A search's task and its memory: what is checked, what follows from it, and the best so far.

    Parameters
    ----------
    lattice, measure:
        Where, and by what.
    check:
        Asks the engine for a generalization's figures.
    judge:
        Says what follows from them, where so many rows may be suppressed.
    allowed_rows:
        At most so many rows may be suppressed.
    progress:
        Told after every check.
    """

    lattice: Lattice
    measure: Measure
    check: Callable[[Levels], Figures]
    judge: Callable[[Figures, int], Verdict]
    allowed_rows: int
    progress: Progress = lambda open_, checked, best: None
    figures: dict[Levels, Figures] = field(default_factory=dict)
    scores: dict[Levels, float] = field(default_factory=dict)
    bounds: dict[Levels, float] = field(default_factory=dict)
    best: Levels | None = None
    open: int = 0

    def __post_init__(self) -> None:
        self._hopeful = Dominance(self.lattice.top)
        self._hopeless = Dominance(self.lattice.top)
        self._lasting = Dominance(self.lattice.top)
        self._limit = self.allowed_rows

    def may(self, levels: Levels) -> bool | None:
        """Whether a generalization may satisfy the policy, as far as what was checked tells; None: it does not tell.

        Once one may, so may everything above it. With requirements that are monotone under suppression it does.
        """
        if self._hopeless.has_above(levels):
            return False
        return True if self._hopeful.has_below(levels) else None

    def satisfies(self, levels: Levels) -> bool:
        """Whether a generalization satisfies the policy; it is checked if need be."""
        self.ask(levels)
        return self.judge(self.figures[levels], self.allowed_rows).satisfies

    def word(self, levels: Levels) -> str:
        """The status in the lattice table, by the policy's limit, even where the search worked with a tighter one."""
        if levels in self.figures:
            return "satisfies" if self.judge(self.figures[levels], self._limit).satisfies else "violates"
        if self._lasting.has_below(levels):
            return "satisfies"
        return "violates" if self.allowed_rows == self._limit and self._hopeless.has_above(levels) else "open"

    def ask(self, levels: Levels) -> bool:
        """Check a generalization, once; whether it may satisfy the policy: if not, nothing below it does."""
        if levels in self.figures:
            return not self.judge(self.figures[levels], self.allowed_rows).hopeless
        figures = self.figures[levels] = self.check(levels)
        verdict = self.judge(figures, self.allowed_rows)
        (self._hopeless if verdict.hopeless else self._hopeful).add(levels)
        if verdict.lasting:
            self._lasting.add(levels)
        if verdict.satisfies:
            self.scores[levels] = self.measure.score(levels, figures)
            self.best = self.preferred((self.best, levels))
        shown = None if self.best is None else self.measure.shown(self.scores[self.best])
        self.progress(self.open, len(self.figures), shown)
        return not verdict.hopeless

    def tighten(self, allowed_rows: int) -> None:
        """Let fewer rows be suppressed from here on: what suppresses more is no use any more."""
        if allowed_rows < self.allowed_rows:
            self.allowed_rows = allowed_rows
            self._hopeful, self._hopeless = Dominance(self.lattice.top), Dominance(self.lattice.top)
            for levels, figures in self.figures.items():
                hopeless = self.judge(figures, allowed_rows).hopeless
                (self._hopeless if hopeless else self._hopeful).add(levels)

    def climb(self, path: list[Levels]) -> None:
        """Tell of all of an ascending path whether they may satisfy: find the border by binary search."""
        low, high = 0, len(path)
        while low < high:
            middle = (low + high) // 2
            if self.ask(path[middle]):
                high = middle
            else:
                low = middle + 1

    def precedes(self, cost: float, levels: Levels, than: Levels) -> bool:
        """Whether a cost at ``levels`` is preferred to a checked generalization: score, then height, then levels."""
        other = self.scores[than]
        if abs(cost - other) > TOLERANCE * max(abs(cost), abs(other)):
            return cost < other
        return (sum(levels), levels) < (sum(than), than)

    def preferred(self, among: Iterable[Levels | None]) -> Levels | None:
        """The preferred one of checked generalizations that satisfy the policy."""
        best: Levels | None = None
        for levels in among:
            if levels is not None and (best is None or self.precedes(self.scores[levels], levels, best)):
                best = levels
        return best

    def rows(self) -> list[list[Any]]:
        """What was looked at: one list a column of the lattice table."""
        nodes = sorted(self.bounds.keys() | self.figures.keys(), key=lambda levels: (sum(levels), levels))
        figures = [self.figures.get(levels) for levels in nodes]
        bounds = [self.bounds.get(levels, self.measure.bound(levels)) for levels in nodes]
        scores = [self.scores.get(levels) for levels in nodes]
        shown = self.measure.shown
        return [
            [list(levels) for levels in nodes],
            [sum(levels) for levels in nodes],
            [shown(bound) for bound in bounds],
            [self.word(levels) for levels in nodes],
            [None if one is None else one.classes for one in figures],
            [None if one is None else one.suppressed_rows for one in figures],
            [None if score is None else shown(score) for score in scores],
        ]


@dataclass(frozen=True)
class Outcome:
    """What a strategy found.

    Attributes
    ----------
    levels:
        The chosen generalization; None where nothing satisfies the policy.
    optimal:
        Whether it is proven to be the best by the measure.
    minimal:
        All k-minimal generalizations, where the strategy finds them.
    """

    levels: Levels | None
    optimal: bool
    minimal: tuple[Levels, ...] | None = None
