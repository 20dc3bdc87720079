"""The generated reference is current, and its examples are what the policy accepts."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
import reference

from sqlanon.errors import PolicyError
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.models import parse_toml
from sqlanon.policy.schema import LINKED_POLICY as LINKED_POLICY_NAME
from sqlanon.policy.schema import POLICY, editor_schema
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.support.resources import POLICY_SCHEMA
from support.commands import cli
from support.linked_hospital import POLICY as LINKED_POLICY
from support.policy_problems import Schema

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(scope="module")
def generated_pages() -> dict[str, tuple[str, str]]:
    """The text of each generated page and the text that it should have, by the name of its file."""
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
    """The schema has no null, and each key has a description."""
    schema = editor_schema()
    assert '"null"' not in json.dumps(schema)
    for name, definition in schema["$defs"].items():
        for key, node in definition.get("properties", {}).items():
            is_section = name == POLICY or (name == LINKED_POLICY_NAME and key != "table")
            assert is_section or node.get("description"), f"{name}.{key}"
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


def test_the_schema_reads_policies_of_one_table_and_of_several() -> None:
    schema, linked = Schema(editor_schema()), tomllib.loads(LINKED_POLICY)
    assert schema.accepts(linked)
    one = {"attributes": {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}}, "privacy": {"k": 5}}
    assert schema.accepts(one)
    assert not schema.accepts({**one, "privacy": {"k": 5, "known": 2}})
    assert not schema.accepts({**linked, "attributes": one["attributes"]})
    visits = linked["table"][1]
    for change in ({"persons": ["patient_id"]}, {"orphans": "keep"}):
        assert not schema.accepts({**linked, "table": [linked["table"][0], {**visits, **change}]})
    moved = {"admitted": {"role": "quasi", "hierarchy": {"dates": {"shift": 30}}}}
    assert schema.accepts({**linked, "table": [linked["table"][0], {**visits, "attributes": moved}]})
    assert not schema.accepts({**one, "attributes": moved})


PERSONS = tomllib.loads(LINKED_POLICY)["table"][0]
ZIP = PERSONS["attributes"]["zip"]
LINKED_EXAMPLES = {
    "l_diversity": {"attribute": "name", "kind": "distinct", "l": 2},
    "t_closeness": {"attribute": "name", "distance": "equal", "t": 0.2},
    "delta_disclosure": {"attribute": "name", "delta": 1},
    "beta_likeness": {"attribute": "name", "beta": 1},
    "alpha_k": {"attribute": "name", "alpha": 0.5},
    "confidence": {"attribute": "name", "max": 0.5},
}


@pytest.mark.cases(5)
@pytest.mark.parametrize(
    "change",
    [
        *({"search": {"strategy": name}} for name in STRATEGIES),
        *({"privacy": {"k": 3, key: [value]}} for key, value in LINKED_EXAMPLES.items()),
        {"privacy": {"k": 3, "l_diversity": [{**LINKED_EXAMPLES["l_diversity"], "joint": True}]}},
        {"table": [{**PERSONS, "attributes": {**PERSONS["attributes"], "zip": {**ZIP, "identification": "most"}}}]},
        {"release": {"postgres": "env:WAREHOUSE"}},
        {"release": {"schema_name": "shared"}},
        {"table": [{"name": "patients", "attributes": {"zip": {"role": "quasi", "hierarchy": "suppress"}}}]},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_what_a_policy_of_several_tables_refuses(change: dict[str, Any]) -> None:
    linked = tomllib.loads(LINKED_POLICY)
    linked["table"][0]["attributes"]["name"] = {"role": "sensitive"}
    policy = {**linked, **change}
    try:
        LinkedPolicy(**policy)
        is_valid = True
    except PolicyError:
        is_valid = False
    assert Schema(editor_schema()).accepts(policy) == is_valid


def test_the_examples_of_the_page_are_toml(tmp_path: Any) -> None:
    page = (reference.REFERENCE / "policy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| `(\w+ = [^|]+)` \|$", page, re.MULTILINE)
    assert len(rows) >= len({(name, key) for name, key, _ in EXAMPLES})
    for key, example in rows:
        (tmp_path / "one.toml").write_text(f"{example}\n", encoding="utf-8")
        assert list(parse_toml(tmp_path / "one.toml")) == [key]
