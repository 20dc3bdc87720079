"""Which groups of rows of two releases of one table can be the same rows.

A row of one release can be a row of the other if the columns that both show as they are have equal values (NULL equals
NULL), and the labels of each shared quasi-identifier are equal, or one is an ancestor of the other in the hierarchy:
the lower one is the *finest* value of the two.

Rows are grouped before anything is joined. Where an attribute has one known level in each release, groups meet by their
labels at the coarser of the two: a hash join. Where labels are of several levels (local recoding, masked rows), they
meet by a table of the pairs of labels that go together. Groups are compared one such attribute after the other, as
prefixes: those that differ in one are not compared in the next. So the cost is that of the prefixes that meet, which
are few more than the groups that do; a join with all tables of pairs at once costs their product.

Names of columns, all ours: ``label_0`` is the label of attribute 0 as text, ``key_0`` its label at the coarser level,
``shared_0``
the value of shared column 0, ``n`` counts rows, ``i`` numbers groups, ``finest_0`` is a finest value. ``prefix_0``
numbers what
groups have in ``shared_0`` .. and ``key_0`` .., ``prefix_1`` that and their labels of the first attribute of several
levels, and so
on; ``finer_0`` numbers the finer labels of attribute 0.

Labels may be ranges of values, as Mondrian makes them: ``20-29``, ``2020-01-05 to 2020-02-10``. Numbers may be padded
with zeros, so that they sort: ``07`` is a range of one value, if the hierarchy has ``7``. The ends of a range need not
be values of the hierarchy: of numbers and dates, ``[20, 35)``, ``<30`` and ``≥85`` are ranges, too. A range is no node
of a hierarchy. It goes together with the nodes and ranges that it has values in common with: in the order of the ground
values, all of them are from some place to another. Texts that are numbers are in the order of numbers.

Labels may also be sets of nodes: ``{a, b}``. A set goes together with the nodes and sets that it has
values in common with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.hierarchies.bounds import bounds
from sqlanon.hierarchies.numerals import NUMERAL, part_of, plain, written_out
from sqlanon.support.expressions import (
    all_of,
    col,
    fragment,
    ident,
    named,
    number,
    same,
    select,
    subquery,
    table,
    template,
    union_all,
)

FIRST, SECOND = "sqlanon first", "sqlanon second"
"""The groups of each release, within a statement: names that no relation of a user has."""

# --- Groups

_GROUPS = template("""
    SELECT :labels, :shared, n
    FROM (
        SELECT :columns, :rows AS n
        FROM :release AS r
        GROUP BY :by
    ) AS c
""")
_GROUPED_BEFORE = template("""
    SELECT :labels, :shared, n
    FROM (SELECT :columns, :count::BIGINT AS n FROM :release AS r) AS c
""")
# No rows are no group.
_ONE_GROUP = template("SELECT n FROM (SELECT :rows AS n FROM :release AS r HAVING count(*) > 0) AS c")
_TEXT = fragment(":label::VARCHAR")
_COUNT = fragment("count(*)")
_TOTAL = fragment("sum(:count)::BIGINT")
_NUMBERED = template("SELECT *, row_number() OVER () AS i FROM :groups AS g")

_KEYED = template("SELECT :labels, :shared, g.n FROM :groups AS g")
_UPWARD = template("SELECT DISTINCT :own::VARCHAR AS own, :other::VARCHAR AS other FROM :hierarchy")
_COARSER = fragment("CASE WHEN NOT :own IS NULL THEN :other ELSE :label END")

_WITH_PREFIXES = template("SELECT *, :prefixes FROM :groups AS g")
_PREFIX = fragment("dense_rank() OVER (ORDER BY :columns)")

# --- Labels that go together

_EQUAL_LABELS = template("""
    SELECT a.label AS one, a.label AS two, a.label AS finer
    FROM (SELECT DISTINCT :label AS label FROM "sqlanon first") AS a
    JOIN (SELECT DISTINCT :label AS label FROM "sqlanon second") AS b ON a.label IS NOT DISTINCT FROM b.label
""")
_RELATED_LABELS = template("""
    SELECT DISTINCT
        a.label AS one,
        b.label AS two,
        CASE WHEN a.level < b.level THEN a.label ELSE b.label END AS finer
    FROM :first AS a
    JOIN :second AS b ON a.value IS NOT DISTINCT FROM b.value AND a.level <> b.level
""")
# Labels of two hierarchies: what both have in common is called by both.
_CROSSING_LABELS = template("""
    SELECT DISTINCT a.label AS one, b.label AS two, a.label AS finer
    FROM :first AS a
    JOIN :second AS b ON a.value IS NOT DISTINCT FROM b.value
""")
_PAIRS_WITH_BOTH = template("""
    SELECT one, two, CASE WHEN one IS NOT DISTINCT FROM two THEN one ELSE concat(one, ' & ', two) END AS finer
    FROM :pairs AS p
    GROUP BY one, two
