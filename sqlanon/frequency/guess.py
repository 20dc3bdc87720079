"""How many classes a generalization of a large table will have, by guess: nothing is counted, and nothing proven."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from sqlanon.coding import Coded, Levels, group_counts, group_sizes
from sqlanon.statement_runner import Steps

DRAWN = 256
"""So many rows are drawn: the guess is a mean over them."""

MANY = 100_000
"""Of more groups than this, each is taken for equally large."""


class Guess:
    """What is known of the sizes of the groups of values of each attribute, level by level.

    Parameters
    ----------
    steps:
        How it is asked for.
    attributes, rows:
        The quasi-identifiers, and the rows of the table.
    """

    def __init__(self, steps: Steps, attributes: Sequence[Coded], rows: int) -> None:
        self._rows = rows
        self._counts: list[list[int]] = []
        self._shares: list[list[list[float]]] = []
        for i, one in enumerate(attributes):
            counts = [*steps.ask(group_counts(one), [(1,) * one.height])[0]] if one.height else []
            self._counts.append([*counts, 1])
            self._shares.append([self._drawn(steps, one, level, count, i) for level, count in enumerate(counts)])

    @staticmethod
    def _drawn(steps: Steps, attribute: Coded, level: int, count: int, seed: int) -> list[float]:
        if count > MANY:
            return [1 / count] * DRAWN
        return draw_shares([size for (size,) in steps.ask(group_sizes(attribute, level), [(1,)])], seed)

    def most(self, levels: Levels) -> int:
        """At most so many classes there are, of any table."""
        return math.prod(counts[level] for counts, level in zip(self._counts, levels, strict=True))

    def classes(self, levels: Levels) -> float:
        """About so many classes there are."""
        below = zip(self._shares, levels, strict=True)
        return expected_classes([shares[level] for shares, level in below if level < len(shares)], self._rows)

    def lowerings(self, levels: Levels, floor: Levels) -> Iterator[tuple[int, int]]:
        """Attributes with levels to lower them to: first what multiplies the classes least."""
        steps = [
            (self._counts[i][lower] / self._counts[i][lower + 1], -lower, i)
            for i, level in enumerate(levels)
            for lower in range(floor[i], level)
        ]
        return ((i, -lower) for _, lower, i in sorted(steps))


def draw_shares(sizes: Sequence[int], seed: int) -> list[float]:
    """The shares of the groups of values that rows drawn at random are in.

    >>> draw_shares([5, 5], seed=1) == [0.5] * DRAWN
    True
    """
    total = sum(sizes)
    return [size / total for size in random.Random(seed).choices(sizes, weights=sizes, k=DRAWN)]


def expected_classes(shares: Sequence[Sequence[float]], rows: int) -> float:
    """The expected number of classes, if attributes had nothing to do with one another. (If they do, there are fewer.)

    A cell of share p has a row with probability 1 − (1 − p)^rows. The sum over all cells is the mean, over rows drawn
    at random, of that by p.

    Parameters
    ----------
    shares:
        For each attribute below its top, `draw_shares` at its level.
    rows:
        Of the table.

    >>> round(expected_classes([[0.5] * DRAWN, [0.25] * DRAWN], 1000))
    8
    """
    if not shares:
        return 1.0
    products = [math.prod(row) for row in zip(*shares, strict=True)]
    return sum(-math.expm1(rows * math.log1p(-p)) / p if p < 1 else 1.0 for p in products) / DRAWN
