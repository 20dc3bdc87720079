"""Strategy incognito: subsets of attributes, and all that satisfies. Against the oracle it is held in test_ola, too."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from limited_searches import Limited, limit_search

import sqlanon
from oracles import oracle
from oracles.oracle import Levels
from properties.plain_search import search_by, search_of
from properties.random_cases import Case
from properties.search_checks import quick
from support.databases import insert
from support.lanes import draw_tables
from support.policies import make_policy

# LeFevre, DeWitt, Ramakrishnan 2005: the Patients table of figure 1, with birth date, sex and zip code.
PATIENTS = Case(
    rows=[
        ("1/21/76", "Male", "53715"),
        ("4/13/86", "Female", "53715"),
        ("2/28/76", "Male", "53703"),
        ("1/21/76", "Male", "53703"),
        ("4/13/86", "Female", "53706"),
        ("2/28/76", "Female", "53706"),
    ],
    hierarchies={
        "birthdate": oracle.Hierarchy({v: (v, "*") for v in ("1/21/76", "2/28/76", "4/13/86")}),
        "sex": oracle.Hierarchy({v: (v, "Person") for v in ("Male", "Female")}),
        "zipcode": oracle.Hierarchy(
            {"53715": ("53715", "5371*", "537**"), "53710": ("53710", "5371*", "537**")}
            | {v: (v, "5370*", "537**") for v in ("53706", "53703")}
        ),
    },
    k=2,
    limit="0",
    measure="height",
)


def test_incognito_finds_the_generalizations_of_the_paper() -> None:
    """Example 3.1 and figure 7(a): of sex and zip code ⟨S0, Z0⟩ is not 2-anonymous; ⟨S1, Z0⟩ and ⟨S0, Z1⟩ ..."""
    search = search_of(PATIENTS)
    outcome = search_by("incognito", search)
    expected = oracle.solve(**PATIENTS.arguments)
    assert expected is not None
    assert outcome.satisfying == tuple(sorted(figures.levels for figures in expected.satisfying))
    # ⟨S1, Z0⟩ of two attributes is 2-anonymous, ⟨S0, Z0⟩ is not; others are at their tops.
    assert search.can_be_feasible((1, 1, 0)) is True
    assert search.can_be_feasible((1, 0, 0)) is False
    # Single attributes are all 2-anonymous at level 0.
    assert all(search.can_be_feasible(levels) for levels in [(0, 1, 2), (1, 0, 2), (1, 1, 0)])


def test_generalizations_ruled_out_by_a_subset_are_never_checked() -> None:
    """A-priori: nothing is checked below an infeasible generalization, and nothing above a feasible one."""
    search = search_of(PATIENTS)
    checks: list[Levels] = []
    count = search.checker

    def check(levels: Levels) -> Any:
        for earlier in checks:
            if oracle.strictly_lower(levels, earlier):
                assert not search.figures[earlier].suppressed_rows, "ruled out already"
            if oracle.strictly_lower(earlier, levels):
                assert search.figures[earlier].suppressed_rows, "settled already"
        checks.append(levels)
        return count(levels)

    search.checker = check
    outcome = search_by("incognito", search)
    assert outcome.optimal
    assert len(checks) < search.lattice.size


@pytest.mark.thorough
@settings(quick, max_examples=draw_tables(20, usual=6))
@given(limited_case=limit_search())
def test_lowest_generalizations_equal_k_minimal(limited_case: Limited) -> None:
    satisfying = search_by("incognito", limited_case.search()).satisfying
    minimal = search_by("k_minimal", limited_case.search()).minimal
    assert satisfying is not None
    lowest = [levels for levels in satisfying if not any(oracle.strictly_lower(lower, levels) for lower in satisfying)]
    assert list(minimal or ()) == lowest


def test_subsets_are_checked_above_the_highest_allowed_level() -> None:
    """Sex may not be released at its top, and yet all that is left when it is not looked at is decided there."""
    case = Limited(PATIENTS, ((0, 1), (0,), (0, 1, 2)))
    search = case.search()
    outcome = search_by("incognito", search)
    assert any(levels[1] == 1 for levels in search.figures)
    assert {tuple(levels) for levels in search.lattice_columns()[0]} <= set(oracle_levels(case))
    assert set(outcome.satisfying or ()) == {figures.levels for figures in case.satisfying()}
    assert all(levels[1] == 0 for levels in search.scores)


def oracle_levels(case: Limited) -> list[Levels]:
    return [(a, b, c) for a in case.levels[0] for b in case.levels[1] for c in case.levels[2]]


@pytest.mark.thorough
def test_not_monotone_under_suppression_each_is_checked() -> None:
    """Six of eight rows may go: the lower one satisfies, the top above it does not (see test_search_limits)."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE wards (ward VARCHAR, diagnosis VARCHAR)")
        rows = [("a", "flu"), ("a", "asthma"), *[("b", "flu")] * 6]
        insert(connection, "wards", rows)
        policy = sqlanon.Policy(
            source={"table": "wards"},
            attributes=make_policy({"ward": "suppress", "diagnosis": "sensitive"}).attributes,
            privacy={"l_diversity": {"attribute": "diagnosis", "kind": "entropy", "l": 2}},
            search={"suppression_limit": 0.75, "strategy": "incognito"},
        )
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
    assert result.generalization == {"ward": 0}
    assert result.k_minimal == [{"ward": 0}]
    assert result.checked == 2
    assert result.optimal


@pytest.mark.parametrize("checks", [1, 3])
def test_stopped_search_claims_no_minimal_set(checks: int) -> None:
    outcome = search_by("incognito", search_of(PATIENTS, checks=checks))
    assert outcome.stopped == f"max_checks = {checks}"
    assert outcome.satisfying is None
