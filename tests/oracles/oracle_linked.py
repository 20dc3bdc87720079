"""k^m-anonymity and shared signatures over linked tables in plain Python: every combination is written out and counted.

It imports nothing from sqlanon but the hierarchies of the other oracle. Tables are a tree: table 0 has one row per
person, each row of another table names a row of its parent table.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from oracles.oracle import Hierarchy, Levels, Value

Known = int | Literal["all"]
Combination = tuple[Hashable, ...]


@dataclass(frozen=True)
class Row:
    """A row of a linked table: its number in the table, the number of its parent row, and its quasi-identifiers."""

    number: int
    parent: int | None
    values: tuple[Value, ...]


@dataclass(frozen=True)
class LinkedTable:
    """One table with a hierarchy for each quasi-identifier; ``parent`` is the index of its parent table."""

    name: str
    parent: int | None
    names: tuple[str, ...]
    hierarchies: tuple[Hierarchy, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class State:
    """The persons and the child rows that are released: child rows as (table, number)."""

    persons: frozenset[int]
    rows: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Outcome:
    """A generalization with the persons that it suppresses, and the child rows of kept persons."""

    levels: Levels
    state: State
    score: float
    suppressed_persons: int
    suppressed_rows: int


@dataclass(frozen=True)
class LinkedDatabase:
    """Tables of one person table, parents before children."""

    tables: tuple[LinkedTable, ...]

    @cached_property
    def heights(self) -> Levels:
        """The height of each hierarchy, table by table."""
        return tuple(hierarchy.height for table in self.tables for hierarchy in table.hierarchies)

    @cached_property
    def everything(self) -> State:
        """All persons with all rows."""
        persons = frozenset(row.number for row in self.tables[0].rows)
        return State(persons, frozenset(self.person_of))

    @cached_property
    def person_of(self) -> Mapping[tuple[int, int], int]:
        """The person of each child row."""
        persons: dict[tuple[int, int], int] = {}
        for t, table in enumerate(self.tables[1:], 1):
            for row in table.rows:
                assert table.parent is not None
                assert row.parent is not None
                persons[t, row.number] = persons[table.parent, row.parent] if table.parent else row.parent
        return persons

    @cached_property
    def children_of(self) -> Mapping[tuple[int, int], list[tuple[int, int]]]:
        """The direct child rows of each row; persons are rows of table 0."""
        children: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for t, table in enumerate(self.tables[1:], 1):
            for row in table.rows:
                assert table.parent is not None
                assert row.parent is not None
                children[table.parent, row.parent].append((t, row.number))
        return children

    def labels(self, levels: Levels) -> list[dict[int, tuple[Value, ...]]]:
        """The generalized quasi-identifiers, by table and row."""
        result, first = [], 0
        for table in self.tables:
            table_levels = levels[first : first + len(table.names)]
            first += len(table.names)
            result.append(
                {
                    row.number: tuple(
                        hierarchy.label(value, level)
                        for hierarchy, value, level in zip(table.hierarchies, row.values, table_levels, strict=True)
                    )
                    for row in table.rows
                }
            )
        return result

    def known_row(self, labels: list[dict[int, tuple[Value, ...]]], t: int, number: int) -> Hashable:
        """The knowledge of an attacker about a child row: its table, its labels and those of its ancestors below the
        person."""
        known: list[tuple[Value, ...]] = []
        position: int | None = t
        while position:
            known.append(labels[position][number])
            row = next(row for row in self.tables[position].rows if row.number == number)
            assert row.parent is not None
            position, number = self.tables[position].parent, row.parent
        return (t, tuple(known))


def combinations_of(rows: Counter[Hashable], size: int) -> Iterator[Combination]:
    """The distinct multisets of a size that a person's known rows contain."""
    items = sorted(rows.elements(), key=repr)
    yield from set(itertools.combinations(items, size))


class View:
    """A state at a generalization, as readers distinguish persons and rows."""

    def __init__(self, database: LinkedDatabase, levels: Levels) -> None:
        self.database = database
        self.labels = database.labels(levels)
        self.known = {row_id: database.known_row(self.labels, *row_id) for row_id in database.person_of}

    def known_rows(self, state: State, person: int) -> Counter[Hashable]:
        """The multiset of known rows of a person."""
        persons = self.database.person_of
        return Counter(self.known[row_id] for row_id in state.rows if persons[row_id] == person)

    def signature(self, state: State, t: int, number: int) -> Hashable:
        """The labels of a row with the nested multisets of its child rows."""
        children = [row_id for row_id in self.database.children_of.get((t, number), ()) if row_id in state.rows]
        nested = sorted(((row_id[0], self.signature(state, *row_id)) for row_id in children), key=repr)
        return (self.labels[t][number], tuple(nested))

    def groups(self, state: State, known: Known) -> dict[Hashable, set[int]]:
        """The persons who support each combination that occurs; with ``all``, each signature."""
        groups: dict[Hashable, set[int]] = defaultdict(set)
        for person in state.persons:
            person_labels = self.labels[0][person]
            if known == "all":
                groups[self.signature(state, 0, person)].add(person)
                continue
            rows = self.known_rows(state, person)
            for size in range(known + 1):
                for combination in combinations_of(rows, size):
                    groups[person_labels, combination].add(person)
        return groups

    def is_safe(self, state: State, k: int, known: Known) -> bool:
        """Whether every combination that occurs has k persons."""
        return all(len(persons) >= k for persons in self.groups(state, known).values())

    def peel(self, state: State, k: int, known: Known) -> State:
        """Remove persons with an unsupported combination until none is left."""
        while True:
            unsupported = {
                person for persons in self.groups(state, known).values() if len(persons) < k for person in persons
            }
            if not unsupported:
                return state
            state = self.without_persons(state, unsupported)

    def without_persons(self, state: State, persons: set[int]) -> State:
        """The state without some persons and their rows."""
        person_of = self.database.person_of
        return State(
            state.persons - persons, frozenset(row_id for row_id in state.rows if person_of[row_id] not in persons)
        )

    def find_restorable(
        self, state: State, k: int, known: Known, removed_rows: frozenset[tuple[int, int]]
    ) -> str | None:
        """A suppressed person or child row that could be put back alone, in words; None if there is none.

        A person returns with all rows that are not suppressed by themselves; a row returns under a kept parent.
        """
        person_of, everything = self.database.person_of, self.database.everything
        for person in everything.persons - state.persons:
            rows = frozenset(row_id for row_id in everything.rows - removed_rows if person_of[row_id] == person)
            if self.is_safe(State(state.persons | {person}, state.rows | rows), k, known):
                return f"person {person}"
        for row_id in everything.rows - state.rows:
            t, number = row_id
            parent = next(row.parent for row in self.database.tables[t].rows if row.number == number)
            above = self.database.tables[t].parent
            if person_of[row_id] not in state.persons or (above and (above, parent) not in state.rows):
                continue
            if self.is_safe(State(state.persons, state.rows | {row_id}), k, known):
                return f"row {row_id}"
        return None


