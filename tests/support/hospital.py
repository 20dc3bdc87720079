"""A small hospital, its table and its policy."""

from __future__ import annotations

from pathlib import Path

from support.databases import change

HOSPITAL_POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
name = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
illness = { role = "sensitive" }
[privacy]
k = 5
[search]
suppression_limit = 0.1
[release]
database = "release.duckdb"
"""


def small_hospital(folder: Path, rows: int = 400) -> Path:
    """A file with patients."""
    path = folder / "hospital.duckdb"
    change(
        path,
        "CREATE TABLE patients AS SELECT 'Person ' || i AS name, CAST(2130 + hash(i) % 12 AS VARCHAR) AS zip, "
        f"CAST(hash(i + 1) % 90 AS INTEGER) AS age, 'illness ' || i % 7 AS illness FROM range({rows}) AS r(i)",
    )
    return path
