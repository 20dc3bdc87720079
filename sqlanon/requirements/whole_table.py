"""Requirements on the kept table as a whole. They suppress nothing: a generalization meets them or not.

Monotone where the kept rows stay the same, which is so without suppression: merged classes are fewer, and fewer of
them have a single row. Not with suppression: rows that are kept only further up may come in small classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlanon.errors import SourceError
from sqlanon.requirements.base import TOLERANCE, TableRequirement, plain
from sqlanon.requirements.estimators import Estimator, population_uniqueness


@dataclass(frozen=True)
class AverageRisk(TableRequirement):
    """Classes / rows (or persons) ≤ ``limit``: the mean over rows of 1 / the size of their class.

    Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013), chapter 16.
    """

    limit: float

    @property
    def name(self) -> str:
        """``average risk of at most 0.05``."""
        return f"average risk of at most {plain(self.limit)}"

    def holds(self, classes: int, count: int, singles: int) -> bool:
        """classes / count ≤ limit."""
        return not count or classes / count <= self.limit + TOLERANCE


@dataclass(frozen=True)
class SampleUniqueness(TableRequirement):
    """The share of rows (or persons) that are alone in their class is at most ``limit``."""

    limit: float

    @property
    def name(self) -> str:
        """``sample uniqueness of at most 0.01``."""
        return f"sample uniqueness of at most {plain(self.limit)}"

    def holds(self, classes: int, count: int, singles: int) -> bool:
        """singles / count ≤ limit."""
        return not count or singles / count <= self.limit + TOLERANCE


@dataclass(frozen=True)
class PopulationUniqueness:
    """The estimated share of rows that are unique in the population is at most ``limit``.

    Estimates need not fall when classes merge: nothing is known of one generalization from another.
    See `requirements.estimators` for the estimators and their sources.

    Attributes
    ----------
    population, sampling_fraction:
        One of them: the rows of the population, or the source's share of it.
    """

    limit: float
    estimator: Estimator
    population: float | None = None
    sampling_fraction: float | None = None

    @property
    def name(self) -> str:
        """``population uniqueness of at most 0.01 (dankar)``."""
        return f"population uniqueness of at most {plain(self.limit)} ({self.estimator})"

    def estimate(self, sizes: Mapping[int, int], counted: int) -> float:
        """The estimated share; NaN where none can be made."""
        population = self.size(counted)
        # A person who is in several classes counts in each: so many cannot be a sample.
        if sum(size * classes for size, classes in sizes.items()) > population:
            return math.nan
        return population_uniqueness(sizes, population, self.estimator)

    def refuse_too_small(self, counted: int) -> None:
        """Refuse a population that is smaller than the source."""
        if self.size(counted) < counted:
            raise SourceError(
                f"privacy.population_uniqueness.population: is {self.population}, and the source alone has {counted}: "
                "say how many the whole population has"
            )

    def size(self, counted: int) -> float:
        """The rows, or persons, of the population."""
        if self.population is not None:
            return self.population
        return counted / self.sampling_fraction if self.sampling_fraction else float(counted)

    def holds(self, sizes: Mapping[int, int], counted: int) -> bool:
        """Whether the estimate is within the limit; one that cannot be made is not."""
        return self.estimate(sizes, counted) <= self.limit + TOLERANCE
