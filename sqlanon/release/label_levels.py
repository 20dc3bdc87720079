"""The levels of the labels of a release: for each label and each level from its own up, the label at that level.

They follow from the released rows and the policy with its hierarchy files alone: no value that is not released changes
them. So labels of rules are worked out from the released ones again, not looked up in the hierarchies of the source,
where the longest text and the longest bound may be those of a suppressed row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies import Hierarchy, find_static_height, hierarchy_query
from sqlanon.hierarchies.bounds import bounds
from sqlanon.hierarchies.parts import TOP, ColumnKind, column_kind, label_range_kind, try_cast
from sqlanon.policy import Attribute
from sqlanon.policy.rules import IntervalsRule
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import all_of, cast, col, fragment, table, template, text, union_all

LEVELS = "label_levels"
"""The table, in the schema ``sqlanon``."""

LEVELS_COLUMNS = {"attribute": "VARCHAR", "label": "VARCHAR", "level": "INTEGER", "ancestor": "VARCHAR"}

_LISTED = {"file", "table", "categories"}
_RANGES = {"intervals", "dates"}

_LABELS = template("SELECT :column::VARCHAR AS label FROM :rows WHERE :column IS NOT NULL GROUP BY :column")
_NO_RANGE = fragment("NOT regexp_matches(:label, '^-?[0-9].*(-| to )|^(<|≥|[[])-?[0-9]')")
_LONGEST = template("SELECT max(length(:column::VARCHAR)) FROM :rows")

# The path of a label: those above it, level by level, as a list; and the place in it from which they are known.
_PATHS_AT_LEVEL = template("""
    SELECT DISTINCT :label AS label, [:labels] AS path, 1 AS place
    FROM :hierarchy
    WHERE :label IN (SELECT label FROM :released AS r)
""")
_PATHS_IN_LIST = template("""
    SELECT DISTINCT label, path, place
    FROM (
        SELECT list_extract(path, place) AS label, path, place
        FROM (SELECT [:labels] AS path FROM :hierarchy) AS h, range(1, :above) AS p(place)
    ) AS l
    WHERE label IN (SELECT label FROM :released AS r)
""")
_PATHS_BY_TEXT = template("""
    WITH released AS (SELECT label AS value FROM :released AS l WHERE label <> :top)
    SELECT level_0 AS label, [:labels] AS path, greatest(len(list_filter([:labels], lambda x: x = level_0)), 1) AS place
    FROM :hierarchy AS h
""")
# A range is under a label if both its ends are.
_PATHS_BY_ENDS = template("""
    WITH released AS (
        SELECT label, unnest([:low, :high]) AS value, :first IS NOT DISTINCT FROM :last AS single FROM :released AS l
    )
    SELECT r.label, [:labels] AS path, 1 AS place
    FROM released AS r
    JOIN (SELECT DISTINCT * FROM :hierarchy AS v) AS h ON r.value = h.level_0
    GROUP BY r.label
""")
_ITSELF = fragment("CASE WHEN bool_and(r.single) THEN r.label END")
_SAME = fragment("CASE WHEN min(:label) = max(:label) THEN min(:label) END")
_ITSELF_OR_OPEN_END = fragment("coalesce(:itself, CASE WHEN label LIKE '<%' OR label LIKE '≥%' THEN :same END)")
_OR_LEAST = fragment("CASE WHEN :label LIKE '<%' THEN least(:high, :below) ELSE :low END")
_OR_GREATEST = fragment("CASE WHEN :label LIKE '≥%' THEN greatest(:low, :above) ELSE :high END")
# Of numbers, the upper bound is the first number beyond: what is taken lies in the last of the least intervals.
_WITHIN = fragment("""
    CASE
        WHEN label LIKE '<%' THEN :high - 1
        WHEN label LIKE '[%' THEN greatest(:low, :high - 0.9 * :width)
        ELSE :high
    END
""")
_IS_CLOSED = fragment("NOT starts_with(:label, :sign)")
# A range is padded with zeros like the longest one of its level: where it is released, it is as it is released.
_AS_RELEASED = template("""
    SELECT p.label, list_transform(p.path, lambda x: coalesce(r.texts[:plain_x], x)) AS path, p.place
    FROM :paths AS p, (
        SELECT map(list(plain), list(label)) AS texts
        FROM (SELECT :plain_label AS plain, min(label) AS label FROM :released AS l GROUP BY :plain_label) AS m
    ) AS r
