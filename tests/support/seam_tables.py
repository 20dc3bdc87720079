"""A small table for registered toy members."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb

import sqlanon
from support.databases import insert

POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
zip = {{ role = "quasi", hierarchy = {{ mask = "right" }} }}
age = {{ role = "quasi", hierarchy = {{ intervals = [5, 10, 20] }} }}
[privacy]
k = 3
[search]
strategy = "{strategy}"
measure = "{measure}"
suppression_limit = {limit}
[release]
database = "release.duckdb"
"""


HEIGHTS = (3, 4)


Row = tuple[str, int]


def patients(seed: int, count: int = 50) -> list[Row]:
    chance = random.Random(seed)
    return [(chance.choice(("021", "024", "130", "139")), chance.randrange(20, 60)) for _ in range(count)]


def write(folder: Path, rows: Sequence[Row], strategy: str, limit: float = 0, measure: str = "loss") -> sqlanon.Policy:
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute("CREATE OR REPLACE TABLE patients (zip VARCHAR, age INTEGER)")
        insert(connection, "patients", rows)
    text = POLICY.format(strategy=strategy, limit=limit, measure=measure)
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return sqlanon.Policy.load(folder / "policy.toml")


def lost(rows: Sequence[Row], levels: Sequence[int]) -> int:
    """The rows in classes of fewer than three."""
    width = (1, 5, 10, 20, 1000)[levels[1]]
    classes = Counter((zip_[: 3 - levels[0]], age // width) for zip_, age in rows)
    return sum(size for size in classes.values() if size < 3)
