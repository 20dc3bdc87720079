"""The dive of `optimal` in a large lattice: its answers are true, the proof stays one, and on a wide table they are
good."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optima_workshop import Entry, Workshop, workshop
from optimum_cases import ASKED, TREES, WEIGHTS, rows_of
from stop_checks import check_every_stop, check_privacy

import sqlanon
from oracles import oracle
from oracles.oracle import Release, Table
from oracles.score_bounds import at_most, cost, holds
from properties import privacy_cases, random_cases
from properties.plain_search import search_by, search_of
from properties.privacy_cases import PrivacyCase
from properties.random_cases import Case
from properties.search_checks import quick, thorough
from sqlanon.measures import Figures
from sqlanon.strategies.lattice import Budget
from sqlanon.strategies.lattice.checker import Checker
from sqlanon.strategies.lattice.dive import PenalizedCost, dive
from sqlanon.strategies.lattice.genetic import POPULATION_SIZE, GeneticSearch
from sqlanon.strategies.lattice.lattice import Box, BoxQueue
from sqlanon.support.coding import Levels
from support.lanes import draw_tables, examples

__all__ = ["workshop"]  # the fixture


@pytest.fixture(scope="module", autouse=True)
def every_lattice_is_large() -> Iterator[None]:
    """Each search dives at once."""
    with (
        patch("sqlanon.strategies.full_domain.optimal.LARGE", 0),
        patch("sqlanon.strategies.full_domain.optimal.FIRST", 0),
    ):
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "aggregate"), ASKED)
def test_a_dive_ends_at_a_satisfying_generalization_and_the_proof_stays(measure: str, aggregate: str | None) -> None:
    draw = random.Random(11)
    for limit, k in (("0", 2), ("0.1", 3), ("0.3", 2), ("1", 4)):
        weights = WEIGHTS if aggregate in ("mean", "sum") and k == 3 else None
        case = Case(rows_of(draw), TREES, k, limit, measure, aggregate, weights)
        best, table, search = oracle.solve(**case.arguments), Table.of(case.rows, case.hierarchies), search_of(case)
        assert search.check(search.lattice.top) and best is not None
        dive(search, PenalizedCost(search))
        assert search.best is not None
        assert oracle.satisfies(Release(table, search.best, k), limit)
        sign = -1 if measure in oracle.MAXIMISED else 1
        assert search.scores[search.best] >= sign * best.score - 1e-9 * abs(best.score)
        search_result = search_by("optimal", search_of(case))
        assert (search_result.levels, search_result.optimal) == (best.levels, True), case


def test_breeding_repeats_itself_and_finds_the_best() -> None:
    draw = random.Random(5)
    case = Case(rows_of(draw), TREES, 3, "0.1", "loss", None, None)
    best, snapshots = oracle.solve(**case.arguments), []
    assert best is not None
    for _ in range(2):
        search = search_of(case)
        assert search.check(search.lattice.top)
        genetic_search, before = GeneticSearch(search, PenalizedCost(search)), len(search.figures)
        while genetic_search.restarts < 4:
            genetic_search.run_generation()
            assert len(search.figures) - before <= POPULATION_SIZE
            before = len(search.figures)
        assert search.best is not None
        assert search.scores[search.best] == pytest.approx(best.score), "a lattice this small is bred to its optimum"
        snapshots.append(list(search.figures))
    assert snapshots[0] == snapshots[1]


def adult(measure: str, limit: float) -> Entry:
    quasi = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")
    return {
        "dataset": "adult", "quasi": quasi, "model": "k", "k": 5, "suppression_limit": limit, "measure": measure,
        "aggregate": None,
    }  # fmt: skip


def check_same(together: Figures, alone: Figures) -> None:
    for field in fields(Figures):
        assert getattr(together, field.name) == pytest.approx(getattr(alone, field.name)), field.name


@pytest.mark.thorough
@pytest.mark.parametrize(("measure", "limit"), [("loss", 0.3), ("discernibility", 1.0), ("entropy", 0.05)])
def test_generalizations_checked_together_have_the_same_figures_as_alone(
    workshop: Workshop, measure: str, limit: float
) -> None:
    search, draw = workshop.task(adult(measure, limit)).lattice, random.Random(2)
    assert search.check_together is not None
    several = [search.lattice.top]
    several += [tuple(draw.randint(0, height) for height in search.lattice.top) for _ in range(30)]
    outcomes = search.check_together(several)
    assert len(outcomes) == 31
    within = 0
    for levels, figures in zip(several, outcomes, strict=True):
        check_same(figures, search.checker(levels))
        within += 0 < figures.suppressed_rows <= search.allowed_rows
    assert within > 3, "the leaves of suppressed rows are counted for some"


@pytest.mark.thorough
def test_max_checks_holds_where_several_are_checked_together(workshop: Workshop) -> None:
    for checks in (1, 2, 7, 19):
        task = replace(workshop.task(adult("loss", 0.05)), budget=Budget(checks=checks))
        outcome = search_by("optimal", task.lattice)
        assert outcome.stopped
        assert len(task.lattice.figures) == checks


@contextmanager
def keys_compared(scores: Mapping[Levels, float]) -> Iterator[list[Box]]:
    """Nothing in a box that waits scores less than its key."""
    seen: list[Box] = []

    def add(self: BoxQueue, box: Box) -> None:
        inside = [score for levels, score in scores.items() if at_most(box.low, levels) and at_most(levels, box.high)]
        assert holds(box.key, min(inside, default=math.inf))
        seen.append(box)
        heapq.heappush(self._heap, box)

    with patch.object(BoxQueue, "add", add):
        yield seen


def check_keys(case: Case, step: float) -> None:
    table = Table.of(case.rows, case.hierarchies)
    releases = [Release(table, levels, case.k) for levels in oracle.lattice(table)] if table.size else []
    scores = {release.levels: cost(case, release) for release in releases if oracle.satisfies(release, case.limit)}
    best = oracle.solve(**case.arguments)
    with patch("sqlanon.strategies.full_domain.optimal.STEP", step), keys_compared(scores):
        outcome = search_by("optimal", search_of(case)) if table.size else None
    assert (outcome and outcome.levels) == (best and best.levels)


STEPS = st.sampled_from([0.01, 0.1, 0.4, 1.0])


@pytest.mark.slow
@settings(thorough, max_examples=draw_tables(20, usual=500))
@given(case=random_cases.cases(), step=STEPS)
def test_no_key_is_above_a_score(case: Case, step: float) -> None:
    check_keys(case, step)


QUICK_MEASURES = [("loss", "max"), ("precision", "mean"), ("discernibility", None)]


@pytest.mark.parametrize(
    ("measure", "aggregate"),
    [pair if pair in QUICK_MEASURES else pytest.param(*pair, marks=pytest.mark.slow) for pair in ASKED],
)
def test_no_key_is_above_a_score_by_each_measure(measure: str, aggregate: str | None) -> None:
    draw = random.Random(17)
    for limit, k, step in (("0.1", 2, 0.1), ("0.3", 3, 0.4), ("1", 4, 0.1), ("1", 3, 0.02), ("1", 2, 0.4)):
        weights = WEIGHTS if aggregate in ("mean", "sum") and k == 3 else None
        check_keys(Case(rows_of(draw), TREES, k, limit, measure, aggregate, weights), step)


def test_bounds_rise_with_necessary_suppression() -> None:
    """Without a limit nothing is hopeless: the bound of a box still rises with the rows that are suppressed in it."""
    case = Case(rows_of(random.Random(3)), TREES, 3, "1", "loss", None, None)
    with keys_compared({}) as seen:
        search = search_of(case)
        search_by("optimal", search)
    assert any(box.key > search.measure.bound(box.low) for box in seen)


@pytest.mark.thorough
@settings(quick, max_examples=draw_tables(20, usual=10))
@given(case=random_cases.cases())
def test_a_stopped_dive_is_honest(case: Case) -> None:
    check_every_stop(case, "optimal")


@pytest.mark.slow
@settings(thorough, max_examples=examples(15))
@given(case=privacy_cases.privacy_cases())
def test_a_dive_is_honest_with_any_requirement(case: PrivacyCase) -> None:
    """Batched checks are compared with single ones, too."""
    together = Checker.check_together

    def check_together(self: Checker, several: Sequence[Levels]) -> list[Figures]:
        outcomes = together(self, several)
        for levels, figures in zip(several, outcomes, strict=False):
            check_same(figures, self(levels))
        return outcomes

    with patch.object(Checker, "check_together", check_together):
        for checks in (1, 3, 8, 1000):
            check_privacy(case, checks)


@pytest.mark.thorough
@settings(quick, max_examples=draw_tables(20, usual=5))
@given(case=privacy_cases.privacy_cases())
def test_generalizations_of_many_combinations_are_checked_one_by_one(case: PrivacyCase) -> None:
    with (
        patch("sqlanon.frequency.sets.SHARED_ROWS", 0),
        patch("sqlanon.strategies.lattice.checker.joint_candidate_query", None),
    ):
        check_privacy(case, 1000)


@pytest.mark.thorough
@pytest.mark.parametrize(("limit", "most"), [(1.0, 0.537), (0.05, 0.581)])
def test_dive_reaches_the_best_known_results_for_16_quasi_identifiers(data: Path, limit: float, most: float) -> None:
    """The best answers that are known, in a lattice of 85 million generalizations: by checks, not by seconds."""
    folder = data / "mach2019"
    names = (folder / "mach2019.csv").read_text(encoding="utf-8").split("\n", 1)[0].strip().split(";")
    policy = sqlanon.Policy(
        source={"files": str(folder / "mach2019.csv")},
        attributes={
            name: {"role": "quasi", "hierarchy": {"file": str(folder / f"hierarchy_{name}.csv")}} for name in names
        },
        privacy={"k": 5},
        search={"suppression_limit": limit, "max_checks": 500},
    )
    with sqlanon.connect() as db, patch("sqlanon.strategies.full_domain.optimal.FIRST", 4):
        result = db.anonymize(policy)
    assert result.nodes == 85_030_560
    assert result.score <= most
    assert result.suppressed_rows <= limit * result.rows
    assert result.bound < result.score
