"""The registry of privacy requirements: the only list of them, and the way to add others."""

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
    KAnonymity, Shield, LDiversity, TCloseness, DeltaDisclosure, BetaLikeness, AlphaK, KMap, DeltaPresence, NullMap,
    WrongMap, AverageRisk, SampleUniqueness, PopulationUniqueness,
]  # fmt: skip
_FORMS = ("number", "table", "list")
_listeners: list[Callable[[], object]] = []


def requirement_types() -> tuple[RequirementType, ...]:
    """All requirement types, in the order of audits and reports."""
    return tuple(_registered)


def requirement_types_by_key() -> Mapping[str, RequirementType]:
    """All requirement types by ``[privacy]`` key, in the order of the policy: numbers, then tables, then lists."""
    return {type_.entry.key: type_ for form in _FORMS for type_ in _registered if type_.entry.form == form}


def register(requirement_type: RequirementType) -> None:
    """Add a requirement type, so that policies accept its key."""
    if requirement_type.entry.key in requirement_types_by_key():
        raise ValueError(f"the requirement {requirement_type.entry.key!r} is already registered")
    _registered.append(requirement_type)
    _notify_listeners()


def unregister(requirement_type: RequirementType) -> None:
    """Remove a requirement type that was added."""
    _registered.remove(requirement_type)
    _notify_listeners()


def on_change(listener: Callable[[], object]) -> None:
    """Call a function whenever the registry changes; policy sections rebuild their models."""
    _listeners.append(listener)


def _notify_listeners() -> None:
    for listener in _listeners:
        listener()


def list_requirements(section: Any) -> Iterator[Requirement]:
    """The requirements of ``[privacy]``, in the order of audits and reports."""
    for type_ in _registered:
        yield from _read_entry(type_, section)


def list_requirements_in_policy_order(section: Any) -> Iterator[Requirement]:
    """The requirements of ``[privacy]``, in the order of the policy."""
    for type_ in requirement_types_by_key().values():
        yield from _read_entry(type_, section)


def _read_entry(requirement_type: RequirementType, section: Any) -> Iterator[Requirement]:
    value = getattr(section, requirement_type.entry.key)
    if requirement_type.entry.form == "list":
        yield from value
    elif value is not None:
        yield requirement_type(value) if requirement_type.entry.form == "number" else value  # type: ignore[call-arg]
