"""The lattice of generalizations; boxes of it that are still open; what lies above, or below, some of it; and the table
of what a search looked at."""

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
from sqlanon.support.expressions import cast, column_definitions, named
from sqlanon.support.names import EARLIER


@dataclass(frozen=True)
class Lattice:
    """All generalizations between a bottom and a top, attributes in the policy's order.

    >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3), (frozenset(), frozenset({1, 2})))
    >>> lattice.size, lattice.permits((0, 1)), lattice.lift((0, 1))
    (4, False, (0, 3))
    """

    attributes: tuple[str, ...]
    bottom: Levels
    top: Levels
    """The quasi-identifiers, and the lowest and the highest level of each."""
    # Levels between these that no release may have, by attribute; empty if there are none. A search may learn from such
    # a generalization, and never chooses it.
    holes: tuple[frozenset[int], ...] = ()

    @property
    def size(self) -> int:
        """The number of generalizations."""
        return math.prod(len(self.levels(attribute)) for attribute in range(len(self.top)))

    def levels(self, attribute: int) -> list[int]:
        """The levels that a release may have of an attribute, the lowest first."""
        hole = self.holes[attribute] if self.holes else ()
        return [level for level in range(self.bottom[attribute], self.top[attribute] + 1) if level not in hole]

    def above(self, levels: Levels) -> list[Levels]:
        """The direct successors of a generalization."""
        return [self._above(levels, i) for i, level in enumerate(levels) if level < self.top[i]]

    def permits(self, levels: Levels) -> bool:
        """Whether a generalization is one of the lattice: between bottom and top, and in no hole."""
        inside = all(map(operator.le, self.bottom, levels)) and all(map(operator.le, levels, self.top))
        return inside and not any(map(operator.contains, self.holes, levels))

    def lift(self, levels: Levels) -> Levels:
        """The lowest of the lattice at or above levels that are between bottom and top."""
        if not self.holes:
            return levels
        lifted = []
        for level, hole in zip(levels, self.holes, strict=True):
            while level in hole:
                level += 1  # noqa: PLW2901 - the top is in no hole
            lifted.append(level)
        return tuple(lifted)

    def ascend(
        self, levels: Levels, price: Callable[[int, int], float], is_open: Callable[[Levels], bool]
    ) -> list[Levels]:
        """An ascending path from a generalization, without it: the step of the least price first.

        >>> lattice = Lattice(("sex", "age"), (0, 0), (1, 3))
        >>> lattice.ascend((0, 0), lambda attribute, level: level, lambda levels: levels[1] < 2)
        [(1, 0), (1, 1)]
        """
        path: list[Levels] = []
        steps = [(price(i, level), i) for i, level in enumerate(levels) if level < self.top[i]]
        heapq.heapify(steps)
        while steps:
            i = steps[0][1]
            up = self._above(levels, i)
            if not is_open(up):
                heapq.heappop(steps)
                continue
            path.append(up)
            levels = up
            if levels[i] < self.top[i]:
                heapq.heapreplace(steps, (price(i, levels[i]), i))
            else:
                heapq.heappop(steps)
        return path

    def named(self, levels: Levels) -> dict[str, int]:
        """Level by attribute of the policy."""
        return {name: level for name, level in zip(self.attributes, levels, strict=True) if name != EARLIER}

    @staticmethod
    def _above(levels: Levels, attribute: int) -> Levels:
        return (*levels[:attribute], levels[attribute] + 1, *levels[attribute + 1 :])


Progress = Callable[[int, int, float | None], None]
"""Called with how many generalizations are open, how many are checked, and the best score so far."""


def ignore_progress(*figures: object) -> None:
    """Report no progress."""


ROOM = 200_000
"""So many boxes wait by their keys; from then on the rest is worked off depth first: that takes next to no memory."""


class Box(NamedTuple):
    """All generalizations at or above ``low`` and at or below ``high``."""

    key: float  # the least box is next. For ``optimal``: a lower bound of the scores in it.
    height: int  # Σ level of ``low``
    low: Levels
    high: Levels
    """Its corners."""

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

    def first(self, number: int) -> list[Box]:
        """The boxes that are next, which go on waiting."""
        return self._deep[: -number - 1 : -1] or heapq.nsmallest(number, self._heap)

    def next(self) -> Box:
        """Take the least box; where too many wait, the last one."""
        return self._deep.pop() if self._deep else heapq.heappop(self._heap)


class Dominance:
    """A set of generalizations that can be asked whether it has one at or above, or at or below, another.

    For each attribute and level it keeps a bit per member, so a question is a few bitwise ANDs, and the lattice is
    never laid out.

    >>> seen = Dominance((2, 2))
    >>> seen.add((1, 1))
    >>> seen.has_above((0, 1)), seen.has_above((2, 0)), seen.has_below((2, 1)), seen.has_below((0, 2))
    (True, False, True, False)
    >>> seen.add((0, 2))
    >>> list(seen.above((0, 1)))
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
        """Whether a member is at least ``levels`` in every attribute."""
        return self._all(self._at_least, levels) != 0

    def has_below(self, levels: Levels) -> bool:
        """Whether a member is at most ``levels`` in every attribute."""
        return self._all(self._at_most, levels) != 0

    def above(self, levels: Levels) -> Iterator[Levels]:
        """The members that are at least ``levels`` in every attribute, the last one first."""
        return self._listed(self._all(self._at_least, levels))

    def below(self, levels: Levels) -> Iterator[Levels]:
        """The members that are at most ``levels`` in every attribute, the last one first."""
        return self._listed(self._all(self._at_most, levels))

    def _listed(self, members: int) -> Iterator[Levels]:
        while members:
            last = members.bit_length() - 1
            yield self._members[last]
            members ^= 1 << last

    def _all(self, masks: list[list[int]], levels: Levels) -> int:
        members = (1 << len(self._members)) - 1
        for mask, level in zip(masks, levels, strict=True):
            members &= mask[level]
            if not members:
                return 0
        return members


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
"""Columns and types. ``levels`` is in the policy's order; figures are NULL where nothing had to be asked. The last one
is for sources whose persons are counted."""


def store_lattice(
    engine: Engine, target: exp.Table, rows: Sequence[Sequence[Any]] | None, persons: bool = False
) -> None:
    """Make the table; its rows come as one list a column, as parameters."""
    columns = list(LATTICE_COLUMNS.items())[: None if persons else -1]
    engine.execute(column_definitions(target, columns))
    if rows is not None:
        lists = [named(exp.Explode(this=cast(exp.Placeholder(), f"{type_}[]")), name) for name, type_ in columns]
        rows = rows[: len(columns)]
        engine.execute(exp.Insert(this=target, expression=exp.Select(expressions=lists)), rows)