""")
_PAIRS_WITH_BOTH_NUMBERS = template("""
    SELECT p.one, p.two, a.id * :more + b.id AS f
    FROM (SELECT one, two FROM :pairs AS p GROUP BY one, two) AS p
    JOIN :numbers AS a ON p.one IS NOT DISTINCT FROM a.label
    JOIN :numbers AS b ON p.two IS NOT DISTINCT FROM b.label
""")
_AT_LEVEL = template("SELECT level_0 AS value, :level AS level, :label::VARCHAR AS label FROM :hierarchy")
_PRESENT = template("""
    SELECT h.value, h.level, h.label
    FROM :levels AS h
    SEMI JOIN (SELECT DISTINCT :label AS label FROM :groups) AS x ON h.label IS NOT DISTINCT FROM x.label
""")
# Labels may be of several levels, and so a pair be here twice; it is not there with ranges, too.
_PAIRS = template("SELECT one, two FROM :pairs AS p GROUP BY one, two")
_PAIRS_WITH_FINER = template("SELECT one, two, min(finer) AS finer FROM :pairs AS p GROUP BY one, two")
_PAIRS_WITH_NUMBERS = template("""
    SELECT p.one, p.two, x.id AS f
    FROM (SELECT one, two, min(finer) AS finer FROM :pairs AS p GROUP BY one, two) AS p
    JOIN :numbers AS x ON p.finer IS NOT DISTINCT FROM x.label
""")
_ALL_PAIRS = template("SELECT * FROM :pairs AS p")
_ALL_PAIRS_WITH_TEXTS = template("SELECT *, dense_rank() OVER (ORDER BY finer) AS f FROM :pairs AS p")
_NUMBERED_LABELS = template("""
    SELECT label, row_number() OVER () AS id
    FROM (
        SELECT DISTINCT label
        FROM (
            SELECT :label AS label FROM "sqlanon first"
            UNION ALL
            SELECT :label AS label FROM "sqlanon second"
        ) AS e
    ) AS l
""")

# --- Labels that are ranges

_NODES = template("""
    SELECT label, min(place) AS low, max(place) AS high, count(*) > count(place) AS has_null
    FROM :levels AS e
    GROUP BY label
""")
_NODES_AT_LEVEL = template("""
    SELECT :label::VARCHAR AS label, place
    FROM (
        SELECT
            *,
            CASE
                WHEN NOT level_0 IS NULL THEN
                    dense_rank() OVER (ORDER BY TRY_CAST(level_0::VARCHAR AS DOUBLE) NULLS LAST, level_0 NULLS LAST)
            END AS place
        FROM :hierarchy
    ) AS p
""")
# Values of a text may be one number: then a range is from the least of their places to the greatest.
_RANGES = template("""
    SELECT r.label, min(a.low) AS low, max(b.high) AS high
    FROM (
        SELECT e.label, :first AS first, :last AS last
        FROM (
            SELECT l.label, coalesce(:first_number, :first_text) AS first, coalesce(:last_number, :last_text) AS second
            FROM :labels AS l
        ) AS e
    ) AS r
    JOIN :nodes AS a ON r.first = :first_node
    JOIN :nodes AS b ON r.last = :last_node
    ANTI JOIN :nodes AS n ON r.label = n.label
    GROUP BY r.label
""")
# Ranges whose ends need not be values. Numbers stand for themselves, dates for the days since the year 2000, and times
# for the seconds since midnight.
_RANGES_BY_VALUE = template("""
    WITH
        "values" AS (
            SELECT number, dated, min(place) AS low, max(place) AS high
            FROM (
                SELECT
                    coalesce(TRY_CAST(level_0::VARCHAR AS DOUBLE), :days, :seconds) AS number,
                    TRY_CAST(level_0::VARCHAR AS DOUBLE) IS NULL AS dated,
                    dense_rank() OVER (ORDER BY TRY_CAST(level_0::VARCHAR AS DOUBLE), level_0) AS place
                FROM :hierarchy
                WHERE NOT level_0 IS NULL
            ) AS p
            WHERE NOT number IS NULL
            GROUP BY number, dated
        ),
        whole AS (SELECT min(low) AS low, max(high) AS high, bool_and(dated) AS dated FROM "values"),
        ends AS (
            SELECT
                l.label,
                CASE WHEN w.dated THEN coalesce(:first_day, :first_time) ELSE :first_number END AS first,
                CASE WHEN w.dated THEN coalesce(:last_day, :last_time) ELSE :last_number END AS last,
                (NOT w.dated OR :last_time IS NOT NULL) AND regexp_matches(l.label, '^<|[)]$') AS half_open,
                w.low,
                w.high
            FROM :labels AS l, whole AS w
        )
    SELECT *
    FROM (
        SELECT
            e.label,
            CASE WHEN e.first IS NULL THEN e.low ELSE a.low END AS low,
            CASE WHEN e.last IS NULL THEN e.high WHEN e.half_open THEN h.high ELSE c.high END AS high
        FROM ends AS e
        ASOF LEFT JOIN "values" AS a ON e.first <= a.number
        ASOF LEFT JOIN "values" AS c ON e.last >= c.number
        ASOF LEFT JOIN "values" AS h ON e.last > h.number
        ANTI JOIN :nodes AS n ON e.label = n.label
        ANTI JOIN (:by_node) AS x ON e.label = x.label
        WHERE NOT e.first IS NULL OR NOT e.last IS NULL
    ) AS r
    WHERE low <= high
