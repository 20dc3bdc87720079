"""A linked release is recorded, and refused while there are other releases of the same persons that it does not
replace."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.errors import SqlanonError
from sqlanon.linked.publish.targets.file import StagedFile
from support.commands import Ended, cli
from support.linked_hospital import TABLES, make_hospital

CATALOG = '\n[catalog]\ndatabase = "private.duckdb"\n'

LINKED = """
[source]
database = "hospital.duckdb"
[[table]]
name = "patients"
person = "patient_id"
[table.attributes]
patient_id = { role = "key" }
name       = { role = "identifying" }
zip        = { role = "quasi", hierarchy = "suppress" }
[[table]]
name = "visits"
key = "visit_id"
references = { patient_id = "patients" }
[table.attributes]
visit_id   = { role = "key" }
patient_id = { role = "key" }
ward       = { role = "quasi", hierarchy = "suppress", max_level = 0 }
admitted   = { role = "identifying" }
diagnosis  = { role = "sensitive" }
[privacy]
k = 2
known = 1
[search]
suppression_limit = 0.5
[release]
database = "release.duckdb"
"""

VISITS = """
[source]
database = "hospital.duckdb"
table = "visits"
undeclared = "drop"
person = "patient_id"
[attributes]
ward      = { role = "quasi", hierarchy = "suppress" }
diagnosis = { role = "sensitive" }
[privacy]
k = 2
[release]
database = "visits_alone.duckdb"
"""


def make_policies(folder: Path) -> None:
    """Write a hospital, and policies with a catalog: of several tables, and of one."""
    make_hospital(folder, LINKED + CATALOG)
    (folder / "visits.toml").write_text(VISITS + CATALOG, encoding="utf-8")


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """A folder with a hospital and its policies."""
    make_policies(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release and its record in the catalog."""
    folder = tmp_path_factory.mktemp("linked_ledger") / "hospital"
    folder.mkdir()
    make_policies(folder)
    assert anonymize(folder).status == 0
    return shutil.copytree(folder, folder.parent / "first_release")


@pytest.fixture
def released_folder(first_release: Path) -> Path:
    """The folder of the first release, restored for each test: its record names its path."""
    folder = first_release.parent / "hospital"
    shutil.rmtree(folder)
    return shutil.copytree(first_release, folder)


def anonymize(folder: Path, policy: str = "policy.toml", *options: str | Path) -> Ended:
    """Anonymize by a policy of the folder."""
    return cli("anonymize", folder / policy, *options)


def records(folder: Path) -> list[tuple[Any, ...]]:
    """The records of the ledger: path, table, whether it is linked, replaced, intended."""
    with duckdb.connect(str(folder / "private.duckdb"), read_only=True) as connection:
        return connection.execute("""
            SELECT parse_filename(path), table_name, linked, replaced_at IS NOT NULL, intended_at IS NOT NULL
            FROM sqlanon.releases
            ORDER BY published_at, replaced_at NULLS LAST, table_name
        """).fetchall()


@pytest.mark.thorough
def test_each_table_is_recorded_and_replaced_at_its_path(released_folder: Path) -> None:
    tables = ["patients", "visits"]
    assert records(released_folder) == [("release.duckdb", name, True, False, False) for name in tables]
    assert anonymize(released_folder).status == 0
    assert sorted(records(released_folder)) == sorted(
        ("release.duckdb", name, True, replaced, False) for name in tables for replaced in (True, False)
    )


@pytest.mark.slow
def test_a_second_release_with_other_rows_is_refused_with_the_reason(released_folder: Path) -> None:
    ended = anonymize(released_folder, "policy.toml", "--output", released_folder / "more", "--set", "privacy.k=5")
    assert ended.status == 1
    assert "release.duckdb, of " in ended.err
    assert "a release of several tables, about the persons or rows of 'patients'" in ended.err
    assert "publish over it" in ended.err
    assert not (released_folder / "more").exists()
    assert len(records(released_folder)) == 2


@pytest.mark.slow
def test_the_same_persons_with_the_same_rows_may_be_at_two_locations(released_folder: Path) -> None:
    assert anonymize(released_folder, "policy.toml", "--output", released_folder / "more").status == 0
    assert len(records(released_folder)) == 4


