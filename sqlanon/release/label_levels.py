"""The levels of the labels of a release, and the attributes whose labels are ranges.

The levels of a label are, for each level from its own up, the label at that level. They are derived from the released
rows and the policy with its hierarchy files, independently of unreleased values. The labels of rules are therefore
computed from released labels, and not looked up in the hierarchies of the source: there, the longest text or bound may
belong to a suppressed row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies import Hierarchy, find_static_height, hierarchy_query
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.parts import TOP, ColumnKind, column_kind, label_range_kind, try_cast
from sqlanon.policy import Attribute
from sqlanon.policy.rules import IntervalsRule
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import all_of, as_column, cast, col, fragment, table, template, text, union_all

LEVELS = "label_levels"
"""The table, in the schema ``sqlanon``."""

LEVELS_COLUMNS = {"attribute": "VARCHAR", "label": "VARCHAR", "level": "INTEGER", "ancestor": "VARCHAR"}

_LISTED = {"file", "table", "categories"}
_RANGES = {"intervals", "dates"}


_PATHS_FROM_ANY_LEVEL = template("""
    SELECT DISTINCT label, path, first_position
    FROM (
        SELECT list_extract(path, position) AS label, path, position AS first_position
        FROM (SELECT [:labels] AS path FROM :hierarchy) AS paths, range(1, :end_position) AS positions(position)
    ) AS labels
    WHERE label IN (SELECT label FROM :released AS released)
""")
_PATHS_OF_TEXTS = template("""
    WITH released AS (SELECT label AS value FROM :released AS labels WHERE label <> :top)
    SELECT
        level_0 AS label,
        [:labels] AS path,
        greatest(len(list_filter([:labels], lambda x: x = level_0)), 1) AS first_position
    FROM :hierarchy AS hierarchy
""")
_COMMON_LABEL = fragment("CASE WHEN min(:label) = max(:label) THEN min(:label) END")
_PATH_OF_TOP = template("""
    SELECT label, [label] AS path, 1 AS first_position FROM :released AS labels WHERE label = :top
""")
# The upper bound of numbers is exclusive: the last value is taken from the last of the narrowest intervals.
_LAST_NUMBER = fragment("""
    CASE
        WHEN label LIKE '<%' THEN :high - 1
        WHEN label LIKE '[%' THEN greatest(:low, :high - 0.9 * :width)
        ELSE :high
    END
""")
# A range is below a label if both its ends are.
_PATHS_OF_RANGES = template("""
    WITH released AS (
        SELECT
            label,
            unnest([:first_value, :last_value]) AS value,
            :low IS NOT DISTINCT FROM :high AS is_single_value
        FROM :released AS labels
    )
    SELECT r.label, [:labels] AS path, 1 AS first_position
    FROM released AS r
    JOIN (SELECT DISTINCT * FROM :hierarchy AS ground_values) AS h ON r.value = h.level_0
    GROUP BY r.label
""")
_WITHOUT_PADDING = fragment(r"regexp_replace(:label, '(^|[^0-9.])0+([0-9])', '\1\2', 'g')")
# Ranges are padded with zeros to the width of the longest of their level: use the released spelling.
_IN_RELEASED_SPELLING = template("""
    SELECT
        paths.label,
        list_transform(paths.path, lambda x: coalesce(spellings.by_plain_label[:plain_x], x)) AS path,
        paths.first_position
    FROM :paths AS paths, (
        SELECT map(list(plain_label), list(label)) AS by_plain_label
        FROM (
            SELECT :plain_label AS plain_label, min(label) AS label
            FROM :released AS labels
            GROUP BY :plain_label
        ) AS plain_labels
    ) AS spellings
""")
_PATHS_OF_ATTRIBUTE = template("""
    SELECT :attribute AS attribute, :i AS i, label, path, first_position, :first_level AS first_level
    FROM :paths AS paths
""")
# Position ``low`` of a path is the label, 0 for the released label itself, and position ``high`` its ancestor.
_LABEL_LEVELS = template("""
    WITH pairs AS (
        SELECT
            i,
            attribute,
            low,
            CASE WHEN low = 0 THEN label ELSE list_extract(path, low) END AS label,
            (first_level + high - 1)::INTEGER AS level,
            list_extract(path, high) AS ancestor
        FROM :paths AS paths, range(0, :end_position) AS labels(low), range(1, :end_position) AS ancestors(high)
        WHERE high >= low AND high >= first_position AND (low = 0 OR low >= first_position)
    ),
    ancestors AS (
        SELECT i, attribute, label, level, min(ancestor) AS ancestor, bool_or(low = 0) AS is_released
        FROM pairs
        WHERE label IS NOT NULL
        GROUP BY i, attribute, label, level
        HAVING min(ancestor) = max(ancestor)
    ),
    unique_ancestors AS (SELECT * FROM ancestors WHERE :condition),
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


