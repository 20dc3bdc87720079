"""The macro library of a release is copied from a prepared file, and is the same as its scripts make it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.release import macro_library
from support.policies import make_policy


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State of the bytecode that Python writes; no run of this process has prepared anything."""
    monkeypatch.setattr(macro_library, "_CONTENT", {})
    monkeypatch.setattr(macro_library, "_cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(macro_library.sys, "dont_write_bytecode", False)
    return tmp_path / "cache"


def publish_release(path: Path) -> sqlanon.Release:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS sex FROM range(5)")
        with sqlanon.connect(connection) as db:
            return db.anonymize(make_policy({"sex": "suppress"}, k=2)).publish(path)


@pytest.mark.thorough
def test_the_library_is_prepared_once_and_verifies_as_unchanged(place: Path, tmp_path: Path) -> None:
    first = publish_release(tmp_path / "first.duckdb")  # prepares it
    (library,) = place.iterdir()
    content = library.read_bytes()
    macro_library._CONTENT.clear()
    second = publish_release(tmp_path / "second.duckdb")  # reads it
    assert library.read_bytes() == content
    for release in (first, second):
        checks = {check.name: check.passed for check in release.verify().checks}
        assert checks["macros"] is True
        assert checks["contents"] is True
        assert checks["file"] is True


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.thorough
def test_a_changed_file_is_ignored_and_made_again(place: Path, tmp_path: Path) -> None:
    publish_release(tmp_path / "first.duckdb")
    (library,) = place.iterdir()
    content = library.read_bytes()
    assert library.name.split(".")[2] == digest(content)
    with duckdb.connect(library) as connection:  # a library that works, with another macro
        connection.execute("CREATE MACRO sqlanon.planted() AS 1")
    forged = library.read_bytes()
    for damaged in (b"", content[:9000], content[:20000] + bytes(len(content) - 20000), forged):
        for file in place.iterdir():
            file.unlink()
        library.write_bytes(damaged)
        macro_library._CONTENT.clear()
        assert publish_release(tmp_path / "again.duckdb").verify().verified
        with duckdb.connect(tmp_path / "again.duckdb", read_only=True) as connection:
            functions = connection.execute("SELECT count(*) FROM duckdb_functions() WHERE function_name = 'planted'")
            assert functions.fetchone() == (0,)
        (rebuilt,) = place.iterdir()
        assert rebuilt.name.split(".")[1] == library.name.split(".")[1]
        assert rebuilt.name.split(".")[2] == digest(rebuilt.read_bytes())
        assert rebuilt.read_bytes() != damaged


@pytest.mark.thorough
def test_another_version_of_the_library_has_a_file_of_its_own(place: Path, tmp_path: Path) -> None:
    publish_release(tmp_path / "first.duckdb")
    (old,) = place.iterdir()
    key, content = old.name.split(".")[1], old.read_bytes()
    old.rename(old.with_name(f"macros.0123456789abcdef.{digest(content)}.duckdb"))
    macro_library._CONTENT.clear()
    assert publish_release(tmp_path / "second.duckdb").verify().verified
    (new_library,) = place.iterdir()
    assert new_library.name.split(".")[1] == key


def test_a_folder_in_its_place_leaves_nothing_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a library"
    monkeypatch.setitem(macro_library._CONTENT, "0123", content)
    taken = place / f"macros.0123.{digest(content)}.duckdb"
    (taken / "full").mkdir(parents=True)
    macro_library._store("0123")
    assert list(place.iterdir()) == [taken]
    assert macro_library._read_stored("0123") is None
    (taken / "full").rmdir()
    taken.rmdir()
    macro_library._store("0123")
    assert list(place.iterdir()) == [taken]
    assert macro_library._read_stored("0123") == content


@pytest.mark.thorough
@pytest.mark.parametrize("writes", [True, False])
def test_nothing_is_kept_where_python_keeps_nothing(
    writes: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(macro_library.sys, "dont_write_bytecode", not writes)
    if writes:
        place.write_bytes(b"")  # no folder can be made there
    assert publish_release(tmp_path / "first.duckdb").verify().verified
    assert not place.is_dir()
