"""How many classes a generalization of a large table will have, by guess: nothing is counted, and nothing proven."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

DRAWN = 256
"""So many rows are drawn: the guess is a mean over them."""

MANY = 100_000
"""Of more groups than this, each is taken for equally large."""


def draw_shares(sizes: Sequence[int], seed: int) -> list[float]:
    """The shares of the groups of values that rows drawn at random are in.

    >>> draw_shares([5, 5], seed=1) == [0.5] * DRAWN
    True
    """
    if len(sizes) > MANY:
        return [1 / len(sizes)] * DRAWN
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
