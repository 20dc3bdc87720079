"""The frequency sets of a run: each at some levels, made where a generalization is asked about that none is below.

A small table has one, at the lowest levels. Of a large one that would be as large as the table itself. So there a set
is as low as its estimated number of classes allows, and serves the generalizations that are checked next. (Sets rolled
up from sets were tried: what a search asks about is so near the border of what satisfies that they seldom served
twice.)
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
from sqlanon.frequency import distribution as ds
from sqlanon.frequency import statements as fq
from sqlanon.frequency.codes import Half, RowCodes
from sqlanon.frequency.distribution import ValuePairs
from sqlanon.frequency.remote_persons import RemoteMovers, add_movers, add_movers_to_distribution
from sqlanon.frequency.statements import PERSONS, POPULATION, POPULATION_MOVER
from sqlanon.requirements import Distribution, Requirements
from sqlanon.sources.source import SMALL_TABLE_ROWS
from sqlanon.support.coding import KNOWN, ROWS, Coded, Levels, code_name, group_counts, group_sizes, levels_below_top
from sqlanon.support.expressions import Namer, aliased, all_columns, all_of, col, select, subquery

SAMPLE_SIZE = 256
"""So many rows are drawn: the guess is a mean over them."""

MANY_GROUPS = 100_000
"""Of more groups than this, each is taken for equally large."""


@dataclass(frozen=True)
class SensitiveTable:
    """Where a distribution's counts by combination and value are."""

    table: exp.Expr  # made by `frequency.distribution.distribution`
    inner: int = 0  # how many other sensitive attributes count as quasi-identifiers
    domain: exp.Table | None = None  # made by `frequency.distribution.domain`; None for `nodes` and joint ones


@dataclass(frozen=True)
class ClassSpace:
    """What the equivalence classes of any generalization are made from."""

    frequency: exp.Expr  # the frequency set, which has the codes at the levels that are asked about
    heights: Levels  # of each quasi-identifier's hierarchy
    requirements: Requirements
    unknown: bool = False  # rows with values missing from a hierarchy are in the frequency set: they are never kept
    sensitive: Mapping[Distribution, SensitiveTable] = field(default_factory=dict)
    persons: bool = False  # persons are counted
    moving: bool = False  # some of them are in several combinations
    population: bool = False  # a population is in the frequency set
    population_moving: bool = False  # some of its persons are in several combinations
    are_classes: bool = False  # the frequency set has a row for each class of one generalization, and no codes
    # some persons are in several combinations, and are counted where the rows of the source are, for one generalization
    # at a time: the frequency set serves no other
    moving_elsewhere: bool = False

    def below_top(self, levels: Levels) -> list[tuple[int, int]]:
        """Attribute and level where a generalization leaves more than one value."""
        return levels_below_top(levels, self.heights)

    def keys(self, levels: Levels) -> list[str]:
        """The columns of the frequency set that tell the classes apart."""
        codes = [code_name(i, level) for i, level in self.below_top(levels)]
        return [*codes, KNOWN] if self.unknown else codes

    @property
    def additive(self) -> bool:
        """Whether the counts of two classes that are merged add up."""
        return not self.moving and not self.population_moving and not self.moving_elsewhere


class CardinalityEstimate:
    """What is known of the sizes of the groups of values of each attribute, level by level."""

    def __init__(self, steps: StatementRunner, attributes: Sequence[Coded], rows: int) -> None:
        self._rows = rows
        self._counts: list[list[int]] = []
        self._shares: list[list[list[float]]] = []
        for i, one in enumerate(attributes):
            counts = [*steps.ask(group_counts(one), [(1,) * one.height])[0]] if one.height else []
            self._counts.append([*counts, 1])
            self._shares.append([self._drawn(steps, one, level, count, i) for level, count in enumerate(counts)])

    @staticmethod
    def _drawn(steps: StatementRunner, attribute: Coded, level: int, count: int, seed: int) -> list[float]:
        if count > MANY_GROUPS:
            return [1 / count] * SAMPLE_SIZE
        return draw_shares([size for (size,) in steps.ask(group_sizes(attribute, level), [(1,)])], seed)

    def count(self, attribute: int, level: int) -> int:
        """How many groups of values an attribute has at a level."""
        return self._counts[attribute][level]

    def most(self, levels: Levels) -> int:
        """An upper bound of the number of classes."""
        return math.prod(counts[level] for counts, level in zip(self._counts, levels, strict=True))

    def classes(self, levels: Levels) -> float:
        """About so many classes there are."""
        below = zip(self._shares, levels, strict=True)
        return expected_classes([shares[level] for shares, level in below if level < len(shares)], self._rows)

    def lowerings(self, levels: Levels, floor: Levels) -> Iterator[tuple[int, int]]:
        """Attributes with levels to lower them to: first what multiplies the classes least."""
        steps = [
            (self._counts[i][lower] / self._counts[i][lower + 1], -lower, i)
            for i, level in enumerate(levels)
            for lower in range(floor[i], level)
        ]
        return ((i, -lower) for _, lower, i in sorted(steps))


