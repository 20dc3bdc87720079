"""Which generalizations are decided: everything above a good one is good, everything below a bad one is bad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlanon.coding import Levels


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