def test_another_catalog_with_releases_of_the_tables_is_warned_of(released_folder: Path) -> None:
    catalog_settings = ("--set", 'catalog.database="other.duckdb"', "--output", released_folder / "other")
    ended = anonymize(released_folder, "policy.toml", *catalog_settings)
    assert ended.status == 0
    catalog = released_folder / "private.duckdb"
    assert f"releases of this source that are recorded in {catalog} were not compared" in ended.err


@pytest.mark.slow
def test_a_release_of_one_of_the_tables_is_refused_beside_linked_ones(released_folder: Path) -> None:
    ended = anonymize(released_folder, "visits.toml")
    assert ended.status == 1
    assert "is a release of several tables about the same persons" in ended.err
    assert not (released_folder / "visits_alone.duckdb").exists()


@pytest.mark.thorough
def test_the_same_persons_are_recognized_in_another_database_and_others_do_not_matter(hospital: Path) -> None:
    with duckdb.connect(str(hospital / "copy.duckdb")) as connection:
        connection.execute(TABLES)
        connection.execute("CREATE TABLE people AS SELECT patient_id AS number, name AS who, zip AS code FROM patients")
    policy = VISITS.replace("hospital.duckdb", "copy.duckdb").replace('"visits"', '"people"')
    policy = policy.replace('person = "patient_id"', "person = false").replace("ward      =", "code      =")
    policy = policy.replace("diagnosis = {", "who = {").replace('"sensitive"', '"identifying"')
    (hospital / "people.toml").write_text(policy + CATALOG, encoding="utf-8")
    assert anonymize(hospital, "people.toml", "--output", hospital / "people.duckdb").status == 0
    with duckdb.connect(str(hospital / "other.duckdb")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT 9000 + i AS patient_id, 'w' || i % 3 AS ward, "
                           "'d' || i % 2 AS diagnosis FROM range(40) AS r(i)")  # fmt: skip
    (hospital / "other.toml").write_text(VISITS.replace("hospital.duckdb", "other.duckdb") + CATALOG, encoding="utf-8")
    assert anonymize(hospital, "other.toml").status == 0
    ended = anonymize(hospital)
    assert ended.status == 1
    assert "people.duckdb, of " in ended.err
    assert "a release of one table, about the persons or rows of 'patients'" in ended.err
    assert "visits_alone.duckdb" not in ended.err


@pytest.mark.thorough
def test_a_run_that_dies_counts_as_published(hospital: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = StagedFile.commit

    def die_afterwards(staged: StagedFile) -> None:
        commit(staged)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StagedFile, "commit", die_afterwards)
        assert anonymize(hospital).status not in (0, 1, 2)
    assert (hospital / "release.duckdb").exists()
    assert {intended for *_, intended in records(hospital)} == {True}
    more = ("--output", hospital / "more", "--set", "privacy.k=5")
    assert anonymize(hospital, "policy.toml", *more).status == 1
    assert anonymize(hospital, "visits.toml").status == 1
    assert anonymize(hospital).status == 0
    assert not any(intended for *_, intended in records(hospital))


@pytest.mark.slow
def test_a_release_that_may_be_public_keeps_its_record(hospital: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(staged: StagedFile) -> None:
        raise SqlanonError("the view cannot be restored")

    with monkeypatch.context() as patch:
        patch.setattr(StagedFile, "commit", fail)
        assert anonymize(hospital).status == 2
    assert [intended for *_, intended in records(hospital)] == [True, True]


@pytest.mark.slow
def test_a_run_that_fails_leaves_no_record_and_one_beside_a_release_of_one_table_is_refused(
    hospital: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(staged: StagedFile) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(StagedFile, "commit", fail)
        assert anonymize(hospital).status == 2
    assert records(hospital) == []
    assert anonymize(hospital, "visits.toml").status == 0
    ended = anonymize(hospital)
    assert ended.status == 1
    assert "visits_alone.duckdb, of " in ended.err
    assert "a release of one table, about the persons or rows of 'patients'" in ended.err
    assert "publish either that table or these" in ended.err
    assert not (hospital / "release.duckdb").exists()
