"""Strategies `samarati` and `samarati-binary`: the distance vectors, and what is found by them, and by height."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from limited_searches import Limited, every_stop, limit_search, minimal_of
from optima_workshop import policy_of
from wide_search import wide_search

import sqlanon
from oracles import oracle, oracle_privacy
from oracles.oracle import Hierarchy, Table
from oracles.plain_samarati import data_of, misses, plain_samarati, random_case, vectors
from oracles.score_bounds import holds
from properties import privacy_cases, random_cases
from properties.plain_search import search_by, search_of
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import anonymize_case as anonymized_privacy
from properties.privacy_checks import thorough as thorough_privacy
from properties.random_cases import Case
from properties.search_checks import FIGURE_3, anonymize_case, as_dict, thorough
from sqlanon.strategies.lattice import LatticeSearch, Outcome
from sqlanon.strategies.lattice.search import SourceFacts
from sqlanon.strategies.lattice.task import source_facts as data_of_engine
from support.lanes import draw_tables, some
from support.policies import make_policy

# a1 and a2 are siblings, as are d1 and d2; all else meets at the top.
SIBLINGS = Case(
    rows=[("a1", "b1"), ("a2", "b1"), ("c1", "d1"), ("c1", "d2")],
    hierarchies={
        "first": Hierarchy({"a1": ("a1", "a", "*"), "a2": ("a2", "a", "*"), "c1": ("c1", "c", "*")}),
        "second": Hierarchy({"b1": ("b1", "b", "*"), "d1": ("d1", "d", "*"), "d2": ("d2", "d", "*")}),
    },
    k=2,
    limit="0",
    measure="height",
)


def test_a_minimal_generalization_beside_distance_vectors_is_found() -> None:
    assert vectors(Table.of(SIBLINGS.rows, SIBLINGS.hierarchies), 2, (0, 0)) == {(0, 0), (1, 0), (0, 1), (2, 2)}
    assert plain_samarati(SIBLINGS) == {(2, 2)}  # what the theorem of 1998 leads to
    with anonymize_case(SIBLINGS, "samarati") as (result, _):
        assert result.k_minimal == [{"first": 1, "second": 1}]
        assert result.optimal


@pytest.mark.thorough
def test_among_vectors_only_k_minimal_generalizations_are_missed() -> None:
    """Tables found by exhaustive search; benchmarks/samarati_misses.py makes more. With joins, nothing is missed."""
    drawn = random.Random(1)
    cases = [random_case(drawn, 3, "0") for _ in range(150)]
    wrong = [miss for miss in map(misses, cases) if miss is not None]
    assert (len(wrong), *map(sum, zip(*wrong, strict=True))) == (135, 12, 3, 4)
    for case in cases:
        search = search_of(case)
        search.source_facts = data_of(case, search.lattice)
        minimal = search_by("samarati", search).minimal or ()
        assert list(minimal) == sorted(figures.levels for figures in oracle.k_minimal(**case.arguments).satisfying)


def search_with_limits(limited_case: Limited, strategy: str, **limits: Any) -> tuple[LatticeSearch, Outcome]:
    search = limited_case.search(**limits)
    search.source_facts = data_of(limited_case.case, search.lattice)
    return search, search_by(strategy, search)


def check_samarati(limited_case: Limited) -> None:
    """After any number of checks, results are feasible and proofs are true. At the end nothing is missing."""
    case, satisfying = limited_case.case, limited_case.satisfying()
    best, minimal = oracle.best(satisfying, case.measure), {figures.levels for figures in minimal_of(satisfying)}
    sign = -1 if case.measure in oracle.MAXIMISED else 1
    for checks in itertools.count(1):
        search, outcome = search_with_limits(limited_case, "samarati", checks=checks)
        if best is None:
            assert (outcome.levels, outcome.minimal, outcome.exhaustive) == (None, (), True)
            return
        assert outcome.levels in {figures.levels for figures in satisfying}
        assert holds(outcome.bound, sign * best.score)
        if not outcome.stopped:
            break
        assert not outcome.optimal
        assert set(outcome.minimal or ()) <= minimal
    assert list(outcome.minimal or ()) == sorted(minimal)
    assert outcome.levels == search.choose_preferred(minimal)
    if outcome.optimal:
        assert outcome.levels == best.levels
    else:
        assert case.limit != "0" and case.measure not in ("height", "relative_height")


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=50))
@given(limited_case=limit_search())
@example(limited_case=Limited(SIBLINGS, ((0, 2), (0, 1, 2))))
@example(limited_case=Limited(FIGURE_3, ((0, 1), (0, 1, 2))))
def test_samarati_finds_the_k_minimal_generalizations(limited_case: Limited) -> None:
    check_samarati(limited_case)


def check_binary(limited_case: Limited) -> None:
    """The least height, and there the preferred one by the measure."""
    case, satisfying = limited_case.case, limited_case.satisfying()
    best = oracle.best(satisfying, case.measure)
    least = min((sum(figures.levels) for figures in satisfying), default=0)
    lowest = oracle.best([figures for figures in satisfying if sum(figures.levels) == least], case.measure)
    sign = -1 if case.measure in oracle.MAXIMISED else 1
    for _, outcome in every_stop(limited_case, "samarati-binary"):
        if best is None or lowest is None:
            assert (outcome.levels, outcome.exhaustive) == (None, True)
            return
        assert outcome.levels in {figures.levels for figures in satisfying}
        assert holds(outcome.bound, sign * best.score)
    assert outcome.levels == lowest.levels
    assert outcome.levels == best.levels if outcome.optimal else case.measure != "height"


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=50))
@given(limited_case=limit_search())
@example(limited_case=Limited(FIGURE_3, ((0, 1), (0, 2))))
def test_binary_search_finds_the_least_height(limited_case: Limited) -> None:
    check_binary(limited_case)


def check_by_engine(case: Case) -> None:
    """The engine's vectors are those of plain Python, and the same is found through the public API."""
    expected = oracle.k_minimal(**case.arguments)
    if expected is None:
        return
    with anonymize_case(case, "samarati") as (result, _):
        assert result.k_minimal == [as_dict(case, figures.levels) for figures in expected.satisfying]
        assert dict(result.generalization) == as_dict(case, expected.levels), expected.ties
        bottom = (0,) * len(case.hierarchies)
        figures = set().union(*data_of_engine(result._search_input).vectors())
        assert figures == vectors(Table.of(case.rows, case.hierarchies), case.k, bottom)
        assert figures == set().union(*data_of_engine(result._search_input).vectors()), "it leaves nothing behind"


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=50))
@given(case=random_cases.cases())
@example(case=SIBLINGS)
def test_the_engine_finds_the_same_vectors(case: Case) -> None:
    check_by_engine(case)


