"""The least loss of all ways to group rows, equal ones together or not, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

from properties.local_tasks import Plain


def most(k: int) -> int:
    """The factor, and the rows of a group: the paper's max(2k − 1, 3k − 5)."""
    return max(2 * k - 1, 3 * k - 5)


def least_cost(sizes: Mapping[int, int], k: int, price: Any, suppressed: float = math.inf) -> float:
    """The least sum over all ways to put rows in groups of k or more, equal ones together or not, of rows times the
    price of the group's combinations; or to suppress rows."""
    names = tuple(sizes)

    @cache
    def least(left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        first = next(i for i, n in enumerate(left) if n)
        best = suppressed + least((*left[:first], left[first] - 1, *left[first + 1 :]))
        for taken in product(*(range(1 if i == first else 0, n + 1) for i, n in enumerate(left))):
            if k <= sum(taken) < 2 * k:  # larger groups can be divided, at no cost
                group = frozenset(name for name, n in zip(names, taken, strict=True) if n)
                remaining = tuple(n - used for n, used in zip(left, taken, strict=True))
                best = min(best, sum(taken) * price(group) + least(remaining))
        return best

    return least(tuple(sizes.values()))


def least_loss(plain: Plain, k: int) -> float:
    trees = plain.task.trees
    weights = sum(tree.weight for tree in trees)

    @cache
    def price(group: frozenset[int]) -> float:
        cost = 0.0
        for i, (by, tree) in enumerate(zip(plain.nodes, trees, strict=True)):
            shared = [
                by[node].leaves
                for node in plain.paths[min(group)][i]
                if by[node].released and all(node in plain.paths[combination][i] for combination in group)
            ]
            if not shared:
                return math.inf
            cost += tree.weight / weights * shared[0] / max(tree.leaves - 1, 1)
        return cost

    rows = sum(plain.n.values())
    return (least_cost(plain.n, k, price, 1.0) + plain.task.row_count - rows) / plain.task.row_count
