"""The lattice of generalizations, boxes of it that wait for a search, and the lattice table of a run."""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import as_column, cast, create_table_with_columns
from sqlanon.support.names import EARLIER_RELEASES_COLUMN


@dataclass(frozen=True)
class Lattice:
    """All generalizations between a bottom and a top, with attributes in the policy's order.

    >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3), (frozenset(), frozenset({1, 2})))
    >>> lattice.size, lattice.permits((0, 1)), lattice.lift((0, 1))
    (4, False, (0, 3))
    """

    attributes: tuple[str, ...]
    bottom: Levels
    top: Levels
    forbidden: tuple[frozenset[int], ...] = ()
    """By attribute, the levels between bottom and top that a release must not have; empty without any. A search may
    check a generalization with such a level to learn from it, and never chooses it."""

    @property
    def size(self) -> int:
        """The number of permitted generalizations."""
        return math.prod(len(self.levels(attribute)) for attribute in range(len(self.top)))

    def levels(self, attribute: int) -> list[int]:
        """The permitted levels of an attribute, ascending."""
        forbidden = self.forbidden[attribute] if self.forbidden else ()
        return [level for level in range(self.bottom[attribute], self.top[attribute] + 1) if level not in forbidden]

    def successors(self, levels: Levels) -> list[Levels]:
        """The direct successors of a generalization."""
        return [self._raise(levels, i) for i, level in enumerate(levels) if level < self.top[i]]

    def permits(self, levels: Levels) -> bool:
        """Whether a release may have this generalization."""
        is_inside = all(map(operator.le, self.bottom, levels)) and all(map(operator.le, levels, self.top))
        return is_inside and not any(map(operator.contains, self.forbidden, levels))

    def lift(self, levels: Levels) -> Levels:
        """The lowest permitted generalization at or above levels between bottom and top."""
        if not self.forbidden:
            return levels
        lifted = []
        for level, forbidden in zip(levels, self.forbidden, strict=True):
            while level in forbidden:
                level += 1  # noqa: PLW2901 - the top is permitted
            lifted.append(level)
        return tuple(lifted)

    def ascend(
        self, levels: Levels, price: Callable[[int, int], float], is_open: Callable[[Levels], bool]
    ) -> list[Levels]:
        """An ascending path of open generalizations above one, always by the step of least price.

        >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3))
        >>> lattice.ascend((0, 0), lambda attribute, level: level, lambda levels: levels[1] < 2)
        [(1, 0), (1, 1)]
        """
        path: list[Levels] = []
        steps = [(price(i, level), i) for i, level in enumerate(levels) if level < self.top[i]]
        heapq.heapify(steps)
        while steps:
            i = steps[0][1]
            successor = self._raise(levels, i)
            if not is_open(successor):
                heapq.heappop(steps)
                continue
            path.append(successor)
            levels = successor
            if levels[i] < self.top[i]:
                heapq.heapreplace(steps, (price(i, levels[i]), i))
            else:
                heapq.heappop(steps)
        return path

    def level_by_attribute(self, levels: Levels) -> dict[str, int]:
        """Level by attribute of the policy."""
        return {
            name: level for name, level in zip(self.attributes, levels, strict=True) if name != EARLIER_RELEASES_COLUMN
        }

    @staticmethod
    def _raise(levels: Levels, attribute: int) -> Levels:
        return (*levels[:attribute], levels[attribute] + 1, *levels[attribute + 1 :])


Progress = Callable[[int, int, float | None], None]
"""Called with the numbers of open and checked generalizations, and the best score so far."""


def ignore_progress(*figures: object) -> None:
    """Report no progress."""


HEAP_SIZE = 200_000
"""Number of boxes in the heap. Further ones are searched depth first, which takes next to no memory."""


class Box(NamedTuple):
    """All generalizations between two corners."""

    key: float  # the box with the least key is next; for ``optimal``, a lower bound on the scores in it
    height: int  # the sum of the levels of ``low``
    low: Levels
    high: Levels

    def without(self, pruned_top: Levels) -> Iterator[tuple[Levels, Levels]]:
        """The corners of disjoint boxes that cover this one, except all at or below ``pruned_top``, which is at or
        above ``low``.

        >>> list(Box(0.0, 0, (0, 0), (2, 2)).without((1, 0)))
        [((2, 0), (2, 2)), ((0, 1), (1, 2))]
        """
        low, high = self.low, self.high
        for i, level in enumerate(pruned_top):
            if level < high[i]:
                yield (*low[:i], level + 1, *low[i + 1 :]), high
                high = (*high[:i], level, *high[i + 1 :])


