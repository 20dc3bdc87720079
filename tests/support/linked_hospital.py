"""A hospital of three linked tables, and a reader of its released tables."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import duckdb

Read: TypeAlias = Callable[[str], list[tuple[Any, ...]]]
"""Runs a query of released tables."""

Known: TypeAlias = dict[int, tuple[Any, "Counter[Any]"]]
"""By released person, the own values and the known rows of all tables."""

POLICY = """
[source]
database = "hospital.duckdb"

[[table]]
name = "patients"
person = ["patient_id"]
[table.attributes]
patient_id = { role = "key" }
name       = { role = "identifying" }
zip        = { role = "quasi", hierarchy = { mask = "right" } }

[[table]]
name = "visits"
key = ["visit_id"]
references = { patient_id = "patients" }
[table.attributes]
visit_id   = { role = "key" }
patient_id = { role = "key" }
admitted   = { role = "quasi", hierarchy = { dates = ["month", "year"] } }
ward       = { role = "quasi", hierarchy = "suppress" }
diagnosis  = { role = "sensitive" }

[[table]]
name = "labs"
references = { visit_id = "visits" }
[table.attributes]
visit_id = { role = "key" }
test     = { role = "quasi", hierarchy = "suppress" }
value    = { role = "insensitive" }

[privacy]
k = 3
known = 2

[search]
suppression_limit = 0.2

[release]
database = "release.duckdb"
"""

TABLES = """
    CREATE TABLE patients AS
    SELECT 1000 + i AS patient_id, 'name ' || i AS name, lpad((i * i % 30)::VARCHAR, 3, '0') AS zip
    FROM range(60) AS r(i);
    CREATE TABLE visits AS
    SELECT
        5000 + row_number() OVER () AS visit_id,
        patient_id,
        DATE '2024-01-01' + (hash(patient_id, j) % 500)::INTEGER AS admitted,
        'ward ' || (hash(j, patient_id) % 3) AS ward,
        'diagnosis ' || (hash(patient_id) % 5) AS diagnosis
    FROM patients, range(3) AS r(j)
    WHERE hash(patient_id, j) % 2 = 0;
    CREATE TABLE labs AS
    SELECT visit_id, 'test ' || (hash(visit_id, j) % 2) AS test, j + 0.5 AS value
    FROM visits, range(2) AS r(j)
    WHERE hash(visit_id, j) % 3 = 0
"""


def fix_levels(policy: str) -> str:
    """The policy with a single generalization, the optimum of ``POLICY``, for tests of the stages after the search."""
    for name, level in {"zip": 1, "admitted": 3, "ward": 1, "test": 0}.items():
        levels = f"min_level = {level}, max_level = {level}"
        policy = re.sub(rf"^({name} .*) }}$", rf"\1, {levels} }}", policy, flags=re.MULTILINE)
    return policy


def make_hospital(folder: Path, policy: str = POLICY) -> None:
    """Write the database and its policy to a folder."""
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute(TABLES)
    (folder / "policy.toml").write_text(policy, encoding="utf-8")


def known_of(read: Read) -> Known:
    """The values of each released person that a reader can compare: own values, and the known rows of all tables."""
    persons = {key: ((zip_,), Counter[Any]()) for key, zip_ in read("SELECT patient_id, zip FROM patients")}
    visits = {}
    for visit, person, admitted, ward in read("SELECT visit_id, patient_id, admitted, ward FROM visits"):
        visits[visit] = person, (admitted, ward)
        persons[person][1]["visit", admitted, ward] += 1
    for visit, test in read("SELECT visit_id, test FROM labs"):
        person, visit_values = visits[visit]
        persons[person][1][("lab", *visit_values, test)] += 1
    return persons


def fewest_candidates(persons: Known, known: int = 2, draws: int = 10) -> int:
    """The fewest persons who match an attacker's knowledge: own values of a random person, and random known rows."""
    draw, fewest = random.Random(1), len(persons)
    for person_values, rows in persons.values():
        for _ in range(draws):
            known_rows = Counter(draw.sample(list(rows.elements()), min(known, rows.total())))
            fewest = min(
                fewest,
                sum(
                    released_values == person_values and known_rows <= more
                    for released_values, more in persons.values()
                ),
            )
    return fewest
