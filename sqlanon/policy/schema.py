"""The JSON Schema of a policy as editors read it: ``schema.json`` beside this module, which ``sqlanon schema`` prints.

TOML has no null, so keys that may be left out show only what they may hold.
"""

from __future__ import annotations

from typing import Any

from sqlanon.policy.models import Policy

_NULL = {"type": "null"}


def editor_schema() -> dict[str, Any]:
    """Work the schema out of the models; ``tests/docs/reference.py`` writes the file."""
    schema = _without_null(Policy.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "sqlanon policy"}


def _without_null(node: Any, names: bool = False) -> Any:
    """``names``: the keys of this table are names of a policy, not words of JSON Schema."""
    if isinstance(node, list):
        return [_without_null(one) for one in node]
    if not isinstance(node, dict):
        return node
    found = {
        key: _without_null(value, not names and key in ("properties", "$defs"))
        for key, value in node.items()
        if names or not (key == "title" or (key == "default" and value is None))
    }
    if names or _NULL not in found.get("anyOf", ()):
        return found
    kept = [one for one in found.pop("anyOf") if one != _NULL]
    return (kept[0] if len(kept) == 1 else {"anyOf": kept}) | found
