"""Mistakes with sources in Spark that reviews found: days before our era, changed settings, texts of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines import federation
from sqlanon.errors import SourceError
from support.thresholds import SMALL_SET, SMALL_SPARK

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_cluster")]


@contextmanager
def in_both(session: Any, query: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A table ``t`` in DuckDB and in Spark, by a query that both understand alike."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t AS {query}")
        session.createDataFrame(connection.sql("FROM t").to_arrow_table()).createOrReplaceTempView("t")
        try:
            yield connection
        finally:
            session.catalog.dropTempView("t")


def released_rows(source: Any, policy: sqlanon.Policy, path: Path) -> tuple[str, list[tuple[Any, ...]]]:
    """The digest of a release, and its rows as text."""
    with sqlanon.connect(source) as db:
        release = db.anonymize(policy).publish(path)
        assert isinstance(release, sqlanon.Release)
        assert release.verify().verified and db.verify(path, policy).verified
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {release.table} ORDER BY ALL").fetchall()
    return release.manifest.digest, rows


DAYS = """
    SELECT i AS id, CASE WHEN i < 3 THEN DATE '0045-01-01 (BC)' WHEN i < 6 THEN DATE '0045-01-01'
        WHEN i < 9 THEN DATE '0001-01-01 (BC)' WHEN i < 12 THEN DATE '9999-12-31' ELSE DATE '12000-06-01' END AS d,
        (CASE WHEN i < 8 THEN DATE '0001-01-01 (BC)' ELSE DATE '12000-06-01' END)::TIMESTAMPTZ + INTERVAL 5 SECOND AS at
    FROM range(15) AS r(i)
"""
"""Days that engines write, and read, in ways of their own."""


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_days_are_those_that_they_were(
    session: Any, small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the days have the same text in Spark; each person is released once."""
    if not small:
        monkeypatch.setattr(SMALL_SPARK, 3)
        monkeypatch.setattr(SMALL_SET, 3)
    with in_both(session, DAYS) as connection:
        days = connection.execute("SELECT DISTINCT d::VARCHAR FROM t ORDER BY 1").fetchall()
        labels = {day: ("early" if "BC" in day else "late") for (day,) in days}
        file = tmp_path / "d.csv"
        file.write_text("".join(f"{day},{label},*\n" for day, label in labels.items()))
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes={
                "d": {"role": "quasi", "hierarchy": {"file": str(file)}},
                "id": {"role": "insensitive"},
                "at": {"role": "insensitive"},
            },
            privacy={"k": 6},
            search={"suppression_limit": 0.0},
        )
        from_spark, from_duckdb = (
            released_rows(source, policy, tmp_path / f"{i}.duckdb") for i, source in enumerate((session, connection))
        )
    assert from_spark == from_duckdb
    assert sorted(int(row[0]) for row in from_spark[1]) == list(range(15))


def test_a_time_zone_that_is_set_meanwhile(session: Any, tmp_path: Path) -> None:
    instants = "SELECT i AS id, TIMESTAMPTZ '2024-01-01 12:00:00+00' AS at, i % 2 AS half FROM range(8) AS r(i)"
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={
            "half": {"role": "quasi", "hierarchy": "suppress"},
            "at": {"role": "quasi", "hierarchy": {"dates": ["year"]}},
            "id": {"role": "insensitive"},
        },
        privacy={"k": 2},
    )
    before = session.conf.get("spark.sql.session.timeZone")
    with in_both(session, instants) as connection, sqlanon.connect(session) as db:
        result = db.anonymize(policy)
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        session.conf.set("spark.sql.ansi.enabled", "false")
        release = result.publish(tmp_path / "there.duckdb")
        assert isinstance(release, sqlanon.Release)
        digest = release.manifest.digest
        assert digest == released_rows(connection, policy, tmp_path / "here.duckdb")[0]
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"  # its user's newest word
    session.conf.set("spark.sql.session.timeZone", before)
    session.conf.set("spark.sql.ansi.enabled", "true")


def test_masked_rows_beside_numbers(session: Any, tmp_path: Path) -> None:
    """Labels of a masked column are text, which each engine makes of a number in its own way."""
    x = "[1.5, 1e-7, 1e23, 9.25][1 + least(i // 3, 3)]::DOUBLE + (i = 10)::INT"
    numbers = f"SELECT i AS id, {x} AS x FROM range(11) AS r(i)"
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={"x": {"role": "quasi", "hierarchy": "suppress"}, "id": {"role": "insensitive"}},
        privacy={"k": 2},
        search={"suppression_limit": 0.5, "measure": "precision"},
        release={"suppressed": "mask"},
    )
    with in_both(session, numbers) as connection:
        from_spark, from_duckdb = (
            released_rows(source, policy, tmp_path / f"{i}.duckdb") for i, source in enumerate((session, connection))
        )
    assert from_spark == from_duckdb and {"*", "1.5", "1e-07", "1e+23"} == {row[1] for row in from_duckdb[1]}


def test_files_need_a_folder_that_all_see(session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An executor on another machine would leave private counts there."""
    monkeypatch.setattr(federation, "ROWS_AT_ONCE", 2)
    policy = sqlanon.Policy(
        source={"table": "t"},
        attributes={"x": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"k": 2},
    )
    with in_both(session, "SELECT i % 2 AS x FROM range(8) AS r(i)"):
        assert len(released_rows(session, policy, tmp_path / "r.duckdb")[1]) == 8
        monkeypatch.setattr("sqlanon.engines.spark.engine.SparkEngine.is_local", False)
        with sqlanon.connect(session) as db, pytest.raises(SourceError, match="scratch"):
            db.anonymize(policy).publish(tmp_path / "s.duckdb")
        shared = policy.model_copy(update={"source": policy.source.model_copy(update={"scratch": tmp_path})})
        assert len(released_rows(session, shared, tmp_path / "t.duckdb")[1]) == 8
    assert {path.name for path in tmp_path.iterdir()} == {"r.duckdb", "t.duckdb"}
