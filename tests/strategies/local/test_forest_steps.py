"""Strategy forest on tables that stand in the test: the classes, labels and bound of plain trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from plain_forest import least_loss, most
from small_tasks import Small, SmallTask, draw_rows, letters, small_task
from sqlglot import exp

from properties.local_tasks import Plain
from sqlanon.errors import InfeasibleError, SourceError
from sqlanon.strategies.local import forest as module
from sqlanon.strategies.local.core.groups import UNIT
from sqlanon.strategies.local.forest import Forest, forest

A, B, C = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3)
SMALLS = {
    "weights": Small(draw_rows(1, 9, [A, B], 0.4), [A, B], 2, weights=(1.0, 3.0)),
    "three": Small(draw_rows(2, 9, [A, C], 0.3), [A, C], 3),
    "equal rows": Small([*[("a0", "b0")] * 6, ("a1", "b0"), ("a3", "b3")], [A, B], 3),
    # A row of an unknown value, and one that has no releasable node.
    "suppressed": Small([*draw_rows(4, 7, [A, B], 0.4), ("?", "b0"), ("a3", "b1")], [A, B], 2,
                        spans=[(0, 1), (0, 2)], forbidden=[["aa1", "a3"], ["bb0"]]),
    # Two groups that have no releasable node in common, and one of a single row.
    "apart": Small([("a0",), ("a1",), ("a2",), ("a2",), ("a4",)], [letters("a", 6, 2)], 2, spans=[(0, 1)]),
}  # fmt: skip


@dataclass
class Trees:
    """The documented steps in plain Python: every root of a small tree gets its cheapest edge, round after round."""

    plain: Plain
    k: int

    def common(self, class_: set[int]) -> tuple[int, ...] | None:
        """The lowest releasable nodes that combinations have in common; None without one."""
        shared_nodes = []
        for i, by in enumerate(self.plain.nodes):
            path = self.plain.paths[min(class_)][i]
            shared = [n for n in path if by[n].released and all(n in self.plain.paths[c][i] for c in class_)]
            if not shared:
                return None
            shared_nodes.append(shared[0])
        return tuple(shared_nodes)

    def price(self, class_: set[int]) -> int | None:
        nodes = self.common(class_)
        if nodes is None:
            return None
        trees = self.plain.task.trees
        weights = sum(tree.weight for tree in trees)
        return sum(
            round(by[node].leaves * (tree.weight / weights * UNIT / max(tree.leaves - 1, 1)))
            for by, node, tree in zip(self.plain.nodes, nodes, trees, strict=True)
        )

    def grown(self) -> Forest:
        prices = {c: self.price({c}) for c in self.plain.n}
        sizes = {c: n for c, n in self.plain.n.items() if prices[c] is not None}
        trees = Forest(sizes, self.k, {c: prices[c] or 0 for c in sizes})
        while trees.open:
            edges = []
            for root in trees.open:
                foreign = [c for c in sizes if trees.tree_of(c) != trees.tree_of(root)]
                priced = [(price, c) for c in foreign if (price := self.price({root, c})) is not None]
                edges += [(root, min(priced)[1], min(priced)[0])] if priced else []
            trees.grow(sorted(edges))
        return trees


def test_a_tree_that_grows_to_k_rows_gets_no_edge_of_its_own() -> None:
    """The edge from 0 makes the tree of 1 large enough; 2 and 3 are linked to each other, and wait for a third row."""
    trees = Forest({0: 2, 1: 1, 2: 1, 3: 1, 4: 5}, 3, dict.fromkeys(range(5), 0))
    trees.grow([(0, 1, 4), (1, 2, 6), (2, 3, 1), (3, 2, 1)])
    assert (trees.open, trees.tree_of(0), trees.tree_of(2)) == ([3], 1, 3)
    trees.grow([(3, 4, 2)])
    assert trees.classes() == [{0: 2, 1: 1}, {2: 1, 3: 1, 4: 1}, {4: 4}]


@contextmanager
def open_forest(small: Small) -> Iterator[tuple[SmallTask, Plain, Trees, Forest]]:
    with small_task(small) as task:
        plain = Plain(task)
        trees = Trees(plain, small.k)
        yield task, plain, trees, trees.grown()


# The roots of one table are compared with the others one by one, too.
@pytest.mark.parametrize(("name", "at_once"), [*((name, module.MAX_PAIRS) for name in SMALLS), ("weights", 1)])
def test_classes_labels_and_bound_are_those_of_plain_trees(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PAIRS", at_once)
    small = SMALLS[name]
    with open_forest(small) as (task, plain, trees, plain_forest):
        classes = plain_forest.classes()
        expected = Counter((c, n, trees.common({*class_})) for class_ in classes for c, n in class_.items())
        outcome = forest(task)
        shared = Plain(outcome.task)
        ground = {paths: c for c, paths in plain.paths.items()}
        placed = shared.placed(outcome.assignment)
        assert Counter((ground[shared.paths[s]], shared.n[s], nodes) for s, nodes in placed.items()) == expected
        places: dict[int, list[tuple[int, int]]] = {}
        columns = exp.select("combination", "first_row", "last_row", "row_count").from_(outcome.task.combinations)
        for share, first, last, n in task.engine.rows(columns):
            assert last - first + 1 == n
            places.setdefault(ground[shared.paths[share]], []).append((first, last))
        for c, ranges in places.items():
            rows = [row for first, last in sorted(ranges) for row in range(first, last + 1)]
            assert rows == [*range(1, plain.n[c] + 1)]
            assert [last - first for first, last in sorted(ranges)] == sorted(
                (last - first for first, last in ranges), reverse=True
            ), "the largest share has the first rows"
        released = {c for class_ in classes for c in class_}
        rounding = len(task.trees) / 2
        least = sum(plain.n[c] * max(plain_forest.least_prices[c] - rounding, 0) for c in released) / UNIT
        suppressed = task.row_count - sum(plain.n[c] for c in released)
        assert outcome.bound == pytest.approx((least + suppressed) / task.row_count, rel=1e-13)
        assert outcome.bound <= least_loss(plain, small.k) + 1e-12
        assert shared.loss(placed) <= most(small.k) * outcome.bound + 1e-7


def test_the_bound_is_of_the_loss_by_its_mean_or_sum() -> None:
    def bound(**search: str) -> float:
        with small_task(replace(SMALLS["equal rows"], search=search)) as task:
            return forest(task).bound

    assert bound(aggregate="sum") == pytest.approx(2 * (mean := bound(aggregate="mean"))) and mean > 0
    assert bound(aggregate="max") == bound(measure="precision") == 0


def test_pairs_are_of_small_combinations_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_task(SMALLS["equal rows"]) as task:
        monkeypatch.setattr(module, "MAX_FIRST_ROUND_PAIRS", 2 * 3)
        assert forest(task).rounds
    for name, limit in [("MAX_FIRST_ROUND_PAIRS", 5), ("MAX_COMBINATIONS", 2)]:
        with small_task(SMALLS["equal rows"]) as task, monkeypatch.context() as patch:
            patch.setattr(module, name, limit)
            with pytest.raises(InfeasibleError, match=f"limit of {limit}"):
                forest(task)


def test_without_complete_trees_there_is_no_release() -> None:
    with small_task(replace(SMALLS["three"], max_checks=0)) as task:
        with pytest.raises(
            InfeasibleError, match=r"before its trees were complete.*raise \[search\] max_checks"
        ) as raised:
            forest(task)
        assert math.isclose(raised.value.suppressed_rows, task.row_count)


def test_rows_are_not_divided_by_a_key_that_several_have() -> None:
    with small_task(SMALLS["weights"]) as task:
        task.search_input.columns.key = ("row_count",)  # type: ignore[misc]
        with pytest.raises(SourceError, match="belong to several rows"):
            forest(task)


def test_the_branches_whose_edges_cost_most_are_divided_off_first() -> None:
    """All edges of a branch count: the branch of 1 and 2 costs 11, that of 3 costs 5."""
    trees = Forest({0: 5, 1: 1, 2: 1, 3: 1}, 3, dict.fromkeys(range(4), 0))
    trees.grow([(1, 0, 1), (2, 1, 10), (3, 0, 5)])
    assert (trees.open, trees.classes()) == ([], [{1: 1, 2: 1, 0: 1}, {3: 1, 0: 4}])


def test_a_tree_with_k_rows_gets_no_edge() -> None:
    """An edge to 2 gave it enough rows: its own edge is left."""
    trees = Forest({0: 1, 1: 1, 2: 4}, 2, dict.fromkeys(range(3), 0))
    trees.grow([(0, 1, 3), (1, 2, 3)])
    assert trees.least_prices == {0: 3, 1: 3, 2: 0}
    assert trees.classes() == [{0: 1, 1: 1}, {2: 4}]
