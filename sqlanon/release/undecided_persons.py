"""The decision who a person is: without it, a class of k rows may be one person.

Where a policy leaves ``[source] person`` open, and a column numbers people who have several rows, a release is refused
whose classes hold too few of them. Its data holder decides: a column, or false.
"""

from __future__ import annotations

from sqlanon.coding import Column
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.expressions import col, named, select
from sqlanon.policy.toml import toml_value
from sqlanon.recode.full_domain import ByClass
from sqlanon.release.dependencies import positional
from sqlanon.search.input import SearchInput
from sqlanon.sources.persons import (
    KeyColumn,
    PersonColumn,
    can_number_people,
    count_small_classes,
    find_person_column,
)


def find_undecided_person(steps: StatementRunner, prepared: SearchInput) -> PersonColumn | None:
    """The column that numbers the people of a source whose policy does not say who a person is."""
    source, policy = prepared.source, prepared.policy
    if steps.dry or policy.source.person is not None or source.access != "rows":
        return None
    names = [name for name, type_ in source.columns.items() if can_number_people(name, type_)]
    if not names:
        return None
    figures = source.distinct_counts(steps.engine, names)
    released = [column.name for column in prepared.released]
    keys = [
        KeyColumn(name, source.columns[name], distinct, values, name in released)
        for name, distinct, values in zip(names, figures[::2], figures[1::2], strict=True)
    ]
    compared = {name: source.columns[name] for name in (*prepared.columns.generalized, *prepared.columns.noisy)}
    return find_person_column(steps.engine.rows, source.relation, keys, compared, prepared.marginals.rows)


def refuse_few_persons(
    steps: StatementRunner, prepared: SearchInput, recoding: ByClass, person: PersonColumn | None
) -> None:
    """Refuse a release whose classes hold fewer than k values of the column that numbers people."""
    if person is None:
        return
    least = max(prepared.policy.privacy.k or 0, 2)
    rows = positional(recoding.with_column(Column(person.name)).select(shuffled=False), len(recoding.columns) + 1)
    keys = [f"r{i}" for i, column in enumerate(recoding.columns) if column.quasi is not None]
    of_persons = select([*map(col, keys), named(col(f"r{len(recoding.columns)}"), "person")], rows)
    classes, few = steps.engine.rows(count_small_classes(of_persons, keys, least))[0]
    if not classes:
        return
    name, missing = repr(person.name), ""
    if person.missing:
        missing = f" ({person.missing:,} rows without a value count as one person)"
    one = classes == 1
    raise PolicyError(
        [
            Problem(
                "source.person",
                f"not set, and {name} numbers people: {person.distinct:,} values in {person.values:,} rows{missing}. "
                f"{classes:,} {'class' if one else 'classes'} ({few:,} rows) {'holds' if one else 'hold'} fewer than "
                f"{least} values of {name}; set person = {toml_value(person.name)} under [source], and classes count "
                "persons; or person = false, if each row is a person: classes then count rows, and all rows of a class "
                "may be of one person",
            )
        ]
    )
