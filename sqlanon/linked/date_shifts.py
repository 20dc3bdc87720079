"""Date shifting: all dates of a person are moved by one random number of days, before they are generalized."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from sqlanon.errors import HierarchyError, Problem, SourceError
from sqlanon.hierarchies.parts import CAST_IT, ColumnKind, column_kind
from sqlanon.linked.tables import LinkedTable
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_sections import TableSection
from sqlanon.support.expressions import as_column, cast, col, drop_table, fragment, template

_SHIFTS = template("""
    SELECT person, (floor(random() * (2 * :max_days + 1)) - :max_days)::INTEGER AS days FROM :persons AS persons
""")
"""The days by which all dates of each person are moved: equally likely from -max_days to max_days."""

_NESTED_DATES = re.compile(r"[\[(<].*\b(DATE|TIMESTAMP)|\b(DATE|TIMESTAMP)\w*\b.*\[|^(JSON|VARIANT)$")

_MOVED = fragment(":value + to_days(:days)")


def shift_dates(policy: LinkedPolicy, tables: Sequence[LinkedTable], max_days: int) -> None:
    """Replace the rows of tables with dates by rows with moved dates. Creates ``moved_rows`` for each of them.

    ``shifts``, the days of each person, is drawn for each run and dropped at once.
    """
    problems: list[Problem] = []
    for table in tables:
        place, types = f"table[{policy.table.index(table.section)}]", table.run.source.columns
        problems += _find_problems(table.section, place, table.columns.by_attribute, types, max_days)
    if problems:
        raise HierarchyError(problems)
    runner, shifts = tables[0].runner, tables[0].run.work("shifts")
    runner.create_table(shifts, _SHIFTS(persons=tables[0].numbers, max_days=max_days))
    try:
        for table in tables:
            if any(attribute.shift is not None for attribute in table.section.attributes.values()):
                _move_dates(table, shifts)
    finally:
        runner.execute(drop_table(shifts.copy()))


def _move_dates(table: LinkedTable, shifts: exp.Table) -> None:
    same_person = col("person", "numbers" if table.parent is None else "parent").eq(col("person", "shifts"))
    query = table.select_linked_rows().join(shifts.as_("shifts"), on=same_person, copy=False)
    types = table.run.source.columns
    columns = _move_columns(table.section, table.columns.by_attribute, types, "child", "shifts")
    query = query.select(*columns, copy=False)
    try:
        moved = table.runner.create_table(table.run.work("moved_rows"), query)
    except Exception as error:  # each engine raises its own errors, which quote the date
        is_out_of_range = type(error).__name__ in ("ConversionException", "OutOfRangeException")
        if not (is_out_of_range or "SQLSTATE 22008" in str(error)):
            raise
        message = "a date is too far in the past or future to be moved: correct it, or remove shift"
        raise SourceError(f"table {table.name!r}: {message}") from None
    table.moved_rows = moved


def _find_problems(
    section: TableSection, place: str, columns: Mapping[str, str], types: Mapping[str, str], max_days: int
) -> Iterator[Problem]:
    """Columns of a table that cannot be moved, and dates that would be released unmoved although others are moved.

    A date that is not moved shows by how many days the others of its person are. ``columns`` are by attribute.
    """
    for name, attribute in section.attributes.items():
        type_ = types[columns[name]]
        is_date = column_kind(type_) in (ColumnKind.DATE, ColumnKind.ZONED)
        if attribute.shift is not None and not is_date:
            message = f"shift needs a column of dates or timestamps, not {type_}: {CAST_IT}"
            yield Problem(f"{place}.attributes.{name}.hierarchy", message)
        elif attribute.shift is None and _NESTED_DATES.search(type_) and attribute.role not in ("identifying", "key"):
            message = f"{type_} may have dates, which are not moved and would show by how many days the others are"
            yield Problem(f"{place}.attributes.{name}", f"{message}: make it identifying, or split it with query = ...")
        elif attribute.shift is None and is_date and attribute.role not in ("identifying", "key"):
            message = "other dates of a person are moved, and an unmoved one would show by how many days"
            role = ' with role = "sensitive"' if attribute.role == "insensitive" else ""
            remedy = f"give it shift = {max_days}, too, as in hierarchy = {{ dates = {{ shift = {max_days} }} }}{role}"
            yield Problem(f"{place}.attributes.{name}", f"{message}: {remedy}, or make it identifying")


def _move_columns(
    section: TableSection, columns: Mapping[str, str], types: Mapping[str, str], rows: str, shifts: str
) -> Iterator[exp.Expr]:
    """The columns of a table that later stages read, with moved dates."""
    for name, attribute in section.attributes.items():
        if attribute.role != "identifying":
            value: exp.Expr = col(columns[name], rows)
            if attribute.shift is not None:
                value = cast(_MOVED(value=value, days=col("days", shifts)), types[columns[name]])
            yield as_column(value, columns[name])