""")
_PLAIN = fragment(r"regexp_replace(:label, '(^|[^0-9.])0+([0-9])', '\1\2', 'g')")
_TOP = template("SELECT label, [label] AS path, 1 AS place FROM :released AS l WHERE label = :top")
_OF_ATTRIBUTE = template("SELECT :attribute AS attribute, :i AS i, label, path, place, :base AS base FROM :paths AS p")
_ALL = template("""
    WITH unique_ancestors AS (
        SELECT i, attribute, label, level, min(ancestor) AS ancestor, bool_or(low = 0) AS is_released
        FROM (
            SELECT
                i,
                attribute,
                low,
                CASE WHEN low = 0 THEN label ELSE list_extract(path, low) END AS label,
                (base + high - 1)::INTEGER AS level,
                list_extract(path, high) AS ancestor
            FROM :every AS e, range(0, :above) AS a(low), range(1, :above) AS b(high)
            WHERE high >= low AND high >= place AND (low = 0 OR low >= place)
        ) AS p
        WHERE label IS NOT NULL AND :shown
        GROUP BY i, attribute, label, level
        HAVING min(ancestor) = max(ancestor)
    ),
    reachable AS (
        SELECT DISTINCT i, ancestor
        FROM unique_ancestors
        WHERE is_released
    )
    -- a label stays if it is released, or the unique ancestor of one that is
    SELECT attribute, label, level, u.ancestor AS ancestor
    FROM unique_ancestors AS u
    LEFT JOIN reachable AS r ON r.i = u.i AND r.ancestor = u.label
    WHERE is_released OR r.i IS NOT NULL
    ORDER BY u.i, level, label
