"""A median bounds no value: the macros that would say so refuse releases with medians for labels."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import verify_file
from support.policies import make_policy

pytestmark = pytest.mark.thorough

READERS = {
    "share": "SELECT sqlanon.share(age, 20, 40) FROM patients",
    "overlaps": "SELECT sqlanon.overlaps(age, 20, 40) FROM patients",
    "estimated_count": "FROM sqlanon.estimated_count('patients', 'age', 20, 40)",
    "estimated_average": "FROM sqlanon.estimated_average('patients', 'age')",
}


def publish_medians(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 20 + 3 * i AS age FROM range(12) AS r(i)")
        search = {"strategy": "mondrian", "summary": "median"}
        policy = make_policy({"age": {"intervals": [5, 20]}}, k=3, search=search, release={"table": "patients"})
        with sqlanon.connect(connection) as db:
            db.anonymize(policy).publish(path)


@pytest.fixture(scope="module")
def medians(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("medians") / "medians.duckdb"
    publish_medians(path)
    return path


@pytest.mark.parametrize("macro", READERS)
def test_macros_that_bound_values_refuse_medians(medians: Path, macro: str) -> None:
    with (
        duckdb.connect(medians, read_only=True) as connection,
        pytest.raises(duckdb.Error, match=rf"{macro}: labels of this release are medians .* publish it with summary"),
    ):
        connection.execute(READERS[macro]).fetchall()


def test_a_release_with_medians_verifies_with_its_own_macros(medians: Path) -> None:
    verification = verify_file(medians)
    assert verification.verified, verification.failures


def test_macros_of_ranges_in_a_release_with_medians_do_not_verify(medians: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.duckdb"
    forged.write_bytes(medians.read_bytes())
    with duckdb.connect(forged) as connection:
        connection.execute("CREATE OR REPLACE MACRO sqlanon.share(label, low, high) AS (1.0)")
    assert any("share" in str(failure) for failure in verify_file(forged).failures)