def draw_shares(sizes: Sequence[int], seed: int) -> list[float]:
    """The shares of the groups of values that rows drawn at random are in.

    >>> draw_shares([5, 5], seed=1) == [0.5] * SAMPLE_SIZE
    True
    """
    total = sum(sizes)
    return [size / total for size in random.Random(seed).choices(sizes, weights=sizes, k=SAMPLE_SIZE)]


def expected_classes(shares: Sequence[Sequence[float]], rows: int) -> float:
    """The expected number of classes, if attributes had nothing to do with one another. (If they do, there are fewer.)

    A cell of share p has a row with probability 1 − (1 − p)^rows. The sum over all cells is the mean, over rows drawn
    at random, of that by p.

    >>> round(expected_classes([[0.5] * SAMPLE_SIZE, [0.25] * SAMPLE_SIZE], 1000))
    8
    """
    if not shares:
        return 1.0
    products = [math.prod(row) for row in zip(*shares, strict=True)]
    return sum(-math.expm1(rows * math.log1p(-p)) / p if p < 1 else 1.0 for p in products) / SAMPLE_SIZE


COARSE_CLASSES = 100_000
"""Where so few classes are possible, a set of so many rows costs hardly more than the scan does anyway."""

FIRST_SET_SHARE, LARGEST_FIRST_SET = 2, 10_000_000
"""The first set of a large table has at most one row for so many of the table's, and at most so many rows; each later
one at most half of the one before."""

SHARED_ROWS = 2_000_000
"""One statement makes the classes of several generalizations from at most so many rows in all."""

KEPT_WITH_MOVERS = 16
"""The sets of so many generalizations are kept where each serves one alone."""

FAILED_LOWERINGS = 3
"""A set is as low as it can be when so many ways to lower it have made it too large."""


def is_large(rows: int) -> bool:
    """Whether a table of so many rows has several frequency sets, unless its combinations were scanned."""
    return rows > SMALL_TABLE_ROWS


@dataclass(frozen=True)
class CountSource:
    """What frequency sets are counted from."""

    combinations: exp.Expr  # of values, with ``counts``; or the source itself, where that is empty
    counts: tuple[str, ...]  # the columns that count
    sensitive: Mapping[Distribution, ValuePairs]
    attributes: tuple[Coded, ...]  # the quasi-identifiers
    rows: int  # of the source
    sensitive_names: tuple[str, ...] = ()  # the sensitive attributes that requirements look at
    codes: RowCodes | None = None  # of a large table: it is counted from them
    movers: RemoteMovers | None = None  # persons in several combinations, of a source whose rows stay elsewhere


@dataclass(frozen=True)
class FrequencySet:
    """A frequency set: its levels, its table, the counts of sensitive values, and its rows."""

    levels: Levels
    table: exp.Table
    sensitive: Mapping[Distribution, SensitiveTable]
    size: int


