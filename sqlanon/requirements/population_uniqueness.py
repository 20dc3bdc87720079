"""Population uniqueness: a limit on the estimated share of the population's rows that are unique."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from sqlanon.errors import SourceError
from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.base import Entry, KeptRows, Requirement, SeparateCondition
from sqlanon.requirements.estimators import Estimator, population_uniqueness
from sqlanon.requirements.k_anonymity import PERSONS
from sqlanon.support.checks import Check
from sqlanon.support.fields import Flaw, Section, Share, ShareAboveZero, policy_key


class PopulationUniqueness(Section, SeparateCondition, Requirement):
    """A limit on the estimated share of the population's rows that are unique in the population.

    Source: F. K. Dankar, K. El Emam, A. Neisa, T. Roffey, "Estimating the re-identification risk of clinical data
    sets" (BMC Medical Informatics and Decision Making 12:66, 2012); the estimators are in
    ``sqlanon.requirements.estimators``.

    Attributes
    ----------
    population, sampling_fraction:
        One of them: the rows of the population, or the source's share of it.

    >>> PopulationUniqueness(limit=0.01, sampling_fraction=0.01).estimator
    'dankar'
    """

    limit: Share = policy_key("the greatest estimate, 0 to 1", example=0.01, default=...)
    population: Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)] | None = policy_key(
        "the rows of the population", example=1_000_000
    )
    sampling_fraction: ShareAboveZero | None = policy_key(
        "in place of population: the source's share of it, more than 0 and at most 1", example=0.1
    )
    estimator: Estimator = policy_key("one of dankar, pitman, zayatz, snb", example="pitman", default="dankar")

    entry: ClassVar[Entry] = Entry(
        "population_uniqueness",
        "table",
        "a limit on the estimated share of rows that are unique in the population",
        scope="table",
        whole_source=True,
        is_estimate=True,
    )
    label: ClassVar[str] = "population uniqueness"

    def _flaws(self) -> Iterator[Flaw]:
        if self.population is None and self.sampling_fraction is None:
            yield (), "needs the size of the population: add population = ... (its rows) or sampling_fraction = ..."
        if self.population is not None and self.sampling_fraction is not None:
            yield ("sampling_fraction",), "give population = ... or sampling_fraction = ..., not both"

    @property
    def name(self) -> str:
        return f"{super().name} ({self.estimator})"

    @property
    def sampling(self) -> tuple[int | None, float | None]:
        return self.population, self.sampling_fraction

    @property
    def upper_bound(self) -> float:
        return self.limit

    def figure(self, kept_rows: KeptRows) -> float:
        return self.estimate(kept_rows.class_sizes(), kept_rows.source_count)

    def estimate(self, sizes: Mapping[int, int], source_count: int) -> float:
        """The estimated share; NaN without an estimate."""
        population = self._population_size(source_count)
        # A person in several classes counts in each; a sample cannot be larger than its population.
        if sum(size * classes for size, classes in sizes.items()) > population:
            return math.nan
        return population_uniqueness(sizes, population, self.estimator)

    def refuse(self, source_count: int) -> None:
        if self._population_size(source_count) < source_count:
            raise SourceError(
                f"privacy.population_uniqueness.population: is {self.population}, but the source alone has "
                f"{source_count}: give the size of the whole population"
            )

    def _population_size(self, source_count: int) -> float:
        if self.population is not None:
            return self.population
        return source_count / self.sampling_fraction if self.sampling_fraction else float(source_count)

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        value = self.estimate(audited.class_sizes(), _count_source(audited))
        yield audited.as_person_check(self.check(value, f"the estimate is {value:.6g}"))

    def sentence(self, unit: str) -> str:
        return f"At most {100 * self.limit:g} % are estimated to be unique in the population ({self.estimator})."


def _count_source(audited: AuditedRelease) -> int:
    if not audited.person or audited.private is None:
        return audited.rows
    if audited.person_counts is not None:
        return audited.person_counts.count_source_persons()
    source = replace(audited, relation=audited.private.source)
    return source.figures(PERSONS, audited.quasi_identifiers, audited.person)["persons"] or 0
