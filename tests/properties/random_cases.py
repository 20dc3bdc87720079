"""Hypothesis strategies: small random tables with valid hierarchies, and a question to ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from oracles.oracle import AGGREGATES, MEASURES, PER_ATTRIBUTE, Hierarchy, Row, Value

# Names a builder of SQL can trip over; the order of the policy is the order of this tuple.
NAMES = ("b", "select", 'a"; drop', "größe")
TEXTS = ("v0", "v1", "v2", "it's", "a b", "é", "V0", "NULL", "007")
NUMBERS = (0, 1, 2, 7, 10, -3, 1_000_000)
UNKNOWN_TEXTS, UNKNOWN_NUMBERS = ("u0", "u1"), (90, 91)
LIMITS = ("0", "0.05", "0.1", "0.29", "0.5", "1")


@dataclass(frozen=True)
class Case:
    """A table (rows in the order of ``hierarchies``) and a policy for it; ``limit`` is a decimal text."""

    rows: list[Row]
    hierarchies: Mapping[str, Hierarchy]
    k: int
    limit: str
    measure: str
    aggregate: str | None = None
    weights: Mapping[str, float] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``oracle.solve``."""
        return {
            "rows": self.rows,
            "hierarchies": self.hierarchies,
            "k": self.k,
            "suppression_limit": self.limit,
            "measure": self.measure,
            "aggregate": self.aggregate,
            "weights": self.weights,
        }

    @property
    def has_unknown(self) -> bool:
        columns = zip(*self.rows, strict=True)
        pairs = zip(self.hierarchies.values(), columns, strict=False)
        return any(not hierarchy.knows(value) for hierarchy, column in pairs for value in column)


@st.composite
def merges(draw: st.DrawFn, groups: list[list[Value]]) -> list[list[Value]]:
    """The groups of the next level: any union of groups, sometimes all of them in one, sometimes unchanged."""
    parents = [draw(st.integers(0, len(groups) - 1)) for _ in groups]
    return [
        [value for group, p in zip(groups, parents, strict=True) if p == parent for value in group]
        for parent in sorted(set(parents))
    ]


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    """A tree over 1 to 5 ground values, uneven, of height 0 (if there is one value) to 3.

    Labels are not unique to a level: a group may be called as one of its members, or as a group elsewhere
    is at another level. Level 0 of numbers keeps its type.
    """
    pool = draw(st.sampled_from([TEXTS, TEXTS, NUMBERS]))
    fewest = draw(st.sampled_from([3, 2, 1, 4]))
    ground: list[Value] = draw(st.lists(st.sampled_from(pool), min_size=fewest, max_size=5, unique=True))
    height = draw(st.sampled_from([2, 1, 3, *([0] if len(ground) == 1 else [])]))
    paths: dict[Value, tuple[Value, ...]] = {value: (value,) for value in ground}
    groups: list[list[Value]] = [[value] for value in ground]
    by_member = draw(st.booleans())
    for level in range(1, height + 1):
        groups = [ground] if level == height else draw(merges(groups))
        for i, group in enumerate(groups):
            label = "*" if level == height else str(group[0]) if by_member else f"g{i}"
            for value in group:
                paths[value] += (label,)
    return Hierarchy(paths)


def occurring(hierarchy: Hierarchy, unknown: bool) -> list[Value]:
    """The values that a column may hold: the listed ones, NULL, and unknown ones if a level is above them."""
    paths = list(hierarchy.paths)
    if hierarchy.height == 0:
        return paths
    unknown_values: tuple[Value, ...] = UNKNOWN_NUMBERS if isinstance(paths[0], int) else UNKNOWN_TEXTS
    return [*paths, None, *(unknown_values if unknown else ())]


@st.composite
def tables(draw: st.DrawFn, trees: list[Hierarchy]) -> list[Row]:
    """0 to 30 rows: a few combinations that repeat, so that classes are about k, and some at random.

    Unknown values are among the latter, few, and seldom: each of them costs a row of the limit.
    """
    if draw(st.integers(0, 24)) == 24:
        return []
    unknown = draw(st.integers(0, 4)) == 4
    row = st.tuples(*(st.sampled_from(occurring(tree, unknown=False)) for tree in trees))
    odd_row = st.tuples(*(st.sampled_from(occurring(tree, unknown)) for tree in trees))
    heap = st.tuples(row, st.integers(1, 6))
    heaps = draw(st.lists(heap, min_size=draw(st.sampled_from([0, 2, 3, 4])), max_size=7))
    loose = draw(st.lists(odd_row, max_size=2 if unknown else 8))
    return [*(row for row, n in heaps for _ in range(n)), *loose][-30:]


@st.composite
def objectives(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[str, str | None, dict[str, float] | None]:
    """A measure, with an aggregate and weights where the design allows them."""
    measure = draw(st.sampled_from(MEASURES))
    if measure not in PER_ATTRIBUTE:
        return measure, None, None
    aggregate = draw(st.sampled_from([None, *AGGREGATES]))
    if aggregate in ("geometric", "max") or draw(st.booleans()):
        return measure, aggregate, None
    weight = st.sampled_from([0.5, 1.0, 2.0, 3.0])
    return measure, aggregate, draw(st.dictionaries(st.sampled_from(names), weight, min_size=1))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A table of 1 to 4 attributes, valid hierarchies, and a legal policy."""
    names = draw(st.permutations(NAMES))[: draw(st.sampled_from([2, 3, 1, 4]))]
    trees = {name: draw(hierarchies()) for name in names}
    rows = draw(tables(list(trees.values())))
    measure, aggregate, weights = draw(objectives(tuple(names)))
    return Case(
        rows=rows,
        hierarchies=trees,
        k=draw(st.sampled_from([2, 3, 4, 5, 1])),
        limit=draw(st.sampled_from(LIMITS)),
        measure=measure,
        aggregate=aggregate,
        weights=weights,
    )
