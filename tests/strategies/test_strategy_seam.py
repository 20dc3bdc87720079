"""Strategies from the registry: one of EXTENDING.md and a local one, outside the package, go all the way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.strategies.compare import policies_by_strategy
from sqlanon.strategies.registry import register, unregister
from support.commands import cli
from support.recipes import recipe
from support.seam_tables import HEIGHTS, lost, patients, write
from support.whole_classes import WholeClasses

TOYS = (recipe("descent").Descent(), WholeClasses())


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    for toy in TOYS:
        register(toy)
    yield
    for toy in TOYS:
        unregister(toy)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("limit", [0, 0.1])
def test_descent_ends_where_no_step_down_is_possible(tmp_path: Path, seed: int, limit: float) -> None:
    rows = patients(seed)
    with sqlanon.connect() as db:
        result = db.anonymize(write(tmp_path, rows, "descent", limit))
    levels = tuple(level or 0 for level in result.generalization.values())
    assert result.suppressed_rows == lost(rows, levels) <= limit * len(rows)
    lower = [(levels[0] - 1, levels[1]), (levels[0], levels[1] - 1)]
    assert all(min(levels) < 0 or lost(rows, levels) > limit * len(rows) for levels in lower)
    assert not result.optimal


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
def test_whole_classes_is_as_good_as_the_best_generalization(tmp_path: Path, seed: int) -> None:
    rows = patients(seed)
    policies = [write(tmp_path, rows, strategy, 0.1) for strategy in ("whole-classes", "optimal")]
    with sqlanon.connect() as db:
        result, best = (db.anonymize(policy) for policy in policies)
    assert result.score == pytest.approx(best.score)
    assert (result.suppressed_rows, result.classes) == (best.suppressed_rows, best.classes)
    possible = [
        combination
        for combination in itertools.product(*(range(top + 1) for top in HEIGHTS))
        if lost(rows, combination) <= 5
    ]
    assert tuple(best.generalization.values()) in possible


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", [toy.name for toy in TOYS])
def test_a_release_is_published_verified_and_reported(tmp_path: Path, strategy: str) -> None:
    policy = write(tmp_path, patients(1), strategy, 0.1)
    done = cli("anonymize", "policy.toml", "--json", cwd=tmp_path)
    assert done.status == 0, done.err
    assert json.loads(done.out)["measure"] == "loss"
    release = tmp_path / "release.duckdb"
    with sqlanon.connect() as db:
        assert db.verify(release, policy).verified
    with duckdb.connect(str(release), read_only=True) as connection:
        sizes = connection.execute("SELECT min(n) FROM (SELECT count(*) n FROM patients GROUP BY ALL)").fetchall()
    assert sizes[0][0] >= 3
    assert cli("plan", "policy.toml", cwd=tmp_path).status == 0
    if strategy == "descent":  # a page takes its name from the manifest
        assert cli("report", "release.duckdb", "-o", "report.html", cwd=tmp_path).status == 0
        assert strategy in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_strategies_are_compared(tmp_path: Path) -> None:
    policy = write(tmp_path, patients(1), "optimal", 0.1)
    with sqlanon.connect() as db:
        rows = db.compare(policy, ["optimal", *(toy.name for toy in TOYS)]).fetchall()
    assert [row[0] for row in rows] == ["optimal", "descent", "whole-classes"]
    assert rows[2][1] == pytest.approx(rows[0][1])
    assert rows[1][1] >= rows[0][1]
    assert {"descent", "whole-classes"} <= policies_by_strategy(policy, None).keys()


def problems(**search: Any) -> list[str]:
    with pytest.raises(sqlanon.PolicyError) as caught:
        sqlanon.Policy(
            attributes={"zip": {"role": "quasi", "hierarchy": "suppress"}},
            privacy={"k": 2, "average_risk": 0.5},
            search=search,
        )
    return [str(problem) for problem in caught.value.problems]


def test_policy_knows_the_registered_strategy() -> None:
    assert "descent" in sqlanon.Policy.model_json_schema()["$defs"]["SearchSection"]["properties"]["strategy"]["enum"]
    (message,) = problems(strategy="whole-classes")
    assert message.startswith("privacy.average_risk: strategy whole-classes decides class by class")
    (message,) = problems(strategy="decent")
    assert "did you mean 'descent'?" in message
    with pytest.raises(ValueError, match="already"):
        register(TOYS[0])
