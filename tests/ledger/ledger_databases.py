"""Releases of several databases in one ledger."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb

import sqlanon

ROWS = 600


def create_visits(path: Path, seed: int = 1, rows: int = ROWS, only: tuple[str, ...] = ()) -> None:
    """Create visits: most columns have few values, the cost has many."""
    draw = random.Random(seed)
    rows_of_visits = [
        (20 + draw.randrange(40), draw.choice("fm"), f"021{draw.randrange(10):02}", draw.randrange(9000) / 4)
        for _ in range(rows)
    ]
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE visits (age INTEGER, sex TEXT, zip TEXT, cost DOUBLE)")
        connection.execute(f"INSERT INTO visits VALUES {str(rows_of_visits)[1:-1]}")
        connection.execute(f"COPY visits TO '{path.with_suffix('.csv')}' (HEADER)")


def policy(folder: Path, name: str, source: dict[str, Any], finer: str, names: dict[str, str] | None = None) -> Any:
    """Two releases, each finer in another attribute, disclose more together."""
    levels = {"age": 0 if finer == "age" else 2, "zip": 0 if finer == "zip" else 2}
    rules: dict[str, Any] = {"age": {"intervals": [20]}, "zip": {"mask": "right"}}
    column_names = names or {}
    attributes = {
        column_names.get(column, column): {
            "role": "quasi",
            "hierarchy": rule,
            "min_level": levels[column],
            "max_level": levels[column],
        }
        for column, rule in rules.items()
    }
    return sqlanon.Policy(
        source={"undeclared": "drop"} | source,
        attributes=attributes | {column_names.get("cost", "cost"): {"role": "insensitive"}},
        privacy={"k": 2},
        search={"suppression_limit": 0.9},
        release={"database": folder / f"{name}.duckdb", "table": "visits"},
        catalog={"database": folder / "catalog.duckdb"},
    )


def publish(policy: sqlanon.Policy) -> sqlanon.Result:
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        result.publish()
    return result
