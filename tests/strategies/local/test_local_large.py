"""Local strategies where the lattice is too large to be searched to its end: cuts in place of paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from local_checks import check_private, check_sound, of_classes
from plain_argus import CLASS_LISTS
from plain_argus import check as check_argus
from plain_similar import as_ancestors
from sqlglot import exp

import sqlanon
from properties.local_tasks import LIMITS, SOME_ROWS, Plain, task_of
from properties.privacy_cases import PrivacyCase, privacy_cases
from properties.random_cases import Case
from properties.search_checks import quick, thorough
from sqlanon.strategies.lattice import dive
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.strategies.local import mu_argus as mu_argus_module
from sqlanon.strategies.local.core import finish as finish_module
from sqlanon.strategies.local.core.evaluation import generalized_combinations
from sqlanon.strategies.local.core.finish import finish
from sqlanon.strategies.local.core.task import LocalOutcome
from sqlanon.strategies.local.local import local
from support.lanes import draw_tables, examples

pytestmark = pytest.mark.slow

STRATEGIES = {"local": local, "k-similar": as_ancestors}


@pytest.fixture(autouse=True)
def every_lattice_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every lattice as too large to be searched completely."""
    monkeypatch.setattr(dive, "LARGE", 0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", STRATEGIES)
@settings(thorough, max_examples=examples(40))
@given(case=SOME_ROWS, limits=LIMITS)
def test_cuts_are_sound_and_never_worse_than_their_start(name: str, case: Case, limits: list[int]) -> None:
    check_sound(STRATEGIES[name], case, limits, name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", STRATEGIES)
@settings(quick, max_examples=draw_tables(4, usual=10))
@given(case=privacy_cases().filter(of_classes))
def test_every_class_of_a_cut_meets_the_requirements(name: str, case: PrivacyCase) -> None:
    check_private(name, case)


@settings(quick, max_examples=draw_tables(5, usual=20))
@given(case=SOME_ROWS, limits=LIMITS)
def test_the_loss_stated_is_the_loss_counted(case: Case, limits: list[int]) -> None:
    with task_of(case, limits, strategy="local") as task:
        try:
            outcome = local(task)
        except sqlanon.InfeasibleError:
            return
        plain = Plain(task)
        counted_loss = plain.loss(plain.placed(outcome.assignment))
        assert finish(task, outcome).score(policy_measure(task.search_input)) == pytest.approx(counted_loss, abs=1e-9)


@settings(quick, max_examples=draw_tables(5, usual=20))
@given(case=SOME_ROWS, limits=LIMITS, classes=CLASS_LISTS)
def test_mu_argus_checks_some_combinations_at_a_time(case: Case, limits: list[int], classes: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mu_argus_module, "MAX_CHECKED", 1)
        check_argus(case, limits, classes)


@pytest.mark.thorough
@pytest.mark.parametrize("k", [2, 3])
@settings(quick, max_examples=draw_tables(5, usual=20))
@given(case=SOME_ROWS, limits=LIMITS)
def test_many_combinations_are_evaluated_as_few_are(k: int, case: Case, limits: list[int]) -> None:
    """Rows are kept exactly if each of their combinations is safe as readers see them, whatever the assignment."""
    with task_of(replace(case, k=k), limits, strategy="mu-argus") as task:
        names = [tree.name for tree in task.trees]
        at_floor = generalized_combinations(task.combinations, task.trees, task.floor)
        floor = task.runner.create_table(task.work("at_floor"), at_floor)
        results = []
        for most in (1, 64):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(finish_module, "MAX_SHIELDS", most)
                result = finish(task, LocalOutcome(task, floor))
            rows = task.engine.rows(exp.select("*").from_(result.table))
            results.append((result.figures, result.smallest_class, sorted(rows, key=str)))
            tables = [f"released_{i}" for i in range(len(names))] + ["readable", "evaluated", "kept"]
            task.runner.drop(*(task.work(name) for name in tables))
        assert results[0] == results[1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "ends", "most"), [("local", {}, 0.335), ("k-similar", {}, 0.271), ("k-similar", {"ends": "exact"}, 0.198)]
)
def test_local_strategies_lose_little_of_16_quasi_identifiers(
    data: Path, name: str, ends: dict[str, str], most: float
) -> None:
    """No more than its relative that cuts, in a lattice of 85 million generalizations: by checks, not by seconds."""
    folder = data / "mach2019"
    names = (folder / "mach2019.csv").read_text(encoding="utf-8").split("\n", 1)[0].strip().split(";")
    policy = sqlanon.Policy(
        source={"files": str(folder / "mach2019.csv")},
        attributes={
            name: {"role": "quasi", "hierarchy": {"file": str(folder / f"hierarchy_{name}.csv")}} for name in names
        },
        privacy={"k": 5},
        search={"strategy": name, "suppression_limit": 0.05, "max_checks": 60, **ends},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
    assert result.score <= most
    assert result.smallest_class >= 5