""")
_DAYS = fragment("date_diff('day', '2000-01-01'::DATE, :day)::DOUBLE")
_DAY_OF_VALUE = fragment("TRY_CAST(level_0::VARCHAR AS DATE)")
_SECONDS_OF_VALUE = fragment("epoch(TRY_CAST(level_0::VARCHAR AS TIME))")
_ALL_RANGES = template("SELECT * FROM :ranges AS r")
_WITHOUT_ZEROS = fragment("coalesce(:number, :label)")

# Where neither range holds the other, what both have in common is finer: it is called by both. NULL is in no range.
_OVERLAPPING = template("""
    SELECT
        a.label AS one,
        b.label AS two,
        CASE
            WHEN a.low >= b.low AND a.high <= b.high AND NOT a.has_null THEN :first
            WHEN b.low >= a.low AND b.high <= a.high AND NOT b.has_null THEN :second
            ELSE :both
        END AS finer
    FROM :one AS a
    JOIN :two AS b
        ON a.low <= b.high AND b.low <= a.high AND (a.is_range OR b.is_range) AND a.label <> b.label
""")
_BOTH_TEXTS = fragment("a.label || ' & ' || b.label")
_BOTH_NUMBERS = fragment("(a.id * :more) + b.id")
_MORE_THAN_LABELS = 2**32

_PLACED_NODES = template("""
    SELECT l.label, n.low, n.high, n.has_null, FALSE AS is_range
    FROM :labels AS l
    JOIN :nodes AS n ON l.label = n.label
""")
_PLACED_RANGES = template("SELECT label, low, high, FALSE AS has_null, TRUE AS is_range FROM :ranges AS x")
_PLACED_WITH_NUMBERS = template("""
    SELECT p.*, x.id
    FROM :placed AS p
    JOIN :numbers AS x ON p.label = x.label
""")
_DISTINCT_LABELS = template("SELECT DISTINCT :label AS label FROM :groups")

# --- Labels that are sets

_SETS = template(r"""
    SELECT label, member
    FROM (
        SELECT
            *,
            '{' || array_to_string(array_agg(spelled ORDER BY place) OVER (PARTITION BY label), ', ') || '}' AS whole
        FROM (
            SELECT
                *,
                CASE
                    WHEN regexp_matches(member, '[,{}"]|^\s|\s$|^$') THEN '"' || replace(member, '"', '""') || '"'
                    ELSE member
                END AS spelled
            FROM (
                SELECT
                    label,
                    place,
                    CASE
                        WHEN starts_with(item, '"') THEN replace(substr(item, 2, length(item) - 2), '""', '"')
                        ELSE item
                    END AS member
                FROM (
                    SELECT label, unnest(items) AS item, unnest(range(length(items))) AS place
                    FROM (
                        SELECT label, regexp_extract_all(label, '(?:^\{|, )("(?:[^"]|"")*"|[^,{}"]+)', 1) AS items
                        FROM :labels AS l
                        WHERE starts_with(label, '{')
                    ) AS l
                ) AS i
            ) AS m
        ) AS w
    ) AS s
    WHERE label = whole
""")
_NUMBERED_VALUES = template("""
    SELECT :label::VARCHAR AS label, dense_rank() OVER (ORDER BY level_0 NULLS FIRST) AS place
    FROM :hierarchy
""")
_SET_VALUES = template("""
    SELECT *, count(*) OVER (PARTITION BY label) AS size
    FROM (
        SELECT DISTINCT s.label, v.place, TRUE AS is_set
        FROM :sets AS s
        JOIN :members AS v ON s.member = v.label
        UNION ALL
        SELECT DISTINCT l.label, v.place, FALSE AS is_set
        FROM :labels AS l
        JOIN :nodes AS v ON l.label = v.label
    ) AS e
""")
_SET_VALUES_WITH_NUMBERS = template("""
    SELECT v.*, x.id
    FROM :values AS v
    JOIN :numbers AS x ON v.label = x.label
