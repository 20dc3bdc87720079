"""A search over many attributes."""

from __future__ import annotations

import math
from typing import Any

from sqlanon.measures import MEASURES, Figures, Marginals
from sqlanon.requirements import KAnonymity, Requirements
from sqlanon.strategies.lattice import Budget, Lattice, LatticeSearch
from sqlanon.strategies.lattice.search import VerdictRules
from sqlanon.support.coding import Levels

ROWS, K = 100_000, 5


CARDINALITIES = (100, 60, 40, 30, 20, 16, 12, 10, 8, 8, 6, 5, 4, 3, 2)


HEIGHTS = tuple(4 if c >= 16 else 3 if c >= 8 else 2 if c > 4 else 1 for c in CARDINALITIES)


def values(attribute: int, level: int) -> float:
    """The number of values that an attribute has at a level."""
    return CARDINALITIES[attribute] ** (1 - level / HEIGHTS[attribute])


def made_up(levels: Levels) -> Figures:
    """The figures of an imaginary table: the more combinations, the more rows are in small classes."""
    cells = math.prod(values(i, level) ** (0.5 + i % 3 / 4) for i, level in enumerate(levels))
    suppressed = int(ROWS * -math.expm1(-(cells - 1) * K / ROWS))
    leaves = {i: suppressed * LEAF_SUMS[i][level] / ROWS for i, level in enumerate(levels) if 0 < level < HEIGHTS[i]}
    return Figures(max(1, int(min(cells, ROWS / K))), suppressed, K, suppressed_leaves=leaves)


LEAF_SUMS = tuple(
    tuple(ROWS * (c / values(i, level) - 1) for level in range(HEIGHTS[i] + 1)) for i, c in enumerate(CARDINALITIES)
)


def wide_search(limit: float, **limits: Any) -> LatticeSearch:
    marginals = Marginals(ROWS, HEIGHTS, CARDINALITIES, (0,) * 15, LEAF_SUMS)
    return LatticeSearch(
        Lattice(tuple(f"a{i}" for i in range(15)), (0,) * 15, HEIGHTS),
        MEASURES["loss"](marginals, min_class_rows=K),
        made_up,
        VerdictRules(Requirements((KAnonymity(K),)), ROWS).draw_verdict,
        int(limit * ROWS),
        budget=Budget(**limits),
    )
