"""The decision who a person is: without it, a class of k rows may be one person.

Where a policy leaves ``[source] person`` open, and a column numbers people who have several rows, a release is refused
whose classes hold too few of them. Its data holder decides: a column, or false. Of a source in PostgreSQL or Spark the
column is looked for there, by counts, and any release is refused: the audit there cannot count people before it is
decided who they are. The error has the same figures, which that server counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlanon.disclosure.rows_without_person import released_with_persons
from sqlanon.engines.base import WorkEngine
from sqlanon.engines.dialects.postgres import distinct_counts as exact_counts
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem, SourceError, UnreadableColumnsError
from sqlanon.policy import Policy
from sqlanon.requirements import guaranteed_k
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.columns import Columns
from sqlanon.sources.persons import (
    CountDistinct,
    KeyColumn,
    PersonColumn,
    RunQuery,
    can_number_people,
    find_person_column,
    small_classes_query,
)
from sqlanon.sources.source import REMOTE_ROWS, AllColumns, Source
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.toml import toml_value


def find_undecided_person(
    steps: StatementRunner, policy: Policy, source: Source, columns: Columns, rows: int
) -> PersonColumn | None:
    """The column that numbers the people of a source whose policy does not say who a person is."""
    if steps.dry or policy.source.person is not None:
        return None
    if source.access == "rows":
        return _find(steps.engine.rows, source.relation, source.columns, columns, rows, approximate_counts_query)
    every = source.all_columns(steps.engine)
    if every is None:  # a frequency set has no rows
        return None
    declared = _restrict_to(every, {*columns.by_attribute.values(), *columns.key})
    simple = _restrict_to(every, {name for name, type_ in every.types.items() if type_ in _SIMPLE})
    # Its user may read some of the columns only, and some values have no text there.
    *attempts, last = every, simple, declared, _restrict_to(declared, {*simple.types})
    for attempt in attempts:
        with suppress(UnreadableColumnsError):
            return _find_there(source, attempt, columns, rows)
    return _find_there(source, last, columns, rows)


_SIMPLE = frozenset(["VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UUID"])
"""Types whose values have one text in all engines."""


def _restrict_to(every: AllColumns, names: Collection[str]) -> AllColumns:
    """Some of the columns."""
    relation = every.relation.copy()
    assert isinstance(relation, exp.Subquery)
    inner = relation.this
    inner.set("expressions", [one for one in inner.expressions if one.alias_or_name in names])
    return replace(every, relation=relation, types={name: every.types[name] for name in every.types if name in names})


def _find(
    ask: RunQuery, relation: exp.Expr, types: Mapping[str, str], columns: Columns, rows: int, counts: CountDistinct
) -> PersonColumn | None:
    released = {column.name for column in columns.released}
    keys = [KeyColumn(name, type_, name in released) for name, type_ in types.items() if can_number_people(name, type_)]
    compared = {name: types[name] for name in (*columns.generalized, *columns.noisy) if name in types}
    return find_person_column(ask, relation, keys, compared, rows, counts)


def _find_there(source: Source, every: AllColumns, columns: Columns, rows: int) -> PersonColumn | None:
    """The same by counts in the engine that has the rows."""

    def ask(query: exp.Query) -> Sequence[tuple[Any, ...]]:
        return source.query_remote_rows(query, every.relation)

    counts = exact_counts if every.engine.dialect == "postgres" else approximate_counts_query
    return _find(ask, REMOTE_ROWS, every.types, columns, rows, counts)


def explain_undecided_person(person: PersonColumn) -> str:
    """That a column numbers people, and what to decide."""
    return f"{_numbers_people(person)}. {_decide(person)}"


def _numbers_people(person: PersonColumn) -> str:
    missing = ""
    if person.missing:
        rows = "row without a value counts" if person.missing == 1 else "rows without a value count"
        missing = f" ({person.missing:,} {rows} as one person in each class)"
    figures = f"{'about ' if person.is_estimate else ''}{person.distinct:,} values in {person.values:,} rows{missing}"
    return f"not set, and {person.name!r} numbers people: {figures}"


def _decide(person: PersonColumn) -> str:
    return (
        f"Set person = {toml_value(person.name)} under [source], and classes count persons. Set person = false only if "
        "each row is another person: otherwise a class of k rows may hold one person"
    )


def refuse_undecided_person(
    steps: StatementRunner, prepared: SearchInput, recoding: ClassRecoding, person: PersonColumn | None
) -> None:
    """Refuse a release whose classes hold fewer than k values of the column that numbers people; and any release of a
    source whose rows stay elsewhere."""
    if person is None:
        return
    least = guaranteed_k(prepared.policy.privacy, prepared.policy.quasi_identifiers)
    classes, rows = _count_small_classes(steps.engine, prepared.source, recoding, person.name, least)
    if not classes and prepared.source.access == "rows":
        return
    message = explain_undecided_person(person)
    if classes:
        name, is_single = repr(person.name), classes == 1
        message = (
            f"{_numbers_people(person)}. {classes:,} {'class' if is_single else 'classes'} ({rows:,} "
            f"{'row' if rows == 1 else 'rows'}) {'holds' if is_single else 'hold'} fewer than {least} values of "
            f"{name}. {_decide(person)}"
        )
    raise PolicyError([Problem("source.person", message)])


def _count_small_classes(
    engine: WorkEngine, source: Source, recoding: ClassRecoding, person: str, least: int
) -> tuple[int, int]:
    """The classes with fewer than ``least`` values of a column, and their rows. None where a server does not count them
    because its user may make no temporary tables."""

    def count(recoding: ClassRecoding) -> exp.Select:
        return small_classes_query(*released_with_persons(recoding, person), least)

    if source.access == "rows":
        return engine.rows(count(recoding))[0]
    every = source.all_columns(engine)
    assert every is not None
    read = _restrict_to(every, {*(column.name for column in recoding.columns), person})
    with suppress(SourceError):
        return source.query_remote_release(engine, lambda rows: count(recoding.with_source(rows)), read)[0]
    return 0, 0
