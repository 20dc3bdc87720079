"""Local suppression of mu-argus in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

import sqlanon
from properties.local_tasks import Nodes, Plain, task_of
from properties.random_cases import Case
from sqlanon.policy.guarantee import select_combinations
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.mu_argus import mu_argus

Placed = dict[int, Nodes]


@dataclass
class Argus:
    """The algorithm in plain Python."""

    plain: Plain
    checked: list[list[int]]
    k: int

    def __post_init__(self) -> None:
        task = self.plain.task
        self.attributes = range(len(task.trees))
        self.levels = [task.search_input.lattice.levels(i) for i in self.attributes]
        self.roots = [tree.root for tree in task.trees]
        self.blankable = [i for i in self.attributes if self.plain.nodes[i][self.roots[i]].released]

    def unsafe(self, placed: Placed, checked: list[list[int]]) -> dict[int, list[int]]:
        """The unsafe rows, with the unsafe combinations that each cell is in."""
        counts_by_class: dict[int, list[int]] = {}
        for attributes in checked:
            groups: dict[Nodes, list[int]] = defaultdict(list)
            for c, nodes in placed.items():
                groups[tuple(nodes[i] for i in attributes)].append(c)
            small = [c for members in groups.values() if self.count(members) < self.k for c in members]
            for c, nodes in placed.items():
                if c in small:
                    counts = counts_by_class.setdefault(c, [0] * len(self.attributes))
                    for i in attributes:
                        counts[i] += nodes[i] != self.roots[i]
        return counts_by_class

    def count(self, combinations: Collection[int]) -> int:
        """The rows of combinations."""
        return sum(self.plain.n[c] for c in combinations)

    def can_suppress(self, retained: Collection[int]) -> bool:
        """Whether all combinations except these may be suppressed."""
        return self.count(self.plain.n) - self.count(retained) <= self.plain.allowed

    def totals(self, unsafe: dict[int, list[int]]) -> list[int]:
        return [sum(self.plain.n[c] * counts[i] for c, counts in unsafe.items()) for i in self.attributes]

    def at(self, steps: Sequence[int]) -> Placed:
        return self.plain.at([self.levels[i][step] for i, step in enumerate(steps)])

    def run(self) -> Placed | None:
        """None: nothing but the full domain is left."""
        if not all(self.levels):
            return None
        steps = []
        for i in self.attributes:
            step = 0
            while step + 1 < len(self.levels[i]):
                alone = self.at([step if i == j else 0 for j in self.attributes])
                if self.can_suppress(alone.keys() - self.unsafe(alone, [[i]])):
                    break
                step += 1
            steps.append(step)
        while True:
            placed = self.at(steps)
            unsafe = self.unsafe(placed, self.checked)
            totals = self.totals(unsafe)
            if self.can_suppress(placed.keys() - unsafe):
                placed = self.blanked(placed)
                if placed and self.can_suppress(placed):
                    return placed
            open_ = [i for i in self.attributes if steps[i] + 1 < len(self.levels[i])]
            if not open_:
                return None
            steps[min(open_, key=lambda i: (-totals[i], i))] += 1

    def blanked(self, placed: Placed) -> Placed:
        while unsafe := self.unsafe(placed, self.checked):
            totals, after = self.totals(unsafe), {}
            for c, nodes in placed.items():
                if c not in unsafe:
                    after[c] = nodes
                    continue
                cells = [i for i in self.blankable if unsafe[c][i]]
                if cells:
                    worst = min(cells, key=lambda i: (-unsafe[c][i], -totals[i], i))
                    after[c] = tuple(self.roots[i] if i == worst else node for i, node in enumerate(nodes))
            placed = after
        return placed


CLASS_LISTS = st.lists(st.sampled_from(["identifying", "more", "most"]), min_size=4, max_size=4)


def check(case: Case, limits: Sequence[int], classes: Sequence[str]) -> None:
    with task_of(case, limits, strategy="mu-argus") as bare:
        specs = bare.search_input.policy.attributes
        named_attributes = {
            name: specs[name].model_copy(update={"identification": identification})
            for name, identification in zip(case.hierarchies, classes, strict=False)
        }
        named_policy = bare.search_input.policy.model_copy(update={"attributes": named_attributes})
        task = _with_policy(bare, named_policy)
        names = list(case.hierarchies)
        combinations = select_combinations({name: spec.identification for name, spec in named_attributes.items()})
        checked = [[names.index(name) for name in combination] for combination in combinations]
        plain = Plain(task)
        expected = Argus(plain, checked, case.k).run()
        try:
            outcome = mu_argus(task)
        except sqlanon.InfeasibleError:
            assert expected is None
            return
        assignment = plain.placed(outcome.assignment)
        if expected is None:
            levels = task.search_full_domain()[1]
            expected = plain.kept(plain.at(levels), case.k)
        assert assignment == expected
        assert sum(plain.n.values()) - plain.rows(assignment) <= plain.allowed
        for attributes in checked:
            sizes: Counter[Any] = Counter()
            for c, nodes in assignment.items():
                sizes[tuple(plain.read(nodes)[i] for i in attributes)] += plain.n[c]
            assert min(sizes.values()) >= case.k
        assert all(plain.nodes[i][node].released for nodes in assignment.values() for i, node in enumerate(nodes))


def _with_policy(task: LocalTask, policy: sqlanon.Policy) -> LocalTask:
    return replace(task, search_input=replace(task.search_input, policy=policy))
