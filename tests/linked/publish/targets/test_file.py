"""A release file of linked tables shows k persons to everybody who knows rows of one, and no key of the source."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.errors import ReleaseError
from sqlanon.linked.publish.targets.base import verify_tables
from sqlanon.linked.publish.targets.file import FileLocation
from support.commands import cli
from support.linked_hospital import POLICY, fewest_candidates, fix_levels, known_of, make_hospital


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with another release of the same rows, and the figures that the command printed."""
    folder = tmp_path_factory.mktemp("again")
    make_hospital(folder, fix_levels(POLICY))
    ended = cli("anonymize", folder / "policy.toml", "--json")
    assert ended.status == 0
    return folder, json.loads(ended.out)


def rows(folder: Path, query: str, file: str = "release.duckdb") -> list[tuple[Any, ...]]:
    """The rows of a query of a release."""
    with duckdb.connect(str(folder / file), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_no_attacker_who_knows_two_rows_has_fewer_than_k_candidates(hospital: Path) -> None:
    persons = known_of(partial(rows, hospital))
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3


@pytest.mark.thorough
def test_keys_are_new_unrelated_and_valid(hospital: Path, again: tuple[Path, dict[str, Any]]) -> None:
    keys = [key for (key,) in rows(hospital, "SELECT patient_id FROM patients")]
    assert sorted(keys) == list(range(1, len(keys) + 1))
    orphans = "SELECT count(*) FROM {} ANTI JOIN {} USING ({})"
    assert rows(hospital, orphans.format("visits", "patients", "patient_id")) == [(0,)]
    assert rows(hospital, orphans.format("labs", "visits", "visit_id")) == [(0,)]
    for columns, are_equal in (("zip", True), ("zip, patient_id", False)):
        query = f"SELECT {columns} FROM patients ORDER BY ALL"
        assert (rows(hospital, query) == rows(again[0], query)) == are_equal
    columns = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'patients' AND NOT internal"
    assert {name for (name,) in rows(hospital, columns)} == {"patient_id", "zip"}


def test_diagnoses_stay_with_their_patients(hospital: Path) -> None:
    """Every released patient has the diagnoses of one patient of the source."""
    query = "SELECT patient_id, list_sort(list(diagnosis)) AS all_of FROM visits GROUP BY patient_id"
    released = Counter(map(str, [values for _, values in rows(hospital, query)]))
    source = Counter(map(str, [values for _, values in rows(hospital, query, "hospital.duckdb")]))
    assert released <= source


def test_macros_of_the_release_count_its_smallest_group(hospital: Path) -> None:
    ((smallest,),) = rows(hospital, "SELECT k FROM sqlanon.km_anonymity('known_rows', 2)")
    ((claimed,),) = rows(hospital, "SELECT smallest_group FROM sqlanon.linked_manifest")
    assert smallest == claimed >= 3
    ((whole,),) = rows(hospital, "SELECT k FROM sqlanon.relational_k('whole_rows')")
    ((fewest,),) = rows(hospital, "SELECT min(persons) FROM sqlanon.signatures('whole_rows')")
    assert whole == fewest <= smallest


def test_json_has_the_figures_of_each_table(again: tuple[Path, dict[str, Any]]) -> None:
    folder, figures = again
    assert figures["known"] == 2
    assert figures["smallest_group"] >= 3
    assert figures["persons"] == figures["tables"]["patients"]["rows"] == 60
    assert figures["released_persons"] == figures["tables"]["patients"]["released_rows"]
    visits = figures["tables"]["visits"]
    assert visits["released_rows"] == rows(folder, "SELECT count(*) FROM visits")[0][0]
    assert visits["rows"] == visits["released_rows"] + visits["suppressed_rows"]
    assert visits["generalization"].keys() == {"admitted", "ward"}


@pytest.mark.least(7)
@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("change", "check"),
    [
        ("DELETE FROM patients_v1 WHERE patient_id = 1", "rows of patients"),
        ("UPDATE labs_v1 SET value = value + 1", "rows of labs"),
        ("UPDATE visits_v1 SET patient_id = 0 WHERE visit_id = 1", "keys"),
        ("CREATE TABLE more AS SELECT 1 AS x", "contents"),
        ("CREATE OR REPLACE VIEW patients AS SELECT patient_id, 'x' AS zip FROM patients_v1", "contents"),
        ("COMMENT ON TABLE patients_v1 IS 'name 3'", "contents"),
        ("CREATE OR REPLACE MACRO sqlanon.km_anonymity(rel, m) AS TABLE (SELECT 99 AS k)", "contents"),
        ("UPDATE sqlanon.linked_manifest SET smallest_group = 50", "smallest group"),
        ("UPDATE sqlanon.linked_manifest SET k = 100", "100-anonymity"),
    ],
)
def test_a_changed_release_does_not_verify(hospital: Path, tmp_path: Path, change: str, check: str) -> None:
    changed, fresh = tmp_path / "changed.duckdb", tmp_path / "fresh.duckdb"
    changed.write_bytes((hospital / "release.duckdb").read_bytes())
    with duckdb.connect(str(changed)) as connection:
        connection.execute(
            change.replace("_v1", f"_v{rows(hospital, 'SELECT version FROM sqlanon.linked_manifest')[0][0]}")
        )
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{changed}' AS changed (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh (STORAGE_VERSION 'v1.4.0')")
        connection.execute("COPY FROM DATABASE changed TO fresh")
    ended = cli("verify", fresh, "--json")
    failed = {result["name"] for result in json.loads(ended.out)["checks"] if result["passed"] is False}
    assert (ended.status, check in failed) == (1, True), failed


@pytest.mark.thorough
def test_a_release_file_verifies_alone(hospital: Path) -> None:
    assert cli("verify", hospital / "release.duckdb").status == 0
    ended = cli("verify", hospital / "release.duckdb", "--json")
    assert json.loads(ended.out)["verified"] is True


@pytest.mark.thorough
def test_a_file_that_is_no_release_is_not_replaced(again: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    database = tmp_path / "other.duckdb"
    duckdb.connect(str(database)).close()
    ended = cli("anonymize", again[0] / "policy.toml", "--output", database)
    assert (ended.status, "is not a release of linked tables" in ended.err) == (2, True)
    with pytest.raises(ReleaseError):
        verify_tables(FileLocation(database))
