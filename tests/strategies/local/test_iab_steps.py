"""Strategy iab on tables that stand in the test: its run, state by state, is that of a plain best-first search."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from plain_counts import Counts
from plain_iab import Question, Table
from small_tasks import Small, draw_rows, letters, small_task

from sqlanon.errors import InfeasibleError
from sqlanon.strategies.local.iab import StateSearch

A, B, C = letters("a", 4, 2), letters("b", 4, 2), letters("c", 3)


Key = tuple[int, int, int]
"""Rank of a table: its tuples, negative; its violating ones; and its number. The least is next."""


@dataclass(frozen=True)
class Run(Question):
    """The documented search. Rows may have persons."""

    persons: Sequence[int] = ()
    most_rows: int = 0
    most_persons: int | None = None

    @classmethod
    def of(cls, small: Small, most_rows: int) -> Run:
        highest = {i: span[1] for i, span in enumerate(small.spans)}
        forbidden = {i: frozenset(labels) for i, labels in enumerate(small.forbidden)}
        return cls(
            [(*row, "x") for row in small.rows], {f"a{i}": tree for i, tree in enumerate(small.hierarchies)}, small.k,
            shields=small.shields, highest=highest, forbidden=forbidden, persons=small.persons or (),
            most_rows=most_rows, most_persons=None if small.persons is None else small.limit,
        )  # fmt: skip

    def people(self, among: Sequence[bool]) -> set[int]:
        """The persons of known rows."""
        is_known = [row in self.known for row in self.rows]
        return set(itertools.compress(itertools.compress(self.persons, is_known), among))

    def violating(self, table: Table, among: Sequence[bool]) -> list[bool]:
        if not self.persons:
            return super().violating(table, among)
        known_persons = [*itertools.compress(self.persons, [row in self.known for row in self.rows])]
        violations = [False] * len(table)
        for attributes, k in self.conditions:
            groups = [
                tuple(self.node(row, i, levels[i]) for i in attributes)
                for row, levels in zip(self.known, table, strict=True)
            ]
            pairs = {*itertools.compress(zip(groups, known_persons, strict=True), among)}
            sizes = Counter(group for group, _ in pairs)
            for j, group in enumerate(groups):
                violations[j] |= among[j] and sizes[group] < k
        return violations

    def satisfies(self, bad: list[bool], table: Table) -> bool:
        good = [not is_bad for is_bad in bad]
        suppressed = len(self.rows) - sum(good)
        if not any(good) or suppressed > self.most_rows or any(self.violating(table, good)):
            return False
        if self.most_persons is None:
            return True
        flags = [row in self.known for row in self.rows]
        for place, value in zip([i for i, flag in enumerate(flags) if flag], good, strict=True):
            flags[place] = value
        losers = {person for person, is_kept in zip(self.persons, flags, strict=True) if not is_kept}
        return len(losers) <= self.most_persons

    def search(self, checks: float) -> tuple[Table | None, int, int]:
        """The best table, the number of checked ones, and the fewest rows that one of them suppresses."""
        start: Table = tuple(tuple(self.above(row, i, -1) or 0 for i in range(len(self.trees))) for row in self.known)
        seen: set[Table] = set()
        waiting: dict[Key, Table] = {}
        best: tuple[int, Table | None] = (-1, None)
        checked, last, nearest, children = 0, 0, len(self.rows), [(0, start)]

        def promising(key: Key) -> bool:
            return key[1] > 0 and -key[0] > best[0]

        while True:
            keys: dict[Key, Table] = {}
            for number, table in children:
                if table in seen:
                    continue
                if checked == checks:
                    return best[1], checked, nearest
                seen.add(table)
                checked += 1
                bad = self.violating(table, [True] * len(table))
                every, violating = self.tuples(table, [True] * len(table)), self.tuples(table, bad)
                keys[-every, violating, number] = table
                nearest = min(nearest, len(self.rows) - len(table) + sum(bad))
                if every - violating > best[0] and self.satisfies(bad, table):
                    best = every - violating, table
            newest = {key: table for key, table in keys.items() if promising(key)}
            waiting |= newest
            key = min(newest if newest and best[1] is None else waiting, default=(0, 0, 0))
            if not promising(key):
                return best[1], checked, nearest
            state = waiting.pop(key)
            last += len(self.trees)
            children = [(last + i, table) for i, table in self.numbered(state)]

    def numbered(self, table: Table) -> list[tuple[int, Table]]:
        """The children by attribute."""
        bad = self.violating(table, [True] * len(table))
        tables = []
        for i in range(len(self.trees)):
            uppers = [self.above(row, i, levels[i]) for row, levels in zip(self.known, table, strict=True)]
            parents = [
                None if upper is None else self.node(row, i, upper)
                for row, upper in zip(self.known, uppers, strict=True)
            ]
            hit = {*itertools.compress(parents, bad)} - {None}
            if hit:
                tables.append((i, tuple(
                    (*levels[:i], upper, *levels[i + 1 :]) if parent in hit and upper is not None else levels
                    for levels, upper, parent in zip(table, uppers, parents, strict=True)
                )))  # fmt: skip
        return tables


SMALLS = {
    "rows": Small(draw_rows(1, 9, [A, C], 0.4), [A, C], 2, 2),
    "persons": Small(draw_rows(5, 10, [A, C], 0.5), [A, C], 2, 3, persons=[(row * row + 5) % 6 for row in range(10)]),
    # Without the rows that violate first, others violate.
    "shields": Small(draw_rows(34, 10, [A, C], 0.4), [A, C], 2, 3, shields=[((0,), 4)]),
    "shields and k": Small(draw_rows(12, 10, [A, C], 0.4), [A, C], 2, 3, shields=[((0,), 3)]),
    "unknown": Small([*draw_rows(10, 8, [A, B], 0.5), ("?", "b0")], [A, B], 2, 2, forbidden=[["aa1", "a0"], []],
                     spans=[(0, 2), (0, 1)]),
    "none": Small(draw_rows(1, 4, [A, C]), [A, C], 5, 4),
}  # fmt: skip
RUNS: list[tuple[str, int | None]] = [
    ("rows", 3), ("persons", 4), ("shields", None), ("shields and k", 4), ("unknown", None),
    ("none", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "checks"), RUNS)
def test_the_run_is_that_of_a_plain_search(name: str, checks: int | None) -> None:
    small = replace(SMALLS[name], max_checks=checks)
    with small_task(small) as task:
        run = Run.of(small, task.search_input.limit.rows)
        table, checked, nearest = run.search(math.inf if checks is None else checks)
        search = StateSearch(task)
        if table is None:
            with pytest.raises(InfeasibleError) as raised:
                search.run()
            assert (raised.value.suppressed_rows, search.checks) == (nearest, checked)
            return
        plain = Counts(task, small)
        placed = plain.placed(search.run().assignment)
        bad = run.violating(table, [True] * len(table))
        expected = {
            tuple(row[:-1]): tuple(run.node(row, i, level) for i, level in enumerate(levels))
            for row, levels, is_bad in zip(run.known, table, bad, strict=True)
            if not is_bad
        }
        rows = {combination: small.known[combination] for combination in plain.n}
        released = {rows[c]: tuple((by[n].level, by[n].label) for by, n in zip(plain.nodes, nodes, strict=True))
                 for c, nodes in placed.items()}  # fmt: skip
        assert released == expected
        assert search.checks == task.clock.checks == checked
