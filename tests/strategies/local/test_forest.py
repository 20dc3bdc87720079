"""Strategy forest: sound, and within its factor of the best of all ways to group rows, equal ones together or not."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_forest import least_cost, least_loss, most
from sqlglot import exp

import sqlanon
from properties.local_tasks import LIMITS, SOME_ROWS, Nodes, Plain, task_of
from properties.random_cases import Case
from properties.search_checks import thorough
from sqlanon.strategies.local.forest import Forest, choose_branches, forest
from support.databases import insert
from support.lanes import examples
from support.policies import make_policy

FEW_ROWS = SOME_ROWS.map(lambda case: replace(case, rows=case.rows[:10]))


# --- The forest alone, over points with values that are equal or not


def grow_forest(points: list[tuple[int, ...]], sizes: Mapping[int, int], k: int) -> Forest:
    trees = Forest(dict(sizes), k, dict.fromkeys(sizes, 0))
    while trees.open:
        edges = []
        for vertex in trees.open:
            foreign = [size for size in sizes if trees.tree_of(size) != trees.tree_of(vertex)]
            nearest = min(
                foreign, key=lambda candidate: (differing(points, {vertex, candidate}), candidate), default=None
            )
            edges += [] if nearest is None else [(vertex, nearest, differing(points, {vertex, nearest}))]
        trees.grow(edges)
    return trees


def differing(points: list[tuple[int, ...]], some: set[int] | frozenset[int]) -> int:
    """The paper's cost of a row: the values that are suppressed, where not all are equal."""
    return sum(len({points[point][i] for point in some}) > 1 for i in range(len(points[0])))


def check_groups(points: list[tuple[int, ...]], sizes: Mapping[int, int], k: int) -> tuple[int, int]:
    """Groups of all rows with the sizes of the proof, the bound of the least cost, and their cost."""
    trees = grow_forest(points, sizes, k)
    groups = trees.classes()
    total: Counter[int] = Counter()
    for group in groups:
        assert k <= sum(group.values()) <= most(k) or len(group) == 1
        total.update(group)
    assert total == Counter(sizes) or sum(sizes.values()) < k
    cost = sum(sum(group.values()) * differing(points, set(group)) for group in groups)
    bound = sum(n * trees.least_prices[vertex] for vertex, n in total.items())
    assert cost <= most(k) * bound
    return bound, cost


def draw_table(draw: random.Random, rows: int) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    values, columns = draw.choice([2, 3]), draw.choice([2, 4, 6])
    counts = Counter(tuple(draw.randrange(values) for _ in range(columns)) for _ in range(draw.randint(1, rows)))
    while sum(counts.values()) < rows:
        counts[draw.choice([*counts])] += 1
    return [*counts], dict(enumerate(counts.values()))


def check_factor(seeds: range, rows: int) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        points, sizes = draw_table(draw, rows)
        k = draw.choice([2, 3, 4])
        least = least_cost(sizes, k, lambda group, points=points: differing(points, group), len(points[0]))
        bound, cost = check_groups(points, sizes, k)
        assert bound <= least <= cost, seed


def test_suppressed_cells_are_within_the_factor_of_the_fewest() -> None:
    check_factor(range(40), 7)


@pytest.mark.slow
def test_suppressed_cells_are_within_the_factor_of_the_fewest_on_many_tables() -> None:
    check_factor(range(1000, 1000 + examples(500)), 9)


def test_group_sizes_stay_below_the_proven_bound() -> None:
    for seed in range(60):
        draw = random.Random(seed)
        points, sizes = draw_table(draw, draw.choice([10, 30, 60]))
        check_groups(points, sizes, draw.choice([2, 3, 4, 5, 7, 10]))


def multisets(total: int, greatest: int) -> Iterator[list[int]]:
    """Every way to write a number as a sum, without order."""
    if not total:
        yield []
    for first in range(min(total, greatest), 0, -1):
        for multiset in multisets(total - first, first):
            yield [first, *multiset]


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, pytest.param(7, marks=pytest.mark.slow)])
def test_more_rows_than_the_factor_at_a_vertex_are_always_divided(k: int) -> None:
    for rows in range(most(k) + 1, 3 * k + 1):
        for own_rows in range(1, k + 1):
            for branches in multisets(rows - own_rows, k - 1):
                choice = choose_branches(rows, own_rows, branches, k)
                assert choice is not None, (rows, own_rows, branches)
                chosen, taken = choice
                part = taken + sum(branches[i] for i in chosen)
                assert k <= part <= 2 * k - 2 and rows - part >= k and 0 <= taken < own_rows


# --- The strategy


def shares_of(relation: exp.Table, plain: Plain, shared: Plain) -> dict[int, list[int]]:
    """The places of rows that the shares of each combination have."""
    ground = {paths: combination for combination, paths in plain.paths.items()}
    shares: dict[int, list[int]] = {}
    query = exp.select("combination", "first_row", "last_row").from_(relation)
    for share, first, last in plain.task.engine.rows(query):
        shares.setdefault(ground[shared.paths[share]], []).extend(range(first, last + 1))
    return shares


