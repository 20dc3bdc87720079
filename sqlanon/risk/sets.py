"""How many classes there are of each size, over any set of the quasi-identifiers, from one coding of the source.

Each value becomes a small integer first (its dictionary is counted anyway: it is the set of one attribute). What is
counted then is as small as it can be known to be:

- Where the distinct combinations are far fewer than the rows, they take the rows' place.
- The attributes with few values have a table of combinations of their own.
- A class of one row stays one, whatever attribute is added. So what is over a set that contains a nearly unique one is
  counted over the rows that share their combination there, and those are few; the others are known.
- A combination of three that has few groups is kept, for the pairs in it.

Measured on 10 million rows of 8 attributes, nearly all distinct: benchmarks/README.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.engines.limits import Limits
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.expressions import Namer, col, select, total
from sqlanon.risk import leakage_statements as lk

SMALL = 200_000
"""So many rows are counted as they are, all sets in one statement: there is nothing to be saved."""

DIRECT = 22
"""Up to so many bits of a key its groups are counted in place, without a hash table."""

LEAST_DIRECT, GROUP = 12, 32
"""DuckDB's own number of bits; the bytes of a group, generously."""

MANY = 2**40
"""Where statements are only shown, each attribute might have so many values."""

Attributes = tuple[int, ...]


@dataclass(frozen=True)
class SetFigures:
    """The classes of a set of attributes.

    Attributes
    ----------
    attributes:
        Their numbers.
    classes, uniques:
        Classes, and those of one row.
    bits:
        Σ n log2 n over the classes, n their rows.
    """

    attributes: Attributes
    classes: int
    uniques: int
    bits: float


@dataclass(frozen=True)
class _Counted:
    """What sets can be counted from.

    Attributes
    ----------
    attributes:
        Those that it tells apart.
    table, rows:
        Coded rows or combinations, and how many.
    counted:
        Whether they have ``n``: else each is one row.
    within:
        The set whose shared combinations these are; what is over it can be counted from here. Empty: all rows.
    singles:
        The rows that are not among them: each is alone in its class.
    """

    attributes: frozenset[int]
    table: exp.Table
    rows: int
    counted: bool
    within: frozenset[int] = frozenset()
    singles: int = 0

    def serves(self, wanted: Collection[int]) -> bool:
        """Whether a set can be counted from here."""
        return self.within <= set(wanted) <= self.attributes


