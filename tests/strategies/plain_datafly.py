"""The steps of Datafly in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from oracles.oracle import Levels, Table


def steps_of_datafly(
    table: Table,
    allowed: Sequence[Sequence[int]],
    weights: Mapping[str, float],
    satisfies: Callable[[Levels], bool],
) -> Levels | None:
    """Step up for the attribute with the most values divided by its weight, until the generalization is feasible."""
    levels = tuple(min(permitted) for permitted in allowed)
    while not satisfies(levels):
        steps = []
        for i, (permitted, tree) in enumerate(zip(allowed, table.hierarchies, strict=True)):
            values = {tree.label(value, levels[i]) for value in table.values[i] if tree.knows(value)}
            if levels[i] < max(permitted):
                rows_per_value = Fraction(len(values)) / Fraction(weights.get(table.names[i], 1.0))
                steps.append((-rows_per_value, i, min(level for level in permitted if level > levels[i])))
        if not steps:
            return None
        _, i, level = min(steps)
        levels = (*levels[:i], level, *levels[i + 1 :])
    return levels
