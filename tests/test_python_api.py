"""The Python side of the contract."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from sqlanon import InfeasibleError, ReleaseError, SourceError
from sqlanon.publish.stage import NOT_COMPARED
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


@pytest.mark.thorough
def test_the_example_of_the_contract(hospital: Path, policy: sqlanon.Policy, tmp_path: Path) -> None:
    db = sqlanon.connect(str(hospital))
    result = db.anonymize(policy)
    assert list(result.generalization) == ["zip", "age"]
    assert isinstance(result.score, float)
    assert 0 <= result.suppressed_rows <= 20
    assert isinstance(result.lattice, duckdb.DuckDBPyRelation)
    assert result.sql(dialect="duckdb").startswith("SELECT")
    release = result.publish(str(tmp_path / "release.duckdb"))
    assert release.verify().verified
    db.close()
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as released:
        k = released.execute("FROM sqlanon.k_anonymity('patients', ['zip', 'age'])").fetchall()
        assert k[0][:3] == (result.smallest_class, result.classes, result.released_rows)
        assert released.sql("FROM patients").columns == ["zip", "age", "diagnosis"]
    assert release.verify().verified, "the release lives on"


def test_public_names_are_listed() -> None:
    assert set(sqlanon.__all__) <= set(dir(sqlanon))
    assert {"connect", "Policy", "Database", "Result", "Release", "InfeasibleError"} <= set(sqlanon.__all__)
    for name in sqlanon.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(sqlanon, name), sqlanon.SqlanonError)


@pytest.mark.thorough
def test_figures_fit_together(hospital: Path, policy: sqlanon.Policy) -> None:
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(policy)
        rows = connection_of(db).sql(result.sql()).fetchall()
    assert result.rows == 200
    assert result.released_rows == result.rows - result.suppressed_rows == len(rows)
    sizes: dict[Any, int] = {}
    for row in rows:
        sizes[row[:2]] = sizes.get(row[:2], 0) + 1
    assert (len(sizes), min(sizes.values())) == (result.classes, result.smallest_class)
    assert result.smallest_class >= 3
    assert result.nodes == 6 * 4
    assert 0 < result.checked <= result.nodes
    assert result.optimal
    assert result.k_minimal is None
    assert {"load", "search"} <= set(result.seconds)
    assert all(seconds >= 0 for seconds in result.seconds.values())


@pytest.mark.thorough
def test_a_result_can_be_written_as_json(hospital: Path, policy: sqlanon.Policy) -> None:
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(policy)
        document = json.loads(json.dumps(result.to_dict()))
        minimal = db.anonymize(make_policy(ROLES, k=3, table="patients", search={"strategy": "k_minimal"}))
    expected = {
        "rows": 200,
        "released_rows": result.released_rows,
        "suppressed_rows": result.suppressed_rows,
        "classes": result.classes,
        "smallest_class": result.smallest_class,
        "generalization": result.generalization,
        "measure": "loss",
        "score": result.score,
        "lattice": {"nodes": 24, "checked": result.checked},
        "optimal": True,
    }
    assert expected.items() <= document.items()
    assert json.loads(json.dumps(minimal.to_dict()))["k_minimal"] == minimal.k_minimal
    assert minimal.k_minimal and minimal.generalization in minimal.k_minimal


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


@pytest.mark.thorough
def test_reprs_describe_their_object(hospital: Path, policy: sqlanon.Policy, tmp_path: Path) -> None:
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(policy)
        release = result.publish(tmp_path / "release.duckdb")
        assert "hospital.duckdb" in repr(db)
        for part in ("Result", "zip", "loss", str(result.suppressed_rows)):
            assert part in repr(result)
    (tmp_path / "release.duckdb").unlink()
    for part in ("Release", "release.duckdb", "patients", str(result.released_rows)):
        assert part in repr(release)
    assert "zip" in repr(result), "repr works after the database is closed"
    assert "hospital.duckdb" in repr(db)
    with sqlanon.connect() as db:
        assert repr(db).startswith("Database(")


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
def test_plan_reads_no_rows(trap: duckdb.DuckDBPyConnection) -> None:
    policy = make_policy(ROLES, k=3, table="patients")
    with sqlanon.connect(trap) as db:
        plan = db.plan(policy)
        assert plan.stages[0].name == "scan"
        assert plan.nodes is None and plan.unknown_heights == ("zip",)
        text = str(plan)
        assert "zip" in text and "GROUP BY" in text
        with pytest.raises(SourceError, match="cannot be read"):
            db.anonymize(policy)
    with sqlanon.connect(trap) as db:
        roles = {**ROLES, "zip": "suppress"}
        assert db.plan(make_policy(roles, k=3, table="patients")).nodes == 2 * 4
        query = {"query": "SELECT * FROM patients"}
        assert db.plan(make_policy(roles, k=3, source=query)).nodes == 2 * 4


@pytest.mark.thorough
def test_plan_counts_the_lattice_within_level_limits(trap: duckdb.DuckDBPyConnection) -> None:
    limits = {"min_level": 1, "max_level": 3}
    limited = {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, **limits},
        "age": {"role": "quasi", "hierarchy": ROLES["age"], "min_level": 1},
    }
    with sqlanon.connect(trap) as db:
        plan = db.plan(make_policy({**ROLES, **limited}, k=3, table="patients"))
    assert plan.nodes in (None, 3 * 3)  # as many levels as the longest text has characters, but three at most


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


@pytest.mark.thorough
def test_risk_matches_its_printed_statements(hospital: Path) -> None:
    with sqlanon.connect(hospital) as db:
        risk = db.risk(make_policy(ROLES, k=6, table="patients"))
        sizes = connection_of(db).execute("SELECT count(*) FROM hospital.patients GROUP BY zip, age").fetchall()
        statements = duckdb.connect().extract_statements(db.risk_sql(make_policy(ROLES, k=6, table="patients")))
        answers = [connection_of(db).execute(statement).fetchall() for statement in statements]
    counts = [n for (n,) in sizes]
    # One of them shows the classes, and last the rows that break 6-anonymity.
    figures = (risk.rows, risk.classes, risk.smallest_class, risk.rows, risk.smallest_class, risk.uniques)
    (row,) = (rows[0] for rows in answers if rows and rows[0][:6] == figures)
    assert row[-1] == risk.rows_below_k
    document = json.loads(json.dumps(risk.to_dict()))
    assert (
        document
        | {
            "rows": 200,
            "classes": len(counts),
            "smallest_class": min(counts),
            "uniques": counts.count(1),
            "k": 6,
            "rows_below_k": sum(n for n in counts if n < 6),
            "highest_risk": 1 / min(counts),
            "average_risk": len(counts) / 200,
            "requirements": [
                {
                    "requirement": "6-anonymity",
                    "holds": False,
                    "classes": sum(n < 6 for n in counts),
                    "rows": sum(n for n in counts if n < 6),
                }
            ],
        }
        == document
    )


@pytest.mark.thorough
def test_risk_counts_null_as_a_value_and_takes_an_empty_table() -> None:
    with duckdb.connect() as live:
        live.execute("CREATE TABLE t AS SELECT unnest([NULL, NULL, 'a']) AS x")
        live.execute("CREATE TABLE nobody AS FROM t WHERE false")
        with sqlanon.connect(live) as db:
            risk = db.risk(make_policy({"x": "suppress"}, k=2))
            assert (risk.rows, risk.classes, risk.uniques, risk.rows_below_k) == (3, 2, 1, 1)
            assert (risk.highest_risk, risk.average_risk) == (1.0, pytest.approx(2 / 3))
            nothing = db.risk(make_policy({"x": "suppress"}, k=2, table="nobody"))
            assert (nothing.rows, nothing.classes, nothing.highest_risk, nothing.average_risk) == (0, 0, 0.0, 0.0)


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
def test_relative_place_becomes_absolute(hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlanon.connect("hospital.duckdb") as db:
        release = db.anonymize(make_policy(ROLES, k=3, table="patients")).publish("release.duckdb")
    assert release.path == tmp_path / "release.duckdb"
    assert release.path.is_absolute()
    assert release.table == "patients"


@pytest.mark.thorough
@pytest.mark.parametrize("by_policy", [True, False])
def test_the_source_is_never_overwritten(hospital: Path, by_policy: bool) -> None:
    before = hospital.read_bytes()
    source = {"database": str(hospital), "table": "patients"} if by_policy else {"table": "patients"}
    with sqlanon.connect(None if by_policy else hospital) as db:
        result = db.anonymize(make_policy(ROLES, k=3, source=source))
        with pytest.raises(ReleaseError):
            result.publish(hospital)
    assert hospital.read_bytes() == before


@pytest.mark.thorough
def test_one_result_can_be_published_twice(hospital: Path, tmp_path: Path) -> None:
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(make_policy(ROLES, k=3, table="patients"))
        first, again = (result.publish(tmp_path / "release.duckdb").manifest.digest for _ in range(2))
    assert first == again


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


@pytest.mark.thorough
def test_verify_with_the_policy(hospital: Path, policy: sqlanon.Policy, tmp_path: Path) -> None:
    with sqlanon.connect(hospital) as db:
        release = db.anonymize(policy).publish(tmp_path / "release.duckdb")
        assert db.verify(release.path, policy).verified
        other_policy = make_policy(ROLES, k=4, table="patients")
        assert not db.verify(release.path, other_policy).verified
        with pytest.raises(ReleaseError):
            db.verify(tmp_path / "nowhere.duckdb", policy)
    with duckdb.connect(str(hospital)) as writer:
        writer.execute("DELETE FROM patients WHERE name = 'person 7'")
    assert release.verify().verified, "without its source, the release is unchanged"
    with sqlanon.connect(hospital) as db:
        assert not db.verify(release.path, policy).verified


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


@pytest.mark.thorough
def test_live_connection_stays_open() -> None:
    with duckdb.connect() as live:
        live.execute(f"CREATE TABLE patients AS {PATIENTS}")
        with sqlanon.connect(live) as db:
            result = db.anonymize(make_policy(ROLES, k=3, table="patients"))
            assert live.sql(result.sql()).aggregate("count(*)").fetchall() == [(result.released_rows,)]
        assert live.execute("SELECT count(*) FROM patients").fetchall() == [(200,)]


@pytest.mark.thorough
def test_nothing_is_left_in_the_folder_for_temporary_files(
    hospital: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    with sqlanon.connect(hospital) as db:
        (spill,) = folder.iterdir()
        assert spill.stat().st_mode & 0o777 == 0o700
        db.anonymize(make_policy(ROLES, k=3, table="patients")).publish(tmp_path / "release.duckdb")
    assert list(folder.iterdir()) == []


# Warnings


@pytest.mark.thorough
def test_nearly_unique_columns_are_named(hospital: Path) -> None:
    roles = {**ROLES, "name": "insensitive"}
    with sqlanon.connect(hospital) as db:
        (warning,) = db.anonymize(make_policy(roles, k=3, table="patients")).warnings
        assert "'name'" in warning and "unique" in warning
        assert "person" not in warning, "a warning holds no value of the source"
        assert db.anonymize(make_policy(ROLES, k=3, table="patients")).warnings == ()


@pytest.mark.thorough
def test_release_without_catalog_warns_once_about_missing_comparison(hospital: Path, tmp_path: Path) -> None:
    with sqlanon.connect(hospital) as db:
        result = db.anonymize(make_policy(ROLES, k=3, table="patients"))
        result.publish(tmp_path / "draft.duckdb", draft=True)
        assert not any("catalog" in warning for warning in result.warnings)
        for name in ("one", "two"):
            result.publish(tmp_path / f"{name}.duckdb")
        assert [warning for warning in result.warnings if "no catalog" in warning] == [NOT_COMPARED]
