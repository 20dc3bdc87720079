"""Cell suppression: the fewest blanks where a proof exists, and classes as a reader sees them."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cells_plan import Blanks, Plan
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from properties import privacy_checks
from properties.local_tasks import LIMITS, SOME_ROWS, Nodes, Read, adult, check_privacy, local_policy, task_of
from properties.privacy_cases import PrivacyCase, privacy_cases
from properties.random_cases import Case
from properties.search_checks import arrow_table, quick, thorough
from sqlanon.strategies.local.cells import suppress_cells
from support.databases import insert
from support.lanes import draw_tables, examples
from support.policies import make_policy

pytestmark = pytest.mark.thorough

module = importlib.import_module("sqlanon.strategies.local.cells")


def check(case: Case, limits: Sequence[int], draw: Sequence[int], *, exact: bool) -> None:
    """Results are sound, and of the least weight where that is claimed and proven."""
    with task_of(case, limits, suppression="cells", suppression_limit=1.0) as task:
        levels = tuple(
            tree.floor + some % (tree.ceiling - tree.floor + 1) for some, tree in zip(draw, task.trees, strict=False)
        )
        plan = Plan(task, levels, case.k)
        placed = plan.placed(suppress_cells(task, levels).assignment)
        assert {c: nodes for c, nodes in placed.items() if c in plan.good} == plan.good
        assert plan.kept(placed, case.k) == placed
        choice = plan.found(placed)
        for i, tree in enumerate(task.trees):
            for combination, nodes in placed.items():
                assert nodes[i] in (plan.whole[combination][i], tree.root)
                assert nodes[i] == plan.whole[combination][i] or i in plan.blankable
        cost = plan.cost(choice)
        assert cost <= plan.cost(dict.fromkeys(choice))
        check_nothing_is_left_to_place(plan, placed, choice)
        few = len(plan.classes) <= 4 and len(plan.blankable) <= 3
        least = plan.least() if few else None
        helped = any(plan.read(nodes)[i] == plan.tops[i] for nodes in plan.good.values() for i in plan.blankable)
        if least is not None:
            assert cost >= least - 1e-9
            if exact and not helped:
                assert abs(cost - least) < 1e-9, (choice, least)


def check_nothing_is_left_to_place(plan: Plan, placed: dict[int, Nodes], choice: dict[Read, Blanks | None]) -> None:
    """No set of blanks brings all suppressed rows that can have it to a class of k."""
    if any(read[i] == plan.tops[i] for read in choice for i in plan.blankable):
        return  # rows that read as blank are in the classes of heavier blanks, too
    sizes = plan.sizes(placed)
    for read, blanks in choice.items():
        for some in plan.choices(read) if blanks is None else ():
            if some:
                sizes[plan.blank(read, some)] += sum(plan.n[c] for c in plan.classes[read])
    suppressed = {
        plan.blank(read, some) for read, blanks in choice.items() if blanks is None for some in plan.choices(read)
    }
    assert all(sizes[read] < plan.k for read in suppressed)


DRAWS = st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=4, max_size=4)


@settings(thorough, max_examples=draw_tables(20, usual=20))
@given(SOME_ROWS, LIMITS, DRAWS)
def test_partitions_blank_the_fewest_cells(case: Case, limits: list[int], draw: list[int]) -> None:
    check(case, limits, draw, exact=True)


@settings(thorough, max_examples=draw_tables(20, usual=30))
@given(SOME_ROWS, LIMITS, DRAWS)
def test_blanking_in_rounds_is_sound(case: Case, limits: list[int], draw: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT", 0)
        patch.setattr(module, "MAX_TRIES", 40)
        check(case, limits, draw, exact=False)


@settings(thorough, max_examples=examples(15))
@given(SOME_ROWS)
def test_the_release_is_verified(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    directory = tmp_path_factory.mktemp("cells")
    policy = local_policy(replace(case, limit="0.5"), directory, suppression="cells")
    plain = local_policy(replace(case, limit="0.5"), directory)
    with sqlanon.connect(arrow_table(case)) as db:
        try:
            whole = db.anonymize(plain)
        except sqlanon.InfeasibleError:
            return
        result = db.anonymize(policy)
        assert result.score <= whole.score + 1e-9
        assert result.suppressed_rows <= whole.suppressed_rows
        assert db.verify(result.publish(directory / "r.duckdb").path, policy).verified


# Worked examples


def publish_rows(
    rows: Sequence[tuple[Any, ...]], attributes: dict[str, Any], directory: Path, k: int = 5, **sections: Any
) -> Counter[Any]:
    """The rows that are published."""
    directory.mkdir(exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} VARCHAR' for name in attributes)})")
        insert(connection, "t", rows)
        search = {"suppression": "cells", "suppression_limit": 0.4, "measure": "loss"}
        search |= sections.pop("search", {})
        with sqlanon.connect(connection) as db:
            publication = db.anonymize(make_policy(attributes, k=k, search=search, **sections)).publish(
                directory / "r.duckdb"
            )
            assert publication.verify().verified
    with duckdb.connect(publication.path, read_only=True) as connection:
        return Counter(connection.execute("FROM t").fetchall())


def matches(rows: Counter[Any], row: tuple[str, ...]) -> int:
    """The number of rows that may be a row, if a blank stands for any value."""
    return sum(
        n for other_row, n in rows.items() if all("*" in (a, b) or a == b for a, b in zip(row, other_row, strict=True))
    )


def test_blank_does_not_match_other_values(tmp_path: Path) -> None:
    """One blank is enough for those who count it as any value; a reader finds a class of 1, and one of 4."""
    rows = [*[("a", "x")] * 4, ("b", "x"), *[("c", "y")] * 10]
    wild = Counter({("a", "x"): 4, ("*", "x"): 1, ("c", "y"): 10})
    assert all(matches(wild, row) >= 5 for row in wild)
    assert min(wild.values()) == 1
    released_rows = publish_rows(rows, {"one": "suppress", "two": "suppress"}, tmp_path)
    assert released_rows == Counter({("*", "x"): 5, ("c", "y"): 10})
    assert all(matches(released_rows, row) >= 5 for row in released_rows)


def test_weights_decide_the_blanked_cell(tmp_path: Path) -> None:
    rows = [*[("a", "x")] * 3, *[("b", "x")] * 2, *[("a", "y")] * 2, *[("c", "z")] * 60]
    dear = {"role": "quasi", "hierarchy": "suppress", "weight": 5.0}
    light = {"role": "quasi", "hierarchy": "suppress"}
    search = {"measure": "loss", "suppression_limit": 0.5}
    by_first = publish_rows(rows, {"one": dear, "two": light}, tmp_path / "1", k=5, search=search)
    by_second = publish_rows(rows, {"one": light, "two": dear}, tmp_path / "2", k=5, search=search)
    assert by_first == Counter({("a", "*"): 5, ("c", "z"): 60})
    assert by_second == Counter({("*", "x"): 5, ("c", "z"): 60})


def test_blanked_rows_meet_all_requirements(tmp_path: Path) -> None:
    """Five rows, of one diagnosis: one more blank brings them together with another."""
    rows = [*[("a", "x", "flu")] * 3, *[("b", "x", "flu")] * 2, *[("d", "y", "gout")] * 2]
    rows += [("c", "z", f"d{i}") for i in range(12)]
    attributes = {"one": "suppress", "two": "suppress", "diagnosis": "sensitive"}
    released_rows = publish_rows(rows, attributes, tmp_path / "1")
    assert {row[:2]: n for row, n in released_rows.items() if row[0] != "c"} == {("*", "x"): 5}
    privacy = {"k": 5, "l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}]}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (one VARCHAR, two VARCHAR, diagnosis VARCHAR)")
        insert(connection, "t", rows)
        policy = make_policy(attributes, search={"suppression": "cells", "suppression_limit": 0.4, "measure": "loss"})
        policy = sqlanon.Policy(**(policy.model_dump(mode="json", exclude_none=True) | {"privacy": privacy}))
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            publication = result.publish(tmp_path / "r.duckdb")
    with duckdb.connect(publication.path, read_only=True) as connection:
        sizes = Counter(row[:2] for row in connection.execute("FROM t").fetchall())
    assert sizes == Counter({("*", "*"): 7, ("c", "z"): 12})


@settings(privacy_checks.thorough, max_examples=draw_tables(6, usual=10))
@given(privacy_cases())
def test_every_requirement_is_met(case: PrivacyCase) -> None:
    check_privacy(case, suppression="cells")


def test_cells_release_all_but_3_rows_of_adult(data: Path) -> None:
    """All but 3 of the 1,346 rows that would be suppressed are released."""
    with sqlanon.connect() as db:
        whole = db.anonymize(adult(data, 5, 0.05))
        result = db.anonymize(adult(data, 5, 0.05, suppression="cells"))
    assert (whole.suppressed_rows, result.suppressed_rows) == (1346, 3)
    assert result.score == pytest.approx(0.148429, abs=1e-6)
    assert result.smallest_class == 5


@settings(quick, max_examples=draw_tables(5, usual=10))
@given(SOME_ROWS, LIMITS, DRAWS)
def test_blanking_small_and_large_sets_of_attributes_is_sound(case: Case, limits: list[int], draw: list[int]) -> None:
    """With up to four attributes, the small and the large sets are all sets, so nothing differs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT", 0)
        patch.setattr(module, "MAX_BLANKABLE", 0)
        check(case, limits, draw, exact=False)
