"""Random small tables, anonymized through the public API and by exhaustive search: the same answers."""

from __future__ import annotations

import csv
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle
from oracles.oracle import Hierarchy, Release, Row, Table
from properties import random_cases as strategies
from properties.random_cases import Case
from support.lanes import SEARCHING, draw_tables, examples

quick = settings(
    max_examples=draw_tables(20, usual=15), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
thorough = settings(quick, derandomize=not SEARCHING, max_examples=draw_tables(20, usual=100), print_blob=True)


def arrow_table(case: Case) -> pa.Table:
    """The rows as an Arrow table; its columns stand in another order than the policy's attributes."""
    columns = {
        name: pa.array(
            [row[i] for row in case.rows],
            type=pa.int64() if isinstance(next(iter(tree.paths)), int) else pa.string(),
        )
        for i, (name, tree) in enumerate(case.hierarchies.items())
    }
    return pa.table({name: columns[name] for name in sorted(columns)})


def write_hierarchy(tree: Hierarchy, path: Path) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(tree.paths.values())
    return str(path)


def policy(case: Case, strategy: str, directory: Path) -> sqlanon.Policy:
    attributes: dict[str, dict[str, Any]] = {}
    for i, (name, tree) in enumerate(case.hierarchies.items()):
        file = write_hierarchy(tree, directory / f"hierarchy_{i}.csv")
        attributes[name] = {"role": "quasi", "hierarchy": {"file": file}}
        if name in (case.weights or {}):
            attributes[name]["weight"] = case.weights[name]
        if not all(tree.knows(row[i]) for row in case.rows):
            attributes[name]["on_unknown"] = "suppress"
    search = {"strategy": strategy, "suppression_limit": float(case.limit), "measure": case.measure}
    if case.aggregate is not None:
        search["aggregate"] = case.aggregate
    return sqlanon.Policy(
        source={"table": "t"},
        attributes=attributes,
        privacy={"k": case.k},
        search=search,
        release={"table": "released"},
    )


@contextmanager
def anonymized(case: Case, strategy: str) -> Iterator[tuple[Any, Path]]:
    """The result of sqlanon (valid inside the block), and a directory to publish to."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with sqlanon.connect(arrow_table(case)) as db:
            yield db.anonymize(policy(case, strategy, directory)), directory


def as_dict(case: Case, levels: oracle.Levels) -> dict[str, int]:
    return dict(zip(case.hierarchies, levels, strict=True))


def check(case: Case, strategy: str) -> None:
    """The answer of sqlanon is the oracle's."""
    expected = (oracle.solve if strategy == "optimal" else oracle.k_minimal)(**case.arguments)
    if expected is None:
        check_infeasible(case, strategy)
        return
    with anonymized(case, strategy) as (result, _):
        assert math.isclose(result.score, expected.score, rel_tol=oracle.TIE), (result.score, expected)
        assert dict(result.generalization) == as_dict(case, expected.levels), expected.ties
        assert (result.suppressed_rows, result.classes) == (expected.suppressed_rows, expected.classes)
        if strategy == "k_minimal":
            found = sorted(tuple(node[name] for name in case.hierarchies) for node in result.k_minimal)
            assert found == [f.levels for f in expected.satisfying]


def check_infeasible(case: Case, strategy: str) -> None:
    """It says so, and names a generalization that leaves out as few rows as any."""
    with pytest.raises(sqlanon.InfeasibleError) as caught, anonymized(case, strategy):
        pass
    error, table = caught.value, Table.of(case.rows, case.hierarchies)
    assert error.allowed_rows == oracle.allowed_rows(case.limit, table.size)
    if not table.size:
        assert (error.nearest, error.suppressed_rows) == (None, 0)
        return
    assert error.nearest is not None
    assert set(error.nearest) == set(case.hierarchies)
    nearest = Release(table, tuple(error.nearest[name] for name in case.hierarchies), case.k)
    assert error.suppressed_rows == nearest.suppressed == oracle.fewest_suppressed(table, case.k)


def recoded(case: Case, levels: oracle.Levels) -> Counter[Row]:
    """What the release has to hold: the kept classes with their labels."""
    return Counter(Release(Table.of(case.rows, case.hierarchies), levels, case.k).kept)


# 29 of 100 rows may go, exactly as many as must at level 0; in binary floating point 0.29 × 100 is 28.999….
EXACT_LIMIT = Case(
    rows=[("v0",)] * 71 + [("v1",)] * 29,
    hierarchies={"b": Hierarchy({"v0": ("v0", "*"), "v1": ("v1", "*")})},
    k=30,
    limit="0.29",
    measure="height",
)

# Sweeney 2002, figure 3: {0, 1} and {1, 0} are both 2-minimal and of height 1; the first is preferred.
RACES, ZIPS = ("asian", "black", "white"), ("02138", "02139", "02141", "02142")
FIGURE_3 = Case(
    rows=list(itertools.product(RACES, ZIPS)),
    hierarchies={
        "race": Hierarchy({race: (race, "person") for race in RACES}),
        "ZIP": Hierarchy({zip_: (zip_, f"{zip_[:4]}*", "021**") for zip_ in ZIPS}),
    },
    k=2,
    limit="0",
    measure="height",
)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["optimal", "k_minimal"])
@thorough
@given(case=strategies.cases())
@example(case=EXACT_LIMIT)
@example(case=replace(EXACT_LIMIT, limit="0.28"))
@example(case=replace(EXACT_LIMIT, rows=[]))
@example(case=FIGURE_3)
@example(case=replace(FIGURE_3, k=3))
def test_same_answer_as_exhaustive_search(strategy: str, case: Case) -> None:
    check(case, strategy)


