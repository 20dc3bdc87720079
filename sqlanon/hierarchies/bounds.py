"""The bounds of labels that are ranges: 20 and 24 of ``20-24``, the first and the last day of ``1980-Q1``.

Labels are recognized by their form. Any label of a column of numbers or dates may be given: ``*``, NULL, masked values
and most names have no bounds.

====================  ===================================================  =========================================
form                  as in                                                its bounds
====================  ===================================================  =========================================
``20``                the value itself                                     20 and 20
``20-24``             intervals of integers; ranges that strategies make   20 and 24
``-5 to 24``          the latter, where a bound has a dash, as dates have  -5 and 24
``[20, 25)``          intervals of other numbers, and of dates             20 and 25; of integers 24; of days the day
                                                                           before
``<0``, ``≥100``      the open ends of intervals                           none and 0 (of integers -1, of days the day
                                                                           before); 100 and none
``1980-01-02``        dates, and timestamps (their day)                    the day, twice
``1980-W01``          dates: an ISO week                                   its Monday and its Sunday
``1980-01``           dates: months, quarters, years and decades           their first and last days
``1980-Q1``
``1980``
``1980s``
====================  ===================================================  =========================================
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.hierarchies.numerals import NUMERAL, extract_part
from sqlanon.support.expressions import fragment

RangeKind: TypeAlias = Literal["integer", "number", "date", "time"]
"""The values that labels are ranges of: integers of up to 64 bits, any numbers, dates and timestamps, or times of
day."""

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[+-][0-9:]+)?)?"
_VALUES = {
    "integer": "(-?[0-9]+)",
    "number": f"({NUMERAL})",
    "date": f"({_DAY}){_TIME}",
    "time": r"([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)",
}
_TYPED = {
    "integer": fragment("TRY_CAST(:part AS BIGINT)"),
    "number": fragment("TRY_CAST(:part AS DOUBLE)"),
    "date": fragment("TRY_CAST(:part AS DATE)"),
    "time": fragment("epoch(TRY_CAST(:part AS TIME))"),
}
_BEFORE = fragment(":bound - 1")  # the last integer or day before a bound
_FIRST_KNOWN = fragment("coalesce(:values)")


def label_bounds(label: exp.Expr, kind: RangeKind) -> tuple[exp.Expr, exp.Expr]:
    """The least and the greatest value of a label: BIGINT, DOUBLE or DATE by kind; for times the seconds since
    midnight.

    Integers and dates lie between their bounds, both inclusive. For other numbers and times, the upper bound of
    ``[20, 25)`` and ``<20`` is exclusive. A bound is NULL at an open end; both are NULL if the label is no range.

    >>> import duckdb
    >>> from sqlanon.support.expressions import text
    >>> low, high = label_bounds(text("[1980-01-02, 1980-01-09)"), "date")
    >>> query = exp.Select(expressions=[low, high]).sql("duckdb")
    >>> [str(day) for day in duckdb.connect().execute(query).fetchall()[0]]
    ['1980-01-02', '1980-01-08']
    """
    value = _VALUES[kind]
    closed = [value, f"{value}-{value}", f"{value} to {value}"]
    half_open = rf"\[{value}, {value}\)"

    def end(form: str, group: int) -> exp.Expr:
        return _TYPED[kind](part=extract_part(label, form, group))

    lows = [end(form, 1) for form in [*closed, half_open, f"≥{value}"]]
    highs = [end(form, min(2, form.count(value))) for form in closed]
    beyond = [end(half_open, 2), end(f"<{value}", 1)]
    highs += beyond if kind in ("number", "time") else [_BEFORE(bound=bound) for bound in beyond]
    if kind == "date":
        periods = _periods(label)
        lows += [first for first, _ in periods]
        highs += [last for _, last in periods]
    return _FIRST_KNOWN(values=lows), _FIRST_KNOWN(values=highs)


_FIRST_DAY = fragment("TRY_CAST(:year || '-01-01' AS DATE)")
_LAST_OF_MONTH = fragment("last_day(TRY_CAST(:month || '-01' AS DATE))")
# There is no year 0: the first decade begins with year 1.
_DECADE_BEGINS = fragment("CASE WHEN :decade = '000' THEN '0001' ELSE :decade || '0' END")
_DECADE_ENDS = fragment("TRY_CAST(:decade || '9-12-31' AS DATE)")
_FIRST_OF_QUARTER = fragment("(:first_day + to_months(3 * (TRY_CAST(:quarter AS INTEGER) - 1)))::DATE")
_LAST_OF_QUARTER = fragment("last_day((:first_day + to_months(3 * TRY_CAST(:quarter AS INTEGER) - 1))::DATE)")


def _periods(label: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    """The first and the last day of the label of a calendar level; NULL for other labels."""
    month, year = extract_part(label, "([0-9]{4}-[0-9]{2})"), extract_part(label, "([0-9]{4})")
    decade, quarter, week = extract_part(label, "([0-9]{3})0s"), "([0-9]{4})-Q([1-4])", "([0-9]{4})-W([0-9]{2})"
    in_quarter = {
        "first_day": _FIRST_DAY(year=extract_part(label, quarter)),
        "quarter": extract_part(label, quarter, 2),
    }
    # The fourth of January is always in the first week of its ISO year.
    monday = fragment("""
        date_trunc('week', TRY_CAST(:year || '-01-04' AS DATE))::DATE + (7 * (TRY_CAST(:week AS INTEGER) - 1))
    """)(year=extract_part(label, week), week=extract_part(label, week, 2))
    return [
        (fragment("TRY_CAST(:month || '-01' AS DATE)")(month=month), _LAST_OF_MONTH(month=month)),
        (_FIRST_DAY(year=year), fragment("TRY_CAST(:year || '-12-31' AS DATE)")(year=year)),
        (_FIRST_DAY(year=_DECADE_BEGINS(decade=decade)), _DECADE_ENDS(decade=decade)),
        (_FIRST_OF_QUARTER(**in_quarter), _LAST_OF_QUARTER(**in_quarter)),
        (monday, fragment(":monday + 6")(monday=monday)),
    ]
