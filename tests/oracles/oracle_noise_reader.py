"""A reader who matches values with noise to the nearest value of another release, by a loop over all pairs.

It imports nothing from sqlanon.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence


def nearest_matches(noisy: Sequence[tuple[Hashable, float, float]], values: Sequence[tuple[Hashable, float]]) -> int:
    """How many released values have the true one as the nearest value under their label: each is a label, the released
    value and the true one.

    >>> nearest_matches([("a", 1.2, 1.0), ("a", 2.4, 3.0)], [("a", 1.0), ("a", 2.0), ("a", 3.0), ("b", 1.2)])
    1
    """
    matches = 0
    for label, released, true in noisy:
        candidates = [value for other_label, value in values if other_label == label]
        matches += math.isclose(min(candidates, key=lambda value: abs(value - float(released))), true)
    return matches


def interval(
    released: float, low: float, high: float, epsilon: float, confidence: float, rounding: float
) -> tuple[float, float]:
    """Possible originals of a released value with this confidence: around it, once it is in the range of its class.

    >>> interval(12, 0, 10, 5, 1 - math.exp(-1), 0.5)
    (7.5, 12.5)
    """
    middle = min(max(released, low), high)
    width = -math.log(1 - confidence) * (high - low) / epsilon + rounding
    return middle - width, middle + width


Side = Sequence[tuple[Hashable, Hashable, float, float]]
"""For each row of a release: the label that both releases show, its class, and the least and greatest value that it
can have."""


def told_apart(first: Side, second: Side, k: int) -> tuple[int, int]:
    """How many rows of the first release can be some of the second, but fewer than k, and fewer than by their labels;
    and how many can be none, and are fewer than k such rows of their class.

    >>> second = [("a", 0, 0, 1), ("a", 0, 0, 3), ("a", 0, 2, 2)]
    >>> told_apart([("a", 0, 1, 1), ("a", 0, 2, 2), ("a", 0, 9, 9)], second, k=3)
    (2, 1)
    """
    few, none = 0, dict[Hashable, int]()
    for label, class_, low, high in first:
        candidates = [(a, b) for other_label, _, a, b in second if other_label == label]
        left = sum(a <= high and b >= low for a, b in candidates)
        few += 0 < left < min(k, len(candidates))
        if candidates and not left:
            none[class_] = none.get(class_, 0) + 1
    return few, sum(count for count in none.values() if count < k)


def few_combinations(first: Side, second: Side, k: int) -> int:
    """How many pairs of classes with one label can have rows in common, but fewer than k, and fewer than by their
    sizes.

    >>> few_combinations([("a", 0, 1, 1), ("a", 0, 5, 5)], [("a", 1, 0, 2), ("a", 1, 0, 3)], k=2)
    1
    """
    combinations = 0
    for label, class_ in {(label, class_) for label, class_, _, _ in first}:
        intervals = [row[2:] for row in first if row[:2] == (label, class_)]
        for second_class in {second_class for first_label, second_class, _, _ in second if first_label == label}:
            second_intervals = [row[2:] for row in second if row[:2] == (label, second_class)]
            of_own = sum(any(c <= b and d >= a for c, d in second_intervals) for a, b in intervals)
            of_others = sum(any(c <= b and d >= a for c, d in intervals) for a, b in second_intervals)
            combinations += 0 < min(of_own, of_others) < min(k, len(intervals), len(second_intervals))
    return combinations
