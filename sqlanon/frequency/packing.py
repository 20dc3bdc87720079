"""Combinations of values in packed keys: made once, then grouped by many sets of attributes.

A value is a number, and several numbers are in one word. Then the combinations of any set of attributes are groups of
``word & mask``, and one statement counts those of many sets. A word has 63 bits; what does not fit into one goes into
the next.

Names of columns, all ours. In the combinations: ``id``, ``q0, q1, ...`` (values) and ``n`` (rows). In the numbers of an
attribute's values: ``value``, ``code``. In the packed keys: ``id``, ``w0, w1, ...`` and ``n``.
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
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import (
    Namer,
    aliased,
    cast,
    col,
    fragment,
    named,
    number,
    same,
    select,
    template,
    total,
)

WORD_BITS = 63
"""Of a word: the highest one of a BIGINT is its sign."""

ID = "id"
CODE = "code"
VALUE = "value"
SUBSET = "subset"
SIZE = "size"


@dataclass(frozen=True)
class Packing:
    """Where the numbers of each attribute's values are.

    >>> packing = assign_words([100, 1, 7])
    >>> packing.places, packing.masks([0, 2])
    (((0, 0, 7), (0, 7, 1), (0, 8, 3)), (1919,))
    """

    places: tuple[tuple[int, int, int], ...]  # of each attribute: the word, the first bit, and how many bits
    words: int

    def masks(self, subset: Iterable[int]) -> tuple[int, ...]:
        """The mask of each word that leaves these attributes."""
        masks = [0] * self.words
        for i in subset:
            word, first, bits = self.places[i]
            masks[word] |= ((1 << bits) - 1) << first
        return tuple(masks)


def assign_words(highest: Sequence[int]) -> Packing:
    """Put attributes into words, each into the first that has room."""
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


_NUMBERED = template("SELECT row_number() OVER () AS id, :values, n FROM :grouped AS g")
_CODES = template("SELECT :value AS value, (:code)::BIGINT AS code FROM :combinations GROUP BY :value")
_ANY_CODE = fragment("row_number() OVER ()")
_CODE_OF_SEVERAL = fragment("CASE WHEN sum(n) = 1 THEN 0 ELSE row_number() OVER (ORDER BY sum(n) = 1) END")
_HIGHEST = fragment("(SELECT max(code) FROM :numbers)")


def _value_numbers(combinations: exp.Table, attribute: int, singles_apart: bool) -> exp.Select:
    """A number for each value of an attribute, from 1 on; 0 of those of one row, where these are apart."""
    code = _CODE_OF_SEVERAL() if singles_apart else _ANY_CODE()
    return _CODES(value=col(f"q{attribute}"), code=code, combinations=combinations)


_KEYS = template("SELECT r.id, :words, r.n FROM :combinations AS r")


def _packed_keys(combinations: exp.Table, numbers: Sequence[exp.Table], packing: Packing) -> exp.Select:
    """The combinations as words."""
    bits: list[list[exp.Expr]] = [[] for _ in range(packing.words)]
    for i, (word, first, _) in enumerate(packing.places):
        bits[word].append(col(CODE, f"v{i}") * number(1 << first))
    words = [reduce(add, parts) if parts else number(0) for parts in bits]
    query = _KEYS(words=[named(word, f"w{j}") for j, word in enumerate(words)], combinations=combinations)
    for i, one in enumerate(numbers):
        on = same(col(f"q{i}", "r"), col(VALUE, f"v{i}"))
        query = query.join(aliased(one, f"v{i}"), on=on, copy=False)
    return query


def subset_groups(
    keys: exp.Table, packing: Packing, subsets: Mapping[int, Sequence[int]], output: Sequence[exp.Expr]
) -> exp.Select:
    """The groups of rows that agree in a set of attributes, for several sets at once."""
    rows = []
    for name, one in subsets.items():
        values = [cast(number(name), "BIGINT")]
        values += [cast(number(mask), "BIGINT") for mask in packing.masks(one)]
        rows.append(exp.Tuple(expressions=values))
    names = [SUBSET, *(f"m{j}" for j in range(packing.words))]
    alias = exp.TableAlias(this=exp.to_identifier("s", quoted=True), columns=[col(name).this for name in names])
    listed = exp.Values(expressions=rows, alias=alias)
    query = select([col(SUBSET, "s"), *output], aliased(keys, "k"))
    query = query.join(listed, join_type="cross", copy=False)
    groups = [exp.BitwiseAnd(this=col(f"w{j}", "k"), expression=col(f"m{j}", "s")) for j in range(packing.words)]
    return query.group_by(col(SUBSET, "s"), *groups, copy=False)


def sum_group_rows() -> exp.Expr:
    """The rows of a group of `subset_groups`."""
    return total(col(ROWS, "k"))


_AT_ONCE = 2_000_000
"""So many rows are grouped in one statement: sets of attributes times combinations."""

_MOST = 1_000_000
"""So many sets of attributes are looked at."""

_EXAMPLE = 3
"""Where statements are only shown: so many values each attribute has."""


@dataclass(frozen=True)
class PackedCombinations:
    """A table's combinations."""

    combinations: exp.Table
    numbers: tuple[exp.Table, ...]
    keys: exp.Table
    packing: Packing
    count: int  # how many combinations there are

    def batches(self, subsets: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
        """Sets of attributes, as many together as one statement may group."""
        step = max(1, _AT_ONCE // max(1, self.count))
        for i in range(0, len(subsets), step):
            yield subsets[i : i + step]


def refuse_too_many(attributes: int, size: int, place: str) -> None:
    """Refuse to look at more sets of attributes than can be looked at."""
    number = sum(comb(attributes, k) for k in range(1, min(size, attributes) + 1))
    if number > _MOST:
        message = f"there are {number:,} sets of up to {size} of {attributes} attributes, and {_MOST:,} is the most"
        raise PolicyError([Problem(place, f"{message}: ask for a smaller size")])


def subsets_of_size(attributes: int, size: int) -> list[tuple[int, ...]]:
    """The sets of so many of the attributes."""
    return list(combinations(range(attributes), size))


def pack_combinations(
    steps: StatementRunner, work: Namer, source: exp.Table, columns: Sequence[str], singles_apart: bool
) -> PackedCombinations:
    """Make the tables: one scan of the source."""
    grouped = _NUMBERED(values=quasi_columns(len(columns)), grouped=raw_frequency(source, columns))
    found = steps.make(work("packed_combinations"), grouped)
    numbers = tuple(
        steps.make(work(f"packed_values_{i}"), _value_numbers(found, i, singles_apart)) for i in range(len(columns))
    )
    highest = exp.Select(expressions=[named(_HIGHEST(numbers=one), f"c{i}") for i, one in enumerate(numbers)])
    packing = assign_words([most or 0 for most in steps.ask(highest, [(_EXAMPLE,) * len(columns)])[0]])
    keys = steps.make(work("packed_keys"), _packed_keys(found, numbers, packing))
    return PackedCombinations(found, numbers, keys, packing, steps.count(keys, 1))
