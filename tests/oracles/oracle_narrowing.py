"""The narrowing of a quasi-identifier by columns, computed from all pairs of persons."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from typing import Any


def figures_of_pairs(rows: list[tuple[Any, ...]], shared: int) -> dict[str, float | None]:
    """The figures, from all pairs of persons: rows are (person, label, ground value, columns ...).

    A person counts once with a label, a ground value and values of the columns.
    """

    def alike(values: list[Any]) -> float:
        pairs = list(combinations(values, 2))
        return sum(first == second for first, second in pairs) / len(pairs) if pairs else 0.0

    def all_three(values: list[Any]) -> float:
        n = len(values)
        return sum(m * (m - 1) * (m - 2) for m in Counter(values).values()) / max(n * (n - 1) * (n - 2), 1)

    labels, groups = defaultdict[Any, list[Any]](list), defaultdict[Any, list[Any]](list)
    grounds, sharing = defaultdict[Any, list[Any]](list), Counter[Any]()
    for _, label, ground in sorted({row[:3] for row in rows}, key=repr):
        labels[label].append(ground)
    for _, label, ground, *columns in sorted(set(rows), key=repr):
        groups[(label, *columns)].append(ground)
        grounds[label, ground].append(columns)
        sharing[tuple(columns)] += 1
    several = {key: columns for key, columns in grounds.items() if len(columns) > 1}
    agreeing = sum(len(columns) * alike(columns) for columns in several.values())
    is_copy = bool(several) and agreeing >= sum(map(len, several.values())) / 2
    judged = {
        key: values
        for key, values in groups.items()
        if len(values) > 1 and len(set(labels[key[0]])) > 1 and (is_copy or sharing[key[1:]] >= shared)
    }
    # A person in several groups of a label counts once: each of them in part.
    persons_of = {label: sum(len(values) for key, values in judged.items() if key[0] == label) for label in labels}
    scale = {label: min(1, len(labels[label]) / n) if (n := persons_of[label]) else 0 for label in labels}
    rows_counted = sum(scale[key[0]] * len(values) for key, values in judged.items())

    def mean(figure: Any) -> float | None:
        total = sum(scale[key[0]] * len(values) * figure(key, values) for key, values in judged.items())
        return total / rows_counted if judged else None

    variance, pinned = None, 0
    for label in {key[0] for key in judged}:
        groups_of_label = [values for key, values in judged.items() if key[0] == label]
        two, three = alike(labels[label]), all_three(labels[label])
        inside, size = scale[label] * persons_of[label], len(labels[label])
        spread = scale[label] * sum(len(values) / (2 * (len(values) - 1)) for values in groups_of_label)
        variance = (variance or 0) + spread * max(two + two**2 - 2 * three, 0)
        variance += inside * (1 - inside / size) * max(three - two**2, 0)
        given_away = [
            len(values)
            for values in groups_of_label
            if len(set(values)) == 1 and two < 0.81 and two ** (len(values) / 2) < 1e-6
        ]
        pinned += min(sum(given_away), round(inside))
    return {
        "rows": rows_counted,
        "all_rows": sum(map(len, labels.values())),
        "before": mean(lambda key, values: len(set(labels[key[0]]))),
        "after": mean(lambda key, values: len(set(values))),
        "alike_before": mean(lambda key, values: alike(labels[key[0]])),
        "alike_after": mean(lambda key, values: alike(values)),
        "variance": variance,
        "pinned": pinned,
    }
