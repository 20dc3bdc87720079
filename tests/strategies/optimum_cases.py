"""Random tables with weights and hierarchies of several heights."""

from __future__ import annotations

import itertools
import random

from oracles.oracle import AGGREGATES, MEASURES, PER_ATTRIBUTE, Hierarchy, Row

ASKED = [
    (measure, aggregate) for measure in MEASURES for aggregate in (AGGREGATES if measure in PER_ATTRIBUTE else [None])
]


TREES = {
    "one": Hierarchy({v: (v, v[0], "*") for v in ("a1", "a2", "b1", "b2")}),
    "two": Hierarchy({v: (v, v[:2], v[0], "*") for v in ("x11", "x12", "x21", "y11", "y12")}),
    "three": Hierarchy({v: (v, "*") for v in "mf"}),
}


WEIGHTS = {"one": 3.0, "two": 1.0, "three": 0.5}


def rows_of(draw: random.Random) -> list[Row]:
    """Rows of a few combinations that repeat, and some others."""
    every = list(itertools.product(*(tree.paths for tree in TREES.values())))
    heaps = [row for row in draw.sample(every, 5) for _ in range(draw.randint(1, 4))]
    return heaps + draw.choices(every, k=6)
