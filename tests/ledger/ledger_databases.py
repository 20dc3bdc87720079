"""Releases of several databases in one ledger."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb

import sqlanon

ROWS = 600


def make(path: Path, seed: int = 1, rows: int = ROWS, only: tuple[str, ...] = ()) -> None:
    """Visits: few values in most columns, and a cost of which there are many."""
    chosen = random.Random(seed)
    made = [
        (20 + chosen.randrange(40), chosen.choice("fm"), f"021{chosen.randrange(10):02}", chosen.randrange(9000) / 4)
        for _ in range(rows)
    ]
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE visits (age INTEGER, sex TEXT, zip TEXT, cost DOUBLE)")
        connection.execute(f"INSERT INTO visits VALUES {str(made)[1:-1]}")
        connection.execute(f"COPY visits TO '{path.with_suffix('.csv')}' (HEADER)")


def policy(place: Path, name: str, source: dict[str, Any], finer: str, names: dict[str, str] | None = None) -> Any:
    """Two that are finer in one attribute each tell more together."""
    levels = {"age": 0 if finer == "age" else 2, "zip": 0 if finer == "zip" else 2}
    rules: dict[str, Any] = {"age": {"intervals": [20]}, "zip": {"mask": "right"}}
    called = names or {}
    attributes = {
        called.get(column, column): {
            "role": "quasi",
            "hierarchy": rule,
            "min_level": levels[column],
            "max_level": levels[column],
        }
        for column, rule in rules.items()
    }
    return sqlanon.Policy(
        source={"undeclared": "drop"} | source,
        attributes=attributes | {called.get("cost", "cost"): {"role": "insensitive"}},
        privacy={"k": 2},
        search={"suppression_limit": 0.9},
        release={"database": place / f"{name}.duckdb", "table": "visits"},
        catalog={"database": place / "catalog.duckdb"},
    )


def publish(asked: sqlanon.Policy) -> sqlanon.Result:
    with sqlanon.connect() as db:
        result = db.anonymize(asked)
        result.publish()
    return result
