"""The tables of strategy iab in plain Python: the slow and obvious way."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import assume

from oracles import oracle
from oracles.oracle import Hierarchy, Row, Value

Node = tuple[int, Value]  # a level, and the label there
Table = tuple[tuple[int, ...], ...]  # a level for each row and attribute


@dataclass(frozen=True)
class Question:
    """Rows of quasi-identifiers (in the order of ``hierarchies``), one other released value, and the requirements.

    ``shields`` are attributes with their k; ``highest`` is a `max_level`, and ``forbidden`` labels, by attribute.
    """

    rows: Sequence[Row]
    hierarchies: Mapping[str, Hierarchy]
    k: int | None
    limit: str = "0"
    shields: Sequence[tuple[tuple[int, ...], int]] = ()
    highest: Mapping[int, int] = field(default_factory=dict)
    forbidden: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @property
    def trees(self) -> list[Hierarchy]:
        return list(self.hierarchies.values())

    @property
    def known(self) -> list[Row]:
        """The rows that can be released."""
        indices = range(len(self.trees))
        rows = [row for row in self.rows if all(self.trees[i].knows(row[i]) for i in indices)]
        return [row for row in rows if all(self.above(row, i, -1) is not None for i in indices)]

    def above(self, row: Row, i: int, level: int) -> int | None:
        """The next level above one that a row may be released at in an attribute."""
        for upper in range(level + 1, self.ceiling(i) + 1):
            label = self.trees[i].label(row[i], upper)
            if label is None or str(label) not in self.forbidden.get(i, ()):
                return upper
        return None

    @property
    def conditions(self) -> list[tuple[tuple[int, ...], int]]:
        own_k = [] if self.k is None else [(tuple(range(len(self.trees))), self.k)]
        return [*own_k, *self.shields]

    def node(self, row: Row, i: int, level: int) -> Node:
        return level, self.trees[i].label(row[i], level)

    def ceiling(self, i: int) -> int:
        return self.highest.get(i, self.trees[i].height)

    def violating(self, table: Table, among: Sequence[bool]) -> list[bool]:
        """Which rows are in a group, among some of them, that is too small."""
        violations = [False] * len(table)
        for attributes, k in self.conditions:
            groups = [
                tuple(self.node(row, i, levels[i]) for i in attributes)
                for row, levels in zip(self.known, table, strict=True)
            ]
            sizes = Counter(itertools.compress(groups, among))
            for j, group in enumerate(groups):
                violations[j] |= among[j] and sizes[group] < k
        return violations

    def tuples(self, table: Table, among: Sequence[bool]) -> int:
        """The distinct tuples: the labels of the rows, and their other value."""
        every = (
            (*(self.node(row, i, level) for i, level in enumerate(levels)), row[-1])
            for row, levels in zip(self.known, table, strict=True)
        )
        return len(set(itertools.compress(every, among)))

    def children(self, table: Table) -> Iterator[Table]:
        bad = self.violating(table, [True] * len(table))
        for i in range(len(self.trees)):
            uppers = [self.above(row, i, levels[i]) for row, levels in zip(self.known, table, strict=True)]
            parents = [
                None if upper is None else self.node(row, i, upper)
                for row, upper in zip(self.known, uppers, strict=True)
            ]
            hit = set(itertools.compress(parents, bad)) - {None}
            if hit:
                yield tuple(
                    (*levels[:i], upper, *levels[i + 1 :]) if parent in hit and upper is not None else levels
                    for levels, upper, parent in zip(table, uppers, parents, strict=True)
                )

    def kept(self, table: Table) -> int | None:
        """The distinct tuples that are released; None where it does not satisfy."""
        bad = self.violating(table, [True] * len(table))
        good = [not is_bad for is_bad in bad]
        suppressed = len(self.rows) - sum(good)
        if suppressed > oracle.allowed_rows(self.limit, len(self.rows)) or not any(good):
            return None
        return None if any(self.violating(table, good)) else self.tuples(table, good)

    def reachable(self, most: int) -> set[Table]:
        """All tables that steps lead to; cases with too many are skipped."""
        indices = range(len(self.trees))
        first = tuple(tuple(self.above(row, i, -1) or 0 for i in indices) for row in self.known)
        seen, waiting = {first}, [first]
        while waiting:
            for child in self.children(waiting.pop()):
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
            if len(seen) > most:
                assume(False)
        return seen

    def best(self, tables: set[Table]) -> int | None:
        return max((rows for table in tables if (rows := self.kept(table)) is not None), default=None)
