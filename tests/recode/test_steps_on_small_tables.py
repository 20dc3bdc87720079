"""Strategies mu-argus and subtree on tables that stand in the test: runs in plain Python, and borders."""

from __future__ import annotations

import pytest
from local_tasks import Plain
from oracle import Hierarchy
from small_tasks import Small, best_levels, drawn, letters, small_task
from test_mu_argus import Argus
from test_subtree import check_no_split_is_left, cut_of

from sqlanon.policy.guarantee import guaranteed_combinations
from sqlanon.recode.local.mu_argus import mu_argus
from sqlanon.recode.local.subtree import subtree

A, B, C, D = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3), letters("d", 2)
CLASSES = [("most", "more", "identifying", "identifying"), ("more", "more", "most", "identifying"), ()]


# Strategy mu-argus


ARGUS = [
    Small(drawn(n, 30, [A, B, C, D], 0.6), [A, B, C, D], 2 + n % 3, limit, identification=CLASSES[n % 3])
    for n, limit in [(1, 6), (2, 9), (3, 4), (4, 12), (5, 0), (6, 10)]
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


def people(number: int, rows: int, most: int) -> list[int]:
    """The person of each row: some have several."""
    return [(i * i * number + i) % most for i in range(rows)]


SUBTREE = [
    *(
        Small(drawn(n, 36, [UNEVEN, B, C], 0.6), [UNEVEN, B, C], 3, limit, weights=weights)
        for n, limit, weights in [(1, 6, ()), (2, 3, (1.0, 3.0, 0.5)), (3, 8, ()), (4, 0, ()), (5, 5, (2.0, 1.0, 1.0))]
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
