"""Pairs of labels of two releases that can stand for the same values of an attribute.

Equal labels match; so do a node of the hierarchy and its ancestors. The lower of the two is the *finest* label.

Labels may be ranges of values that are not nodes: ``20-29``, ``[20, 35)``, ``<30``, ``2020-01-05 to 2020-02-10``. They
match the nodes and ranges with which they have values in common: in the order of the ground values, each covers an
interval of positions. Texts that are numbers are ordered as numbers, with or without padding zeros. Labels may also be
sets of nodes: ``{a, b}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.hierarchies.bounds import label_bounds
from sqlanon.hierarchies.numerals import NUMERAL, expand_exponent, extract_part, trim_zeros
from sqlanon.support.expressions import (
    cast,
    col,
    fragment,
    select_star,
    subquery,
    table,
    template,
    union_all,
)

FIRST, SECOND = "sqlanon first", "sqlanon second"
"""The groups of each release, within a statement: names that no relation of a user has."""

# --- Nodes of one hierarchy, or of two

_EQUAL_LABELS = template("""
    SELECT a.label AS first_label, a.label AS second_label, a.label AS finer
    FROM (SELECT DISTINCT :label AS label FROM "sqlanon first") AS a
    JOIN (SELECT DISTINCT :label AS label FROM "sqlanon second") AS b ON a.label IS NOT DISTINCT FROM b.label
""")
_ANCESTORS = template("""
    SELECT DISTINCT
        a.label AS first_label,
        b.label AS second_label,
        CASE WHEN a.level < b.level THEN a.label ELSE b.label END AS finer
    FROM :first AS a
    JOIN :second AS b ON a.value IS NOT DISTINCT FROM b.value AND a.level <> b.level
""")
_NODES_WITH_COMMON_VALUES = template("""
    SELECT DISTINCT a.label AS first_label, b.label AS second_label, a.label AS finer
    FROM :first AS a
    JOIN :second AS b ON a.value IS NOT DISTINCT FROM b.value
""")
# A pair can match at several levels. Pairs with ranges and sets are counted elsewhere.
_PAIRS = template("""
    SELECT p.first_label, p.second_label, :finer AS finer
    FROM (
        SELECT first_label, second_label, min(finer) AS finer
        FROM :pairs AS p
        GROUP BY first_label, second_label
    ) AS p
    JOIN :labels AS a ON p.first_label IS NOT DISTINCT FROM a.label
    JOIN :labels AS b ON p.second_label IS NOT DISTINCT FROM b.label
""")
_NAMED_LABELS = template("""
    SELECT label, :name AS name
    FROM (
        SELECT :label AS label FROM "sqlanon first" AS a
        UNION
        SELECT :label AS label FROM "sqlanon second" AS b
    ) AS l
""")

# --- Ranges

_NODES = template("""
    WITH placed_labels AS (
        SELECT
            unnest(list_value(:labels)) AS label,
            CASE
                WHEN NOT level_0 IS NULL THEN
                    dense_rank() OVER (ORDER BY TRY_CAST(level_0::VARCHAR AS DOUBLE) NULLS LAST, level_0 NULLS LAST)
            END AS place
        FROM :hierarchy
    )
    SELECT label, min(place) AS low, max(place) AS high, count(*) > count(place) AS has_null
    FROM placed_labels
    GROUP BY label
