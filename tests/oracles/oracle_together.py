"""The knowledge of readers of several releases of one table: all source tables that are consistent with them.

In plain Python, slow and obvious; nothing is imported from sqlanon.

**What a reader has.** The rows of each release: for each quasi-identifier the set of ground values that the label
stands for, and the columns that all releases show unchanged (*shared* values). A masked row has the label of all ground
values. Rows that were dropped are not there. Rows of one release with equal labels are a *class*. An attribute that a
release does not have stands for all of its values.

**A world** is one way in which the releases came to be: for each release a source table, whose rows have ground values
within the labels and the shared values of the released rows. Equal rows of two source tables are the same person. Of
all such tables readers take those with the fewest persons: as many rows as possible are the same ones. Rows
with equal shared values cannot be distinguished; the remaining rows are new, gone or changed.

So a person is in one *cell*: a class of each release, or ``None`` where the release lacks the person (who is new, gone
or suppressed). The classes of a cell have ground values in common, the cell's *region*, and its persons have equal
shared values in all of them. Shared values do not mix: the worlds are all combinations of the worlds of the rows with
equal shared values.

**Bounds.** For each union of cells: the least and the greatest number of persons over all worlds, and the most
different sensitive values that its persons have in a world. For k (and l) a union is *small* if it has persons in some
world, and in each world fewer than k (or fewer than l sensitive values).

**Unsafe** is a pair of releases in two cases:

``sure``
    A small union of regions has persons in every world. The reader can point at them, and knows nothing but the
    releases. A region is all cells that have it and lack the same releases: where the label of one release holds the
    label of the other, this is all that is known of a class, whatever the other label was.
``victim``
    The reader knows a person of the source tables by the ground values, and in which tables the person is. In one of
    the releases fewer than k rows can be this person in some world; or those that can have fewer than l sensitive
    values.

Two more are listed, but are safe by themselves, as readers do not know of such persons:

``possible``
    A cell is small.
``region``
    A region is small.

Cells that are a class of every release with the region of all ground values reveal no
quasi-identifiers: rows that are masked in each release are not a finding.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

Labels: TypeAlias = tuple[frozenset[Any], ...]
"""A class: for each attribute the ground values that its label stands for."""

Cell: TypeAlias = tuple[Labels | None, ...]
"""A class of each release, or None where persons are not in it."""

Shared: TypeAlias = tuple[Any, ...]

MOST_REGIONS = 10
"""The most small regions whose unions are all looked at."""


@dataclass(frozen=True)
class Released:
    """The rows of a release, as a reader sees them.

    Attributes
    ----------
    rows:
        The labels and the shared values of each row.
    drops:
        Whether rows were left out.
    """

    rows: Sequence[tuple[Labels, Shared]]
    drops: bool = False


@dataclass(frozen=True)
class Person:
    """A person whom a reader knows: ground values, and whether the source of each release has the person."""

    values: tuple[Any, ...]
    present: tuple[bool, ...]


@dataclass(frozen=True)
class Finding:
    """A small set of cells: the definition that it breaks, the requirement, and the bounds."""

    way: str
    requirement: str
    cells: tuple[Cell, ...]
    least: int
    greatest: int
    values: int

    def __str__(self) -> str:
        cells = " + ".join(" & ".join(map(_describe_cell, cell)) for cell in self.cells)
        return f"{self.way} {self.requirement}: {cells}: {self.least} to {self.greatest} rows, {self.values} values"


def _describe_cell(labels: Labels | None) -> str:
    return "none" if labels is None else "x".join("{" + ",".join(sorted(map(str, values))) + "}" for values in labels)


def region(cell: Cell) -> Labels | None:
    """The ground values that the classes of a cell have in common, by attribute; None without any."""
    classes = [labels for labels in cell if labels is not None]
    common = tuple(frozenset.intersection(*values) for values in zip(*classes, strict=True))
    return common if all(common) else None


@dataclass(frozen=True)
class Together:
    """Several releases side by side.

    Attributes
    ----------
    domains:
        The ground values of each attribute.
    sensitive:
        The place of the sensitive value among the shared values, or None.
    """

    releases: Sequence[Released]
    domains: Labels
    sensitive: int | None = None

    @cached_property
    def tables(self) -> Mapping[Shared, tuple[Counter[Labels], ...]]:
        """The rows of each class of each release, by shared values."""
        counts: dict[Shared, tuple[Counter[Labels], ...]] = defaultdict(lambda: tuple(Counter() for _ in self.releases))
        for i, release in enumerate(self.releases):
            for labels, shared in release.rows:
                counts[shared][i][labels] += 1
        return dict(counts)

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells that persons can be in, if worlds had any number of persons."""
        classes = [dict.fromkeys(labels for labels, _ in release.rows) for release in self.releases]
        cells = itertools.product(*([*labels, None] for labels in classes))
        return [cell for cell in cells if any(cell) and region(cell) is not None]

    def bounds(self, cells: Sequence[Cell]) -> tuple[int, int, int]:
        """The least and the greatest number of persons in a union of cells, and the most different sensitive values."""
        least, greatest, values = 0, 0, set()
        for shared in self.tables:
            low, high = self._extremes(shared, frozenset(cells))
            least, greatest = least + low, greatest + high
            if high and self.sensitive is not None:
                values.add(shared[self.sensitive])
        return least, greatest, len(values)

    @cached_property
    def _known(self) -> dict[tuple[Shared, frozenset[Cell]], tuple[int, int]]:
        return {}

    @cached_property
    def _worlds(self) -> dict[Shared, _Worlds]:
        return {shared: _Worlds(table, self.cells) for shared, table in self.tables.items()}

    def _extremes(self, shared: Shared, chosen: frozenset[Cell]) -> tuple[int, int]:
        """The least and the greatest number of persons with some shared values in a union of cells."""
        if (shared, chosen) not in self._known:
            self._known[shared, chosen] = self._worlds[shared].extremes(chosen)
        return self._known[shared, chosen]

    # --- what is unsafe -------------------------------------------------------------------------------

    def findings(self, k: int, distinct: int = 1, persons: Sequence[Person] = ()) -> list[Finding]:
        """Everything that is unsafe."""
        result = []
        for name, least in (("k", k), ("l", distinct)):
            if name == "k" or (distinct > 1 and self.sensitive is not None):
                result += list(self._findings(name, least, persons))
        return result

    def _findings(self, requirement: str, least: int, persons: Sequence[Person]) -> Iterator[Finding]:
        telling = [cell for cell in self.cells if None in cell or region(cell) != self.domains]
        regions: dict[Any, list[Cell]] = defaultdict(list)
        for cell in telling:
            regions[region(cell), tuple(labels is None for labels in cell)].append(cell)
        possible = [finding for cell in telling if (finding := self._small("possible", requirement, least, [cell]))]
        yield from possible
        small = [finding for cells in regions.values() if (finding := self._small("region", requirement, least, cells))]
        yield from small
        yield from self._sure(requirement, least, [finding.cells for finding in small][:MOST_REGIONS])
        for person in dict.fromkeys(persons):
            cells = self.cells_of(person)
            low, high, values = self.bounds(cells)
            if high and (self.candidates(cells) if requirement == "k" else values) < least:
                yield Finding("victim", requirement, tuple(cells), low, high, values)

    def _sure(self, requirement: str, least: int, regions: Sequence[tuple[Cell, ...]]) -> list[Finding]:
        """The smallest unions of these regions with persons in every world that are small."""
        for size in range(1, len(regions) + 1):
            unions = (
                self._small("sure", requirement, least, [*itertools.chain(*union)])
                for union in itertools.combinations(regions, size)
            )
            if findings := [finding for finding in unions if finding is not None and finding.least]:
                return findings
        return []

    def _small(self, way: str, requirement: str, least: int, cells: Sequence[Cell]) -> Finding | None:
        low, high, values = self.bounds(cells)
        if high and (high if requirement == "k" else values) < least:
            return Finding(way, requirement, tuple(cells), low, high, values)
        return None

    def candidates(self, cells: Sequence[Cell]) -> int:
        """How many rows of a release can be somebody who is in one of these cells: the least number of all releases.

        Whom a release may lack can also be anybody whom it lacks.
        """
        possible = [
            (cell, shared) for shared in self.tables for cell in cells if self._extremes(shared, frozenset([cell]))[1]
        ]
        sizes = []
        for i in range(len(self.releases)):
            groups = {(labels, shared) for cell, shared in possible if (labels := cell[i]) is not None}
            if groups:
                lacking = [cell for cell in cells if cell[i] is None]
                rows = sum(self.tables[shared][i][labels] for labels, shared in groups)
                sizes.append(rows + self.bounds(lacking)[1])
        return min(sizes)

    def cells_of(self, person: Person) -> list[Cell]:
        """The cells in which a reader looks for a person, except those that reveal nothing."""
        cells = []
        for cell in self.cells:
            fits = all(
                present and all(value in values for value, values in zip(person.values, labels, strict=True))
                if labels is not None
                else not present or release.drops
                for labels, present, release in zip(cell, person.present, self.releases, strict=True)
            )
            if fits:
                cells.append(cell)
        return cells if any(None in cell or region(cell) != self.domains for cell in cells) else []


