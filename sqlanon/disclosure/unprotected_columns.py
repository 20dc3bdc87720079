"""Warnings about unprotected columns: nearly unique ones that are released unchanged, and insensitive ones named like
health, belief, politics, sexual life or crime. Names are interpreted as in `suggest`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.policy import Policy
from sqlanon.release.sentences import join_names
from sqlanon.sources import UNKNOWN_TYPE, Source
from sqlanon.sources.column_figures import NEARLY_UNIQUE_SHARE, has_many_values
from sqlanon.sources.column_kinds import BELIEF, HEALTH, find_kind, find_special_category
from sqlanon.sources.columns import Columns, quote_names
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.notices import Notice

_MAX_NAMES = 8


def warn_of_unprotected_columns(runner: StatementRunner, search_input: SearchInput) -> tuple[Notice, ...]:
    """Warn about insensitive columns of special categories, and unchanged ones that identify people by themselves."""
    rows, persons = search_input.marginals.rows, search_input.limit.all_persons
    return find_unprotected_columns(
        runner, search_input.policy, search_input.source, search_input.columns, rows, persons
    )


def find_unprotected_columns(
    runner: StatementRunner, policy: Policy, source: Source, columns: Columns, rows: int, persons: int | None
) -> tuple[Notice, ...]:
    """Find unprotected columns of a source with some rows, and persons where persons are counted."""
    if runner.dry:
        return ()
    people = rows if persons is None else persons
    counts = _value_counts(runner.engine, source, columns)
    # A column with one value in all rows does not distinguish people.
    constant = {name for name, (distinct, values) in counts.items() if distinct == 1 and values == rows}
    special = [
        name for name in policy.attributes_with_role("insensitive") if columns.by_attribute[name] not in constant
    ]
    return (
        *_warn_of_special_categories(special, people),
        *_warn_of_unknown_values(source, columns),
        *_warn_of_identifiers(counts, people),
    )


def warn_of_insensitive_names(policy: Policy) -> tuple[Notice, ...]:
    """Warn about insensitive columns of special categories by their names alone."""
    return tuple(_warn_of_special_categories(policy.attributes_with_role("insensitive"), None))


def unique_columns(engine: Engine, source: Source, columns: Columns, share: float) -> list[str]:
    """The unchanged columns whose distinct values are at least a share of their values, where their types are known."""
    counts = _value_counts(engine, source, columns)
    return [name for name, (distinct, values) in counts.items() if _is_unique(distinct, values, share)]


def _value_counts(engine: Engine, source: Source, columns: Columns) -> dict[str, tuple[int, int]]:
    """The approximate number of distinct values and the number of values that are not NULL, by unchanged column."""
    names = [name for name in _unchanged_columns(columns) if source.columns[name] != UNKNOWN_TYPE]
    figures = source.count_distinct_values(engine, names) if names else ()
    return dict(zip(names, zip(figures[::2], figures[1::2], strict=True), strict=True))


def _unchanged_columns(columns: Columns) -> list[str]:
    return [column.name for column in columns.released if column.quasi is None and column.name not in columns.noisy]


def _warn_of_special_categories(insensitive: Collection[str], people: int | None) -> Iterator[Notice]:
    for category in (HEALTH, BELIEF):
        names = [name for name in insensitive if find_special_category(name) == category]
        if not names:
            continue
        name_list = join_names([*map(repr, names)], _MAX_NAMES)
        columns, them = (f"column {name_list} is", "it") if len(names) == 1 else (f"columns {name_list} are", "them")
        yield Notice(
            f"{columns} insensitive, and named like {category}: no requirement protects {them}; set "
            f'role = "sensitive", or make {them} quasi',
            people,
        )


def _warn_of_unknown_values(source: Source, columns: Columns) -> Iterator[Notice]:
    unknown = [name for name in _unchanged_columns(columns) if source.columns[name] == UNKNOWN_TYPE]
    if unknown:
        yield Notice(
            f"whether the values of {quote_names(unknown)} identify people by themselves was not measured: "
            "audit.sql of the export counts them in the warehouse"
        )


def _warn_of_identifiers(counts: Mapping[str, tuple[int, int]], people: int) -> Iterator[Notice]:
    remedy = "make it identifying or a quasi-identifier"
    for name, (distinct, values) in counts.items():
        kind = find_kind(name)
        if _is_unique(distinct, values, NEARLY_UNIQUE_SHARE):
            yield Notice(
                f"column {name!r} is nearly unique: its values identify people by themselves; {remedy}",
                min(distinct, people),
            )
        elif kind is not None and kind.role == "identifying" and has_many_values(distinct, min(values, people)):
            yield Notice(
                f"column {name!r} is released unchanged, and named like an identifier ({kind.name}): it has "
                f"{distinct:,} different values; {remedy}",
                min(distinct, people),
            )


def _is_unique(distinct: int, values: int, share: float) -> bool:
    return values > 1 and distinct >= share * values
