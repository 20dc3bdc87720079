"""Mistakes of the ledger, and of releases that are based on earlier ones, that were found and fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import AuditError, PolicyError
from support.ledger_hospital import FINE_RACE, FINE_ZIP, hospital, policy, publish

pytestmark = pytest.mark.slow

__all__ = ["hospital"]


def change(place: Path, *statements: str) -> None:
    with duckdb.connect(str(place / "hospital.duckdb")) as connection:
        for statement in statements:
            connection.execute(statement)


NEW_ROWS = "INSERT INTO patients VALUES ('black', '1965-09-07', 'male', '02139', 'headache')"


@pytest.mark.thorough
def test_a_run_that_was_published_twice(hospital: Path) -> None:
    """The hashes of its keys are requested once."""
    change(hospital, "CREATE OR REPLACE TABLE patients AS SELECT *, row_number() OVER () AS id FROM patients")
    key = {"source": {"key": ["id"]}}
    with sqlanon.connect() as db:
        result = db.anonymize(policy(hospital, "one", FINE_RACE, **key))
        result.publish()
        result.publish(hospital / "copy.duckdb")
    result, release = publish(policy(hospital, "two", {}, release={"after": "all"}, **key))
    assert release.path.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sqlanon label 0", "SQLANON rank", "sqlanon _label 0"])
def test_columns_with_the_names_of_work_columns(hospital: Path, name: str) -> None:
    """The labels of a source's rows stood under names that its columns may have, too."""
    change(hospital, f'ALTER TABLE patients ADD COLUMN "{name}" TEXT', f"UPDATE patients SET \"{name}\" = 'x'")
    for file, more in (("one", {}), ("two", {"release": {"after": "all"}})):
        levels = FINE_RACE if file == "one" else {}
        _, release = publish(policy(hospital, file, levels, attributes={name: {"role": "insensitive"}}, **more))
        assert release.path.exists()


@pytest.mark.parametrize("role", [{"role": "insensitive"}, {"role": "quasi", "hierarchy": "suppress"}])
def test_no_attribute_is_called_as_the_marks(tmp_path: Path, role: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="a name that sqlanon reserves"):
        policy(tmp_path, "one", {}, attributes={"SQLANON earlier releases": role})


@pytest.mark.thorough
def test_a_policy_without_k_can_be_based_on_an_earlier_release(hospital: Path) -> None:
    """Parts of classes need the k of the earlier release."""
    publish(policy(hospital, "one", FINE_RACE))
    change(hospital, NEW_ROWS)
    close = [{"attribute": "problem", "distance": "equal", "t": 1.0}]
    requested_policy = policy(hospital, "two", {}, release={"after": "all"}, privacy={"k": None, "t_closeness": close})
    result, release = publish(requested_policy)
    assert result.smallest_class >= 2
    with sqlanon.connect() as db:
        assert db.verify(release.path, requested_policy).verified


@pytest.mark.thorough
def test_the_query_of_a_refusal_reads_parquet(hospital: Path) -> None:
    def as_parquet(name: str, levels: dict[str, int]) -> sqlanon.Policy:
        requested_policy = policy(hospital, name, levels)
        release = requested_policy.release.model_copy(update={"database": hospital / f"{name}'s.parquet"})
        return requested_policy.model_copy(update={"release": release})

    publish(as_parquet("one", FINE_RACE))
    with pytest.raises(AuditError) as refused:
        publish(as_parquet("two", FINE_ZIP))
    publish(as_parquet("two", FINE_ZIP), force=True)
    query, *_ = refused.value.queries
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall()


