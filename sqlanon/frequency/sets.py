"""The frequency sets of a run: each at some levels, made where a generalization is asked about that none is below.

A small table has one, at the lowest levels. Of a large one that would be as large as the table itself. So there a set
is as low as it probably stays small: it serves what is asked about next. (Sets rolled up from sets were tried: what a
search asks about is so near the border of what satisfies that they seldom served twice.)
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.coding import Coded, Levels
from sqlanon.expressions import Namer
from sqlanon.frequency import distribution as ds
from sqlanon.frequency import statements as fq
from sqlanon.frequency.distribution import Pairs
from sqlanon.frequency.guess import Guess
from sqlanon.requirements import Distribution, Requirements
from sqlanon.search.classes import ClassSpace, SensitiveTable
from sqlanon.sources.bound import SMALL
from sqlanon.statement_runner import Steps

COARSE = 100_000
"""Where so few classes are possible, a set of so many rows costs hardly more than the scan does anyway."""

SHARE, LARGEST = 2, 10_000_000
"""The first set of a large table has at most one row for so many of the table's, and at most so many rows; each later
one at most half of the one before."""

REFUSED = 3
"""A set is as low as it can be when so many ways to lower it have made it too large."""


@dataclass(frozen=True)
class Ground:
    """What frequency sets are counted from.

    Attributes
    ----------
    combinations:
        The combinations of values with ``counts``; or the source itself, where that is empty.
    counts:
        The columns that count.
    sensitive:
        What the distributions that requirements look at are counted from.
    attributes:
        The quasi-identifiers.
    rows:
        Of the source.
    """

    combinations: exp.Expr
    counts: tuple[str, ...]
    sensitive: Mapping[Distribution, Pairs]
    attributes: tuple[Coded, ...]
    rows: int


@dataclass(frozen=True)
class FrequencySet:
    """A frequency set: its levels, its table, the counts of sensitive values, and its rows."""

    levels: Levels
    table: exp.Table
    sensitive: Mapping[Distribution, SensitiveTable]
    size: int


class FrequencySets:
    """All that were made.

    Parameters
    ----------
    steps, work:
        How, and how tables are named.
    ground:
        What they are counted from.
    space:
        What is to be known of classes, beside the tables.
    floor:
        The lowest levels that a search asks about.
    """

    def __init__(self, steps: Steps, work: Namer, ground: Ground, space: ClassSpace, floor: Levels) -> None:
        self.steps, self.work, self.ground, self.floor = steps, work, ground, floor
        self.space = space
        self._made: list[FrequencySet] = []
        # A set at the lowest levels of a large table would be too large. (What was scanned is there anyway.)
        is_large = ground.rows > SMALL and not ground.counts
        self._guess = Guess(steps, ground.attributes, ground.rows) if is_large else None

    def at(self, levels: Levels) -> ClassSpace:
        """What the classes of a generalization are made from: the smallest set that serves; one is made if need be."""
        serving = (one for one in self._made if _below(one.levels, levels))
        found = min(serving, key=lambda one: one.size, default=None)
        if found is None:
            found = self._count_at(self._lowest(levels))
        return replace(self.space, frequency=found.table, sensitive=found.sensitive)

    def with_requirements(self, requirements: Requirements) -> FrequencySets:
        """The same sets, for classes of which something else is asked that looks at no sensitive value."""
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
            elif (refused := refused + 1) == REFUSED:
                break
        return levels

    def _small(self, most: int) -> int:
        """So many rows a set may have, of so many that are possible: the later it is made, the fewer it will serve."""
        if most < COARSE:
            return COARSE
        return min(self.ground.rows // SHARE, LARGEST) >> sum(one.size > COARSE for one in self._made)

    def _count_at(self, levels: Levels) -> FrequencySet:
        """A set from one pass over what is counted."""
        ground, number = self.ground, len(self._made)
        query = fq.frequency(ground.combinations, ground.attributes, levels, ground.counts)
        table = self.steps.make(self.work(f"frequency_{number}"), query)
        sensitive = {}
        for i, (one, pairs) in enumerate(ground.sensitive.items()):
            target = self.work(f"distribution_{number}_{i}")
            counts = self.steps.make(target, ds.distribution(pairs, ground.attributes, levels))
            sensitive[one] = SensitiveTable(counts, pairs.inner, pairs.domain)
        size = self.steps.count(table)
        made = FrequencySet(levels, table, sensitive, size)
        self._made.append(made)
        return made


def _below(lower: Levels, levels: Levels) -> bool:
    """Whether levels are at or below others, in every attribute."""
    return all(own <= other for own, other in zip(lower, levels, strict=True))
