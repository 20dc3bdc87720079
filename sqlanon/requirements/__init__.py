"""The privacy requirements, one file for each, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, Queryable
from sqlanon.requirements.base import (
    ClassCondition,
    Condition,
    Distribution,
    Domain,
    Requirement,
    SeparateCondition,
    SourceFacts,
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


@dataclass(frozen=True)
class Requirements:
    """All conditions of a policy, on a source: on each class by itself, on subsets of the quasi-identifiers, on the
    kept classes together, and on figures that are counted for each generalization separately.
    """

    class_conditions: tuple[ClassCondition, ...] = ()
    shields: tuple[SubsetCondition, ...] = ()
    table_conditions: tuple[TableCondition, ...] = ()
    separate_conditions: tuple[SeparateCondition, ...] = ()

    @classmethod
    def from_conditions(cls, conditions: Sequence[Condition]) -> Requirements:
        """Of conditions of any kind."""
        return cls(
            tuple(one for one in conditions if isinstance(one, ClassCondition)),
            tuple(one for one in conditions if isinstance(one, SubsetCondition)),
            tuple(one for one in conditions if isinstance(one, TableCondition)),
            tuple(one for one in conditions if isinstance(one, SeparateCondition)),
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (*self.class_conditions, *self.shields, *self.table_conditions, *self.separate_conditions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.conditions)

    def without(self, name: str) -> Requirements:
        """All but the one of a name; names have the parameters in them."""
        return Requirements.from_conditions([one for one in self.conditions if one.name != name])

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """The sensitive values that they are on, each once."""
        found = (one.distribution for one in self.class_conditions if one.distribution is not None)
        return tuple(dict.fromkeys(found))

    @property
    def covering_condition(self) -> ClassCondition | None:
        """The condition that each class of the population has to meet as well, if there is one."""
        return next((one for one in self.class_conditions if one.uncoverable_class() is not None), None)

    @property
    def without_population(self) -> Requirements:
        """All but what is on a population."""
        own = [one for one in self.conditions if not (isinstance(one, ClassCondition) and one.uses_population)]
        return Requirements.from_conditions(own)

    @property
    def hereditary(self) -> bool:
        """Whether with suppression too, everything above a generalization that meets them meets them."""
        return (
            all(one.hereditary for one in self.class_conditions)
            and not self.table_conditions
            and not self.separate_conditions
        )

    @property
    def k(self) -> int:
        """No class of a smaller count is ever kept."""
        return max((one.min_class_count for one in self.class_conditions), default=1)

    @property
    def min_class_rows(self) -> int:
        """No class of fewer rows is ever kept."""
        return max((one.min_class_rows for one in self.class_conditions), default=1)


def bind_conditions(
    section: Any, quasi: Sequence[str] = (), domains: Mapping[str, Domain] | None = None
) -> list[tuple[Requirement, Condition]]:
    """The requirements of a ``[privacy]`` with their conditions on a source: those on classes first."""
    source = SourceFacts(quasi, domains or {})
    found = [(one, one.bind(source)) for one in list_requirements_in_policy_order(section)]
    places = (ClassCondition, SubsetCondition, TableCondition, SeparateCondition)
    return sorted(found, key=lambda one: next(i for i, place in enumerate(places) if isinstance(one[1], place)))


def bind_requirements(
    section: Any, quasi: Sequence[str] = (), domains: Mapping[str, Domain] | None = None
) -> Requirements:
    """The conditions of a ``[privacy]`` on a source."""
    return Requirements.from_conditions([condition for _, condition in bind_conditions(section, quasi, domains)])


def sensitive_attributes(section: Any) -> tuple[str, ...]:
    """The sensitive attributes that requirements name, each once, in the order of the policy's requirements."""
    return tuple(
        dict.fromkeys(name for one in list_requirements_in_policy_order(section) for name in one.sensitive_attributes)
    )


def examined_sensitive_attributes(section: Any, sensitive: Sequence[str]) -> tuple[str, ...]:
    """The sensitive attributes that requirements look at, of those that there are."""
    named = sensitive_attributes(section)
    every = any(one.uses_all_sensitive for one in list_requirements(section))
    return tuple(dict.fromkeys((*named, *sensitive))) if every else named


def attributes_needing_hierarchies(section: Any) -> frozenset[str]:
    """The sensitive attributes whose hierarchies requirements need."""
    return frozenset(name for one in list_requirements(section) for name in one.needed_hierarchies)


def ordered_attributes(section: Any) -> frozenset[str]:
    """The sensitive attributes whose values requirements put in order."""
    return frozenset(name for one in list_requirements(section) for name in one.ordered_attributes)


def estimated(section: Any) -> tuple[str, ...]:
    """The keys of requirements whose figures are estimates."""
    return tuple(dict.fromkeys(one.entry.key for one in list_requirements(section) if one.entry.is_estimate))


def guaranteed_k(section: Any, quasi: Sequence[str]) -> int:
    """The rows that a class has at least where the requirements of a ``[privacy]`` are met; 2 where none says so."""
    least = [one.guaranteed_k(quasi) for one in list_requirements(section)]
    return max(2 if section.k is None else section.k, *least)


def needs_source(section: Any, persons: bool) -> bool:
    """Whether the requirements cannot be verified from the release alone."""
    return persons or not all(one.entry.verifiable_alone for one in list_requirements(section))


def check_requirements(section: Any, audited: AuditedRelease) -> list[Check]:
    """The checks of all requirements, by macros that are independent of the search."""
    return [check for one in list_requirements(section) for check in one.audit(audited)]


def find_unknown_names(section: Any, audited: AuditedRelease) -> str:
    """What requirements name, and is no sensitive column, or no quasi-identifier, of what is checked."""
    sensitive, quasi = ({name.lower() for name in names} for names in (audited.sensitive, audited.quasi_identifiers))
    wrong = [name for name in sensitive_attributes(section) if name.lower() not in sensitive]
    named = (name for one in list_requirements(section) for name in one.quasi_identifiers)
    return ", ".join(map(repr, dict.fromkeys([*wrong, *(name for name in named if name.lower() not in quasi)])))


def list_requirement_queries(section: Any, audited: Callable[[Queryable], AuditedRelease]) -> list[exp.Expr]:
    """The queries of `check_requirements`; none is run."""
    recorder = _Recorder()
    check_requirements(section, audited(recorder))
    return recorder.queries


class _Recorder:
    """What runs nothing: it keeps the queries, and every answer is empty."""

    def __init__(self) -> None:
        self.queries: list[exp.Expr] = []

    def rows(self, query: exp.Expr) -> list[tuple[Any, ...]]:
        self.queries.append(query)
        return []


__all__ = [
    "ClassCondition",
    "Distribution",
    "Domain",
    "KAnonymity",
    "Requirement",
    "Requirements",
    "attributes_needing_hierarchies",
    "bind_conditions",
    "bind_requirements",
    "check_requirements",
    "estimated",
    "examined_sensitive_attributes",
    "find_unknown_names",
    "guaranteed_k",
    "list_requirement_queries",
    "list_requirements",
    "needs_source",
    "ordered_attributes",
    "register",
    "require_close_values",
    "require_distinct_values",
    "requirement_types",
    "requirement_types_by_key",
    "sensitive_attributes",
    "unregister",
    "warn_of_void_shields",
]