class FrequencySets:
    """All that were made."""

    def __init__(
        self,
        steps: StatementRunner,
        work: Namer,
        ground: CountSource,
        space: ClassSpace,
        floor: Levels,
    ) -> None:
        self.steps, self.work, self.ground, self.floor = steps, work, ground, floor
        self.space = space
        self._with_movers: dict[Levels, tuple[ClassSpace, list[exp.Table]]] = {}
        self._made: list[FrequencySet] = []
        self._numbers = count()  # also of what was interrupted
        self._once: set[Levels] = set()
        # A set at the lowest levels of a large table would be too large. (What was scanned is there anyway.)
        guesses = is_large(ground.rows) and not ground.counts
        self._guess = CardinalityEstimate(steps, ground.attributes, ground.rows) if guesses else None

    def at(self, levels: Levels) -> ClassSpace:
        """What the classes of a generalization are made from: the smallest set that serves; one is made if need be."""
        space = self.settled_at(levels)
        if self.ground.movers is None:
            return space
        if levels not in self._with_movers:
            for oldest in list(self._with_movers)[: -(KEPT_WITH_MOVERS - 1)]:
                self._drop_movers(oldest)
            self._with_movers[levels] = self._count_movers(space, levels, self.ground.movers)
        return replace(self._with_movers[levels][0], requirements=self.space.requirements)

    def of_suppressed(self, levels: Levels, suppressed: exp.Table) -> ClassSpace:
        """What the one class is made from that all suppressed rows of a generalization are together, masked."""
        space = self.settled_at(levels)
        part = replace(
            space,
            frequency=_of_suppressed(space, space.frequency, suppressed, levels),
            sensitive={
                distribution: replace(one, table=_of_suppressed(space, one.table, suppressed, levels))
                for distribution, one in space.sensitive.items()
            },
            requirements=space.requirements.without_population,
            # Masked, what was unknown reads like all else.
            unknown=False,
            population=False,
        )
        if self.ground.movers is None:
            return part
        within = None
        if space.below_top(levels):
            within = self.ground.movers.of_classes(suppressed, class_columns(space, levels))
        return self._count_movers(part, space.heights, self.ground.movers, within)[0]

    def settled_at(self, levels: Levels) -> ClassSpace:
        """The same without persons in several combinations, where these are counted where the rows are."""
        found = self._serving(levels)
        if found is None:
            found = self._count_at(self._lowest(levels))
        return replace(self.space, frequency=found.table, sensitive=found.sensitive)

    def _count_movers(
        self, space: ClassSpace, levels: Levels, movers: RemoteMovers, within: exp.Expr | None = None
    ) -> tuple[ClassSpace, list[exp.Table]]:
        """The space of one generalization, with the movers that are counted for it; and the tables that have these."""
        keys, counts = space.keys(levels), [ROWS, PERSONS]
        if space.population:
            counts += [POPULATION, *([POPULATION_MOVER] if space.population_moving else [])]
        made = [movers.distinct(keys, within=within)]
        frequency = add_movers(space.frequency, keys, counts, made[0])
        sensitive = {}
        for distribution, one in space.sensitive.items():
            pairs = self.ground.sensitive[distribution]
            index = self.ground.sensitive_names.index(distribution.attribute)
            codes = range(len(movers.values)) if pairs.inner else [index]
            made.append(movers.distinct([*keys, *(f"s{j}" for j in codes)], ROWS, within))
            table = add_movers_to_distribution(one.table, keys, pairs, index, movers.values, made[-1])
            sensitive[distribution] = replace(one, table=table)
        return replace(space, frequency=frequency, sensitive=sensitive), made

    def _drop_movers(self, levels: Levels) -> None:
        self.steps.drop(*self._with_movers.pop(levels)[1])

    def sizes_at(self, levels: Levels) -> ClassSpace:
        """What the sizes of the classes of a generalization are made from. Where a set would serve no other one, it is
        not made: its query serves once."""
        codes, requirements = self.ground.codes, self.space.requirements
        if codes is None or self.ground.sensitive or requirements.shields or self._guess is None or self.steps.dry:
            return self.at(levels)
        is_coarse = self._guess.most(levels) < COARSE_CLASSES
        if is_coarse or levels in self._once or self._serving(levels) is not None or self._lowest(levels) != levels:
            return self.at(levels)
        self._once.add(levels)
        return replace(self.space, frequency=subquery(codes.class_sizes(levels), "f"), are_classes=True)

    def halving_attribute(self, levels: Levels) -> int | None:
        """An attribute whose values split the classes of `sizes_at` into two parts, if there is one."""
        codes, guess = self.ground.codes, self._guess
        if codes is None or guess is None:
            return None
        return max(codes.with_own_codes(levels), key=lambda i: guess.count(i, levels[i]), default=None)

    @contextmanager
    def half_at(self, levels: Levels, attribute: int, rest: int) -> Iterator[ClassSpace]:
        """What the sizes of the classes with an even code of an attribute, or an odd one, are made from."""
        codes = self.ground.codes
        assert codes is not None
        # No subquery: by the table DuckDB knows that there are fewer codes than rows, and looks codes up.
        target = self.work(f"half_{next(self._numbers)}")
        table = self.steps.make(target, codes.half(attribute, levels[attribute], rest))
        try:
            sizes = codes.class_sizes(levels, Half(attribute, table))
            yield replace(self.space, frequency=subquery(sizes, "f"), are_classes=True)
        finally:
            self.steps.drop(table)

    def together(self, several: Sequence[Levels]) -> tuple[ClassSpace, int] | None:
        """What the classes of several generalizations are made from, and of how many of them one statement may make
        them, as far as memory goes; None of a large table, where each may need another set."""
        if self._guess is not None or self.steps.dry or self.ground.movers is not None:
            return None
        lowest = tuple(map(min, zip(*several, strict=True)))
        space, found = self.at(lowest), self._serving(lowest)
        return None if found is None else (space, SHARED_ROWS // max(found.size, 1))

    def _serving(self, levels: Levels) -> FrequencySet | None:
        serving = (one for one in self._made if _below(one.levels, levels))
        return min(serving, key=lambda one: one.size, default=None)

    def with_requirements(self, requirements: Requirements) -> FrequencySets:
        """The same frequency sets under other requirements, none of which looks at a sensitive value."""
        other = copy(self)
        other.space = replace(self.space, requirements=requirements)
        return other

    def _lowest(self, levels: Levels) -> Levels:
        """The levels of a new set that serves: as low as may be asked about, as long as it stays small."""
        floor = self.floor if _below(self.floor, levels) else (0,) * len(levels)
        if self._guess is None:
            return floor
        small, refused = self._small(self._guess.most(levels)), 0
        for i, level in self._guess.lowerings(levels, floor):
            lower = (*levels[:i], min(level, levels[i]), *levels[i + 1 :])
            if self._guess.classes(lower) <= small:
                levels = lower
            elif (refused := refused + 1) == FAILED_LOWERINGS:
                break
        return levels

    def _small(self, most: int) -> int:
        """So many rows a set may have, of so many that are possible: the later it is made, the fewer it will serve."""
        if most < COARSE_CLASSES:
            return COARSE_CLASSES
        later = len(self._once) + sum(one.size > COARSE_CLASSES for one in self._made if one.levels not in self._once)
        return min(self.ground.rows // FIRST_SET_SHARE, LARGEST_FIRST_SET) >> later

    def _count_at(self, levels: Levels) -> FrequencySet:
        """A set from one pass over what is counted."""
        ground, number, codes = self.ground, next(self._numbers), self.ground.codes
        if codes is not None:
            query = codes.frequency(levels)
        else:
            query = fq.count_frequency_set(ground.combinations, ground.attributes, levels, ground.counts)
        table = self.steps.make(self.work(f"frequency_{number}"), query)
        sensitive = {}
        for i, (one, pairs) in enumerate(ground.sensitive.items()):
            target = self.work(f"distribution_{number}_{i}")
            if codes is not None:
                query = codes.distribution(pairs, levels)
            else:
                query = ds.count_distribution(pairs, ground.attributes, levels)
            counts = self.steps.make(target, query)
            sensitive[one] = SensitiveTable(counts, pairs.inner, pairs.domain)
        size = self.steps.count(table)
        made = FrequencySet(levels, table, sensitive, size)
        self._made.append(made)
        return made


def _below(lower: Levels, levels: Levels) -> bool:
    """Whether levels are at or below others, in every attribute."""
    return all(own <= other for own, other in zip(lower, levels, strict=True))


def _of_suppressed(space: ClassSpace, relation: exp.Expr, suppressed: exp.Table, levels: Levels) -> exp.Expr:
    """The part of the frequency set, or of a distribution, that is in suppressed classes."""
    if not space.below_top(levels):
        return relation
    keys = [col(own, "f").eq(col(other, "x")) for own, other in class_columns(space, levels)]
    part = select([all_columns("f")], aliased(relation, "f"))
    return subquery(part.join(aliased(suppressed, "x"), on=all_of(keys), join_type="semi", copy=False), "f")


def class_columns(space: ClassSpace, levels: Levels) -> list[tuple[str, str]]:
    """The columns that tell classes apart, each with that of the same code in a table of classes."""
    pairs = [(code_name(i, level), f"code_{i}") for i, level in space.below_top(levels)]
    return [*pairs, (KNOWN, KNOWN)] if space.unknown else pairs
