"""Measures from the registry: one of EXTENDING.md, in a file outside the package, goes all the way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import sqlanon
from sqlanon.measures import register, unregister
from sqlanon.strategies import registry
from support.commands import cli
from support.databases import change, fetch
from support.lanes import some
from support.recipes import recipe
from support.seam_tables import HEIGHTS, Row, lost, patients, write
from support.whole_classes import WholeClasses

pytestmark = pytest.mark.slow

Steepest = recipe("steepest").Steepest


@pytest.fixture(autouse=True)
def steepest() -> Iterator[None]:
    registry.register(whole := WholeClasses())
    register(Steepest)
    yield
    unregister(Steepest)
    registry.unregister(whole)


def best(rows: Sequence[Row], limit: float) -> tuple[float, tuple[int, ...]]:
    """The least score of all generalizations that leave out few enough rows; then the height, and the levels."""
    candidates = []
    for levels in itertools.product(*(range(top + 1) for top in HEIGHTS)):
        share = lost(rows, levels) / len(rows)
        if share <= limit:
            steep = max(level / top for level, top in zip(levels, HEIGHTS, strict=True))
            candidates.append((round(steep * (1 - share) + share, 12), sum(levels), levels))
    return min(candidates)[0], min(candidates)[2]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", some(range(3), 2))
@pytest.mark.parametrize("strategy", ["optimal", "incognito"])
def test_the_search_finds_the_best_by_it(tmp_path: Path, seed: int, strategy: str) -> None:
    rows = patients(seed)
    with sqlanon.connect() as db:
        result = db.anonymize(write(tmp_path, rows, strategy, 0.2, "steepest"))
    score, levels = best(rows, 0.2)
    assert (result.score, tuple(result.generalization.values())) == (pytest.approx(score), levels)
    assert result.optimal


@pytest.mark.thorough
def test_a_release_below_the_full_domain_is_scored_by_it(tmp_path: Path) -> None:
    """The measure scores the sums of levels; `whole-classes` releases the levels of the optimum."""
    strategies = ("whole-classes", "optimal")
    policies = [write(tmp_path, patients(2), strategy, 0.1, "steepest") for strategy in strategies]
    with sqlanon.connect() as db:
        scores = [db.anonymize(policy).score for policy in policies]
    assert scores == pytest.approx([best(patients(2), 0.1)[0]] * 2)


@pytest.mark.thorough
def test_custom_score_is_published_verified_and_reported(tmp_path: Path) -> None:
    policy = write(tmp_path, patients(1), "optimal", 0.2, "steepest")
    done = cli("anonymize", "policy.toml", "--json", cwd=tmp_path)
    document = json.loads(done.out)
    assert (document["measure"], document["score"]) == ("steepest", pytest.approx(best(patients(1), 0.2)[0]))
    path = tmp_path / "release.duckdb"
    assert fetch(path, "SELECT measure, score FROM sqlanon.manifest")[0] == (
        "steepest",
        pytest.approx(document["score"]),
    )
    with sqlanon.connect() as db:
        assert db.verify(path, policy).verified
    assert cli("report", "release.duckdb", "-o", "report.html", cwd=tmp_path).status == 0
    assert Steepest.description in (tmp_path / "report.html").read_text(encoding="utf-8")
    change(path, "UPDATE sqlanon.manifest SET score = score / 2")
    assert cli("verify", "release.duckdb", cwd=tmp_path).status == 1


def test_strategies_are_compared_by_it(tmp_path: Path) -> None:
    policy = write(tmp_path, patients(1), "optimal", 0.2, "steepest")
    with sqlanon.connect() as db:
        rows = dict(db.compare(policy, ["optimal", "datafly"]).project("strategy, score").fetchall())
    assert rows["optimal"] == pytest.approx(best(patients(1), 0.2)[0])
    assert rows["datafly"] >= rows["optimal"]