def label_levels(
    engine: Engine, search_input: SearchInput, generalization: Mapping[str, int | None], released: exp.Table
) -> exp.Query:
    """The levels of the labels in released rows, as `LEVELS_COLUMNS`.

    They are unknown for sets; for ranges of values below a mask or a file; for a label that stands for several groups
    of its hierarchy; for masks, intervals and dates below a file; for partial dates; and for files if the source is on
    a server.
    """
    policy, levels = search_input.policy, {name.lower(): level for name, level in generalization.items()}
    queries, longest_path = list[exp.Query](), 0
    conditions: list[exp.Expr] = []
    columns, hierarchies = search_input.columns.generalized, search_input.policy_hierarchies
    attributes = zip(policy.generalized_attributes, columns, hierarchies, strict=False)
    for i, (name, column, hierarchy) in enumerate(attributes):
        spec, level = policy.attributes[name], levels.get(name.lower(), 0)
        if (level == 0 and not hierarchy.open_ends) or not hierarchy.height:
            continue
        for paths, first_level, length in _find_paths(engine, search_input, spec, column, hierarchy, level, released):
            queries.append(_PATHS_OF_ATTRIBUTE(attribute=text(column), i=i, first_level=first_level, paths=paths))
            longest_path = max(longest_path, length)
        if spec.forbidden:
            conditions.append(
                fragment("NOT (i = :i AND (label IN (:forbidden) OR ancestor IN (:forbidden)))")(
                    i=i, forbidden=[text(label) for label in spec.forbidden]
                )
            )
    if not queries:
        return template("SELECT '' AS attribute, '' AS label, 0 AS level, '' AS ancestor LIMIT 0")()
    return _LABEL_LEVELS(paths=union_all(*queries), end_position=longest_path + 1, condition=all_of(conditions))


_Paths: TypeAlias = "tuple[exp.Query, int, int]"
"""A query of paths, the level of their first position, and the length of the longest."""


def _find_paths(
    engine: Engine,
    search_input: SearchInput,
    spec: Attribute,
    column: str,
    hierarchy: Hierarchy,
    level: int | None,
    released: exp.Table,
) -> Iterable[_Paths]:
    labels = template("SELECT :column::VARCHAR AS label FROM :rows WHERE :column IS NOT NULL GROUP BY :column")(
        column=col(column), rows=released.copy()
    )
    kinds = {rule.kind for rule in spec.hierarchy or ()}
    summarizes = search_input.policy.search.traits.summarizes
    if summarizes and kinds & _LISTED:  # a range of values may look like a label of a file
        labels.where(
            fragment("NOT regexp_matches(:label, '^-?[0-9].*(-| to )|^(<|≥|[[])-?[0-9]')")(
                label=cast(col(column), "VARCHAR")
            ),
            copy=False,
        )
    if kinds <= _LISTED and len(spec.hierarchy or ()) == 1:
        is_remote = search_input.source.access == "remote"
        return [] if is_remote else [_listed_paths(hierarchy, level, spec.min_level, labels)]
    if kinds & _RANGES and not kinds & (_LISTED | {"mask"}):
        return _range_paths(spec, hierarchy, search_input.source.columns[column], labels)
    if kinds & (_LISTED | _RANGES) or summarizes:
        return []
    longest = None
    if "mask" in kinds:
        longest = engine.rows(
            template("SELECT max(length(:column::VARCHAR)) FROM :rows")(column=col(column), rows=released.copy())
        )[0][0]
    return _text_paths(spec, labels, longest or 1)


def _listed_paths(hierarchy: Hierarchy, level: int | None, lowest: int, labels: exp.Select) -> _Paths:
    first_level = lowest if level is None else level
    path = [cast(col(f"level_{n}"), "VARCHAR") for n in range(first_level, hierarchy.height + 1)]
    if level is not None:
        # The path of a label is the list of labels at all levels. It is known from ``first_position`` on.
        query = template("""
            SELECT DISTINCT :label AS label, [:labels] AS path, 1 AS first_position
            FROM :hierarchy
            WHERE :label IN (SELECT label FROM :released AS released)
        """)(label=path[0].copy(), labels=path, hierarchy=hierarchy.table.copy(), released=labels)
    else:
        end_position = len(path) + 1
        query = _PATHS_FROM_ANY_LEVEL(
            labels=path, hierarchy=hierarchy.table.copy(), end_position=end_position, released=labels
        )
    return query, first_level, len(path)


