"""A small hospital of patients, visits and lab results, and the policy of its linked tables."""

from __future__ import annotations

from pathlib import Path

import duckdb

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


def make_linked_hospital(folder: Path) -> None:
    """Write ``hospital.duckdb`` and ``policy.toml``."""
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute(TABLES)
    (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
