"""Publish in a process that is killed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.ledger import recording

POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
key = ["id"]
[attributes]
id = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
illness = { role = "sensitive" }
[privacy]
k = %d
[search]
suppression_limit = 0.05
[catalog]
database = "private.duckdb"
[release]
"""


ROWS = 300


def policy(folder: Path, name: str, release: str, k: int = 5) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(POLICY % k + release)
    return path


def file_release(name: str, keep: int = 1) -> str:
    if name.endswith(".parquet"):
        return f'file = "{name}"\ntable = "patients"\n'
    return f'database = "{name}"\ntable = "patients"\nkeep = {keep}\n'


def make(path: Path, force: bool = False) -> tuple[sqlanon.Result, Any]:
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(path))
        return result, result.publish(force=force)


def query_catalog(folder: Path, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Content of the catalog, read without sqlanon."""
    with duckdb.connect(folder / "private.duckdb", read_only=True) as catalog:
        return catalog.execute(query, parameters).fetchall()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT i AS id, CAST(2130 + hash(i) % 40 AS VARCHAR) AS zip, "
            f"CAST(hash(i + 1) % 90 AS INTEGER) AS age, 'illness ' || i % 7 AS illness FROM range({ROWS}) AS r(i)"
        )
    return folder


@pytest.fixture
def folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    spill, work = tmp_path / "spill", tmp_path / "work"
    spill.mkdir()
    work.mkdir()
    monkeypatch.setenv("TMPDIR", str(spill))
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    shutil.copy(source / "hospital.duckdb", work)
    return work


class Killed(BaseException):
    """A run ends here, whatever it wanted to do afterwards."""


@contextmanager
def killed_at(module: Any, name: str) -> Iterator[None]:
    """A run that ends where it calls a function, and does nothing more for the ledger."""
    settle, dead = recording.settle_intents, list[bool]()

    def dying(*_: Any) -> None:
        dead.append(True)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, dying)
        patch.setattr(recording, "settle_intents", lambda *arguments: None if dead else settle(*arguments))
        with pytest.raises(Killed):
            yield
