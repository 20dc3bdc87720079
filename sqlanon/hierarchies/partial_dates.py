"""Partial dates: the texts ``1981``, ``1980-05`` and ``1980-05-31`` in one column.

A date that is coarser than a level keeps its text at that level: by months and years, ``1980-05-31`` becomes
``1980-05`` and ``1980``, and ``1981`` is ``1981`` at both.
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.hierarchies.numerals import extract_part
from sqlanon.hierarchies.parts import GeneratedLevels, LabelledQuery, RuleError, add_columns
from sqlanon.support.expressions import col, fragment, is_not_null

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_MONTH = "(?:0[1-9]|1[0-2])"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
PARTIAL_DATE = f"(?:{_YEAR}(?:-{_MONTH}|-{_DAY})?|{_LEAP_YEAR}-02-29)"
"""The form of a year, a month or a day, as a regular expression."""

_LABELS = {
    "day": fragment(":date"),
    "month": fragment("left(:date, 7)"),
    "quarter": fragment("""
        CASE
            WHEN length(:date) = 4 THEN :date
            WHEN substr(:date, 6, 2) <= '03' THEN left(:date, 4) || '-Q1'
            WHEN substr(:date, 6, 2) <= '06' THEN left(:date, 4) || '-Q2'
            WHEN substr(:date, 6, 2) <= '09' THEN left(:date, 4) || '-Q3'
            ELSE left(:date, 4) || '-Q4'
        END
    """),
    "year": fragment("left(:date, 4)"),
    "decade": fragment("left(:date, 3) || '0s'"),
}


def partial_dates_part(granularities: tuple[str, ...]) -> GeneratedLevels:
    """A calendar level for each granularity, for columns of texts."""
    if "week" in granularities:
        raise RuleError("weeks need a column of dates: a text such as 1980-05 has no week; use month, quarter or year")

    def extend(query: exp.Select, prefix: str) -> LabelledQuery:
        date = col(f"{prefix}date")
        labels = tuple(_LABELS[granularity](date=date) for granularity in granularities)
        return LabelledQuery(
            add_columns(query, {date.name: extract_part(col("value"), f"({PARTIAL_DATE})")}), labels, is_not_null(date)
        )

    return GeneratedLevels("dates", len(granularities), extend, total=False)
