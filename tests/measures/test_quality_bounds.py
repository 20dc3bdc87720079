"""The bounds of every measure hold, by counting every generalization of small random tables."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given

from oracles import oracle
from oracles.oracle import Levels, Release, Table
from oracles.score_bounds import at_most, cost, holds
from properties import random_cases
from properties.plain_search import figures_of, measure_of
from properties.random_cases import Case
from properties.search_checks import thorough
from properties.small_tables import plain_case
from sqlanon.measures import MEASURES, Figures, Measure, RecodingTotals

OBJECTIVES = [
    (measure, aggregate)
    for measure in oracle.MEASURES
    for aggregate in (oracle.AGGREGATES if measure in oracle.PER_ATTRIBUTE else (None,))
]


def check(case: Case) -> None:
    """Check the score and the bounds of every generalization that meets the policy, also those from its neighbours."""
    table = Table.of(case.rows, case.hierarchies)
    if not table.size:
        return
    measure = measure_of(case, table)
    releases = {levels: Release(table, levels, case.k) for levels in oracle.lattice(table)}
    figures = {levels: figures_of(release) for levels, release in releases.items()}
    for levels, release in releases.items():
        if oracle.satisfies(release, case.limit):
            score = cost(case, release)
            assert math.isclose(measure.score(levels, figures[levels]), score, rel_tol=1e-9, abs_tol=1e-12)
            assert holds(measure.bound(levels), score)
            assert release.suppressed <= measure.max_suppressed_rows(score)
            check_neighbours(measure, figures, levels, score)


def check_neighbours(measure: Measure, figures: dict[Levels, Figures], levels: Levels, score: float) -> None:
    below = max(measure.bound_above(figures[figure]) for figure in figures if at_most(figure, levels))
    assert holds(below, score)
    lift = max(measure.lift(candidate, figures[candidate]) for candidate in figures if at_most(levels, candidate))
    assert lift >= 0
    assert holds(measure.raise_bound(measure.bound(levels), lift), score)
    assert holds(measure.raise_bound(below, lift), score)
    for candidate, above in figures.items():
        if at_most(levels, candidate):
            suppressed = above.suppressed_rows
            assert holds(measure.bound_with(levels, suppressed), score)
            assert holds(measure.bound(levels), measure.bound_with(levels, suppressed))
            assert holds(measure.bound_with(levels, max(suppressed - 1, 0)), measure.bound_with(levels, suppressed))


@pytest.mark.cases(4)
@pytest.mark.parametrize(("measure", "aggregate"), OBJECTIVES)
def test_bounds_never_exceed_the_score(measure: str, aggregate: str | None) -> None:
    for number in (0, 5, 10, 20, 1, 2, 3):  # the first four have unknown values
        case = plain_case(number)
        weights = {next(iter(case.hierarchies)): 3.0} if aggregate in ("mean", "sum") else None
        check(replace(case, measure=measure, aggregate=aggregate, weights=weights))


@pytest.mark.thorough
@thorough
@given(case=random_cases.cases())
def test_bounds_hold_of_random_tables(case: Case) -> None:
    check(case)


@pytest.mark.cases(8)
@pytest.mark.parametrize("aggregate", oracle.AGGREGATES)
@pytest.mark.parametrize("measure", [name for name in oracle.MEASURES if not MEASURES[name].needs_levels])
def test_a_recoding_at_one_level_scores_as_its_generalization(measure: str, aggregate: str) -> None:
    case = replace(plain_case(1), measure=measure, aggregate=aggregate)
    table = Table.of(case.rows, case.hierarchies)
    for levels in oracle.lattice(table):
        release = Release(table, levels, case.k)
        retained, places = release.kept.items(), [*enumerate(levels)]
        leaves = [
            sum(n * (table.leaves_under[a][level][labels[a]] - 1) for labels, n in retained) for a, level in places
        ]
        totals = RecodingTotals(
            tuple(map(float, leaves)), tuple(level * sum(release.kept.values()) for level in levels)
        )
        score = measure_of(case, table).score_recoding(figures_of(release), totals)
        assert math.isclose(score, cost(case, release), rel_tol=1e-9, abs_tol=1e-12)


def test_a_bound_is_raised_to_the_score_by_the_generalization_itself() -> None:
    """For measures by attribute the lift is exact, so that bounds are as high as they can be."""
    case = Case(
        rows=[("v0", "x"), ("v0", "x"), ("v1", "y"), ("v2", "y"), ("v2", "y")],
        hierarchies={
            "b": oracle.Hierarchy({v: (v, "g" if v != "v2" else "h", "*") for v in ("v0", "v1", "v2")}),
            "c": oracle.Hierarchy({v: (v, "*") for v in ("x", "y")}),
        },
        k=2,
        limit="0.5",
        measure="loss",
    )
    table = Table.of(case.rows, case.hierarchies)
    lifted = 0
    for measure in ("loss", "precision", "entropy", "suppression"):
        for levels in oracle.lattice(table):
            release, measured = Release(table, levels, case.k), replace(case, measure=measure)
            bounds = measure_of(measured, table)
            lift = bounds.lift(levels, figures_of(release))
            assert bounds.raise_bound(bounds.bound(levels), lift) == pytest.approx(cost(measured, release), rel=1e-12)
            lifted += lift > 0
    assert lifted


def test_a_suppressed_row_of_an_unknown_value_is_lost_once() -> None:
    """The bound counts its unknown value already: the lift adds only the known values of suppressed rows."""
    case = Case(
        rows=[("v0", "x"), ("v0", "x"), ("?", "x"), ("v1", "y")],
        hierarchies={
            "b": oracle.Hierarchy({v: (v, "*") for v in ("v0", "v1")}),
            "c": oracle.Hierarchy({v: (v, "*") for v in ("x", "y")}),
        },
        k=2,
        limit="0.5",
        measure="loss",
    )
    table = Table.of(case.rows, case.hierarchies)
    release = Release(table, (0, 0), case.k)
    measure, figures = measure_of(case, table), figures_of(release)
    assert (measure.marginals.unknown, figures.suppressed_rows) == ((1, 0), 2)
    raised = measure.raise_bound(measure.bound(release.levels), measure.lift(release.levels, figures))
    assert raised == pytest.approx(cost(case, release)) == 0.5
