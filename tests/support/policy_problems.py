"""The problems of policies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sqlanon.errors import PolicyError
from sqlanon.policy import (
    Policy,
)


def problems(**sections: Any) -> list[tuple[str, str]]:
    with pytest.raises(PolicyError) as caught:
        Policy(**sections)
    return [(problem.place, problem.message) for problem in caught.value.problems]


def only_problem(**sections: Any) -> tuple[str, str]:
    reported = problems(**sections)
    assert len(reported) == 1, reported
    return reported[0]


def load(folder: Path, text: str) -> Policy:
    file = folder / "policy.toml"
    file.write_text(text, encoding="utf-8")
    return Policy.load(file)


_TYPES: Mapping[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


_SAYS_NOTHING = {"$schema", "title", "description", "default", "examples", "format", "$defs", "then", "else"}


class Schema:
    """The part of JSON Schema that a policy's schema uses; any other keyword is a KeyError."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self.whole = whole
        # Each message receives the text of the word, the value, and the schema around the word.
        self.words: Mapping[str, Callable[[Any, Any, Mapping[str, Any]], bool]] = {
            "type": lambda says, value, _: any(self.is_of(value, kind) for kind in _as_list(says)),
            "$ref": lambda says, value, _: self.accepts(value, whole["$defs"][says.removeprefix("#/$defs/")]),
            "anyOf": lambda says, value, _: any(self.accepts(value, schema) for schema in says),
            "if": lambda says, value, around: self.accepts(
                value, around["then" if self.accepts(value, says) else "else"]
            ),
            "oneOf": lambda says, value, _: sum(self.accepts(value, alternative) for alternative in says) == 1,
            "properties": lambda says, value, _: all(
                self.accepts(value[key], says[key]) for key in value.keys() & says
            ),
            "additionalProperties": lambda says, value, around: all(
                says is not False and self.accepts(value[key], says)
                for key in value
                if key not in around.get("properties", {})
            ),
            "dependentRequired": lambda says, value, _: all(
                set(says[key]) <= set(value) for key in value.keys() & says
            ),
            "required": lambda says, value, _: set(says) <= set(value),
            "items": lambda says, value, _: all(self.accepts(item, says) for item in value),
            "minimum": lambda says, value, _: value >= says,
            "exclusiveMinimum": lambda says, value, _: value > says,
            "maximum": lambda says, value, _: value <= says,
            "exclusiveMaximum": lambda says, value, _: value < says,
            "pattern": lambda says, value, _: re.search(says, value) is not None,
            "minLength": lambda says, value, _: len(value) >= says,
            "minItems": lambda says, value, _: len(value) >= says,
            "uniqueItems": lambda says, value, _: not says or len(set(value)) == len(value),
            "minProperties": lambda says, value, _: len(value) >= says,
            "const": lambda says, value, _: value == says,
            "enum": lambda says, value, _: value in says,
            "maxItems": lambda says, value, _: len(value) <= says,
            # By place, as far as there are items.
            "prefixItems": lambda says, value, _: all(self.accepts(*pair) for pair in zip(value, says, strict=False)),
        }

    def accepts(self, value: Any, schema: Mapping[str, Any] | None = None) -> bool:
        around = self.whole if schema is None else schema
        # The type first: the other words take it as given.
        words = sorted(around.keys() - _SAYS_NOTHING, key=lambda word: word != "type")
        return all(self.words[word](around[word], value, around) for word in words)

    @staticmethod
    def is_of(value: Any, kind: str) -> bool:
        return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _as_list(says: Any) -> list[str]:
    return says if isinstance(says, list) else [says]


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(json.loads(json.dumps(Policy.model_json_schema())))
