"""Check whether a policy says who a person is: without a person column, a class of k rows may hold a single person.

If a policy leaves ``[source] person`` open, and a column numbers people with several rows, a release whose classes hold
too few values of the column is refused: the data holder sets the column, or false. For a source in PostgreSQL or Spark
the server counts the values, and any release is refused: its audit cannot count persons before this decision.

If persons are counted, all rows without a person count as one person in each class. Such a row may be of somebody with
other rows in its class: then the class holds one person fewer than it counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlanon.disclosure.dependencies import number_columns
from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.dialects.postgres import count_distinct_values as exact_counts
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem, SourceError, UnreadableColumnsError
from sqlanon.policy import Policy
from sqlanon.requirements import guaranteed_k
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.columns import Columns
from sqlanon.sources.persons import (
    KeyColumn,
    PersonColumn,
    can_number_people,
    find_person_column,
    is_sampled_by_md5,
    normalize_key,
    small_classes_query,
)
from sqlanon.sources.source import REMOTE_ROWS, AllColumns, Source
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import CodedAttribute, Column
from sqlanon.support.expressions import as_column, col, select, subquery, template, union_all
from sqlanon.support.notices import Notice
from sqlanon.support.toml import toml_value

_PORTABLE_TYPES = frozenset(["VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UUID"])
"""Types whose values have the same text in all engines."""


def find_undecided_person(
    runner: StatementRunner,
    policy: Policy,
    source: Source,
    columns: Columns,
    rows: int,
    attributes: Sequence[CodedAttribute] = (),
) -> PersonColumn | None:
    """Find the column that numbers the people of a source, if the policy does not say who a person is.

    ``attributes`` are quasi-identifiers whose values are counted already.
    """
    if runner.dry or policy.source.person is not None:
        return None
    if source.access == "rows":
        keys, compared = _list_keys(source.columns, columns)
        value_counts = _count_key_values(runner.engine, keys, attributes)
        return find_person_column(runner.engine.rows, source.relation, keys, compared, rows, value_counts)
    all_columns = source.all_columns(runner.engine)
    if all_columns is None:  # a frequency set has no rows
        return None
    declared = _restrict_to(all_columns, {*columns.by_attribute.values(), *columns.key})
    portable = _restrict_to(
        all_columns, {name for name, type_ in all_columns.types.items() if type_ in _PORTABLE_TYPES}
    )
    # The user of the server may have access to some columns only, and some values have no portable text.
    *attempts, last = all_columns, portable, declared, _restrict_to(declared, {*portable.types})
    for attempt in attempts:
        with suppress(UnreadableColumnsError):
            return _find_in_remote_rows(source, attempt, columns, rows)
    return _find_in_remote_rows(source, last, columns, rows)


def _restrict_to(columns: AllColumns, names: Collection[str]) -> AllColumns:
    relation = columns.relation.copy()
    assert isinstance(relation, exp.Subquery)
    query = relation.this
    query.set("expressions", [column for column in query.expressions if column.alias_or_name in names])
    return replace(
        columns, relation=relation, types={name: type_ for name, type_ in columns.types.items() if name in names}
    )


def _list_keys(types: Mapping[str, str], columns: Columns) -> tuple[list[KeyColumn], dict[str, str]]:
    """The columns that may number people, and the types of the quasi-identifiers to compare."""
    released = {column.name for column in columns.released}
    keys = [KeyColumn(name, type_, name in released) for name, type_ in types.items() if can_number_people(name, type_)]
    return keys, {name: types[name] for name in (*columns.generalized, *columns.noisy) if name in types}


_COUNT_VALUES = template("""
    SELECT :number AS number, count(DISTINCT :value) AS distinct_values,
        coalesce((sum(rows) FILTER (WHERE :value IS NOT NULL))::BIGINT, 0) AS known_values
    FROM :values AS v
    WHERE rows > 0
