"""Spark as a warehouse: what sqlanon prints is run there, by hand, and releases what DuckDB does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from properties.warehouse_cases import COLUMNS, HERE, TOP, policy, rows
from support.databases import quote_name
from support.warehouse_checks import DIFFERING, figures, from_set, violations

pytestmark = pytest.mark.spark

DATABASE = "sqlanon_by_hand"


def statements(file: Path) -> list[tuple[str, str]]:
    """The statements of an exported file, each with the comment above it."""
    parts = []
    for block in file.read_text().split("\n\n")[1:]:
        lines = block.strip().splitlines()
        comments = [line for line in lines if line.startswith("-- ")]
        parts.append((" ".join(comments).removeprefix("-- "), "\n".join(lines[len(comments) :]).removesuffix(";")))
    return parts


def run_audit(session: Any, folder: Path) -> dict[str, list[Any]]:
    """The rows of each query of the audit, by the comment above it."""
    answers = {name: session.sql(query).collect() for name, query in statements(folder / "audit.sql")}
    del answers["A setting that the queries depend on"]
    return answers


def hostile(session: Any) -> Any:
    """Another session with unusual settings, which has the views of the first."""
    second_session = session.newSession()
    second_session.udf.register("rand", lambda: 0.5, "double")
    values = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.functionResolution.sessionOrder": "first",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.parser.quotedRegexColumnNames": "true",
    }
    for name, value in values.items():
        second_session.conf.set(name, value)
    assert second_session.sql("SELECT rand()").collect()[0][0] == 0.5
    assert second_session.sql("SELECT '${env:PATH}'").collect()[0][0] != "${env:PATH}"
    return second_session


@pytest.mark.parametrize("suppressed", ["drop", pytest.param("mask", marks=pytest.mark.thorough)])
def test_printed_sql_runs_in_spark_and_releases_the_same(spark: Any, tmp_path: Path, suppressed: str) -> None:
    spark.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")
    spark.sql(f"CREATE DATABASE {DATABASE}")
    source_policy = policy(tmp_path, suppressed)
    set_policy = from_set(source_policy, tmp_path / "f.parquet" / "*.parquet", source={"table": "patients_by_hand"})
    set_policy = sqlanon.Policy(
        **{**set_policy.model_dump(exclude_none=True), "release": {"table": f"{DATABASE}.r", "suppressed": suppressed}}
    )
    session = hostile(spark)
    with duckdb.connect() as connection:
        definitions = ", ".join(f"{quote_name(name)} {HERE[kind]}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE patients ({definitions})")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?)", rows())
        connection.execute(f"COPY patients TO '{tmp_path}/patients.parquet'")
        patients = spark.read.parquet(str(tmp_path / "patients.parquet"))
        patients.createOrReplaceTempView("patients_by_hand")
        session.read.parquet(str(tmp_path / "patients.parquet")).createOrReplaceTempView("patients_by_hand")
        with sqlanon.connect(connection) as db, sqlanon.connect() as second_db:
            (query,) = second_db.plan(set_policy, dialect="spark").stages[0].sql
            spark.sql(query).write.parquet(str(tmp_path / "f.parquet"))
            expected, exported = db.anonymize(source_policy), second_db.anonymize(set_policy)
            assert figures(exported) == figures(expected) and exported.suppressed_rows > 20
            folder = exported.export(tmp_path / "export", "spark")
            file = expected.publish(tmp_path / "r.duckdb")
    for path in folder.glob("*.parquet"):
        session.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    for _, statement in statements(folder / "release.sql"):
        session.sql(statement)
    audit = run_audit(session, folder)
    assert len(audit) == 9 + 1 + 3 + 2
    assert violations(audit) == {}
    columns = [column.name for column in file.manifest.columns]
    with duckdb.connect(str(file.path), read_only=True) as release:
        order = ", ".join(f"CAST({quote_name(name)} AS VARCHAR)" for name in columns)
        ours = Counter(release.execute(f"SELECT {order} FROM {file.table}").fetchall())
    text = ", ".join(f"CAST(`{name}` AS STRING)" for name in columns)
    released_query = f"SELECT {text} FROM {DATABASE}.r"
    assert Counter(tuple(row) for row in spark.sql(released_query).collect()) == ours
    assert any(TOP in row for row in ours) == (suppressed == "mask")
    # A row that another of its class has taken the place of breaks nothing else.
    keys = ", ".join(f"`{name}`" for name in columns[:4])
    place = f"row_number() OVER (PARTITION BY {keys} ORDER BY cost)"
    changed = f"SELECT *, {place} AS place, count(*) OVER (PARTITION BY {keys}, cost) AS same FROM {DATABASE}.r"
    costs = f"CASE WHEN place = 1 AND same = 1 THEN lead(cost) OVER (PARTITION BY {keys} ORDER BY cost) ELSE cost END"
    names = ", ".join(f"`{name}`" for name in columns if name != "cost")
    session.sql(f"CREATE TABLE {DATABASE}.other AS SELECT {names}, coalesce({costs}, cost) AS cost FROM ({changed})")
    session.sql(f"DROP TABLE {DATABASE}.r")
    session.sql(f"ALTER TABLE {DATABASE}.other RENAME TO {DATABASE}.r")
    exported = violations(run_audit(session, folder))
    assert exported.keys() == {DIFFERING}
    differ = {tuple(str(value) for value in row[:-2]): tuple(row[-2:]) for row in exported[DIFFERING]}
    now = Counter(tuple(row) for row in session.sql(released_query).collect())
    expected_now = {row: (ours[row], now[row]) for row in ours | now if ours[row] != now[row]}
    assert len(differ) == len(expected_now) > 1
    assert sorted(differ.values()) == sorted(expected_now.values())
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")
