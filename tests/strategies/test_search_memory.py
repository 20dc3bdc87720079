"""The memory of a search: what it concludes from some checks is true of all generalizations of a small table."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from oracles import oracle
from oracles.oracle import Hierarchy, Levels
from oracles.oracle_privacy import Source
from oracles.score_bounds import at_most, holds
from properties import hard_cases
from properties.prepared_tables import HARD_TABLES, NUMBERS, prepared_table, quick_and_slow
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import WITH_SUPPRESSION
from properties.small_tables import SmallTable, number_rows, small_table
from sqlanon.measures import Figures
from sqlanon.strategies.full_domain import optimal
from sqlanon.strategies.lattice import LatticeSearch
from sqlanon.strategies.lattice.lattice import Box
from sqlanon.strategies.lattice.search import TOLERANCE


def check_table(table: SmallTable) -> None:
    """Check the generalizations in four random orders, and now and then the conclusions about all others."""
    with prepared_table(table) as prepared:
        search = prepared.task().lattice
        lattice = search.lattice
        ranges = (range(low, high + 1) for low, high in zip(lattice.bottom, lattice.top, strict=True))
        figures = {levels: prepared.check(levels) for levels in itertools.product(*ranges)}
    for seed in range(4):
        check_conclusions(
            table, replace(search, checker=figures.__getitem__, check_together=None), figures, random.Random(seed)
        )


def check_conclusions(
    table: SmallTable, search: LatticeSearch, evaluated: Mapping[Levels, Figures], rng: random.Random
) -> None:
    search.seeks_best_only = True
    sign = -1 if table.case.measure in oracle.MAXIMISED else 1
    scores = {figures.levels: sign * figures.score for figures in table.satisfying}
    tightens_at = rng.randint(1, 2 * len(evaluated))  # or never
    for checks, levels in enumerate(rng.sample([*evaluated], len(evaluated)), start=1):
        search.check(levels)
        if checks >= tightens_at and search.best is not None:
            search.tighten_limit(search.measure.max_suppressed_rows(search.scores[search.best]))
        if checks in (2, 5, 10) or checks == len(evaluated):
            wanted = {candidate: score for candidate, score in scores.items() if may_be_best(search, candidate, score)}
            check_words(table, search, evaluated, scores, wanted if checks >= tightens_at else scores)
            check_bounds(search, evaluated, scores, wanted, rng)
    assert search.best == (table.best.levels if table.best else None)


def may_be_best(search: LatticeSearch, levels: Levels, score: float) -> bool:
    return search.best is None or levels == search.best or search.precedes(score, levels, search.best)


def check_words(
    table: SmallTable,
    search: LatticeSearch,
    evaluated: Mapping[Levels, Figures],
    scores: Mapping[Levels, float],
    wanted: Mapping[Levels, float],
) -> None:
    """No generalization has a wrong status. Only ``wanted`` ones must not be called hopeless."""
    for levels in evaluated:
        if search.can_be_feasible(levels) is False:
            assert not any(at_most(low, levels) for low in wanted), levels
        if search.is_feasible_above(levels):
            assert all(high in scores for high in table.generalizations if at_most(levels, high)), levels
        assert search.status(levels) in ("open", "satisfies" if levels in scores else "violates"), levels


def check_bounds(
    search: LatticeSearch,
    evaluated: Mapping[Levels, Figures],
    scores: Mapping[Levels, float],
    wanted: Mapping[Levels, float],
    rng: random.Random,
) -> None:
    """No bound is above a score, and nothing is ruled out that may be preferred to the best so far and, with an aim,
    scores less than that."""
    steps = optimal._BranchAndBound(search)
    for low in evaluated:
        if low in scores:
            assert holds(search.bound_from_below(low), scores[low]), low
        top = rng.choice([high for high in evaluated if at_most(low, high)])
        box = Box(search.measure.bound(low), sum(low), low, top)
        within = {levels: score for levels, score in wanted.items() if at_most(low, levels) and at_most(levels, top)}
        for high in filter(partial(at_most, low), search.figures):
            bound = search.raised_bound(box, high)
            assert all(holds(bound, score) for levels, score in within.items() if at_most(levels, high)), (low, high)
        for aim in (None, steps._aim(box)):
            excluded = search.find_pruned_top(box, aim)
            for levels, score in within.items() if excluded is not None else ():
                is_below = aim is None or score < aim.score - TOLERANCE * abs(score)
                assert not (at_most(levels, excluded) and is_below) or levels == search.best, (low, levels, aim)


@pytest.mark.cases(3)
@pytest.mark.least(4)
@pytest.mark.parametrize("number", quick_and_slow(NUMBERS, (0, 1, 6, 7, 13, 20)))
def test_conclusions_hold_on_small_tables(number: int) -> None:
    check_table(small_table(number))


QUICK = [("not monotone", "recursive"), ("not monotone", "average_risk"), ("tight", "joint"), ("tight", "with k_map")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "kind", "persons"),
    [number if number[:2] in QUICK else pytest.param(*number, marks=pytest.mark.slow) for number in HARD_TABLES],
)
def test_conclusions_where_not_all_that_is_higher_satisfies(shape: str, kind: str, persons: hard_cases.Persons) -> None:
    privacies = WITH_SUPPRESSION[kind]
    if shape == "tight":
        case = hard_cases.tight(2, privacies, persons)
    else:
        case = hard_cases.not_monotone(2, privacies, ("0.2", "0.5"))
    check_table(number_rows(replace(case, measure="suppression", aggregate=None)))


@pytest.mark.slow
def test_conclusions_hold_where_classes_of_the_same_persons_merge() -> None:
    """Two classes of the same five persons count ten; merged, they count five, and the average risk is greater."""
    tree = Hierarchy({x: (x, "ab" if x in "ab" else x, "*") for x in "abcdef"})
    rows = [{"x": x, "who": who} for x in "ab" for who in "12345"] + [{"x": x, "who": x} for x in "cdef"]
    case = PrivacyCase(Source(rows, {"x": tree}, {}, "who"), {"average_risk": 0.5}, "0", "height")
    table = number_rows(case)
    assert [figures.levels for figures in table.satisfying] == [(0,), (2,)]
    check_table(table)


def test_conclusions_where_a_person_has_a_value_in_two_classes() -> None:
    """Each class has two values of a person each; merged, one of them has one person still, and the other two."""
    tree = Hierarchy({x: (x, "*") for x in "ab"})
    rows = [{"x": x, "s": s, "who": who} for x, s, who in ("af1", "ag2", "bf1", "bg3")]
    diversity = {"k": 2, "l_diversity": [{"attribute": "s", "kind": "entropy", "l": 2}]}
    case = PrivacyCase(Source(rows, {"x": tree}, {"s": None}, "who"), diversity, "0", "height")
    table = number_rows(case)
    assert [figures.levels for figures in table.satisfying] == [(0,)]
    check_table(table)