""")


def _count_key_values(
    engine: Engine, keys: Sequence[KeyColumn], attributes: Sequence[CodedAttribute]
) -> dict[str, tuple[int, int]]:
    """The distinct values of keys, and their values that are not NULL, from the values of quasi-identifiers."""
    types = {key.name: key.type for key in keys}
    names = [attribute.column for attribute in attributes]
    queries = [
        _COUNT_VALUES(number=i, value=normalize_key(col("value"), types[attribute.column]), values=attribute.table)
        for i, attribute in enumerate(attributes)
        if attribute.column in types
    ]
    rows = engine.rows(union_all(*queries)) if queries else []
    return {names[number]: (distinct, values) for number, distinct, values in rows}


def _find_in_remote_rows(source: Source, all_columns: AllColumns, columns: Columns, rows: int) -> PersonColumn | None:
    def run_query(query: exp.Query) -> Sequence[tuple[Any, ...]]:
        return source.query_remote_rows(query, all_columns.relation)

    counts = approximate_counts_query if all_columns.engine.APPROXIMATES_COUNTS else exact_counts
    keys, compared = _list_keys(all_columns.types, columns)
    return find_person_column(run_query, REMOTE_ROWS, keys, compared, rows, counts=counts, is_sampled=is_sampled_by_md5)


def explain_undecided_person(person: PersonColumn, small_classes: str = "") -> str:
    """Explain that a column numbers people, and what to decide."""
    missing = ""
    if person.missing:
        rows = "row without a value counts" if person.missing == 1 else "rows without a value count"
        missing = f" ({person.missing:,} {rows} as one person in each class)"
    figures = f"{'about ' if person.is_estimate else ''}{person.distinct:,} values in {person.values:,} rows{missing}"
    return (
        f"not set, and {person.name!r} numbers people: {figures}. {small_classes}"
        f"Set person = {toml_value(person.name)} under [source], and classes count persons. Set person = false only if "
        "each row is another person: otherwise a class of k rows may hold one person"
    )


def describe_undecided_person(
    runner: StatementRunner,
    policy: Policy,
    source: Source,
    columns: Columns,
    rows: int,
    attributes: Sequence[CodedAttribute] = (),
) -> str | None:
    """The decision that is due if a column numbers people and the policy does not say who a person is: figures then
    count rows."""
    person = find_undecided_person(runner, policy, source, columns, rows, attributes)
    return None if person is None else f"source.person: {explain_undecided_person(person)}"


def refuse_undecided_person(
    runner: StatementRunner, search_input: SearchInput, recoding: ClassRecoding, person: PersonColumn | None
) -> None:
    """Refuse a release whose classes hold fewer than k values of the column that numbers people, and any release of a
    source whose rows are remote."""
    if person is None:
        return
    k = guaranteed_k(search_input.policy.privacy, search_input.policy.quasi_identifiers)
    classes, rows = _count_small_classes(runner.engine, search_input.source, recoding, person.name, k)
    if not classes and search_input.source.access == "rows":
        return
    small_classes = ""
    if classes:
        is_single = classes == 1
        small_classes = (
            f"{classes:,} {'class' if is_single else 'classes'} ({rows:,} {'row' if rows == 1 else 'rows'}) "
            f"{'holds' if is_single else 'hold'} fewer than {k} values of {person.name!r}. "
        )
    raise PolicyError([Problem("source.person", explain_undecided_person(person, small_classes))])


def _count_small_classes(
    engine: WorkEngine, source: Source, recoding: ClassRecoding, person: str, k: int
) -> tuple[int, int]:
    """Count classes with fewer than ``k`` values of a column, and their rows; 0 if a server cannot count them because
    its user has no right to create temporary tables."""

    def small_classes(recoding: ClassRecoding) -> exp.Select:
        return small_classes_query(*_released_with_persons(recoding, person), k)

    if source.access == "rows":
        return engine.rows(small_classes(recoding))[0]
    all_columns = source.all_columns(engine)
    assert all_columns is not None
    columns = _restrict_to(all_columns, {*(column.name for column in recoding.columns), person})
    with suppress(SourceError):
        return source.query_remote_release(engine, lambda rows: small_classes(recoding.with_source(rows)), columns)[0]
    return 0, 0


def warn_of_rows_without_person(
    runner: StatementRunner, search_input: SearchInput, recoding: ClassRecoding
) -> tuple[Notice, ...]:
    """Warn about classes that have k persons only if their rows without a person belong to other people."""
    person, source = search_input.columns.person, search_input.source
    if runner.dry or person is None or (source.combinations is not None and source.persons is None):
        return ()
    k = guaranteed_k(search_input.policy.privacy, search_input.policy.quasi_identifiers)
    # Remote persons stay open while a draft is made: all counts are of the same rows.
    engine, relation = (
        (runner.engine, source.relation) if source.persons is None else (source.persons.engine, source.persons.relation)
    )
    rows = engine.rows(template("SELECT count(*) - count(:person) FROM :rows")(person=col(person), rows=relation))[0][0]
    if not rows:
        return ()
    affected = None
    if source.persons is not None:
        classes_hold = "each class that has such rows may hold"
    else:
        released, keys = _released_with_persons(recoding, person)
        query = template("""
            SELECT count(*) AS classes, coalesce(sum(persons), 0)::BIGINT AS persons
            FROM (
                SELECT count(DISTINCT person) AS persons, count(*) - count(person) AS rows_without_person
                FROM :released
                GROUP BY :keys
            ) AS c
            WHERE rows_without_person > 0 AND persons < :k
        """)(released=subquery(released, "r"), keys=[col(key) for key in keys], k=k)
        classes, affected = runner.engine.rows(query)[0]
        if not classes:
            return ()
        classes_hold = f"{classes:,} {'class holds' if classes == 1 else 'classes hold'}"
    is_single = rows == 1
    have, these_rows, are = ("row has", "this row", "it is") if is_single else ("rows have", "these rows", "they are")
    message = (
        f"{rows:,} {have} no {person!r}, and {'counts' if is_single else 'count'} as one person in each class. If "
        f"{are} of people with other rows in that class, {classes_hold} fewer than {k} persons. To be sure of {k}, "
        f"leave {these_rows} out with query = ... under [source]"
    )
    return (Notice(message, affected),)


def _released_with_persons(recoding: ClassRecoding, person: str) -> tuple[exp.Select, list[str]]:
    """The labels of the released rows with a column as ``person``; and the names of the labels."""
    columns = recoding.columns
    rows = number_columns(recoding.with_column(Column(person)).select(shuffled=False), len(columns) + 1)
    keys = [f"r{i}" for i, column in enumerate(columns) if column.quasi is not None]
    return select([*map(col, keys), as_column(col(f"r{len(columns)}"), "person")], rows), keys
