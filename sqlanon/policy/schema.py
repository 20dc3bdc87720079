"""The JSON Schema of a policy for editors: ``schema.json`` next to this module, which ``sqlanon schema`` prints.

TOML has no null, so the schema of an optional key has only its other types.
"""

from __future__ import annotations

import copy
from typing import Any

from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_requirements import unsupported_requirement_keys
from sqlanon.policy.linked_sections import linked_strategies
from sqlanon.policy.models import Policy
from sqlanon.policy.rules import MAX_DAYS, DatesRule

_NULL = {"type": "null"}
POLICY, LINKED_POLICY = "Policy", "LinkedPolicy"
"""The definitions of a policy of one table and of several."""


def editor_schema() -> dict[str, Any]:
    """Derive the schema from the models; ``tests/docs/reference.py`` writes the file."""
    definitions: dict[str, Any] = {}
    for name, model in ((POLICY, Policy), (LINKED_POLICY, LinkedPolicy)):
        schema = _without_null(model.model_json_schema())
        definitions |= schema.pop("$defs")
        definitions[name] = schema
    definitions[LINKED_POLICY]["properties"]["table"] |= {
        "description": "the tables; exactly one has person",
        "minItems": 1,
    }
    for unsupported in ("noise", "on_unknown", "identification"):
        del definitions["LinkedAttribute"]["properties"][unsupported]
    definitions["LinkedSearchSection"]["properties"]["strategy"]["enum"] = list(linked_strategies())
    definitions["TableSection"]["oneOf"] = [{"required": ["person"]}, {"required": ["references"]}]
    servers = ("postgres", "spark")
    definitions["LinkedReleaseSection"] |= {
        "dependentRequired": {key: ["schema_name"] for key in servers},
        "if": {"required": ["schema_name"]},
        "then": {"anyOf": [{"required": [key]} for key in servers]},
        "else": {},
    }
    _remove_unsupported_requirements(definitions)
    _add_date_shifts(definitions)
    one_table, linked_tables = ({"$ref": f"#/$defs/{name}"} for name in (POLICY, LINKED_POLICY))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sqlanon policy",
        "$defs": definitions,
        "anyOf": [one_table, linked_tables],  # for editors that complete keys without reading conditions
        "if": {"required": ["table"]},  # for messages that name the wrong key
        "then": linked_tables,
        "else": one_table,
    }


def _remove_unsupported_requirements(definitions: dict[str, Any]) -> None:
    """Remove the requirements, and the keys of others, that compare with more than a group of persons."""
    privacy = definitions["LinkedPrivacySection"]["properties"]
    for requirement, keys in unsupported_requirement_keys().items():
        name = privacy[requirement]["anyOf"][0]["$ref"].rpartition("/")[2]
        if keys is None:
            del privacy[requirement]
        elif keys:
            linked = copy.deepcopy(definitions[name])
            for key in keys:
                del linked["properties"][key]
            definitions[f"Linked{name}"] = linked
            privacy[requirement] = _replace_reference(privacy[requirement], name)


def _add_date_shifts(definitions: dict[str, Any]) -> None:
    """Add the rule for dates of several tables, which can be moved, too."""
    rule, field = copy.deepcopy(definitions["DatesRule"]), DatesRule.model_fields["shift"]
    days = {"type": "integer", "minimum": 1, "maximum": MAX_DAYS}
    shift = {**days, "description": field.description, "examples": list(field.examples or ())}
    dates = rule["properties"]["dates"]
    levels = {key: dates.pop(key) for key in ("type", "items", "minItems")}
    only_shift = {"type": "object", "properties": {"shift": days}, "required": ["shift"], "additionalProperties": False}
    rule["properties"] |= {"dates": {"anyOf": [levels, only_shift], **dates}, "shift": shift}
    definitions["LinkedDatesRule"] = rule
    definitions["LinkedAttribute"] = _replace_reference(definitions["LinkedAttribute"], "DatesRule")


def _replace_reference(node: Any, name: str) -> Any:
    """Refer to the definition for several tables in place of the one with this name."""
    if isinstance(node, list):
        return [_replace_reference(item, name) for item in node]
    if isinstance(node, dict):
        return {key: _replace_reference(value, name) for key, value in node.items()}
    return f"#/$defs/Linked{name}" if node == f"#/$defs/{name}" else node


def _without_null(node: Any, names: bool = False) -> Any:
    """Remove null types, titles and null defaults. ``names``: the keys of this table are keys of a policy."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {
        key: _without_null(value, not names and key in ("properties", "$defs"))
        for key, value in node.items()
        if names or not (key == "title" or (key == "default" and value is None))
    }
    if names or _NULL not in schema.get("anyOf", ()):
        return schema
    types = [type_ for type_ in schema.pop("anyOf") if type_ != _NULL]
    return (types[0] if len(types) == 1 else {"anyOf": types}) | schema
