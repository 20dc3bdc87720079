"""Search for leaking sets of attributes of any size: first all small sets, then larger ones within a time limit, the
highest leakage first.

The gain of a set is the entropy of its classes. Therefore

- a set leaks at most as much as any set that contains it (its classes are unions of theirs),
- a set leaks at most the sum of its attributes alone (except if persons are counted: `person_sets`).

These are upper bounds of sets that are not counted. The search goes down from the set of all attributes: the open set
with the greatest bound is counted next, of equal ones that with fewer attributes; then its subsets without one
attribute become open. All uncounted sets are open or below an open one, so none leaks more than the greatest bound.

A set with as many classes as all attributes together has the same classes, and so has every set that contains it: these
are not counted.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlanon.engines.base import Queryable
from sqlanon.engines.deadline import interrupt_after
from sqlanon.errors import OvertimeError
from sqlanon.risk.leakage import DIGITS, Attributes, CountedSets, SetFigures

SETS_PER_ROUND = 8
"""Number of open sets counted in one statement: the next sets are chosen by their figures."""


@dataclass(frozen=True)
class LeakageSearch:
    """Extent of a search for leaking sets of attributes.

    Attributes
    ----------
    sets:
        The number of sets of attributes.
    measured:
        Those whose leakage was measured.
    complete:
        Whether every other set contains one with as many classes as all attributes together, and leaks as much.
    proven:
        The number of sets at the top of the list that are known to leak the most, apart from sets that contain one with
        as many classes as all attributes together.
    stopped:
        The reason why the search is incomplete: the requested ``size``, or the ``time limit``.
    """

    sets: int
    measured: int
    complete: bool
    proven: int
    stopped: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON."""
        return dict(vars(self))


def search_leakage(
    sets: CountedSets, attributes: int, size: int, seconds: float | None, engines: Sequence[Queryable]
) -> tuple[list[SetFigures], LeakageSearch]:
    """Count the sets of up to ``size`` attributes, and then larger ones for some seconds, the highest leakage first."""
    if seconds is None:
        sets.count_up_to(size)
        measured = [figures for figures in sets.figures.values() if len(figures.attributes) <= size]
        bound, stopped = (math.inf, "size") if size < attributes else (-math.inf, None)
    else:
        sets.count_up_to(max(size, 1))
        search = _Search(sets, attributes, time.monotonic() + seconds)
        with suppress(OvertimeError), interrupt_after(seconds, engines):
            search.descend(max(size, 1))
        measured, bound = list(sets.figures.values()), search.bound
        stopped = None if bound == -math.inf else "time limit"
    proven = 0
    if bound < math.inf:
        proven = sum(round(figures.gain, DIGITS) >= round(bound, DIGITS) for figures in measured)
    return measured, LeakageSearch(2**attributes - 1, len(measured), stopped is None, proven, stopped)


class _Search:
    """The open sets, by their bounds."""

    def __init__(self, sets: CountedSets, attributes: int, ends_at: float) -> None:
        self.sets, self.ends_at = sets, ends_at
        self._all: Attributes = tuple(range(attributes))
        self._open: dict[Attributes, float] = {self._all: math.inf}
        self._heap: list[tuple[float, int, Attributes]] = [(-math.inf, attributes, self._all)]
        self._closed: set[Attributes] = set()
        self._complete: list[frozenset[int]] = []  # minimal sets with all classes

    @property
    def bound(self) -> float:
        """The upper bound of the leakage of all uncounted sets."""
        return max(self._open.values(), default=-math.inf)

    def descend(self, size: int) -> None:
        """Count sets of more than ``size`` attributes until the time is over."""
        if len(self._all) <= size:
            self._open.clear()
            return
        self.sets.count([self._all])
        self._find_complete(self.sets.figures.values())
        while self._heap:
            if time.monotonic() >= self.ends_at:
                return
            batch = self._next_batch()
            self.sets.count([attributes for attributes in batch if self._complete_part(attributes) is None])
            self._find_complete(
                self.sets.figures[attributes] for attributes in batch if attributes in self.sets.figures
            )
            for attributes in batch:
                self._close(attributes, size)

    def _next_batch(self) -> list[Attributes]:
        """Take the open sets with the greatest bounds that one statement counts."""
        batch: list[Attributes] = []
        while self._heap and len(batch) < min(self.sets.sets_per_statement, SETS_PER_ROUND):
            bound, _, attributes = heapq.heappop(self._heap)
            # An entry is outdated if the set is closed, or has got a lower bound since.
            if attributes in self._open and -bound == round(self._open[attributes], DIGITS):
                batch.append(attributes)
        return batch

    def _find_complete(self, measured_sets: Iterable[SetFigures]) -> None:
        classes = self.sets.figures[self._all].classes
        for figures in sorted(measured_sets, key=lambda figures: len(figures.attributes)):
            if figures.classes == classes and self._complete_part(figures.attributes) is None:
                self._complete.append(frozenset(figures.attributes))

    def _complete_part(self, attributes: Attributes) -> frozenset[int] | None:
        """The smallest part of a set that has all classes, if any."""
        return min((part for part in self._complete if part.issubset(attributes)), key=len, default=None)

    def _close(self, attributes: Attributes, size: int) -> None:
        """Close a counted set, and open the sets below it that can leak less.

        A set below it that contains a part with all classes leaks as much.
        """
        del self._open[attributes]
        self._closed.add(attributes)
        part = self._complete_part(attributes)
        gain = self.sets.figures[attributes if part is None else self._all].gain
        for removed in attributes if part is None else part:
            below = tuple(i for i in attributes if i != removed)
            bound = min(gain, sum(self.sets.figures[(i,)].gain for i in below)) if self.sets.gains_add_up else gain
            if len(below) > size and below not in self._closed and bound < self._open.get(below, math.inf):
                self._open[below] = bound
                heapq.heappush(self._heap, (-round(bound, DIGITS), len(below), below))