State: TypeAlias = tuple[tuple[int, ...], ...]
"""How many rows of each class of each release are not yet somebody's."""


class _Worlds:
    """The worlds of the rows with equal shared values: persons are put into cells, one after the other, always with a
    row of the first class that has one left."""

    def __init__(self, table: tuple[Counter[Labels], ...], cells: Sequence[Cell]) -> None:
        self._places = [{labels: i for i, labels in enumerate(counts)} for counts in table]
        self._cells = defaultdict[tuple[int, int], list[tuple[Cell, tuple[int | None, ...]]]](list)
        for cell in cells:
            if all(labels is None or labels in place for labels, place in zip(cell, self._places, strict=True)):
                numbers = tuple(
                    None if labels is None else place[labels] for labels, place in zip(cell, self._places, strict=True)
                )
                first = next((i, number) for i, number in enumerate(numbers) if number is not None)
                self._cells[first].append((cell, numbers))
        self._start: State = tuple(tuple(counts.values()) for counts in table)
        self._fewest: dict[State, int] = {}
        self._steps: dict[State, list[tuple[Cell, State]]] = {}
        self._count(self._start)

    def _count(self, left: State) -> int:
        """The fewest persons for these rows, and the cells that allow this number."""
        if left in self._fewest:
            return self._fewest[left]
        steps = [(cell, self._count(remaining) + 1, remaining) for cell, remaining in self._next(left)]
        fewest = min((persons for _, persons, _ in steps), default=0)
        self._steps[left] = [(cell, remaining) for cell, persons, remaining in steps if persons == fewest]
        self._fewest[left] = fewest
        return fewest

    def _next(self, left: State) -> Iterator[tuple[Cell, State]]:
        first = next(((i, j) for i, counts in enumerate(left) for j, n in enumerate(counts) if n), None)
        for cell, numbers in self._cells[first] if first is not None else ():
            if all(number is None or counts[number] for counts, number in zip(left, numbers, strict=True)):
                remaining = tuple(
                    counts if number is None else (*counts[:number], counts[number] - 1, *counts[number + 1 :])
                    for counts, number in zip(left, numbers, strict=True)
                )
                yield cell, remaining

    def extremes(self, chosen: frozenset[Cell]) -> tuple[int, int]:
        """The least and the greatest number of persons in some cells."""
        memo: dict[State, tuple[int, int]] = {}

        def walk(left: State) -> tuple[int, int]:
            if left not in memo:
                ends = [(*walk(remaining), cell in chosen) for cell, remaining in self._steps[left]]
                memo[left] = (
                    min((low + is_chosen for low, _, is_chosen in ends), default=0),
                    max((high + is_chosen for _, high, is_chosen in ends), default=0),
                )
            return memo[left]

        return walk(self._start)