@pytest.mark.thorough
@pytest.mark.parametrize(("pairs", "turns"), [(1, 4), (9, 2), (10_000_000, 1)])
def test_vectors_that_take_turns_are_the_same(pairs: int, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One outlier at a time, three or all four: each with those after it and those of its turn."""
    monkeypatch.setattr("sqlanon.strategies.lattice.vectors.PAIRS", pairs)
    with anonymize_case(SIBLINGS, "samarati") as (result, _):
        neighbours, *parts = list(data_of_engine(result._search_input).vectors())
        assert len(parts) == turns
        assert neighbours.union(*parts) == {(0, 0), (1, 0), (0, 1), (2, 2)}


@pytest.mark.thorough
def test_vectors_of_many_attributes_take_several_words() -> None:
    """3 to the 25th does not fit in an INTEGER: each digit is still unpacked correctly."""
    names = [f"a{i}" for i in range(25)]
    tree = Hierarchy({"x": ("x", "xy", "*"), "y": ("y", "xy", "*"), "z": ("z", "z", "*")})
    rows = [("x",) * 25, tuple("xyz"[i % 3] for i in range(25))]
    case = Case(rows, dict.fromkeys(names, tree), 2, "0", "height")
    with anonymize_case(case, "samarati") as (result, _):
        away = tuple(i % 3 for i in range(25))
        assert set().union(*data_of_engine(result._search_input).vectors()) == {(0,) * 25, away}
        assert tuple(result.generalization.values()) == away


@pytest.mark.thorough
def test_samarati_counts_outliers_from_the_lowest_permitted_level() -> None:
    """Outliers and distances count from the lowest permitted level; levels above the highest are left out."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('11', 'a'), ('12', 'a'), ('21', 'b')) v(zip, x)")
        with sqlanon.connect(connection) as db:
            zips = {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 1, "max_level": 1}
            policy = make_policy(
                {"zip": zips, "x": "suppress"}, search={"strategy": "samarati", "suppression_limit": 0.4}
            )
            result = db.anonymize(policy)
            assert dict(result.generalization) == {"zip": 1, "x": 0}
            assert set().union(*data_of_engine(result._search_input).vectors()) == {(1, 0)}


