"""Blanks of the strategy cells in plain Python."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from properties.local_tasks import Nodes, Plain, Read
from sqlanon.strategies.local.core.task import LocalTask

Blanks = tuple[int, ...]


class Plan(Plain):
    """A generalization's failing classes, and the ways to blank them."""

    def __init__(self, task: LocalTask, levels: Sequence[int], k: int) -> None:
        super().__init__(task)
        self.levels, self.k = levels, k
        self.whole = self.at(levels)
        self.good = self.kept(self.whole, k)
        self.classes: dict[Read, list[int]] = defaultdict(list)
        for combination, nodes in self.whole.items():
            if combination not in self.good:
                self.classes[self.read(nodes)].append(combination)
        trees = task.trees
        self.tops = [by[tree.root].label for by, tree in zip(self.nodes, trees, strict=True)]
        self.weights = [tree.weight for tree in trees]
        self.blankable = [
            i
            for i, (tree, level) in enumerate(zip(trees, levels, strict=True))
            if level < tree.height and self.nodes[i][tree.root].released
        ]

    def choices(self, read: Read) -> Iterator[Blanks]:
        """The sets of a class's cells that can be blanked; the empty set leaves the class unchanged."""
        open_ = [i for i in self.blankable if read[i] != self.tops[i]]
        for size in range(len(open_) + 1):
            yield from itertools.combinations(open_, size)

    def blank(self, read: Read, blanks: Blanks) -> Read:
        return tuple(self.tops[i] if i in blanks else label for i, label in enumerate(read))

    def cost(self, choice: dict[Read, Blanks | None]) -> float:
        """The weight of the blanks; a row that is suppressed, or in a class that is too small, is all blank."""
        sizes = self.sizes(self.good)
        for read, blanks in choice.items():
            if blanks is not None:
                sizes[self.blank(read, blanks)] += sum(self.n[c] for c in self.classes[read])
        total = 0.0
        for read, blanks in choice.items():
            placed = blanks is not None and sizes[self.blank(read, blanks)] >= self.k
            weight = sum(self.weights[i] for i in blanks or ()) if placed else sum(self.weights)
            total += weight * sum(self.n[c] for c in self.classes[read])
        return total

    def least(self) -> float:
        reads = list(self.classes)
        every = itertools.product(*([None, *self.choices(read)] for read in reads))
        return min(self.cost(dict(zip(reads, choice, strict=True))) for choice in every)

    def found(self, placed: dict[int, Nodes]) -> dict[Read, Blanks | None]:
        """The choice for each class: all its rows alike."""
        choice: dict[Read, Blanks | None] = {}
        for read, combinations in self.classes.items():
            chosen = {placed.get(combination) for combination in combinations}
            blanks = {
                None
                if nodes is None
                else tuple(i for i, (a, b) in enumerate(zip(nodes, self.whole[c], strict=True)) if a != b)
                for c, nodes in ((c, placed.get(c)) for c in combinations)
            }
            assert len(blanks) == 1, chosen
            choice[read] = blanks.pop()
        return choice
