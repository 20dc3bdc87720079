"""Attributes whose labels are ranges of numbers or dates: the tables of labels have the ends of the ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.parts import label_range_kind, try_cast
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import all_of, as_column, cast, col, fragment, template, union_all

_LISTED = {"file", "table", "categories"}


def find_range_kinds(engine: Engine, search_input: SearchInput) -> dict[str, RangeKind]:
    """The kind of range that the labels of an attribute are, by lower-case column name.

    Rules and strategies make ranges of numbers or times; a file or table of labels may list ranges, too.
    """
    policy, source, kinds = search_input.policy, search_input.source, dict[str, RangeKind]()
    listed: dict[str, tuple[Hierarchy, RangeKind | None]] = {}
    for name, hierarchy in zip(policy.generalized_attributes, search_input.policy_hierarchies, strict=True):
        rules = {rule.kind for rule in policy.attributes[name].hierarchy or ()}
        type_ = next(type_ for column, type_ in source.columns.items() if column.lower() == name.lower())
        # partial dates are texts
        kind = label_range_kind(type_) or ("date" if "dates" in rules else None)
        if kind is not None and (policy.search.traits.summarizes or rules & {"intervals", "dates"}):
            kinds[name.lower()] = kind
        elif rules <= _LISTED and len(rules) == 1 and hierarchy.height > 1 and source.access != "remote":
            listed[name.lower()] = hierarchy, kind
    return kinds | dict(_find_listed_ranges(engine, listed))


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
_CONTAIN_VALUES = template("""
    SELECT :i AS i, bool_and(:all_contain) AND bool_or(:any_is_range)
    FROM (SELECT :value AS value, :bounds FROM :hierarchy WHERE level_0 IS NOT NULL) AS labels
""")
_CONTAINS = fragment("coalesce(:low <= value, TRUE) AND coalesce(value <= :high, TRUE)")
_IS_RANGE = fragment(":low IS DISTINCT FROM :high")


def _find_listed_ranges(
    engine: Engine, listed: Mapping[str, tuple[Hierarchy, RangeKind | None]]
) -> Iterator[tuple[str, RangeKind]]:
    """Find the attributes whose listed labels are ranges that contain their ground values."""
    value, names = cast(col("level_0"), "VARCHAR"), list(listed)
    candidates = {i: kind for i, (_, kind) in enumerate(listed.values()) if kind is not None}
    queries = [
        _PARSABLE_TYPES(i=i, value=value, hierarchy=hierarchy.table)
        for i, (hierarchy, kind) in enumerate(listed.values())
        if kind is None
    ]
    for i, *is_parsable in engine.rows(union_all(*queries)) if queries else ():
        kind = next((kind for kind, parsable in zip(_TYPES, is_parsable, strict=True) if parsable), None)
        if kind is not None:
            candidates[i] = kind
    queries = [_contain_values(i, listed[names[i]][0], kind) for i, kind in candidates.items()]
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
    return _CONTAIN_VALUES(
        i=i,
        all_contain=all_of(_CONTAINS(low=low, high=high) for low, high in pairs),
        any_is_range=exp.or_(*(_IS_RANGE(low=low, high=high) for low, high in pairs)),
        value=try_cast(cast(col("level_0"), "VARCHAR"), _TYPES[kind]),
        bounds=ends,
        hierarchy=hierarchy.table,
    )
