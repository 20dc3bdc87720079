"""Releases whose rows and manifest were changed so that they agree: each is refused by one check alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import verify_file
from support.databases import change, compact_file, fetch
from support.hospital import small_hospital
from support.policies import make_policy
from support.verification import failed_checks

FIGURES = """
    UPDATE sqlanon.manifest SET
        released_rows = found.rows, rows = found.rows + suppressed_rows, classes = found.classes,
        smallest_class = found.k, sqlanon_version = '0.0.0', digest = (SELECT digest FROM sqlanon.digest('patients'))
    FROM (SELECT sum(n) AS rows, count(*) AS classes, min(n) AS k
          FROM (SELECT count(*) AS n FROM patients GROUP BY zip, age)) AS found
"""
"""The figures of the manifest are made those of the rows, by another version, whose views cannot be held against it."""
ONE_LESS = """
    DELETE FROM patients_v1 WHERE rowid = (
        SELECT min(rowid) FROM patients_v1
        WHERE (zip, age) IN (SELECT zip, age FROM patients_v1 GROUP BY ALL ORDER BY count(*), zip, age LIMIT 1)
    )
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = small_hospital(tmp_path_factory.mktemp("verified"), rows=200)
    change(path, "INSERT INTO patients VALUES ('Somebody', '9999', 200, 'flu')")  # to be suppressed
    return path


@pytest.fixture(scope="module")
def policy(hospital: Path) -> sqlanon.Policy:
    attributes = {
        "name": "identifying",
        "zip": "mask",
        "age": {"intervals": [5, 10, 20, 40]},
        "illness": "sensitive",
    }
    source = {"database": hospital, "table": "patients"}
    return make_policy(
        attributes, k=5, table=None, source=source, search={"suppression_limit": 0.1, "measure": "height"}
    )


@pytest.fixture(scope="module")
def published_release(policy: sqlanon.Policy, hospital: Path) -> Iterator[sqlanon.Release]:
    with sqlanon.connect() as db:
        yield db.anonymize(policy).publish(hospital.with_name("release.duckdb"), "patients")


@pytest.fixture
def copy(published_release: sqlanon.Release, tmp_path: Path) -> Path:
    return Path(shutil.copy(published_release.path, tmp_path / "copy.duckdb"))


def claim(assignments: str) -> str:
    return f"UPDATE sqlanon.manifest SET sqlanon_version = '0.0.0', {assignments}"


@pytest.mark.thorough
def test_release_contains_the_texts_that_cases_change(copy: Path) -> None:
    change(copy, FIGURES)
    compact_file(copy)
    assert failed_checks(verify_file(copy)) == set()
    ((smallest, suppressed),) = fetch(copy, "SELECT smallest_class, suppressed_rows FROM sqlanon.manifest")
    assert (smallest, suppressed > 0) == (5, True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("statements", "wrong"),
    [
        ([ONE_LESS, FIGURES], "5-anonymity: smallest class: 4 rows (required: 5)"),
        ([claim("suppressed_rows = suppressed_rows + 1")], "manifest: contradicts itself in row counts"),
        ([claim("released_rows = rows")], "manifest: contradicts itself in row counts"),
        ([claim("released_rows = released_rows + 1, rows = rows + 1")], "rows: claimed 201, found 200"),
        ([claim("classes = classes + 1")], "classes: claimed 19, found 18"),
        ([claim("smallest_class = smallest_class + 1")], "smallest class: claimed 6, found 5"),
    ],
)  # fmt: skip
def test_each_change_fails_one_check(statements: list[str], wrong: str, copy: Path) -> None:
    change(copy, *statements)
    compact_file(copy)
    verification = verify_file(copy)
    assert set(verification.failures) == {wrong}


OTHER_VERSION = "UPDATE sqlanon.manifest SET sqlanon_version = '9.9.9'"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("statement", "passed", "words"),
    [
        ("COMMENT ON VIEW patients IS 'anonymous, share it'", None, "do not rely on them"),
        ("UPDATE zip_labels SET zip = '9999' WHERE rowid = 0", False, "does not have the labels of the rows"),
    ],
)
def test_a_manifest_of_another_version_hides_no_change(
    statement: str, passed: bool | None, words: str, copy: Path
) -> None:
    change(copy, OTHER_VERSION, statement)
    compact_file(copy)
    check = next(check for check in verify_file(copy).checks if check.name == "comments and views")
    assert check.passed is passed
    assert words in check.message
    assert "the comments do not match the manifest" in check.message


@pytest.mark.thorough
def test_rows_of_the_source_are_counted_again(copy: Path, policy: sqlanon.Policy) -> None:
    """A source with one more row and one more suppressed row agrees with the claims of the release."""
    change(copy, claim("rows = rows + 1, suppressed_rows = suppressed_rows + 1"))
    compact_file(copy)
    with sqlanon.connect() as db:
        verification = db.verify(copy, policy)
    assert failed_checks(verification) == {"against the source: source rows", "against the source: suppressed rows"}
    assert "against the source: source rows: the source has 201 rows, the release claims 202" in verification.failures


@pytest.mark.thorough
@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
def test_signed_zero_distinguishes_rows(type_: str, tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT 'a' AS ward, 0::{type_} AS cost FROM range(4)")
        with sqlanon.connect(connection) as db:
            db.anonymize(make_policy({"ward": "suppress", "cost": "insensitive"})).publish(path)
    change(path, *(f"UPDATE t_v1 SET cost = '{value}' WHERE rowid = 1" for value in ("1", "-0.0")))
    assert "signs" in failed_checks(verify_file(path))
