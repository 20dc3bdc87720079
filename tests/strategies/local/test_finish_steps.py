"""Figures and warnings of a local result, and its kept classes, compared with plain Python."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_tasks import Small, draw_rows, letters, small_task
from sqlglot import exp
from step_queries import query

from sqlanon.requirements.base import SubsetCondition
from sqlanon.strategies.local.core import finish
from sqlanon.strategies.local.core.finish import LocalResult
from sqlanon.strategies.local.core.label_sorting import sortable_labels
from sqlanon.strategies.local.core.task import LocalOutcome
from sqlanon.support.expressions import table
from support.databases import insert

A, B = letters("a", 4, 2), letters("b", 4, 2)
SMALL = Small(draw_rows(1, 20, [A, B], 0.5), [A, B], 2)


def test_an_attribute_has_a_level_if_all_its_values_are_released_at_it() -> None:
    """At the ground also where ranges may be released."""
    trees: Any = [SimpleNamespace(name=name) for name in "abcde"]
    result: Any = SimpleNamespace(trees=trees, levels=((0, 0), (1, 1), (1, 1), (0, 2), (0, 0)), generated={2, 4})
    assert LocalResult.generalization.fget(result) == {"a": 0, "b": 1, "c": None, "d": None, "e": 0}  # type: ignore


def test_sets_are_of_attributes_without_an_order() -> None:
    trees: Any = [SimpleNamespace(is_ordered=ordered) for ordered in (True, False, False)]
    assert LocalResult._set_attributes(SimpleNamespace(trees=trees, generated={0, 1})) == {1}  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [{0: (True, False), 2: (True, True)}, {1: (False, True)}, {}])
def test_rows_whose_exact_values_are_shown_are_counted_once(ends: dict[int, tuple[bool, bool]]) -> None:
    """Only released attributes count; the attribute with the most labels comes first."""
    with small_task(SMALL) as task:
        connection = task.engine.connection
        connection.execute("CREATE TABLE kept (combination INTEGER, row_count BIGINT)")
        sizes = {0: 3, 1: 4, 2: 5, 3: 8}
        insert(connection, "kept", [*sizes.items()])
        connection.execute("CREATE TABLE ends (combination INTEGER, is_end_0 BOOLEAN, is_end_1 BOOLEAN)")
        flags = dict.fromkeys(sizes, (False, False)) | ends | {9: (True, True)}
        insert(connection, "ends", [(c, *some) for c, some in flags.items()])
        outcome = LocalOutcome(task, table("kept"), exact_ends=table("ends"))
        notices = finish._warn_of_exact_ends(task, outcome, table("kept"))
        assert [notice.affected for notice in notices] == [sum(sizes[c] for c in ends)] * bool(ends)
        counts = {f"a{i}": sum(sizes[c] for c in ends if ends[c][i]) for i in (0, 1)}
        text = ", ".join(f"{name} {counts[name] / 20:.1%}" for name in sorted(counts, key=counts.get, reverse=True)  # type: ignore
                           if counts[name])  # fmt: skip
        assert all(
            f"({text})" in notice.message and f"{notice.affected / 20:.1%}" in notice.message for notice in notices
        )
        assert not finish._warn_of_exact_ends(task, replace(outcome, exact_ends=None), table("kept"))


@pytest.mark.parametrize("most", [1, 64])
def test_the_greatest_part_is_kept_in_which_all_shields_hold(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "MAX_SHIELDS", most)
    pairs, rng, k = ((0, 1), (1, 2), (0, 2)), random.Random(8), 3
    with small_task(SMALL) as task:
        seen = {c: (*(rng.randrange(4) for _ in range(3)), rng.randrange(1, 3)) for c in range(30)}
        connection = task.engine.connection
        connection.execute(
            "CREATE TABLE seen (combination INTEGER, code_0 INT, code_1 INT, code_2 INT, row_count BIGINT)"
        )
        insert(connection, "seen", [(c, *row) for c, row in seen.items()])
        three: Any = replace(task, trees=(*task.trees, task.trees[0]))
        shields = [SubsetCondition(some, tuple(f"a{i}" for i in some), k) for some in pairs]
        left = finish._drop_small_subsets(three, table("seen"), shields)
        rows = [row[0] for row in task.engine.rows(exp.select("combination").from_(left))]
    retained, before, rounds = dict(seen), 0, 0
    while before != len(retained):
        before, rounds = len(retained), rounds + 1
        for some in pairs:
            sizes: Counter[tuple[int, ...]] = Counter()
            for row in retained.values():
                sizes[tuple(row[i] for i in some)] += row[3]
            retained = {c: row for c, row in retained.items() if sizes[tuple(row[i] for i in some)] >= k}
    assert sorted(rows) == sorted(retained)
    assert 0 < len(retained) < len(seen) and rounds > 3, "what is left out makes others too small, again and again"


def test_numbers_in_labels_are_padded_as_far_as_those_that_are_kept() -> None:
    released = [
        (100, 0, "5-12", 3.0, 1), (101, 1, "[7, 250)", 3.0, 1), (102, 2, "≥90", 3.0, 1), (103, 3, "1-90000", 3.0, 1),
        (4, 4, "10-19", 9.0, 1), (5, 5, "20-99", 9.0, 2), (6, 6, None, 0.0, 0), (7, 7, "x", 0.0, 0),
        (104, 8, "-5 to 7", 3.0, 1), (8, 9, "8", 0.0, 0),
    ]  # fmt: skip
    columns = "node INTEGER, code INTEGER, label VARCHAR, leaves DOUBLE, level INTEGER"
    sortable = sortable_labels(table("released"), table("kept"), 0, 50, 1)
    kept_rows = ("code_0 INTEGER", [(code,) for code in (0, 1, 2, 4, 5)])
    sortable_rows = query(sortable, released=(columns, released), kept=kept_rows)
    padded = {row[1]: row[5] for row in sortable_rows}
    assert padded == {
        0: "005-012", 1: "[007, 250)", 2: "≥90", 3: "001-90000", 4: "010-019",
        5: "20-99", 6: None, 7: "x", 8: "-005 to 007", 9: "008",
    }  # fmt: skip