# --- the same by enumeration of all source tables -----------------------------------------------------


def enumerated_bounds(releases: Sequence[Released], chosen: Callable[[Cell], bool], domains: Labels) -> tuple[int, int]:
    """The least and the greatest number of persons in cells over all worlds of two releases of very few rows.

    Every source table of each release is made; those that have the most rows in common are held against each other in
    every way that equal rows can be the same person.
    """
    first, second = ([*_sources(release, domains)] for release in releases)
    most, numbers = -1, set[int]()
    for first_rows, two in itertools.product(first, second):
        first_counts, twos = Counter(first_rows), Counter(two)
        common = (first_counts & twos).total()
        if common < most:
            continue
        if common > most:
            most, numbers = common, set()
        counts = {0}
        for row in {*first_counts, *twos}:
            in_first, in_second = (
                [release.rows[i][0] for i, candidate in enumerate(table) if candidate == row]
                for release, table in zip(releases, (first_rows, two), strict=True)
            )
            counts = {n + m for n in counts for m in _pairings(in_first, in_second, chosen)}
        numbers |= counts
    return min(numbers), max(numbers)


def _sources(release: Released, domains: Labels) -> Iterator[list[Any]]:
    """All source tables of a release: the ground and shared values of each row."""
    rows = [
        [(*values, shared) for values in itertools.product(*(sorted(domain) for domain in domains))
         if all(value in label for value, label in zip(values, labels, strict=True))]
        for labels, shared in release.rows
    ]  # fmt: skip
    for table in itertools.product(*rows):
        yield list(table)


def _pairings(first: Sequence[Labels], second: Sequence[Labels], chosen: Callable[[Cell], bool]) -> set[int]:
    """The numbers of persons in chosen cells, if as many of these rows as possible are the same persons."""
    longer, is_first = max(len(first), len(second)), len(first) >= len(second)
    counts = set()
    for order in itertools.permutations(first if is_first else second):
        fixed: list[Labels | None] = [*(second if is_first else first)]
        fixed += [None] * (longer - len(fixed))
        pairs = zip(order, fixed, strict=True)
        counts.add(sum(chosen((a, b) if is_first else (b, a)) for a, b in pairs))
    return counts
