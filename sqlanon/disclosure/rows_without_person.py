"""Rows without a person, where persons are counted: all of them are one person in each class, and may be nobody new.

Such a row may be of somebody who has other rows in its class: then the class has one person fewer than it counts.
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.disclosure.dependencies import number_columns
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.requirements import guaranteed_k
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import Column
from sqlanon.support.expressions import col, named, select, subquery, template
from sqlanon.support.notices import Notice

_CLASSES = template("""
    SELECT count(*) AS classes, coalesce(sum(persons), 0)::BIGINT AS persons
    FROM (
        SELECT count(DISTINCT person) AS persons, count(*) - count(person) AS without
        FROM :released
        GROUP BY :keys
    ) AS c
    WHERE without > 0 AND persons < :least
""")
_WITHOUT = template("SELECT count(*) - count(:person) FROM :rows")


def warn_of_rows_without_person(
    steps: StatementRunner, prepared: SearchInput, recoding: ClassRecoding
) -> tuple[Notice, ...]:
    """Warn of classes that have k persons only if the rows without a person are of somebody else."""
    person, source = prepared.columns.person, prepared.source
    if steps.dry or person is None or (source.combinations is not None and source.persons is None):
        return ()
    least = guaranteed_k(prepared.policy.privacy, prepared.policy.quasi_identifiers)
    if source.persons is not None:
        # It is open as long as a draft is made: all counts are of the same rows.
        without = source.persons.engine.rows(_WITHOUT(person=col(person), rows=source.persons.relation))[0][0]
        if not without:
            return ()
        some, affected = "each class that has such rows may hold", None
    else:
        without = steps.engine.rows(_WITHOUT(person=col(person), rows=source.relation))[0][0]
        if not without:
            return ()
        released, keys = released_with_persons(recoding, person)
        query = _CLASSES(released=subquery(released, "r"), keys=[col(key) for key in keys], least=least)
        classes, affected = steps.engine.rows(query)[0]
        if not classes:
            return ()
        some = f"{classes:,} {'class holds' if classes == 1 else 'classes hold'}"
    one = without == 1
    rows, these, they = ("row has", "this row", "it is") if one else ("rows have", "these rows", "they are")
    return (
        Notice(
            f"{without:,} {rows} no {person!r}, and {'counts' if one else 'count'} as one person in each class. If "
            f"{they} of people with other rows there, {some} fewer than {least} persons. To be sure of {least}, leave "
            f"{these} out with query = ... under [source]",
            affected,
        ),
    )


def released_with_persons(recoding: ClassRecoding, person: str) -> tuple[exp.Select, list[str]]:
    """The labels of the released rows, and a column as ``person``; and the names of the labels."""
    columns = recoding.columns
    rows = number_columns(recoding.with_column(Column(person)).select(shuffled=False), len(columns) + 1)
    keys = [f"r{i}" for i, column in enumerate(columns) if column.quasi is not None]
    return select([*map(col, keys), named(col(f"r{len(columns)}"), "person")], rows), keys