def _text_paths(spec: Attribute, labels: exp.Select, longest: int) -> Iterator[_Paths]:
    """The paths of masks, which have the same effect on a masked text as on the text, and of suppressed values."""
    rules = spec.hierarchy or ()
    height = find_static_height(rules, longest=longest) or 0
    path: list[exp.Expr] = [col(f"level_{level}") for level in range(height + 1)]
    hierarchy = hierarchy_query(rules, table("released"), "VARCHAR", longest=longest)
    yield _PATHS_OF_TEXTS(labels=path, hierarchy=hierarchy, released=labels, top=TOP), 0, height + 1
    yield _PATH_OF_TOP(released=labels.copy(), top=TOP), height, 1


def _range_paths(spec: Attribute, hierarchy: Hierarchy, type_: str, labels: exp.Select) -> Iterator[_Paths]:
    """The paths of ranges of numbers or dates, from the paths of their first and last values."""
    kind = label_range_kind(type_)
    if kind is None or (kind == "number" and column_kind(type_) is ColumnKind.INTEGER):
        return  # DOUBLE does not hold these integers
    low, high = label_bounds(col("label"), kind)
    last_number, intervals = high, [rule for rule in spec.hierarchy or () if isinstance(rule, IntervalsRule)]
    if kind == "number":
        last_number = _LAST_NUMBER(low=low, high=high, width=float(min(rule.widths[0] for rule in intervals)))
    for sign, name in (("<", "below"), ("≥", "above")):
        if all(getattr(rule, name) is None for rule in intervals):  # open ranges of quantiles have no levels
            labels.where(
                fragment("NOT starts_with(:label, :sign)")(label=labels.expressions[0].unalias(), sign=sign), copy=False
            )
    value_type = "DATE" if kind == "date" else type_
    first_value: exp.Expr = try_cast(low, value_type)
    last_value: exp.Expr = try_cast(last_number, value_type)
    ground_label: exp.Expr = fragment("CASE WHEN bool_and(r.is_single_value) THEN r.label END")()
    if hierarchy.open_ends:
        first_value, last_value = _include_open_ends(intervals, first_value, last_value, value_type)
        common_label = _COMMON_LABEL(label=col(hierarchy.released_column(0)))
        ground_label = fragment(
            "coalesce(:single_value, CASE WHEN label LIKE '<%' OR label LIKE '≥%' THEN :common_label END)"
        )(single_value=ground_label, common_label=common_label)
    upper_labels = [_COMMON_LABEL(label=col(f"level_{level}")) for level in range(1, hierarchy.height + 1)]
    paths = _PATHS_OF_RANGES(
        first_value=first_value,
        last_value=last_value,
        low=low,
        high=high,
        released=labels,
        labels=[ground_label, *upper_labels],
        hierarchy=hierarchy_query(spec.hierarchy or (), table("released"), value_type),
    )
    if kind != "date":
        plain_label, plain_x = (_WITHOUT_PADDING(label=col(name)) for name in ("label", "x"))
        paths = _IN_RELEASED_SPELLING(paths=paths, released=labels.copy(), plain_label=plain_label, plain_x=plain_x)
    yield paths, 0, hierarchy.height + 1
    yield _PATH_OF_TOP(released=labels.copy(), top=TOP), hierarchy.height, 1


def _include_open_ends(
    intervals: Sequence[IntervalsRule], first_value: exp.Expr, last_value: exp.Expr, type_: str
) -> tuple[exp.Expr, exp.Expr]:
    """Extend the values of an open range beyond all open ends of the rules."""
    before = [_value_before(rule.below) for rule in intervals if rule.below is not None]
    below = [try_cast(text(str(value)), type_) for value in before]
    above = [try_cast(text(str(rule.above)), type_) for rule in intervals if rule.above is not None]
    label = col("label")
    if below:
        first_value = fragment("CASE WHEN :label LIKE '<%' THEN least(:last_value, :below) ELSE :first_value END")(
            label=label, first_value=first_value, below=below, last_value=last_value
        )
    if above:
        last_value = fragment("CASE WHEN :label LIKE '≥%' THEN greatest(:first_value, :above) ELSE :last_value END")(
            label=label, last_value=last_value, above=above, first_value=first_value
        )
    return first_value, last_value