""")
# First the ranges between nodes: several texts may be the same number, and then a range reaches from the least of their
# places to the greatest. Then those whose ends need not be values. Numbers stand for themselves, dates for the days
# since the year 2000, and times for the seconds since midnight.
_RANGES = template("""
    WITH
        end_texts AS (
            SELECT
                label,
                coalesce(:first_number_text, :first_text) AS first,
                coalesce(:last_number_text, :last_text) AS second
            FROM :labels AS l
        ),
        bounds AS (
            SELECT label, :first_bound AS first, :last_bound AS last FROM end_texts
        ),
        between_nodes AS MATERIALIZED (
            SELECT bounds.label, min(a.low) AS low, max(b.high) AS high
            FROM bounds
            JOIN :nodes AS a ON bounds.first = :first_node
            JOIN :nodes AS b ON bounds.last = :last_node
            ANTI JOIN :nodes AS n ON bounds.label = n.label
            GROUP BY bounds.label
        ),
        numbered_values AS (
            SELECT
                coalesce(
                    TRY_CAST(level_0::VARCHAR AS DOUBLE),
                    date_diff('day', '2000-01-01'::DATE, TRY_CAST(level_0::VARCHAR AS DATE))::DOUBLE,
                    epoch(TRY_CAST(level_0::VARCHAR AS TIME))
                ) AS number,
                TRY_CAST(level_0::VARCHAR AS DOUBLE) IS NULL AS dated,
                dense_rank() OVER (ORDER BY TRY_CAST(level_0::VARCHAR AS DOUBLE), level_0) AS place
            FROM :hierarchy
            WHERE NOT level_0 IS NULL
        ),
        ordered AS (
            SELECT number, dated, min(place) AS low, max(place) AS high
            FROM numbered_values
            WHERE NOT number IS NULL
            GROUP BY number, dated
        ),
        whole AS (SELECT min(low) AS low, max(high) AS high, bool_and(dated) AS dated FROM ordered),
        ends AS (
            SELECT
                l.label,
                CASE
                    WHEN w.dated THEN coalesce(date_diff('day', '2000-01-01'::DATE, :first_day)::DOUBLE, :first_time)
                    ELSE :first_number
                END AS first,
                CASE
                    WHEN w.dated THEN coalesce(date_diff('day', '2000-01-01'::DATE, :last_day)::DOUBLE, :last_time)
                    ELSE :last_number
                END AS last,
                (NOT w.dated OR :last_time IS NOT NULL) AND regexp_matches(l.label, '^<|[)]$') AS half_open,
                w.low,
                w.high
            FROM :labels AS l, whole AS w
        ),
        by_value AS (
            SELECT
                e.label,
                CASE WHEN e.first IS NULL THEN e.low ELSE first_value.low END AS low,
                CASE
                    WHEN e.last IS NULL THEN e.high
                    WHEN e.half_open THEN value_below.high
                    ELSE last_value.high
                END AS high
            FROM ends AS e
            ASOF LEFT JOIN ordered AS first_value ON e.first <= first_value.number
            ASOF LEFT JOIN ordered AS last_value ON e.last >= last_value.number
            ASOF LEFT JOIN ordered AS value_below ON e.last > value_below.number
            ANTI JOIN :nodes AS n ON e.label = n.label
            ANTI JOIN between_nodes AS b ON e.label = b.label
            WHERE NOT e.first IS NULL OR NOT e.last IS NULL
        )
    SELECT label, low, high
    FROM (
        SELECT label, low, high FROM between_nodes
        UNION ALL
        SELECT label, low, high FROM by_value WHERE low <= high
    ) AS r
""")
# The values that two ranges have in common are named by both labels, unless one range contains the other. NULL is in no
# range.
_OVERLAPPING_LABELS = template("""
    SELECT
        a.label AS first_label,
        b.label AS second_label,
        CASE
            WHEN a.low >= b.low AND a.high <= b.high AND NOT a.has_null THEN a.name
            WHEN b.low >= a.low AND b.high <= a.high AND NOT b.has_null THEN b.name
            ELSE :common_name
        END AS finer
    FROM :first AS a
    JOIN :second AS b
        ON a.low <= b.high AND b.low <= a.high AND (a.is_range OR b.is_range) AND a.label <> b.label
