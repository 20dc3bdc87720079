"""Date shifting: all dates of a person are moved by one random number of days, before they are generalized."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sqlglot import exp

from sqlanon.errors import Problem
from sqlanon.hierarchies.parts import CAST_IT, ColumnKind, column_kind
from sqlanon.policy.linked_sections import TableSection
from sqlanon.support.expressions import as_column, cast, col, fragment, template

draw_shifts = template("""
    SELECT person, (floor(random() * (2 * :max_days + 1)) - :max_days)::INTEGER AS days FROM :persons AS persons
""")
"""For each person the days by which all of its dates are moved: equally likely from -max_days to max_days."""

_NESTED_DATES = re.compile(r"[\[(<].*\b(DATE|TIMESTAMP)|\b(DATE|TIMESTAMP)\b.*\[|^(JSON|VARIANT)$")

_MOVED = fragment(":value + to_days(:days)")


def find_shift_problems(
    section: TableSection, place: str, columns: Mapping[str, str], types: Mapping[str, str], max_days: int
) -> Iterator[Problem]:
    """Columns of a table that cannot be moved, and dates that would be released unmoved beside moved ones.

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


def moved_columns(
    section: TableSection, columns: Mapping[str, str], types: Mapping[str, str], rows: str, shifts: str
) -> Iterator[exp.Expr]:
    """The columns of a table that later stages read, with moved dates."""
    for name, attribute in section.attributes.items():
        if attribute.role != "identifying":
            value: exp.Expr = col(columns[name], rows)
            if attribute.shift is not None:
                value = cast(_MOVED(value=value, days=col("days", shifts)), types[columns[name]])
            yield as_column(value, columns[name])
