"""The macro library of a release is copied from a prepared file, and is the same as its scripts make it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from conftest import make_policy

import sqlanon
from sqlanon.release import macro_library


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the bytecode, which Python writes; no run of this process has prepared anything."""
    monkeypatch.setattr(macro_library, "_CONTENT", {})
    monkeypatch.setattr(macro_library, "_place", lambda key: tmp_path / "cache" / f"macros.{key}.duckdb")
    monkeypatch.setattr(macro_library.sys, "dont_write_bytecode", False)
    return tmp_path / "cache"


def published(path: Path) -> sqlanon.Release:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'a' AS sex FROM range(5)")
        with sqlanon.connect(connection) as db:
            return db.anonymize(make_policy({"sex": "suppress"}, k=2)).publish(path)


def test_the_library_is_prepared_once_and_verifies_as_unchanged(place: Path, tmp_path: Path) -> None:
    first = published(tmp_path / "first.duckdb")  # prepares it
    (kept,) = place.iterdir()
    content = kept.read_bytes()
    macro_library._CONTENT.clear()
    second = published(tmp_path / "second.duckdb")  # reads it
    assert kept.read_bytes() == content
    for release in (first, second):
        checks = {check.name: check.passed for check in release.verify().checks}
        assert checks["macros"] is True
        assert checks["contents"] is True
        assert checks["file"] is True


@pytest.mark.slow
def test_a_damaged_file_is_made_again(place: Path, tmp_path: Path) -> None:
    published(tmp_path / "first.duckdb")
    (kept,) = place.iterdir()
    content = kept.read_bytes()
    for damaged in (b"", content[:9000], content[:20000] + bytes(len(content) - 20000)):
        kept.write_bytes(damaged)
        macro_library._CONTENT.clear()
        assert published(tmp_path / "again.duckdb").verify().verified
        assert len(kept.read_bytes()) == len(content)


@pytest.mark.slow
def test_another_version_of_the_library_has_a_file_of_its_own(place: Path, tmp_path: Path) -> None:
    published(tmp_path / "first.duckdb")
    (old,) = place.iterdir()
    stale = old.with_name("macros.0123456789abcdef.duckdb")
    old.rename(stale)
    macro_library._CONTENT.clear()
    assert published(tmp_path / "second.duckdb").verify().verified
    assert list(place.iterdir()) == [old]


@pytest.mark.slow
@pytest.mark.parametrize("writes", [True, False])
def test_nothing_is_kept_where_python_keeps_nothing(
    writes: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(macro_library.sys, "dont_write_bytecode", not writes)
    if writes:
        place.write_bytes(b"")  # no folder can be made there
    assert published(tmp_path / "first.duckdb").verify().verified
    assert not place.is_dir()
