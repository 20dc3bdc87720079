"""Linked tables in Spark: only counts and released rows leave it."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from oracles.oracle_linked import best
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.database import connect
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.errors import AuditError, InfeasibleError, ReleaseError, SourceError, SqlanonError
from sqlanon.linked.publish.targets import spark as linked_spark
from sqlanon.linked.records import encode_tables
from sqlanon.linked.search import LinkedTask
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.publish.targets.spark.target import switch_view
from support.commands import cli
from support.lanes import examples
from support.linked_hospital import POLICY, fewest_candidates, fix_levels, known_of, make_hospital

pytest.importorskip("pyspark", reason="the extra spark is not installed")

pytestmark = pytest.mark.spark


@pytest.fixture
def clinic(session: Any) -> Iterator[Any]:
    """A session with a schema of sources, ``clinic``, and one of releases, ``shared``: both new."""
    for name in ("clinic", "shared"):
        session.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        session.sql(f"CREATE SCHEMA {name}")
    yield session
    for name in ("clinic", "shared"):
        session.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def load_table(spark: Any, name: str, rows: pa.Table) -> None:
    """Create a table of a schema."""
    spark.createDataFrame(rows).createOrReplaceTempView("drawn")
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} USING PARQUET AS SELECT * FROM drawn")
    spark.catalog.dropTempView("drawn")


def load_case(spark: Any, case: LinkedCase, folder: Path) -> tuple[duckdb.DuckDBPyConnection, dict[str, Any]]:
    """Create the tables of a case in Spark and in DuckDB, and write its hierarchies to files; the policy's sections.

    The first two tables have a sensitive attribute, ``s``.
    """
    tree, draw, connection = case.policy(), random.Random(1), duckdb.connect()
    connection.execute("CREATE SCHEMA clinic")
    for t, (table, section) in enumerate(zip(case.database.tables, tree["table"], strict=True)):
        section["table"] = f"clinic.{table.name}"
        columns = {f"id_{t}": pa.int32(), **({f"parent_{t}": pa.int32()} if table.parent is not None else {})}
        columns |= dict.fromkeys([*table.names, *(["s"] if t < 2 else [])], pa.string())
        rows = []
        for row in table.rows:
            keys = [row.number + 100, *([] if row.parent is None else [row.parent + 100])]
            rows.append([*keys, *row.values, *([draw.choice(["a", "a", "b", "c", None])] if t < 2 else [])])
        arrow = pa.table(
            {name: pa.array([row[i] for row in rows], type_) for i, (name, type_) in enumerate(columns.items())}
        )
        load_table(spark, section["table"], arrow)
        connection.from_arrow(arrow).create(section["table"])
        section["attributes"] |= {"s": {"role": "sensitive"}} if t < 2 else {}
        for name, hierarchy in zip(table.names, table.hierarchies, strict=True):
            file = folder / f"{name}.csv"
            file.write_text("".join(f"{';'.join(map(str, path))}\n" for path in hierarchy.paths.values()))
            section["attributes"][name]["hierarchy"] = {"file": str(file)}
    return connection, tree


FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "rows": ({}, {"row_suppression_limit": 0.3}),
    "recursive": ({"l_diversity": [{"attribute": "t0.s", "kind": "recursive", "l": 2, "c": 2}]}, {}),
    "confidence": ({"confidence": [{"attribute": "t1.s", "max": 0.6}]}, {}),
    "entropy": ({"l_diversity": [{"attribute": "t0.s", "kind": "entropy", "l": 1.5}]}, {}),
    "alpha_k": ({"alpha_k": [{"attribute": "t0.s", "alpha": 0.7}]}, {}),
}
"""Additions to ``[privacy]`` and ``[search]``."""


@pytest.mark.thorough
def test_every_generalization_keeps_what_duckdb_keeps(clinic: Any, tmp_path: Path) -> None:
    """Other tests compare the results of DuckDB with oracles. Each case has one of the features."""
    for number, case in enumerate(small_cases(4, examples(24), first=100)):
        connection, tree = load_case(clinic, case, tmp_path)
        privacy, search = FEATURES[list(FEATURES)[number % len(FEATURES)]]
        tree["privacy"] |= privacy
        tree["search"] |= search
        with connect(clinic) as db, connect(connection) as local_db:
            task, local_task = (
                LinkedTask(encode_tables(database._workspace, LinkedPolicy(**tree)), lambda *_: None)
                for database in (db, local_db)
            )
            for levels in itertools.product(*(range(height + 1) for height in case.database.heights)):
                assert task.check(levels) == local_task.check(levels), (number, levels)


def test_the_optimum_is_the_oracles(clinic: Any, tmp_path: Path) -> None:
    for case in small_cases(6, examples(10)):
        expected = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
        _, tree = load_case(clinic, case, tmp_path)
        with connect(clinic) as db:
            try:
                result = db.anonymize(LinkedPolicy(**tree))
            except InfeasibleError:
                assert expected is None
                continue
        assert expected is not None
        assert result.score == pytest.approx(expected.score)
        assert result.levels == expected.levels
        assert result.suppressed_persons == expected.suppressed_persons


def load_hospital(spark: Any, folder: Path, policy: str = POLICY) -> Path:
    """Copy the hospital to the schema clinic; its policy."""
    make_hospital(folder)
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        for name in ("patients", "visits", "labs"):
            load_table(spark, f"clinic.{name}", connection.sql(f"SELECT * FROM {name}").to_arrow_table())
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


@pytest.mark.thorough
def test_dates_are_moved_in_spark_and_other_releases_of_the_persons_are_found(clinic: Any, tmp_path: Path) -> None:
    quasi = 'role = "quasi", hierarchy = { dates = ["month", "year"] }, min_level = 3, max_level = 3'
    text = fix_levels(POLICY).replace(quasi, 'role = "sensitive", hierarchy = { dates = { shift = 30 } }')
    text = load_hospital(clinic, tmp_path, f'{text}\n[catalog]\ndatabase = "private.duckdb"\n').read_text()
    second_policy = text.replace("release.duckdb", "other.duckdb").replace("k = 3", "k = 2")
    (tmp_path / "other.toml").write_text(second_policy, encoding="utf-8")
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


@pytest.mark.thorough
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
