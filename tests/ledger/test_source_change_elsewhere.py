"""Persons who have left a source in PostgreSQL or Spark are counted by hashes of the ledger's sample."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import AuditError
from sqlanon.ledger import people_samples
from sqlanon.release.source_change import SOURCE_CHECK, SourceChange
from support.servers.postgres import VARIABLE, Server
from support.verification import failed_checks

ROWS = [(f"p{i % 60}", 20 + (i % 60) % 20, f"illness {i % 4}") for i in range(180)]
LEFT = [row for i, row in enumerate(ROWS) if row[0] not in ("p1", "p2", "p3") and i != 10]
"""Three persons have left, with three rows each, and a row of a person who keeps two."""


def policy(folder: Path, source: dict[str, Any], release: dict[str, Any] | None = None) -> sqlanon.Policy:
    return sqlanon.Policy(
        source=source | {"person": "pid"},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": 3},
        search={"suppression_limit": 0.2},
        release=release or {"database": folder / "r.duckdb", "table": "visits"},
        catalog={"database": folder / "c.duckdb"},
    )


def source_change(db: sqlanon.Database, folder: Path, source: dict[str, Any]) -> SourceChange:
    verification = db.verify(folder / "r.duckdb", policy(folder, source))
    assert failed_checks(verification) == {SOURCE_CHECK}, verification.failures
    assert isinstance(verification.source_change, SourceChange)
    return verification.source_change


def check_withdrawal(db: sqlanon.Database, policy: sqlanon.Policy, *place: Any) -> None:
    """The others of the classes of those who left are suppressed; the single row singles somebody out."""
    withdrawal = db.withdraw(policy)
    assert withdrawal.source_change.withdrawn_persons == 3
    assert (withdrawal.only_released_rows, withdrawal.same_generalization) == (False, True)
    with pytest.raises(AuditError, match="1 row is gone, fewer than 7 in one class"):
        withdrawal.publish()
    release = db.withdraw(policy).publish(force=True)
    assert release.manifest.released_rows + release.manifest.suppressed_rows == len(LEFT)
    assert release.manifest.smallest_class >= 3
    verified = db.verify(place[0], policy, *place[1:])
    assert verified.verified, verified.failures


@pytest.mark.slow
def test_a_release_in_postgresql_is_published_again_without_withdrawn_persons(postgres: Server, tmp_path: Path) -> None:
    columns, source = {"pid": "text", "age": "integer", "illness": "text"}, {"postgres": f"env:{VARIABLE}"}
    wanted = policy(tmp_path, source | {"table": "erased.visits"}, source | {"table": "shown.visits"})
    schemas = ("DROP SCHEMA IF EXISTS erased CASCADE", "DROP SCHEMA IF EXISTS shown CASCADE")
    postgres.run(*schemas, "CREATE SCHEMA erased", "CREATE SCHEMA shown")
    try:
        postgres.load("erased.visits", columns, ROWS)
        with sqlanon.connect() as db:
            db.anonymize(wanted).publish()
            postgres.run("DROP TABLE erased.visits")
            postgres.load("erased.visits", columns, LEFT)
            check_withdrawal(db, wanted, f"env:{VARIABLE}", "shown.visits")
    finally:
        postgres.run(*schemas)


@pytest.mark.thorough
def test_withdrawn_persons_in_postgresql_are_counted_by_their_hashes(postgres: Server, tmp_path: Path) -> None:
    def load(rows: list[tuple[str, int, str]]) -> None:
        postgres.run("DROP SCHEMA IF EXISTS erased CASCADE", "CREATE SCHEMA erased")
        postgres.load("erased.visits", {"pid": "text", "age": "integer", "illness": "text"}, rows)

    source = {"postgres": f"env:{VARIABLE}", "table": "erased.visits"}
    load(ROWS)
    try:
        with sqlanon.connect() as db:
            db.anonymize(policy(tmp_path, source)).publish()
            load(LEFT)
            change = source_change(db, tmp_path, source)
            check_withdrawal(db, policy(tmp_path, source), tmp_path / "r.duckdb")
    finally:
        postgres.run("DROP SCHEMA erased CASCADE")
    assert (change.withdrawn_persons, change.is_estimate, change.rows_now) == (3, False, 170)
    assert change.has_lost_rows


@pytest.mark.thorough
def test_persons_who_left_postgresql_are_named_where_others_have_come_with_their_rows(
    postgres: Server, tmp_path: Path
) -> None:
    columns, source = {"pid": "text", "age": "integer", "illness": "text"}, {"postgres": f"env:{VARIABLE}"}
    postgres.run("DROP SCHEMA IF EXISTS erased CASCADE", "CREATE SCHEMA erased")
    postgres.load("erased.visits", columns, ROWS)
    try:
        with sqlanon.connect() as db:
            erased_source = source | {"table": "erased.visits"}
            db.anonymize(policy(tmp_path, erased_source)).publish()
            assert db.verify(tmp_path / "r.duckdb", policy(tmp_path, erased_source)).verified
            postgres.run("UPDATE erased.visits SET pid = 'newcomer' WHERE pid = 'p5'")
            change = source_change(db, tmp_path, erased_source)
    finally:
        postgres.run("DROP SCHEMA erased CASCADE")
    assert (change.withdrawn_persons, change.rows_now) == (1, 180)


@pytest.mark.thorough
@pytest.mark.spark
def test_withdrawn_persons_in_spark_are_counted_by_their_hashes(
    session: Any, spark_cluster: Any, tmp_path: Path
) -> None:
    def load(rows: list[tuple[str, int, str]]) -> None:
        file = tmp_path / f"{len(rows)}.parquet"
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE visits (pid VARCHAR, age INTEGER, illness VARCHAR)")
            connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
            connection.execute(f"COPY visits TO '{file}' (FORMAT parquet)")
        session.read.parquet(str(file)).createOrReplaceTempView("visits")

    load(ROWS)
    with sqlanon.connect(session) as db:
        db.anonymize(policy(tmp_path, {"table": "visits"})).publish()
        load(LEFT)
        change = source_change(db, tmp_path, {"table": "visits"})
        check_withdrawal(db, policy(tmp_path, {"table": "visits"}), tmp_path / "r.duckdb")
    assert (change.withdrawn_persons, change.is_estimate, change.rows_now) == (3, False, 170)


@pytest.mark.thorough
@pytest.mark.spark
def test_a_release_in_spark_is_not_compared_and_replaced_by_force(
    session: Any, spark_cluster: Any, tmp_path: Path
) -> None:
    def load(rows: list[tuple[str, int, str]]) -> None:
        session.sql("DROP TABLE IF EXISTS erased.visits")
        session.createDataFrame(rows, "pid string, age int, illness string").write.saveAsTable("erased.visits")

    wanted = policy(tmp_path, {"table": "erased.visits"}, {"spark": True, "table": "erased_shown.visits"})
    schemas = ("erased", "erased_shown")
    for schema in schemas:
        session.sql(f"CREATE SCHEMA {schema}")
    try:
        load(ROWS)
        with sqlanon.connect(session) as db:
            db.anonymize(wanted).publish()
            load(LEFT)
            withdrawal = db.withdraw(wanted)
            assert withdrawal.source_change.withdrawn_persons == 3
            with pytest.raises(AuditError, match="releases there cannot be compared yet") as error:
                withdrawal.publish()
            message = str(error.value)
            assert "readers who kept the earlier release find the rows that are gone" in message
            assert "the risk to rows of releases that were not compared is then unknown" in message
            release = db.withdraw(wanted).publish(force=True)
            assert release.manifest.released_rows + release.manifest.suppressed_rows == len(LEFT)
            verified = db.verify(session, wanted, "erased_shown.visits")
        assert verified.verified, verified.failures
    finally:
        for schema in schemas:
            session.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.slow
def test_withdrawn_persons_of_large_sources_are_estimated_from_a_sample(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people_samples, "SAMPLED_PEOPLE", 200)
    rows = [(f"p{i}", 20 + i % 20, f"illness {i % 4}") for i in range(1000)]
    left = [row for row in rows if random.Random(row[0]).random() > 0.3]
    source = {"postgres": f"env:{VARIABLE}", "table": "erased.visits"}
    columns = {"pid": "text", "age": "integer", "illness": "text"}
    postgres.run("DROP SCHEMA IF EXISTS erased CASCADE", "CREATE SCHEMA erased")
    try:
        postgres.load("erased.visits", columns, rows)
        with sqlanon.connect() as db:
            db.anonymize(policy(tmp_path, source)).publish()
            postgres.run("DROP TABLE erased.visits")
            postgres.load("erased.visits", columns, left)
            change = source_change(db, tmp_path, source)
    finally:
        postgres.run("DROP SCHEMA erased CASCADE")
    assert change.is_estimate
    withdrawn = len(rows) - len(left)
    assert change.withdrawn_persons is not None
    assert abs(change.withdrawn_persons - withdrawn) < 4 * (withdrawn * 0.7 / 0.2) ** 0.5  # four standard deviations
