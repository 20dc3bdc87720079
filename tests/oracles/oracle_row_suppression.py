"""The suppression of single child rows of linked tables, and which of them are put back, row by row: nothing of the
package is used.

Known rows and classes come as numbers, which decide between rows that are equally rare.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Known: TypeAlias = Literal[1, 2, 3, "all"]
At: TypeAlias = tuple[int, int]  # the position of a table, and the number of a row
Copy: TypeAlias = tuple[int, int]  # a known row, and the number of its copy, from 1


@dataclass(frozen=True)
class ChildRow:
    """A child row; ``parent`` is None for rows of a person."""

    at: At
    person: int
    parent: At | None
    known_row: int


@dataclass(frozen=True)
class NumberedRows:
    """The child rows of persons, whose classes are numbered."""

    classes: Mapping[int, int]
    rows: Sequence[ChildRow]
    k: int
    known: Known

    def released(self, suppressed: Collection[At], persons: Collection[int]) -> dict[int, list[ChildRow]]:
        """The rows of each person that are not suppressed, in their order."""
        released: dict[int, list[ChildRow]] = {person: [] for person in persons}
        for row in sorted(self.rows, key=lambda row: row.at):
            if row.person in released and row.at not in suppressed:
                released[row.person].append(row)
        return released

    def _copies(self, rows: Sequence[ChildRow]) -> list[Copy]:
        """The copies of known rows that an attacker distinguishes."""
        counts = Counter(row.known_row for row in rows)
        most = max(counts.values(), default=0) if self.known == "all" else self.known
        return [(known_row, copy) for known_row, n in counts.items() for copy in range(1, min(n, most) + 1)]

    def _combinations(self, copies: Sequence[Copy], size: int) -> Iterator[frozenset[Copy]]:
        """Sets of known rows with a number of different rows; with their copies, no more rows than are known."""
        for combination in itertools.combinations(sorted(copies), size):
            different = len({known_row for known_row, _ in combination}) == size
            if different and sum(copy for _, copy in combination) <= self.known:
                yield frozenset(combination)

    def _signature(self, person: int, rows: Sequence[ChildRow]) -> Hashable:
        """Everything that is known about a person: the class, and the child rows with their nested rows."""

        def describe(parent: At | None) -> Hashable:
            return tuple(sorted((row.at[0], row.known_row, describe(row.at)) for row in rows if row.parent == parent))

        return self.classes[person], describe(None)

    def _supporters(self, released: Mapping[int, Sequence[ChildRow]], size: int) -> dict[Hashable, set[int]]:
        """The persons of each combination in a class."""
        supporters: dict[Hashable, set[int]] = defaultdict(set)
        for person, rows in released.items():
            for combination in self._combinations(self._copies(rows), size):
                supporters[self.classes[person], combination].add(person)
        return supporters

    def suppress(self, allowed: int) -> set[At]:
        """The suppressed rows, a limited number: of each combination that fewer than k persons share the rarest row,
        with the rows that belong to it; those of the rarest rows first, and again until every combination is shared."""
        sizes = Counter(self.classes.values())
        persons = [person for person, class_ in self.classes.items() if sizes[class_] >= self.k]
        suppressed: set[At] = set()
        while True:
            released = self.released(suppressed, persons)
            support: Counter[tuple[int, Copy]] = Counter(
                (self.classes[person], copy) for person, rows in released.items() for copy in self._copies(rows)
            )
            ranks: dict[At, tuple[int, int, Copy]] = {}
            for person, copy in self._rarest(released, support):
                rank = support[self.classes[person], copy], self.classes[person], copy
                equal = [row for row in released[person] if row.known_row == copy[0]]
                for row in equal[copy[1] - 1 :]:
                    ranks[row.at] = min(rank, ranks.get(row.at, rank))
            for row in sorted(self.rows, key=lambda row: row.at):  # parents come before the rows that belong to them
                if row.parent in ranks and row.at not in suppressed:
                    ranks[row.at] = min(ranks[row.parent], ranks.get(row.at, ranks[row.parent]))
            chosen: set[At] = set()
            for rank in sorted({*ranks.values()}):
                more = {at for at, row_rank in ranks.items() if row_rank == rank}
                if len(suppressed) + len(chosen) + len(more) > allowed:
                    break
                chosen |= more
            suppressed |= chosen
            if not chosen or len(suppressed) == allowed:
                return suppressed

    def _rarest(
        self, released: Mapping[int, Sequence[ChildRow]], support: Mapping[tuple[int, Copy], int]
    ) -> Iterator[tuple[int, Copy]]:
        """The rarest known row of each person's unshared combinations of the smallest size; the last of its copies."""

        def rarest(class_: int, copies: Collection[Copy]) -> Copy:
            return min(copies, key=lambda copy: (support[class_, copy], copy[0], -copy[1]))

        if self.known == "all":
            signatures = {person: self._signature(person, rows) for person, rows in released.items()}
            sizes = Counter(signatures.values())
            for person, rows in released.items():
                if sizes[signatures[person]] < self.k and rows:
                    yield person, rarest(self.classes[person], self._copies(rows))
            return
        for size in range(1, self.known + 1):
            unshared = {
                combination: persons
                for combination, persons in self._supporters(released, size).items()
                if len(persons) < self.k
            }
            for (class_, combination), persons in unshared.items():
                yield from ((person, rarest(class_, combination)) for person in persons)
            if unshared:
                return

    def restore(self, suppressed: Collection[At], persons: Collection[int]) -> set[At]:
        """The rows that stay suppressed: others were put back that k persons share with all they are known with, the
        first of each person, or of each class where an attacker knows all rows; and again until none can be."""
        remaining = set(suppressed)
        while True:
            released = self.released(remaining, persons)
            candidates = sorted(
                (
                    row
                    for row in self.rows
                    if row.at in remaining and row.person in released and row.parent not in remaining
                ),
                key=lambda row: (row.person, row.at),
            )
            chosen: dict[int, At] = {}
            for row in candidates:
                owner = self.classes[row.person] if self.known == "all" else row.person
                if owner not in chosen and self._is_shared(row, released):
                    chosen[owner] = row.at
            if not chosen:
                return remaining
            remaining -= {*chosen.values()}

    def _is_shared(self, row: ChildRow, released: Mapping[int, Sequence[ChildRow]]) -> bool:
        rows = [*released[row.person], row]
        if self.known == "all":
            sizes = Counter(self._signature(person, person_rows) for person, person_rows in released.items())
            left = sizes[self._signature(row.person, released[row.person])]
            return sizes[self._signature(row.person, rows)] >= self.k - 1 and left > self.k
        added = row.known_row, sum(released_row.known_row == row.known_row for released_row in rows)
        for size in range(1, self.known + 1):
            supporters = self._supporters(released, size)
            for combination in self._combinations(self._copies(rows), size):
                shared = supporters.get((self.classes[row.person], combination), set())
                if added in combination and len(shared) < self.k - 1:
                    return False
        return True
