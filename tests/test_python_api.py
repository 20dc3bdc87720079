"""The Python side of the contract."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from sqlanon import InfeasibleError, ReleaseError, SourceError
from support.databases import connection_of
from support.policies import make_policy

TOML = """
[source]
table = "patients"

[attributes]
name      = { role = "identifying" }
zip       = { role = "quasi", hierarchy = { mask = "right" } }
age       = { role = "quasi", hierarchy = { intervals = [10, 20] } }
diagnosis = { role = "sensitive" }

[privacy]
k = 3

[search]
suppression_limit = 0.1
"""

ROLES: dict[str, Any] = {
    "name": "identifying",
    "zip": "mask",
    "age": {"intervals": [10, 20]},
    "diagnosis": "sensitive",
}
PATIENTS = """
    SELECT 'person ' || i AS name, '021' || lpad(CAST(i * 7 % 40 AS VARCHAR), 2, '0') AS zip,
           20 + i * 13 % 40 AS age, ['flu', 'cold', 'cough'][1 + i % 3] AS diagnosis
    FROM range(200) AS r(i)"""


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "hospital.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute(f"CREATE TABLE patients AS {PATIENTS}")
    return path


@pytest.fixture
def hospital(prepared_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(prepared_folder, tmp_path))


@pytest.fixture
def policy(tmp_path: Path) -> sqlanon.Policy:
    (tmp_path / "policy.toml").write_text(TOML, encoding="utf-8")
    return sqlanon.Policy.load(tmp_path / "policy.toml")


@pytest.fixture
def trap() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with a view whose rows cannot be read."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE p AS {PATIENTS}")
        connection.execute("CREATE VIEW patients AS FROM p WHERE error('a row was read: ' || name) IS NULL")
        with pytest.raises(duckdb.Error, match="a row was read"):
            connection.execute("SELECT count(*) FROM patients")
        yield connection


def test_public_names_are_listed() -> None:
    assert set(sqlanon.__all__) <= set(dir(sqlanon))
    assert {"connect", "Policy", "Database", "Result", "Release", "InfeasibleError"} <= set(sqlanon.__all__)
    for name in sqlanon.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(sqlanon, name), sqlanon.SqlanonError)


# The lattice


@pytest.mark.slow
def test_the_lattice_is_a_relation(hospital: Path, policy: sqlanon.Policy) -> None:
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(policy)
        lattice = result.lattice
        assert dict(zip(lattice.columns, map(str, lattice.types), strict=True)) == {
            "levels": "INTEGER[]",
            "height": "INTEGER",
            "bound": "DOUBLE",
            "status": "VARCHAR",
            "classes": "BIGINT",
            "suppressed_rows": "BIGINT",
            "score": "DOUBLE",
        }
        assert (
            lattice.aggregate("count(*), count(classes)").fetchall()
            == lattice.aggregate(f"count(DISTINCT levels), {result.checked}").fetchall()
        )
        best = lattice.filter("status = 'satisfies' AND score IS NOT NULL").order("score, height, levels").limit(1)
        assert best.fetchall() == [
            (
                list(result.generalization.values()),
                sum(result.generalization.values()),
                pytest.approx(best.fetchall()[0][2]),
                "satisfies",
                result.classes,
                result.suppressed_rows,
                result.score,
            )
        ]
        for levels, height, bound, status, classes, suppressed, score in lattice.fetchall():
            assert height == sum(levels)
            assert status in ("satisfies", "violates", "open")
            assert (classes is None) == (suppressed is None)
            if suppressed is not None:
                assert status == ("satisfies" if suppressed <= 20 and classes else "violates")
            assert (score is not None) == (status == "satisfies" and classes is not None)
            if score is not None:
                assert bound <= score * (1 + 1e-12)


@pytest.mark.thorough
def test_lattice_inferences_are_true(hospital: Path, policy: sqlanon.Policy) -> None:
    """This includes generalizations that were never checked: the conclusions about them hold."""
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(policy)
        looked_at = sorted(result.lattice.fetchall())
        inferred = 0
        for levels, _, bound, status, classes, suppressed, score in looked_at[::2]:
            pinned = {
                name: {"role": "quasi", "hierarchy": rule, "min_level": level, "max_level": level}
                for (name, rule), level in zip([("zip", {"mask": "right"}), ("age", ROLES["age"])], levels, strict=True)
            }
            limits = {"suppression_limit": 0.1}
            roles = {**ROLES, **pinned}
            try:
                alone = db.anonymize(make_policy(roles, k=3, table="patients", search=limits))
            except InfeasibleError as error:
                assert status != "satisfies"
                assert suppressed in (None, error.suppressed_rows)
            else:
                assert status != "violates"
                assert bound <= alone.score * (1 + 1e-12)
                assert classes in (None, alone.classes)
                assert score is None or score == pytest.approx(alone.score, rel=1e-12)
            inferred += classes is None and status != "open"
        assert inferred, "the case shows nothing"


@pytest.mark.thorough
def test_progress_is_reported(hospital: Path, policy: sqlanon.Policy) -> None:
    states: list[tuple[str, int, int, float | None]] = []
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(policy, progress=lambda *state: states.append(state))
    stages = [stage for stage, *_ in states]
    assert stages[0] == "scan"
    assert "search" in stages
    assert [checked for stage, _, checked, _ in states if stage == "search"][-1] == result.checked
    assert states[-1][3] == result.score


# Reprs


@pytest.mark.slow
def test_repr_of_a_database_reads_nothing(trap: duckdb.DuckDBPyConnection) -> None:
    with sqlanon.connect(trap) as db:
        assert repr(db) == str(db) == "Database('a duckdb connection')"
    batches = iter(())
    stream = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches)
    with sqlanon.connect(stream) as db:
        assert "RecordBatchReader" in repr(db)


# Plan


@pytest.mark.thorough
def test_plan_reads_no_rows_of_a_hierarchy_table(trap: duckdb.DuckDBPyConnection) -> None:
    trap.execute("CREATE VIEW tree AS SELECT name AS zip, '*' AS area FROM patients")
    with sqlanon.connect(trap) as db:
        plan = db.plan(make_policy({**ROLES, "zip": {"table": "tree"}}, k=3, table="patients"))
    assert plan.nodes is not None


@pytest.mark.slow
def test_statements_of_the_plan_can_be_run(hospital: Path) -> None:
    """In order, by anybody: they are what `anonymize` does, for a mask of a column with five characters."""
    policy = make_policy(ROLES, k=3, table="patients")
    with sqlanon.connect(hospital) as db:
        plan = db.plan(policy)
        for stage in plan.stages[:-1]:
            for statement in stage.sql:
                connection_of(db).execute(statement)


def test_plan_finds_mistakes(hospital: Path) -> None:
    with sqlanon.connect(hospital) as db:
        with pytest.raises(SourceError, match="'sex'"):
            db.plan(make_policy({**ROLES, "sex": "suppress"}, table="patients"))
        with pytest.raises(sqlanon.HierarchyError, match=r"attributes\.zip"):
            db.plan(make_policy({**ROLES, "zip": {"file": "/nowhere/zips.csv"}}, table="patients"))


# Risk


# Publishing


@pytest.mark.thorough
def test_place_and_table_come_from_the_policy(hospital: Path, tmp_path: Path) -> None:
    section = {"database": str(tmp_path / "r.duckdb"), "table": "open patients"}
    with sqlanon.connect(hospital) as db:
        release = db.anonymize(make_policy(ROLES, k=3, table="patients", release=section)).publish()
        assert (release.path, release.table) == (tmp_path / "r.duckdb", "open patients")
        result = db.anonymize(make_policy(ROLES, k=3, table="patients"))
        with pytest.raises(ReleaseError, match="no target is given"):
            result.publish()
        parquet = result.publish(tmp_path / "x.parquet", "people")
        assert parquet.verify().verified
        assert "publish" in result.seconds
    figures = duckdb.connect().execute(f"SELECT count(*) FROM '{parquet.path}'").fetchall()
    assert figures == [(result.released_rows,)]


@pytest.mark.thorough
def test_results_of_one_database_do_not_mix(hospital: Path, tmp_path: Path) -> None:
    """A later run leaves the tables of an earlier result alone."""
    with sqlanon.connect(hospital) as db:
        first = db.anonymize(make_policy(ROLES, k=3, table="patients"))
        rows = first.lattice.fetchall()
        second = db.anonymize(make_policy(ROLES, k=20, table="patients"))
        assert second.generalization != first.generalization
        assert first.lattice.fetchall() == rows
        assert first.publish(tmp_path / "1.duckdb").manifest.smallest_class == first.smallest_class
        assert second.smallest_class >= 20


# Closing


@pytest.mark.slow
def test_context_manager_lets_go(hospital: Path) -> None:
    with sqlanon.connect(hospital) as db:
        assert isinstance(db, sqlanon.Database)
        db.anonymize(make_policy(ROLES, k=3, table="patients"))
    db.close()
    with pytest.raises(Exception, match=r"(?i)closed"):
        db.anonymize(make_policy(ROLES, k=3, table="patients"))
    with duckdb.connect(str(hospital)) as writer:
        writer.execute("DROP TABLE patients")


@pytest.mark.thorough
def test_context_manager_lets_go_after_an_error(hospital: Path) -> None:
    with pytest.raises(InfeasibleError), sqlanon.connect(hospital) as db:
        db.anonymize(make_policy(ROLES, k=201, table="patients"))
    with duckdb.connect(str(hospital)) as writer:
        writer.execute("DROP TABLE patients")


# Warnings
