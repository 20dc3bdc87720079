"""A hospital whose releases a ledger records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon

# Sweeney 2002, figure 4.
PRIVATE = [
    ("black", "1965-09-20", "male", "02141", "short of breath"),
    ("black", "1965-02-14", "male", "02141", "chest pain"),
    ("black", "1965-10-23", "female", "02138", "painful eye"),
    ("black", "1965-08-24", "female", "02138", "wheezing"),
    ("black", "1964-11-07", "female", "02138", "obesity"),
    ("black", "1964-12-01", "female", "02138", "chest pain"),
    ("white", "1964-10-23", "male", "02138", "short of breath"),
    ("white", "1965-03-15", "female", "02139", "hypertension"),
    ("white", "1964-08-13", "male", "02139", "obesity"),
    ("white", "1964-05-05", "male", "02139", "fever"),
    ("white", "1967-02-13", "male", "02138", "vomiting"),
    ("white", "1967-03-21", "male", "02138", "back pain"),
]


def policy(place: Path, name: str, levels: dict[str, int], k: int = 2, **more: Any) -> sqlanon.Policy:
    """A policy that permits a single generalization, so that its release is known."""
    rules: dict[str, Any] = {
        "race": "suppress",
        "birth": {"dates": ["year", "decade"]},
        "sex": "suppress",
        "zip": {"mask": "right"},
    }
    attributes: dict[str, Any] = {
        attribute: {"role": "quasi", "hierarchy": rule}
        | ({"min_level": levels[attribute], "max_level": levels[attribute]} if attribute in levels else {})
        for attribute, rule in rules.items()
    }
    release = {"database": place / f"{name}.duckdb", "table": "patients", **more.pop("release", {})}
    return sqlanon.Policy(
        source={"database": place / "hospital.duckdb", "table": "patients", **more.pop("source", {})},
        attributes=attributes | {"problem": {"role": "sensitive"}} | more.pop("attributes", {}),
        privacy={"k": k} | more.pop("privacy", {}),
        search={"suppression_limit": 0.5} | more.pop("search", {}),
        release=release,
        catalog={"database": place / "private.duckdb"},
    )


def make_hospital(place: Path) -> None:
    with duckdb.connect(str(place / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE patients (race TEXT, birth DATE, sex TEXT, zip TEXT, problem TEXT)")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?)", PRIVATE)


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    make_hospital(tmp_path)
    return tmp_path


def publish(requested_policy: sqlanon.Policy, force: bool = False) -> tuple[Any, Any]:
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        return result, result.publish(force=force)


FINE_RACE = {"race": 0, "birth": 1, "sex": 0, "zip": 1}


FINE_ZIP = {"race": 1, "birth": 2, "sex": 0, "zip": 0}
