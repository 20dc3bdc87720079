"""The requirements on sensitive attributes of linked tables, which hold in every group of persons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from sqlanon.requirements.base import ClassCondition, Domain, Requirement, SourceDomains
from sqlanon.requirements.confidence import Confidence
from sqlanon.requirements.registry import RequirementType, requirement_types_by_key


def group_requirement_types() -> dict[str, RequirementType]:
    """The requirements on the sensitive values of a class, by key."""
    return {
        key: type_
        for key, type_ in requirement_types_by_key().items()
        if type_.entry.scope == "class" and "attribute" in getattr(type_, "model_fields", ())
    }


def bind_group_requirement(requirement: Requirement | Confidence) -> ClassCondition:
    """The condition of a requirement on groups, whatever the source has."""
    if isinstance(requirement, Confidence):
        return requirement
    condition = requirement.bind(SourceDomains(domains={requirement.sensitive_attributes[0]: Domain(None)}))
    assert isinstance(condition, ClassCondition)
    return condition


def read_requirement(key: str, parameters: Mapping[str, Any]) -> ClassCondition:
    """The condition of a requirement on sensitive attributes; a `ValueError` if it is none."""
    types: Mapping[str, Any] = {**group_requirement_types(), "confidence": Confidence}
    if key not in types:
        raise ValueError(f"{key!r} is not a requirement on sensitive attributes of several tables")
    requirement = types[key].model_validate(parameters)
    if isinstance(requirement, Requirement) and depends_on_source(requirement):
        raise ValueError(f"{key!r} compares groups with the whole source")
    return bind_group_requirement(requirement)


def unsupported_requirement_keys() -> dict[str, frozenset[str] | None]:
    """The keys that make each requirement depend on more than a group; None if it always does."""
    keys: dict[str, frozenset[str] | None] = {}
    for name, type_ in group_requirement_types().items():
        fields: Mapping[str, FieldInfo] = getattr(type_, "model_fields", {})
        examples = {key: field.examples[0] for key, field in fields.items() if field.examples}
        required = {key: example for key, example in examples.items() if fields[key].is_required()}

        def is_supported(
            *optional: str, type_: Any = type_, required: Any = required, examples: Any = examples
        ) -> bool:
            try:
                requirement = type_.model_validate({**required, **{key: examples[key] for key in optional}})
            except ValueError:  # the key needs others
                return True
            return not depends_on_source(requirement)

        optional_keys = frozenset(key for key in examples if key not in required and not is_supported(key))
        keys[name] = optional_keys if is_supported() else None
    return keys


def depends_on_source(requirement: Requirement) -> bool:
    """Whether a requirement needs more than the values of a group."""
    if requirement.uses_all_sensitive or requirement.needed_hierarchies or requirement.ordered_attributes:
        return True
    return bind_group_requirement(requirement).compares_with_source