""")
# --- Sets

# Labels that read as sets, but are not spelled as releases spell them, are not sets.
find_sets = template(r"""
    WITH
        items AS (
            SELECT label, unnest(spellings) AS item, unnest(range(length(spellings))) AS place
            FROM (
                SELECT label, regexp_extract_all(label, '(?:^\{|, )("(?:[^"]|"")*"|[^,{}"]+)', 1) AS spellings
                FROM :labels AS l
                WHERE starts_with(label, '{')
            ) AS l
        ),
        members AS (
            SELECT
                *,
                CASE
                    WHEN starts_with(item, '"') THEN replace(substr(item, 2, length(item) - 2), '""', '"')
                    ELSE item
                END AS member
            FROM items
        ),
        spelled_members AS (
            SELECT
                *,
                CASE
                    WHEN regexp_matches(member, '[,{}"]|^\s|\s$|^$') THEN '"' || replace(member, '"', '""') || '"'
                    ELSE member
                END AS spelled
            FROM members
        )
    SELECT label, member
    FROM (
        SELECT
            *,
            '{' || array_to_string(array_agg(spelled ORDER BY place) OVER (PARTITION BY label), ', ') || '}' AS whole
        FROM spelled_members
    ) AS s
    WHERE label = whole
""")
"""The sets among ``labels``, one row for each ``member``: ``label``, ``member``."""
# As with ranges, the values that two sets have in common are named by both, unless one contains the other.
_LABELS_WITH_COMMON_VALUES = template("""
    SELECT
        a.label AS first_label,
        b.label AS second_label,
        CASE WHEN count(*) = a.size THEN a.name WHEN count(*) = b.size THEN b.name ELSE :common_name END AS finer
    FROM :first AS a
    JOIN :second AS b ON a.place = b.place AND (a.is_set OR b.is_set) AND a.label <> b.label
    GROUP BY a.label, a.size, a.name, b.label, b.size, b.name
""")


@dataclass(frozen=True)
class LinkedAttribute:
    """A quasi-identifier of two releases, or of one of them.

    Without a hierarchy, labels match if they are equal.
    """

    name: str
    first: str | None  # its column in the first release
    second: str | None
    # One level where the release is full-domain and masks no rows; an unchanged column is at level 0, whatever its role
    first_levels: tuple[int, ...] = (0,)
    second_levels: tuple[int, ...] = (0,)
    hierarchy: exp.Expr | None = None
    height: int = 0
    ranges: bool = False  # whether labels may be ranges: these match many labels, which is expensive
    sets: tuple[int, int] | None = None  # where labels may be sets: the lowest level of their nodes in each release
    pairs: int = 0  # the number of pairs of labels, if known: attributes with few pairs are compared first
    is_nested: bool = True  # False: two hierarchies, the levels of the second above those of the first in one table

    @property
    def is_shared(self) -> bool:
        return self.first is not None and self.second is not None

    @property
    def levels(self) -> tuple[int, int] | None:
        """The level of each release, where both have one; (0, 0) without a hierarchy."""
        if self.hierarchy is None:
            return (0, 0)
        if self.is_nested and len(self.first_levels) == len(self.second_levels) == 1:
            return self.first_levels[0], self.second_levels[0]
        return None

    @property
    def is_at_top(self) -> bool:
        """Whether one release has the top value only, which matches every label."""
        is_known = self.hierarchy is not None and self.height > 0 and self.levels is not None
        return is_known and (self.height,) in (self.first_levels, self.second_levels)

    @property
    def in_reverse(self) -> LinkedAttribute:
        """The attribute of the releases in reverse order."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            first_levels=self.second_levels,
            second_levels=self.first_levels,
            sets=None if self.sets is None else (self.sets[1], self.sets[0]),
        )


