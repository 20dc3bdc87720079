"""Linked tables in Spark: only counts and released rows leave it."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sqlanon.database import connect
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.errors import AuditError, ReleaseError, SourceError, SqlanonError
from sqlanon.linked.publish.targets import spark as linked_spark
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.publish.targets.spark.target import switch_view
from support.commands import cli
from support.linked_cases import load_spark_table
from support.linked_hospital import POLICY, fewest_candidates, fix_levels, known_of, make_hospital

pytest.importorskip("pyspark", reason="the extra spark is not installed")


def load_hospital(spark: Any, folder: Path, policy: str = POLICY) -> Path:
    """Copy the hospital to the schema clinic; its policy."""
    make_hospital(folder)
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        for name in ("patients", "visits", "labs"):
            load_spark_table(spark, f"clinic.{name}", connection.sql(f"SELECT * FROM {name}").to_arrow_table())
            policy = policy.replace(f'name = "{name}"', f'name = "{name}"\ntable = "clinic.{name}"')
    (folder / "hospital.duckdb").unlink()
    policy = policy.replace('database = "hospital.duckdb"', f'spark = "{spark.sparkContext.master}"')
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    return folder / "policy.toml"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[pa.Table]:
    """Every result that leaves Spark."""
    results: list[pa.Table] = []
    read_arrow = SparkEngine._arrow

    def read(engine: SparkEngine, query: Any, parameters: Any = ()) -> pa.Table:
        results.append(read_arrow(engine, query, parameters))
        return results[-1]

    monkeypatch.setattr(SparkEngine, "_arrow", read)
    return results


def test_only_counts_and_released_rows_leave_spark(clinic: Any, tmp_path: Path, fetched: list[pa.Table]) -> None:
    policy = LinkedPolicy.load(load_hospital(clinic, tmp_path, fix_levels(POLICY)))
    before = clinic.sql("SHOW VIEWS").collect()
    with connect(clinic) as db:
        result = db.anonymize(policy)
        of_many = [arrow.column_names for arrow in fetched if arrow.num_rows > 1]
        assert of_many == [["value", "rows"]] * 4, "the values of each quasi-identifier"
        clinic.sql("TRUNCATE TABLE clinic.labs")
        release = result.publish(tmp_path / "release.duckdb")
        assert release.manifest.table("labs").released_rows > 0, "the rows are those of the search"
    assert clinic.sql("SHOW VIEWS").collect() == before, "the tables of the search are dropped"
    values = {value for arrow in fetched for column in arrow.columns for value in column.to_pylist()}
    keys = {*range(1000, 1060), *range(5000, 5200)}
    assert not values & {*keys, *map(str, keys)}
    assert not any(isinstance(value, str) and value.startswith("name ") for value in values)
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        persons = known_of(lambda query: connection.execute(query).fetchall())
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3


def test_dates_are_moved_in_spark_and_other_releases_of_the_persons_are_found(clinic: Any, tmp_path: Path) -> None:
    quasi = 'role = "quasi", hierarchy = { dates = ["month", "year"] }, min_level = 3, max_level = 3'
    text = fix_levels(POLICY).replace(quasi, 'role = "sensitive", hierarchy = { dates = { shift = 30 } }')
    text = load_hospital(clinic, tmp_path, f'{text}\n[catalog]\ndatabase = "private.duckdb"\n').read_text()
    other = text.replace("release.duckdb", "other.duckdb").replace("k = 3", "k = 2")
    (tmp_path / "other.toml").write_text(other, encoding="utf-8")
    source = clinic.sql("SELECT patient_id, admitted FROM clinic.visits").collect()
    with connect(clinic) as db:
        db.anonymize(LinkedPolicy.load(tmp_path / "policy.toml")).publish()
        with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
            released = connection.execute("SELECT patient_id, admitted FROM visits").fetchall()
        with pytest.raises(AuditError, match="about the persons or rows of 'patients'"):
            db.anonymize(LinkedPolicy.load(tmp_path / "other.toml")).publish()
    assert find_stays(released) <= find_stays(source)
    assert len({day for _, day in released} - {day for _, day in source}) > 3


def find_stays(visits: list[Any]) -> Counter[tuple[int, ...]]:
    """The days between the first and each other visit, of each person."""
    days = defaultdict[int, list[date]](list)
    for person, day in visits:
        days[person].append(day)
    return Counter(tuple(sorted((day - min(person_days)).days for day in person_days)) for person_days in days.values())


IN_SPARK = fix_levels(POLICY).replace('database = "release.duckdb"', 'spark = true\nschema_name = "shared"')
IN_SPARK += '\n[catalog]\ndatabase = "private.duckdb"\n'


def count_intents(catalog: Path) -> int:
    """The publications of the ledger that may have succeeded."""
    with duckdb.connect(str(catalog), read_only=True) as connection:
        return len(connection.execute("FROM sqlanon.releases WHERE intended_at IS NOT NULL").fetchall())


def test_all_tables_are_released_in_spark_together_or_none(
    clinic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = LinkedPolicy.load(load_hospital(clinic, tmp_path, IN_SPARK))

    def read(query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in clinic.sql(query.replace("FROM ", "FROM shared.")).collect()]

    def list_tables() -> set[str]:
        return {row["tableName"] for row in clinic.sql("SHOW TABLES IN shared").collect() if not row["isTemporary"]}

    planned = cli("plan", tmp_path / "policy.toml")
    assert (planned.status, "Spark, schema shared" in planned.out) == (0, True), planned.err
    with connect(clinic) as db:
        release = db.anonymize(policy).publish()
        assert fewest_candidates(known_of(read)) >= 3
        assert release.verify().verified
        verification = db.verify(clinic, policy, "shared")
        assert verification.verified, verification
        attacked = cli("attack", clinic.sparkContext.master, "--schema", "shared")
        assert (attacked.status, attacked.err) == (0, ""), attacked.err
        names = {"patients", "visits", "labs"}
        assert list_tables() == names | {f"{name}_v1{end}" for name in names for end in ("", "_manifest")}
        before = {name: read(f"SELECT * FROM {name} ORDER BY ALL") for name in names}

        changed: list[str] = []

        def fail_at_the_second(server: Any, location: Any, *rest: Any) -> None:
            changed.append(location.name)
            if len(changed) == 2:
                raise ReleaseError("the catalog is gone")
            switch_view(server, location, *rest)

        monkeypatch.setattr(linked_spark, "switch_view", fail_at_the_second)
        with pytest.raises(ReleaseError, match="the catalog is gone"):
            db.anonymize(policy).publish()
        monkeypatch.undo()
        assert count_intents(tmp_path / "private.duckdb") == 0
        assert {name: read(f"SELECT * FROM {name} ORDER BY ALL") for name in names} == before
        assert list_tables() == names | {f"{name}_v1{end}" for name in names for end in ("", "_manifest")}
        assert release.verify().verified

        assert db.anonymize(policy).publish().manifest.version == 2
        assert list_tables() == names | {f"{name}_v2{end}" for name in names for end in ("", "_manifest")}
        clinic.sql("INSERT INTO shared.visits_v2 SELECT * FROM shared.visits_v2 LIMIT 1")
        assert not release.verify().verified
        clinic.sql("DROP VIEW shared.labs")
        assert "table 'labs' has no manifest, or no view shows it" in str(release.verify())
        text = (tmp_path / "policy.toml").read_text(encoding="utf-8")
        (tmp_path / "policy.toml").write_text(text.replace('"shared"', '"clinic"'), encoding="utf-8")
        with pytest.raises(SourceError, match=r"release.schema_name: is in the source's schema 'clinic'"):
            db.plan(LinkedPolicy.load(tmp_path / "policy.toml"))


def test_a_view_that_cannot_be_restored_leaves_the_record_of_its_release(
    clinic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, changed = LinkedPolicy.load(load_hospital(clinic, tmp_path, IN_SPARK)), list[str]()

    def fail_at_the_second(server: Any, location: Any, *rest: Any) -> None:
        changed.append(location.name)
        if len(changed) == 2:
            raise ReleaseError("the catalog is gone")
        switch_view(server, location, *rest)

    def fail(*_: Any) -> None:
        raise ReleaseError("the session is gone")

    with connect(clinic) as db:
        with monkeypatch.context() as patch:
            patch.setattr(linked_spark, "switch_view", fail_at_the_second)
            patch.setattr(linked_spark, "show_version", fail)
            with pytest.raises(SqlanonError, match="patients may show the new version") as raised:
                db.anonymize(policy).publish()
        assert not isinstance(raised.value, ReleaseError), "the ledger would take it as unpublished"
        assert count_intents(tmp_path / "private.duckdb") == 3
        assert db.anonymize(policy).publish().verify().verified, "the next release mends it"
        assert count_intents(tmp_path / "private.duckdb") == 0
