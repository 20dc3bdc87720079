"""Combinations of values as packed keys, which can be grouped by many sets of attributes.

Each value has a number, and several numbers share a word of 63 bits. The combinations of a set of attributes are then
the groups of ``word & mask``, and one statement counts the combinations of many sets.

Columns of the combinations: ``id``, ``quasi_0``, ... (values) and ``row_count`` (rows); of an attribute's value
numbers: ``value``, ``code``; of the packed keys: ``id``, ``word_0``, ... and ``row_count``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import comb
from operator import add

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.frequency.statements import quasi_columns, raw_frequency
from sqlanon.support.coding import ROW_COUNT, quasi_column
from sqlanon.support.expressions import (
    Namer,
    aliased,
    as_column,
    col,
    fragment,
    null_safe_equal,
    number,
    select,
    subquery,
    template,
    total,
    values_query,
)

WORD_BITS = 63
"""Bits of a word: the highest bit of a BIGINT is its sign."""


@dataclass(frozen=True)
class Packing:
    """The positions of each attribute's value numbers in the words.

    >>> packing = assign_words([100, 1, 7])
    >>> packing.places, packing.masks([0, 2])
    (((0, 0, 7), (0, 7, 1), (0, 8, 3)), (1919,))
    """

    places: tuple[tuple[int, int, int], ...]  # by attribute: the word, the first bit, and the number of bits
    words: int

    def masks(self, subset: Iterable[int]) -> tuple[int, ...]:
        """The mask of each word that selects these attributes."""
        masks = [0] * self.words
        for i in subset:
            word, first, bits = self.places[i]
            masks[word] |= ((1 << bits) - 1) << first
        return tuple(masks)

    def pack(self, value_numbers: Sequence[exp.Expr]) -> list[exp.Expr]:
        """The words of value numbers of type BIGINT, one for each attribute."""
        bits: list[list[exp.Expr]] = [[] for _ in range(self.words)]
        for value_number, (word, first, _) in zip(value_numbers, self.places, strict=True):
            bits[word].append(value_number * number(1 << first))
        return [reduce(add, parts) if parts else number(0) for parts in bits]


def assign_words(highest: Sequence[int]) -> Packing:
    """Assign attributes to words, each to the first one with room."""
    used: list[int] = []
    places = []
    for most in highest:
        bits = max(1, most.bit_length())
        word = next((i for i, taken in enumerate(used) if taken + bits <= WORD_BITS), len(used))
        if word == len(used):
            used.append(0)
        places.append((word, used[word], bits))
        used[word] += bits
    return Packing(tuple(places), max(1, len(used)))


def subset_number(subset: Iterable[int]) -> int:
    """A set of attributes as a number: bit i is attribute i.

    >>> subset_number([0, 2])
    5
    """
    return sum(1 << i for i in subset)


def _value_numbers(combinations: exp.Table, attribute: int, singles_apart: bool) -> exp.Select:
    """Number the values of an attribute from 1; with ``singles_apart``, values of a single row have number 0."""
    code = fragment("row_number() OVER ()")
    if singles_apart:
        code = fragment("CASE WHEN sum(row_count) = 1 THEN 0 ELSE row_number() OVER (ORDER BY sum(row_count) = 1) END")
    query = template("SELECT :value AS value, (:code)::BIGINT AS code FROM :combinations GROUP BY :value")
    return query(value=col(quasi_column(attribute)), code=code(), combinations=combinations)


def _packed_keys(combinations: exp.Table, numbers: Sequence[exp.Table], packing: Packing) -> exp.Select:
    """The combinations with their values packed into words."""
    words = packing.pack([col("code", f"v{i}") for i in range(len(numbers))])
    query = template("SELECT r.id, :words, r.row_count FROM :combinations AS r")(
        words=[as_column(word, f"word_{j}") for j, word in enumerate(words)], combinations=combinations
    )
    for i, value_numbers in enumerate(numbers):
        on = null_safe_equal(col(quasi_column(i), "r"), col("value", f"v{i}"))
        query = query.join(aliased(value_numbers, f"v{i}"), on=on, copy=False)
    return query


def subset_groups(
    keys: exp.Table, packing: Packing, subsets: Mapping[int, Sequence[int]], output: Sequence[exp.Expr]
) -> exp.Select:
    """Group rows by the values of a set of attributes, for several sets in one statement."""
    columns = dict.fromkeys(("subset", *(f"mask_{j}" for j in range(packing.words))), "BIGINT")
    masks = values_query(columns, [(name, *packing.masks(subset)) for name, subset in subsets.items()])
    query = select([col("subset", "s"), *output], aliased(keys, "k"))
    query = query.join(subquery(masks, "s"), join_type="cross", copy=False)
    groups = [
        exp.BitwiseAnd(this=col(f"word_{j}", "k"), expression=col(f"mask_{j}", "s")) for j in range(packing.words)
    ]
    return query.group_by(col("subset", "s"), *groups, copy=False)


def sum_group_rows() -> exp.Expr:
    """The number of rows of a group of `subset_groups`."""
    return total(col(ROW_COUNT, "k"))


_ROWS_PER_STATEMENT = 2_000_000
"""Maximum number of rows grouped in one statement: sets of attributes times combinations."""

_MAX_SUBSETS = 1_000_000
"""Maximum number of sets of attributes."""

_EXAMPLE_COUNT = 3
"""The number of values of each attribute in a dry run."""


@dataclass(frozen=True)
class PackedCombinations:
    combinations: exp.Table
    numbers: tuple[exp.Table, ...]
    keys: exp.Table
    packing: Packing
    count: int  # number of combinations

    def batches(self, subsets: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
        """Split sets of attributes into batches that one statement may group."""
        step = max(1, _ROWS_PER_STATEMENT // max(1, self.count))
        for i in range(0, len(subsets), step):
            yield subsets[i : i + step]


def refuse_too_many(attributes: int, size: int, place: str) -> None:
    number = sum(comb(attributes, k) for k in range(1, min(size, attributes) + 1))
    if number > _MAX_SUBSETS:
        message = f"there are {number:,} sets of up to {size} of {attributes} attributes, but at most {_MAX_SUBSETS:,}"
        raise PolicyError([Problem(place, f"{message} are allowed: give a smaller size")])


def subsets_of_size(attributes: int, size: int) -> list[tuple[int, ...]]:
    return list(combinations(range(attributes), size))


def pack_combinations(
    runner: StatementRunner, work: Namer, source: exp.Table, columns: Sequence[str], singles_apart: bool
) -> PackedCombinations:
    """Create the tables of a source with one scan."""
    numbered = template("SELECT row_number() OVER () AS id, :values, row_count FROM :combinations AS g")
    query = numbered(values=quasi_columns(len(columns)), combinations=raw_frequency(source, columns))
    combination_rows = runner.create_table(work("packed_combinations"), query)
    numbers = tuple(
        runner.create_table(work(f"packed_values_{i}"), _value_numbers(combination_rows, i, singles_apart))
        for i in range(len(columns))
    )
    highest = fragment("(SELECT max(code) FROM :numbers)")
    query = exp.Select(expressions=[as_column(highest(numbers=codes), f"c{i}") for i, codes in enumerate(numbers)])
    (highest_codes,) = runner.fetch_rows(query, [(_EXAMPLE_COUNT,) * len(columns)])
    packing = assign_words([code or 0 for code in highest_codes])
    keys = runner.create_table(work("packed_keys"), _packed_keys(combination_rows, numbers, packing))
    return PackedCombinations(combination_rows, numbers, keys, packing, runner.count(keys, 1))
