"""The cases that Spark is held against DuckDB with: something is found in them, and nothing is passed over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from spark_cases import (
    BELOW,
    BELOW_IT,
    FULL_DOMAIN,
    LISTED,
    WANTED,
    SparkCase,
    asks_for,
    below_full_domain,
    found_classes,
    has_result,
    random_case,
)

from properties.plain_search import WIDE
from sqlanon.measures import MEASURES
from support.lanes import some

pytestmark = pytest.mark.thorough


def strategy_of(case: SparkCase) -> str:
    search = case.tree["search"]
    return str(search["strategy"] if "strategy" in search else search["suppression"])


def kinds_of(cases: list[SparkCase]) -> set[str]:
    return {kind for kind in WANTED if any(asks_for(case.tree["privacy"], kind) for case in cases)}


def test_all_of_the_full_domain_has_a_result(tmp_path: Path) -> None:
    cases = [random_case(seed, tmp_path) for seed in range(FULL_DOMAIN) if has_result(seed)]
    assert kinds_of(cases) == set(WANTED)
    assert {strategy_of(case) for case in cases} == set(WIDE)
    assert {case.tree["search"]["measure"] for case in cases} == set(MEASURES)
    assert len(cases) > FULL_DOMAIN * 0.8


def test_each_strategy_below_the_full_domain_has_results(tmp_path: Path) -> None:
    cases = [random_case(seed, tmp_path, below_full_domain) for seed in range(BELOW_IT) if has_result(seed)]
    assert min(Counter(map(strategy_of, cases))[name] for name in BELOW) >= 2
    assert {kind.partition(" ")[0] for kind in kinds_of(cases)} >= {"k", *LISTED}


@pytest.mark.parametrize("seed", some([2, 5], 2))
def test_cases_reach_the_paths_that_they_are_listed_for(seed: int, tmp_path: Path) -> None:
    """The cases are run again in DuckDB, and are the same each time."""
    case, again = random_case(seed, tmp_path), random_case(seed, tmp_path)
    assert (case.table, case.tree) == (again.table, again.tree)
    assert (found_classes(case) >= 2) == has_result(seed)
    assert bool(case.table) == (seed != 5)
