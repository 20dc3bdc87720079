"""Random small tables, anonymized through the public API and by exhaustive search: the same answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracles import oracle
from oracles.oracle import Hierarchy, Release, Row, Table
from properties import random_cases
from properties.random_cases import Case
from properties.search_checks import FIGURE_3, anonymize_case, check, thorough
from support.lanes import draw_tables, examples

pytestmark = pytest.mark.thorough


def recode_case(case: Case, levels: oracle.Levels) -> Counter[Row]:
    """Expected rows of the release: the kept classes with their labels."""
    return Counter(Release(Table.of(case.rows, case.hierarchies), levels, case.k).kept)


# 29 of 100 rows may go, exactly as many as must at level 0; in binary floating point 0.29 × 100 is 28.999….
EXACT_LIMIT = Case(
    rows=[("v0",)] * 71 + [("v1",)] * 29,
    hierarchies={"b": Hierarchy({"v0": ("v0", "*"), "v1": ("v1", "*")})},
    k=30,
    limit="0.29",
    measure="height",
)


@pytest.mark.parametrize("strategy", ["optimal", "k_minimal"])
@thorough
@given(case=random_cases.cases())
@example(case=EXACT_LIMIT)
@example(case=replace(EXACT_LIMIT, limit="0.28"))
@example(case=replace(EXACT_LIMIT, rows=[]))
@example(case=FIGURE_3)
@example(case=replace(FIGURE_3, k=3))
def test_the_answer_is_that_of_exhaustive_search(strategy: str, case: Case) -> None:
    check(case, strategy)


@settings(thorough, max_examples=examples(6))
@given(case=random_cases.cases())
def test_all_measures_and_aggregates_on_one_table(case: Case) -> None:
    for measure in oracle.MEASURES:
        for aggregate in oracle.AGGREGATES if measure in oracle.PER_ATTRIBUTE else (None,):
            check(replace(case, measure=measure, aggregate=aggregate, weights=None), "optimal")


ENOUGH = random_cases.cases().filter(lambda case: len(case.rows) >= case.k and not case.has_unknown)


@settings(thorough, max_examples=draw_tables(20, usual=30))
@given(case=ENOUGH)
def test_k_alone_always_has_a_solution_at_the_top(case: Case) -> None:
    check_top(case)


def check_top(case: Case) -> None:
    with anonymize_case(replace(case, limit="0"), "optimal") as (result, _):
        assert result.suppressed_rows == 0
    top = tuple(tree.height for tree in case.hierarchies.values())
    assert sum(recode_case(case, top).values()) == len(case.rows)


@settings(thorough, max_examples=draw_tables(20, usual=30))
@given(case=random_cases.cases(), strategy=st.sampled_from(["optimal", "k_minimal"]))
def test_release_holds_every_class_of_at_least_k_and_nothing_else(case: Case, strategy: str) -> None:
    check_release(case, strategy)


def check_release(case: Case, strategy: str) -> None:
    """Minimal required suppression: all that is left out is in a class below k, or has an unknown value."""
    if oracle.solve(**case.arguments) is None:
        return
    with anonymize_case(case, strategy) as (result, directory):
        levels = tuple(result.generalization[name] for name in case.hierarchies)
        result.publish(directory / "release.duckdb")
        with duckdb.connect(str(directory / "release.duckdb"), read_only=True) as release:
            columns = ", ".join('"' + name.replace('"', '""') + '"' for name in case.hierarchies)
            released = Counter(release.execute(f"SELECT {columns} FROM released").fetchall())
    assert released == recode_case(case, levels)


SOLVABLE = random_cases.cases().filter(lambda case: oracle.solve(**case.arguments) is not None)


@settings(thorough, max_examples=draw_tables(20, usual=15))
@given(case=SOLVABLE)
def test_the_order_of_rows_does_not_matter(case: Case) -> None:
    check_order(case)


def check_order(case: Case) -> None:
    answers = []
    for rows in (case.rows, case.rows[::-1]):
        with anonymize_case(replace(case, rows=rows), "optimal") as (result, _):
            answers.append((result.generalization, result.suppressed_rows, result.classes))
    assert answers[0] == answers[1]
