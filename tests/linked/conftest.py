"""A release of linked tables that the tests of several features read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sqlanon.database import connect
from sqlanon.linked.anonymize import LinkedResult
from sqlanon.linked.check import peeling, snapshot
from sqlanon.policy.linked import LinkedPolicy
from support.linked_hospital import make_hospital


@pytest.fixture(scope="session")
def hospital_result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedResult]:
    """The result for a hospital, which each test publishes to a separate location. No ledger compares the releases."""
    folder = tmp_path_factory.mktemp("hospital")
    make_hospital(folder)
    policy = LinkedPolicy.load(folder / "policy.toml")
    with connect() as db:
        yield replace(db.anonymize(policy.model_copy(update={"catalog": None})), policy=policy)


@pytest.fixture(scope="session")
def hospital(hospital_result: LinkedResult) -> Path:
    """A folder with a hospital, its policy, and two releases: a file and a folder. Tests change copies."""
    release = hospital_result.publish()
    hospital_result.publish(release.path.parent / "release")
    return release.path.parent


@pytest.fixture
def hospital_copy(hospital: Path, tmp_path: Path) -> Path:
    """A copy of the hospital, its policy and its releases."""
    return shutil.copytree(hospital, tmp_path / "hospital")


@pytest.fixture
def steps_of_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count parts of the classes, leave out classes that no longer change, and remove few persons late."""
    monkeypatch.setattr(peeling, "PART_ROWS", dict.fromkeys((1, 2, 3, "all"), 8))
    monkeypatch.setattr(peeling, "POSTPONED_SHARE", 2)
    monkeypatch.setattr(snapshot, "FEW_PERSONS", 0)
