"""The frequency sets of a run. A set at some levels serves every generalization above; sets are created on demand.

A small table has one set at the lowest levels. For a large table that set would be as large as the table, so each set
is at levels as low as its estimated number of classes allows, and serves the generalizations that are checked next.
(Rolling sets up from other sets does not help: a search checks generalizations so near the border of feasibility that a
set seldom serves twice.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency import statements
from sqlanon.frequency.codes import Half, RowCodes
from sqlanon.frequency.distribution import (
    ValuePairs,
    count_distribution,
)
from sqlanon.frequency.remote_persons import RemoteMovers, add_movers, add_movers_to_distribution
from sqlanon.frequency.statements import PERSONS, POPULATION, POPULATION_MOVER
from sqlanon.requirements import Distribution, Requirements
from sqlanon.sources.source import SMALL_TABLE_ROWS
from sqlanon.support.coding import (
    KNOWN,
    ROW_COUNT,
    CodedAttribute,
    Levels,
    code_column,
    group_counts,
    group_sizes,
    levels_below_top,
    sensitive_column,
)
from sqlanon.support.expressions import Namer, aliased, all_columns, all_of, col, select, subquery

SAMPLE_SIZE = 256
"""Number of rows drawn for an estimate, which is a mean over them."""

MANY_GROUPS = 100_000
"""Number of groups from which they are assumed to be equally large."""


@dataclass(frozen=True)
class SensitiveTable:
    """A table with the counts of a distribution by combination and value."""

    table: exp.Expr  # from `frequency.distribution.count_distribution`
    inner: int = 0  # number of other sensitive attributes that count as quasi-identifiers
    # From `frequency.distribution.ordered_domain`; None for hierarchy nodes and joint distributions.
    domain: exp.Table | None = None


@dataclass(frozen=True)
class ClassSpace:
    """The input tables for the equivalence classes of generalizations."""

    frequency: exp.Expr  # the frequency set, with the codes at the levels of the generalizations
    heights: Levels  # the height of each quasi-identifier's hierarchy
    requirements: Requirements
    unknown: bool = False  # the frequency set has rows with unknown values, which are always suppressed
    sensitive: Mapping[Distribution, SensitiveTable] = field(default_factory=dict)
    persons: bool = False  # persons are counted
    moving: bool = False  # some persons are in several combinations
    population: bool = False  # a population is in the frequency set
    population_moving: bool = False  # some persons of the population are in several combinations
    are_classes: bool = False  # the frequency set has a row for each class of a single generalization, and no codes
    # Some persons are in several combinations and are counted remotely, for one generalization at a time: the
    # frequency set serves no other.
    moving_elsewhere: bool = False

    def below_top(self, levels: Levels) -> list[tuple[int, int]]:
        """Attributes and levels of a generalization that are below the top."""
        return levels_below_top(levels, self.heights)

    def keys(self, levels: Levels) -> list[str]:
        codes = [code_column(i, level) for i, level in self.below_top(levels)]
        return [*codes, KNOWN] if self.unknown else codes

    @property
    def additive(self) -> bool:
        """Whether the counts of merged classes add up."""
        return not self.moving and not self.population_moving and not self.moving_elsewhere


class CardinalityEstimate:
    """Estimates the number of classes from the group sizes of each attribute at each level."""

    def __init__(self, runner: StatementRunner, attributes: Sequence[CodedAttribute], rows: int) -> None:
        self._rows = rows
        self._counts: list[list[int]] = []
        self._shares: list[list[list[float]]] = []
        for i, attribute in enumerate(attributes):
            counts = (
                [*runner.fetch_rows(group_counts(attribute), [(1,) * attribute.height])[0]] if attribute.height else []
            )
            self._counts.append([*counts, 1])
            self._shares.append(
                [self._draw_shares(runner, attribute, level, count, i) for level, count in enumerate(counts)]
            )

    @staticmethod
    def _draw_shares(
        runner: StatementRunner, attribute: CodedAttribute, level: int, count: int, seed: int
    ) -> list[float]:
        if count > MANY_GROUPS:
            return [1 / count] * SAMPLE_SIZE
        return draw_shares([size for (size,) in runner.fetch_rows(group_sizes(attribute, level), [(1,)])], seed)

    def count_groups(self, attribute: int, level: int) -> int:
        """The number of groups of values of an attribute at a level."""
        return self._counts[attribute][level]

    def max_classes(self, levels: Levels) -> int:
        """An upper bound of the number of classes."""
        return math.prod(counts[level] for counts, level in zip(self._counts, levels, strict=True))

    def estimate_classes(self, levels: Levels) -> float:
        """An estimate of the number of classes."""
        below = zip(self._shares, levels, strict=True)
        return expected_classes([shares[level] for shares, level in below if level < len(shares)], self._rows)

    def list_lowerings(self, levels: Levels, floor: Levels) -> Iterator[tuple[int, int]]:
        """Attributes with lower levels, in the order of the factor by which they multiply the classes."""
        candidates = [
            (self._counts[i][lower] / self._counts[i][lower + 1], -lower, i)
            for i, level in enumerate(levels)
            for lower in range(floor[i], level)
        ]
        return ((i, -lower) for _, lower, i in sorted(candidates))


def draw_shares(sizes: Sequence[int], seed: int) -> list[float]:
    """Draw rows at random; return the shares of the groups that they are in.

    >>> draw_shares([5, 5], seed=1) == [0.5] * SAMPLE_SIZE
    True
    """
    total = sum(sizes)
    return [size / total for size in random.Random(seed).choices(sizes, weights=sizes, k=SAMPLE_SIZE)]


def expected_classes(shares: Sequence[Sequence[float]], rows: int) -> float:
    """The expected number of classes if attributes were independent; dependencies make them fewer.

    A cell of share p has a row with probability 1 − (1 − p)^rows. The sum over all cells equals the mean of this
    probability divided by p over rows drawn at random.

    >>> round(expected_classes([[0.5] * SAMPLE_SIZE, [0.25] * SAMPLE_SIZE], 1000))
    8
    """
    if not shares:
        return 1.0
    products = [math.prod(row) for row in zip(*shares, strict=True)]
    return sum(-math.expm1(rows * math.log1p(-p)) / p if p < 1 else 1.0 for p in products) / SAMPLE_SIZE


COARSE_CLASSES = 100_000
"""Number of possible classes up to which a set costs hardly more than the scan."""

FIRST_SET_SHARE, LARGEST_FIRST_SET = 2, 10_000_000
"""The first set of a large table has at most one row per this many rows of the table, and at most
``LARGEST_FIRST_SET``; each later set has at most half as many as the one before."""

SHARED_ROWS = 2_000_000
"""Maximum number of rows, in total, from which one statement computes the classes of several generalizations."""

KEPT_WITH_MOVERS = 16
"""Number of sets that are kept if each serves a single generalization."""

FAILED_LOWERINGS = 3
"""Number of lowerings that may fail before a set is considered as low as possible."""


def is_large(rows: int) -> bool:
    """Whether a table of this size has several frequency sets, unless its combinations were scanned."""
    return rows > SMALL_TABLE_ROWS


@dataclass(frozen=True)
class CountSource:
    """The tables that frequency sets are counted from."""

    combinations: exp.Expr  # distinct values with ``counts``; the source itself if ``counts`` is empty
    counts: tuple[str, ...]  # the count columns
    sensitive: Mapping[Distribution, ValuePairs]
    attributes: tuple[CodedAttribute, ...]  # the quasi-identifiers
    rows: int  # the rows of the source
    sensitive_names: tuple[str, ...] = ()  # sensitive attributes that requirements refer to
    codes: RowCodes | None = None  # the codes of a large table
    movers: RemoteMovers | None = None  # persons in several combinations, of a source whose rows stay remote


@dataclass(frozen=True)
class FrequencySet:
    """A frequency set: its levels, its table, the tables of sensitive values, and its number of rows."""

    levels: Levels
    table: exp.Table
    sensitive: Mapping[Distribution, SensitiveTable]
    size: int


class FrequencySets:
    """The frequency sets of a run, created on demand."""

    def __init__(
        self, runner: StatementRunner, work: Namer, ground: CountSource, space: ClassSpace, floor: Levels
    ) -> None:
        self.runner, self.work, self.ground, self.floor = runner, work, ground, floor
        self.space = space
        self._with_movers: dict[Levels, tuple[ClassSpace, list[exp.Table]]] = {}
        self._created: list[FrequencySet] = []
        self._numbers = count()  # interrupted statements use numbers, too
        self._once: set[Levels] = set()
        # At the lowest levels, the set of a large table would be too large. (Scanned combinations exist anyway.)
        needs_estimate = is_large(ground.rows) and not ground.counts
        self._estimate = CardinalityEstimate(runner, ground.attributes, ground.rows) if needs_estimate else None

    def class_space(self, levels: Levels) -> ClassSpace:
        """The class space of a generalization: from the smallest set that serves it, or from a new one."""
        space = self.class_space_without_movers(levels)
        if self.ground.movers is None:
            return space
        if levels not in self._with_movers:
            for oldest in list(self._with_movers)[: -(KEPT_WITH_MOVERS - 1)]:
                self._drop_movers(oldest)
            self._with_movers[levels] = self._count_movers(space, levels, self.ground.movers)
        return replace(self._with_movers[levels][0], requirements=self.space.requirements)

    def suppressed_class_space(self, levels: Levels, suppressed: exp.Table) -> ClassSpace:
        """The class space of the suppressed rows of a generalization, which form one class when they are masked."""
        space = self.class_space_without_movers(levels)
        part = replace(
            space,
            frequency=_select_suppressed(space, space.frequency, suppressed, levels),
            sensitive={
                distribution: replace(counts, table=_select_suppressed(space, counts.table, suppressed, levels))
                for distribution, counts in space.sensitive.items()
            },
            requirements=space.requirements.without_population,
            # Masked rows show no values, so unknown values do not matter.
            unknown=False,
            population=False,
        )
        if self.ground.movers is None:
            return part
        within = None
        if space.below_top(levels):
            within = self.ground.movers.of_classes(suppressed, class_columns(space, levels))
        return self._count_movers(part, space.heights, self.ground.movers, within)[0]

    def class_space_without_movers(self, levels: Levels) -> ClassSpace:
        """The class space of a generalization, without the movers that are counted remotely."""
        serving = self._serving(levels) or self._count_at(self._lowest(levels))
        return replace(self.space, frequency=serving.table, sensitive=serving.sensitive)

    def _count_movers(
        self, space: ClassSpace, levels: Levels, movers: RemoteMovers, within: exp.Expr | None = None
    ) -> tuple[ClassSpace, list[exp.Table]]:
        """Add remotely counted movers to the space of a generalization; also return the tables that contain them."""
        keys, counts = space.keys(levels), [ROW_COUNT, PERSONS]
        if space.population:
            counts += [POPULATION, *([POPULATION_MOVER] if space.population_moving else [])]
        tables = [movers.distinct(keys, within=within)]
        frequency = add_movers(space.frequency, keys, counts, tables[0])
        sensitive = {}
        for distribution, settled in space.sensitive.items():
            pairs = self.ground.sensitive[distribution]
            index = self.ground.sensitive_names.index(distribution.attribute)
            codes = range(len(movers.values)) if pairs.inner else [index]
            tables.append(movers.distinct([*keys, *(sensitive_column(j) for j in codes)], ROW_COUNT, within))
            table = add_movers_to_distribution(settled.table, keys, pairs, index, movers.values, tables[-1])
            sensitive[distribution] = replace(settled, table=table)
        return replace(space, frequency=frequency, sensitive=sensitive), tables

    def _drop_movers(self, levels: Levels) -> None:
        self.runner.drop(*self._with_movers.pop(levels)[1])

    def class_size_space(self, levels: Levels) -> ClassSpace:
        """The class space for the class sizes of a generalization: a query, instead of a set that would serve only
        once."""
        codes, requirements = self.ground.codes, self.space.requirements
        if codes is None or self.ground.sensitive or requirements.shields or self._estimate is None or self.runner.dry:
            return self.class_space(levels)
        is_coarse = self._estimate.max_classes(levels) < COARSE_CLASSES
        if is_coarse or levels in self._once or self._serving(levels) is not None or self._lowest(levels) != levels:
            return self.class_space(levels)
        self._once.add(levels)
        return replace(self.space, frequency=subquery(codes.class_sizes(levels), "f"), are_classes=True)

    def halving_attribute(self, levels: Levels) -> int | None:
        """An attribute whose codes split the classes of `class_size_space` into two parts, if there is one."""
        codes, estimate = self.ground.codes, self._estimate
        if codes is None or estimate is None:
            return None
        return max(codes.splittable_attributes(levels), key=lambda i: estimate.count_groups(i, levels[i]), default=None)

    @contextmanager
    def half_class_space(self, levels: Levels, attribute: int, parity: int) -> Iterator[ClassSpace]:
        """The class space for the sizes of the classes with even (``parity`` 0) or odd (1) codes of an attribute."""
        codes = self.ground.codes
        assert codes is not None
        # A table instead of a subquery: DuckDB then knows that it has fewer codes than there are rows, and hashes the
        # codes.
        target = self.work(f"half_{next(self._numbers)}")
        table = self.runner.create_table(target, codes.half(attribute, levels[attribute], parity))
        try:
            sizes = codes.class_sizes(levels, Half(attribute, table))
            yield replace(self.space, frequency=subquery(sizes, "f"), are_classes=True)
        finally:
            self.runner.drop(table)

    def shared_class_space(self, several: Sequence[Levels]) -> tuple[ClassSpace, int] | None:
        """A class space that serves several generalizations, and how many of them one statement may compute.

        None for a large table, where each generalization may need another set.
        """
        if self._estimate is not None or self.runner.dry or self.ground.movers is not None:
            return None
        lowest = tuple(map(min, zip(*several, strict=True)))
        space, serving = self.class_space(lowest), self._serving(lowest)
        return None if serving is None else (space, SHARED_ROWS // max(serving.size, 1))

    def _serving(self, levels: Levels) -> FrequencySet | None:
        serving = (frequency_set for frequency_set in self._created if _is_below(frequency_set.levels, levels))
        return min(serving, key=lambda frequency_set: frequency_set.size, default=None)

    def with_requirements(self, requirements: Requirements) -> FrequencySets:
        """The frequency sets with other requirements, which must not refer to sensitive values."""
        frequency_sets = copy(self)
        frequency_sets.space = replace(self.space, requirements=requirements)
        return frequency_sets

    def _lowest(self, levels: Levels) -> Levels:
        """The levels of a new set that serves a generalization: as low as possible while the set stays small."""
        floor = self.floor if _is_below(self.floor, levels) else (0,) * len(levels)
        if self._estimate is None:
            return floor
        max_rows, failed = self._max_rows(self._estimate.max_classes(levels)), 0
        for i, level in self._estimate.list_lowerings(levels, floor):
            lower = (*levels[:i], min(level, levels[i]), *levels[i + 1 :])
            if self._estimate.estimate_classes(lower) <= max_rows:
                levels = lower
            elif (failed := failed + 1) == FAILED_LOWERINGS:
                break
        return levels

    def _max_rows(self, most: int) -> int:
        """The number of rows that a new set may have: later sets serve fewer generalizations, so they must be
        smaller."""
        if most < COARSE_CLASSES:
            return COARSE_CLASSES
        is_large_set = [set_.size > COARSE_CLASSES for set_ in self._created if set_.levels not in self._once]
        later = len(self._once) + sum(is_large_set)
        return min(self.ground.rows // FIRST_SET_SHARE, LARGEST_FIRST_SET) >> later

    def _count_at(self, levels: Levels) -> FrequencySet:
        """Create a set at some levels, with one pass over the combinations or codes."""
        ground, number, codes = self.ground, next(self._numbers), self.ground.codes
        if codes is not None:
            query = codes.frequency(levels)
        else:
            query = statements.count_frequency_set(ground.combinations, ground.attributes, levels, ground.counts)
        table = self.runner.create_table(self.work(f"frequency_{number}"), query)
        sensitive = {}
        for i, (distribution, pairs) in enumerate(ground.sensitive.items()):
            target = self.work(f"distribution_{number}_{i}")
            if codes is not None:
                query = codes.distribution(pairs, levels)
            else:
                query = count_distribution(pairs, ground.attributes, levels)
            counts = self.runner.create_table(target, query)
            sensitive[distribution] = SensitiveTable(counts, pairs.inner, pairs.domain)
        size = self.runner.count(table)
        frequency_set = FrequencySet(levels, table, sensitive, size)
        self._created.append(frequency_set)
        return frequency_set


def _is_below(lower: Levels, levels: Levels) -> bool:
    """Whether levels are at or below others in every attribute."""
    return all(low <= level for low, level in zip(lower, levels, strict=True))


def _select_suppressed(space: ClassSpace, relation: exp.Expr, suppressed: exp.Table, levels: Levels) -> exp.Expr:
    """The rows of a frequency set or distribution that are in suppressed classes."""
    if not space.below_top(levels):
        return relation
    keys = [col(code, "f").eq(col(class_code, "x")) for code, class_code in class_columns(space, levels)]
    part = select([all_columns("f")], aliased(relation, "f"))
    return subquery(part.join(aliased(suppressed, "x"), on=all_of(keys), join_type="semi", copy=False), "f")


def class_columns(space: ClassSpace, levels: Levels) -> list[tuple[str, str]]:
    """The columns that identify a class, each with the column of the same code in a table of classes."""
    pairs = [(code_column(i, level), f"code_{i}") for i, level in space.below_top(levels)]
    return [*pairs, (KNOWN, KNOWN)] if space.unknown else pairs
