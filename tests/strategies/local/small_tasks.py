"""Tasks of local strategies on tables that stand in a test, made in milliseconds: without the stages before."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from sqlglot import exp

from oracles.oracle import Hierarchy, Row
from properties.local_tasks import Plain
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Marginals
from sqlanon.policy.strategies import Traits
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import SubsetCondition
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.strategies.lattice import Budget
from sqlanon.strategies.lattice.lattice import Lattice
from sqlanon.strategies.lattice.limits import Clock
from sqlanon.strategies.local.core.evaluation import ClassEvaluator
from sqlanon.strategies.local.core.nodes import Grid, Tree
from sqlanon.strategies.local.core.task import LocalTask, add_set_labels, class_requirements
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import table
from support.databases import insert, shared_database

SEARCH = {
    "strategy": "optimal", "summary": "range", "ends": "grid", "cuts": "strict", "measure": "loss", "aggregate": "mean",
    "traits": Traits(), "sets": "text", "time_limit": None, "max_checks": None,
}  # fmt: skip


@dataclass(frozen=True)
class Small:
    """Rows of quasi-identifiers in the order of ``hierarchies``, and the requirements.

    A value that its hierarchy does not list is unknown. With ``persons``, the person of each row, ``limit`` is of
    persons. ``spans`` are the lowest and the highest level of each attribute; ``forbidden`` its labels that may not be
    released. ``ordered`` attributes have an order, that of their values as text. Their ``grids`` have the nodes of a
    level as cells; or, where that is negative, its number of values a cell, the first and the last one open. The
    value ``x`` is in a cell by itself that is not a range.
    """

    rows: Sequence[Row]
    hierarchies: Sequence[Hierarchy]
    k: int = 2
    limit: int = 0
    weights: Sequence[float] = ()
    persons: Sequence[int] | None = None
    spans: Sequence[tuple[int, int]] = ()
    forbidden: Sequence[Sequence[str]] = ()
    shields: Sequence[tuple[tuple[int, ...], int]] = ()
    start: Levels | None = None
    max_checks: int | None = None
    identification: Sequence[str] = ()
    ordered: Sequence[int] = ()
    grids: Mapping[int, int] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> list[Row]:
        """The combinations, in their order."""
        trees = self.hierarchies
        return sorted({row for row in self.rows if all(v in t.paths for v, t in zip(row, trees, strict=True))}, key=str)


class SmallTask(LocalTask):
    """A task that starts at a given generalization, and records the strategies that search the full domain."""

    @cached_property
    def strategies(self) -> list[str]:
        return []

    def search_full_domain(self, strategy: str = "optimal", share: float = 0.5) -> tuple[Any, Levels]:
        self.strategies.append(strategy)
        return SimpleNamespace(figures={}, scores={}), self.search_input.start  # type: ignore[attr-defined]


@contextmanager
def small_task(small: Small) -> Iterator[SmallTask]:
    """The task of a local strategy."""
    with shared_database() as connection:
        engine = DuckDBEngine(connection)
        trees = tuple(_tree(connection, small, i) for i in range(len(small.hierarchies)))
        clock = Clock(Budget(None, small.max_checks))
        steps = StatementRunner(engine)
        prepared = _search_input(small, trees)
        members = ClassEvaluator(class_requirements(prepared.requirements), *_members(connection, small, trees))
        if prepared.policy.search.summary == "set":
            trees = tuple(
                add_set_labels(steps, prepared, i, tree, table("combinations"), members) for i, tree in enumerate(trees)
            )
        yield SmallTask(
            steps, table, prepared, table("combinations"), trees, members, lambda *_: None, clock
        )  # fmt: skip


def _search_input(small: Small, trees: Sequence[Tree]) -> Any:
    whole = len(small.rows)
    limit = SuppressionLimit(small.limit)
    if small.persons is not None:
        by_size = sorted(Counter(small.persons).values(), reverse=True)
        limit = SuppressionLimit(sum(by_size[: small.limit]), small.limit, len(by_size))
    levels = [range(tree.height + 1) for tree in trees]
    sums = tuple(
        tuple(
            float(sum(_leaves(small, i, str(_path(small, row[i], i)[level])) for row in _known_rows(small)))
            for level in some
        )
        for i, some in enumerate(levels)
    )
    names = tuple(tree.name for tree in trees)
    floor, ceiling = tuple(tree.floor for tree in trees), tuple(tree.ceiling for tree in trees)
    holes = tuple(
        frozenset(
            level
            for level in some
            if {*small.forbidden[i]} & {str(path[level]) for path in small.hierarchies[i].paths.values()}
        )
        if small.forbidden
        else frozenset()
        for i, some in enumerate(levels)
    )
    shields = tuple(SubsetCondition(some, tuple(names[i] for i in some), k) for some, k in small.shields)
    return SimpleNamespace(
        work=table,
        marginals=Marginals(
            whole, tuple(tree.height for tree in trees), tuple(tree.leaves for tree in trees), (0,) * len(trees), sums
        ),
        limit=limit,
        lattice=Lattice(names, floor, ceiling, holes if any(holes) else ()),
        requirements=Requirements((KAnonymity(small.k),), shields),
        start=small.start or ceiling,
        weights=[tree.weight for tree in trees],
        released_columns=(),
        source=SimpleNamespace(relation=table("combinations"), columns=("combination", "row_count")),
        columns=SimpleNamespace(key=("combination",)),
        policy=SimpleNamespace(
            search=SimpleNamespace(**SEARCH | small.search),
            privacy=SimpleNamespace(k=small.k),
            k=small.k,
            redact=lambda: {"search": {"strategy": small.search.get("strategy", "optimal")}},
            attributes={
                tree.name: SimpleNamespace(identification=identification, max_level=None, weight=tree.weight)
                for tree, identification in zip(
                    trees, small.identification or ["identifying"] * len(trees), strict=True
                )
            },
        ),
    )


def _known_rows(small: Small) -> list[Row]:
    known_rows = {*small.known}
    return [row for row in small.rows if row in known_rows]


def _path(small: Small, value: Any, i: int) -> tuple[Any, ...]:
    return small.hierarchies[i].paths[value]


def _leaves(small: Small, i: int, label: str) -> int:
    """The ground values under a label, less one. Labels are unique in these hierarchies."""
    return sum(label in map(str, path) for path in small.hierarchies[i].paths.values()) - 1


def _tree(connection: Any, small: Small, i: int) -> Tree:
    """Makes ``nodes_i``, where nodes are numbered level by level in the order of their labels."""
    hierarchy = small.hierarchies[i]
    floor, ceiling = small.spans[i] if small.spans else (0, hierarchy.height)
    numbers, offsets = _numbers(small, i, floor)
    ground = sorted(hierarchy.paths, key=str)
    rows = []
    for (level, label), node in numbers.items():
        under = [place for place, value in enumerate(ground) if hierarchy.paths[value][level] == label]
        path = hierarchy.paths[ground[under[0]]]
        parent = numbers[level + 1, path[level + 1]] if level < hierarchy.height else None
        count = sum(row[i] in {ground[place] for place in under} for row in small.rows)
        may_be = level <= ceiling and not (small.forbidden and str(label) in small.forbidden[i])
        rows.append((node, parent, level, str(label), len(under) - 1.0, count, under[0], under[-1], may_be))
    columns = "node INTEGER, parent INTEGER, level INTEGER, label VARCHAR, leaves DOUBLE, rows BIGINT, low INTEGER, "
    connection.execute(f"CREATE TABLE nodes_{i} ({columns} high INTEGER, released BOOLEAN)")
    insert(connection, f"nodes_{i}", rows)
    weight = small.weights[i] if small.weights else 1.0
    return Tree(
        f"a{i}", hierarchy.height, floor, ceiling, offsets, hierarchy.leaves, weight, table(f"nodes_{i}"),
        i in small.ordered, tuple(small.forbidden[i]) if small.forbidden else (),
        grid=_grid(connection, small, i, numbers) if i in small.grids else None,
    )  # fmt: skip


def _grid(connection: Any, small: Small, i: int, numbers: Mapping[tuple[int, Any], int]) -> Grid:
    """Makes ``grid_i``. Texts are the first and the last value of a cell."""
    hierarchy, level = small.hierarchies[i], small.grids[i]
    floor, ground = min(level for level, _ in numbers), sorted(hierarchy.paths, key=str)
    in_range = [value for value in ground if value != "x"]
    cells: dict[Any, list[int]] = {}
    for place, value in enumerate(ground):
        cell = hierarchy.paths[value][level] if level > 0 else place // -level
        cells.setdefault("x" if value == "x" else cell, []).append(place)
    connection.execute(
        f"CREATE TABLE grid_{i} (node INTEGER, cell INTEGER, cell_low INTEGER, cell_high INTEGER, lower VARCHAR, "
        "upper VARCHAR, least VARCHAR, beyond VARCHAR, middle VARCHAR, closed BOOLEAN)"
    )
    for cell, places in cells.items():
        number = numbers[level, cell] if level > 0 else max(numbers.values()) + 1 + len(cells) + places[0]
        lower, upper = str(ground[places[0]]), str(ground[places[-1]])
        texts: list[str | None] = [lower, upper, lower, f"{upper}+", f"m{lower}"]
        if cell == "x":
            texts = [None] * 5
        elif level < 0 and lower == in_range[0]:
            texts[0] = texts[2] = None
        elif level < 0 and upper == in_range[-1]:
            texts[1] = texts[3] = None
        for node in dict.fromkeys(numbers[floor, hierarchy.paths[ground[place]][floor]] for place in places):
            row = [node, number, places[0], places[-1], *texts, True]
            connection.execute(f"INSERT INTO grid_{i} VALUES ({', '.join('?' * 10)})", row)
    return Grid(table(f"grid_{i}"), level if level > 0 else None)


def _numbers(small: Small, i: int, floor: int) -> tuple[dict[tuple[int, Any], int], tuple[int, ...]]:
    """The node of each level and label, and the first node of each level."""
    hierarchy, numbers, offsets = small.hierarchies[i], {}, []
    for level in range(floor, hierarchy.height + 1):
        offsets.append(len(numbers))
        for label in sorted({path[level] for path in hierarchy.paths.values()}, key=str):
            numbers[level, label] = len(numbers)
    return numbers, tuple(offsets)


def _members(connection: Any, small: Small, trees: Sequence[Tree]) -> tuple[exp.Table | None, bool]:
    """Makes ``combinations``, and with persons ``members``, as the stages before do; whether persons move."""
    numbers = [_numbers(small, i, tree.floor)[0] for i, tree in enumerate(trees)]
    paths: dict[Row, list[int]] = {
        row: [
            numbers[i][level, _path(small, value, i)[level]]
            for i, (value, tree) in enumerate(zip(row, trees, strict=True))
            for level in range(tree.floor, tree.height + 1)
        ]
        for row in small.known
    }
    distinct = sorted({tuple(path) for path in paths.values()})
    places = {row: distinct.index(tuple(path)) for row, path in paths.items()}
    sizes = Counter(places[row] for row in small.rows if row in places)
    names = [f"node_{i}_level_{level}" for i, tree in enumerate(trees) for level in range(tree.floor, tree.height + 1)]
    connection.execute(
        f"CREATE TABLE combinations (combination INTEGER, {', '.join(f'{name} INTEGER' for name in names)}, "
        "row_count BIGINT)"
    )
    every = [(place, *path, sizes[place]) for place, path in enumerate(distinct)]
    insert(connection, "combinations", every)
    if small.persons is None:
        return None, False
    of_person: dict[int, Counter[Any]] = {}
    for person, row in zip(small.persons, small.rows, strict=True):
        of_person.setdefault(person, Counter())[places.get(row, row)] += 1
    moving = any(len(some) > 1 for some in of_person.values())
    counts: Counter[tuple[Any, int | None]] = Counter()
    settled: Counter[tuple[Any, int | None]] = Counter()
    for person, some in of_person.items():
        mover = person if len(some) > 1 else None
        for place, n in some.items():
            counts[place, mover] += n
            settled[place, mover] += mover is None
    connection.execute("CREATE TABLE members (combination INTEGER, row_count BIGINT, persons BIGINT, mover INTEGER)")
    members = [
        (place if isinstance(place, int) else None, n, settled[place, mover], mover)
        for (place, mover), n in counts.items()
    ]
    insert(connection, "members", members)
    return table("members"), moving


# Tables


def letters(letter: str, count: int, *sizes: int) -> Hierarchy:
    """``a0, a1, ...``, in groups of these sizes, level by level, below ``*``."""
    paths = {}
    for i in range(count):
        groups = (f"{letter * (j + 2)}{i // size}" for j, size in enumerate(sizes))
        paths[f"{letter}{i}"] = (f"{letter}{i}", *groups, f"{letter}*")
    return Hierarchy(paths)


def draw_rows(number: int, rows: int, trees: Sequence[Hierarchy], repeated: float = 0.5) -> list[Row]:
    """Rows that are determined by a number: some are drawn, others repeat earlier ones, so that counts differ."""
    rng = random.Random(number)
    result: list[Row] = []
    for _ in range(rows):
        if result and rng.random() < repeated:
            result.append(rng.choice(result))
        else:
            result.append(tuple(rng.choice([*tree.paths]) for tree in trees))
    return result


def generalizations(task: LocalTask) -> Iterator[Levels]:
    """All levels from the floor to the ceiling."""
    return itertools.product(*(range(tree.floor, tree.ceiling + 1) for tree in task.trees))


def best_levels(small: Small) -> Small:
    """The same, starting at the generalization that loses least within the limit, the first of equals."""
    with small_task(replace(small, start=None)) as task:
        plain = Plain(task)

        def loss(levels: Levels) -> float:
            at = plain.at(levels)
            if any(not plain.nodes[i][node].released for nodes in at.values() for i, node in enumerate(nodes)):
                return 2.0
            retained = plain.kept(at, small.k)
            return plain.loss(retained) if sum(plain.n.values()) - plain.rows(retained) <= plain.allowed else 2.0

        return replace(small, start=min(generalizations(task), key=lambda levels: (loss(levels), levels)))
