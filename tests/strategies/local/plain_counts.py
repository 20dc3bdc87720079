"""Classes and their members in plain Python: rows or persons, k over all attributes, and shields over some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from small_tasks import Small
from sqlglot import exp

from properties.local_tasks import Nodes, Plain
from sqlanon.strategies.local.core.task import LocalTask


class Counts(Plain):
    """A small task in plain Python, with its persons."""

    def __init__(self, task: LocalTask, small: Small) -> None:
        super().__init__(task)
        self.k, self.shields = small.k, small.shields
        self.least = max([self.k, *(k for _, k in self.shields)])
        self.persons: dict[Hashable, set[int | None]] = defaultdict(set)
        if task.evaluator.persons is not None:
            columns = ["combination", "persons", *(["mover"] if task.evaluator.moving else [])]
            for combination, persons, *mover in task.engine.rows(exp.select(*columns).from_(task.evaluator.persons)):
                people: Sequence[Hashable] = (
                    mover if mover and mover[0] is not None else [(combination, i) for i in range(persons)]
                )
                for person in people:
                    self.persons[person].add(combination)

    def count(self, combinations: Collection[int]) -> int:
        """The rows of combinations, or the persons with one of them."""
        if not self.persons:
            return sum(self.n[combination] for combination in combinations)
        return sum(not places.isdisjoint(combinations) for places in self.persons.values())

    def classes(self, placed: Mapping[int, Nodes], attributes: Iterable[int] | None = None) -> dict[Any, list[int]]:
        """The combinations that read the same in some attributes."""
        by_class: dict[Any, list[int]] = defaultdict(list)
        for combination, nodes in placed.items():
            read = self.read(nodes)
            by_class[read if attributes is None else tuple(read[i] for i in attributes)].append(combination)
        return by_class

    def holding(self, placed: Mapping[int, Nodes]) -> dict[int, Nodes]:
        """The greatest part whose classes meet all requirements, over all attributes and over those of shields."""
        retained = {}
        for members in self.classes(placed).values():
            if self.count(members) >= self.k:
                retained |= {combination: placed[combination] for combination in members}
        while True:
            bad = {
                combination
                for attributes, k in self.shields
                for members in self.classes(retained, attributes).values()
                if self.count(members) < k
                for combination in members
            }
            if not bad:
                return retained
            retained = {combination: nodes for combination, nodes in retained.items() if combination not in bad}

    def losers(self, retained: Collection[int]) -> set[Hashable]:
        """The persons with a row outside kept combinations."""
        return {person for person, places in self.persons.items() if places - {*retained}}

    def can_suppress(self, retained: Collection[int]) -> bool:
        """Whether all combinations except these may be suppressed."""
        limit = self.task.search_input.limit
        suppressed = self.task.row_count - sum(self.n[combination] for combination in retained)
        return suppressed <= limit.rows and (limit.persons is None or len(self.losers(retained)) <= limit.persons)
