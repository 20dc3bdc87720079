"""The generated reference is current, and its examples are what the policy accepts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import reference

from sqlanon.policy.models import parse_toml
from sqlanon.policy.schema import editor_schema
from sqlanon.support.resources import POLICY_SCHEMA
from support.commands import cli
from support.policy_problems import Schema


@pytest.fixture(scope="module")
def generated_pages() -> dict[str, tuple[str, str]]:
    """By the name of a file: what stands in it, and what should."""
    return {path.name: (path.read_text(encoding="utf-8"), text) for path, text in reference.generate_pages().items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in (*reference.PAGES, *reference.PARTS)))
def test_the_generated_files_are_current(name: str, generated_pages: dict[str, tuple[str, str]]) -> None:
    existing, wanted = generated_pages[name]
    if name == "schema.json":  # older pydantic writes 1.0 for 1
        assert json.loads(existing) == json.loads(wanted), "run: python tests/docs/reference.py"
    else:
        assert existing == wanted, f"{name} is not current; run: python tests/docs/reference.py"


def test_the_command_prints_the_schema() -> None:
    done = cli("schema")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == editor_schema()
    assert json.loads(done.out) == json.loads(POLICY_SCHEMA.read_text(encoding="utf-8"))


def test_the_schema_is_for_editors_of_toml() -> None:
    """TOML has no null; and a key without a description is useless."""
    schema = editor_schema()
    assert '"null"' not in json.dumps(schema)
    for name, definition in schema["$defs"].items():
        for key, node in definition.get("properties", {}).items():
            assert node.get("description"), f"{name}.{key}"
            assert node.get("examples") or "$ref" in json.dumps(node), f"{name}.{key} has no example"


EXAMPLES = [
    (name, key, example)
    for name, definition in editor_schema()["$defs"].items()
    for key, node in definition.get("properties", {}).items()
    for example in node.get("examples", ())
]


def test_the_examples_are_valid() -> None:
    whole = editor_schema()
    assert len(EXAMPLES) > 60
    for name, key, example in EXAMPLES:
        assert Schema(whole).accepts(example, whole["$defs"][name]["properties"][key]), (name, key, example)


def test_the_examples_of_the_page_are_toml(tmp_path: Any) -> None:
    page = (reference.REFERENCE / "policy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| `(\w+ = [^|]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= len({(name, key) for name, key, _ in EXAMPLES})
    for key, example in rows:
        (tmp_path / "one.toml").write_text(f"{example}\n", encoding="utf-8")
        assert list(parse_toml(tmp_path / "one.toml")) == [key]
