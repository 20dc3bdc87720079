"""A folder of Parquet files with linked tables is published at once, verifies alone, and hides persons among k."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.errors import ReleaseError
from sqlanon.linked.anonymize import LinkedResult
from sqlanon.linked.publish.targets.base import find_location, verify_tables
from sqlanon.linked.publish.targets.folder import FolderLocation, StagedFolder
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.policy.linked_sections import LinkedReleaseSection
from support.commands import cli
from support.linked_hospital import fewest_candidates, known_of

TABLES = ("patients", "visits", "labs")


@pytest.fixture(scope="module")
def folder(hospital: Path, hospital_result: LinkedResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two releases of a hospital."""
    folder = tmp_path_factory.mktemp("linked_folder")
    shutil.copytree(hospital / "release", folder / "release")
    hospital_result.publish(folder / "second")
    return folder


def rows(release: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query of the files of a release."""
    with duckdb.connect() as connection:
        for name in TABLES:
            connection.execute(f"CREATE VIEW {name} AS FROM '{release / name}.parquet'")
        return connection.execute(query).fetchall()


def test_no_attacker_of_the_files_has_fewer_than_k_candidates(folder: Path) -> None:
    persons = known_of(partial(rows, folder / "release"))
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3


@pytest.mark.slow
def test_the_folder_has_a_file_for_each_table_and_verifies_alone(folder: Path, tmp_path: Path) -> None:
    assert {file.name for file in (folder / "release").iterdir()} == {f"{name}.parquet" for name in TABLES}
    alone = shutil.copytree(folder / "release", tmp_path / "alone")
    assert cli("verify", alone).status == 0


def test_the_keys_of_two_folders_are_unrelated(folder: Path) -> None:
    query = "SELECT zip, patient_id FROM patients ORDER BY ALL"
    assert rows(folder / "release", query) != rows(folder / "second", query)


def change_rows(release: Path) -> None:
    """Replace a file by one with a row less, and the same manifest."""
    file = release / "labs.parquet"
    with duckdb.connect() as connection:
        (text,) = connection.execute(
            f"SELECT value FROM parquet_kv_metadata('{file}') WHERE key = 'sqlanon'"
        ).fetchall()[0]
        connection.execute(f"CREATE TABLE labs AS FROM '{file}' LIMIT 10")
        connection.execute("SET VARIABLE manifest = ?", [text.decode()])
        connection.execute(f"COPY labs TO '{file}' (KV_METADATA {{sqlanon: getvariable('manifest')}})")


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        (lambda release: (release / "labs.parquet").unlink(), "contents: labs.parquet is missing"),
        (lambda release: (release / "notes.txt").touch(), "contents: notes.txt was added"),
        (
            lambda release: shutil.copy(release.parent / "second" / "labs.parquet", release),
            "contents: patients.parquet has another manifest",
        ),
        (
            lambda release: (release / "labs.parquet").write_bytes(
                (release / "labs.parquet").read_bytes().replace(b"PAR1", b"PAR1x", 1)
            ),
            "contents: labs.parquet: ",
        ),
        (change_rows, "rows of labs: 10 rows, "),
    ],
    ids=["a missing file", "another file", "a file of another release", "a stray byte", "missing rows"],
)
def test_a_changed_folder_does_not_verify(folder: Path, tmp_path: Path, change: Any, failure: str) -> None:
    shutil.copytree(folder / "second", tmp_path / "second")
    release = shutil.copytree(folder / "release", tmp_path / "release")
    change(release)
    failures = verify_tables(FolderLocation(release)).failures
    assert any(message.startswith(failure) for message in failures), failures
    assert cli("verify", release).status == 1


@pytest.mark.slow
def test_a_release_is_replaced_as_a_whole_or_not_at_all(
    folder: Path, hospital_result: LinkedResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = shutil.copytree(folder / "release", tmp_path / "release")
    before = {file.name: file.read_bytes() for file in release.iterdir()}
    rename = Path.rename

    def fail_at_the_end(self: Path, target: Path) -> Path:
        if self.name == "tables":
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail_at_the_end)
        with pytest.raises(ReleaseError, match="the existing release is unchanged"):
            hospital_result.publish(release)
    assert {file.name: file.read_bytes() for file in release.iterdir()} == before
    assert hospital_result.publish(release).manifest.version == 2
    assert [file.name for file in tmp_path.iterdir()] == ["release"]


@pytest.mark.slow
def test_a_replaced_release_that_cannot_be_removed_is_removed_by_the_next_publication(
    folder: Path, hospital_result: LinkedResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, unlink = shutil.copytree(folder / "release", tmp_path / "release"), os.unlink

    def fail_on_replaced_files(path: Any, *, dir_fd: int | None = None) -> None:
        if path == "labs.parquet":
            raise PermissionError(13, "Permission denied")
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail_on_replaced_files)
        assert hospital_result.publish(release).verify().verified
    assert {file.name for file in tmp_path.iterdir()} == {"release", ".release.replaced"}
    assert hospital_result.publish(release).manifest.version == 3
    assert [file.name for file in tmp_path.iterdir()] == ["release"]


@pytest.mark.slow
def test_a_release_that_a_killed_run_moved_away_comes_back(
    folder: Path, hospital_result: LinkedResult, tmp_path: Path
) -> None:
    shutil.copytree(folder / "release", tmp_path / ".release.replaced")
    assert hospital_result.publish(tmp_path / "release").manifest.version == 2
    assert [file.name for file in tmp_path.iterdir()] == ["release"]


@pytest.mark.thorough
def test_a_foreign_folder_with_the_name_of_a_moved_release_stays(hospital_result: LinkedResult, tmp_path: Path) -> None:
    notes = tmp_path / ".release.replaced" / "notes.txt"
    notes.parent.mkdir()
    notes.touch()
    assert hospital_result.publish(tmp_path / "release").manifest.version == 1
    assert notes.exists()


@pytest.mark.thorough
def test_a_folder_that_another_run_has_replaced_stays(
    folder: Path, hospital_result: LinkedResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, verify = tmp_path / "release", StagedFolder.verify

    def verify_slowly(staged: StagedFolder, counted_manifest: LinkedManifest) -> Any:
        shutil.copytree(folder / "second", release)
        return verify(staged, counted_manifest)

    monkeypatch.setattr(StagedFolder, "verify", verify_slowly)
    with pytest.raises(ReleaseError, match="was replaced by another run"):
        hospital_result.publish(release)
    assert verify_tables(FolderLocation(release)).verified


def test_only_a_release_of_the_same_tables_is_replaced(
    folder: Path, hospital: Path, hospital_result: LinkedResult, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    more = shutil.copytree(folder / "release", tmp_path / "more")
    (more / "notes.txt").touch()
    for path, reason in (
        (tmp_path / "empty", "is not a release of linked tables"),
        (more, "has additions: notes.txt was added"),
        (hospital, "is or contains the source or the catalog"),
        (tmp_path / "none" / "release", "does not exist: create it first"),
    ):
        with pytest.raises(ReleaseError, match=reason):
            hospital_result.publish(path)
    ended = cli("anonymize", hospital / "policy.toml", "--output", tmp_path / "release.parquet")
    assert "--output: must end in .duckdb, or be a folder without an ending" in ended.err


def test_one_file_of_a_folder_is_not_verified_by_itself(folder: Path) -> None:
    with pytest.raises(ReleaseError, match="is one table of a release of several: verify its folder"):
        find_location(folder / "release" / "patients.parquet")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"folder": "release.parquet"}, "names a folder, which has no ending"),
        ({"folder": "release", "database": "release.duckdb"}, "only one"),
    ],
)
def test_a_location_that_cannot_hold_a_folder_is_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinkedReleaseSection(**keys)
