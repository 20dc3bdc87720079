"""The section ``[privacy]``: a key for each registered requirement, and the keys of noise.

``sqlanon.requirements`` defines the requirements; ``checks`` compares them with the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_wrap_validator_function

from sqlanon.policy.noise import MAX_EPSILON, Epsilon
from sqlanon.policy.problems import Missing
from sqlanon.requirements.registry import RequirementType, on_change, requirement_types_by_key
from sqlanon.support.fields import Flaw, Flaws, Section, as_list, as_real, in_words, one_or_more, policy_key


class PrivacySection(Section):
    """The requirements that the release must meet.

    k-anonymity: L. Sweeney, "k-anonymity: a model for protecting privacy" (2002), the definition of k-anonymity.
    k-map: L. Sweeney, "Computational disclosure control" (2001), the definition of k-map protection.
    Average risk and sample uniqueness: K. El Emam, "Guide to the De-Identification of Personal Health Information"
    (2013), its measures of average risk and of uniqueness.
    The classes of the other requirements name their sources.
    """

    epsilon: Epsilon | None = policy_key(
        "the budget of a record for noise, shared out among the attributes with noise", example=4.0
    )
    epsilon_total: Epsilon | None = policy_key(
        "the greatest sum of a record's budgets over all releases of its source in the ledger", example=10.0
    )
    linkable_noise: bool | None = policy_key(
        f"allow an epsilon, or epsilon_total, above {MAX_EPSILON:g}: readers who have the values can link "
        "most released rows to persons",
        example=True,
    )
    confidence: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), as_real] | None = policy_key(
        "suppress records whose noisy values are near those of fewer than k records, with this confidence", example=0.99
    )
    dependencies: Literal["warn", "error"] | None = policy_key(
        "released columns that narrow a generalized quasi attribute: warn, or refuse to publish; unset, "
        "sqlanon refuses those that leave a group of one row",
        example="error",
    )

    if TYPE_CHECKING:  # the keys of requirements

        def __getattr__(self, name: str) -> Any: ...

    @property
    def requirements(self) -> dict[str, Any]:
        """The requirements with their parameters, by key."""
        return self.model_dump(exclude_none=True, exclude=set(_NOISE_FIELDS))

    def _flaws(self) -> Iterator[Flaw]:
        if not self.requirements:
            yield (), "at least one requirement is needed: add k = 5, for example"

    @model_serializer(mode="wrap")
    def _without_empty_lists(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out unset keys, so that new requirements change no fingerprint."""
        fields: dict[str, Any] = handler(self)
        if self.dependencies is None:
            fields.pop("dependencies", None)
        for key in ("epsilon_total", "linkable_noise"):
            if getattr(self, key) is None:
                fields.pop(key, None)
        return {name: value for name, value in fields.items() if value not in ((), [])}


_NOISE_FIELDS: Mapping[str, FieldInfo] = dict(PrivacySection.model_fields)


class _PerAttribute:
    """Reads a requirement that is written for several sensitive attributes as one requirement for each."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_wrap_validator_function(_split_attributes, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = handler(schema)
        part = handler.resolve_ref_schema(reference)
        keys = dict(part["properties"])
        part["properties"] = {"attribute": keys.pop("attribute"), "attributes": _ATTRIBUTES_SCHEMA, **keys}
        part["required"] = [name for name in part["required"] if name != "attribute"]
        part["oneOf"] = [{"required": [name]} for name in ("attribute", "attributes")]
        return reference


_NO_ATTRIBUTE = Missing("attribute", "name a sensitive attribute, or several with attributes = [...]")
_ATTRIBUTES_SCHEMA: Mapping[str, Any] = {
    "description": "several, in place of attribute: the requirement applies to each",
    "examples": [["diagnosis", "drug"]],
    "items": {"minLength": 1, "type": "string"},
    "minItems": 1,
    "title": "Attributes",
    "type": "array",
    "uniqueItems": True,
}


def _split_attributes(keys: object, read: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The requirement for each attribute that it names."""
    if not isinstance(keys, Mapping):
        return (read(keys),)
    if isinstance(keys.get("attribute"), list | tuple):
        raise Flaws([(("attribute",), "must be one name: for several, write attributes = [...]")])
    if "attributes" not in keys:
        return (read(keys),)
    if flaws := list(_find_attributes_flaws(keys)):
        raise Flaws(flaws)
    parameters = {key: value for key, value in keys.items() if key != "attributes"}
    return tuple(read({"attribute": name, **parameters}) for name in keys["attributes"])


def _find_attributes_flaws(keys: Mapping[str, Any]) -> Iterator[Flaw]:
    names = keys["attributes"]
    if "attribute" in keys:
        yield ("attributes",), "give attribute = ... or attributes = [...], not both"
    if not isinstance(names, list | tuple):
        yield ("attributes",), f"must be a list of names, not {in_words(names)}"
    elif not names:
        yield ("attributes",), "must not be empty: give at least one"
    else:
        for i, name in enumerate(names):
            if not isinstance(name, str) or not name:
                yield ("attributes", i), f"must be the name of an attribute, not {in_words(name)}"
            elif name in names[:i]:
                yield ("attributes", i), f"{name!r} is listed twice"


def _flatten(items: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(items))


def requirement_field(requirement_type: RequirementType) -> tuple[Any, Any]:
    """The type and the default of the key of a requirement."""
    entry = requirement_type.entry
    if entry.form == "list" and "attribute" in getattr(requirement_type, "model_fields", ()):
        nested = tuple[Annotated[requirement_type, _PerAttribute()], ...]  # type: ignore[valid-type]
        flat = Annotated[nested, AfterValidator(_flatten), as_list, one_or_more, _NO_ATTRIBUTE]
        return flat, Field(default=(), description=entry.description)
    if entry.form == "list":
        items = tuple[requirement_type, ...]  # type: ignore[valid-type]
        return Annotated[items, as_list, one_or_more], Field(default=(), description=entry.description)
    type_ = entry.number if entry.form == "number" else requirement_type
    examples = None if entry.example is None else [entry.example]
    return type_ | None, Field(default=None, description=entry.description, examples=examples)


def _assemble() -> None:
    """Add the keys of all requirements before those of noise."""
    definitions: dict[str, Any] = {key: requirement_field(type_) for key, type_ in requirement_types_by_key().items()}
    fields = create_model("Requirements", __base__=Section, **definitions).model_fields
    PrivacySection.model_fields.clear()
    PrivacySection.model_fields.update({**fields, **_NOISE_FIELDS})


def _reassemble() -> None:
    _assemble()
    PrivacySection.model_rebuild(force=True)


_assemble()
on_change(_reassemble)
