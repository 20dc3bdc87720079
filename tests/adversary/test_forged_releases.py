"""Nothing of a forged release file is evaluated: its catalog, or its layout, is read first, and its rows only then."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from adversary.forged import DUCKDB, MARK, PARQUET
from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import verify_file
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SqlanonError
from sqlanon.release import reader
from support.between_statements import attack_between
from support.lanes import examples, some
from support.policies import make_policy

pytestmark = pytest.mark.slow

SOURCE = """
    CREATE TABLE people AS
    SELECT 'Person ' || i AS name, '101' || (10 + i % 4) AS zip, 20 + i % 30 AS age,
           ['flu', 'gout'][1 + i % 2] AS illness, i AS cost
    FROM range(120) AS r(i)
"""
ROLES = {
    "name": "identifying",
    "zip": "mask",
    "age": {"intervals": [10, 20]},
    "illness": "sensitive",
    "cost": "insensitive",
}


def policy_of(folder: Path, **sections: Any) -> sqlanon.Policy:
    source = {"database": str(folder / "source.duckdb"), "table": "people"}
    return make_policy(ROLES, k=3, table=None, **{"source": source, **sections})


def keeping_two(folder: Path, path: Path) -> sqlanon.Policy:
    release, catalog = {"database": str(path), "keep": 2}, {"database": str(folder / "catalog.duckdb")}
    return policy_of(folder, release=release, catalog=catalog)


@pytest.fixture(scope="module")
def published_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source, and a release of each kind."""
    folder = tmp_path_factory.mktemp("forged")
    with duckdb.connect(folder / "source.duckdb") as connection:
        connection.execute(SOURCE)
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(folder))
        for name in ("r.duckdb", "r.parquet"):
            result.publish(folder / name, "people")
    return folder


@pytest.fixture
def folder(published_release: Path, tmp_path: Path) -> Iterator[Path]:
    yield Path(shutil.copytree(published_release, tmp_path / "copy"))


def verdict(work: Callable[[], Any]) -> str:
    """Message of a command about a release; empty if all is well."""
    try:
        outcome = work()
    except SqlanonError as error:
        return str(error)
    return "; ".join(outcome.failures) if isinstance(outcome, Verification) else ""


def readers_of(path: Path, folder: Path) -> dict[str, Callable[[], Any]]:
    """Everything that reads a release file."""
    release = sqlanon.Release(path, "people", verify_file(folder.parent / "whole" / path.name).manifest)

    def with_the_policy() -> Any:
        with sqlanon.connect() as db:
            return db.verify(path, policy_of(folder))

    def publish_in_its_place() -> Any:
        with sqlanon.connect() as db:
            db.anonymize(keeping_two(folder, path)).publish(path, "people")
        return verify_file(path)

    return {
        "verify": lambda: verify_file(path),
        "verify --policy": with_the_policy,
        "class sizes": release.class_sizes,
        "arrow": release.arrow,
        "attack": lambda: sqlanon.attack(path),
        "publish in its place": publish_in_its_place,
    }


@pytest.mark.thorough
def test_a_forgery_would_be_evaluated(folder: Path) -> None:
    """A client that reads the forged relations would evaluate them."""
    for forgery in ("the rows are a view", "the rows have a generated column", "the view of readers"):
        path = Path(shutil.copy(folder / "r.duckdb", folder / f"{forgery}.duckdb"))
        DUCKDB[forgery](path, "people")
        with duckdb.connect(path, read_only=True) as connection, pytest.raises(duckdb.Error, match=MARK):
            connection.execute("FROM people").fetchall()


@pytest.mark.parametrize("forgery", some(DUCKDB, 4))
def test_nothing_of_a_duckdb_file_is_evaluated(forgery: str, folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "whole")
    path = folder / "r.duckdb"
    DUCKDB[forgery](path, "people")
    forged = path.read_bytes()
    for verb, work in readers_of(path, folder).items():
        answer = verdict(work)
        assert MARK not in answer, verb
        assert answer or not verb.startswith("verify"), verb
        if path.read_bytes() != forged:
            assert verb == "publish in its place"
            assert verify_file(path).verified


