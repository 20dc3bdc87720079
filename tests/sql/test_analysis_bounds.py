"""Bounds hold: of random tables, released in random ways, asked random questions. The truth is counted in Python."""

from __future__ import annotations

import random
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_labels import members
from sqlanon import InfeasibleError
from sqlanon.errors import AuditError
from support.databases import insert
from support.lanes import examples

pytestmark = pytest.mark.thorough

SEARCHES: list[dict[str, Any]] = [
    {"strategy": "optimal"},
    {"strategy": "optimal", "suppression": "cells"},
    {"strategy": "mondrian"},
    {"strategy": "mondrian", "summary": "set"},
    {"strategy": "mondrian", "summary": "set", "sets": "list"},
    {"strategy": "subtree"},
    {"strategy": "local"},
    {"strategy": "iab"},
]
CITIES = ["Bonn", "a, b", "{x", 'q"q', "Rome"]
TYPES = {
    "age": "INTEGER",
    "amount": "DECIMAL(8, 2)",
    "size": "DOUBLE",
    "day": "DATE",
    "time": "TIMESTAMP",
    "city": "VARCHAR",
}


def some_value(rng: random.Random, name: str) -> Any:
    if rng.random() < 0.05:
        return None
    match name:
        case "age":
            return rng.randint(-15, 95)
        case "amount":
            return Decimal(rng.randint(-5000, 20000)) / 100
        case "size":
            return rng.choice([rng.uniform(-2, 2), rng.uniform(0, 300), float(rng.randint(0, 50))])
        case "day":
            return date(1975, 1, 1) + timedelta(days=rng.randint(0, 5000))
        case "time":
            return datetime(2020, 1, 1) + timedelta(minutes=30 * rng.randint(0, 480))
    return rng.choice(CITIES)


def some_rule(rng: random.Random, name: str) -> Any:
    ends = rng.choice([{}, {"below": 0, "above": 60}])
    match name:
        case "age":
            return {"intervals": {"widths": [5, 10, 40], "origin": rng.choice([0, 3]), **ends}}
        case "amount" | "size":
            return {"intervals": {"widths": [rng.choice([2, 2.5]), 50, 100], **ends}}
        case "day":
            rule = rng.choice([["month", "year", "decade"], ["week"], ["quarter", "year"]])
            return rng.choice([{"dates": rule}, {"intervals": [30, 360]}])
        case "time":
            return rng.choice([{"dates": ["day", "month"]}, {"dates": ["month"]}, {"intervals": [1, 30]}, "suppress"])
    return "suppress"


def make_release(rng: random.Random, path: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """A table, the names of its columns, and the rows that its release at the path suppresses."""
    names = rng.sample(sorted(TYPES), rng.randint(1, 3))
    rows = [{name: some_value(rng, name) for name in names} for _ in range(rng.randint(8, 60))]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {TYPES[name]}' for name in names)})")
        insert(connection, "t", [list(row.values()) for row in rows])
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes={name: {"role": "quasi", "hierarchy": some_rule(rng, name)} for name in names},
            privacy={"k": rng.choice([2, 3, 5])},
            search={**rng.choice(SEARCHES), "suppression_limit": rng.choice([0, 0.1, 0.3])},
            release={"suppressed": rng.choice(["drop", "mask"])},
        )
        with sqlanon.connect(connection) as db:
            db.anonymize(policy).publish(path)
    with duckdb.connect(path, read_only=True) as connection:
        released = connection.execute("SELECT released_rows FROM sqlanon.manifest").fetchone()
    assert released is not None
    return rows, names, len(rows) - released[0]


def ends_of(rng: random.Random, name: str) -> tuple[Any, Any]:
    values = [value for _ in range(9) if (value := some_value(rng, name)) is not None]
    low, high = sorted(rng.sample(values, 2))
    if name == "time" and rng.random() < 0.3:
        low, high = low.date(), high.date()
    return (None, high) if rng.random() < 0.2 else (low, None) if rng.random() < 0.2 else (low, high)


def lies_in(value: Any, low: Any, high: Any) -> bool:
    """A day as an end of times is the whole day."""
    if isinstance(value, datetime):
        low = datetime.combine(low, time()) if type(low) is date else low
        high = datetime.combine(high, time.max) if type(high) is date else high
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_the_truth_is_within_the_bounds(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"bounds {seed}")
    try:
        rows, names, suppressed = make_release(rng, tmp_path / "r.duckdb")
    except (InfeasibleError, AuditError):
        pytest.skip("nothing to release")
    with duckdb.connect(tmp_path / "r.duckdb", read_only=True) as connection:
        for name in names:
            values = [row[name] for row in rows]
            if name == "city":
                check_members(connection, values, suppressed)
                continue
            for _ in range(4):
                low, high = ends_of(rng, name)
                truth = sum(lies_in(value, low, high) for value in values)
                query = "FROM sqlanon.estimated_count('t', ?, ?, ?, suppressed := ?)"
                sure, expected, at_most, count = row_of(connection, query, [name, low, high, suppressed])
                assert sure <= truth <= at_most <= count == len(rows), (name, low, high)
                assert expected is None or sure - 1e-6 <= expected <= at_most + 1e-6
            if name not in ("day", "time"):
                check_average(connection, name, [value for value in values if value is not None], suppressed)


def row_of(connection: duckdb.DuckDBPyConnection, query: str, values: list[Any]) -> tuple[Any, ...]:
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return row


def check_average(connection: duckdb.DuckDBPyConnection, name: str, values: list[Any], suppressed: int) -> None:
    query = "FROM sqlanon.estimated_average('t', ?, least := -60, most := 310, suppressed := ?)"
    lower, _, upper, _ = row_of(connection, query, [name, suppressed])
    if values:
        assert lower - 1e-6 <= float(sum(values)) / len(values) <= upper + 1e-6


def check_members(connection: duckdb.DuckDBPyConnection, values: list[Any], suppressed: int) -> None:
    """A value has at least the rows that show it alone, and at most those that may stand for it."""
    labels = [label for (label,) in connection.execute("SELECT city FROM t").fetchall()]
    label_members = [label if label is None or isinstance(label, list) else members(label) for label in labels]
    read = connection.execute("SELECT typeof(city) = 'VARCHAR[]' FROM t LIMIT 1").fetchone()
    if read == (False,):
        macro = connection.execute("SELECT sqlanon.members(city) FROM t").fetchall()
        assert [value for (value,) in macro] == [[None] if members_ is None else members_ for members_ in label_members]
    for city in CITIES:
        truth = values.count(city)
        alone = sum(members_ == [city] for members_ in label_members)
        possible = sum(members_ is not None and (city in members_ or "*" in members_) for members_ in label_members)
        assert alone <= truth <= possible + suppressed
        query = "FROM sqlanon.estimated_members('t', 'city', ?, suppressed := ?)"
        sure, expected, at_most, rows = row_of(connection, query, [[city], suppressed])
        assert alone == sure and possible + suppressed <= at_most <= rows == len(values)
        assert expected is None or sure - 1e-6 <= expected <= at_most + 1e-6
