"""Leakage of sets of any size: first all sets of up to a size, then the larger ones within a time limit, the highest
leakage first.

The gain of a set is the entropy of the classes that it makes. Therefore

- a set leaks no more than any set that contains it (its classes are unions of theirs),
- a set leaks no more than its attributes by themselves, added up (but not where persons are counted: `person_sets`).

These are bounds on a set that was not counted. The search goes down from all attributes together: of the open sets, the
one with the greatest bound is counted next; of equal ones, that of fewer attributes. Then the sets of one attribute
less are open. All sets that are not known are open or below an open one: none leaks more than the greatest bound.

A set whose classes are as many as those of all attributes together makes the same classes: so does every set that
contains it, and these are not counted.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from sqlanon.engines.base import Queries
from sqlanon.engines.deadline import interrupt_after
from sqlanon.errors import OvertimeError
from sqlanon.risk.leakage import DIGITS, Attributes, SetFigures

AT_ONCE = 8
"""At most this many open sets are counted in one statement: the next ones are chosen by what they leak."""


class CountedSets(Protocol):
    """Counts sets of attributes, and remembers them."""

    known: dict[Attributes, SetFigures]

    gains_add_up: bool
    """Whether no set leaks more than its attributes by themselves, added up."""

    @property
    def whole(self) -> float:
        """The bits that it takes to find a row."""

    @property
    def at_once(self) -> int:
        """At most this many sets are counted in one statement."""

    def count_up_to(self, most: int) -> None:
        """Count all sets of up to ``most`` attributes."""

    def count(self, wanted: Sequence[Attributes]) -> None:
        """Count sets."""


@dataclass(frozen=True)
class LeakageSearch:
    """How many sets of attributes were measured.

    Attributes
    ----------
    sets:
        The sets of attributes that there are.
    measured:
        Those whose leakage was measured.
    complete:
        Whether nothing is left: every other set contains one that makes as many classes as all attributes together, and
        leaks as much as they.
    proven:
        How many sets at the top of the list are known to leak the most, apart from sets that contain one that makes as
        many classes as all attributes together.
    stopped:
        What ended the search before it was complete: the ``size`` that was asked for, or the ``time limit``.
    """

    sets: int
    measured: int
    complete: bool
    proven: int
    stopped: str | None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return dict(vars(self))


def search_leakage(
    sets: CountedSets, attributes: int, most: int, seconds: float | None, engines: Sequence[Queries]
) -> tuple[list[SetFigures], LeakageSearch]:
    """Count the sets of up to ``most`` attributes, and then larger ones for some seconds, the highest leakage first."""
    if seconds is None:
        sets.count_up_to(most)
        found = [one for one in sets.known.values() if len(one.attributes) <= most]
        bound, stopped = (math.inf, "size") if most < attributes else (-math.inf, None)
    else:
        sets.count_up_to(max(most, 1))
        search = _Search(sets, attributes, time.monotonic() + seconds)
        with suppress(OvertimeError), interrupt_after(seconds, engines):
            search.descend(max(most, 1))
        found, bound = list(sets.known.values()), search.bound
        stopped = None if bound == -math.inf else "time limit"
    proven = sum(round(one.gain, DIGITS) >= round(bound, DIGITS) for one in found) if bound < math.inf else 0
    return found, LeakageSearch(2**attributes - 1, len(found), stopped is None, proven, stopped)


class _Search:
    """The open sets, by their bounds."""

    def __init__(self, sets: CountedSets, attributes: int, ends_at: float) -> None:
        self.sets, self.ends_at = sets, ends_at
        self._all: Attributes = tuple(range(attributes))
        self._open: dict[Attributes, float] = {self._all: math.inf}
        self._heap: list[tuple[float, int, Attributes]] = [(-math.inf, attributes, self._all)]
        self._closed: set[Attributes] = set()
        self._complete: list[frozenset[int]] = []  # sets that make all classes

    @property
    def bound(self) -> float:
        """No set that was not counted leaks more."""
        return max(self._open.values(), default=-math.inf)

    def descend(self, most: int) -> None:
        """Count sets of more than ``most`` attributes, as long as there is time."""
        if len(self._all) <= most:
            self._open.clear()
            return
        self.sets.count([self._all])
        self._notice(self.sets.known.values())
        while self._heap:
            if time.monotonic() >= self.ends_at:
                return
            batch = self._next()
            self.sets.count([one for one in batch if self._complete_part(one) is None])
            self._notice(self.sets.known[one] for one in batch if one in self.sets.known)
            for one in batch:
                self._close(one, most)

    def _next(self) -> list[Attributes]:
        """The open sets with the greatest bounds: as many as one statement counts."""
        batch: list[Attributes] = []
        while self._heap and len(batch) < min(self.sets.at_once, AT_ONCE):
            bound, _, one = heapq.heappop(self._heap)
            if one in self._open and -bound == round(self._open[one], DIGITS):  # else it was given a lower one
                batch.append(one)
        return batch

    def _notice(self, found: Iterable[SetFigures]) -> None:
        classes = self.sets.known[self._all].classes
        for one in sorted(found, key=lambda one: len(one.attributes)):
            if one.classes == classes and self._complete_part(one.attributes) is None:
                self._complete.append(frozenset(one.attributes))

    def _complete_part(self, one: Attributes) -> frozenset[int] | None:
        """The smallest part of a set that makes all classes, if there is one."""
        return min((part for part in self._complete if part.issubset(one)), key=len, default=None)

    def _close(self, one: Attributes, most: int) -> None:
        """Open the sets below one that was counted, as far as they can leak less.

        A set below that lacks none of a part that makes all classes leaks as much.
        """
        del self._open[one]
        self._closed.add(one)
        part = self._complete_part(one)
        gain = self.sets.known[one if part is None else self._all].gain
        for left_out in one if part is None else part:
            below = tuple(i for i in one if i != left_out)
            bound = min(gain, sum(self.sets.known[(i,)].gain for i in below)) if self.sets.gains_add_up else gain
            if len(below) > most and below not in self._closed and bound < self._open.get(below, math.inf):
                self._open[below] = bound
                heapq.heappush(self._heap, (-round(bound, DIGITS), len(below), below))
