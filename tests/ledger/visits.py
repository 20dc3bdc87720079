"""Visits to a clinic whose source changes between releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlanon
from support.databases import change

K = 3


CREATE = """
    CREATE TABLE visits AS
    SELECT
        i AS id, 'p' || (i % 60) AS pid, 20 + (i % 60) % 20 AS age, if(i % 2 = 0, 'm', 'f') AS sex,
        'illness ' || i % 4 AS illness
    FROM range(180) AS r(i)
"""
"""60 persons with three visits each; three persons share an age and a sex."""


WITHDRAW_TWO = "DELETE FROM visits WHERE pid IN ('p1', 'p2')"


DELETE_A_VISIT = "DELETE FROM visits WHERE id = 5"


CHANGE_A_VALUE = "UPDATE visits SET illness = 'other' WHERE id = 9"


GROW = "INSERT INTO visits SELECT 1000 + i, 'n' || i, 25, 'm', 'illness 1' FROM range(4) AS r(i)"


def policy(folder: Path, key: bool = True, person: Any = "pid", **more: Any) -> sqlanon.Policy:
    source = {"database": folder / "h.duckdb", "table": "visits", "person": person}
    return sqlanon.Policy(
        source=source | ({"key": ["id"]} if key else {}),
        attributes={
            "id": {"role": "identifying"},
            "pid": {"role": "identifying"},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
            "sex": {"role": "quasi", "hierarchy": "suppress"},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": K, **more.pop("privacy", {})},
        search={"suppression_limit": 0.1, **more.pop("search", {})},
        release={"database": folder / "r.duckdb", "table": "visits", **more.pop("release", {})},
        catalog={"database": folder / "c.duckdb"},
        **more,
    )


def publish(folder: Path, **more: Any) -> Path:
    change(folder / "h.duckdb", CREATE)
    with sqlanon.connect() as db:
        db.anonymize(policy(folder, **more)).publish()
    return folder


POLICY = """
[source]
database = "h.duckdb"
table = "visits"
key = ["id"]
person = {person}
[attributes]
pid = {{ role = "identifying" }}
age = {{ role = "quasi", hierarchy = {{ intervals = [5, 10, 20] }} }}
sex = {{ role = "quasi", hierarchy = "suppress" }}
illness = {{ role = "sensitive" }}
[privacy]
k = 3
[release]
database = "r.duckdb"
table = "visits"
"""
