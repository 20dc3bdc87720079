"""Leakage: the information that an attacker gains from the values of one or several attributes of somebody.

Source: the entropy measure of the IAB's paper on anonymizing its data (Intelligent Anonymity Balance), after L.
Longpré: finding one of n rows takes S0 = log2 n bits; once its class E_j over the attributes is known, S_j = log2
|E_j|. The gain is the mean, Σ |E_j|/n (S0 − S_j), and normalized by S0: 1 if the attributes distinguish all rows, 0 if
they distinguish none. (It is the entropy of the attributes' values in the table.) The published examples truncate
digits: 60 persons, 27 women and 33 men, give 0.9928 and 0.1681, in print 0.99 and 0.16.

This module counts rows. `person_sets` counts persons, `priors` rows that are not equally likely, and `leakage_search`
searches sets of any size.

The classes of each size are counted for sets of quasi-identifiers, from one coding of the source: each value becomes a
small integer (the dictionary of its attribute is needed anyway: it is the set of one attribute). As few rows as
possible are grouped:

- If the distinct combinations are far fewer than the rows, they replace the rows.
- The attributes with few values get a table of their combinations.
- A class of one row remains one, whatever attribute is added. So a set that contains a nearly unique pair is counted
  over the few rows that share their combination of the pair.
- Triples with few groups are stored, for the pairs in them.
- Rows with a very frequent value of an attribute are grouped by the other attributes alone.

Measured on 10 million rows of 8 attributes, nearly all distinct: benchmarks/README.md.

The dictionary of an attribute has one row for each value (NULL is one), with ``code`` (0 for the most frequent one) and
``row_count``, its rows. Coded rows have ``c0, c1, ...``, and ``row_count``. The sizes of a set of attributes are the
number of its classes (``classes``) by their number of rows (``row_count``). Other names of columns are those of
`frequency.statements` and `coding`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

from sqlglot import exp

from sqlanon.engines.limits import Limits
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.support.coding import quasi_column
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    count_rows,
    fragment,
    null_safe_equal,
    number,
    template,
    union_all,
)

MAX_KEY = 2**62
"""Largest number that codes are combined to: grouping by one number is quicker than by several columns."""

SMALL = 200_000
"""Up to this number of rows, many sets are counted in one statement, without intermediate tables."""

SETS_PER_STATEMENT = 64

DIRECT = 22
"""Groups of a key of at most this number of bits are addressed directly, without a hash table."""

MANY_GROUPS = 2**21
"""If more groups than this are possible, rows with a very frequent value are counted separately."""

FREQUENT = 0.75
"""A value of more than this share of the rows is very frequent. These rows are grouped without its attribute, and few
rows remain for the second scan of the table. (Measured at a share of 0.89.)"""

LEAST_DIRECT, GROUP = 12, 32
"""The default number of bits in DuckDB; a generous size of a group in bytes."""

EXAMPLE_DISTINCT_VALUES = 2**40
"""Number of values assumed for each attribute in a dry run."""

DIGITS = 9
"""Gains that agree to this number of decimals count as equal."""

Attributes = tuple[int, ...]

_ROW_COUNT = {True: fragment("sum(row_count)::BIGINT"), False: count_rows}
"""The rows of a group, by whether the grouped rows have a ``row_count``."""

_DICTIONARY = template("""
    SELECT value, row_count, (row_number() OVER (ORDER BY row_count DESC) - 1)::BIGINT AS code
    FROM (SELECT :key AS value, :count AS row_count FROM :rows GROUP BY :key) AS v
""")
_SIZES_OF_GROUPS = template("""
    SELECT row_count, count(*) AS classes
    FROM :groups
    GROUP BY row_count
""")
_LABELLED_SIZES = template("""
    SELECT label, row_count, count(*) AS classes
    FROM :groups AS g
    GROUP BY label, row_count
""")
_SINGLE_LABEL = template("SELECT 0 AS label, row_count, classes FROM :sizes AS c")

_TYPES = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32, "UBIGINT": 2**64}
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True)
class Leakage:
    """The leakage of a set of attributes.

    Attributes
    ----------
    attributes:
        Their names in the policy.
    gain:
        In bits.
    normalized:
        Its share of the bits that it takes to find a row, or person, 0 to 1; 0 in a table of one.
    classes, uniques:
        The classes of the set, and the classes of one row, or one person.
    """

    attributes: tuple[str, ...]
    gain: float
    normalized: float
    classes: int
    uniques: int

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON."""
        return {**vars(self), "attributes": list(self.attributes)}


