"""The requirements that there are: the one place that lists them, and where others are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from sqlanon.requirements.alpha_k import AlphaK
from sqlanon.requirements.average_risk import AverageRisk
from sqlanon.requirements.base import Requirement
from sqlanon.requirements.beta_likeness import BetaLikeness
from sqlanon.requirements.delta_disclosure import DeltaDisclosure
from sqlanon.requirements.delta_presence import DeltaPresence
from sqlanon.requirements.k_anonymity import KAnonymity, Shield
from sqlanon.requirements.k_map import KMap
from sqlanon.requirements.l_diversity import LDiversity
from sqlanon.requirements.null_map import NullMap
from sqlanon.requirements.population_uniqueness import PopulationUniqueness
from sqlanon.requirements.sample_uniqueness import SampleUniqueness
from sqlanon.requirements.t_closeness import TCloseness
from sqlanon.requirements.wrong_map import WrongMap

RequirementType: TypeAlias = type[Requirement]

_registered: list[RequirementType] = [
    KAnonymity,
    Shield,
    LDiversity,
    TCloseness,
    DeltaDisclosure,
    BetaLikeness,
    AlphaK,
    KMap,
    DeltaPresence,
    NullMap,
    WrongMap,
    AverageRisk,
    SampleUniqueness,
    PopulationUniqueness,
]
_FORMS = ("number", "table", "list")
_listeners: list[Callable[[], object]] = []


def requirement_types() -> tuple[RequirementType, ...]:
    """All kinds of requirement, in the order of audits and reports."""
    return tuple(_registered)


def requirement_types_by_key() -> Mapping[str, RequirementType]:
    """The same by their keys in ``[privacy]``, in the order of the policy: numbers, then tables, then lists."""
    return {kind.entry.key: kind for form in _FORMS for kind in _registered if kind.entry.form == form}


def register(kind: RequirementType) -> None:
    """Add a requirement. Policies know its key from now on."""
    if kind.entry.key in requirement_types_by_key():
        raise ValueError(f"there is a requirement {kind.entry.key!r} already")
    _registered.append(kind)
    _announce()


def unregister(kind: RequirementType) -> None:
    """Take one away that was added."""
    _registered.remove(kind)
    _announce()


def on_change(listener: Callable[[], object]) -> None:
    """Call a function whenever a requirement is added or taken away: sections of policies are built again."""
    _listeners.append(listener)


def _announce() -> None:
    for listener in _listeners:
        listener()


def list_requirements(section: Any) -> Iterator[Requirement]:
    """The requirements of a ``[privacy]``, in the order of audits and reports."""
    for kind in _registered:
        yield from _of_kind(kind, section)


def list_requirements_in_policy_order(section: Any) -> Iterator[Requirement]:
    """The same in the order of the policy."""
    for kind in requirement_types_by_key().values():
        yield from _of_kind(kind, section)


def _of_kind(kind: RequirementType, section: Any) -> Iterator[Requirement]:
    value = getattr(section, kind.entry.key)
    if kind.entry.form == "list":
        yield from value
    elif value is not None:
        yield kind(value) if kind.entry.form == "number" else value  # type: ignore[call-arg]  # a class over it
