"""Class sizes in few ranges, for people."""

from __future__ import annotations

from collections.abc import Mapping


def by_doubling(classes: Mapping[int, int]) -> dict[str, int]:
    """The classes by ranges of sizes, each as wide as all before it: ``1``, ``2``, ``3-4``, ``5-8``, ...

    Parameters
    ----------
    classes:
        How many classes there are of each size.

    >>> by_doubling({1: 3, 2: 1, 7: 2})
    {'1': 3, '2': 1, '3-4': 0, '5-8': 2}
    """
    found, low, high, largest = dict[str, int](), 1, 1, max(classes, default=0)
    while low <= largest:
        label = f"{low}" if low == high else f"{low}-{high}"
        found[label] = sum(n for size, n in classes.items() if low <= size <= high)
        low, high = high + 1, 2 * high
    return found
