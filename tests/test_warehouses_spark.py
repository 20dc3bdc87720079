"""Spark as a warehouse: what sqlanon prints is run there, by hand, and releases what DuckDB does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from test_warehouses import figures, from_set, quoted, violations
from warehouse_cases import COLUMNS, HERE, policy, rows

import sqlanon

pytestmark = pytest.mark.slow

DATABASE = "sqlanon_by_hand"


def statements(file: Path) -> dict[str, str]:
    """The statements of an exported file, by what stands above each."""
    found = {}
    for block in file.read_text().split("\n\n")[1:]:
        lines = block.strip().splitlines()
        comments = [line for line in lines if line.startswith("-- ")]
        found[" ".join(comments).removeprefix("-- ")] = "\n".join(lines[len(comments) :]).removesuffix(";")
    return found


@pytest.mark.parametrize("suppressed", ["drop", "mask"])
def test_what_is_printed_runs_in_spark_and_releases_the_same(spark: Any, tmp_path: Path, suppressed: str) -> None:
    spark.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")
    spark.sql(f"CREATE DATABASE {DATABASE}")
    here = policy(tmp_path, suppressed)
    there = from_set(here, tmp_path / "f.parquet" / "*.parquet", source={"table": "patients_by_hand"})
    there = sqlanon.Policy(
        **{**there.model_dump(exclude_none=True), "release": {"table": f"{DATABASE}.r", "suppressed": suppressed}}
    )
    with duckdb.connect() as connection:
        definitions = ", ".join(f"{quoted(name)} {HERE[kind]}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE patients ({definitions})")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?)", rows())
        connection.execute(f"COPY patients TO '{tmp_path}/patients.parquet'")
        spark.read.parquet(str(tmp_path / "patients.parquet")).createOrReplaceTempView("patients_by_hand")
        with sqlanon.connect(connection) as db, sqlanon.connect() as other:
            (query,) = other.plan(there, dialect="spark").stages[0].sql
            spark.sql(query).write.parquet(str(tmp_path / "f.parquet"))
            expected, found = db.anonymize(here), other.anonymize(there)
            assert figures(found) == figures(expected) and found.suppressed_rows > 20
            folder = found.export(tmp_path / "export", "spark")
            file = expected.publish(tmp_path / "r.duckdb")
    for one in folder.glob("*.parquet"):
        spark.read.parquet(str(one)).createOrReplaceTempView(one.stem)
    for statement in statements(folder / "release.sql").values():
        spark.sql(statement)
    audit = {name: spark.sql(query).collect() for name, query in statements(folder / "audit.sql").items()}
    assert len(audit) == 9 + 1 + 2 + 2
    assert violations(audit) == {}
    columns = [column.name for column in file.manifest.columns]
    with duckdb.connect(str(file.path), read_only=True) as release:
        order = ", ".join(f"CAST({quoted(name)} AS VARCHAR)" for name in columns)
        ours = Counter(release.execute(f"SELECT {order} FROM {file.table}").fetchall())
    listed = ", ".join(f"CAST(`{name}` AS STRING)" for name in columns)
    assert Counter(tuple(row) for row in spark.sql(f"SELECT {listed} FROM {DATABASE}.r").collect()) == ours
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")
