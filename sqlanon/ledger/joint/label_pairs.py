"""Pairs of labels of two releases that can stand for the same values of an attribute.

Equal labels match; so do a node of the hierarchy and its ancestors. The lower of the two is the *finest* label.

Labels may be ranges of values, as Mondrian makes them: ``20-29``, ``2020-01-05 to 2020-02-10``. Numbers may be padded
with zeros so that they sort: ``07`` is a range of one value if the hierarchy has ``7``. The ends of a range need not
be values of the hierarchy: ``[20, 35)``, ``<30`` and ``≥85`` are ranges of numbers or dates, too. A range is not a node
of the hierarchy. It matches the nodes and ranges with which it has values in common: in the order of the ground values,
each covers an interval of positions. Texts that are numbers are ordered as numbers.

Labels may also be sets of nodes: ``{a, b}``. A set matches the nodes and sets with which it has values in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.hierarchies.bounds import label_bounds
from sqlanon.hierarchies.numerals import NUMERAL, expand_exponent, extract_part, trim_zeros
from sqlanon.support.expressions import col, fragment, ident, number, subquery, table, template, union_all

FIRST, SECOND = "sqlanon first", "sqlanon second"
"""The groups of each release, within a statement: names that no relation of a user has."""

FinestForm: TypeAlias = 'Literal["texts", "numbers"] | None'
"""The form of the finest labels of two groups, if they are needed: numbers are enough to count by them."""

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
_RELEASED_LABELS = template("""
    SELECT h.value, h.level, h.label
    FROM :labels AS h
    SEMI JOIN (SELECT DISTINCT :label AS label FROM :groups) AS x ON h.label IS NOT DISTINCT FROM x.label
""")

# A pair can match at several levels. Pairs with ranges and sets are counted elsewhere.
_PAIRS = template("SELECT first_label, second_label FROM :pairs AS p GROUP BY first_label, second_label")
_PAIRS_WITH_FINER = template("""
    SELECT first_label, second_label, min(finer) AS finer
    FROM :pairs AS p
    GROUP BY first_label, second_label
""")
_PAIRS_WITH_NUMBERS = template("""
    SELECT p.first_label, p.second_label, x.id AS f
    FROM (
        SELECT first_label, second_label, min(finer) AS finer
        FROM :pairs AS p
        GROUP BY first_label, second_label
    ) AS p
    JOIN :numbers AS x ON p.finer IS NOT DISTINCT FROM x.label
""")
# Labels of two hierarchies: the values that both have in common are named by both labels.
_CROSSED_PAIRS = template("""
    SELECT
        first_label,
        second_label,
        CASE
            WHEN first_label IS NOT DISTINCT FROM second_label THEN first_label
            ELSE concat(first_label, ' & ', second_label)
        END AS finer
    FROM :pairs AS p
    GROUP BY first_label, second_label
""")
_CROSSED_PAIRS_WITH_NUMBERS = template("""
    SELECT p.first_label, p.second_label, a.id * :more + b.id AS f
    FROM (SELECT first_label, second_label FROM :pairs AS p GROUP BY first_label, second_label) AS p
    JOIN :numbers AS a ON p.first_label IS NOT DISTINCT FROM a.label
    JOIN :numbers AS b ON p.second_label IS NOT DISTINCT FROM b.label
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
_DISTINCT_LABELS = template("SELECT DISTINCT :label AS label FROM :groups")

# --- Ranges

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
# Several texts may be the same number: then a range reaches from the least of their places to the greatest.
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
                    coalesce(
                        TRY_CAST(level_0::VARCHAR AS DOUBLE),
                        date_diff('day', '2000-01-01'::DATE, TRY_CAST(level_0::VARCHAR AS DATE))::DOUBLE,
                        epoch(TRY_CAST(level_0::VARCHAR AS TIME))
                    ) AS number,
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
_ALL_RANGES = template("SELECT * FROM :ranges AS r")
_WITHOUT_PADDING = fragment("coalesce(:number, :label)")
# The values that two ranges have in common are named by both labels, unless one range contains the other. NULL is in no
# range.
_OVERLAPPING_LABELS = template("""
    SELECT
        a.label AS first_label,
        b.label AS second_label,
        CASE
            WHEN a.low >= b.low AND a.high <= b.high AND NOT a.has_null THEN :first_name
            WHEN b.low >= a.low AND b.high <= a.high AND NOT b.has_null THEN :second_name
            ELSE :both
        END AS finer
    FROM :first AS a
    JOIN :second AS b
        ON a.low <= b.high AND b.low <= a.high AND (a.is_range OR b.is_range) AND a.label <> b.label
""")
_BOTH_NUMBERS = fragment("(a.id * :more) + b.id")
_MORE_THAN_LABELS = 2**32

