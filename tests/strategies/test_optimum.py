"""The result of `optimal` is the best of all, in small lattices that are searched completely, without an engine."""

from __future__ import annotations

import itertools
import random

import duckdb
import pytest
from optimum_cases import ASKED, TREES, WEIGHTS, rows_of

import sqlanon
from oracles import oracle
from properties.plain_search import search_by, search_of
from properties.random_cases import Case
from sqlanon.measures import MEASURES as OWN
from sqlanon.measures import Figures, Marginals
from sqlanon.requirements import Requirements
from sqlanon.requirements.l_diversity import EntropyDiversity
from sqlanon.strategies.lattice import Lattice, LatticeSearch
from sqlanon.strategies.lattice.search import VerdictRules
from support.policies import make_policy


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "aggregate"), ASKED)
def test_optimum_is_the_best_generalization_by_each_measure(measure: str, aggregate: str | None) -> None:
    draw = random.Random(7)
    for limit in ("0.1", "0.3", "0.5"):
        for k in (2, 3, 4):
            weights = WEIGHTS if aggregate in ("mean", "sum") and k == 3 else None
            case = Case(rows_of(draw), TREES, k, limit, measure, aggregate, weights)
            expected = oracle.solve(**case.arguments)
            search = search_of(case)
            search_result = search_by("optimal", search)
            assert search_result.levels == (None if expected is None else expected.levels), case


def test_rows_suppressed_by_a_generalization_need_not_be_suppressed_below_it() -> None:
    """Entropy l-diversity: rows that are suppressed here need not be suppressed below."""
    requirements = Requirements((EntropyDiversity("illness", 2),))
    for seed in range(60):
        draw = random.Random(seed)
        nodes = list(itertools.product(range(3), range(3)))
        figures = {node: Figures(3, draw.randint(0, 6), least_suppressed=0.0) for node in nodes}
        measure = OWN["suppression"](Marginals(20, (2, 2), (4, 4), (0, 0), ((0.0, 20.0, 60.0),) * 2))
        lattice = Lattice(("one", "two"), (0, 0), (2, 2))
        search = LatticeSearch(lattice, measure, figures.__getitem__, VerdictRules(requirements, 20).draw_verdict, 5)
        expected = min(nodes, key=lambda node: (figures[node].suppressed_rows, sum(node), node))
        assert search_by("optimal", search).levels == expected, seed


@pytest.mark.thorough
def test_the_lower_generalization_of_equal_scores_is_taken() -> None:
    """The order of levels does not decide: (0, 2) of height 2 comes before (1, 0)."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS FROM (VALUES ('p', '11'), ('q', '11'), ('p', '22'), ('q', '22')) AS t(a, b)"
        )
        with sqlanon.connect(connection) as db:
            policy = make_policy({"a": "suppress", "b": "mask"}, k=2, search={"measure": "suppression"})
            result = db.anonymize(policy)
    assert result.generalization == {"a": 1, "b": 0}
