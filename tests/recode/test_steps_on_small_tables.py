"""Strategies mu-argus and subtree on tables that stand in the test: runs in plain Python, and borders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from local_tasks import Plain
from oracle import Hierarchy
from small_tasks import Small, best_levels, drawn, letters, small_task
from test_mu_argus import Argus
from test_subtree import check_no_split_is_left, cut_of

from sqlanon.policy.guarantee import guaranteed_combinations
from sqlanon.recode.local.mu_argus import mu_argus
from sqlanon.recode.local.subtree import _Cuts, _Split, subtree

A, B, C, D = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3), letters("d", 2)
CLASSES = [("most", "more", "identifying", "identifying"), ("more", "more", "most", "identifying"), ()]


# Strategy mu-argus


ARGUS = [
    Small(drawn(n, 30, [A, B, C, D], 0.6), [A, B, C, D], 2 + n % 3, limit, identification=CLASSES[n % 3])
    for n, limit in [(1, 6), (2, 9), (4, 12), (6, 10)]
] + [
    Small(drawn(7, 28, [A, B, C], 0.6), [A, B, C], 3, 8, spans=[(0, 1), (1, 2), (0, 1)]),
    Small([*drawn(8, 28, [A, B, C], 0.6), ("?", "b0", "c0")], [A, B, C], 3, 9, forbidden=[["aa1"], [], ["c*"]]),
]  # fmt: skip


@pytest.mark.parametrize("small", ARGUS)
def test_mu_argus_does_what_a_plain_one_does(small: Small) -> None:
    small = best_levels(small)
    with small_task(small) as task:
        listed = guaranteed_combinations(
            {name: spec.identification for name, spec in task.prepared.policy.attributes.items()}
        )
        names = [tree.name for tree in task.trees]
        plain = Plain(task)
        expected = Argus(plain, [[names.index(name) for name in one] for one in listed], small.k).run()
        if expected is None:
            assert small.start is not None
            expected = plain.kept(plain.at(small.start), small.k)
        assert plain.placed(mu_argus(task).placed) == expected


# Strategy subtree


UNEVEN = Hierarchy({
    "u0": ("u0", "p", "s", "*"), "u1": ("u1", "p", "s", "*"), "u2": ("u2", "q", "s", "*"), "u3": ("u3", "q", "s", "*"),
    "u4": ("u4", "r", "t", "*"), "u5": ("u5", "r", "t", "*"),
})  # fmt: skip


SUBTREE = [
    *(
        Small(drawn(n, 36, [UNEVEN, B, C], 0.6), [UNEVEN, B, C], 3, limit, weights=weights)
        for n, limit, weights in [(1, 6, ()), (2, 3, (1.0, 3.0, 0.5)), (4, 0, ())]
    ),
    Small([*drawn(6, 30, [UNEVEN, B], 0.6), ("?", "b0")], [UNEVEN, B], 3, 4, forbidden=[["p"], []]),
    Small(drawn(7, 30, [UNEVEN, B], 0.6), [UNEVEN, B], 3, 3, spans=[(1, 3), (0, 1)]),
]


@pytest.mark.parametrize("small", SUBTREE)
def test_no_split_of_a_cut_is_left_that_costs_less(small: Small) -> None:
    small = best_levels(small)
    assert small.start is not None
    with small_task(small) as task:
        plain = Plain(task)
        placed = plain.placed(subtree(task).placed)
        assert plain.kept(placed, small.k) == placed
        assert sum(plain.n.values()) - plain.rows(placed) <= plain.allowed
        assert plain.loss(placed) <= plain.loss(plain.kept(plain.at(small.start), small.k)) + 1e-9
        check_no_split_is_left(plain, cut_of(plain, placed), placed, small.k)


def cuts(rows: int, persons: int) -> _Cuts:
    """A search in which so many rows and persons may be suppressed."""
    found = object.__new__(_Cuts)
    found._allowed, found._allowed_persons = rows, persons
    return found


def cut(lost: int, persons: int) -> Any:
    return SimpleNamespace(lost=lost, persons=persons)


SPLITS = [_Split(1, 90, 0, 0), _Split(2, 160, 1, 1), _Split(3, 90, 2, 1), _Split(4, 40, -1, 0), _Split(5, 30, 0, 0)]


@pytest.mark.parametrize(
    ("lost", "persons", "rival", "taken"),
    [
        (5, 0, 0.0, [1, 2, 3, 4, 5]),  # three more rows, as many as may be
        (6, 0, 0.0, [1, 2]),  # the third would suppress a row too many
        (8, 0, 0.0, [1]),
        (9, 0, 0.0, [1]),  # the first is taken, whatever it suppresses
        (5, 1, 0.0, [1, 2, 3, 4, 5]),
        (5, 2, 0.0, [1, 2]),  # the third would take a row from a person too many
        (5, 0, 30.0, [1, 2]),  # no more than the rival is worth
        (5, 0, 29.0, [1, 2, 3, 4, 5]),
        (5, 0, 100.0, [1]),
    ],
)
def test_splits_that_together_suppress_too_much_are_not_taken_together(
    lost: int, persons: int, rival: float, taken: list[int]
) -> None:
    assert [split.worth for split in SPLITS] == [90, 80, 30, 40, 30]
    assert [*cuts(8, 3)._taken(cut(lost, persons), SPLITS, rival)] == taken


def test_a_split_is_possible_within_the_limits_unless_its_node_was_just_raised() -> None:
    def possible(lost: int, persons: int, raised: tuple[int, int] | None = None) -> list[int]:
        return [split.node for split in cuts(8, 3)._possible(cut(lost, persons), SPLITS, 0, raised)]

    assert possible(6, 2) == [1, 2, 3, 4, 5]
    assert possible(7, 2) == [1, 2, 4, 5]
    assert possible(6, 3) == [1, 4, 5]
    assert possible(6, 2, (0, 2)) == [1, 3, 4, 5]
    assert possible(6, 2, (1, 2)) == [1, 2, 3, 4, 5]
