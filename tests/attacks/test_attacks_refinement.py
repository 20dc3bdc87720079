"""Minimality and downcoding: the builders against plain Python, and examples of the papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import oracle_attacks as oracle
from oracles.oracle_attacks import Row
from sqlanon.attacks.refinement import FullDomainRelease, SplitAttribute, depends_on_rows_alone, downcoding, minimality
from sqlanon.requirements import KAnonymity, Requirements
from sqlanon.requirements.l_diversity import DistinctDiversity, EntropyDiversity
from sqlanon.support.expressions import table
from support.lanes import examples
from support.release_pairs import make, trees

NAMES = ['my "col"', "n"]


def values_by_class(connection: duckdb.DuckDBPyConnection, query: Any) -> dict[Row, Row]:
    rows = connection.execute(query.sql("duckdb")).fetchall()
    answer = {row[:-2]: row[-2:] for row in rows}
    assert len(answer) == len(rows)
    return answer


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_minimality_and_refinement_match_plain_python(data: st.DataObject) -> None:
    pair = [data.draw(trees()) for _ in range(2)]
    levels = [data.draw(st.integers(0, tree.height)) for tree in pair]
    ground = [st.sampled_from([path[0] for path in tree.paths]) for tree in pair]
    rows = data.draw(st.lists(st.tuples(*ground, st.sampled_from(["x", "y", None])), max_size=14))
    k, distinct = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    requirements = Requirements((KAnonymity(k), DistinctDiversity("s", distinct)))
    with duckdb.connect() as connection:
        make(connection, "source", [*NAMES, "s"], rows)
        quasi = []
        for i, (tree, level) in enumerate(zip(pair, levels, strict=True)):
            columns = [f"level_{n}" for n in range(tree.height + 1)]
            hierarchy = make(connection, f"h{i}", columns, list(tree.paths))
            quasi.append(SplitAttribute(str(i), f"released {i}", NAMES[i], level, hierarchy))
        lower, merged = oracle.split(rows, levels, pair, k, distinct)
        parts = oracle.split(rows, levels, pair, k, distinct)
        labels = [{path[0]: path[level] for path in tree.paths} for tree, level in zip(pair, levels, strict=True)]
        released = [tuple(labels[i][row[i]] for i in range(2)) for row in rows]
        by_class = {
            key: [row[2] for row, label in zip(rows, released, strict=True) if label == key] for key in released
        }
        meets = {key for key, values in by_class.items() if len(values) >= k and len(set(values)) >= distinct}
        make(connection, "release", ["released 0", "released 1"], [row for row in released if row in meets])
        release = FullDomainRelease(table("release"), table("source"), quasi, {"s": "s"}, requirements)
        assert values_by_class(connection, downcoding(release)) == parts[0] == lower
        assert values_by_class(connection, minimality(release, k)) == merged


# --- Wong et al. 2007, table 1: a class that is whole because all of q1 have HIV


def of_q(connection: duckdb.DuckDBPyConnection, problems: list[str]) -> FullDomainRelease:
    qids = ["q1", "q1", "q2", "q2", "q2", "q2", "q2"]
    make(connection, "source", ["qid", "disease"], list(zip(qids, problems, strict=True)))
    make(connection, "release", ["qid", "disease"], [("Q", problem) for problem in problems])
    tree = make(connection, "tree", ["level_0", "level_1"], [("q1", "Q"), ("q2", "Q")])
    requirements = Requirements((KAnonymity(2), DistinctDiversity("disease", 2)))
    quasi = [SplitAttribute("qid", "qid", "qid", 1, tree)]
    return FullDomainRelease(table("release"), table("source"), quasi, {"disease": "disease"}, requirements)


@pytest.mark.slow
def test_the_two_of_q1_have_hiv() -> None:
    with duckdb.connect() as connection:
        release = of_q(connection, ["HIV", "HIV", "flu", "flu", "flu", "gout", "HIV"])
        assert values_by_class(connection, minimality(release, 2)) == {("Q",): ("qid", 2)}
        assert values_by_class(connection, downcoding(release)) == {}


@pytest.mark.slow
def test_splittable_class_has_no_refinement_victims() -> None:
    """The class could show finer values, which downcoding counts."""
    with duckdb.connect() as connection:
        release = of_q(connection, ["HIV", "flu", "flu", "flu", "flu", "gout", "HIV"])
        assert values_by_class(connection, minimality(release, 2)) == {}
        assert values_by_class(connection, downcoding(release)) == {("Q",): ("qid", 7)}


@pytest.mark.slow
def test_class_kept_whole_for_k_has_no_victims() -> None:
    with duckdb.connect() as connection:
        release = of_q(connection, ["HIV", "HIV", "flu", "flu", "flu", "gout", "HIV"])
        assert values_by_class(connection, minimality(release, 3)) == {}


def test_other_requirements_are_looked_at() -> None:
    with duckdb.connect() as connection:
        release = of_q(connection, ["HIV", "HIV", "flu", "flu", "flu", "gout", "HIV"])
        entropy = Requirements((KAnonymity(2), EntropyDiversity("disease", 1.5)))
        assert depends_on_rows_alone(entropy)
        assert values_by_class(connection, minimality(replace(release, requirements=entropy), 2)) == {
            ("Q",): ("qid", 2)
        }