def label_pair_parts(attribute: LinkedAttribute, i: int, as_numbers: bool) -> dict[str, exp.Query]:
    """The tables from which the pairs of an attribute's labels are made, by name, with the table of pairs at the end.

    Each query reads the tables before it, and the groups `FIRST` and `SECOND`. ``finer`` in the table of pairs is the
    finer label, or a number for it: numbers are enough to count by them.
    """
    hierarchy, names = attribute.hierarchy, f"sqlanon labels {i}"
    name = fragment("row_number() OVER ()")() if as_numbers else col("label")
    parts: dict[str, exp.Query] = {names: _NAMED_LABELS(label=col(f"label_{i}"), name=name)}
    pairs: list[exp.Query] = [_EQUAL_LABELS(label=col(f"label_{i}"))]
    if hierarchy is not None and {*attribute.first_levels, *attribute.second_levels} != {0}:
        first = _released_labels(hierarchy, attribute.first_levels, i, FIRST)
        second = _released_labels(hierarchy, attribute.second_levels, i, SECOND)
        match_labels = _ANCESTORS if attribute.is_nested else _NODES_WITH_COMMON_VALUES
        pairs.append(match_labels(first=first, second=second))
    # Numbers of labels are below 2 ** 32.
    common_name = fragment("(a.name * 4294967296) + b.name" if as_numbers else "concat(a.name, ' & ', b.name)")()
    if attribute.is_nested:
        finer = fragment("CASE WHEN p.finer IS NOT DISTINCT FROM p.first_label THEN a.name ELSE b.name END")()
    else:  # the values that two labels of two hierarchies have in common are named by both labels
        finer = fragment(
            "CASE WHEN p.first_label IS NOT DISTINCT FROM p.second_label THEN a.name ELSE :common_name END"
        )(common_name=common_name.copy())
    matches: list[exp.Query] = [_PAIRS(finer=finer, pairs=union_all(*pairs), labels=table(names))]
    if hierarchy is not None and attribute.ranges:
        parts[f"sqlanon nodes {i}"] = order_nodes(hierarchy, range(attribute.height + 1))
        ranges = {release: f"{release} ranges {i}" for release in (FIRST, SECOND)}
        parts |= {name: _place_labels(attribute, i, release) for release, name in ranges.items()}
        matches.append(
            _OVERLAPPING_LABELS(
                common_name=common_name.copy(), first=table(ranges[FIRST]), second=table(ranges[SECOND])
            )
        )
    if hierarchy is not None and attribute.sets:
        sets = {release: f"{release} sets {i}" for release in (FIRST, SECOND)}
        parts |= {name: _expand_labels(attribute, i, release) for release, name in sets.items()}
        matches.append(
            _LABELS_WITH_COMMON_VALUES(common_name=common_name, first=table(sets[FIRST]), second=table(sets[SECOND]))
        )
    # Labels that are neither nodes, ranges nor sets match equal labels only.
    return {**parts, label_pairs_name(i): select_star(subquery(union_all(*matches), "p"))}


def label_pairs_name(i: int) -> str:
    """The table of pairs of an attribute's labels, within a statement."""
    return f"sqlanon pairs {i}"


