"""A reader who knows whose each row is counts the persons of each class, in the releases of each engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sqlanon
from properties import persons_cases as cases
from support.servers.postgres import VARIABLE, Server

pytestmark = pytest.mark.thorough

K = 3


def check_release(db: sqlanon.Database, source: Mapping[str, Any], seed: int, folder: Path) -> None:
    rows = cases.visits(seed)
    tree = cases.tree(seed, privacy={"k": K}, search={"suppression_limit": 0.2})
    policy = sqlanon.Policy(**tree, source={**source, "person": "pid"})
    file = folder / "release.duckdb"
    result = db.anonymize(policy)
    result.publish(file, "visits")
    released = cases.released_rows(file)
    assert len(released) == result.released_rows > 0
    assert cases.fewest_persons(released, rows) >= K
    # The test distinguishes persons from rows: without persons, a class of one or two people is released.
    of_rows = sqlanon.Policy(**tree, source={**source, "person": False})
    db.anonymize(of_rows).publish(folder / "rows.duckdb", "visits")
    assert cases.fewest_persons(cases.released_rows(folder / "rows.duckdb"), rows) < K


SEEDS = [5, 7, 11]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_class_has_rows_of_k_persons(tmp_path: Path, seed: int) -> None:
    with sqlanon.connect(cases.in_duckdb(cases.visits(seed))) as db:
        check_release(db, {"table": "visits"}, seed, tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_class_has_rows_of_k_persons_in_postgres(postgres: Server, tmp_path: Path, seed: int) -> None:
    cases.in_postgres(postgres, cases.visits(seed))
    with sqlanon.connect() as db:
        check_release(db, {"postgres": f"env:{VARIABLE}", "table": "visited.visits"}, seed, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_each_class_has_rows_of_k_persons_in_spark(session: Any, tmp_path: Path, seed: int) -> None:
    cases.in_spark(session, cases.visits(seed), tmp_path)
    with sqlanon.connect(session) as db:
        check_release(db, {"table": "visits"}, seed, tmp_path)
