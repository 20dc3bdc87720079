"""What the search gets: all that is known of a source before."""

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
from sqlanon.support.coding import Coded, Column
from sqlanon.support.expressions import Namer


@dataclass(frozen=True)
class SearchedPopulation:
    """The population's columns of the quasi-identifiers, and of its persons; and which persons are in which
    combinations, where they are told apart."""

    columns: tuple[str, ...]
    person: str | None
    members: exp.Table | None


@dataclass(frozen=True)
class EarlierReleases:
    """The earlier releases that a release is based on, by their runs; and those of them some of whose rows are not in
    the source any more, or are others now.

    With them, the search has a policy of its own: its levels are no finer than theirs, and the mark of the rows that
    they have is a quasi-identifier, the last one. Those ``by_person`` have other records of the same people: the rows
    of these people are marked.
    """

    run_ids: tuple[str, ...] = ()
    changed_run_ids: frozenset[str] = frozenset()
    run_ids_by_person: frozenset[str] = frozenset()
    search_policy: Policy | None = None


NO_EARLIER = EarlierReleases()


@dataclass(frozen=True)
class SearchInput:
    """All that is known before the search."""

    policy: Policy
    source: Source
    columns: Columns
    hierarchies: tuple[Hierarchy, ...]
    sensitive_hierarchies: Mapping[str, Hierarchy]
    """Of the sensitive attributes that need theirs."""
    frequency_sets: FrequencySets
    """What classes are made from: frequency sets."""
    marginals: Marginals
    """The attributes' own counts."""
    lattice: Lattice
    """The generalizations within the attributes' level limits, without forbidden labels."""
    limit: SuppressionLimit
    """How much may be suppressed."""
    members: exp.Table | None = None
    """Which persons are in which combinations, where persons are counted."""
    population: SearchedPopulation | None = None
    earlier: EarlierReleases = NO_EARLIER

    @property
    def search_policy(self) -> Policy:
        """The policy of the search."""
        return self.earlier.search_policy or self.policy

    @property
    def work(self) -> Namer:
        """How tables of the run are named."""
        return self.frequency_sets.work

    @property
    def attributes(self) -> tuple[Coded, ...]:
        """The quasi-identifiers, in the policy's order."""
        return self.frequency_sets.ground.attributes

    @property
    def requirements(self) -> Requirements:
        """The conditions on classes, and on all of them together."""
        return self.frequency_sets.space.requirements

    @property
    def released_columns(self) -> tuple[Column, ...]:
        """The columns of the release."""
        return self.columns.released

    @property
    def weights(self) -> list[float]:
        """Of the quasi-identifiers that the search has; the marks of earlier releases are no value that is lost."""
        own = [self.policy.attributes[name].weight for name in self.policy.generalized_attributes]
        return own + [0.0] * (len(self.attributes) - len(own))

    @property
    def policy_attributes(self) -> tuple[Coded, ...]:
        """Of the policy's quasi-identifiers: without the marks of earlier releases."""
        return self.attributes[: len(self.policy.generalized_attributes)]

    @property
    def policy_hierarchies(self) -> tuple[Hierarchy, ...]:
        """Of the policy's quasi-identifiers: without that of the marks of earlier releases."""
        return self.hierarchies[: len(self.policy.generalized_attributes)]

    @property
    def heights(self) -> dict[str, int]:
        """The heights of their hierarchies, by attribute."""
        return {one.attribute: one.height for one in self.policy_hierarchies}

    @property
    def types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.source.columns[column] for column in self.columns.generalized]


def build_search_input(
    policy: Policy, scanned: ScanResult, hierarchies: Hierarchies, counted: Frequencies
) -> SearchInput:
    """Put together what the stages before the search found."""
    theirs = scanned.population
    return SearchInput(
        policy=policy,
        source=scanned.source,
        columns=scanned.columns,
        hierarchies=hierarchies.quasi,
        sensitive_hierarchies=hierarchies.sensitive,
        frequency_sets=counted.sets,
        marginals=counted.marginals,
        lattice=Lattice(policy.generalized_attributes, *counted.permitted),
        limit=counted.limit,
        members=scanned.own.members,
        population=None if theirs is None else SearchedPopulation(theirs.columns, theirs.person, theirs.scan.members),
    )
