"""The privacy requirements: one module a family, from one definition for search, suppression and infeasibility."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlanon.policy import LDiversity, Policy, PrivacySection, TCloseness
from sqlanon.requirements.base import ClassRequirement, Distribution, TableRequirement
from sqlanon.requirements.disclosure import AlphaK, BetaLikeness, DeltaDisclosure
from sqlanon.requirements.k_anonymity import KAnonymity, Shield, void_shields
from sqlanon.requirements.l_diversity import DistinctDiversity, EntropyDiversity, JointDiversity, RecursiveDiversity
from sqlanon.requirements.presence import DeltaPresence, KMap
from sqlanon.requirements.t_closeness import Domain, OrderedCloseness, TreeCloseness
from sqlanon.requirements.whole_table import AverageRisk, PopulationUniqueness, SampleUniqueness


@dataclass(frozen=True)
class Requirements:
    """All that a policy asks for.

    Attributes
    ----------
    classes:
        Of each equivalence class, by itself.
    shields:
        k-anonymity over some of the quasi-identifiers.
    table:
        Of the kept classes together.
    population_uniqueness:
        A limit on an estimate, or None.
    """

    classes: tuple[ClassRequirement, ...] = ()
    shields: tuple[Shield, ...] = ()
    table: tuple[TableRequirement, ...] = ()
    population_uniqueness: PopulationUniqueness | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What people call them."""
        last = (self.population_uniqueness,) if self.population_uniqueness else ()
        return tuple(one.name for one in (*self.classes, *self.shields, *self.table, *last))

    def without(self, name: str) -> Requirements:
        """All but the one of a name; names tell their parameters."""
        unique = self.population_uniqueness
        return Requirements(
            tuple(one for one in self.classes if one.name != name),
            tuple(one for one in self.shields if one.name != name),
            tuple(one for one in self.table if one.name != name),
            unique if unique is not None and unique.name != name else None,
        )

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """The sensitive values that they look at, each once."""
        found = (one.distribution for one in self.classes if one.distribution is not None)
        return tuple(dict.fromkeys(found))

    @property
    def presence(self) -> DeltaPresence | None:
        """δ-presence that asks for a least share of each class of the population, if there is one."""
        found = (one for one in self.classes if isinstance(one, DeltaPresence) and one.least > 0)
        return next(found, None)

    @property
    def hereditary(self) -> bool:
        """Whether with suppression too, everything above a generalization that meets them meets them."""
        alone = all(one.hereditary for one in self.classes)
        return alone and not self.table and self.population_uniqueness is None

    @property
    def k(self) -> int:
        """No class of a smaller count is ever kept."""
        return max((one.k for one in self.classes if isinstance(one, KAnonymity)), default=1)

    @property
    def least_class(self) -> int:
        """No class of fewer rows is ever kept."""
        return max((one.least_class for one in self.classes), default=1)


def looked_at_sensitive(policy: Policy) -> tuple[str, ...]:
    """The sensitive attributes that requirements look at."""
    asked = sensitive_attributes(policy.privacy)
    if any(one.joint for one in policy.privacy.l_diversity):
        return tuple(dict.fromkeys((*asked, *policy.with_role("sensitive"))))
    return asked


def sensitive_attributes(section: PrivacySection) -> tuple[str, ...]:
    """The sensitive attributes that requirements look at, each once, in the order of the policy's requirements."""
    asked = [one.attribute for one in section.l_diversity]
    asked += [one.attribute for one in section.t_closeness]
    asked += [one.attribute for one in section.delta_disclosure]
    asked += [one.attribute for one in section.beta_likeness]
    asked += [one.attribute for one in section.alpha_k]
    return tuple(dict.fromkeys(asked))


def requirements_of(
    section: PrivacySection, quasi: Sequence[str] = (), domains: Mapping[str, Domain] | None = None
) -> Requirements:
    """The requirements that a policy's ``[privacy]`` asks for."""
    domains = domains or {}
    classes: list[ClassRequirement] = []
    if section.k is not None:
        classes.append(KAnonymity(section.k))
    if section.k_map is not None:
        classes.append(KMap(section.k_map))
    if section.delta_presence is not None:
        classes.append(DeltaPresence(section.delta_presence.min, section.delta_presence.max))
    classes += [_diversity(one) for one in section.l_diversity]
    classes += [_closeness(one, domains.get(one.attribute, Domain(2, 1))) for one in section.t_closeness]
    classes += [
        DeltaDisclosure(one.attribute, one.delta, domains[one.attribute].values if domains else 1)
        for one in section.delta_disclosure
    ]
    classes += [BetaLikeness(one.attribute, one.beta, one.kind == "enhanced") for one in section.beta_likeness]
    classes += [AlphaK(one.attribute, one.alpha) for one in section.alpha_k]
    table: list[TableRequirement] = []
    if section.average_risk is not None:
        table.append(AverageRisk(section.average_risk))
    if section.sample_uniqueness is not None:
        table.append(SampleUniqueness(section.sample_uniqueness))
    unique = section.population_uniqueness
    return Requirements(
        tuple(classes),
        tuple(_shield(one.quasi, one.k, quasi) for one in section.k_anonymity),
        tuple(table),
        None
        if unique is None
        else PopulationUniqueness(unique.limit, unique.estimator, unique.population, unique.sampling_fraction),
    )


def _shield(names: Sequence[str], k: int, quasi: Sequence[str]) -> Shield:
    numbers = sorted(quasi.index(name) for name in names)
    return Shield(tuple(numbers), tuple(quasi[i] for i in numbers), k)


def _diversity(asked: LDiversity) -> ClassRequirement:
    own: DistinctDiversity | EntropyDiversity | RecursiveDiversity
    if asked.kind == "distinct":
        own = DistinctDiversity(asked.attribute, int(asked.l))
    elif asked.kind == "entropy":
        own = EntropyDiversity(asked.attribute, float(asked.l))
    else:
        own = RecursiveDiversity(asked.attribute, float(asked.c or 0), int(asked.l))
    return JointDiversity(own) if asked.joint else own


def _closeness(asked: TCloseness, domain: Domain) -> ClassRequirement:
    if asked.distance == "ordered":
        return OrderedCloseness(asked.attribute, asked.t, domain.values)
    tree = TreeCloseness(asked.attribute, asked.t)
    if asked.distance == "hierarchical":
        # One level alone: all values are the root, and the distance is 0.
        return replace(tree, height=max(domain.height, 1), word="hierarchical")
    return tree


__all__ = [
    "ClassRequirement",
    "Distribution",
    "Domain",
    "KAnonymity",
    "Requirements",
    "requirements_of",
    "sensitive_attributes",
    "void_shields",
]