@dataclass(frozen=True)
class SetFigures:
    """The number of classes of a set of attributes, of classes of one row, and of the bits that the set leaks."""

    attributes: Attributes
    classes: int
    uniques: int
    gain: float


@dataclass(frozen=True)
class _CodedTable:
    """Coded rows or combinations to count sets of these attributes from, with ``row_count`` if it ``has_counts``.

    A table ``within`` a set has only the rows that share their combination of that set, and serves sets that contain
    it; the ``singles`` are the further rows, each alone in its class.
    """

    attributes: frozenset[int]
    table: exp.Table
    rows: int
    has_counts: bool
    within: frozenset[int] = frozenset()
    singles: int = 0

    def serves(self, attributes: Collection[int]) -> bool:
        """Whether a set can be counted from this table."""
        return self.within <= set(attributes) <= self.attributes


class CountedSets:
    """Figures of sets of a source's quasi-identifiers, counted on request."""

    whole: float
    """The bits that it takes to find a row, or a person."""
    gains_add_up = True
    """Whether a set leaks at most the sum of its attributes alone."""

    def __init__(self, runner: StatementRunner, attributes: int) -> None:
        self.runner, self._all = runner, tuple(range(attributes))
        self.figures = dict[Attributes, SetFigures]()

    @property
    def row_count(self) -> int:
        """The number of rows that sets are counted from."""
        raise NotImplementedError

    @property
    def sets_per_statement(self) -> int:
        """The number of sets that are counted in one statement."""
        return SETS_PER_STATEMENT if self.row_count <= SMALL else 1

    def count_up_to(self, size: int) -> None:
        """Count all sets of up to ``size`` attributes."""
        self.count([subset for length in range(1, size + 1) for subset in combinations(self._all, length)])

    def count(self, sets: Sequence[Attributes]) -> None:
        """Count the sets that have no figures yet."""
        raise NotImplementedError


