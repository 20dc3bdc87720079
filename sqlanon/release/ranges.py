"""Which labels of a release are ranges of numbers or dates, whose ends the tables of labels have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.bounds import RangeKind, bounds
from sqlanon.hierarchies.parts import label_range_kind, try_cast
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import all_of, cast, col, fragment, named, template, union_all

_LISTED = {"file", "table", "categories"}


def find_range_kinds(engine: Engine, prepared: SearchInput) -> dict[str, RangeKind]:
    """By column, in lower case, what the labels of an attribute are ranges of: of those whose rules, or whose strategy,
    make ranges of numbers or times, and of those with a file of ranges that hold their values."""
    policy, found = prepared.policy, dict[str, RangeKind]()
    summarised = policy.search.traits.summarizes
    listed: dict[str, tuple[Hierarchy, RangeKind | None]] = {}
    for name, hierarchy in zip(policy.generalized_attributes, prepared.policy_hierarchies, strict=True):
        rules = {rule.kind for rule in policy.attributes[name].hierarchy or ()}
        type_ = next(its for column, its in prepared.source.columns.items() if column.lower() == name.lower())
        # partial dates are texts
        kind = label_range_kind(type_) or ("date" if "dates" in rules else None)
        if kind is not None and (summarised or rules & {"intervals", "dates"}):
            found[name.lower()] = kind
        elif rules <= _LISTED and len(rules) == 1 and hierarchy.height > 1 and prepared.source.access != "remote":
            listed[name.lower()] = hierarchy, kind
    return found | dict(_listed_ranges(engine, listed))


_KINDS = template("""
    SELECT
        :i AS i,
        bool_and(TRY_CAST(:value AS BIGINT) IS NOT NULL) AS integers,
        bool_and(TRY_CAST(:value AS DOUBLE) IS NOT NULL) AS numbers,
        bool_and(TRY_CAST(:value AS DATE) IS NOT NULL) AS dates
    FROM :hierarchy
    WHERE level_0 IS NOT NULL
""")
_TYPES: Mapping[RangeKind, str] = {"integer": "BIGINT", "number": "DOUBLE", "date": "DATE"}
_HOLD_THEIR_VALUES = template("""
    SELECT :i AS i, bool_and(:all_hold) AND bool_or(:some_range)
    FROM (SELECT :value AS value, :bounds FROM :hierarchy WHERE level_0 IS NOT NULL) AS h
""")
_HOLDS = fragment("coalesce(:low <= value, TRUE) AND coalesce(value <= :high, TRUE)")
_IS_RANGE = fragment(":low IS DISTINCT FROM :high")


def _listed_ranges(
    engine: Engine, listed: Mapping[str, tuple[Hierarchy, RangeKind | None]]
) -> Iterator[tuple[str, RangeKind]]:
    """Those whose labels are ranges, each with the ground values under it."""
    value, names = cast(col("level_0"), "VARCHAR"), list(listed)
    kinds = {i: kind for i, (_, kind) in enumerate(listed.values())}
    queries = [
        _KINDS(i=i, value=value, hierarchy=hierarchy.table)
        for i, (hierarchy, kind) in enumerate(listed.values())
        if kind is None
    ]
    for i, *are in engine.rows(union_all(*queries)) if queries else ():
        kinds[i] = next((one for one, right in zip(_TYPES, are, strict=True) if right), None)
    found = {i: kind for i, kind in kinds.items() if kind is not None}
    queries = [_hold_their_values(i, listed[names[i]][0], kind) for i, kind in found.items()]
    for i, right in sorted(engine.rows(union_all(*queries))) if queries else ():
        if right:
            yield names[i], found[i]


def _hold_their_values(i: int, hierarchy: Hierarchy, kind: RangeKind) -> exp.Select:
    levels = range(1, hierarchy.height)  # the top is no range
    ends = [
        named(end, f"{which}_{level}")
        for level in levels
        for which, end in zip(("low", "high"), bounds(col(f"level_{level}"), kind), strict=True)
    ]
    pairs = [(col(f"low_{level}"), col(f"high_{level}")) for level in levels]
    return _HOLD_THEIR_VALUES(
        i=i,
        all_hold=all_of(_HOLDS(low=low, high=high) for low, high in pairs),
        some_range=exp.or_(*(_IS_RANGE(low=low, high=high) for low, high in pairs)),
        value=try_cast(cast(col("level_0"), "VARCHAR"), _TYPES[kind]),
        bounds=ends,
        hierarchy=hierarchy.table,
    )
