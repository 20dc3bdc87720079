"""The JSON Schema of a policy for editors: ``schema.json`` beside this module, which ``sqlanon schema`` prints.

TOML has no null, so the schema of an optional key has only its other types.
"""

from __future__ import annotations

from typing import Any

from sqlanon.policy.models import Policy

_NULL = {"type": "null"}


def editor_schema() -> dict[str, Any]:
    """Derive the schema from the models; ``tests/docs/reference.py`` writes the file."""
    schema = _without_null(Policy.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "sqlanon policy"}


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
