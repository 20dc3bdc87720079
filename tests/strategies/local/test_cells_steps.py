"""Cell suppression does what it documents, step by step: compared with the same steps in plain Python."""

from __future__ import annotations

import importlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from plain_counts import Counts
from small_tasks import Small, draw_rows, letters, small_task
from step_queries import query

from oracles.oracle import Hierarchy
from properties.local_tasks import Nodes
from sqlanon.strategies.local.cells import suppress_cells
from sqlanon.strategies.local.core.nodes import Tree
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import table

module = importlib.import_module("sqlanon.strategies.local.cells")

Choice = dict[Nodes, Nodes]  # by the nodes of a failing class, those that it is released as


class Steps(Counts):
    """The documented steps, on the nodes of classes as readers see them."""

    def __init__(self, task: Any, levels: Levels, small: Small) -> None:
        super().__init__(task, small)
        self.roots, self.weights = [tree.root for tree in task.trees], [tree.weight for tree in task.trees]
        self.whole = self.at(levels)
        self.good = self.holding(self.whole)
        self.blankable = [
            i
            for i, (tree, level) in enumerate(zip(task.trees, levels, strict=True))
            if level < tree.height and self.nodes[i][tree.root].released
        ]
        self.seen = {c: self.as_read(nodes) for c, nodes in self.whole.items()}
        self.failing: defaultdict[Nodes, list[int]] = defaultdict(list)
        self.helpers: defaultdict[Nodes, list[int]] = defaultdict(list)
        for c, nodes in self.seen.items():
            if c not in self.good:
                self.failing[nodes].append(c)
            elif any(nodes[i] == self.roots[i] for i in self.blankable):
                self.helpers[nodes].append(c)
        self.sizes_of_failing = {nodes: sum(self.n[c] for c in some) for nodes, some in self.failing.items()}

    def as_read(self, nodes: Nodes) -> Nodes:
        """A node whose label is the top label is the root."""
        pairs = zip(self.nodes, nodes, self.roots, strict=True)
        return tuple(root if by[node].label == by[root].label else node for by, node, root in pairs)

    def expected(self, exact: int, tries: int, checks: int | None = None) -> dict[int, Nodes]:
        count = len(self.failing)
        choice: Choice = {}
        if count and self.blankable:
            waiting = sum(c not in self.good for c in self.whole)
            few = count <= exact and waiting * sum(1 for _ in partitions(count)) <= tries
            self.checks_left = math.inf if checks is None else checks
            choice = self.exactly() if few and not self.helpers else self.in_rounds(tries)
        placed = dict(self.good)
        for c, nodes in self.seen.items():
            if c not in self.good and nodes in choice:
                changed = zip(choice[nodes], nodes, self.whole[c], self.roots, strict=True)
                placed[c] = tuple(root if new != old else node for new, old, node, root in changed)
        return placed

    def exactly(self) -> Choice:
        classes = sorted(self.failing)
        best: tuple[Any, Choice] | None = None
        for blocks in partitions(len(classes)):
            choice: Choice = {}
            for block in {*blocks} - {0}:
                members = [nodes for nodes, its in zip(classes, blocks, strict=True) if its == block]
                differ = [i for i in range(len(self.roots)) if len({nodes[i] for nodes in members}) > 1]
                if all(i in self.blankable for i in differ):
                    choice |= {nodes: self.with_blanks(nodes, differ) for nodes in members}
            choice = self.large_enough(choice)
            cost = sum(n * self.weight_of(nodes, choice.get(nodes)) for nodes, n in self.sizes_of_failing.items())
            suppressed = sum(n for nodes, n in self.sizes_of_failing.items() if nodes not in choice)
            rank = (round(cost, 6), suppressed, blocks)
            if best is None or rank < best[0]:
                best = rank, choice
        assert best is not None
        return best[1]

    def with_blanks(self, nodes: Nodes, blanks: Sequence[int]) -> Nodes:
        return tuple(self.roots[i] if i in blanks else node for i, node in enumerate(nodes))

    def weight_of(self, before: Nodes, after: Nodes | None) -> float:
        if after is None:
            return sum(self.weights)
        return sum(weight for weight, a, b in zip(self.weights, before, after, strict=True) if a != b)

    def together(self, choices: Iterable[tuple[Nodes, Nodes]]) -> dict[Nodes, set[int]]:
        """The combinations of each tuple of nodes, with those of kept rows that read as blank."""
        groups = {nodes: {*some} for nodes, some in self.helpers.items()}
        for old, new in choices:
            groups.setdefault(new, set()).update(self.failing[old])
        return groups

    def large_enough(self, choice: Choice, fixed: Choice | None = None) -> Choice:
        """Rows of a choice in a class that meets the requirements, together with the assigned rows."""
        groups = self.together([*choice.items(), *(fixed or {}).items()])
        return {old: new for old, new in choice.items() if self.count(groups[new]) >= self.least}

    def in_rounds(self, tries: int) -> Choice:
        sets = [blanks for size in range(1, 9) for blanks in itertools.combinations(self.blankable, size)]
        mean = sum(self.weights[i] for i in self.blankable) / len(self.blankable)
        weights = {blanks: sum(self.weights[i] for i in blanks) for blanks in sets}
        bits = {blanks: sum(1 << i for i in blanks) for blanks in sets}
        buckets = {blanks: math.ceil(round(weights[blanks] / mean, 9)) for blanks in sets}
        order = sorted(sets, key=lambda blanks: (buckets[blanks], bits[blanks]))
        choice: Choice = {}
        for bucket in sorted({*buckets.values()}):
            some = [blanks for blanks in order if buckets[blanks] == bucket]
            while some:
                left = sum(nodes not in choice for c, nodes in self.seen.items() if c not in self.good)
                if not left or not self.checks_left:
                    return choice
                most = max(tries // left, 1)
                self.place(choice, {blanks: (round(weights[blanks], 9), bits[blanks]) for blanks in some[:most]})
                some = some[most:]
        return choice

    def place(self, choice: Choice, sets: dict[tuple[int, ...], tuple[float, int]]) -> None:
        while self.checks_left:
            self.checks_left -= 1
            tried = [
                (nodes, self.with_blanks(nodes, blanks), *rank)
                for nodes in sorted(self.failing)
                for blanks, rank in sets.items()
                if nodes not in choice and all(nodes[i] != self.roots[i] for i in blanks)
            ]
            groups = self.together([*choice.items(), *((old, new) for old, new, *_ in tried)])
            rows = {new: sum(self.n[c] for c in some) for new, some in groups.items()}
            options = [
                (weight, -rows[new], bit, old, new)
                for old, new, weight, bit in tried
                if self.count(groups[new]) >= self.least
            ]
            if not options:
                return
            chosen = {old: min(option for option in options if option[3] == old)[4] for _, _, _, old, _ in options}
            accepted = self.large_enough(chosen, choice)
            if not accepted:
                best = min(options)[4]
                accepted = {old: best for _, _, _, old, new in options if new == best}
            choice |= accepted


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """The block of each class, in the order in which they are tried: the first of equal ones is chosen."""

    def more(blocks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(blocks) == count:
            yield blocks
            return
        for block in range(max(blocks, default=0) + 2):
            yield from more((*blocks, block))

    return more(())


A, B, C = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3)
# Below its top, a label that reads as the top; and one value only.
SAME = Hierarchy({"x": ("x", "*", "*"), "y": ("y", "yy", "*"), "z": ("z", "yy", "*")})
ONE = Hierarchy({"o": ("o",)})

TABLES = {
    "equal weights": Small(draw_rows(1, 30, [A, B, C]), [A, B, C], 3),
    "many classes": Small(draw_rows(21, 30, [A, B, C], 0.4), [A, B, C], 4),
    "weights": Small(draw_rows(2, 26, [A, B, C], 0.3), [A, B, C], 4, weights=(1.0, 2.5, 0.5)),
    "tops": Small(draw_rows(7, 30, [A, SAME, ONE], 0.4), [A, SAME, ONE], 4),
    "ties": Small(
        [("d0", a) for a in ("a3", "a3", "a3", "a3", "a1", "a0", "a1")] + [("d1", "a1")], [letters("d", 2), A], 2
    ),
    "shields": Small(
        draw_rows(34, 14, [C, B, A], 0.5), [C, B, A], 2, spans=[(0, 1), (0, 0), (0, 1)], shields=[((0, 1), 3)]
    ),
    "persons": Small(draw_rows(5, 12, [A, B], 0.5), [A, B], 3, persons=[row * row % 9 for row in range(12)]),
    "persons and shields": Small(
        draw_rows(20, 12, [B, C], 0.4),
        [B, C],
        2,
        weights=(0.5, 2.0),
        shields=[((0,), 3)],
        persons=[row * row % 8 for row in range(12)],
    ),
    "no blanks": Small(draw_rows(4, 24, [A, B, C], 0.4), [A, B, C], 3, spans=[(0, 1), (0, 2), (0, 1)]),
}
ALL, SOME = 2_000_000, 30
CASES = [
    # Of few failing classes every partition: into three blocks, with weights, where not all may be blanked.
    ("equal weights", (0, 0, 1), 8, ALL), ("equal weights", (1, 0, 0), 8, ALL), ("weights", (1, 0, 1), 8, ALL),
    ("weights", (1, 1, 0), 8, ALL), ("no blanks", (1, 1, 0), 8, ALL), ("no blanks", (0, 0, 1), 8, ALL),
    # In rounds: all sets of a weight together, and some of them at a time.
    ("many classes", (0, 0, 0), 8, ALL), ("many classes", (0, 1, 0), 8, SOME), ("weights", (0, 0, 0), 8, ALL),
    ("weights", (1, 1, 0), 5, SOME), ("no blanks", (0, 0, 0), 8, ALL),
    # Among kept rows that read as blank.
    ("tops", (0, 1, 0), 8, ALL), ("tops", (0, 0, 0), 0, ALL),
    # The better of two partitions with as many blanks, a suppressed row counting as all blank, suppresses fewer rows.
    ("ties", (0, 0), 8, ALL),
    # Kept classes meet the shields; blanked ones are large enough by themselves. Persons count once.
    ("shields", (0, 0, 1), 8, ALL), ("shields", (0, 0, 0), 0, ALL), ("persons", (0, 0), 8, ALL),
    ("persons", (0, 0), 0, SOME), ("persons and shields", (0, 0), 8, ALL), ("persons and shields", (0, 0), 0, ALL),
]  # fmt: skip


@pytest.mark.parametrize(("name", "levels", "exact", "tries"), CASES)
def test_cells_are_blanked_as_in_plain_python(
    name: str, levels: Levels, exact: int, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXACT", exact)
    monkeypatch.setattr(module, "MAX_TRIES", tries)
    with small_task(TABLES[name]) as task:
        steps = Steps(task, levels, TABLES[name])
        assert steps.placed(suppress_cells(task, levels).assignment) == steps.expected(exact, tries)


@pytest.mark.slow
@pytest.mark.parametrize("checks", [1, 2])
def test_a_limit_ends_the_rounds_with_the_cells_that_are_blanked_so_far(
    checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXACT", 0)
    small = replace(TABLES["many classes"], max_checks=checks)
    with small_task(small) as task:
        steps = Steps(task, (0, 0, 0), small)
        expected = steps.expected(0, ALL, checks)
        assert steps.placed(suppress_cells(task, (0, 0, 0)).assignment) == expected != steps.expected(0, ALL)
        assert task.clock.checks == checks


def test_cells_are_blanked_at_the_generalization_of_the_policys_strategy() -> None:
    small = replace(TABLES["persons"], search={"strategy": "datafly"}, start=(1, 1))
    with small_task(small) as task:
        outcome = module.search_and_suppress_cells(task)
        assert task.strategies == ["datafly"]
        steps = Steps(task, (1, 1), small)
        assert steps.placed(outcome.assignment) == steps.expected(8, ALL)


@pytest.mark.slow
@pytest.mark.parametrize(("attributes", "sets"), [(1, 1), (4, 15), (9, 511), (11, 2 * (11 + 55 + 165 + 330) + 1)])
def test_few_or_nearly_all_of_many_attributes_are_blanked(
    attributes: int, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BLANKABLE", 0)
    tree = Tree("a", 1, 0, 1, (0, 1), 2, 1.0, table("nodes"), is_ordered=False)
    rows = query(module.blank_patterns((tree,) * attributes, range(attributes)))
    patterns = {pattern for pattern, *_ in rows}
    assert len(rows) == len(patterns) == sets
    assert all(0 < pattern < 2**attributes and pattern.bit_count() == weight for pattern, weight, *_ in rows)
    assert {min(size, attributes - size) for size in map(int.bit_count, patterns)} <= {*range(5)}
    by_place = sorted((place, bucket, pattern) for pattern, _, bucket, place in rows)
    assert [row[1:] for row in by_place] == sorted((pattern.bit_count(), pattern) for pattern in patterns)
