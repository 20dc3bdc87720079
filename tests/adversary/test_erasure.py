"""Rows that have left a source excuse no release but the one that was published, byte by byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support import change, failed, folder_again, kept

import sqlanon
from sqlanon.release.source_change import SOURCE_CHECK

CREATE = """
    CREATE TABLE visits AS
    SELECT i AS id, 'p' || (i % 60) AS pid, 20 + (i % 60) % 20 AS age, 'illness ' || i % 4 AS illness
    FROM range(180) AS r(i)
"""
WITHDRAW = "DELETE FROM visits WHERE pid = 'p1'"


def policy(folder: Path, **release: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "h.duckdb", "table": "visits", "key": ["id"], "person": "pid"},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": 3},
        release={"database": folder / "r.duckdb", "table": "visits", **release},
        catalog={"database": folder / "c.duckdb"},
    )


@pytest.fixture(scope="module")
def published_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, its release, and another release of the same policy that the ledger does not have: one value is
    another."""
    folder = tmp_path_factory.mktemp("visits")
    change(folder / "h.duckdb", CREATE)
    with sqlanon.connect() as db:
        db.anonymize(policy(folder)).publish()
    shutil.copytree(folder, aside := folder.with_name("aside"))
    change(folder / "h.duckdb", "UPDATE visits SET illness = 'forged' WHERE id = 100")
    (folder / "c.duckdb").unlink()
    with sqlanon.connect() as db:
        db.anonymize(policy(folder)).publish()
    shutil.move(folder / "r.duckdb", folder / "forged.duckdb")
    for name in ("h.duckdb", "r.duckdb", "c.duckdb"):
        shutil.copy(aside / name, folder / name)
    return kept(folder)


@pytest.fixture
def visits(published_before: tuple[Path, Path]) -> Path:
    return folder_again(*published_before)


def verify(folder: Path, release: str) -> Any:
    with sqlanon.connect() as db:
        return db.verify(folder / release, policy(folder))


@pytest.mark.parametrize("place", ["forged.duckdb", "r.duckdb"])
def test_a_forged_release_beside_deleted_rows_stays_red(visits: Path, place: str) -> None:
    change(visits / "h.duckdb", WITHDRAW)
    if place == "r.duckdb":
        shutil.copy(visits / "forged.duckdb", visits / place)
    found = verify(visits, place)
    assert found.source_change is None
    assert "against the source: recoded source" in failed(found)
    assert SOURCE_CHECK not in failed(found)
    assert ("against the ledger: sha256" in failed(found)) == (place == "r.duckdb")


def test_one_byte_more_is_not_the_release_that_was_published(visits: Path) -> None:
    """The rows are those of the ledger, and the file is not."""
    change(visits / "h.duckdb", WITHDRAW)
    with (visits / "r.duckdb").open("ab") as file:
        file.write(b"\0" * 262_144)
    shutil.move(visits / "r.duckdb", visits / "longer.duckdb")
    found = verify(visits, "longer.duckdb")
    assert found.source_change is None
    assert "against the source: recoded source" in failed(found)


def test_deleted_rows_beside_the_published_release_are_named(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW)
    found = verify(visits, "r.duckdb")
    assert failed(found) == {SOURCE_CHECK}
    assert found.source_change.withdrawn_persons == 1