class BoxQueue:
    """Boxes ordered by key.

    >>> queue = BoxQueue()
    >>> queue.add(Box(2.0, 1, (1,), (1,)))
    >>> queue.add(Box(1.0, 2, (2,), (2,)))
    >>> queue.pop().low, len(queue)
    ((2,), 1)
    """

    def __init__(self) -> None:
        self._heap: list[Box] = []
        self._stack: list[Box] = []

    def __len__(self) -> int:
        return len(self._heap) + len(self._stack)

    def __iter__(self) -> Iterator[Box]:
        yield from self._heap
        yield from self._stack

    def add(self, box: Box) -> None:
        """Add a box."""
        if len(self._heap) < HEAP_SIZE:
            heapq.heappush(self._heap, box)
        else:
            self._stack.append(box)

    def peek(self, number: int) -> list[Box]:
        """The next boxes, which stay in the queue."""
        return self._stack[: -number - 1 : -1] or heapq.nsmallest(number, self._heap)

    def pop(self) -> Box:
        """Remove the least box, or the last one while the stack is in use."""
        return self._stack.pop() if self._stack else heapq.heappop(self._heap)


class DominanceIndex:
    """A set of generalizations that finds its members at or above, and at or below, another generalization.

    It keeps a bit for each member by attribute and level, so a lookup is a few bitwise ANDs and the lattice is never
    enumerated.

    >>> index = DominanceIndex((2, 2))
    >>> index.add((1, 1))
    >>> index.has_above((0, 1)), index.has_above((2, 0)), index.has_below((2, 1)), index.has_below((0, 2))
    (True, False, True, False)
    >>> index.add((0, 2))
    >>> list(index.above((0, 1)))
    [(0, 2), (1, 1)]
    """

    def __init__(self, tops: Sequence[int]) -> None:
        self._at_least = [[0] * (top + 1) for top in tops]
        self._at_most = [[0] * (top + 1) for top in tops]
        self._members: list[Levels] = []

    def add(self, levels: Levels) -> None:
        """Add a generalization."""
        bit = 1 << len(self._members)
        self._members.append(levels)
        for attribute, level in enumerate(levels):
            at_least, at_most = self._at_least[attribute], self._at_most[attribute]
            for lower in range(level + 1):
                at_least[lower] |= bit
            for upper in range(level, len(at_most)):
                at_most[upper] |= bit

    def has_above(self, levels: Levels) -> bool:
        """Whether a member is at or above ``levels``."""
        return self._match(self._at_least, levels) != 0

    def has_below(self, levels: Levels) -> bool:
        """Whether a member is at or below ``levels``."""
        return self._match(self._at_most, levels) != 0

    def above(self, levels: Levels) -> Iterator[Levels]:
        """The members at or above ``levels``, the newest first."""
        return self._members_of(self._match(self._at_least, levels))

    def below(self, levels: Levels) -> Iterator[Levels]:
        """The members at or below ``levels``, the newest first."""
        return self._members_of(self._match(self._at_most, levels))

    def _members_of(self, bits: int) -> Iterator[Levels]:
        while bits:
            last = bits.bit_length() - 1
            yield self._members[last]
            bits ^= 1 << last

    def _match(self, masks: list[list[int]], levels: Levels) -> int:
        bits = (1 << len(self._members)) - 1
        for mask, level in zip(masks, levels, strict=True):
            bits &= mask[level]
            if not bits:
                return 0
        return bits


LATTICE_COLUMNS = {
    "levels": "INTEGER[]",
    "height": "INTEGER",
    "bound": "DOUBLE",
    "status": "VARCHAR",
    "classes": "BIGINT",
    "suppressed_rows": "BIGINT",
    "score": "DOUBLE",
    "suppressed_persons": "BIGINT",
}
"""Columns and types of the lattice table. ``levels`` is in the policy's order; figures of unchecked generalizations are
NULL. Only sources that count persons have the last column."""


def store_lattice(
    engine: Engine, target: exp.Table, columns: Sequence[Sequence[Any]] | None, persons: bool = False
) -> None:
    """Create the lattice table and fill it from lists, one for each column."""
    definitions = list(LATTICE_COLUMNS.items())[: None if persons else -1]
    engine.execute(create_table_with_columns(target, definitions))
    if columns is not None:
        lists = [
            as_column(exp.Explode(this=cast(exp.Placeholder(), f"{type_}[]")), name) for name, type_ in definitions
        ]
        insert = exp.Insert(this=target, expression=exp.Select(expressions=lists))
        engine.execute(insert, columns[: len(definitions)])
