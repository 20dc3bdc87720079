"""Leakage: how much an attacker learns who learns the value of an attribute, or of several, of somebody.

Source: the entropy measure of the IAB's paper on anonymizing its data (Intelligent Anonymity Balance), after L.
Longpré: of n rows, the one that is looked for takes S0 = log2 n bits to find; once its class E_j over the attributes is
known, S_j = log2 |E_j|. The gain is the mean, Σ |E_j|/n (S0 − S_j), and normalized, by S0: 1 where the attributes tell
all rows apart, 0 where they tell nothing. (It is the entropy of the attributes' values in the table.)
The published examples cut digits off: 60 persons, 27 women and 33 men, give 0.9928 and 0.1681, in print 0.99 and 0.16.

Rows are counted here. `person_sets` counts persons, `priors` has rows that are not equally likely, `best_first` sets of
any size.

How many classes there are of each size, over any set of the quasi-identifiers, from one coding of the source. Each
value becomes a small integer first (its dictionary is counted anyway: it is the set of one attribute). What is
counted then is as small as it can be known to be:

- Where the distinct combinations are far fewer than the rows, they take the rows' place.
- The attributes with few values have a table of combinations of their own.
- A class of one row stays one, whatever attribute is added. So what is over a set that contains a nearly unique one is
  counted over the rows that share their combination there, and those are few; the others are known.
- A combination of three that has few groups is kept, for the pairs in it.
- Rows with a very frequent value of an attribute are counted by the other attributes alone.

Measured on 10 million rows of 8 attributes, nearly all distinct: benchmarks/README.md.

The dictionary of an attribute: one row a value (NULL is one), with ``code`` (0 of the most frequent one) and ``n``, its
rows. Coded rows: ``c0, c1, ...``, and ``n``. The sizes of a set of attributes: how many of its classes (``classes``)
have a number of rows (``n``). Other names of columns as in `frequency.statements` and `coding`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations as combinations_of
from math import prod
from typing import Any

from sqlglot import exp

from sqlanon.engines.limits import Limits
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    fragment,
    named,
    number,
    same,
    template,
    union_all,
)

LARGEST_KEY = 2**62
"""Codes are put together in one number up to here: it is quicker to group by than several columns."""


_ROWS = {True: fragment("sum(n)::BIGINT"), False: fragment("count(*)")}
"""The rows of a group: where they are counted already, and where each is one."""

_DICTIONARY = template("""
    SELECT value, n, (row_number() OVER (ORDER BY n DESC) - 1)::BIGINT AS code
    FROM (SELECT :key AS value, :count AS n FROM :rows GROUP BY :key) AS v
""")
_VALUES = fragment("(SELECT count(*) FROM :dictionary)")
_NULLS = fragment("(SELECT count(*) FILTER (WHERE value IS NULL) FROM :dictionary)")
_MOST_FREQUENT = fragment("(SELECT coalesce(max(n), 0) FROM :dictionary)")
_CODED = template("SELECT :codes, :count FROM :rows AS r")
_COMBINATIONS = template("""
    SELECT :keys, :count AS n
    FROM :rows
    GROUP BY :keys
""")
_TAKEN_APART = template("""
    SELECT :codes, n
    FROM (SELECT :key AS key, :count AS n FROM :rows GROUP BY :key) AS g
""")
_DIGIT = fragment("(key // :place) % :values")
_ROWS_OF = template("SELECT r.* FROM :rows AS r SEMI JOIN :shared AS s ON :same")
_ABOUT = template("SELECT approx_count_distinct(:hash) FROM :rows")
_SIZES = template("""
    SELECT n, count(*) AS classes
    FROM (SELECT :count AS n FROM :rows GROUP BY :keys) AS g
    GROUP BY n
""")
_SIZES_APART = template("""
    SELECT n, count(*) AS classes
    FROM (
        SELECT :count AS n FROM :rows WHERE :code = 0 GROUP BY :others
        UNION ALL
        SELECT :count AS n FROM :rows WHERE :code > 0 GROUP BY :keys
    ) AS g
    GROUP BY n
""")
_BY_SIZE = template("""
    SELECT n, count(*) AS classes
    FROM :groups
    GROUP BY n
""")
_WITH_SINGLES = template("""
    SELECT n, sum(classes)::BIGINT AS classes
    FROM (
        SELECT n, classes FROM :sizes AS c
        UNION ALL
        SELECT 1 AS n, :classes AS classes
    ) AS s
    GROUP BY n
