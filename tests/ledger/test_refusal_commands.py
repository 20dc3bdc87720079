"""The commands that a refusal beside earlier releases prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import duckdb
import pytest
from support import change, cli

pytestmark = pytest.mark.usefixtures("plain_macros")

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
    """Releases of two policies; and a third policy, whose release is not safe beside them."""
    change(
        folder / "hospital.duckdb",
        "CREATE TABLE patients AS SELECT i AS id, CAST(hash(i) % 80 AS INTEGER) AS age, "
        "CAST(2130 + hash(i + 1000) % 300 AS VARCHAR) AS zip, 'illness ' || hash(i + 2000) % 200 AS illness "
        "FROM range(600) AS r(i)",
    )
    for name, age, zip_ in (("one", 3, 1), ("two", 3, 2), ("three", 1, 4)):
        (folder / f"{name}.toml").write_text(POLICY.format(age=age, zip=zip_, name=name))
        assert name == "three" or cli("anonymize", folder / f"{name}.toml", "--force").status == 0


@pytest.mark.slow
def test_the_commands_of_a_refusal_list_the_rows(tmp_path: Path) -> None:
    make_releases(tmp_path)
    refused = cli("anonymize", "three.toml", cwd=tmp_path).err
    assert len(refused.splitlines()) < 15 and "SELECT" not in refused
    draft, attack = [shlex.split(line)[1:] for line in refused.splitlines() if line.startswith("      sqlanon ")]
    assert cli(*draft, cwd=tmp_path).status == 0
    found = cli(*attack, "--json", cwd=tmp_path)
    assert found.status == 0
    worst = json.loads(found.out)["complementary_release"]
    assert f"({worst['victims']} rows in all" in refused
    with duckdb.connect() as connection:
        assert connection.execute(worst["sql"]).fetchall()
