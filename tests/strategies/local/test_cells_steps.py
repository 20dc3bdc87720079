"""Cell suppression does what it documents, step by step: compared with the same steps in plain Python."""

from __future__ import annotations

import importlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from cells_plan import Plan
from small_tasks import Small, drawn, letters, small_task

from oracles.oracle import Hierarchy
from properties.local_tasks import Nodes
from sqlanon.strategies.local.cells import suppress_cells
from sqlanon.support.coding import Levels

module = importlib.import_module("sqlanon.strategies.local.cells")

Choice = dict[Nodes, Nodes]  # by the nodes of a failing class, those that it is released as


class Steps(Plan):
    """The documented steps, on the nodes of classes as readers see them."""

    def __init__(self, task: Any, levels: Levels, k: int) -> None:
        super().__init__(task, levels, k)
        self.roots = [tree.root for tree in task.trees]
        self.seen = {c: self.as_read(nodes) for c, nodes in self.whole.items()}
        self.failing: Counter[Nodes] = Counter()
        self.helpers: Counter[Nodes] = Counter()
        for c, nodes in self.seen.items():
            if c not in self.good:
                self.failing[nodes] += self.n[c]
            elif any(nodes[i] == self.roots[i] for i in self.blankable):
                self.helpers[nodes] += self.n[c]

    def as_read(self, nodes: Nodes) -> Nodes:
        """A node whose label is the top label is the root."""
        pairs = zip(self.nodes, nodes, self.roots, strict=True)
        return tuple(root if by[node].label == by[root].label else node for by, node, root in pairs)

    def expected(self, exact: int, tries: int) -> dict[int, Nodes]:
        count = len(self.failing)
        choice: Choice = {}
        if count and self.blankable:
            waiting = sum(c not in self.good for c in self.whole)
            few = count <= exact and waiting * sum(1 for _ in partitions(count)) <= tries
            choice = self.exactly() if few and not self.helpers else self.in_rounds(tries)
        placed = dict(self.good)
        for c, nodes in self.seen.items():
            if c not in self.good and nodes in choice:
                changed = zip(choice[nodes], nodes, self.whole[c], self.roots, strict=True)
                placed[c] = tuple(root if new != old else own for new, old, own, root in changed)
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
            choice = self.holding(choice)
            cost = sum(n * self.weight_of(nodes, choice.get(nodes)) for nodes, n in self.failing.items())
            suppressed = sum(n for nodes, n in self.failing.items() if nodes not in choice)
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

    def holding(self, choice: Choice, fixed: Choice | None = None) -> Choice:
        """What of a choice is in a class of k rows, together with what has its place."""
        sizes = Counter(self.helpers)
        for old, new in [*choice.items(), *(fixed or {}).items()]:
            sizes[new] += self.failing[old]
        return {old: new for old, new in choice.items() if sizes[new] >= self.k}

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
                if not left:
                    return choice
                most = max(tries // left, 1)
                self.place(choice, {blanks: (round(weights[blanks], 9), bits[blanks]) for blanks in some[:most]})
                some = some[most:]
        return choice

    def place(self, choice: Choice, sets: dict[tuple[int, ...], tuple[float, int]]) -> None:
        while True:
            tried = [
                (nodes, self.with_blanks(nodes, blanks), *rank)
                for nodes in sorted(self.failing)
                for blanks, rank in sets.items()
                if nodes not in choice and all(nodes[i] != self.roots[i] for i in blanks)
            ]
            sizes = Counter(self.helpers)
            for old, new in [*choice.items(), *((old, new) for old, new, *_ in tried)]:
                sizes[new] += self.failing[old]
            options = [(weight, -sizes[new], bit, old, new) for old, new, weight, bit in tried if sizes[new] >= self.k]
            if not options:
                return
            chosen = {old: min(option for option in options if option[3] == old)[4] for _, _, _, old, _ in options}
            accepted = self.holding(chosen, choice)
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
    "equal weights": Small(drawn(1, 30, [A, B, C]), [A, B, C], 3),
    "many classes": Small(drawn(21, 30, [A, B, C], 0.4), [A, B, C], 4),
    "weights": Small(drawn(2, 26, [A, B, C], 0.3), [A, B, C], 4, weights=(1.0, 2.5, 0.5)),
    "tops": Small(drawn(7, 30, [A, SAME, ONE], 0.4), [A, SAME, ONE], 4),
    "no blanks": Small(drawn(4, 24, [A, B, C], 0.4), [A, B, C], 3, spans=[(0, 1), (0, 2), (0, 1)]),
}
ALL, SOME = 2_000_000, 30
CASES = [
    # Of few failing classes every partition: into three blocks, with weights, where not all may be blanked.
    ("equal weights", (0, 0, 1), 8, ALL), ("equal weights", (1, 0, 0), 8, ALL), ("weights", (1, 0, 1), 8, ALL),
    ("weights", (1, 1, 0), 8, ALL), ("no blanks", (1, 1, 0), 8, ALL), ("no blanks", (0, 0, 1), 8, ALL),
    # In rounds: all sets of a weight together, and some of them at a time.
    ("many classes", (0, 0, 0), 8, ALL), ("many classes", (0, 1, 0), 8, SOME), ("weights", (0, 0, 0), 8, ALL),
    ("weights", (1, 1, 0), 5, SOME), ("no blanks", (0, 0, 0), 8, ALL),
    # Beside kept rows that read as blank.
    ("tops", (0, 1, 0), 8, ALL), ("tops", (0, 0, 0), 0, ALL),
]  # fmt: skip


@pytest.mark.parametrize(("name", "levels", "exact", "tries"), CASES)
def test_cells_are_blanked_as_in_plain_python(
    name: str, levels: Levels, exact: int, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXACT", exact)
    monkeypatch.setattr(module, "MAX_TRIES", tries)
    with small_task(TABLES[name]) as task:
        steps = Steps(task, levels, TABLES[name].k)
        assert steps.placed(suppress_cells(task, levels).assignment) == steps.expected(exact, tries)