""")
_LABELLED_SIZES = template("""
    SELECT :label AS label, :count AS n
    FROM :rows
    GROUP BY :keys
""")
_LABELLED = template("SELECT :label AS label, n FROM :groups")
_LABELLED_BY_SIZE = template("""
    SELECT label, n, count(*) AS classes
    FROM :groups AS g
    GROUP BY label, n
""")
_ONE_LABEL = template("SELECT 0 AS label, n, classes FROM :sizes AS c")
# Bits are added up as decimals: the sum does not depend on their order, and is the same on every run.
_SUMMARY = template("""
    SELECT
        label,
        sum(classes * n)::BIGINT AS rows,
        sum(classes)::BIGINT AS classes,
        coalesce(sum(classes) FILTER (WHERE n = 1)::BIGINT, 0) AS uniques,
        sum(CAST(classes::DOUBLE * (n::DOUBLE * :log2) AS DECIMAL(38, 18)))::DOUBLE AS bits
    FROM :sizes AS s
    GROUP BY label
""")
_NEXT_DIGIT = fragment("(:key * :values) + :code")
_ALL_ROWS = fragment("(SELECT coalesce(sum(n)::BIGINT, 0) FROM :dictionary)")


def code_columns(attributes: Sequence[int]) -> list[exp.Expr]:
    """The columns of some attributes' codes."""
    return [col(code_name(i)) for i in attributes]


def code_name(i: int) -> str:
    """The column of an attribute's codes."""
    return f"c{i}"


def coded(
    rows: exp.Expr, dictionaries: Sequence[exp.Table], values: Sequence[int], nullable: Sequence[bool], counted: bool
) -> exp.Select:
    """The rows with codes for values, each in the smallest type that holds them."""
    names = [f"d{i}" for i in range(len(dictionaries))]
    codes = [named(cast(col("code", name), _type_of(values[i])), code_name(i)) for i, name in enumerate(names)]
    query = _CODED(codes=codes, count=[col("n", "r")] if counted else [], rows=rows)
    for i, (name, one) in enumerate(zip(names, dictionaries, strict=True)):
        on = same(col(f"q{i}", "r"), col("value", name), nullable[i])
        query = query.join(aliased(one, name), on=on, copy=False)
    return query


def combinations(rows: exp.Expr, attributes: Sequence[int], counted: bool, shared: bool = False) -> exp.Select:
    """The distinct combinations of some attributes, with ``n``; only those that rows share."""
    count = _ROWS[counted]()
    query = _COMBINATIONS(keys=code_columns(attributes), count=count, rows=rows)
    return query.having(count > 1, copy=False) if shared else query


def _summary(sizes: exp.Select) -> exp.Select:
    """One row a label: ``label``, ``rows``, ``classes``, ``uniques``, ``bits`` = Σ n log2 n over classes."""
    return _SUMMARY(sizes=sizes, log2=anonymous("log2", cast(col("n"), "DOUBLE")))


def _keys(attributes: Sequence[int], values: Sequence[int]) -> list[exp.Expr]:
    """What tells the classes of some attributes apart: one number where it is small enough.

    The attribute with most values is its last digit: classes with frequent values of the others are close together.
    """
    largest = prod(values[i] for i in attributes)
    if largest > LARGEST_KEY or len(attributes) == 1:
        return code_columns(attributes)
    first, *others = _by_values(attributes, values)
    key: exp.Expr = cast(col(code_name(first)), "UINTEGER" if largest < 2**32 else "UBIGINT")
    for i in others:
        key = _NEXT_DIGIT(key=key, values=values[i], code=col(code_name(i)))
    return [key]


def _by_values(attributes: Sequence[int], values: Sequence[int]) -> list[int]:
    return sorted(attributes, key=lambda i: values[i])


def _combinations_by_key(rows: exp.Expr, attributes: Sequence[int], values: Sequence[int], counted: bool) -> exp.Select:
    """`combinations` of attributes whose codes fit into one number: it is quicker to group by."""
    # What is combined has fewer possible combinations than the table has rows: that is far below `LARGEST_KEY`.
    (key,), codes, place = _keys(attributes, values), list[exp.Expr](), 1
    for i in reversed(_by_values(attributes, values)):
        digit = _DIGIT(place=place, values=values[i])
        codes.append(named(cast(digit, _type_of(values[i])), code_name(i)))
        place *= values[i]
    return _TAKEN_APART(codes=codes, key=key, count=_ROWS[counted](), rows=rows)


