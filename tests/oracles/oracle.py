"""Exhaustive search in plain Python: what the right answer is, found the slow and obvious way.

It imports nothing from sqlanon, so that a mistake there cannot be repeated here. Every generalization is
tried, every class is counted with a ``Counter``, and the measures are the design's table word for word.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

Value = Hashable
Row = tuple[Value, ...]
Levels = tuple[int, ...]

TIE = 1e-12


@dataclass(frozen=True)
class Unknown:
    """The generalization of a value that its hierarchy does not list: equal to no label."""

    value: Value


@dataclass(frozen=True)
class Hierarchy:
    """One attribute: each ground value with its labels, level 0 (itself) to the top.

    >>> zips = Hierarchy({"02138": ("02138", "0213*", "*"), "02141": ("02141", "0214*", "*")})
    >>> zips.height, zips.leaves, zips.label("02138", 1), zips.label(None, 1), zips.label(None, 2)
    (2, 2, '0213*', None, '*')
    """

    paths: Mapping[Value, tuple[Value, ...]]

    def __post_init__(self) -> None:
        assert None not in self.paths
        assert len({len(path) for path in self.paths.values()}) == 1
        assert len({path[-1] for path in self.paths.values()}) == 1
        assert all(path[0] == value for value, path in self.paths.items())

    @cached_property
    def height(self) -> int:
        return len(next(iter(self.paths.values()))) - 1

    @property
    def top(self) -> Value:
        return next(iter(self.paths.values()))[-1]

    @property
    def leaves(self) -> int:
        """The ground values listed; a column with NULLs has one leaf more (see ``Table.ground_values``)."""
        return len(self.paths)

    def knows(self, value: Value) -> bool:
        return value is None or value in self.paths

    def label(self, value: Value, level: int) -> Value:
        """Generalized value. NULL stays NULL below the top level and becomes the top value there."""
        if value in self.paths:
            return self.paths[value][level]
        if level == self.height:
            return self.top
        return None if value is None else Unknown(value)


@dataclass(frozen=True)
class Table:
    """A private table of quasi-identifiers: its distinct rows with counts, and a hierarchy per column."""

    rows: Counter[Row]
    names: tuple[str, ...]
    hierarchies: tuple[Hierarchy, ...]
    _classes: dict[Levels, Counter[Row]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, rows: Iterable[Row], hierarchies: Mapping[str, Hierarchy]) -> Table:
        return cls(Counter(map(tuple, rows)), tuple(hierarchies), tuple(hierarchies.values()))

    @cached_property
    def size(self) -> int:
        return sum(self.rows.values())

    @cached_property
    def values(self) -> list[Counter[Value]]:
        """Per attribute: how often each value occurs in the whole table."""
        counts: list[Counter[Value]] = [Counter() for _ in self.names]
        for row, n in self.rows.items():
            for count, value in zip(counts, row, strict=True):
                count[value] += n
        return counts

    def ground_values(self, attribute: int) -> list[Value]:
        """The leaves: all that the hierarchy lists, occurring or not, and NULL if the column has it."""
        null = [None] if None in self.values[attribute] else []
        return [*self.hierarchies[attribute].paths, *null]

    @cached_property
    def leaves_under(self) -> list[list[Counter[Value]]]:
        """Per attribute and level: the number of ground values under each label."""
        return [
            [Counter(h.label(g, level) for g in self.ground_values(a)) for level in range(h.height + 1)]
            for a, h in enumerate(self.hierarchies)
        ]

    @cached_property
    def labels(self) -> list[list[dict[Value, Value]]]:
        """Per attribute and level: the label of each value that occurs."""
        return [
            [{v: h.label(v, level) for v in self.values[a]} for level in range(h.height + 1)]
            for a, h in enumerate(self.hierarchies)
        ]

    def generalize(self, row: Row, levels: Levels) -> Row:
        return tuple([self.labels[a][level][row[a]] for a, level in enumerate(levels)])

    @cached_property
    def known_rows(self) -> list[tuple[Row, int]]:
        """The rows without unknown values; the others are always suppressed."""
        return [
            (row, n)
            for row, n in self.rows.items()
            if all(h.knows(v) for h, v in zip(self.hierarchies, row, strict=True))
        ]

    def classes(self, levels: Levels) -> Counter[Row]:
        """The equivalence classes of a generalization with their sizes, before suppression."""
        if levels not in self._classes:
            maps = [self.labels[a][level] for a, level in enumerate(levels)]
            sizes: Counter[Row] = Counter()
            for row, n in self.known_rows:
                sizes[tuple([labels[value] for labels, value in zip(maps, row, strict=True)])] += n
            self._classes[levels] = sizes
        return self._classes[levels]


@dataclass(frozen=True)
class Release:
    """A table generalized to ``levels``, without the classes smaller than k."""

    table: Table
    levels: Levels
    k: int

    @cached_property
    def kept(self) -> dict[Row, int]:
        return {labels: n for labels, n in self.table.classes(self.levels).items() if n >= self.k}

    @cached_property
    def suppressed(self) -> int:
        return self.table.size - sum(self.kept.values())

    def suppressed_rows(self) -> Iterator[tuple[Row, int]]:
        """The distinct rows left out, with counts: of an unknown value, or of a class not kept."""
        rows = {row for row, _ in self.table.known_rows}
        for row, n in self.table.rows.items():
            if row not in rows or self.table.generalize(row, self.levels) not in self.kept:
                yield row, n


def loss(release: Release) -> list[float]:
    """Mean over all rows of (leaves(v) - 1) / (leaves - 1); a suppressed row counts 1."""
    table = release.table
    figures = []
    for a, level in enumerate(release.levels):
        leaves = len(table.ground_values(a))
        under = table.leaves_under[a][level]
        weight = sum(n * (under[labels[a]] - 1) for labels, n in release.kept.items())
        kept_loss = 0 if leaves == 1 else weight / (leaves - 1)
        figures.append((kept_loss + release.suppressed) / table.size)
    return figures


def precision(release: Release) -> list[float]:
    """Mean over all rows of level / height; a suppressed row counts 1."""
    table = release.table
    kept_rows = table.size - release.suppressed
    relative = [share(level, h.height) for level, h in zip(release.levels, table.hierarchies, strict=True)]
    return [(kept_rows * x + release.suppressed) / table.size for x in relative]


def height(release: Release) -> float:
    """Σ level; suppression does not count."""
    return sum(release.levels)


def relative_height(release: Release) -> float:
    """Σ (level / height); suppression does not count."""
    levels, hierarchies = release.levels, release.table.hierarchies
    return math.fsum(share(level, h.height) for level, h in zip(levels, hierarchies, strict=True))


def discernibility(release: Release) -> float:
    """Σ over kept classes of size² + rows × suppressed rows."""
    return sum(n * n for n in release.kept.values()) + release.table.size * release.suppressed


def average_class_size(release: Release) -> float:
    """Rows / (kept classes + 1 if any row is suppressed)."""
    return release.table.size / (len(release.kept) + (1 if release.suppressed else 0))


def distinct(release: Release) -> float:
    """Number of distinct released tuples, to maximise."""
    return len(release.kept)


def suppression(release: Release) -> float:
    """Number of suppressed rows, to minimise."""
    return release.suppressed


def entropy(release: Release) -> float:
    """Non-uniform entropy, summed over attributes.

    -Σ over all rows of log2(count(value) / count(its generalized value)), counts over the whole table;
    plus, for suppressed rows, -Σ log2(count of its generalized value among the suppressed / suppressed
    rows). The design is silent on a value missing from its hierarchy: below the top level it is its own
    generalization, at the top level the top value.
    """
    table = release.table
    terms = []
    for a, level in enumerate(release.levels):
        label = table.labels[a][level]
        generalized: Counter[Value] = Counter()
        for value, n in table.values[a].items():
            generalized[label[value]] += n
        terms += [-n * math.log2(n / generalized[label[value]]) for value, n in table.values[a].items()]
        suppressed: Counter[Value] = Counter()
        for row, n in release.suppressed_rows():
            suppressed[label[row[a]]] += n
        terms += [-n * math.log2(n / release.suppressed) for n in suppressed.values()]
    return math.fsum(terms)


def share(level: int, top: int) -> float:
    """Level / height; an attribute of height 0 has nothing to lose."""
    return level / top if top else 0.0


def mean(xs: Sequence[float], weights: Sequence[float]) -> float:
    """Σ w·x / Σ w."""
    return weighted_sum(xs, weights) / math.fsum(weights)


def weighted_sum(xs: Sequence[float], weights: Sequence[float]) -> float:
    """Σ w·x."""
    return math.fsum(w * x for w, x in zip(weights, xs, strict=True))


def geometric(xs: Sequence[float], _weights: Sequence[float]) -> float:
    """(Π (1 + x))^(1/m) - 1."""
    return math.prod(1 + x for x in xs) ** (1 / len(xs)) - 1


def maximum(xs: Sequence[float], _weights: Sequence[float]) -> float:
    """The attribute that loses most."""
    return max(xs)


PER_ATTRIBUTE: dict[str, Callable[[Release], list[float]]] = {"loss": loss, "precision": precision}
PER_TABLE: dict[str, Callable[[Release], float]] = {
    "height": height,
    "relative_height": relative_height,
    "discernibility": discernibility,
    "average_class_size": average_class_size,
    "distinct": distinct,
    "suppression": suppression,
    "entropy": entropy,
}
MEASURES = (*PER_ATTRIBUTE, *PER_TABLE)
MAXIMISED = {"distinct"}
AGGREGATES: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean": mean,
    "geometric": geometric,
    "max": maximum,
    "sum": weighted_sum,
}


def score(
    release: Release, measure: str, aggregate: str | None = "mean", weights: Mapping[str, float] | None = None
) -> float:
    """The figure of a release; aggregate and weights count for measures with one figure per attribute."""
    if measure in PER_TABLE:
        return PER_TABLE[measure](release)
    by_attribute = [(weights or {}).get(name, 1.0) for name in release.table.names]
    return AGGREGATES[aggregate or "mean"](PER_ATTRIBUTE[measure](release), by_attribute)


def allowed_rows(suppression_limit: Decimal | str, rows: int) -> int:
    """floor(limit × rows), in exact decimal arithmetic.

    >>> allowed_rows("0.29", 100), math.floor(0.29 * 100)
    (29, 28)
    """
    assert not isinstance(suppression_limit, float)
    return math.floor(Decimal(suppression_limit) * rows)


@dataclass(frozen=True)
class Figures:
    """A generalization that satisfies the requirement, with its figures."""

    levels: Levels
    score: float
    suppressed_rows: int
    classes: int


@dataclass(frozen=True)
class Solution:
    """The best generalization; ``ties`` has the levels of all that are as good, the preferred first."""

    levels: Levels
    score: float
    suppressed_rows: int
    classes: int
    ties: list[Levels]
    satisfying: list[Figures]


def lattice(table: Table, level_limits: Mapping[str, tuple[int, int]] | None = None) -> Iterator[Levels]:
    """All generalizations, in lexicographic order; ``level_limits``: lowest and highest level allowed."""
    limits = {name: (0, h.height) for name, h in zip(table.names, table.hierarchies, strict=True)}
    limits.update(level_limits or {})
    return itertools.product(*(range(low, high + 1) for low, high in limits.values()))


def satisfies(release: Release, suppression_limit: Decimal | str) -> bool:
    """At most floor(limit × rows) rows are left out, and a release with no rows is never a solution."""
    return release.suppressed <= allowed_rows(suppression_limit, release.table.size) and bool(release.kept)


def fewest_suppressed(table: Table, k: int, level_limits: Mapping[str, tuple[int, int]] | None = None) -> int:
    """The fewest rows that any generalization has to leave out."""
    return min(Release(table, levels, k).suppressed for levels in lattice(table, level_limits))


def satisfying(
    table: Table,
    k: int,
    suppression_limit: Decimal | str,
    measure: str,
    *,
    aggregate: str | None = "mean",
    weights: Mapping[str, float] | None = None,
    level_limits: Mapping[str, tuple[int, int]] | None = None,
) -> list[Figures]:
    """Every generalization that satisfies k-anonymity with suppression, in lexicographic order."""
    releases = (Release(table, levels, k) for levels in lattice(table, level_limits))
    return [
        Figures(r.levels, score(r, measure, aggregate, weights), r.suppressed, len(r.kept))
        for r in releases
        if satisfies(r, suppression_limit)
    ]


def best(figures: Sequence[Figures], measure: str) -> Solution | None:
    """The best score; within a relative 1e-12 of it the smaller height, then the first lexicographically."""
    if not figures:
        return None
    choose = max if measure in MAXIMISED else min
    winner = choose(f.score for f in figures)
    equals = [f for f in figures if math.isclose(f.score, winner, rel_tol=TIE, abs_tol=0.0)]
    equals.sort(key=lambda f: (sum(f.levels), f.levels))
    first = equals[0]
    return Solution(
        levels=first.levels,
        score=first.score,
        suppressed_rows=first.suppressed_rows,
        classes=first.classes,
        ties=[f.levels for f in equals],
        satisfying=list(figures),
    )


def strictly_lower(a: Levels, b: Levels) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def solve(
    rows: Iterable[Row],
    hierarchies: Mapping[str, Hierarchy],
    k: int,
    suppression_limit: Decimal | str,
    measure: str,
    **options: Any,
) -> Solution | None:
    """The best of all satisfying generalizations; ``None`` if there is none. Options as ``satisfying``.

    >>> zips = {"zip": Hierarchy({z: (z, "*") for z in ("02138", "02139")})}
    >>> rows = [("02138",), ("02138",), ("02139",)]
    >>> solve(rows, zips, 2, "0", "loss").levels, solve(rows, zips, 2, "0.34", "loss").levels
    ((1,), (0,))
    """
    return best(satisfying(Table.of(rows, hierarchies), k, suppression_limit, measure, **options), measure)


def k_minimal(
    rows: Iterable[Row],
    hierarchies: Mapping[str, Hierarchy],
    k: int,
    suppression_limit: Decimal | str,
    measure: str = "height",
    **options: Any,
) -> Solution | None:
    """The best of the k-minimal generalizations, which are its ``satisfying``; ``None`` if there is none.

    k-minimal: it satisfies, and no strictly lower generalization does (Samarati and Sweeney 1998).
    """
    figures = satisfying(Table.of(rows, hierarchies), k, suppression_limit, measure, **options)
    minimal = [f for f in figures if not any(strictly_lower(g.levels, f.levels) for g in figures)]
    return best(minimal, measure)
