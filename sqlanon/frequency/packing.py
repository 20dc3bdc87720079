"""Combinations of a table's values in packed keys: made once, then grouped by many sets of attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from sqlglot import exp

from sqlanon.errors import PolicyError, Problem
from sqlanon.expressions import Namer
from sqlanon.frequency import packed as pk
from sqlanon.statement_runner import Steps

_AT_ONCE = 2_000_000
"""So many rows are grouped in one statement: sets of attributes times combinations."""

_MOST = 1_000_000
"""So many sets of attributes are looked at."""

_EXAMPLE = 3
"""Where statements are only shown: so many values each attribute has."""


@dataclass(frozen=True)
class Packed:
    """A table's combinations.

    Attributes
    ----------
    combinations, numbers, keys:
        The tables of `frequency.packed`.
    packing:
        Where the numbers of values are in the keys.
    count:
        How many combinations there are.
    """

    combinations: exp.Table
    numbers: tuple[exp.Table, ...]
    keys: exp.Table
    packing: pk.Packing
    count: int

    def batches(self, subsets: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
        """Sets of attributes, as many together as one statement may group."""
        step = max(1, _AT_ONCE // max(1, self.count))
        for i in range(0, len(subsets), step):
            yield subsets[i : i + step]


def refuse_too_many(attributes: int, size: int, place: str) -> None:
    """Refuse to look at more sets of attributes than can be looked at.

    Raises
    ------
    PolicyError
        With their number.
    """
    number = sum(comb(attributes, k) for k in range(1, min(size, attributes) + 1))
    if number > _MOST:
        message = f"there are {number:,} sets of up to {size} of {attributes} attributes, and {_MOST:,} is the most"
        raise PolicyError([Problem(place, f"{message}: ask for a smaller size")])


def subsets_of_size(attributes: int, size: int) -> list[tuple[int, ...]]:
    """The sets of so many of the attributes."""
    return list(combinations(range(attributes), size))


def pack(steps: Steps, work: Namer, source: exp.Table, columns: Sequence[str], singles_apart: bool) -> Packed:
    """Make the tables: one scan of the source.

    Parameters
    ----------
    steps, work:
        How tables are made, and how they are named: ``packed_...``.
    source, columns:
        The relation, and its columns.
    singles_apart:
        Whether values of one row alone are all 0.
    """
    found = steps.make(work("packed_combinations"), pk.numbered_combinations(source, columns))
    numbers = tuple(
        steps.make(work(f"packed_values_{i}"), pk.value_numbers(found, i, singles_apart)) for i in range(len(columns))
    )
    highest = steps.ask(pk.highest_numbers(numbers), [(_EXAMPLE,) * len(columns)])[0]
    packing = pk.packed([most or 0 for most in highest])
    keys = steps.make(work("packed_keys"), pk.packed_keys(found, numbers, packing))
    return Packed(found, numbers, keys, packing, steps.count(keys, 1))