@pytest.mark.thorough
@settings(quick, max_examples=draw_tables(20, usual=1))
@given(case=strategies.cases().filter(lambda case: len(case.rows) > case.k))
def test_all_measures_on_one_table(case: Case) -> None:
    for measure in oracle.MEASURES:
        check(replace(case, measure=measure, aggregate=None, weights=None), "optimal")


@pytest.mark.thorough
@settings(thorough, max_examples=examples(6))
@given(case=strategies.cases())
def test_all_measures_and_aggregates_on_one_table(case: Case) -> None:
    for measure in oracle.MEASURES:
        for aggregate in oracle.AGGREGATES if measure in oracle.PER_ATTRIBUTE else (None,):
            check(replace(case, measure=measure, aggregate=aggregate, weights=None), "optimal")


ENOUGH = strategies.cases().filter(lambda case: len(case.rows) >= case.k and not case.has_unknown)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=30))
@given(case=ENOUGH)
def test_k_alone_always_has_a_solution_at_the_top(case: Case) -> None:
    check_top(case)


def check_top(case: Case) -> None:
    with anonymized(replace(case, limit="0"), "optimal") as (result, _):
        assert result.suppressed_rows == 0
    top = tuple(tree.height for tree in case.hierarchies.values())
    assert sum(recoded(case, top).values()) == len(case.rows)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=30))
@given(case=strategies.cases(), strategy=st.sampled_from(["optimal", "k_minimal"]))
def test_release_holds_every_class_of_at_least_k_and_nothing_else(case: Case, strategy: str) -> None:
    check_release(case, strategy)


def check_release(case: Case, strategy: str) -> None:
    """Minimal required suppression: all that is left out is in a class below k, or has an unknown value."""
    if oracle.solve(**case.arguments) is None:
        return
    with anonymized(case, strategy) as (result, directory):
        levels = tuple(result.generalization[name] for name in case.hierarchies)
        result.publish(directory / "release.duckdb")
        with duckdb.connect(str(directory / "release.duckdb"), read_only=True) as release:
            columns = ", ".join('"' + name.replace('"', '""') + '"' for name in case.hierarchies)
            released = Counter(release.execute(f"SELECT {columns} FROM released").fetchall())
    assert released == recoded(case, levels)


SOLVABLE = strategies.cases().filter(lambda case: oracle.solve(**case.arguments) is not None)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=15))
@given(case=SOLVABLE)
def test_the_order_of_rows_does_not_matter(case: Case) -> None:
    check_order(case)


def check_order(case: Case) -> None:
    answers = []
    for rows in (case.rows, case.rows[::-1]):
        with anonymized(replace(case, rows=rows), "optimal") as (result, _):
            answers.append((result.generalization, result.suppressed_rows, result.classes))
    assert answers[0] == answers[1]