def _released_labels(hierarchy: exp.Expr, levels: Iterable[int], i: int, release: str) -> exp.Select:
    """The labels of each ground value that a release has: ``value``, ``level`` and ``label``."""
    at_level = template("SELECT level_0 AS value, :level AS level, :label::VARCHAR AS label FROM :hierarchy")
    labels = [at_level(level=level, label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels]
    return template("""
        SELECT h.value, h.level, h.label
        FROM :labels AS h
        SEMI JOIN :released AS r ON h.label IS NOT DISTINCT FROM r.label
    """)(labels=union_all(*labels), released=_distinct_labels(i, release))


def select_labels(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Select:
    """The labels of all ground values at some levels."""
    return template("SELECT unnest(list_value(:labels)) AS label FROM :hierarchy AS h")(
        labels=_labels_at(levels), hierarchy=hierarchy
    )


def _labels_at(levels: Iterable[int]) -> list[exp.Expr]:
    return [cast(col(f"level_{level}"), "VARCHAR") for level in levels]


def _distinct_labels(i: int, release: str) -> exp.Select:
    return template("SELECT DISTINCT :label AS label FROM :groups")(label=col(f"label_{i}"), groups=table(release))


def _add_names(labels: exp.Query, i: int) -> exp.Select:
    return template("SELECT e.*, x.name FROM :labels AS e JOIN :names AS x ON e.label = x.label")(
        labels=labels, names=table(f"sqlanon labels {i}")
    )


def _place_labels(attribute: LinkedAttribute, i: int, release: str) -> exp.Query:
    """The labels of a release with the places of their first and last value."""
    assert attribute.hierarchy is not None
    labels, nodes = _distinct_labels(i, release), table(f"sqlanon nodes {i}")
    placed: exp.Query = template("""
        SELECT l.label, n.low, n.high, n.has_null, FALSE AS is_range
        FROM :labels AS l
        JOIN :nodes AS n ON l.label = n.label
    """)(labels=labels, nodes=nodes)
    # Labels of one level are nodes.
    if len(attribute.first_levels if release == FIRST else attribute.second_levels) > 1:
        ranges = template("SELECT label, low, high, FALSE AS has_null, TRUE AS is_range FROM :ranges AS x")
        placed = union_all(placed, ranges(ranges=find_ranges(labels, nodes, attribute.hierarchy)))
    return _add_names(placed, i)


def order_nodes(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Select:
    """The nodes of a hierarchy: ``label``, and the places of its first and last value, ``low`` and ``high``."""
    return _NODES(labels=_labels_at(levels), hierarchy=hierarchy)


def find_ranges(labels: exp.Query, nodes: exp.Expr, hierarchy: exp.Expr) -> exp.Select:
    """The ranges among labels: ``label``, ``low`` and ``high``.

    A range is not a node itself; its ends are nodes, or numbers, dates or times between which the hierarchy has values.
    """
    label = col("label", "l")
    numbers, texts = f"({NUMERAL})(?:-({NUMERAL}))?", "(.+) to (.+)"
    first_number, last_number = label_bounds(label, "number")
    first_day, last_day = label_bounds(label, "date")
    first_time, last_time = label_bounds(label, "time")
    return _RANGES(
        first_bound=_strip_padding(col("first", "end_texts")),
        last_bound=_strip_padding(fragment("coalesce(end_texts.second, end_texts.first)")()),
        first_number_text=extract_part(label, numbers, 1),
        first_text=extract_part(label, texts, 1),
        last_number_text=extract_part(label, numbers, 2),
        last_text=extract_part(label, texts, 2),
        first_node=_strip_padding(col("label", "a")),
        last_node=_strip_padding(col("label", "b")),
        labels=labels,
        nodes=nodes,
        hierarchy=hierarchy,
        first_number=first_number,
        last_number=last_number,
        first_day=first_day,
        last_day=last_day,
        first_time=first_time,
        last_time=last_time,
    )


def _strip_padding(label: exp.Expr) -> exp.Expr:
    """A number without padding zeros; other labels unchanged."""
    number_text = trim_zeros(expand_exponent(extract_part(label, f"({NUMERAL})")))
    return fragment("coalesce(:number, :label)")(number=number_text, label=label)


def number_values(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Query:
    """The labels of some levels with each of their ground values as a number: ``label``, ``place``."""
    return template("""
        SELECT unnest(list_value(:labels)) AS label, dense_rank() OVER (ORDER BY level_0 NULLS FIRST) AS place
        FROM :hierarchy
    """)(labels=_labels_at(levels), hierarchy=hierarchy)


def member_levels(level: int, height: int) -> range:
    """The levels of members of sets: those below the top, if there are any."""
    return range(level, max(height, level + 1))


def _expand_labels(attribute: LinkedAttribute, i: int, release: str) -> exp.Query:
    """The labels of a release with each of their ground values."""
    assert attribute.hierarchy is not None and attribute.sets is not None
    labels = _distinct_labels(i, release)
    members = member_levels(attribute.sets[release == SECOND], attribute.height)
    values = template("""
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
    """)(
        sets=find_sets(labels=labels),
        members=number_values(attribute.hierarchy, members),
        labels=labels,
        nodes=number_values(attribute.hierarchy, range(attribute.height + 1)),
    )
    return _add_names(values, i)
