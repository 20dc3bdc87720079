"""Strategies that find every k-minimal generalization by themselves: what they find, prove, and admit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from limited_searches import Limited, every_stop, limit_search, minimal_of
from wide_search import wide_search

import sqlanon
from oracles import oracle
from oracles.oracle import Levels, Release, Table
from oracles.oracle_privacy import k_minimal as k_minimal_privacy
from oracles.oracle_privacy import solve as solve_privacy
from oracles.score_bounds import holds
from properties import privacy_cases
from properties.plain_search import search_by, search_of
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import anonymize_case
from properties.privacy_checks import thorough as thorough_privacy
from properties.random_cases import Case
from properties.search_checks import FIGURE_3, thorough
from sqlanon.strategies.full_domain.ola import _at_height
from sqlanon.strategies.lattice import LatticeSearch, Outcome
from sqlanon.support.coding import Levels as OwnLevels
from support.lanes import draw_tables

ALL = pytest.mark.parametrize("strategy", ["ola", "flash", "incognito"])


def check(limited_case: Limited, strategy: str) -> None:
    """Results are feasible, claimed proofs are true, and at the end nothing is missing."""
    case, satisfying = limited_case.case, limited_case.satisfying()
    best, minimal = oracle.best(satisfying, case.measure), {figures.levels for figures in minimal_of(satisfying)}
    scores = {figures.levels: figures.score for figures in satisfying}
    for search, outcome in every_stop(limited_case, strategy):
        if best is None:
            assert (outcome.levels, outcome.exhaustive) == (None, True)
            continue
        sign = -1 if case.measure in oracle.MAXIMISED else 1
        assert holds(outcome.bound, sign * best.score)
        assert outcome.levels is None or outcome.levels in scores
        if outcome.stopped:
            assert not outcome.optimal
            assert set(outcome.minimal or ()) <= minimal
            continue
        assert list(outcome.minimal or ()) == sorted(minimal)
        assert outcome.levels is not None
        if outcome.optimal:
            assert (outcome.levels, outcome.bound) == (best.levels, search.scores[best.levels])
        if case.limit == "0" or case.measure in ("height", "relative_height"):
            assert outcome.optimal, "the measure rises along the lattice"
        check_choice(search, outcome, strategy, [figures.levels for figures in satisfying], sorted(minimal))


def check_choice(
    search: LatticeSearch, outcome: Outcome, strategy: str, satisfying: list[Levels], minimal: list[Levels]
) -> None:
    """At the end, each strategy has the best of its own selection."""
    chosen_from = {"ola": minimal, "flash": [*search.scores], "incognito": [*search.scores]}
    assert outcome.levels == search.choose_preferred(chosen_from[strategy])
    if strategy == "incognito":
        assert outcome.optimal
        assert list(outcome.satisfying or ()) == sorted(satisfying)
    else:
        assert outcome.satisfying is None


@pytest.mark.cases(1)
@ALL
@settings(thorough, max_examples=draw_tables(20, usual=60))
@given(limited_case=limit_search())
def test_ola_finds_every_minimum_and_reports_stops(strategy: str, limited_case: Limited) -> None:
    check(limited_case, strategy)


def check_privacy(case: PrivacyCase, strategy: str) -> None:
    """Check with any requirements, monotone under suppression or not, through the public API."""
    expected = k_minimal_privacy(**case.arguments)
    if expected is None:
        message = r"no generalization meets the policy|nothing to release"
        with pytest.raises(sqlanon.InfeasibleError, match=message), anonymize_case(case, strategy):
            pass
        return
    best = solve_privacy(**case.arguments)
    assert best is not None
    with anonymize_case(case, strategy) as (result, *_):
        minimal = [tuple(node[name] for name in case.source.quasi) for node in result.k_minimal]
    assert minimal == sorted(figures.levels for figures in expected.satisfying)
    if strategy == "incognito":
        satisfying = [tuple(node[name] for name in case.source.quasi) for node in result.satisfying]
        assert satisfying == [figures.levels for figures in best.satisfying]
        assert result.to_dict()["satisfying"] == len(satisfying)
    assert result.optimal or strategy != "incognito"
    if result.optimal:
        assert tuple(result.generalization[name] for name in case.source.quasi) == best.levels


@pytest.mark.thorough
@ALL
@thorough_privacy
@given(case=privacy_cases.privacy_cases())
def test_ola_finds_every_minimum_with_any_requirement(strategy: str, case: PrivacyCase) -> None:
    check_privacy(case, strategy)


@ALL
def test_every_minimum_of_figure_3_is_found(strategy: str) -> None:
    search = search_of(FIGURE_3)
    outcome = search_by(strategy, search)
    assert outcome.minimal == ((0, 1), (1, 0))
    assert (outcome.levels, outcome.optimal) == ((0, 1), True)


def test_half_the_height_is_all_of_it() -> None:
    low, high = (1, 0, 2), (3, 2, 2)
    every = set(levels_between(low, high))
    assert sum(len(list(_at_height(low, high, height))) for height in range(5)) == len(every)
    assert set(_at_height(low, high, 2)) == {levels for levels in every if sum(levels) == 5}


def levels_between(low: OwnLevels, high: OwnLevels) -> Iterator[OwnLevels]:
    return ((a, b, c) for a in range(low[0], high[0] + 1) for b in range(low[1], high[1] + 1) for c in (low[2],))


@pytest.mark.parametrize("strategy", ["ola", "flash"])
def test_a_wide_lattice_is_not_laid_out(strategy: str) -> None:
    search = wide_search(0.05, checks=60)
    outcome = search_by(strategy, search)
    assert outcome.stopped == "max_checks = 60"
    assert outcome.levels is not None
    assert outcome.bound < search.scores[outcome.levels] < 1


# The higher one suppresses nothing; the lower one is k-minimal, and loses as much by the four rows that it leaves out.
HIGHER_IS_BETTER = Case(
    rows=[("a", "x")] * 6 + [("a", "y")] * 4,
    hierarchies={
        "one": oracle.Hierarchy({"a": ("a", "*"), "b": ("b", "*")}),
        "two": oracle.Hierarchy({v: (v, "*") for v in "xyz"}),
    },
    k=5,
    limit="0.5",
    measure="suppression",
)


def test_ola_is_worse_than_optimal_where_a_higher_one_suppresses_less() -> None:
    search = search_of(HIGHER_IS_BETTER)
    outcome, best = search_by("ola", search), oracle.solve(**HIGHER_IS_BETTER.arguments)
    assert best is not None
    assert (outcome.levels, outcome.optimal, outcome.bound) == ((0, 0), False, 0.0)
    assert (best.levels, best.score) == ((0, 1), 0)
    assert search.scores[(0, 0)] == 4


@ALL
def test_no_generalization_is_checked_twice(strategy: str) -> None:
    """Three of 8 generalizations decide: the top, and the two on either side of the border."""
    case = replace(HIGHER_IS_BETTER, limit="0", measure="loss")
    checks: list[Levels] = []
    search = search_of(case)
    count = search.checker

    def check_once(levels: Levels) -> Any:
        assert levels not in checks
        checks.append(levels)
        return count(levels)

    search.checker = check_once
    outcome = search_by(strategy, search)
    table = Table.of(case.rows, case.hierarchies)
    assert outcome.levels is not None
    assert math.isclose(search.scores[outcome.levels], oracle.score(Release(table, outcome.levels, case.k), "loss"))
    assert len(checks) <= 4