_PLACED_NODES = template("""
    SELECT l.label, n.low, n.high, n.has_null, FALSE AS is_range
    FROM :labels AS l
    JOIN :nodes AS n ON l.label = n.label
""")
_WITH_NUMBERS = template("SELECT e.*, x.id FROM :labels AS e JOIN :numbers AS x ON e.label = x.label")

# --- Sets

# Labels that read as sets, but are not spelled as releases spell them, are not sets.
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
_VALUES_OF_LABELS = template("""
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
# As with ranges, the values that two sets have in common are named by both, unless one contains the other.
_LABELS_WITH_COMMON_VALUES = template("""
    SELECT
        a.label AS first_label,
        b.label AS second_label,
        CASE WHEN count(*) = a.size THEN :first_name WHEN count(*) = b.size THEN :second_name ELSE :both END AS finer
    FROM :first AS a
    JOIN :second AS b ON a.place = b.place AND (a.is_set OR b.is_set) AND a.label <> b.label
    GROUP BY :by
""")


@dataclass(frozen=True)
class LinkedAttribute:
    """A quasi-identifier of two releases, or of one of them.

    Without a hierarchy, labels match if they are equal.

    Attributes
    ----------
    first, second:
        Its column in each release, or None.
    first_levels, second_levels:
        The levels of its labels in each release: one where the release is full-domain and masks no rows. A column that
        is released unchanged is at level 0, whatever its role.
    ranges:
        Whether labels may be ranges, which match all labels with which they have values in common: expensive where
        there are many.
    sets:
        Where labels may be sets: the lowest level of their nodes in each release.
    pairs:
        The number of pairs of labels, if known. Attributes with few pairs are compared first.
    is_nested:
        False where the releases have two hierarchies: the levels of the second are above those of the first in the same
        table.
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
        """The level of each release, where both have one; (0, 0) without a hierarchy."""
        if self.hierarchy is None:
            return (0, 0)
        if self.is_nested and len(self.first_levels) == len(self.second_levels) == 1:
            return self.first_levels[0], self.second_levels[0]
        return None

    @property
    def is_at_top(self) -> bool:
        """Whether one release has the top value only, which matches every label."""
        return (
            self.hierarchy is not None
            and self.height > 0
            and ((self.height,) in (self.first_levels, self.second_levels) and self.levels is not None)
        )

    @property
    def swapped(self) -> LinkedAttribute:
        """The attribute of the releases in reverse order."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            first_levels=self.second_levels,
            second_levels=self.first_levels,
            sets=None if self.sets is None else (self.sets[1], self.sets[0]),
        )


def label_pair_parts(attribute: LinkedAttribute, i: int, finest: FinestForm) -> dict[str, exp.Query]:
    """The tables from which the pairs of an attribute's labels are made, by name, with the table of pairs at the end.

    Each query reads the tables before it, and the groups `FIRST` and `SECOND`.
    """
    parts = dict[str, exp.Query]()
    hierarchy, height = attribute.hierarchy, attribute.height
    if finest == "numbers":
        parts[_labels_name(i)] = _NUMBERED_LABELS(label=col(f"label_{i}"))
    if hierarchy is not None and attribute.ranges:
        parts[f"sqlanon nodes {i}"] = order_nodes(hierarchy, range(height + 1))
        parts |= {_placed_name(i, name): _place_labels(attribute, i, name, finest) for name in (FIRST, SECOND)}
    if hierarchy is not None and attribute.sets:
        parts |= {_values_name(i, name): _expand_labels(attribute, i, name, finest) for name in (FIRST, SECOND)}
    parts[label_pairs_name(i)] = _match_labels(attribute, i, finest)
    return parts


def _match_labels(attribute: LinkedAttribute, i: int, finest: FinestForm) -> exp.Select:
    """The pairs of matching labels of the two releases: ``first_label``, ``second_label``; by ``finest`` the ``finer``
    label and a number for it, ``f``.

    Labels that are neither nodes, ranges nor sets match equal labels only.
    """
    pairs: list[exp.Query] = [_EQUAL_LABELS(label=col(f"label_{i}"))]
    if attribute.hierarchy is not None and {*attribute.first_levels, *attribute.second_levels} != {0}:
        first = _released_labels(attribute.hierarchy, attribute.first_levels, i, FIRST)
        second = _released_labels(attribute.hierarchy, attribute.second_levels, i, SECOND)
        match = _ANCESTORS if attribute.is_nested else _NODES_WITH_COMMON_VALUES
        pairs.append(match(first=first, second=second))
    matches: list[exp.Query] = [_add_finer_label(union_all(*pairs), attribute, i, finest)]
    if attribute.hierarchy is not None and attribute.ranges:
        matches.append(_match_ranges(table(_placed_name(i, FIRST)), table(_placed_name(i, SECOND)), finest))
    if attribute.hierarchy is not None and attribute.sets:
        matches.append(_match_sets(table(_values_name(i, FIRST)), table(_values_name(i, SECOND)), finest))
    return (_ALL_PAIRS_WITH_TEXTS if finest == "texts" else _ALL_PAIRS)(pairs=union_all(*matches))


def _add_finer_label(pairs: exp.Query, attribute: LinkedAttribute, i: int, finest: FinestForm) -> exp.Query:
    match finest:
        case None:
            return _PAIRS(pairs=pairs)
        case "texts":
            return (_PAIRS_WITH_FINER if attribute.is_nested else _CROSSED_PAIRS)(pairs=pairs)
        case "numbers" if attribute.is_nested:
            return _PAIRS_WITH_NUMBERS(pairs=pairs, numbers=table(_labels_name(i)))
        case _:
            more = number(_MORE_THAN_LABELS)
            return _CROSSED_PAIRS_WITH_NUMBERS(pairs=pairs, numbers=table(_labels_name(i)), more=more)


def _released_labels(hierarchy: exp.Expr, levels: Sequence[int], i: int, release: str) -> exp.Select:
    """The labels of each ground value that a release has: ``value``, ``level`` and ``label``."""
    labels = [
        template("SELECT level_0 AS value, :level AS level, :label::VARCHAR AS label FROM :hierarchy")(
            level=level, label=col(f"level_{level}"), hierarchy=hierarchy
        )
        for level in levels
    ]
    return _RELEASED_LABELS(labels=union_all(*labels), label=col(f"label_{i}"), groups=table(release))


def _place_labels(attribute: LinkedAttribute, i: int, release: str, finest: FinestForm) -> exp.Query:
    """The labels of a release with the places of their first and last value."""
    assert attribute.hierarchy is not None
    labels = _DISTINCT_LABELS(label=col(f"label_{i}"), groups=table(release))
    nodes = table(f"sqlanon nodes {i}")
    placed: exp.Query = _PLACED_NODES(labels=labels, nodes=nodes)
    # Labels of one level are nodes.
    if len(attribute.first_levels if release == FIRST else attribute.second_levels) > 1:
        placed = union_all(
            placed,
            template("SELECT label, low, high, FALSE AS has_null, TRUE AS is_range FROM :ranges AS x")(
                ranges=find_ranges(labels, nodes, attribute.hierarchy)
            ),
        )
    return _WITH_NUMBERS(labels=placed, numbers=table(_labels_name(i))) if finest == "numbers" else placed


def order_nodes(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Select:
    """The nodes of a hierarchy: ``label``, and the places of its first and last value, ``low`` and ``high``."""
    nodes = [_NODES_AT_LEVEL(label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels]
    return _NODES(levels=union_all(*nodes))


def find_ranges(labels: exp.Query, nodes: exp.Expr, hierarchy: exp.Expr) -> exp.Select:
    """The ranges among labels: ``label``, ``low`` and ``high``.

    A range is not a node itself; its ends are nodes, or numbers, dates or times between which the hierarchy has values.
    """
    label = col("label", "l")
    numbers, texts = f"({NUMERAL})(?:-({NUMERAL}))?", "(.+) to (.+)"
    by_node = _RANGES(
        first=_strip_padding(col("first", "e")),
        last=_strip_padding(fragment("coalesce(e.second, e.first)")()),
        first_number=extract_part(label, numbers, 1),
        first_text=extract_part(label, texts, 1),
        last_number=extract_part(label, numbers, 2),
        last_text=extract_part(label, texts, 2),
        labels=labels,
        nodes=nodes,
        first_node=_strip_padding(col("label", "a")),
        last_node=_strip_padding(col("label", "b")),
    )
    first_number, last_number = label_bounds(label, "number")
    first_day, last_day = label_bounds(label, "date")
    first_time, last_time = label_bounds(label, "time")
    by_value = _RANGES_BY_VALUE(
        hierarchy=hierarchy,
        first_day=first_day,
        first_time=first_time,
        first_number=first_number,
        last_day=last_day,
        last_time=last_time,
        last_number=last_number,
        labels=labels,
        nodes=nodes,
        by_node=by_node,
    )
    return _ALL_RANGES(ranges=union_all(by_node, _ALL_RANGES(ranges=by_value)))


def _strip_padding(label: exp.Expr) -> exp.Expr:
    """A number without padding zeros; other labels unchanged."""
    return _WITHOUT_PADDING(number=trim_zeros(expand_exponent(extract_part(label, f"({NUMERAL})"))), label=label)


def _match_ranges(first: exp.Expr, second: exp.Expr, finest: FinestForm) -> exp.Select:
    """The pairs of labels with values in common, at least one of them a range: columns as of `_match_labels`."""
    name = "id" if finest == "numbers" else "label"
    query = _OVERLAPPING_LABELS(
        first_name=col(name, "a"), second_name=col(name, "b"), both=_name_of_both(finest), first=first, second=second
    )
    return _keep_finest(query, finest)


def _name_of_both(finest: FinestForm) -> exp.Expr:
    return _BOTH_NUMBERS(more=_MORE_THAN_LABELS) if finest == "numbers" else fragment("a.label || ' & ' || b.label")()


def find_sets(labels: exp.Query) -> exp.Select:
    """The sets among labels, one row for each ``member``: ``label``, ``member``."""
    return _SETS(labels=subquery(labels))


def number_values(hierarchy: exp.Expr, levels: Iterable[int]) -> exp.Query:
    """The labels of some levels with each of their ground values as a number: ``label``, ``place``."""
    return union_all(*(_NUMBERED_VALUES(label=col(f"level_{level}"), hierarchy=hierarchy) for level in levels))


def member_levels(level: int, height: int) -> range:
    """The levels of members of sets: those below the top, if there are any."""
    return range(level, max(height, level + 1))


def _expand_labels(attribute: LinkedAttribute, i: int, release: str, finest: FinestForm) -> exp.Query:
    """The labels of a release with each of their ground values."""
    assert attribute.hierarchy is not None and attribute.sets is not None
    labels = _DISTINCT_LABELS(label=col(f"label_{i}"), groups=table(release))
    levels = member_levels(attribute.sets[release == SECOND], attribute.height)
    values = _VALUES_OF_LABELS(
        sets=subquery(find_sets(labels)),
        members=subquery(number_values(attribute.hierarchy, levels)),
        labels=subquery(labels),
        nodes=subquery(number_values(attribute.hierarchy, range(attribute.height + 1))),
    )
    return _WITH_NUMBERS(labels=values, numbers=table(_labels_name(i))) if finest == "numbers" else values


def _match_sets(first: exp.Expr, second: exp.Expr, finest: FinestForm) -> exp.Select:
    """The pairs of labels with values in common, at least one of them a set: columns as of `_match_labels`."""
    name = "id" if finest == "numbers" else "label"
    by = [col(column, side) for side in ("a", "b") for column in dict.fromkeys(["label", "size", name])]
    query = _LABELS_WITH_COMMON_VALUES(
        first_name=col(name, "a"),
        second_name=col(name, "b"),
        both=_name_of_both(finest),
        first=first,
        second=second,
        by=by,
    )
    return _keep_finest(query, finest)


def _keep_finest(query: exp.Select, finest: FinestForm) -> exp.Select:
    """Drop the ``finer`` label where it is not needed; call it ``f`` where it is a number."""
    if finest is None:
        query.expressions.pop()
    elif finest == "numbers":
        query.expressions[-1].set("alias", ident("f"))
    return query


def label_pairs_name(i: int) -> str:
    """The table of pairs of an attribute's labels, within a statement."""
    return f"sqlanon pairs {i}"


def _labels_name(i: int) -> str:
    return f"sqlanon labels {i}"


def _placed_name(i: int, release: str) -> str:
    return f"{release} placed {i}"


def _values_name(i: int, release: str) -> str:
    return f"{release} values {i}"