""")
# As with ranges, what two sets have in common is called by both, where neither holds the other.
_SHARING = template("""
    SELECT
        a.label AS one,
        b.label AS two,
        CASE WHEN count(*) = a.size THEN :first WHEN count(*) = b.size THEN :second ELSE :both END AS finer
    FROM :one AS a
    JOIN :two AS b ON a.place = b.place AND (a.is_set OR b.is_set) AND a.label <> b.label
    GROUP BY :by
""")

# --- Groups that meet

_MEETING_KEYS = template("""
    SELECT a.prefix_0 AS a, b.prefix_0 AS b
    FROM (SELECT DISTINCT :key, prefix_0 FROM "sqlanon first") AS a
    JOIN (SELECT DISTINCT :key, prefix_0 FROM "sqlanon second") AS b ON :meeting
""")
_MEETING_PREFIXES = template("""
    SELECT a.prefix AS a, b.prefix AS b, :finer
    FROM :before AS m
    JOIN (SELECT DISTINCT :shorter AS shorter, :label AS label, :prefix AS prefix FROM "sqlanon first") AS a
        ON a.shorter = m.a
    JOIN :pairs AS c ON a.label IS NOT DISTINCT FROM c.one
    JOIN (SELECT DISTINCT :shorter AS shorter, :label AS label, :prefix AS prefix FROM "sqlanon second") AS b
        ON b.shorter = m.b AND b.label IS NOT DISTINCT FROM c.two
""")
_SWAPPED = template("SELECT b AS a, a AS b FROM :met")
_FINER = template("SELECT DISTINCT f, finer FROM :pairs")
_TITLED = template("SELECT :figures, :values FROM :found AS found")


@dataclass(frozen=True)
class LinkedAttribute:
    """A quasi-identifier of two releases, or of one of them.

    Each release has a column for it, or None; what is released as it is, whatever its role, is at level 0. Its labels
    are of one level where the release is full-domain and masks no rows, else of several. Without a hierarchy labels
    meet if they are equal. With ``ranges`` they may be ranges, which meet all that they have values in common with:
    expensive where there are many. With ``sets`` they may be sets of nodes of these levels, one for each release, or of
    higher ones.
    Where the levels are not ``is_nested``, those of the second release are of another hierarchy, above those of the
    first in the same table.
    Attributes with few ``pairs`` of labels, where that is known, are compared first.
    """

    name: str
    first: str | None
    second: str | None
    first_levels: tuple[int, ...] = (0,)
    second_levels: tuple[int, ...] = (0,)
    hierarchy: exp.Expr | None = None
    height: int = 0
    ranges: bool = False
    sets: tuple[int, int] | None = None
    pairs: int = 0
    is_nested: bool = True

    @property
    def is_shared(self) -> bool:
        return self.first is not None and self.second is not None

    @property
    def levels(self) -> tuple[int, int] | None:
        """The level of each release, where both are known; equal ones where there is no hierarchy to tell."""
        if self.hierarchy is None:
            return (0, 0)
        if self.is_nested and len(self.first_levels) == len(self.second_levels) == 1:
            return self.first_levels[0], self.second_levels[0]
        return None

    @property
    def meets_all(self) -> bool:
        """Whether one release has its top value only: it tells nothing."""
        return (
            self.hierarchy is not None
            and self.height > 0
            and ((self.height,) in (self.first_levels, self.second_levels) and self.levels is not None)
        )

    @property
    def swapped(self) -> LinkedAttribute:
        """The same, of the releases in the other order."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            first_levels=self.second_levels,
            second_levels=self.first_levels,
            sets=None if self.sets is None else (self.sets[1], self.sets[0]),
        )


@dataclass(frozen=True)
class ReleaseLink:
    """How two releases are linked: the ``shared`` columns that both show as they are, the quasi-identifiers of both,
    and those ``missing`` that cannot be compared without a hierarchy. Rows that are grouped have a column
    ``count``."""

    first: exp.Expr
    second: exp.Expr
    shared: tuple[str, ...]
    attributes: tuple[LinkedAttribute, ...]
    missing: tuple[str, ...] = ()
    count: str | None = None

    @property
    def columns(self) -> tuple[list[str], list[str]]:
        """The columns of each release that are looked at."""
        first = [one.first for one in self.attributes if one.first is not None]
        second = [one.second for one in self.attributes if one.second is not None]
        return [*dict.fromkeys([*first, *self.shared])], [*dict.fromkeys([*second, *self.shared])]

    @property
    def titles(self) -> list[str]:
        return [one.name for one in self.attributes]

    @property
    def shared_attributes(self) -> list[tuple[int, LinkedAttribute]]:
        """The attributes that both releases have, with their numbers."""
        return [(i, one) for i, one in enumerate(self.attributes) if one.is_shared]

    @property
    def multilevel_attributes(self) -> list[tuple[int, LinkedAttribute]]:
        """Of these the ones whose labels meet by a table of pairs, in the order in which they are compared."""
        return sorted(((i, one) for i, one in self.shared_attributes if one.levels is None), key=lambda at: at[1].pairs)

    @property
    def key(self) -> list[str]:
        """The columns in which groups that meet are equal."""
        by_level = [i for i, one in self.shared_attributes if one.levels is not None and not one.meets_all]
        return [*(f"shared_{j}" for j in range(len(self.shared))), *(f"key_{i}" for i in by_level)]

    @property
    def values(self) -> list[exp.Expr]:
        """The columns of the finest values of two groups: ``finest_0`` .."""
        return [col(f"finest_{i}") for i in range(len(self.attributes))]

    @property
    def swapped(self) -> ReleaseLink:
        """The same, of the releases in the other order."""
        attributes = tuple(one.swapped for one in self.attributes)
        return replace(self, first=self.second, second=self.first, attributes=attributes)

    def side(self, is_first: bool) -> tuple[exp.Expr, list[tuple[int, str]]]:
        """The rows of one of the releases, and the columns of its attributes, by their numbers."""
        columns = [one.first if is_first else one.second for one in self.attributes]
        there = [(i, column) for i, column in enumerate(columns) if column is not None]
        return (self.first if is_first else self.second), there


