"""The privacy requirements, one file for each, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Queryable
from sqlanon.requirements.base import (
    ClassCondition,
    Condition,
    Distribution,
    Domain,
    Requirement,
    SeparateCondition,
    SourceDomains,
    SubsetCondition,
    TableCondition,
)
from sqlanon.requirements.k_anonymity import KAnonymity, warn_of_void_shields
from sqlanon.requirements.l_diversity import require_distinct_values
from sqlanon.requirements.registry import (
    list_requirements,
    list_requirements_in_policy_order,
    register,
    requirement_types,
    requirement_types_by_key,
    unregister,
)
from sqlanon.requirements.t_closeness import require_close_values
from sqlanon.support.checks import Check


@dataclass(frozen=True)
class Requirements:
    """The conditions of a policy on a source, by kind."""

    class_conditions: tuple[ClassCondition, ...] = ()
    shields: tuple[SubsetCondition, ...] = ()
    table_conditions: tuple[TableCondition, ...] = ()
    separate_conditions: tuple[SeparateCondition, ...] = ()

    @classmethod
    def from_conditions(cls, conditions: Sequence[Condition]) -> Requirements:
        return cls(
            tuple(condition for condition in conditions if isinstance(condition, ClassCondition)),
            tuple(condition for condition in conditions if isinstance(condition, SubsetCondition)),
            tuple(condition for condition in conditions if isinstance(condition, TableCondition)),
            tuple(condition for condition in conditions if isinstance(condition, SeparateCondition)),
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (*self.class_conditions, *self.shields, *self.table_conditions, *self.separate_conditions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(condition.name for condition in self.conditions)

    def without(self, name: str) -> Requirements:
        """All conditions except the one with a name, which includes its parameters."""
        return Requirements.from_conditions([condition for condition in self.conditions if condition.name != name])

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """The distinct distributions of sensitive values that conditions are on."""
        distributions = (condition.distribution for condition in self.class_conditions)
        return tuple(dict.fromkeys(distribution for distribution in distributions if distribution is not None))

    @property
    def covering_condition(self) -> ClassCondition | None:
        """The condition that requires every class of the population to be released, if there is one."""
        covering = (condition for condition in self.class_conditions if condition.uncoverable_class() is not None)
        return next(covering, None)

    @property
    def without_population(self) -> Requirements:
        """All conditions except those on a population."""
        conditions = [
            condition
            for condition in self.conditions
            if not (isinstance(condition, ClassCondition) and condition.uses_population)
        ]
        return Requirements.from_conditions(conditions)

    @property
    def hereditary(self) -> bool:
        """Whether every generalization above a feasible one is feasible, also with suppression."""
        if self.table_conditions or self.separate_conditions:
            return False
        return all(condition.hereditary for condition in self.class_conditions)

    @property
    def k(self) -> int:
        """The smallest class that can be kept, in the unit of counting."""
        return max((condition.min_class_count for condition in self.class_conditions), default=1)

    @property
    def are_minimum_counts(self) -> bool:
        """Whether a class meets them if it has at least ``k`` rows or persons."""
        return not self.shields and all(condition.min_class_count > 1 for condition in self.class_conditions)

    @property
    def min_class_rows(self) -> int:
        """The smallest class that can be kept, in rows."""
        return max((condition.min_class_rows for condition in self.class_conditions), default=1)


def bind_conditions(
    section: Any, quasi: Sequence[str] = (), domains: Mapping[str, Domain] | None = None
) -> list[tuple[Requirement, Condition]]:
    """The requirements of ``[privacy]`` with their conditions on a source, those on classes first."""
    source = SourceDomains(quasi, domains or {})
    bound = [(requirement, requirement.bind(source)) for requirement in list_requirements_in_policy_order(section)]
    kinds = (ClassCondition, SubsetCondition, TableCondition, SeparateCondition)
    return sorted(bound, key=lambda pair: next(i for i, kind in enumerate(kinds) if isinstance(pair[1], kind)))


def bind_requirements(
    section: Any, quasi: Sequence[str] = (), domains: Mapping[str, Domain] | None = None
) -> Requirements:
    """The conditions of ``[privacy]`` on a source."""
    return Requirements.from_conditions([condition for _, condition in bind_conditions(section, quasi, domains)])


def sensitive_attributes(section: Any) -> tuple[str, ...]:
    """The distinct sensitive attributes that requirements name, in the order of the policy."""
    requirements = list_requirements_in_policy_order(section)
    return tuple(dict.fromkeys(name for requirement in requirements for name in requirement.sensitive_attributes))


def examined_sensitive_attributes(section: Any, sensitive: Sequence[str]) -> tuple[str, ...]:
    """The sensitive attributes that requirements depend on: those they name, or all ``sensitive`` ones."""
    required = sensitive_attributes(section)
    uses_all = any(requirement.uses_all_sensitive for requirement in list_requirements(section))
    return tuple(dict.fromkeys((*required, *sensitive))) if uses_all else required


def attributes_needing_hierarchies(section: Any) -> frozenset[str]:
    """The sensitive attributes whose hierarchies requirements need."""
    return frozenset(name for requirement in list_requirements(section) for name in requirement.needed_hierarchies)


def ordered_attributes(section: Any) -> frozenset[str]:
    """The sensitive attributes whose values requirements sort."""
    return frozenset(name for requirement in list_requirements(section) for name in requirement.ordered_attributes)


def estimated_requirements(section: Any) -> tuple[str, ...]:
    """The keys of requirements whose figures are estimates."""
    entries = (requirement.entry for requirement in list_requirements(section))
    return tuple(dict.fromkeys(entry.key for entry in entries if entry.is_estimate))


def guaranteed_k(section: Any, quasi: Sequence[str]) -> int:
    """The lower bound on the rows of a class under the requirements of ``[privacy]``; 2 if none implies one."""
    bounds = [requirement.guaranteed_k(quasi) for requirement in list_requirements(section)]
    return max(2 if section.k is None else section.k, *bounds)


def needs_source(section: Any, persons: bool) -> bool:
    """Whether the requirements cannot be verified from the release alone."""
    return persons or not all(requirement.entry.verifiable_alone for requirement in list_requirements(section))


def check_requirements(section: Any, audited: AuditedRelease) -> list[Check]:
    """Check all requirements, by macros that are independent of the search."""
    return [check for requirement in list_requirements(section) for check in requirement.checks(audited)]


def find_unknown_names(section: Any, audited: AuditedRelease) -> str:
    """The names in requirements that the audited release lacks among its sensitive columns or quasi-identifiers."""
    sensitive = {name.lower() for name in audited.sensitive}
    quasi = {name.lower() for name in audited.quasi_identifiers}
    unknown = [name for name in sensitive_attributes(section) if name.lower() not in sensitive]
    for requirement in list_requirements(section):
        unknown += [name for name in requirement.quasi_identifiers if name.lower() not in quasi]
    return ", ".join(map(repr, dict.fromkeys(unknown)))


def list_requirement_queries(section: Any, audited: Callable[[Queryable], AuditedRelease]) -> list[exp.Expr]:
    """The queries of `check_requirements`; none is run."""
    recorder = _Recorder()
    check_requirements(section, audited(recorder))
    return recorder.queries


class _Recorder:
    """An engine that records queries and returns no rows."""

    def __init__(self) -> None:
        self.queries: list[exp.Expr] = []

    def rows(self, query: exp.Expr) -> list[tuple[Any, ...]]:
        self.queries.append(query)
        return []


__all__ = [
    "ClassCondition", "Distribution", "Domain", "KAnonymity", "Requirement", "Requirements",
    "attributes_needing_hierarchies", "bind_conditions", "bind_requirements", "check_requirements",
    "estimated_requirements", "examined_sensitive_attributes", "find_unknown_names", "guaranteed_k",
    "list_requirement_queries", "list_requirements", "needs_source", "ordered_attributes", "register",
    "require_close_values", "require_distinct_values", "requirement_types", "requirement_types_by_key",
    "sensitive_attributes", "unregister", "warn_of_void_shields",
]  # fmt: skip