def _type_of(values: int) -> str:
    return next(name for name, most in _TYPES.items() if values <= most)


_TYPES = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32, "UBIGINT": 2**64}


SMALL = 200_000
"""Up to this many rows are counted as they are, many sets in one statement: there is nothing to be saved."""

SETS_AT_ONCE = 64

DIRECT = 22
"""Groups of a key of at most this many bits are counted in place, without a hash table."""

MANY_GROUPS = 2**21
"""With more possible groups than this, rows with a very frequent value are counted apart."""

FREQUENT = 0.75
"""A value of more than this share of the rows is very frequent. These rows are grouped without its attribute, and few
are left for the second time that the table is read. (It was measured at a share of 0.89.)"""

LEAST_DIRECT, GROUP = 12, 32
"""DuckDB's own number of bits; the bytes of a group, generously."""

MANY = 2**40
"""Where statements are only shown, each attribute might have this many values."""

Attributes = tuple[int, ...]


@dataclass(frozen=True)
class SetFigures:
    """The classes of a set of attributes, those of one row, and the bits that it leaks."""

    attributes: Attributes
    classes: int
    uniques: int
    gain: float


@dataclass(frozen=True)
class _Counted:
    """Coded rows or combinations that sets of these attributes can be counted from; ``counted``: they have ``n``.

    They may be only the rows that share their combination of the set ``within``, and serve sets above it; the
    ``singles`` are the other rows, each alone in its class.
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

    gains_add_up = True

    def __init__(self, steps: StatementRunner, work: Namer, rows: exp.Expr, quasi: int, counted: bool) -> None:
        self.steps, self.work, self._all = steps, work, tuple(range(quasi))
        count = _ROWS[counted]()
        self.dictionaries = [
            steps.make(work(f"dictionary_{i}"), _DICTIONARY(key=col(f"q{i}"), count=count, rows=rows))
            for i in self._all
        ]
        output: list[exp.Expr] = []
        for i, one in enumerate(self.dictionaries):
            output += [named(_VALUES(dictionary=one), f"values_{i}"), named(_NULLS(dictionary=one), f"nulls_{i}")]
            output.append(named(_MOST_FREQUENT(dictionary=one), f"most_{i}"))
        output.append(named(_ALL_ROWS(dictionary=self.dictionaries[0]), "rows"))
        found = steps.figures(exp.Select(expressions=output))
        self._values = [int(found[f"values_{i}"]) for i in self._all]
        self._most_frequent = [int(found[f"most_{i}"]) for i in self._all]
        self._rows = int(found["rows"])
        self._nullable = [bool(found[f"nulls_{i}"]) for i in self._all]
        if steps.dry:  # what holds for all tables
            self._values, self._nullable = [MANY] * quasi, [True] * quasi
        table = steps.make(work("coded"), self.coded(rows, counted))
        self._tables = [_Counted(frozenset(self._all), table, steps.count(table), counted)]
        self.known: dict[Attributes, SetFigures] = {}
        self._shrink()

    def _shrink(self) -> None:
        """Let the distinct combinations take the rows' place where they are probably fewer."""
        base = self._tables[0]
        if base.rows > SMALL:
            # It decides how to count, and never a figure.
            query: exp.Query = _ABOUT(hash=anonymous("hash", *code_columns(self._all)), rows=base.table)
            ((about,),) = self.steps.ask(query, [(0,)])
            if about > base.rows // 2:
                return
        query = combinations(base.table, self._all, base.counted)
        table = self.steps.make(self.work("combinations"), query)
        self._tables = [_Counted(base.attributes, table, self.steps.count(table), True)]

    @cached_property
    def sizes(self) -> exp.Table:
        """The sizes of the classes that all quasi-identifiers together make: a table, ``n`` and ``classes``."""
        self._find_nearly_unique(self._all)
        source = self._smallest(self._all)
        if source.counted and not source.within:  # they are grouped already
            sizes = _BY_SIZE(groups=source.table)
        else:
            sizes = self._sizes_of(self._all, source)
        if source.singles:
            sizes = _WITH_SINGLES(sizes=sizes, classes=source.singles)
        return self.steps.make(self.work("sizes"), sizes)

    @property
    def whole(self) -> float:
        """The bits that it takes to find a row."""
        return math.log2(self._rows) if self._rows > 1 else 0.0

    @property
    def at_once(self) -> int:
        """At most this many sets are counted in one statement."""
        return SETS_AT_ONCE if self._tables[0].rows <= SMALL else 1

    def count_up_to(self, most: int) -> None:
        """Count all sets of up to ``most`` attributes."""
        wanted = attribute_sets(len(self._all), most)
        self._count_one_by_one()
        if self._tables[0].rows > SMALL:
            if most > 1:
                self._find_nearly_unique(range(len(self._all)), most)
            if most > 2:  # pairs come from triples
                self._combine_few_valued()
        self.count(wanted)

    def count(self, wanted: Sequence[Attributes]) -> None:
        """Count sets, as far as they are not known."""
        uncounted = [one for one in wanted if one not in self.known]
        self._keep(sorted(uncounted, key=lambda one: (-len(one), self._most(one))))

    def _count_one_by_one(self) -> None:
        sets = [_LABELLED(label=i, groups=table) for i, table in enumerate(self.dictionaries)]
        self._learn([(i,) for i in self._all], _LABELLED_BY_SIZE(groups=union_all(*sets)), [0] * len(sets))

    def _find_nearly_unique(self, among: Sequence[int], most: int = 3) -> None:
        """Count the pairs that may be nearly unique, and keep the rows that share their combination there."""
        base = self._tables[0]
        if base.rows <= SMALL:
            return
        pairs = sorted(combinations_of(among, 2), key=self._most, reverse=True)
        for pair in pairs:
            if self._most(pair) < 2 * base.rows or pair in self.known or most < 2:
                continue
            source = self._smallest(pair)
            if source.within:  # there are no more than these
                continue
            name = "_".join(map(str, pair))
            query = combinations(source.table, pair, source.counted, shared=True)
            shared = self.steps.make(self.work(f"shared_{name}"), query)
            answer = self.steps.ask(_summary(_ONE_LABEL(sizes=_BY_SIZE(groups=shared))), [])
            _, rows, classes, _, bits = answer[0] if answer else (0, 0, 0, 0, 0.0)
            singles = self._rows - rows
            self.known[pair] = SetFigures(pair, classes + singles, singles, compute_gain(bits, self._rows))
            if 2 * rows <= self._rows:
                on = all_of(col(code_name(i), "r").eq(col(code_name(i), "s")) for i in pair)
                query = _ROWS_OF(rows=source.table, shared=shared, same=on)
                few = self.steps.make(self.work(f"sharing_{name}"), query)
                size = self.steps.count(few)
                self._tables.append(_Counted(base.attributes, few, size, source.counted, frozenset(pair), singles))

    def _combine_few_valued(self) -> None:
        """Count the combinations of the attributes with few values together, for all sets of them."""
        base, few = self._tables[0], list[int]()
        for i in sorted(self._all, key=lambda i: self._values[i]):
            if prod(self._values[j] for j in (*few, i)) <= base.rows // 8:
                few.append(i)
        if len(few) > 1:
            self._combine(tuple(sorted(few)), base)

    def _combine(self, attributes: Attributes, source: _Counted) -> None:
        name = "_".join(map(str, attributes))
        query = _combinations_by_key(source.table, attributes, self._values, source.counted)
        table = self.steps.make(self.work(f"combinations_{name}"), query)
        self._tables.append(_Counted(frozenset(attributes), table, self.steps.count(table), True))

    def _keep(self, wanted: Sequence[Attributes]) -> None:
        """Count sets, small ones of a source in one statement."""
        by_table: dict[exp.Table, list[Attributes]] = {}
        for one in wanted:
            source = self._smallest(one)
            if source.rows > SMALL:
                if self._serves_pairs(one, source):
                    self._combine(one, source)
                source = self._smallest(one)
                self._learn([one], _ONE_LABEL(sizes=self._sizes_of(one, source)), [source.singles])
            else:
                by_table.setdefault(source.table, []).append(one)
        for sets in by_table.values():
            for batch in batches(sets, SETS_AT_ONCE):
                self._count(batch)

    def _serves_pairs(self, one: Attributes, source: _Counted) -> bool:
        """Whether a triple is worth to be kept: for a pair that nothing smaller serves."""
        few = self._most(one) <= source.rows // 4
        pairs = (pair for pair in combinations_of(one, 2) if pair not in self.known)
        return few and len(one) > 2 and any(self._smallest(pair).rows > source.rows // 4 for pair in pairs)

    def _count(self, sets: Sequence[Attributes]) -> None:
        sources = [self._smallest(one) for one in sets]
        queries = [
            _LABELLED_SIZES(label=i, count=_ROWS[source.counted](), rows=source.table, keys=self.keys(one))
            for i, (one, source) in enumerate(zip(sets, sources, strict=True))
        ]
        sizes = _LABELLED_BY_SIZE(groups=union_all(*queries))
        self._learn(sets, sizes, [source.singles for source in sources])

    def _sizes_of(self, one: Attributes, source: _Counted) -> exp.Select:
        """How many classes there are of each size: ``n``, ``classes``."""
        count, keys = _ROWS[source.counted](), self.keys(one)
        frequent = max(one, key=lambda i: self._most_frequent[i])
        is_frequent = self._most_frequent[frequent] > FREQUENT * self._rows
        # Pairs are mostly counted from triples that are kept, which have few rows.
        if len(one) < 3 or self._most(one) <= MANY_GROUPS or not is_frequent:
            return _SIZES(count=count, rows=source.table, keys=keys)
        others = self.keys([i for i in one if i != frequent])
        code = col(code_name(frequent))
        return _SIZES_APART(count=count, rows=source.table, keys=keys, code=code, others=others)

    def coded(self, rows: exp.Expr, counted: bool = False) -> exp.Select:
        """The codes of rows ``r`` of the source; with ``n``, if they are counted."""
        return coded(rows, self.dictionaries, self._values, self._nullable, counted)

    def keys(self, attributes: Sequence[int]) -> list[exp.Expr]:
        """What tells the classes of some attributes apart, in coded rows."""
        return _keys(attributes, self._values)

    @property
    def base(self) -> tuple[exp.Table, exp.Expr]:
        """The coded rows or combinations of all attributes, and how many rows one of them stands for."""
        base = self._tables[0]
        return base.table, col("n") if base.counted else number(1)

    def _learn(self, sets: Sequence[Attributes], sizes: exp.Select, singles: Sequence[int]) -> None:
        answers = {i: figures for i, _, *figures in self.steps.ask(_summary(sizes), [])}
        for i, one in enumerate(sets):
            classes, uniques, bits = answers.get(i, (0, 0, 0.0))  # of no rows there is nothing
            self.known[one] = SetFigures(
                one, classes + singles[i], uniques + singles[i], compute_gain(bits, self._rows)
            )

    def _smallest(self, wanted: Collection[int]) -> _Counted:
        return min((one for one in self._tables if one.serves(wanted)), key=lambda one: one.rows)

    def _most(self, attributes: Attributes) -> int:
        """The most classes that are possible."""
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


def attribute_sets(attributes: int, most: int) -> list[Attributes]:
    """All sets of up to ``most`` of some attributes, by their size and order."""
    return [one for size in range(1, most + 1) for one in combinations_of(range(attributes), size)]


def batches(sets: Sequence[Attributes], size: int) -> Iterator[Sequence[Attributes]]:
    """Sets, at most ``size`` at once."""
    for start in range(0, len(sets), size):
        yield sets[start : start + size]


@dataclass(frozen=True)
class Leakage:
    """What a set of attributes leaks.

    Attributes
    ----------
    attributes:
        Their names in the policy.
    gain:
        In bits.
    normalized:
        Its share of the bits that it takes to find a row, or person, 0 to 1; 0 in a table of one.
    classes, uniques:
        The classes that they make, and those of one row, or one person.
    """

    attributes: tuple[str, ...]
    gain: float
    normalized: float
    classes: int
    uniques: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**vars(self), "attributes": list(self.attributes)}


def compute_gain(bits: float, rows: int) -> float:
    """The gain, in bits.

    >>> round(leakage(27 * math.log2(27) + 33 * math.log2(33), 60), 4)
    0.9928
    """
    if rows < 2:
        return 0.0
    whole = math.log2(rows)
    return min(max(whole - bits / rows, 0.0), whole)


def rank_leakage(sets: Iterable[SetFigures], names: Sequence[str], whole: float) -> tuple[Leakage, ...]:
    """The leakages, highest first; of equal ones, the set of fewer attributes, then as the policy orders."""
    ordered = sorted(sets, key=lambda one: (-round(one.gain, DIGITS), len(one.attributes), one.attributes))
    return tuple(
        Leakage(
            tuple(names[i] for i in one.attributes),
            one.gain,
            one.gain / whole if whole else 0.0,
            one.classes,
            one.uniques,
        )
        for one in ordered
    )


DIGITS = 9
"""Gains that agree to this many decimals count as equal."""
