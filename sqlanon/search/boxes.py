"""What is still open of a lattice, in boxes: a lattice of 10^8 generalizations is never laid out."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from sqlanon.coding import Levels

ROOM = 200_000
"""So many boxes wait by their keys; from then on the rest is worked off depth first: that takes next to no memory."""


class Box(NamedTuple):
    """All generalizations at or above ``low`` and at or below ``high``.

    Attributes
    ----------
    key:
        The least box is next. For ``optimal``: at most the score of everything in it.
    height:
        Σ level of ``low``.
    low, high:
        Its corners.
    """

    key: float
    height: int
    low: Levels
    high: Levels

    def without(self, below: Levels) -> Iterator[tuple[Levels, Levels]]:
        """The corners of boxes that share nothing and have together all that is in this one and not at or below a
        generalization, which is at or above ``low``.

        >>> list(Box(0.0, 0, (0, 0), (2, 2)).without((1, 0)))
        [((2, 0), (2, 2)), ((0, 1), (1, 2))]
        """
        low, high = self.low, self.high
        for i, level in enumerate(below):
            if level < high[i]:
                yield (*low[:i], level + 1, *low[i + 1 :]), high
                high = (*high[:i], level, *high[i + 1 :])


class Boxes:
    """Boxes that wait, the least first.

    >>> boxes = Boxes()
    >>> boxes.add(Box(2.0, 1, (1,), (1,)))
    >>> boxes.add(Box(1.0, 2, (2,), (2,)))
    >>> boxes.next().low, len(boxes)
    ((2,), 1)
    """

    def __init__(self) -> None:
        self._heap: list[Box] = []
        self._deep: list[Box] = []

    def __len__(self) -> int:
        return len(self._heap) + len(self._deep)

    def __iter__(self) -> Iterator[Box]:
        yield from self._heap
        yield from self._deep

    def add(self, box: Box) -> None:
        """Let a box wait."""
        if len(self._heap) < ROOM:
            heapq.heappush(self._heap, box)
        else:
            self._deep.append(box)

    def next(self) -> Box:
        """Take the least box; where too many wait, the last one."""
        return self._deep.pop() if self._deep else heapq.heappop(self._heap)