def group_rows(linked: ReleaseLink, is_first: bool) -> exp.Select:
    """The rows of a release that look alike: ``label_0`` .. as text, ``shared_0`` .., and ``n``."""
    (release, there), shared = linked.side(is_first), linked.shared
    rows = _COUNT() if linked.count is None else _TOTAL(count=col(linked.count, "r"))
    by = [col(column, "r") for column in dict.fromkeys([*(column for _, column in there), *shared])]
    if not by:
        return _ONE_GROUP(rows=rows, release=release)
    labels = [named(_TEXT(label=col(f"label_{i}")), f"label_{i}") for i, _ in there]
    values = [col(f"shared_{j}") for j in range(len(shared))]
    columns = [
        *(named(col(column, "r"), f"label_{i}") for i, column in there),
        *(named(col(column, "r"), f"shared_{j}") for j, column in enumerate(shared)),
    ]
    grouped_by = linked.columns[0 if is_first else 1]
    if linked.count is not None and isinstance(release, exp.Table) and {one.name for one in by} == {*grouped_by}:
        count = col(linked.count, "r")  # the table has these columns, grouped by them, and the count: nothing was cast
        return _GROUPED_BEFORE(labels=labels, shared=values, columns=columns, count=count, release=release)
    return _GROUPS(labels=labels, shared=values, columns=columns, rows=rows, release=release, by=by)


def add_keys(grouped: exp.Select, linked: ReleaseLink, is_first: bool) -> exp.Select:
    """`groups` of one of the releases, with ``key_0`` ..: labels at the coarser level, where both levels are known.

    A label that the hierarchy does not have is itself.
    """
    labels: list[exp.Expr] = []
    joins: list[tuple[exp.Select, str, exp.Expr]] = []
    for i, _ in linked.side(is_first)[1]:
        one, label = linked.attributes[i], col(f"label_{i}", "g")
        labels.append(label)
        if not one.is_shared or one.levels is None or one.meets_all:
            continue
        own, other = one.levels if is_first else reversed(one.levels)
        if own >= other or one.hierarchy is None:
            labels.append(named(label, f"key_{i}"))
            continue
        name = f"h{i}"
        upward = _UPWARD(own=col(f"level_{own}"), other=col(f"level_{other}"), hierarchy=one.hierarchy)
        joins.append((upward, name, label.eq(col("own", name))))
        labels.append(named(_COARSER(own=col("own", name), other=col("other", name), label=label), f"key_{i}"))
    shared = [col(f"shared_{j}", "g") for j in range(len(linked.shared))]
    query = _KEYED(labels=labels, shared=shared, groups=grouped)
    for upward, name, on in joins:
        query = query.join(subquery(upward, name), on=on, join_type="left", copy=False)
    return query


Finest: TypeAlias = 'Literal["texts", "numbers"] | None'
"""The form of the finest values of two groups, if they are needed: numbers are enough to count by them."""


def match_labels(one: LinkedAttribute, i: int, finest: Finest) -> exp.Select:
    """Which labels of the two releases go together: ``one``, ``two``; and by ``finest`` the ``finer`` and a number of
    it, ``f``.

    Of the labels that the releases have, by the names `FIRST` and `SECOND` of their groups. Equal labels always do; and
    nodes of the hierarchy one of which is above the other; and ranges and sets with what they have values in common
    with. Labels that are none of these meet nothing else.
    """
    pairs: list[exp.Query] = [_EQUAL_LABELS(label=col(f"label_{i}"))]
    if one.hierarchy is not None and {*one.first_levels, *one.second_levels} != {0}:
        first = _present(one.hierarchy, one.first_levels, i, FIRST)
        second = _present(one.hierarchy, one.second_levels, i, SECOND)
        pairs.append((_RELATED_LABELS if one.is_nested else _CROSSING_LABELS)(first=first, second=second))
    found: list[exp.Query] = [_with_finer(union_all(*pairs), one, i, finest)]
    if one.hierarchy is not None and one.ranges:
        found.append(match_ranges(table(_placed_name(i, FIRST)), table(_placed_name(i, SECOND)), finest))
    if one.hierarchy is not None and one.sets:
        found.append(match_sets(table(_values_name(i, FIRST)), table(_values_name(i, SECOND)), finest))
    return (_ALL_PAIRS_WITH_TEXTS if finest == "texts" else _ALL_PAIRS)(pairs=union_all(*found))