def check_privacy(case: PrivacyCase, strategy: str) -> None:
    """Check with any requirements, monotone or not, that the result is feasible and that its claims are true."""
    satisfying = oracle_privacy.satisfying(**case.arguments)
    minimal = oracle_privacy.k_minimal(**case.arguments)
    best = oracle.best(satisfying, case.measure)
    if best is None or minimal is None:
        with pytest.raises(sqlanon.InfeasibleError), anonymized_privacy(case, strategy):
            pass
        return
    true = [dict(zip(case.source.quasi, figures.levels, strict=True)) for figures in minimal.satisfying]
    try:
        with anonymized_privacy(case, strategy) as (result, *_):
            assert tuple(result.generalization.values()) in {figures.levels for figures in satisfying}
            if result.optimal:
                assert tuple(result.generalization.values()) == best.levels
            if strategy == "samarati":
                if data_of_engine(result._search_input).joins_suffice:
                    assert result.k_minimal == true
                else:
                    assert all(figures in true for figures in result.k_minimal)
    except sqlanon.InfeasibleError as error:
        assert "no generalization meets the policy" not in str(error)


STRATEGIES_HERE = pytest.mark.parametrize("strategy", ["samarati", "samarati-binary", "datafly"])


@pytest.mark.thorough
@STRATEGIES_HERE
@settings(thorough_privacy, max_examples=draw_tables(6, usual=20))
@given(case=privacy_cases.privacy_cases())
def test_samarati_meets_every_requirement(strategy: str, case: PrivacyCase) -> None:
    check_privacy(case, strategy)


@pytest.mark.thorough
@pytest.mark.parametrize(("strategy", "limit", "expected"), some([
    ("samarati", 0.0, (0, 4, 1, 2, 3, 2, 0, 0)),
    ("samarati-binary", 0.0, (0, 4, 1, 2, 3, 2, 0, 0)),
    ("datafly", 0.05, (0, 3, 0, 1, 1, 1, 1, 0)),
], 2))  # fmt: skip
def test_height_of_adult_matches_the_published_figure(
    data: Path, strategy: str, limit: float, expected: tuple[int, ...]
) -> None:
    quasi = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")
    entry = {"dataset": "adult", "quasi": quasi, "model": "k", "k": 5, "suppression_limit": limit, "measure": "loss",
             "aggregate": None}  # fmt: skip
    with sqlanon.connect() as db:
        result = db.anonymize(policy_of(entry, data, strategy))
    assert tuple(result.generalization.values()) == expected
    assert result.optimal == (strategy != "datafly")


@pytest.mark.parametrize("strategy", ["samarati", "samarati-binary", "datafly"])
def test_a_stopped_search_of_a_wide_lattice_has_an_answer(strategy: str) -> None:
    search = wide_search(0.05, checks=10)
    heights = search.lattice.top
    search.source_facts = SourceFacts(distinct_values=lambda: [range(height, -1, -1) for height in heights])
    outcome = search_by(strategy, search)
    assert outcome.levels is not None
    assert outcome.bound <= search.scores[outcome.levels]