@pytest.mark.thorough
def test_a_refused_release_can_be_forced_where_only_the_earlier_one_generalizes(hospital: Path) -> None:
    """The hierarchy of an earlier run is copied once."""
    publish(policy(hospital, "one", FINE_RACE))
    attributes = {"zip": {"role": "insensitive"}}
    with sqlanon.connect() as db:
        result = db.anonymize(policy(hospital, "two", {"race": 0, "birth": 1, "sex": 0}, attributes=attributes))
        with pytest.raises(AuditError, match="complementary"):
            result.publish()
        assert result.publish(force=True).path.exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "search", [{"measure": "entropy"}, {"measure": "loss", "aggregate": "geometric"}, {"measure": "precision"}]
)
def test_mark_columns_do_not_count_as_lost_values(hospital: Path, search: dict[str, Any]) -> None:
    """The score is that of the same rows by a policy without `after`."""
    search = {"suppression_limit": 0.5, **search}
    publish(policy(hospital, "one", FINE_RACE))
    change(hospital, NEW_ROWS, NEW_ROWS.replace("black", "white"))
    with sqlanon.connect() as db:
        based = db.anonymize(policy(hospital, "two", FINE_RACE, release={"after": "all"}, search=search))
        alone = db.anonymize(policy(hospital, "two", FINE_RACE, search=search))
    assert based.suppressed_rows == alone.suppressed_rows
    assert based.score == pytest.approx(alone.score, rel=1e-12)


@pytest.mark.thorough
def test_earlier_releases_that_were_not_compared_are_reported(hospital: Path) -> None:
    """An earlier release that was moved is reported in a warning."""
    publish(policy(hospital, "one", FINE_RACE))
    result, _ = publish(policy(hospital, "two", FINE_ZIP), force=True)
    assert [warning for warning in result.warnings if "one.duckdb" in warning and "with --force" in warning]
    (hospital / "one.duckdb").unlink()
    (hospital / "two.duckdb").unlink()
    result, _ = publish(policy(hospital, "three", FINE_ZIP))
    assert [warning for warning in result.warnings if "one.duckdb" in warning and "not compared" in warning]
    assert "one.duckdb" in " ".join(result.to_dict()["warnings"])


@pytest.mark.thorough
def test_a_release_with_the_digest_of_an_earlier_one_verifies(hospital: Path) -> None:
    """The ledger distinguishes releases with equal content by name."""
    _, first = publish(policy(hospital, "one", FINE_RACE))
    change(hospital, NEW_ROWS)
    requested_policy = policy(hospital, "two", FINE_RACE, release={"after": ["one"]})
    _, release = publish(requested_policy)
    assert release.manifest.digest == first.manifest.digest
    with sqlanon.connect() as db:
        assert db.verify(release.path, requested_policy).verified


@pytest.mark.thorough
def test_a_table_is_the_same_with_its_schema(hospital: Path) -> None:
    """``main.patients`` and ``patients`` are one source, with the same earlier releases."""
    publish(policy(hospital, "one", FINE_RACE))
    requested_policy = policy(hospital, "two", FINE_ZIP)
    source = requested_policy.source.model_copy(update={"table": "main.Patients"})
    with pytest.raises(AuditError, match="complementary"):
        publish(requested_policy.model_copy(update={"source": source}))


@pytest.mark.thorough
def test_deleted_rows_are_reported(hospital: Path) -> None:
    """The rows of the source prove the release safe; findings in the files alone are a warning.

    Of six rows that an earlier release shows, one is left, which is suppressed; the eight new ones look like two more.
    """
    rows = "INSERT INTO patients SELECT 'black', DATE '1965-02-14', 'male', '02141', 'fever' FROM range({})"
    change(hospital, "DELETE FROM patients", rows.format(6))
    coarse = {"race": 1, "birth": 2, "sex": 1, "zip": 5}
    publish(policy(hospital, "one", {**coarse, "zip": 0}, k=3))
    change(hospital, "DELETE FROM patients", rows.format(1), rows.format(8).replace("02141", "02138"))
    requested_policy = policy(hospital, "two", coarse, k=3, release={"after": ["one"]})
    result, _ = publish(requested_policy)
    assert any("rows were deleted or changed since" in warning for warning in result.warnings)
