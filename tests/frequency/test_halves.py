"""Checks of large tables by half of their classes: what they say is right, and the answer stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from people_cases import people, policy_of

import sqlanon
from properties import privacy_cases, privacy_checks, random_cases, search_checks
from properties.privacy_cases import PrivacyCase
from properties.random_cases import Case
from properties.search_checks import thorough
from sqlanon.strategies.lattice.candidate import candidate_query
from sqlanon.strategies.lattice.checker import Checker
from sqlanon.support.coding import Levels
from support.lanes import examples
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET

HALVING_FACTOR = "sqlanon.strategies.lattice.checker.HALVING_FACTOR"
SHARE = "sqlanon.frequency.sets.FIRST_SET_SHARE"


@pytest.fixture(autouse=True)
def shares(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """No generalization shares its frequency set with others, and each is checked by halves, which are held against a
    set of its own. What share of the classes was enough."""
    for name, value in ((SMALL_SET, 0), (COARSE_SET, 0), (SHARE, 10**9), (ROWS_PER_CODE, 10**9), (HALVING_FACTOR, 0)):
        monkeypatch.setattr(name, value)
    shares_seen: list[float] = []
    by_halves = Checker._count_by_halves

    def hold_share(self: Checker, levels: Levels) -> tuple[dict[str, Any], float] | None:
        halved = by_halves(self, levels)
        if halved is None:
            return None
        row, share = halved
        shares_seen.append(share)
        whole = self._sets.runner.fetch_figures(
            candidate_query(self._sets.class_space(levels), levels, self._needs_least_suppressed)
        )
        for name, value in row.items():
            if share == 1:
                assert value == pytest.approx(whole[name] or 0)
            else:
                assert value <= (whole[name] or 0) * (1 + 1e-9)
        if share < 1:
            assert (
                row["least_suppressed"] if self._needs_least_suppressed else row["suppressed_rows"]
            ) > self._limit.rows
        return row, share

    monkeypatch.setattr(Checker, "_count_by_halves", hold_share)
    yield shares_seen


@settings(thorough, max_examples=examples(30))
@given(case=random_cases.cases())
def test_optimal_search_with_halves_matches_the_oracle(case: Case) -> None:
    search_checks.check(case, "optimal")


@pytest.mark.slow
@settings(thorough, max_examples=examples(50))
@given(case=privacy_cases.privacy_cases())
def test_requirements_with_halves_match_the_oracle(case: PrivacyCase) -> None:
    privacy_checks.check(case)


def people_lattice(measure: str = "loss", strategy: str = "optimal") -> dict[Levels, tuple[Any, ...]]:
    """The lattice table of a search of people."""
    policy = policy_of(k=5)
    section = policy.search.model_copy(update={"measure": measure, "strategy": strategy})
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people AS {people(20_000)}")
    with sqlanon.connect(connection) as database:
        result = database.anonymize(policy.model_copy(update={"search": section}))
        return {tuple(row[0]): tuple(row[1:]) for row in result.lattice.fetchall()}


@pytest.mark.thorough
def test_generalizations_refuted_by_half_of_the_classes_have_no_figures(
    shares: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    lattice = people_lattice()
    assert 0.5 in shares
    monkeypatch.setattr(HALVING_FACTOR, 1e9)
    whole = people_lattice()
    assert max(row[-1] or 0 for row in whole.values()) > 0
    halved = 0
    for levels in lattice.keys() & whole.keys():
        status, classes, suppressed, score = lattice[levels][2:]
        if whole[levels][4] is None or suppressed is None:
            halved += status == "violates" and classes is None and whole[levels][4] is not None
            assert score is None
        else:
            assert (status, classes, suppressed, score) == whole[levels][2:]
    assert halved > 0


@pytest.mark.thorough
@pytest.mark.parametrize("measure", ["discernibility", "average_class_size", "distinct"])
def test_measures_that_learn_from_failures_count_all_classes(shares: list[float], measure: str) -> None:
    people_lattice(measure)
    assert shares == []


@pytest.mark.thorough
def test_strategies_that_explain_failures_count_all_classes(shares: list[float]) -> None:
    people_lattice(strategy="samarati")
    assert shares == []


@pytest.mark.thorough
def test_tables_of_halves_are_dropped() -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people AS {people(20_000)}")
    with sqlanon.connect(connection) as database:
        result = database.anonymize(policy_of(k=5))
        engine = result._run.engine
        names = engine.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert not [name for (name,) in names if name.startswith("half_")]
