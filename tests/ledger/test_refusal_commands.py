"""The commands that a refusal because of earlier releases prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.commands import cli
from support.databases import change, run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("plain_macros")]

POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
key = ["id"]
[attributes]
age = {{ role = "quasi", hierarchy = {{ intervals = [10, 20] }}, min_level = {age}, max_level = {age} }}
zip = {{ role = "quasi", hierarchy = {{ mask = "right" }}, min_level = {zip}, max_level = {zip} }}
illness = {{ role = "insensitive" }}
[privacy]
k = 5
dependencies = "warn"
[search]
suppression_limit = 0.9
[release]
database = "{name}.duckdb"
table = "patients"
"""


def make_releases(folder: Path) -> None:
    """Releases of two policies; and a third policy, whose release is not safe together with them."""
    change(
        folder / "hospital.duckdb",
        "CREATE TABLE patients AS SELECT i AS id, CAST(hash(i) % 80 AS INTEGER) AS age, "
        "CAST(2130 + hash(i + 1000) % 300 AS VARCHAR) AS zip, 'illness ' || hash(i + 2000) % 200 AS illness "
        "FROM range(600) AS r(i)",
    )
    for name, age, zip_ in (("one", 3, 1), ("two", 3, 2), ("three", 1, 4)):
        (folder / f"{name}.toml").write_text(POLICY.format(age=age, zip=zip_, name=name))
        assert name == "three" or cli("anonymize", folder / f"{name}.toml", "--force").status == 0


@pytest.mark.thorough
def test_the_commands_of_a_refusal_list_the_rows(tmp_path: Path) -> None:
    make_releases(tmp_path)
    refused = cli("anonymize", "three.toml", cwd=tmp_path).err
    assert len(refused.splitlines()) < 15 and "SELECT" not in refused
    worst = run_commands(tmp_path, refused)
    assert f"({worst['victims']} rows in all" in refused
    assert run_script(worst["sql"])


def run_commands(folder: Path, refused: str) -> dict[str, Any]:
    """Run the commands of a refusal; return the rows that the second finds by joining both releases."""
    draft, attack = [shlex.split(line)[1:] for line in refused.splitlines() if line.startswith("      sqlanon ")]
    assert cli(*draft, cwd=folder).status == 0
    outcome = cli(*attack, "--json", cwd=folder)
    assert outcome.status == 0
    return dict(json.loads(outcome.out)["complementary_release"])


BANDS = """
[source]
database = "people.duckdb"
table = "people"
person = false
[attributes]
age = {{ role = "quasi", hierarchy = {{ intervals = [{width}] }}, min_level = 1, max_level = 1 }}
illness = {{ role = "sensitive" }}
[privacy]
k = 5
[release]
database = "{name}.duckdb"
table = "people"
"""


def test_the_commands_list_the_rows_of_two_hierarchies(tmp_path: Path) -> None:
    """0-14 without 0-9 is one person; the draft is in no ledger, and its hierarchy is that of the policy."""
    change(
        tmp_path / "people.duckdb",
        "CREATE TABLE people AS SELECT i % 30 AS age, 'flu' AS illness FROM range(60) AS r(i) "
        "WHERE NOT i % 30 BETWEEN 10 AND 14",
        "INSERT INTO people VALUES (12, 'HIV')",
    )
    for name, width in (("one", 10), ("two", 15)):
        (tmp_path / f"{name}.toml").write_text(BANDS.format(name=name, width=width))
    assert cli("anonymize", "one.toml", cwd=tmp_path).status == 0
    refused = cli("anonymize", "two.toml", cwd=tmp_path).err
    assert "two of their classes share at most 1 row, fewer than 5 (subtraction)" in refused
    worst = run_commands(tmp_path, refused)
    assert worst["victims"] == 1
    assert (1, "10-19 & 00-14") in run_script(worst["sql"])
