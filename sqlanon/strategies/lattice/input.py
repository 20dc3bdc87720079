"""The input of a search: the source, its hierarchies and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency.counting import Frequencies
from sqlanon.frequency.scan import ScanResult
from sqlanon.frequency.sets import FrequencySets
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.build import Hierarchies
from sqlanon.measures import Marginals
from sqlanon.policy import Policy
from sqlanon.requirements import Requirements
from sqlanon.sources import Source
from sqlanon.sources.columns import Columns
from sqlanon.strategies.lattice import Lattice
from sqlanon.support.coding import CodedAttribute, Column
from sqlanon.support.expressions import Namer


@dataclass(frozen=True)
class SearchedPopulation:
    """The population's columns of the quasi-identifiers and of its persons."""

    columns: tuple[str, ...]
    person: str | None
    members: exp.Table | None
    """The persons in each combination, if persons are distinguished."""


@dataclass(frozen=True)
class EarlierReleases:
    """The earlier releases that a release is based on, by the ids of their runs.

    With them, the search has its own policy: its levels are at least as coarse as theirs, and its last quasi-identifier
    marks the rows that they have.
    """

    run_ids: tuple[str, ...] = ()
    changed_run_ids: frozenset[str] = frozenset()
    """Releases with rows that the source no longer has, or has changed."""
    run_ids_by_person: frozenset[str] = frozenset()
    """Releases with other records of the same people: all rows of these people are marked."""
    search_policy: Policy | None = None


NO_EARLIER = EarlierReleases()


@dataclass(frozen=True)
class SearchInput:
    """The source of a search, its hierarchies and its counts."""

    policy: Policy
    source: Source
    columns: Columns
    hierarchies: tuple[Hierarchy, ...]
    sensitive_hierarchies: Mapping[str, Hierarchy]
    """By sensitive attribute, where a requirement needs one."""
    frequency_sets: FrequencySets
    marginals: Marginals
    """Counts of single attributes."""
    lattice: Lattice
    """The generalizations within the policy's levels, without forbidden labels."""
    limit: SuppressionLimit
    members: exp.Table | None = None
    """The persons in each combination, if persons are counted."""
    population: SearchedPopulation | None = None
    earlier: EarlierReleases = NO_EARLIER

    @property
    def search_policy(self) -> Policy:
        """The policy of the search."""
        return self.earlier.search_policy or self.policy

    @property
    def work(self) -> Namer:
        """Names the tables of the run."""
        return self.frequency_sets.work

    @property
    def attributes(self) -> tuple[CodedAttribute, ...]:
        """The quasi-identifiers, in the policy's order."""
        return self.frequency_sets.ground.attributes

    @property
    def requirements(self) -> Requirements:
        """The requirements of the policy."""
        return self.frequency_sets.space.requirements

    @property
    def released_columns(self) -> tuple[Column, ...]:
        """The columns of the release."""
        return self.columns.released

    @property
    def weights(self) -> list[float]:
        """The weights of the searched quasi-identifiers. Marks of earlier releases have weight 0."""
        weights = [self.policy.attributes[name].weight for name in self.policy.generalized_attributes]
        return weights + [0.0] * (len(self.attributes) - len(weights))

    @property
    def policy_attributes(self) -> tuple[CodedAttribute, ...]:
        """The policy's quasi-identifiers, without the mark of earlier releases."""
        return self.attributes[: len(self.policy.generalized_attributes)]

    @property
    def policy_hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of `policy_attributes`."""
        return self.hierarchies[: len(self.policy.generalized_attributes)]

    @property
    def heights(self) -> dict[str, int]:
        """The height of each hierarchy, by attribute of the policy."""
        return {hierarchy.attribute: hierarchy.height for hierarchy in self.policy_hierarchies}

    @property
    def types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.source.columns[column] for column in self.columns.generalized]


def build_search_input(
    policy: Policy, scanned: ScanResult, hierarchies: Hierarchies, frequencies: Frequencies
) -> SearchInput:
    """Combine the results of the stages before the search."""
    population = scanned.population
    return SearchInput(
        policy=policy,
        source=scanned.source,
        columns=scanned.columns,
        hierarchies=hierarchies.quasi,
        sensitive_hierarchies=hierarchies.sensitive,
        frequency_sets=frequencies.sets,
        marginals=frequencies.marginals,
        lattice=Lattice(policy.generalized_attributes, *frequencies.permitted),
        limit=frequencies.limit,
        members=scanned.source_scan.members,
        population=None
        if population is None
        else SearchedPopulation(population.columns, population.person, population.scan.members),
    )
