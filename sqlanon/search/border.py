"""Which generalizations are decided: everything above a good one is good, everything below a bad one is bad."""

from __future__ import annotations

from collections.abc import Sequence

from sqlanon.queries.classes import Levels


class Dominance:
    """A set of generalizations that can be asked whether it has one at or above, or at or below, another.

    For each attribute and level it keeps a bit per member, so a question is a few bitwise ANDs, and the lattice is
    never laid out.

    >>> seen = Dominance((2, 2))
    >>> seen.add((1, 1))
    >>> seen.has_above((0, 1)), seen.has_above((2, 0)), seen.has_below((2, 1)), seen.has_below((0, 2))
    (True, False, True, False)
    """

    def __init__(self, tops: Sequence[int]) -> None:
        self._at_least = [[0] * (top + 1) for top in tops]
        self._at_most = [[0] * (top + 1) for top in tops]
        self._next = 1

    def add(self, levels: Levels) -> None:
        """Add a generalization."""
        bit, self._next = self._next, self._next << 1
        for attribute, level in enumerate(levels):
            at_least, at_most = self._at_least[attribute], self._at_most[attribute]
            for lower in range(level + 1):
                at_least[lower] |= bit
            for upper in range(level, len(at_most)):
                at_most[upper] |= bit

    def has_above(self, levels: Levels) -> bool:
        """Whether a member is at least ``levels`` in every attribute."""
        return self._all(self._at_least, levels)

    def has_below(self, levels: Levels) -> bool:
        """Whether a member is at most ``levels`` in every attribute."""
        return self._all(self._at_most, levels)

    def _all(self, masks: list[list[int]], levels: Levels) -> bool:
        members = self._next - 1
        for mask, level in zip(masks, levels, strict=True):
            members &= mask[level]
            if not members:
                return False
        return members != 0