@pytest.mark.parametrize("forgery", some(PARQUET, 4))
def test_no_row_of_a_forged_parquet_file_is_read(forgery: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder, folder.parent / "whole")
    path = folder / "r.parquet"
    PARQUET[forgery](path, "people")

    def read(paths: Any) -> Any:
        raise AssertionError(f"{paths} is read")

    verbs = readers_of(path, folder)
    monkeypatch.setattr(reader, "read_parquet", read)
    began = time.monotonic()
    for verb in ("verify", "class sizes", "arrow", "attack"):
        assert verdict(verbs[verb]), verb
    assert time.monotonic() - began < 60


def numbers_of(work: Callable[[], Any], most: int) -> list[int]:
    """Some of the statements of a publication, by number."""
    with attack_between(DuckDBEngine, lambda: None, None, methods=DUCKDB_METHODS) as statements:
        work()
    return list(range(0, len(statements.texts), max(1, len(statements.texts) // most)))


DUCKDB_METHODS = ("execute", "rows", "columns", "types", "script", "attach")


@pytest.mark.thorough
def test_somebody_exchanges_the_file_between_two_statements(folder: Path) -> None:
    """A publication in the place of a release, whose older version it keeps."""
    path, replacement, catalog = folder / "first.duckdb", folder / "other.duckdb", folder / "catalog.duckdb"
    with sqlanon.connect() as db:
        result = db.anonymize(keeping_two(folder, path))
        result.publish(path, "people")
        whole, recorded = path.read_bytes(), catalog.read_bytes()
        shutil.copy(path, replacement)
        DUCKDB["the rows are a view"](replacement, "people")
        forged = replacement.read_bytes()

        def publish() -> None:
            path.write_bytes(whole)
            catalog.write_bytes(recorded)  # without the publications before
            result.publish(path, "people")

        def exchange() -> None:
            shutil.copy(replacement, folder / "moved.duckdb")
            (folder / "moved.duckdb").replace(path)

        for number in numbers_of(publish, examples(12)):
            with attack_between(DuckDBEngine, exchange, number, methods=DUCKDB_METHODS) as statements:
                answer = verdict(publish)
            where = f"before {statements.texts[number : number + 1]}: {answer}"
            assert MARK not in answer, where
            # Changes after the publication stay: the ledger has the SHA-256 of the published file.
            assert path.read_bytes() == forged or (not answer and verify_file(path).verified), where


@pytest.mark.thorough
def test_somebody_exchanges_an_earlier_release_while_it_is_compared(folder: Path) -> None:
    """The two are compared by the engine that has the source."""
    path, replacement = folder / "first.duckdb", folder / "other.duckdb"
    catalog = {"database": str(folder / "catalog.duckdb")}
    with sqlanon.connect() as db:
        db.anonymize(policy_of(folder, catalog=catalog)).publish(path, "people")
        whole = path.read_bytes()
        shutil.copy(path, replacement)
        DUCKDB["the rows have a generated column"](replacement, "people")
        fewer = policy_of(folder, catalog=catalog, search={"suppression_limit": 0.1})
        result = db.anonymize(fewer)

        def publish() -> None:
            path.write_bytes(whole)
            result.publish(folder / "second.duckdb", "people")

        def exchange() -> None:
            shutil.copy(replacement, folder / "moved.duckdb")
            (folder / "moved.duckdb").replace(path)

        for number in numbers_of(lambda: verdict(publish), examples(12)):
            with attack_between(DuckDBEngine, exchange, number, methods=DUCKDB_METHODS) as statements:
                answer = verdict(publish)
            assert MARK not in answer, f"before {statements.texts[number : number + 1]}: {answer}"