""")
_SHOWN = fragment("ancestor IS NOT NULL")
_NOT_FORBIDDEN = fragment("NOT (i = :i AND (label IN (:forbidden) OR ancestor IN (:forbidden)))")
_NONE = template("SELECT '' AS attribute, '' AS label, 0 AS level, '' AS ancestor LIMIT 0")


def label_levels(
    engine: Engine, prepared: SearchInput, generalization: Mapping[str, int | None], released: exp.Table
) -> exp.Query:
    """The levels of the labels in released rows, as `LEVELS_COLUMNS`.

    They are not known of sets; of ranges of values under a mask or a file; of a label that stands for several groups of
    its hierarchy; of masks, intervals and dates with a file above them; of partial dates; and of files where the source
    is elsewhere.
    """
    policy, levels = prepared.policy, {name.lower(): level for name, level in generalization.items()}
    every, longest_path = list[exp.Query](), 0
    shown: list[exp.Expr] = [_SHOWN()]
    attributes = zip(
        policy.generalized_attributes, prepared.columns.generalized, prepared.policy_hierarchies, strict=False
    )
    for i, (name, column, hierarchy) in enumerate(attributes):
        spec, level = policy.attributes[name], levels.get(name.lower(), 0)
        if (level == 0 and not hierarchy.open_ends) or not hierarchy.height:
            continue
        labels = _LABELS(column=col(column), rows=released.copy())
        type_ = prepared.source.columns[column]
        kinds = {rule.kind for rule in spec.hierarchy or ()}
        if policy.search.traits.summarizes and kinds & _LISTED:  # a range of values may read like a label of a file
            labels.where(_NO_RANGE(label=cast(col(column), "VARCHAR")), copy=False)
        if kinds <= _LISTED and len(spec.hierarchy or ()) == 1:
            known = [] if prepared.source.access == "remote" else [_listed(hierarchy, level, spec.min_level, labels)]
        elif kinds & _RANGES and not kinds & (_LISTED | {"mask"}):
            known = list(_ranges(spec, hierarchy, type_, labels))
        elif not kinds & (_LISTED | _RANGES) and not policy.search.traits.summarizes:
            query = _LONGEST(column=col(column), rows=released.copy())
            longest = engine.rows(query)[0][0] if "mask" in kinds else 1
            known = list(_texts(spec, labels, longest or 1))
        else:
            known = []
        for paths, base, length in known:
            every.append(_OF_ATTRIBUTE(attribute=text(column), i=i, base=base, paths=paths))
            longest_path = max(longest_path, length)
        if spec.forbidden:
            shown.append(_NOT_FORBIDDEN(i=i, forbidden=[text(one) for one in spec.forbidden]))
    return _ALL(every=union_all(*every), above=longest_path + 1, shown=all_of(shown)) if every else _NONE()


_Paths: TypeAlias = "tuple[exp.Query, int, int]"
"""With the level at which they begin, and the length of the longest."""


def _listed(hierarchy: Hierarchy, level: int | None, lowest: int, labels: exp.Select) -> _Paths:
    first = lowest if level is None else level
    path = [cast(col(f"level_{one}"), "VARCHAR") for one in range(first, hierarchy.height + 1)]
    if level is not None:
        query = _PATHS_AT_LEVEL(label=path[0].copy(), labels=path, hierarchy=hierarchy.table.copy(), released=labels)
    else:
        query = _PATHS_IN_LIST(labels=path, hierarchy=hierarchy.table.copy(), above=len(path) + 1, released=labels)
    return query, first, len(path)


def _texts(spec: Attribute, labels: exp.Select, longest: int) -> Iterator[_Paths]:
    """Of masks, which apply to a masked text as to the text itself; and of values that are suppressed."""
    rules = spec.hierarchy or ()
    height = find_static_height(rules, longest=longest) or 0
    path: list[exp.Expr] = [col(f"level_{level}") for level in range(height + 1)]
    hierarchy = hierarchy_query(rules, table("released"), "VARCHAR", longest=longest)
    yield _PATHS_BY_TEXT(labels=path, hierarchy=hierarchy, released=labels, top=TOP), 0, height + 1
    yield _TOP(released=labels.copy(), top=TOP), height, 1


def _ranges(spec: Attribute, hierarchy: Hierarchy, type_: str, labels: exp.Select) -> Iterator[_Paths]:
    kind = label_range_kind(type_)
    if kind is None or (kind == "number" and column_kind(type_) is ColumnKind.INTEGER):
        return  # integers that DOUBLE does not hold
    first, last = bounds(col("label"), kind)
    within, intervals = last, [rule for rule in spec.hierarchy or () if isinstance(rule, IntervalsRule)]
    if kind == "number":
        width = min(rule.widths[0] for rule in intervals)
        within = _WITHIN(low=first, high=last, width=float(width))
    for sign, name in (("<", "below"), ("≥", "above")):
        if all(getattr(rule, name) is None for rule in intervals):  # such a range of quantiles has no levels
            labels.where(_IS_CLOSED(label=labels.expressions[0].unalias(), sign=sign), copy=False)
    of = "DATE" if kind == "date" else type_
    low: exp.Expr = try_cast(first, of)
    high: exp.Expr = try_cast(within, of)
    itself: exp.Expr = _ITSELF()
    if hierarchy.open_ends:
        low, high = _with_open_ends(spec, low, high, of)
        itself = _ITSELF_OR_OPEN_END(itself=itself, same=_SAME(label=col(hierarchy.released_column(0))))
    path: list[exp.Expr] = [_SAME(label=col(f"level_{level}")) for level in range(1, hierarchy.height + 1)]
    paths = _PATHS_BY_ENDS(
        low=low,
        high=high,
        first=first,
        last=last,
        released=labels,
        labels=[itself, *path],
        hierarchy=hierarchy_query(spec.hierarchy or (), table("released"), of),
    )
    if kind != "date":
        plain = {f"plain_{one}": _PLAIN(label=col(one)) for one in ("label", "x")}
        paths = _AS_RELEASED(paths=paths, released=labels.copy(), **plain)
    yield paths, 0, hierarchy.height + 1
    yield _TOP(released=labels.copy(), top=TOP), hierarchy.height, 1


def _with_open_ends(spec: Attribute, low: exp.Expr, high: exp.Expr, type_: str) -> tuple[exp.Expr, exp.Expr]:
    """The first and the last value of a label; an open one also has values beyond all open ends of the rules."""
    rules = [rule for rule in spec.hierarchy or () if isinstance(rule, IntervalsRule)]
    before = [_before(rule.below) for rule in rules if rule.below is not None]
    below = [try_cast(text(str(value)), type_) for value in before]
    above = [try_cast(text(str(rule.above)), type_) for rule in rules if rule.above is not None]
    if below:
        low = _OR_LEAST(label=col("label"), low=low, below=below, high=high)
    if above:
        high = _OR_GREATEST(label=col("label"), high=high, above=above, low=low.copy())
    return low, high


def _before(bound: Decimal | date) -> Decimal | date:
    return bound - timedelta(days=1) if isinstance(bound, date) else bound - 1
