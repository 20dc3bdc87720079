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
_PERIODS = [
    ("([0-9]{4}-[0-9]{2})", "TRY_CAST(:first || '-01' AS DATE)", "last_day(TRY_CAST(:first || '-01' AS DATE))"),
    ("([0-9]{4})", "TRY_CAST(:first || '-01-01' AS DATE)", "TRY_CAST(:first || '-12-31' AS DATE)"),
    # The first decade begins with year 1.
    (
        "([0-9]{3})0s",
        "TRY_CAST(CASE WHEN :first = '000' THEN '0001' ELSE :first || '0' END || '-01-01' AS DATE)",
        "TRY_CAST(:first || '9-12-31' AS DATE)",
    ),
    (
        "([0-9]{4})-Q([1-4])",
        "(TRY_CAST(:first || '-01-01' AS DATE) + to_months(3 * (TRY_CAST(:second AS INTEGER) - 1)))::DATE",
        "last_day((TRY_CAST(:first || '-01-01' AS DATE) + to_months(3 * TRY_CAST(:second AS INTEGER) - 1))::DATE)",
    ),
    # The fourth of January is always in the first week of its ISO year.
    (
        "([0-9]{4})-W([0-9]{2})",
        "date_trunc('week', TRY_CAST(:first || '-01-04' AS DATE))::DATE + (7 * (TRY_CAST(:second AS INTEGER) - 1))",
        "date_trunc('week', TRY_CAST(:first || '-01-04' AS DATE))::DATE + (7 * TRY_CAST(:second AS INTEGER) - 1)",
    ),
]
"""The forms of labels of calendar levels, and their first and last days by the groups of the form."""


def label_bounds(label: exp.Expr, kind: RangeKind) -> tuple[exp.Expr, exp.Expr]:
    """The least and the greatest value of a label: BIGINT, DOUBLE or DATE by kind; for times the seconds since
    midnight.

    Integers and dates lie between their bounds, both inclusive. For other numbers and times, the upper bound of
    ``[20, 25)`` and ``<20`` is exclusive. A bound is NULL at an open end; both are NULL for labels that are not ranges.

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
    if kind in ("integer", "date"):  # the last integer or day before a bound
        beyond = [fragment(":bound - 1")(bound=bound) for bound in beyond]
    highs += beyond
    for form, first_day, last_day in _PERIODS if kind == "date" else ():
        names = ("first", "second")[: form.count("(")]
        parts = {name: extract_part(label, form, group) for group, name in enumerate(names, 1)}
        lows.append(fragment(first_day)(**parts))
        highs.append(fragment(last_day)(**parts))
    first_known = fragment("coalesce(:values)")
    return first_known(values=lows), first_known(values=highs)