def _value_before(bound: Decimal | date) -> Decimal | date:
    return bound - timedelta(days=1) if isinstance(bound, date) else bound - 1


def find_range_kinds(engine: Engine, search_input: SearchInput) -> dict[str, RangeKind]:
    """The kind of range that the labels of an attribute are, by lower-case column name.

    Rules and strategies make ranges of numbers or times; a file or table of labels may list ranges, too.
    """
    policy, source, kinds = search_input.policy, search_input.source, dict[str, RangeKind]()
    listed_hierarchies: dict[str, tuple[Hierarchy, RangeKind | None]] = {}
    for name, hierarchy in zip(policy.generalized_attributes, search_input.policy_hierarchies, strict=True):
        rules = {rule.kind for rule in policy.attributes[name].hierarchy or ()}
        type_ = next(type_ for column, type_ in source.columns.items() if column.lower() == name.lower())
        # partial dates are texts
        kind = label_range_kind(type_) or ("date" if "dates" in rules else None)
        if kind is not None and (policy.search.traits.summarizes or rules & {"intervals", "dates"}):
            kinds[name.lower()] = kind
        elif rules <= _LISTED and len(rules) == 1 and hierarchy.height > 1 and source.access != "remote":
            listed_hierarchies[name.lower()] = hierarchy, kind
    return kinds | dict(_find_listed_ranges(engine, listed_hierarchies))


_PARSABLE_TYPES = template("""
    SELECT
        :i AS i,
        bool_and(TRY_CAST(:value AS BIGINT) IS NOT NULL) AS are_integers,
        bool_and(TRY_CAST(:value AS DOUBLE) IS NOT NULL) AS are_numbers,
        bool_and(TRY_CAST(:value AS DATE) IS NOT NULL) AS are_dates
    FROM :hierarchy
    WHERE level_0 IS NOT NULL
""")
_TYPES: Mapping[RangeKind, str] = {"integer": "BIGINT", "number": "DOUBLE", "date": "DATE"}


def _find_listed_ranges(
    engine: Engine, listed_hierarchies: Mapping[str, tuple[Hierarchy, RangeKind | None]]
) -> Iterator[tuple[str, RangeKind]]:
    """Find the attributes whose listed labels are ranges that contain their ground values."""
    value, names = cast(col("level_0"), "VARCHAR"), list(listed_hierarchies)
    candidates = {i: kind for i, (_, kind) in enumerate(listed_hierarchies.values()) if kind is not None}
    queries = [
        _PARSABLE_TYPES(i=i, value=value, hierarchy=hierarchy.table)
        for i, (hierarchy, kind) in enumerate(listed_hierarchies.values())
        if kind is None
    ]
    for i, *is_parsable in engine.rows(union_all(*queries)) if queries else ():
        kind = next((kind for kind, parsable in zip(_TYPES, is_parsable, strict=True) if parsable), None)
        if kind is not None:
            candidates[i] = kind
    queries = [_contain_values(i, listed_hierarchies[names[i]][0], kind) for i, kind in candidates.items()]
    for i, are_ranges in sorted(engine.rows(union_all(*queries))) if queries else ():
        if are_ranges:
            yield names[i], candidates[i]


def _contain_values(i: int, hierarchy: Hierarchy, kind: RangeKind) -> exp.Select:
    """Whether the labels of attribute ``i`` contain the ground values below them, and some label is a range."""
    levels = range(1, hierarchy.height)  # without the top
    ends = [
        as_column(end, f"{side}_{level}")
        for level in levels
        for side, end in zip(("low", "high"), label_bounds(col(f"level_{level}"), kind), strict=True)
    ]
    pairs = [(col(f"low_{level}"), col(f"high_{level}")) for level in levels]
    return template("""
        SELECT :i AS i, bool_and(:all_contain) AND bool_or(:any_is_range)
        FROM (SELECT :value AS value, :bounds FROM :hierarchy WHERE level_0 IS NOT NULL) AS labels
    """)(
        i=i,
        all_contain=all_of(
            fragment("coalesce(:low <= value, TRUE) AND coalesce(value <= :high, TRUE)")(low=low, high=high)
            for low, high in pairs
        ),
        any_is_range=exp.or_(*(fragment(":low IS DISTINCT FROM :high")(low=low, high=high) for low, high in pairs)),
        value=try_cast(cast(col("level_0"), "VARCHAR"), _TYPES[kind]),
        bounds=ends,
        hierarchy=hierarchy.table,
    )