def fewest_matches(
    view: View, attacked: State, searched: State, known: Known, table: int | None = None
) -> dict[int, int | None]:
    """By attacked person, the fewest searched persons who match what an attacker knows: up to ``known`` child rows, or
    all as well as up to two. None without a match. With a table, only its rows are known, without their child rows.
    """
    if table is not None:
        attacked, searched = (
            State(state.persons, frozenset(row_id for row_id in state.rows if row_id[0] == table))
            for state in (attacked, searched)
        )
    fewest: dict[int, int | None] = dict.fromkeys(attacked.persons)
    kinds: tuple[Known, ...] = (2, "all") if known == "all" else (known,)
    for kind in kinds:
        if kind == "all" and table is not None:
            groups, targets = (_groups_by_all_rows(view, state) for state in (attacked, searched))
        else:
            groups, targets = (view.groups(state, kind) for state in (attacked, searched))
        for combination, persons in groups.items():
            matches = len(targets.get(combination, ()))
            for person in persons:
                best = fewest[person]
                if matches and (best is None or matches < best):
                    fewest[person] = matches
    return fewest


def _groups_by_all_rows(view: View, state: State) -> dict[Hashable, set[int]]:
    """The persons who share all known rows, each by itself."""
    groups: dict[Hashable, set[int]] = defaultdict(set)
    for person in state.persons:
        rows = view.known_rows(state, person)
        groups[view.labels[0][person], tuple(sorted(rows.elements(), key=repr))].add(person)
    return groups


def loss(database: LinkedDatabase, levels: Levels, state: State, weights: Sequence[float]) -> float:
    """The mean over quasi-identifiers of the mean over the rows of their table; a suppressed row counts 1."""
    attribute, parts = 0, []
    for t, table in enumerate(database.tables):
        kept = state.persons if t == 0 else {number for table_, number in state.rows if table_ == t}
        for i, hierarchy in enumerate(table.hierarchies):
            values = {row.values[i] for row in table.rows}
            leaves = hierarchy.leaves + (None in values)
            total = 0.0
            for row in table.rows:
                total += (
                    _loss_of_value(hierarchy, row.values[i], levels[attribute], leaves, values)
                    if row.number in kept
                    else 1.0
                )
            parts.append(total / len(table.rows) if table.rows else 0.0)
            attribute += 1
    return math.fsum(map(lambda x, w: x * w, parts, weights)) / math.fsum(weights)


def _loss_of_value(hierarchy: Hierarchy, value: Value, level: int, leaves: int, values: set[Value]) -> float:
    if leaves <= 1:
        return 0.0
    label = hierarchy.label(value, level)
    ground = [*hierarchy.paths, *([None] if None in values else [])]
    return (sum(hierarchy.label(leaf, level) == label for leaf in ground) - 1) / (leaves - 1)


def evaluate(database: LinkedDatabase, levels: Levels, k: int, known: Known, weights: Sequence[float]) -> Outcome:
    """The largest set of persons that can stay at a generalization, without suppressing child rows by themselves."""
    view = View(database, levels)
    state = view.peel(database.everything, k, known)
    score = loss(database, levels, state, weights)
    return Outcome(levels, state, score, len(database.everything.persons) - len(state.persons), 0)


def best(
    database: LinkedDatabase, k: int, known: Known, allowed_persons: int, weights: Sequence[float]
) -> Outcome | None:
    """The best generalization: the least loss, then the least height, then the first in lexicographic order."""
    chosen: Outcome | None = None
    for levels in itertools.product(*(range(height + 1) for height in database.heights)):
        outcome = evaluate(database, levels, k, known, weights)
        if not outcome.state.persons or outcome.suppressed_persons > allowed_persons:
            continue
        if chosen is None or _precedes(outcome, chosen):
            chosen = outcome
    return chosen


def _precedes(outcome: Outcome, rival: Outcome) -> bool:
    if abs(outcome.score - rival.score) > 1e-12 * max(abs(outcome.score), abs(rival.score)):
        return outcome.score < rival.score
    return (sum(outcome.levels), outcome.levels) < (sum(rival.levels), rival.levels)
