"""Strategy subtree: cuts that satisfy the policy, never worse than the full domain, with no split left to make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from subtree_cuts import check_no_split_is_left, cut_of

import sqlanon
from properties import privacy_checks
from properties.local_tasks import LIMITS, SOME_ROWS, Plain, adult, check_privacy, local_policy, task_of
from properties.privacy_cases import PrivacyCase, privacy_cases
from properties.random_cases import Case
from properties.search_checks import arrow_table, thorough
from properties.small_tables import local_case
from sqlanon.strategies.local.subtree import subtree
from support.databases import insert
from support.lanes import draw_tables, examples
from support.policies import make_policy

pytestmark = pytest.mark.thorough


def check(case: Case, limits: Sequence[int]) -> None:
    with task_of(case, limits, strategy="subtree") as task:
        plain = Plain(task)
        try:
            search, levels = task.search_full_domain()
        except sqlanon.InfeasibleError:
            return
        assignment = plain.placed(subtree(task).assignment)
        start = plain.kept(plain.at(levels), case.k)
        assert math.isclose(plain.loss(start), search.scores[levels], rel_tol=1e-9, abs_tol=1e-12)
        assert plain.loss(assignment) <= plain.loss(start) + 1e-9
        assert plain.kept(assignment, case.k) == assignment
        assert sum(plain.n.values()) - plain.rows(assignment) <= plain.allowed
        cut = cut_of(plain, assignment)
        for by, nodes in zip(cut, plain.nodes, strict=True):
            assert all(nodes[node].released for node in by.values())
            under = [[ground for ground in by if by[ground] == node] for node in set(by.values())]
            assert sum(map(len, under)) == len(by)
        for combination, paths in plain.paths.items():
            for by, path, node in zip(cut, paths, assignment.get(combination, ()), strict=False):
                assert node in path and by[path[0]] == node
        check_no_split_is_left(plain, cut, assignment, case.k)


@pytest.mark.parametrize("number", range(16))
def test_no_split_is_left_that_costs_less(number: int) -> None:
    case = local_case(number)
    check(case, [number % 3] * len(case.hierarchies))


@settings(thorough, max_examples=draw_tables(20, usual=30))
@given(SOME_ROWS, LIMITS)
def test_cuts_are_sound_and_never_worse_than_the_full_domain(case: Case, limits: list[int]) -> None:
    check(case, limits)


@settings(thorough, max_examples=examples(15))
@given(SOME_ROWS)
def test_the_release_is_verified(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    directory = tmp_path_factory.mktemp("subtree")
    policy = local_policy(case, directory, strategy="subtree")
    with sqlanon.connect(arrow_table(case)) as db:
        try:
            result = db.anonymize(policy)
        except sqlanon.InfeasibleError:
            return
        assert result.smallest_class >= case.k
        assert result.optimal == (result.score == result.bound)
        assert db.verify(result.publish(directory / "r.duckdb").path, policy).verified


TOWNS = {"north": ["Kiel", "Celle"], "south": ["Ulm", "Isny"]}


def released_rows(
    rows: Sequence[tuple[Any, ...]], attributes: dict[str, Any], directory: Path, **sections: Any
) -> list[Any]:
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} VARCHAR" for name in attributes)
        connection.execute(f"CREATE TABLE t ({columns})")
        insert(connection, "t", rows)
        with sqlanon.connect(connection) as db:
            search = {"strategy": "subtree", **sections.pop("search", {})}
            publication = db.anonymize(make_policy(attributes, search=search, **sections)).publish(
                directory / "r.duckdb"
            )
    with duckdb.connect(publication.path, read_only=True) as connection:
        return sorted(connection.execute("SELECT *, count(*) FROM t GROUP BY ALL").fetchall())


def test_only_the_subtree_with_rare_values_is_generalized(tmp_path: Path) -> None:
    rows = [("Kiel",), ("Celle",), *[("Ulm",)] * 2, *[("Isny",)] * 3]
    town = {"role": "quasi", "hierarchy": {"categories": TOWNS}}
    assert released_rows(rows, {"town": town}, tmp_path) == [("Isny", 3), ("Ulm", 2), ("north", 2)]


def test_forbidden_labels_are_stepped_over(tmp_path: Path) -> None:
    """South may not be shown: so its towns are, or all towns are one."""
    rows = [*[("Kiel",)] * 2, *[("Celle",)] * 2, *[("Ulm",)] * 2, *[("Isny",)] * 3]
    towns = {"all": TOWNS}
    town = {"role": "quasi", "hierarchy": {"categories": towns}, "forbidden": ["south"]}
    assert released_rows(rows, {"town": town}, tmp_path) == [("Celle", 2), ("Isny", 3), ("Kiel", 2), ("Ulm", 2)]
    assert released_rows([*rows, ("Oyten",)], {"town": _with_oyten(towns)}, tmp_path) == [("all", 10)]


def _with_oyten(towns: dict[str, Any]) -> dict[str, Any]:
    north = {"north": [*TOWNS["north"], "Oyten"], "south": TOWNS["south"]}
    return {"role": "quasi", "hierarchy": {"categories": {"all": north}}, "forbidden": ["south", "north"]}


@settings(privacy_checks.thorough, max_examples=draw_tables(6, usual=20))
@given(privacy_cases())
def test_every_requirement_is_met(case: PrivacyCase) -> None:
    check_privacy(case, strategy="subtree")


def test_subtree_loses_less_of_adult_than_the_full_domain(data: Path) -> None:
    """The optimum of the full domain is 0.3955; moves up, and splits after them, lead to 0.3665."""
    with sqlanon.connect() as db:
        whole = db.anonymize(adult(data, 50, 0.05))
        result = db.anonymize(adult(data, 50, 0.05, strategy="subtree"))
    assert whole.score == pytest.approx(0.395492, abs=1e-6)
    assert result.score == pytest.approx(0.366548, abs=1e-6)
    assert result.smallest_class >= 50
    assert result.suppressed_rows <= 0.05 * result.rows