def _with_finer(pairs: exp.Query, one: LinkedAttribute, i: int, finest: Finest) -> exp.Query:
    """Pairs of labels with their ``finer``, a number for it, or neither."""
    match finest:
        case None:
            return _PAIRS(pairs=pairs)
        case "texts":
            return (_PAIRS_WITH_FINER if one.is_nested else _PAIRS_WITH_BOTH)(pairs=pairs)
        case "numbers" if one.is_nested:
            return _PAIRS_WITH_NUMBERS(pairs=pairs, numbers=table(_labels_name(i)))
        case _:
            more = number(_MORE_THAN_LABELS)
            return _PAIRS_WITH_BOTH_NUMBERS(pairs=pairs, numbers=table(_labels_name(i)), more=more)


def _present(hierarchy: exp.Expr, levels: Sequence[int], i: int, name: str) -> exp.Select:
    """Each ground value, as ``value``, with its labels at some levels: ``level`` and ``label``, if a release has it."""
    each = [_AT_LEVEL(level=level, label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels]
    return _PRESENT(levels=union_all(*each), label=col(f"label_{i}"), groups=table(name))


def _placed_labels(one: LinkedAttribute, i: int, name: str, finest: Finest) -> exp.Query:
    """The labels of one of the releases, where ranges meet others."""
    assert one.hierarchy is not None
    labels = _DISTINCT_LABELS(label=col(f"label_{i}"), groups=table(name))
    nodes = table(_nodes_name(i))
    placed: exp.Query = _PLACED_NODES(labels=labels, nodes=nodes)
    # Where all labels are of one level, they are its nodes.
    if len(one.first_levels if name == FIRST else one.second_levels) > 1:
        placed = union_all(placed, _PLACED_RANGES(ranges=find_ranges(labels, nodes, one.hierarchy)))
    return _PLACED_WITH_NUMBERS(placed=placed, numbers=table(_labels_name(i))) if finest == "numbers" else placed


def order_nodes(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Select:
    """The nodes of a hierarchy: ``label``, and the places of its first and last value, ``low`` and ``high``."""
    each = [_NODES_AT_LEVEL(label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels]
    return _NODES(levels=union_all(*each))


def find_ranges(labels: exp.Query, nodes: exp.Expr, hierarchy: exp.Expr) -> exp.Select:
    """The ranges among labels: ``label``, ``low`` and ``high``.

    One is no node itself; its ends are nodes, or numbers, dates or times between which the hierarchy has values.
    """
    label = col("label", "l")
    numbers, texts = f"({NUMERAL})(?:-({NUMERAL}))?", "(.+) to (.+)"
    by_node = _RANGES(
        first=_without_zeros(col("first", "e")),
        last=_without_zeros(fragment("coalesce(e.second, e.first)")()),
        first_number=part_of(label, numbers, 1),
        first_text=part_of(label, texts, 1),
        last_number=part_of(label, numbers, 2),
        last_text=part_of(label, texts, 2),
        labels=labels,
        nodes=nodes,
        first_node=_without_zeros(col("label", "a")),
        last_node=_without_zeros(col("label", "b")),
    )
    first, last = bounds(label, "number")
    days = [_DAYS(day=day) for day in bounds(label, "date")]
    first_time, last_time = bounds(label, "time")
    by_value = _RANGES_BY_VALUE(
        days=_DAYS(day=_DAY_OF_VALUE()),
        seconds=_SECONDS_OF_VALUE(),
        hierarchy=hierarchy,
        first_day=days[0],
        first_time=first_time,
        first_number=first,
        last_day=days[1],
        last_time=last_time,
        last_number=last,
        labels=labels,
        nodes=nodes,
        by_node=by_node,
    )
    return _ALL_RANGES(ranges=union_all(by_node, _ALL_RANGES(ranges=by_value)))


def _without_zeros(label: exp.Expr) -> exp.Expr:
    """A number without the zeros that it may be padded with; all else as it is."""
    return _WITHOUT_ZEROS(number=plain(written_out(part_of(label, f"({NUMERAL})"))), label=label)


def match_ranges(one: exp.Expr, two: exp.Expr, finest: Finest) -> exp.Select:
    """Pairs of two labels, a range at least among them, that have values in common: ``one``, ``two``, and by ``finest``
    the ``finer``, or a number for that, ``f``."""
    own = "id" if finest == "numbers" else "label"
    both = _BOTH_NUMBERS(more=_MORE_THAN_LABELS) if finest == "numbers" else _BOTH_TEXTS()
    return _with_finest(_OVERLAPPING(first=col(own, "a"), second=col(own, "b"), both=both, one=one, two=two), finest)


def find_sets(labels: exp.Query) -> exp.Select:
    """The sets among labels, spelled as releases spell them, one row for each ``member``: ``label``, ``member``."""
    return _SETS(labels=subquery(labels))


def number_values(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Query:
    """The labels of some levels with each of their ground values, as a number: ``label``, ``place``."""
    return union_all(*(_NUMBERED_VALUES(label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels))


def set_member_levels(level: int, height: int) -> range:
    """The levels of members of sets: below the top, where there are such."""
    return range(level, max(height, level + 1))


def _set_values(one: LinkedAttribute, i: int, name: str, finest: Finest) -> exp.Query:
    """The labels of one of the releases with each of their ground values, where sets meet others."""
    assert one.hierarchy is not None and one.sets is not None
    labels = _DISTINCT_LABELS(label=col(f"label_{i}"), groups=table(name))
    values = _SET_VALUES(
        sets=subquery(find_sets(labels)),
        members=subquery(number_values(one.hierarchy, set_member_levels(one.sets[name == SECOND], one.height))),
        labels=subquery(labels),
        nodes=subquery(number_values(one.hierarchy, range(one.height + 1))),
    )
    return _SET_VALUES_WITH_NUMBERS(values=values, numbers=table(_labels_name(i))) if finest == "numbers" else values


def match_sets(one: exp.Expr, two: exp.Expr, finest: Finest) -> exp.Select:
    """Pairs of two labels, a set at least among them, that have values in common: columns as of `overlapping`."""
    own = "id" if finest == "numbers" else "label"
    both = _BOTH_NUMBERS(more=_MORE_THAN_LABELS) if finest == "numbers" else _BOTH_TEXTS()
    by = [col(name, side) for side in ("a", "b") for name in dict.fromkeys(["label", "size", own])]
    query = _SHARING(first=col(own, "a"), second=col(own, "b"), both=both, one=one, two=two, by=by)
    return _with_finest(query, finest)


def _with_finest(query: exp.Select, finest: Finest) -> exp.Select:
    """Pairs of labels without their ``finer``, or with a number for it, ``f``, where that is enough."""
    if finest is None:
        query.expressions.pop()
    elif finest == "numbers":
        query.expressions[-1].set("alias", ident("f"))
    return query


def keys_match(linked: ReleaseLink) -> exp.Expr:
    """When groups of the two releases, ``a`` and ``b``, can be the same rows, by values and known levels."""
    return all_of(same(col(name, "a"), col(name, "b")) for name in linked.key)


def comparison_parts(linked: ReleaseLink, finest: Finest) -> dict[str, exp.Query]:
    """What queries of both releases read, by name: `FIRST` and `SECOND`, each group with a number, ``i``; and, where
    labels are of several levels, the tables of pairs and of prefixes that meet, ``sqlanon pairs 0`` ..,
    ``sqlanon met 0`` ..: these with the finest values, or without.

    Each part reads those before it.
    """
    several, parts = linked.multilevel_attributes, dict[str, exp.Query]()
    for name, is_first in ((FIRST, True), (SECOND, False)):
        grouped = _NUMBERED(groups=add_keys(group_rows(linked, is_first), linked, is_first))
        parts[name] = _with_prefixes(grouped, linked) if several else grouped
    for i, one in several:
        if finest == "numbers":
            parts[_labels_name(i)] = _NUMBERED_LABELS(label=col(f"label_{i}"))
        if one.hierarchy is not None and one.ranges:
            parts[_nodes_name(i)] = order_nodes(one.hierarchy, range(one.height + 1))
            parts |= {_placed_name(i, name): _placed_labels(one, i, name, finest) for name in (FIRST, SECOND)}
        if one.hierarchy is not None and one.sets:
            parts |= {_values_name(i, name): _set_values(one, i, name, finest) for name in (FIRST, SECOND)}
        parts[label_pairs_name(i)] = match_labels(one, i, finest)
    for step in range(len(several) + 1) if several else ():
        parts[matching_prefixes_name(step)] = _met(linked, step, finest)
    return parts


def with_comparison_parts(query: exp.Select, linked: ReleaseLink, finest: Finest = "texts") -> exp.Select:
    """A query of both releases as one statement: with `comparison_parts`."""
    own = query.args["with_"].expressions if query.args.get("with_") else []
    ctes = exp.Select()
    for name, part in comparison_parts(linked, finest).items():
        ctes.with_(ident(name), as_=part, materialized=True, copy=False)
    query.set("with_", exp.With(expressions=[*ctes.args["with_"].expressions, *own]))
    return query


def _with_prefixes(grouped: exp.Select, linked: ReleaseLink) -> exp.Select:
    """Groups with the numbers of their prefixes: ``prefix_0`` .."""
    labels = [f"label_{i}" for i, _ in linked.multilevel_attributes]
    prefixes: list[exp.Expr] = []
    for length in range(len(labels) + 1):
        columns = [col(name) for name in (*linked.key, *labels[:length])]
        prefixes.append(named(_PREFIX(columns=columns) if columns else number(1), f"prefix_{length}"))
    return _WITH_PREFIXES(prefixes=prefixes, groups=grouped)


def _met(linked: ReleaseLink, step: int, finest: Finest) -> exp.Select:
    """The prefixes of both releases that meet: their numbers, ``a`` and ``b``, and the finer labels, ``finer_0`` .."""
    several = linked.multilevel_attributes
    if not step:
        return _MEETING_KEYS(key=[col(name) for name in linked.key], meeting=keys_match(linked))
    i = several[step - 1][0]
    finer = [*(col(f"finer_{j}", "m") for j, _ in several[: step - 1]), named(col("f", "c"), f"finer_{i}")]
    return _MEETING_PREFIXES(
        finer=finer if finest else [],
        before=table(matching_prefixes_name(step - 1)),
        shorter=col(f"prefix_{step - 1}"),
        label=col(f"label_{i}"),
        prefix=col(f"prefix_{step}"),
        pairs=table(label_pairs_name(i)),
    )


def _nodes_name(i: int) -> str:
    return f"sqlanon nodes {i}"


def _placed_name(i: int, release: str) -> str:
    return f"{release} placed {i}"


def _values_name(i: int, release: str) -> str:
    return f"{release} values {i}"


def _labels_name(i: int) -> str:
    return f"sqlanon labels {i}"


def label_pairs_name(i: int) -> str:
    """The table of pairs of an attribute's labels, within a statement."""
    return f"sqlanon pairs {i}"


_MET = "sqlanon met "


def matching_prefixes_name(compared: int) -> str:
    """The table of the prefixes that meet in so many attributes of several levels, within a statement."""
    return f"{_MET}{compared}"


def is_matching_prefixes(name: str) -> bool:
    return name.startswith(_MET)


def swap_matching_prefixes(met: exp.Expr) -> exp.Select:
    """The prefixes that meet, of the releases in the other order."""
    return _SWAPPED(met=met)


def join_groups(output: Sequence[exp.Expr], linked: ReleaseLink, numbers: bool = False) -> exp.Select:
    """An output of the groups of both releases that can be the same rows, ``a`` and ``b``; finer labels are ``c0`` ..,
    if ``numbers`` are not enough."""
    several = linked.multilevel_attributes
    if not several:
        query = select([*output], table(FIRST, alias="a"))
        return query.join(table(SECOND, alias="b"), on=keys_match(linked), copy=False)
    query, last = select([*output], table(matching_prefixes_name(len(several)), alias="m")), f"prefix_{len(several)}"
    for name, side in ((FIRST, "a"), (SECOND, "b")):
        query = query.join(table(name, alias=side), on=col(last, side).eq(col(side, "m")), copy=False)
    for i, _ in () if numbers else several:
        on = col("f", f"c{i}").eq(col(f"finer_{i}", "m"))
        query = query.join(subquery(_FINER(pairs=table(label_pairs_name(i))), f"c{i}"), on=on, copy=False)
    return query


def finest_values(linked: ReleaseLink, numbers: bool = False) -> list[exp.Expr]:
    """The finest value of each attribute for two groups, or a number for it: ``finest_0`` .."""
    values: list[exp.Expr] = []
    for i, one in enumerate(linked.attributes):
        if one.first is None:
            value: exp.Expr = col(f"label_{i}", "b")
        elif one.second is None:
            value = col(f"label_{i}", "a")
        elif one.levels is None:
            value = col(f"finer_{i}", "m") if numbers else col("finer", f"c{i}")
        else:
            own, other = one.levels
            value = col(f"label_{i}", "a" if own <= other else "b")
        values.append(named(value, f"finest_{i}"))
    return values


def add_titles(query: exp.Select, titles: Iterable[str]) -> exp.Select:
    """What was found, for people: ``n`` is called rows, and ``finest_0`` .. as the attributes; figures keep their
    names."""
    names = {f"finest_{i}": title for i, title in enumerate(titles)}
    own = [name for name in query.named_selects if name not in names]
    return _TITLED(
        figures=[named(col("n"), "rows") if name == "n" else col(name) for name in sorted(own, key="n".__ne__)],
        values=[named(col(name), names[name]) for name in query.named_selects if name in names],
        found=query,
    )
