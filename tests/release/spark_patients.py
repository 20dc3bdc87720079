"""Patients in Spark, and releases of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sqlanon
from support.policies import make_policy

PRIVATE = "Erika Mustermann"


@pytest.fixture
def place(session: Any) -> Iterator[Any]:
    """A session with a schema of sources, ``clinic``, and one of releases, ``shared``: both new."""
    for name in ("clinic", "shared"):
        session.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        session.sql(f"CREATE SCHEMA {name}")
    yield session
    for name in ("clinic", "shared"):
        session.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def patients(spark: Any, rows: int = 600, seed: int = 0) -> None:
    """``clinic.t``: its first column is private, and so is the description of its last."""
    draw = random.Random(seed)
    columns: dict[str, pa.Array] = {
        "name": pa.array([f"{PRIVATE} {i}" for i in range(rows)]),
        "zip": pa.array([draw.choice(["10115", "10117", "20095", "", None]) for _ in range(rows)]),
        "age": pa.array([draw.choice([None, *range(20, 60)]) for _ in range(rows)], pa.int32()),
        "diagnosis": pa.array([draw.choice(["flu", "cold", "hiv", None]) for _ in range(rows)]),
        "cost": pa.array([draw.choice([None, round(draw.uniform(-99, 9999), 2)]) for _ in range(rows)], pa.float64()),
        "number": pa.array([*range(rows)], pa.int64()),
    }
    spark.createDataFrame(pa.table(columns)).createOrReplaceTempView("drawn")
    types = "name STRING, zip STRING, age INT, diagnosis STRING, cost DOUBLE, number BIGINT"
    spark.sql(f"CREATE TABLE clinic.t ({types} COMMENT 'the cost of {PRIVATE}') USING PARQUET")
    spark.sql("INSERT INTO clinic.t SELECT * FROM drawn ORDER BY number")


ATTRIBUTES = {
    "name": "identifying",
    "zip": {"mask": "right"},
    "age": {"intervals": [5, 10, 20, 40]},
    "diagnosis": "sensitive",
    "cost": "insensitive",
    "number": "insensitive",
}


def policy_of(attributes: dict[str, Any] = ATTRIBUTES, table: str = "shared.r", **sections: Any) -> sqlanon.Policy:
    document = make_policy(attributes, 3, "clinic.t").model_dump(mode="json", include={"attributes"})
    tree = {"source": {"table": "clinic.t"}, "privacy": {"k": 3}, "release": {"spark": True, "table": table}}
    return sqlanon.Policy(**{**document, **tree, **sections})


def publish(spark: Any, policy: sqlanon.Policy | None = None) -> Any:
    with sqlanon.connect(spark) as db:
        return db.anonymize(policy or policy_of()).publish()


def names_in(spark: Any, schema: str = "shared") -> set[str]:
    return {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect() if not row["isTemporary"]}


def count_rows(spark: Any, relation: str = "shared.r") -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in spark.sql(f"SELECT * FROM {relation}").collect())