class AttributeSets(CountedSets):
    """Sets of quasi-identifiers counted in rows."""

    def __init__(self, runner: StatementRunner, work: Namer, rows: exp.Expr, quasi: int, has_counts: bool) -> None:
        super().__init__(runner, quasi)
        self.work = work
        count = _ROW_COUNT[has_counts]()
        self.dictionaries = [
            runner.create_table(work(f"dictionary_{i}"), _DICTIONARY(key=col(quasi_column(i)), count=count, rows=rows))
            for i in self._all
        ]
        figures = [
            template("""
                SELECT
                    :attribute AS attribute,
                    count(*) AS value_count,
                    count(*) FILTER (WHERE value IS NULL) AS null_count,
                    coalesce(max(row_count), 0)::BIGINT AS most_frequent,
                    coalesce(sum(row_count)::BIGINT, 0) AS row_count
                FROM :dictionary
            """)(attribute=i, dictionary=dictionary)
            for i, dictionary in enumerate(self.dictionaries)
        ]
        dictionary_figures = sorted(runner.fetch_rows(union_all(*figures), [(i, 0, 0, 0, 0) for i in self._all]))
        self._values = [value_count for _, value_count, *_ in dictionary_figures]
        self._nullable = [null_count > 0 for _, _, null_count, *_ in dictionary_figures]
        self._most_frequent = [most_frequent for *_, most_frequent, _ in dictionary_figures]
        self._rows = dictionary_figures[0][-1]
        self.whole = math.log2(self._rows) if self._rows > 1 else 0.0
        if runner.dry:  # a dry run has no figures: assume the most general statements
            self._values, self._nullable = [EXAMPLE_DISTINCT_VALUES] * quasi, [True] * quasi
        table = runner.create_table(work("coded"), self.coded_rows(rows, has_counts))
        self._tables = [_CodedTable(frozenset(self._all), table, runner.count(table), has_counts)]
        self._replace_rows_by_combinations()

    def _replace_rows_by_combinations(self) -> None:
        """Replace the rows by their distinct combinations, if these are probably fewer."""
        base = self._tables[0]
        if base.rows > SMALL:
            # The approximate count only chooses how to count: no figure depends on it.
            hash_ = anonymous("hash", *code_columns(self._all))
            query: exp.Query = template("SELECT approx_count_distinct(:hash) FROM :rows")(hash=hash_, rows=base.table)
            ((combinations,),) = self.runner.fetch_rows(query, [(0,)])
            if combinations > base.rows // 2:
                return
        query = _distinct_combinations(base.table, self._all, base.has_counts)
        table = self.runner.create_table(self.work("combinations"), query)
        self._tables = [_CodedTable(base.attributes, table, self.runner.count(table), True)]

    @cached_property
    def sizes(self) -> exp.Table:
        """The sizes of the classes of all quasi-identifiers together: a table, ``row_count`` and ``classes``."""
        self._find_nearly_unique(self._all)
        source = self._smallest_table(self._all)
        if source.has_counts and not source.within:  # they are grouped already
            sizes = _SIZES_OF_GROUPS(groups=source.table)
        else:
            sizes = self._sizes_query(self._all, source)
        if source.singles:
            sizes = template("""
                SELECT row_count, sum(classes)::BIGINT AS classes
                FROM (
                    SELECT row_count, classes FROM :sizes AS c
                    UNION ALL
                    SELECT 1 AS row_count, :singles AS classes
                ) AS s
                GROUP BY row_count
            """)(sizes=sizes, singles=source.singles)
        return self.runner.create_table(self.work("sizes"), sizes)

    @property
    def row_count(self) -> int:
        """The number of rows that sets are counted from."""
        return self._tables[0].rows

    def count_up_to(self, size: int) -> None:
        """Count all sets of up to ``size`` attributes."""
        groups = [
            template("SELECT :label AS label, row_count FROM :dictionary")(label=i, dictionary=table)
            for i, table in enumerate(self.dictionaries)
        ]
        self._count_sizes([(i,) for i in self._all], _LABELLED_SIZES(groups=union_all(*groups)), [0] * len(groups))
        if self.row_count > SMALL:
            if size > 1:
                self._find_nearly_unique(range(len(self._all)), size)
            if size > 2:  # pairs are counted from triples
                self._combine_few_valued()
        super().count_up_to(size)

    def count(self, sets: Sequence[Attributes]) -> None:
        """Count the sets that have no figures yet, small ones of a table in one statement."""
        uncounted = [attributes for attributes in sets if attributes not in self.figures]
        by_table: dict[exp.Table, list[Attributes]] = {}
        for attributes in sorted(uncounted, key=lambda attributes: (-len(attributes), self._max_classes(attributes))):
            source = self._smallest_table(attributes)
            if source.rows <= SMALL:
                by_table.setdefault(source.table, []).append(attributes)
                continue
            if self._serves_pairs(attributes, source):
                self._combine(attributes, source)
            source = self._smallest_table(attributes)
            sizes = _SINGLE_LABEL(sizes=self._sizes_query(attributes, source))
            self._count_sizes([attributes], sizes, [source.singles])
        for sets_of_table in by_table.values():
            for batch in batches(sets_of_table, SETS_PER_STATEMENT):
                self._count_batch(batch)

    def _find_nearly_unique(self, among: Sequence[int], size: int = 3) -> None:
        """Count the pairs that may be nearly unique, and store the rows that share their combination of the pair."""
        base = self._tables[0]
        if base.rows <= SMALL:
            return
        pairs = sorted(combinations(among, 2), key=self._max_classes, reverse=True)
        for pair in pairs:
            if self._max_classes(pair) < 2 * base.rows or pair in self.figures or size < 2:
                continue
            source = self._smallest_table(pair)
            if source.within:  # the rows that share this pair are stored already
                continue
            name = "_".join(map(str, pair))
            query = _distinct_combinations(source.table, pair, source.has_counts, shared=True)
            shared = self.runner.create_table(self.work(f"shared_{name}"), query)
            summary = self.runner.fetch_rows(_summary(_SINGLE_LABEL(sizes=_SIZES_OF_GROUPS(groups=shared))), [])
            _, rows, classes, _, bits = summary[0] if summary else (0, 0, 0, 0, 0.0)
            singles = self._rows - rows
            self.figures[pair] = SetFigures(pair, classes + singles, singles, compute_gain(bits, self._rows))
            if 2 * rows <= self._rows:
                on = all_of(col(code_name(i), "r").eq(col(code_name(i), "s")) for i in pair)
                query = template("SELECT r.* FROM :rows AS r SEMI JOIN :shared AS s ON :same")(
                    rows=source.table, shared=shared, same=on
                )
                table = self.runner.create_table(self.work(f"sharing_{name}"), query)
                row_count = self.runner.count(table)
                self._tables.append(
                    _CodedTable(base.attributes, table, row_count, source.has_counts, frozenset(pair), singles)
                )

    def _combine_few_valued(self) -> None:
        """Store the combinations of the attributes with few values, for all sets of them."""
        base, few = self._tables[0], list[int]()
        for i in sorted(self._all, key=lambda i: self._values[i]):
            if prod(self._values[j] for j in (*few, i)) <= base.rows // 8:
                few.append(i)
        if len(few) > 1:
            self._combine(tuple(sorted(few)), base)

    def _combine(self, attributes: Attributes, source: _CodedTable) -> None:
        """Store the combinations of attributes whose codes fit into one number: it is quicker to group by."""
        # Combined attributes have fewer possible combinations than the table has rows: far below `MAX_KEY`.
        (key,), codes, place_value = self.keys(attributes), list[exp.Expr](), 1
        by_values = sorted(attributes, key=lambda i: self._values[i])
        for i in reversed(by_values):
            digit = fragment("(key // :place_value) % :values")(place_value=place_value, values=self._values[i])
            codes.append(as_column(cast(digit, _code_type(self._values[i])), code_name(i)))
            place_value *= self._values[i]
        query = template("""
            SELECT :codes, row_count
            FROM (SELECT :key AS key, :count AS row_count FROM :rows GROUP BY :key) AS g
        """)(codes=codes, key=key, count=_ROW_COUNT[source.has_counts](), rows=source.table)
        name = "_".join(map(str, attributes))
        table = self.runner.create_table(self.work(f"combinations_{name}"), query)
        self._tables.append(_CodedTable(frozenset(attributes), table, self.runner.count(table), True))

    def _serves_pairs(self, attributes: Attributes, source: _CodedTable) -> bool:
        """Whether a triple is worth storing: for a pair that no smaller table serves."""
        few = self._max_classes(attributes) <= source.rows // 4
        pairs = (pair for pair in combinations(attributes, 2) if pair not in self.figures)
        return few and len(attributes) > 2 and any(self._smallest_table(pair).rows > source.rows // 4 for pair in pairs)

    def _count_batch(self, sets: Sequence[Attributes]) -> None:
        sources = [self._smallest_table(attributes) for attributes in sets]
        groups = [
            template("SELECT :label AS label, :count AS row_count FROM :rows GROUP BY :keys")(
                label=i, count=_ROW_COUNT[source.has_counts](), rows=source.table, keys=self.keys(attributes)
            )
            for i, (attributes, source) in enumerate(zip(sets, sources, strict=True))
        ]
        sizes = _LABELLED_SIZES(groups=union_all(*groups))
        self._count_sizes(sets, sizes, [source.singles for source in sources])

    def _sizes_query(self, attributes: Attributes, source: _CodedTable) -> exp.Select:
        """The query for the number of classes of each size: ``row_count``, ``classes``."""
        count, keys = _ROW_COUNT[source.has_counts](), self.keys(attributes)
        frequent = max(attributes, key=lambda i: self._most_frequent[i])
        is_frequent = self._most_frequent[frequent] > FREQUENT * self._rows
        # Pairs are mostly counted from stored triples, which have few rows.
        if len(attributes) < 3 or self._max_classes(attributes) <= MANY_GROUPS or not is_frequent:
            return template("""
                SELECT row_count, count(*) AS classes
                FROM (SELECT :count AS row_count FROM :rows GROUP BY :keys) AS g
                GROUP BY row_count
            """)(count=count, rows=source.table, keys=keys)
        return template("""
            SELECT row_count, count(*) AS classes
            FROM (
                SELECT :count AS row_count FROM :rows WHERE :code = 0 GROUP BY :further_keys
                UNION ALL
                SELECT :count AS row_count FROM :rows WHERE :code > 0 GROUP BY :keys
            ) AS g
            GROUP BY row_count
        """)(
            count=count,
            rows=source.table,
            keys=keys,
            code=col(code_name(frequent)),
            further_keys=self.keys([i for i in attributes if i != frequent]),
        )

    def coded_rows(self, rows: exp.Expr, has_counts: bool = False) -> exp.Select:
        """Rows ``r`` of the source with codes in the smallest types, and with ``row_count``, if they have counts."""
        names = [f"d{i}" for i in self._all]
        codes = [
            as_column(cast(col("code", name), _code_type(self._values[i])), code_name(i))
            for i, name in enumerate(names)
        ]
        query = template("SELECT :codes, :count FROM :rows AS r")(
            codes=codes, count=[col("row_count", "r")] if has_counts else [], rows=rows
        )
        for i, (name, dictionary) in enumerate(zip(names, self.dictionaries, strict=True)):
            on = null_safe_equal(col(quasi_column(i), "r"), col("value", name), self._nullable[i])
            query = query.join(aliased(dictionary, name), on=on, copy=False)
        return query

    def keys(self, attributes: Sequence[int]) -> list[exp.Expr]:
        """The keys of the classes of some attributes in coded rows: one number if it is small enough.

        The attribute with most values is its last digit: classes with frequent values of the others are close together.
        """
        largest = prod(self._values[i] for i in attributes)
        if largest > MAX_KEY or len(attributes) == 1:
            return code_columns(attributes)
        first, *following = sorted(attributes, key=lambda i: self._values[i])
        key: exp.Expr = cast(col(code_name(first)), "UINTEGER" if largest < 2**32 else "UBIGINT")
        for i in following:
            key = fragment("(:key * :values) + :code")(key=key, values=self._values[i], code=col(code_name(i)))
        return [key]

    @property
    def base(self) -> tuple[exp.Table, exp.Expr]:
        """The coded rows or combinations of all attributes, and the number of rows that one of them stands for."""
        base = self._tables[0]
        return base.table, col("row_count") if base.has_counts else number(1)

    def _count_sizes(self, sets: Sequence[Attributes], sizes: exp.Select, singles: Sequence[int]) -> None:
        summaries = {i: figures for i, _, *figures in self.runner.fetch_rows(_summary(sizes), [])}
        for i, attributes in enumerate(sets):
            classes, uniques, bits = summaries.get(i, (0, 0, 0.0))  # an empty table has no groups
            gain = compute_gain(bits, self._rows)
            self.figures[attributes] = SetFigures(attributes, classes + singles[i], uniques + singles[i], gain)

    def _smallest_table(self, attributes: Collection[int]) -> _CodedTable:
        return min((table for table in self._tables if table.serves(attributes)), key=lambda table: table.rows)

    def _max_classes(self, attributes: Attributes) -> int:
        return prod(self._values[i] for i in attributes)


class TableSets(CountedSets):
    """Sets of quasi-identifiers counted from one coded table.

    ``groups`` is the query for the classes of a set, ``figures`` the one for ``label``, ``classes``, ``uniques`` and
    the bits of several sets, from which ``gain`` follows.
    """

    def __init__(
        self, sets: AttributeSets, table: exp.Table, whole: float, groups: Callable[..., exp.Select],
        figures: Callable[..., exp.Select], gain: Callable[[float], float],
    ) -> None:  # fmt: skip
        super().__init__(sets.runner, len(sets.dictionaries))
        self.table, self.whole = table, whole
        self._keys, self._groups_query, self._figures_query, self._gain = sets.keys, groups, figures, gain

    @cached_property
    def row_count(self) -> int:
        """The number of rows that sets are counted from."""
        return self.runner.count(self.table)

    def count(self, sets: Sequence[Attributes]) -> None:
        """Count the sets that have no figures yet."""
        for batch in batches(
            [attributes for attributes in sets if attributes not in self.figures], self.sets_per_statement
        ):
            groups = [
                self._groups_query(label=i, rows=self.table, keys=self._keys(attributes))
                for i, attributes in enumerate(batch)
            ]
            query = self._figures_query(groups=union_all(*groups))
            figures_by_label = {label: figures for label, *figures in self.runner.fetch_rows(query, [])}
            for i, attributes in enumerate(batch):
                classes, uniques, bits = figures_by_label.get(i, (0, 0, 0.0))
                self.figures[attributes] = SetFigures(attributes, classes, uniques, self._gain(bits))


def log2(column: str) -> exp.Expr:
    """The binary logarithm of a column."""
    return anonymous("log2", cast(col(column), "DOUBLE"))


def code_columns(attributes: Sequence[int]) -> list[exp.Expr]:
    """The columns with the codes of some attributes."""
    return [col(code_name(i)) for i in attributes]


def code_name(i: int) -> str:
    """The column with the codes of an attribute."""
    return f"c{i}"


def _code_type(values: int) -> str:
    return next(name for name, limit in _TYPES.items() if values <= limit)


def _distinct_combinations(
    rows: exp.Expr, attributes: Sequence[int], has_counts: bool, shared: bool = False
) -> exp.Select:
    """The distinct combinations of some attributes, with ``row_count``; with ``shared``, only those of several rows."""
    count = _ROW_COUNT[has_counts]()
    query = template("SELECT :keys, :count AS row_count FROM :rows GROUP BY :keys")(
        keys=code_columns(attributes), count=count, rows=rows
    )
    return query.having(count > 1, copy=False) if shared else query


def _summary(sizes: exp.Select) -> exp.Select:
    """One row for each label: ``label``, ``rows``, ``classes``, ``uniques``, ``bits`` = Σ n log2 n over classes."""
    # Bits are added up as decimals: the sum does not depend on the order of rows, and is the same on every run.
    return template("""
        SELECT
            label,
            sum(classes * row_count)::BIGINT AS rows,
            sum(classes)::BIGINT AS classes,
            coalesce(sum(classes) FILTER (WHERE row_count = 1)::BIGINT, 0) AS uniques,
            sum(CAST(classes::DOUBLE * (row_count::DOUBLE * :log2) AS DECIMAL(38, 18)))::DOUBLE AS bits
        FROM :sizes AS s
        GROUP BY label
    """)(sizes=sizes, log2=log2("row_count"))


def direct_bits(limits: Limits, rows: int) -> int:
    """The bits of the largest key whose groups are addressed directly.

    Each thread has its own groups; all together may take an eighth of the memory. Every possible group takes memory, so
    many more than the rows do not pay.

    >>> [direct_bits(Limits(m, 2), rows) for m, rows in [("8.0 GiB", 10**7), ("95.3 MiB", 10**7), (None, 10**6)]]
    [22, 17, 19]
    """
    largest = max(LEAST_DIRECT, min(DIRECT, rows.bit_length() - 1))
    if limits.memory_limit is None:
        return largest
    amount, _, unit = limits.memory_limit.partition(" ")
    memory = float(amount) * _UNITS.get(unit, 1)
    groups = memory / 8 / (max(1, limits.threads or 1) * GROUP)
    return max(LEAST_DIRECT, min(largest, int(groups).bit_length() - 1))


def batches(sets: Sequence[Attributes], size: int) -> Iterator[Sequence[Attributes]]:
    """Split sets into batches of at most ``size``."""
    for start in range(0, len(sets), size):
        yield sets[start : start + size]


def compute_gain(bits: float, rows: int) -> float:
    """The gain, in bits.

    >>> round(compute_gain(27 * math.log2(27) + 33 * math.log2(33), 60), 4)
    0.9928
    """
    if rows < 2:
        return 0.0
    whole = math.log2(rows)
    return min(max(whole - bits / rows, 0.0), whole)


def rank_leakage(sets: Iterable[SetFigures], names: Sequence[str], whole: float) -> tuple[Leakage, ...]:
    """Rank leakages, highest first; ties by the number of attributes, then by the order of the policy."""
    ranked = sorted(
        sets, key=lambda figures: (-round(figures.gain, DIGITS), len(figures.attributes), figures.attributes)
    )
    return tuple(
        Leakage(
            tuple(names[i] for i in figures.attributes),
            figures.gain,
            figures.gain / whole if whole else 0.0,
            figures.classes,
            figures.uniques,
        )
        for figures in ranked
    )
