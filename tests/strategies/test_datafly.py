"""Strategy `datafly`: its steps, and what its greed costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from limited_searches import Limited, limit_search
from plain_datafly import steps_of_datafly

import sqlanon
from oracles import oracle
from oracles.oracle import Levels, Table
from oracles.plain_samarati import data_of, distinct_values
from oracles.score_bounds import holds
from properties import random_cases
from properties.plain_search import search_by
from properties.random_cases import Case
from properties.search_checks import FIGURE_3, anonymize_case, as_dict, quick, thorough
from sqlanon.strategies.lattice import LatticeSearch, Outcome
from sqlanon.strategies.lattice.task import source_facts as data_of_engine
from support.databases import insert
from support.lanes import draw_tables
from support.policies import make_policy


def plain_datafly(limited_case: Limited) -> Levels | None:
    """The algorithm over the rows themselves."""
    case = limited_case.case
    table = Table.of(case.rows, case.hierarchies)

    def satisfies(levels: Levels) -> bool:
        return oracle.satisfies(oracle.Release(table, levels, case.k), case.limit)

    return steps_of_datafly(table, limited_case.levels, case.weights or {}, satisfies)


def search_with_limits(limited_case: Limited, **limits: Any) -> tuple[LatticeSearch, Outcome]:
    search = limited_case.search(**limits)
    search.source_facts = data_of(limited_case.case, search.lattice)
    return search, search_by("datafly", search)


def check(limited_case: Limited) -> None:
    """The same steps as over the rows; never better than the optimum, and nothing claimed that is not so."""
    case, satisfying = limited_case.case, limited_case.satisfying()
    best = oracle.best(satisfying, case.measure)
    search, outcome = search_with_limits(limited_case)
    assert outcome.levels == plain_datafly(limited_case)
    if outcome.levels is None or best is None:
        assert (best, outcome.exhaustive) == (None, True), "the top satisfies, if anything does"
        return
    sign = -1 if case.measure in oracle.MAXIMISED else 1
    assert holds(outcome.bound, sign * best.score)
    assert outcome.levels == best.levels if outcome.optimal else outcome.bound <= search.scores[outcome.levels]


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=60))
@given(limited_case=limit_search())
@example(limited_case=Limited(replace(FIGURE_3, k=3), ((0, 1), (0, 2))))
def test_datafly_takes_the_steps_of_the_paper(limited_case: Limited) -> None:
    check(limited_case)


@pytest.mark.thorough
@pytest.mark.parametrize(("k", "expected"), [(2, (0, 1)), (3, (1, 1))])
def test_figure_3_of_sweeney(k: int, expected: Levels) -> None:
    """First the 4 ZIP codes and then the 3 races are the most: with k = 3, datafly misses {1, 0}, a 3-minimal one."""
    case = replace(FIGURE_3, k=k)
    with anonymize_case(case, "datafly") as (result, _):
        assert dict(result.generalization) == as_dict(case, expected)
        assert result.lattice.aggregate("count(*) FILTER (classes IS NOT NULL)").fetchall() == [(k + 1,)]


# Sweeney 2002, on Datafly: with k = 2, the year of birth alone is enough, and two of twelve rows are suppressed.
PATIENTS = [
    ("black", "1965-09-20", "male", "02141"),
    ("black", "1965-02-14", "male", "02141"),
    ("black", "1965-10-23", "female", "02138"),
    ("black", "1965-08-24", "female", "02138"),
    ("black", "1964-11-07", "female", "02138"),
    ("black", "1964-12-01", "female", "02138"),
    ("white", "1964-10-23", "male", "02138"),
    ("white", "1965-03-15", "female", "02139"),
    ("white", "1964-08-13", "male", "02139"),
    ("white", "1964-05-05", "male", "02139"),
    ("white", "1967-02-13", "male", "02138"),
    ("white", "1967-03-21", "male", "02138"),
]


@pytest.mark.thorough
def test_datafly_makes_the_release_of_sweeney() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (race VARCHAR, birth DATE, gender VARCHAR, zip VARCHAR)")
        insert(connection, "t", PATIENTS)
        rules = {"race": "suppress", "birth": {"dates": ["year"]}, "gender": "suppress", "zip": "mask"}
        search = {"strategy": "datafly", "suppression_limit": 0.17}
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy(rules, search=search))
    assert dict(result.generalization) == {"race": 0, "birth": 1, "gender": 0, "zip": 0}
    assert (result.suppressed_rows, result.classes) == (2, 5)
    assert not result.optimal


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("weights", "expected"), [({"ZIP": 4.0}, (1, 0)), ({"ZIP": 4.0, "race": 4.0}, (0, 1)), ({"race": 0.5}, (1, 0))]
)
def test_weights_decide_the_next_generalized_attribute(weights: dict[str, float], expected: Levels) -> None:
    """4 ZIPs of weight 4 are fewer than 3 races: then the races are generalized first, and that is enough for k = 2."""
    case = replace(FIGURE_3, measure="loss", weights=weights)
    with anonymize_case(case, "datafly") as (result, _):
        assert dict(result.generalization) == as_dict(case, expected)


@pytest.mark.thorough
@settings(quick, max_examples=draw_tables(20, usual=6))
@given(case=random_cases.cases())
def test_the_engine_counts_the_same_values(case: Case) -> None:
    if oracle.solve(**case.arguments) is None:
        return
    with anonymize_case(case, "datafly") as (result, _):
        engine_values = [list(values) for values in data_of_engine(result._search_input).distinct_values()]
    expected = distinct_values(Table.of(case.rows, case.hierarchies))
    # At the top there is one value; none is counted in plain Python where no hierarchy knows a value.
    assert [values[:-1] for values in engine_values] == [values[:-1] for values in expected]


@pytest.mark.thorough
def test_values_that_only_the_population_has_do_not_count() -> None:
    """Two zips and three ages are in the source; of zips the population has five."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT '1' || i % 2 AS zip, i % 3 AS age FROM range(6) r(i)")
        connection.execute("CREATE TABLE people AS SELECT '1' || i % 5 AS zip, i % 3 AS age FROM range(60) r(i)")
        policy = sqlanon.Policy(
            source={"table": "t"},
            population={"table": "people"},
            attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in ("zip", "age")},
            privacy={"k_map": 5},
            search={"strategy": "datafly"},
        )
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            assert data_of_engine(result._search_input).distinct_values() == [(2, 1), (3, 1)]
            assert dict(result.generalization) == {"zip": 0, "age": 1}


def test_a_search_that_is_stopped_on_the_way_is_left_with_the_top() -> None:
    search, outcome = search_with_limits(Limited(replace(FIGURE_3, k=3), ((0, 1), (0, 1, 2))), checks=2)
    assert (outcome.levels, outcome.stopped, outcome.optimal) == ((1, 2), "max_checks = 2", False)
    assert len(search.figures) == 2
