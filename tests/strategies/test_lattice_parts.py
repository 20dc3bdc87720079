"""Parts of a search of the lattice on tiny inputs: its table, checks by halves, joint checks, and the population."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from oracles.oracle import Hierarchy
from properties.plain_search import search_of
from properties.random_cases import Case
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import MEASURES, Figures, Marginals
from sqlanon.pipeline import prepare
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.strategies.lattice.population_match import generalized_population
from sqlanon.support.coding import CodedAttribute
from sqlanon.support.expressions import table

PAIR = Case([("a",)] * 4 + [("b",)] * 4, {"x": Hierarchy({v: (v, "*") for v in "ab"})}, k=4, limit="0", measure="loss")


def test_the_table_of_a_lattice_has_no_figures_of_half_of_the_classes() -> None:
    search = search_of(PAIR)
    search.checker = {(0,): Figures(1, 4, counted_share=0.5), (1,): Figures(1, 0)}.__getitem__
    search.check_all([(0,), (1,)])
    nodes, _, _, words, classes, suppressed, *_ = search.lattice_columns()
    rows = list(zip(nodes, words, classes, suppressed, strict=True))
    assert rows == [([0], "violates", None, None), ([1], "satisfies", 1, 0)]


@pytest.mark.parametrize("name", MEASURES)
def test_halves_suffice_unless_the_measure_uses_the_classes_of_what_fails(name: str) -> None:
    measure = MEASURES[name](Marginals(100, (2,), (4,), (0,), ((0.0, 50.0, 300.0),)))
    checker: Any = SimpleNamespace(
        _expect_suppressed=lambda levels: 9.0,
        _seeks_best_only=lambda: True,
        _measure=measure,
        _limit=SuppressionLimit(1),
    )
    uses_classes = ("discernibility", "average_class_size", "distinct")
    assert Checker._fails_by_far(checker, (0,)) is (name not in uses_classes)


@pytest.mark.parametrize(("top", "label"), [("*", "*"), ("Europe", "sqlanon: in no hierarchy: Lima")])
def test_only_an_asterisk_covers_values_of_the_population_outside_the_hierarchy(top: str, label: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT unnest(['Bonn', 'Lima']) AS city")
        columns = "value, known, label_1"
        connection.execute(
            f"CREATE TABLE coded AS FROM (VALUES ('Bonn', true, '{top}'), ('Lima', false, NULL)) AS t({columns})"
        )
        attribute = CodedAttribute("city", 1, table("coded"), nullable=False)
        query = generalized_population(table("people"), ["city"], [attribute], [top], (1,), ["VARCHAR"], None)
        assert connection.execute(query.sql("duckdb")).fetchall() == [(top,), (label,)]


@pytest.mark.slow
def test_joint_checks_count_the_leaves_of_open_ends() -> None:
    """At level 0, ages from 60 on have one label: it loses."""
    ages = pa.table({"age": pa.array([20, 20, 41, 41, 60, 70, 80, 81, 35], pa.int32()), "sex": list("ffmmffmmf")})
    attributes = {
        "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20], "above": 60}},
        "sex": {"role": "quasi", "hierarchy": "suppress"},
    }
    policy = sqlanon.Policy(
        source={"table": "t"}, attributes=attributes, privacy={"k": 2}, search={"suppression_limit": 0.5}
    )
    with sqlanon.connect(ages) as db, db._workspace.run(policy, counted=True) as run:
        runner = StatementRunner(run.engine)
        search_input = prepare(runner, policy, run.source, run.work, run.population)
        checker = Checker(runner.engine, search_input, policy_measure(search_input))
        levels = [(0, 0), (0, 1), (1, 0), (2, 1)]
        figures = [checker(candidate) for candidate in levels]
        assert any(0 in some.suppressed_leaves for some in figures[:2])
        assert checker.check_together(levels) == figures
