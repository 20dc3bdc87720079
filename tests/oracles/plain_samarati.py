"""Distance vectors in plain Python, and the algorithm that looks among them only; random tables to try it on."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator

from oracles import oracle
from oracles.oracle import Hierarchy, Levels, Row, Table
from properties.random_cases import Case
from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.lattice.search import SourceFacts


def distance(table: Table, left: Row, right: Row, bottom: Levels) -> Levels:
    """The lowest level from the bottom on at which two rows have equal labels, by attribute."""
    trees = zip(table.hierarchies, left, right, bottom, strict=True)
    return tuple(
        next(level for level in range(low, tree.height + 1) if tree.label(value, level) == tree.label(its, level))
        for tree, value, its, low in trees
    )


def vectors(table: Table, k: int, bottom: Levels) -> set[Levels]:
    """The distance vectors between outliers (fewer than k rows at the bottom) and all combinations."""
    rows = [row for row, _ in table.known_rows]
    sizes = table.classes(bottom)
    outliers = [row for row in rows if sizes[table.generalize(row, bottom)] < k]
    return {distance(table, outlier, row, bottom) for outlier in outliers for row in rows}


def distinct_values(table: Table) -> list[list[int]]:
    """The number of distinct values of the rows, without unknown ones, by attribute and level."""
    return [
        [len({tree.label(value, level) for value in values if tree.knows(value)}) for level in range(tree.height + 1)]
        for tree, values in zip(table.hierarchies, table.values, strict=True)
    ]


def data_of(case: Case, lattice: Lattice) -> SourceFacts:
    """Interface of a strategy to a case's table; the vectors one by one."""
    table = Table.of(case.rows, case.hierarchies)

    def parts() -> Iterator[Collection[Levels]]:
        for vector in sorted(vectors(table, case.k, lattice.bottom)):
            if all(level <= top for level, top in zip(vector, lattice.top, strict=True)):
                yield [vector]

    return SourceFacts(parts, True, lambda: distinct_values(table))


def lowest(among: Collection[Levels]) -> set[Levels]:
    return {
        levels for levels in among if not any(oracle.strictly_lower(other_levels, levels) for other_levels in among)
    }


def plain_samarati(case: Case) -> set[Levels]:
    """The lowest feasible distance vectors, which the paper takes for the k-minimal generalizations."""
    table = Table.of(case.rows, case.hierarchies)
    candidates = vectors(table, case.k, (0,) * len(table.names))
    return lowest(
        [levels for levels in candidates if oracle.satisfies(oracle.Release(table, levels, case.k), case.limit)]
    )


def random_tree(drawn: random.Random) -> Hierarchy:
    """2 to 6 values under 1 to 3 levels; each next level joins neighbours at random."""
    values, height = drawn.randint(2, 6), drawn.randint(1, 3)
    paths = [[f"v{value}"] for value in range(values)]
    groups = list(range(values))
    for level in range(1, height + 1):
        starts = [0, *(i for i in range(1, groups[-1] + 1) if level < height and drawn.random() < 0.5)]
        groups = [sum(start <= group for start in starts) - 1 for group in groups]
        for path, group in zip(paths, groups, strict=True):
            path.append("*" if level == height else f"{level}.{group}")
    return Hierarchy({path[0]: tuple(path) for path in paths})


def random_case(drawn: random.Random, k: int, limit: str) -> Case:
    """A table of 2 to 4 attributes and k to 30 rows, with some repeated combinations."""
    trees = {f"a{i}": random_tree(drawn) for i in range(drawn.randint(2, 4))}
    rows: list[Row] = []
    for _ in range(drawn.randint(2, 8)):
        row = tuple(drawn.choice(list(tree.paths)) for tree in trees.values())
        rows += [row] * math.ceil(drawn.random() * (k + 1))
    missing = max(0, k - len(rows))
    return Case([*rows, *rows[:1] * missing][:30], trees, k, limit, "height")


def misses(case: Case) -> tuple[bool, bool, bool] | None:
    """Error of the algorithm in a case: it misses a k-minimal generalization, finds none, or finds one that is not
    k-minimal. None where there is nothing to do, or nothing to find."""
    solution = oracle.k_minimal(**case.arguments)
    if solution is None or sum(solution.levels) == 0:
        return None
    true, reported = {node.levels for node in solution.satisfying}, plain_samarati(case)
    return bool(true - reported), not true & reported, bool(reported - true)