def check_forest(case: Case, limits: list[int], aggregate: str) -> None:
    """Only nodes that may be released, classes of k rows, each row once, and a loss within the factor of a bound of the
    least."""
    with task_of(replace(case, limit="1"), limits, key="row", strategy="forest", aggregate=aggregate) as task:
        plain, outcome = Plain(task), forest(task)
        shared = Plain(outcome.task)
        placed: dict[int, Nodes] = shared.placed(outcome.assignment)
        assert set(placed) == set(shared.n) and shared.kept(placed, case.k) == placed
        for share, nodes in placed.items():
            for by, path, node in zip(shared.nodes, shared.paths[share], nodes, strict=True):
                assert node in path and by[node].released
        for combination, places in shares_of(outcome.task.combinations, plain, shared).items():
            assert sorted(places) == [*range(1, plain.n[combination] + 1)]
        weights = math.fsum(tree.weight for tree in plain.task.trees) if aggregate == "sum" else 1.0
        assert outcome.bound / weights <= least_loss(plain, case.k) + 1e-12
        assert shared.loss(placed) <= most(case.k) * outcome.bound / weights + 1e-7


@pytest.mark.thorough
@settings(thorough, max_examples=examples(400))
@given(FEW_ROWS, LIMITS, st.sampled_from(["mean", "sum"]))
def test_the_loss_is_within_the_factor_of_the_least(case: Case, limits: list[int], aggregate: str) -> None:
    check_forest(case, limits, aggregate)


ALONE = ("c", 27, "Hispanic", "Female", "92010", "Flu")
ASKED = {**dict.fromkeys(("age", "race", "gender", "zip"), "suppress"), "disease": "sensitive"}


COLUMNS = "id VARCHAR, age INTEGER, race VARCHAR, gender VARCHAR, zip VARCHAR, disease VARCHAR"


def released_rows(rows: list[tuple[Any, ...]], k: int, publish_to: Path | None = None) -> tuple[list[Any], str]:
    """The rows of a release, which is verified if it is published, and the proof that comes with it."""
    policy = make_policy(ASKED, k=k, search={"strategy": "forest"}, source={"table": "t", "key": "id"})
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({COLUMNS})")
    insert(connection, "t", rows)
    with sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
        if publish_to:
            verification = db.verify(result.publish(publish_to).path, policy)
            assert verification.verified, verification.failures
        return sorted(result.relation().fetchall()), result.proof


@pytest.mark.thorough
def test_equal_rows_are_divided_by_their_key_alone(tmp_path: Path) -> None:
    """A row that is alone takes one of a hundred equal ones with it, and not all of them: the same one on every run,
    whatever is released of it. No less than a quarter of a row is lost, and half of one is."""
    rows = [(f"{i}", 27, "White", "Female", "92010", f"{i}") for i in range(100)]
    released, proof = released_rows([*rows, ALONE], 2, tmp_path / "r.duckdb")
    assert proof == "not proven optimal: at most 2.01 times the least loss (proven)"
    assert sorted(row[4] for row in released) == sorted([*(row[5] for row in rows), "Flu"])
    taken, remainder = sorted(row[4] for row in released if row[1] == "*")
    assert remainder == "Flu"
    assert released == released_rows([ALONE, *reversed(rows)], 2)[0]
    mirrored = [(*row[:5], str(99 - int(row[5]))) for row in rows]
    released, _ = released_rows([*mirrored, ALONE], 2)
    assert sorted(row[4] for row in released if row[1] == "*") == [str(99 - int(taken)), "Flu"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "message"),
    [
        (
            "MAX_FIRST_ROUND_PAIRS",
            "comparing 1 combinations of fewer than k rows with all 1 exceeds the limit of 0 pairs; set min_level",
        ),
        ("MAX_COMBINATIONS", "the source has 1 combinations, more than the limit of 0; set min_level"),
    ],
)
def test_too_many_combinations_are_refused(most: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"sqlanon.strategies.local.forest.{most}", 0)
    with pytest.raises(sqlanon.InfeasibleError, match=message):
        released_rows([ALONE], 2)


def test_forest_needs_a_key_and_refuses_persons() -> None:
    with pytest.raises(sqlanon.PolicyError) as caught:
        make_policy(ASKED, k=2, search={"strategy": "forest"}, source={"table": "t", "person": "name"})
    assert "source.key: is missing: strategy forest divides equal rows by it" in str(caught.value)
    assert "source.person: strategy forest counts rows" in str(caught.value)


@pytest.mark.parametrize("key", [{}, {"key": "id"}], ids=["none", "key"])
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"postgres": "postgresql://h/d"}, ("search", "strategy forest places rows one by one")),
        ({"spark": "local[2]"}, ("search.strategy", "strategy forest divides equal rows by their key")),
    ],
)
def test_a_remote_source_needs_no_key(source: dict[str, str], reason: tuple[str, str], key: dict[str, str]) -> None:
    with pytest.raises(sqlanon.PolicyError) as caught:
        make_policy(ASKED, k=2, search={"strategy": "forest"}, source={**source, "table": "s.t", **key})
    problems = {problem.place: problem.message for problem in caught.value.problems}
    assert ("keys are recorded row by row" in problems.pop("source.key", "")) is bool(key)
    assert [(place, message.startswith(reason[1])) for place, message in problems.items()] == [(reason[0], True)]