class AttributeSets:
    """The sets of a source's quasi-identifiers."""

    def __init__(self, steps: StatementRunner, work: Namer, rows: exp.Expr, quasi: int, counted: bool) -> None:
        self.steps, self.work, self._all = steps, work, tuple(range(quasi))
        self._dictionaries = [steps.make(work(f"dictionary_{i}"), lk.dictionary(rows, i, counted)) for i in self._all]
        found = steps.figures(lk.dictionary_sizes(self._dictionaries))
        self._values = [int(found[f"values_{i}"]) for i in self._all]
        nullable = [bool(found[f"nulls_{i}"]) for i in self._all]
        if steps.shown is not None:  # what holds for all tables
            self._values, nullable = [MANY] * quasi, [True] * quasi
        query = lk.coded(rows, self._dictionaries, self._values, nullable, counted)
        coded = steps.make(work("coded"), query)
        self._made = [_Counted(frozenset(self._all), coded, steps.count(coded), counted)]
        self._known: dict[Attributes, SetFigures] = {}
        self._shrink()

    def _shrink(self) -> None:
        """Let the distinct combinations take the rows' place where they are probably fewer."""
        base = self._made[0]
        if base.rows > SMALL:
            ((about,),) = self.steps.ask(lk.about_combinations(base.table.copy(), self._all), [(0,)])
            if about > base.rows // 2:
                return
        query = lk.combinations(base.table, self._all, base.counted)
        table = self.steps.make(self.work("combinations"), query)
        self._made = [_Counted(base.attributes, table, self.steps.count(table), True)]

    @cached_property
    def sizes(self) -> exp.Table:
        """The sizes of the classes that all quasi-identifiers together make: a table, ``n`` and ``classes``."""
        self._find_nearly_unique(self._all)
        source = self._smallest(self._all)
        if source.counted and not source.within:  # they are grouped already
            query: exp.Query = lk.by_size(source.table.copy())
        else:
            query = lk.sizes_of(source.table, self._all, self._values, source.counted)
        return self.steps.make(self.work("sizes"), lk.with_singles(query, source.singles))

    def figures(self, most: int) -> list[SetFigures]:
        """Of all sets of up to so many attributes, by the number of attributes and their order."""
        wanted = [one for size in range(1, most + 1) for one in combinations(self._all, size)]
        self._count_one_by_one()
        if self._made[0].rows > SMALL:
            if most > 1:
                self._find_nearly_unique(range(len(self._all)), most)
            if most > 2:  # pairs come from triples
                self._combine_few_valued()
        uncounted = [one for one in wanted if one not in self._known]
        self._keep(sorted(uncounted, key=lambda one: (-len(one), self._most(one))))
        return [self._known[one] for one in wanted]

    def _count_one_by_one(self) -> None:
        sets = [lk.labelled(table.copy(), i) for i, table in enumerate(self._dictionaries)]
        self._learn([(i,) for i in self._all], lk.summaries(sets), [0] * len(sets))

    def _find_nearly_unique(self, among: Sequence[int], most: int = 3) -> None:
        """Count the pairs that may be nearly unique, and keep the rows that share their combination there."""
        base = self._made[0]
        if base.rows <= SMALL:
            return
        pairs = sorted(combinations(among, 2), key=self._most, reverse=True)
        for pair in pairs:
            if self._most(pair) < 2 * base.rows or pair in self._known or most < 2:
                continue
            source = self._smallest(pair)
            if source.within:  # there are no more than these
                continue
            name = "_".join(map(str, pair))
            query = lk.combinations(source.table, pair, source.counted, shared=True)
            shared = self.steps.make(self.work(f"shared_{name}"), query)
            answer = self.steps.ask(lk.summary(lk.by_size(shared.copy())), [])
            _, rows, classes, _, bits = answer[0] if answer else (0, 0, 0, 0, 0.0)
            singles = self._rows_of(base) - rows
            self._known[pair] = SetFigures(pair, classes + singles, singles, bits)
            if 2 * rows <= self._rows_of(base):
                few = self.steps.make(self.work(f"sharing_{name}"), lk.rows_of(source.table, shared, pair))
                size = self.steps.count(few)
                self._made.append(_Counted(base.attributes, few, size, source.counted, frozenset(pair), singles))

    def _rows_of(self, base: _Counted) -> int:
        """The rows of the source."""
        if not base.counted:
            return base.rows
        return int(self.steps.ask(select([total(col(ROWS))], base.table.copy()), [(0,)])[0][0] or 0)

    def _combine_few_valued(self) -> None:
        """Count the combinations of the attributes with few values together, for all sets of them."""
        base, few = self._made[0], list[int]()
        for i in sorted(self._all, key=lambda i: self._values[i]):
            if prod(self._values[j] for j in (*few, i)) <= base.rows // 8:
                few.append(i)
        if len(few) > 1:
            self._combine(tuple(sorted(few)), base)

    def _combine(self, attributes: Attributes, source: _Counted) -> None:
        name = "_".join(map(str, attributes))
        table = self.steps.make(
            self.work(f"combinations_{name}"), lk.combinations(source.table, attributes, source.counted)
        )
        self._made.append(_Counted(frozenset(attributes), table, self.steps.count(table), True))

    def _keep(self, wanted: Sequence[Attributes]) -> None:
        """Count sets, small ones of a source together."""
        together: dict[exp.Table, list[Attributes]] = {}
        for one in wanted:
            source = self._smallest(one)
            if source.rows > SMALL:
                if self._serves_pairs(one, source):
                    self._combine(one, source)
                source = self._smallest(one)
                sizes = lk.sizes_of(source.table, one, self._values, source.counted)
                self._learn([one], lk.summary(sizes), [source.singles])
            else:
                together.setdefault(source.table, []).append(one)
        for sets in together.values():
            for batch in _batches(sets, 64):
                self._count(batch)

    def _serves_pairs(self, one: Attributes, source: _Counted) -> bool:
        """Whether a triple is worth to be kept: for a pair that nothing smaller serves."""
        few = self._most(one) <= source.rows // 4
        pairs = (pair for pair in combinations(one, 2) if pair not in self._known)
        return few and len(one) > 2 and any(self._smallest(pair).rows > source.rows // 4 for pair in pairs)

    def _count(self, sets: Sequence[Attributes]) -> None:
        sources = [self._smallest(one) for one in sets]
        queries = []
        for i, (one, source) in enumerate(zip(sets, sources, strict=True)):
            queries.append(lk.labelled_sizes(source.table, one, self._values, source.counted, i))
        self._learn(sets, lk.summaries(queries), [source.singles for source in sources])

    def _learn(self, sets: Sequence[Attributes], query: exp.Select, singles: Sequence[int]) -> None:
        answers = {i: figures for i, _, *figures in self.steps.ask(query, [])}
        for i, one in enumerate(sets):
            classes, uniques, bits = answers.get(i, (0, 0, 0.0))  # of no rows there is nothing
            self._known[one] = SetFigures(one, classes + singles[i], uniques + singles[i], bits)

    def _smallest(self, wanted: Collection[int]) -> _Counted:
        return min((one for one in self._made if one.serves(wanted)), key=lambda one: one.rows)

    def _most(self, attributes: Attributes) -> int:
        """So many classes are possible."""
        return prod(self._values[i] for i in attributes)


def direct_bits(limits: Limits, rows: int) -> int:
    """The bits of the largest key whose groups are counted in place.

    Each thread has the groups for itself; what all take may be an eighth of the memory. There is a place for every
    group that is possible: many more than rows do not pay.

    >>> [direct_bits(Limits(m, 2), rows) for m, rows in [("8.0 GiB", 10**7), ("95.3 MiB", 10**7), (None, 10**6)]]
    [22, 17, 19]
    """
    largest = max(LEAST_DIRECT, min(DIRECT, rows.bit_length() - 1))
    if limits.memory_limit is None:
        return largest
    amount, _, unit = limits.memory_limit.partition(" ")
    memory = float(amount) * _UNITS.get(unit, 1)
    most = memory / 8 / (max(1, limits.threads or 1) * GROUP)
    return max(LEAST_DIRECT, min(largest, int(most).bit_length() - 1))


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _batches(sets: Sequence[Attributes], size: int) -> Iterator[Sequence[Attributes]]:
    for start in range(0, len(sets), size):
        yield sets[start : start + size]
