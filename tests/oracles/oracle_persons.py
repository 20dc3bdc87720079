"""Persons, counted one by one: a slow oracle, which imports nothing of the package."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any


def persons_by_class(
    rows: Sequence[Sequence[Any]], quasi: Sequence[int], person: int
) -> dict[tuple[Hashable, ...], set[Hashable]]:
    """The persons of each class of rows with equal quasi-identifiers; all rows without a person are one person."""
    persons: dict[tuple[Hashable, ...], set[Hashable]] = defaultdict(set)
    for row in rows:
        persons[tuple(row[i] for i in quasi)].add(row[person])
    return dict(persons)


def values_by_class(
    rows: Sequence[Sequence[Any]], quasi: Sequence[int], person: int, sensitive: int
) -> dict[tuple[Hashable, ...], dict[Hashable, int]]:
    """For each class and sensitive value, how many distinct persons have it there."""
    persons: dict[tuple[Hashable, ...], dict[Hashable, set[Hashable]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        persons[tuple(row[i] for i in quasi)][row[sensitive]].add(row[person])
    return {class_: {value: len(persons) for value, persons in values.items()} for class_, values in persons.items()}


def generalize_rows(
    rows: Iterable[Sequence[Any]],
    labels: Mapping[int, Mapping[Hashable, Sequence[Hashable]]],
    levels: Mapping[int, int],
) -> list[tuple[Any, ...]]:
    """Rows with each quasi-identifier at its level: ``labels`` has the labels of each value, level by level."""
    return [tuple(labels[i][value][levels[i]] if i in levels else value for i, value in enumerate(row)) for row in rows]


def kept_classes(
    rows: Sequence[Sequence[Any]], quasi: Sequence[int], person: int, sensitive: int, k: int, values: int
) -> set[tuple[Hashable, ...]]:
    """The classes with at least k persons and at least some number of distinct sensitive values."""
    persons = persons_by_class(rows, quasi, person)
    counts = values_by_class(rows, quasi, person, sensitive)
    return {key for key, members in persons.items() if len(members) >= k and len(counts[key]) >= values}
