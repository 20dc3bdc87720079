"""Strategy mondrian on tables that stand in the test: its parts and labels are those of a plain one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from plain_counts import Counts
from plain_mondrian import Plain, released_labels
from small_tasks import Small, draw_rows, letters, small_task

from oracles.oracle import Hierarchy
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.mondrian import mondrian

A, B, C = letters("a", 6, 3), letters("b", 4, 2), letters("c", 3)
D, E = letters("d", 2), letters("e", 2)
VOID = Hierarchy({value: (value, "*") for value in ("n1", "n2", "n3", "n4", "n5", "x")})
"""Values in an order, and one that is in no range."""

UNEVEN = Hierarchy({f"d{i}": (f"d{i}", "one" if i == 0 else "others", "*") for i in range(10)})

ORDER, MEDIAN = {"summary": "range", "ends": "exact"}, {"summary": "median", "ends": "grid"}
TABLES = {
    "hierarchies": Small(draw_rows(1, 14, [A, B]), [A, B], 3),
    "values of a cell": Small(draw_rows(9, 14, [VOID, B]), [VOID, B], 2, ordered=[0], grids={0: -4}),
    # One attribute has no top, the other three labels less: rows of b2 have no label.
    "limited": Small(draw_rows(2, 16, [A, B]), [A, B], 4, forbidden=[[], ["b*", "bb1", "b2"]], spans=[(0, 1), (0, 2)]),
    "ties": Small([("a0",)] * 3 + [("a1",)] * 2 + [("a2",)] * 3, [A], 3, ordered=[0], search=ORDER),
    # Both attributes promise as much: the first is cut.
    "equal gains": Small([(d, e) for d in ("d0", "d1") for e in ("e0", "e1")] * 2, [D, E], 4),
    # The child with two of 18 rows promises more than the other one, which would leave no row outside both.
    "a small child": Small([("d0",)] * 2 + [(f"d{1 + i % 5}",) for i in range(16)], [UNEVEN], 2),
    "order": Small(draw_rows(4, 16, [A, C], 0.7), [A, C], 2, ordered=[0, 1], search=ORDER | {"cuts": "relaxed"}),
    "cells": Small(draw_rows(5, 16, [A, VOID]), [A, VOID], 2, ordered=[0, 1], grids={0: 1, 1: -2}),
    "relaxed cells": Small(
        draw_rows(7, 16, [VOID, B], 0.6), [VOID, B], 2, ordered=[0], grids={0: -2}, search={"cuts": "relaxed"},
        weights=(1.0, 3.0),
    ),
    "medians": Small(draw_rows(8, 14, [A, VOID]), [A, VOID], 2, ordered=[0, 1], grids={0: 1, 1: -3}, search=MEDIAN),
    "sets": Small(draw_rows(10, 16, [A, B], 0.6), [A, B], 2, search={"summary": "set"}),
    # Of three values with two rows each, two are cut off.
    "sets of equal values": Small([(f"a{i}",) for i in range(6) for _ in range(2 if i < 3 else 1)], [A], 3,
                                  search={"summary": "set", "ends": "exact"}),
    "persons": Small(draw_rows(11, 18, [A, C]), [A, C], 2, persons=[row * row % 11 for row in range(18)],
                     ordered=[1], search=ORDER),
}  # fmt: skip


class PlainOfPersons(Plain):
    """Classes of k persons, or of k rows without persons."""

    def __init__(self, task: LocalTask, small: Small) -> None:
        search = task.search_input.policy.search
        super().__init__(task, search.summary, search.cuts == "relaxed", small.k)
        self.counts = Counts(task, small)

    def count(self, part: Iterable[int]) -> int:
        return self.counts.count([*part])


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", TABLES)
def test_parts_and_labels_are_those_of_a_plain_mondrian(name: str) -> None:
    with small_task(TABLES[name]) as task:
        plain = PlainOfPersons(task, TABLES[name])
        parts = plain.parts()
        assert len(parts) > 1
        expected = {combination: plain.render(part) for part in parts for combination in part}
        assert released_labels(task, mondrian(task)) == expected


@pytest.mark.parametrize("at_once", [True, False])
def test_a_limit_of_rounds_leaves_every_part_a_class(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 1
    small = replace(TABLES["hierarchies"], max_checks=rounds)
    if not at_once:  # a statement a round, as with a time limit or many rows
        monkeypatch.setattr("sqlanon.strategies.local.mondrian.MAX_RECURSIVE", 0)
    with small_task(small) as task:
        outcome, plain = mondrian(task), PlainOfPersons(task, small)
        classes = set(released_labels(task, outcome).values())
        assert len(released_labels(task, outcome)) == len(plain.n)
        assert (task.clock.checks, outcome.rounds) == (rounds, rounds)
        assert 2**rounds >= len(classes) > rounds
