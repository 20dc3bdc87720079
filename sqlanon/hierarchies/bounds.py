"""The bounds of labels that are ranges: of ``20-24`` 20 and 24, of ``1980-Q1`` its first and its last day.

Labels are read by their form, and what has none of the forms that rules and ranges make has no bounds. So this may be
asked of every label of a column of numbers or dates: ``*``, NULL, a masked value and most names have none.

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

from sqlanon.expressions import anonymous, cast, number, text
from sqlanon.hierarchies.numerals import NUMERAL, part_of

Kind: TypeAlias = Literal["integer", "number", "date"]
"""What the labels are made of: integers of up to 64 bits, any numbers, or dates and timestamps."""

_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "date": "DATE"}
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[+-][0-9:]+)?)?"
_VALUES = {
    "integer": "(-?[0-9]+)",
    "number": f"({NUMERAL})",
    "date": f"({_DAY}){_TIME}",
}


def bounds(label: exp.Expr, kind: Kind) -> tuple[exp.Expr, exp.Expr]:
    """The least and the greatest value of a label: BIGINT, DOUBLE or DATE, as the kind says.

    An integer or a date lies between its bounds, both included. So does another number, but the upper bound of
    ``[20, 25)`` and ``<20`` is the first number beyond. A bound is NULL where a label has none: at an open end, and
    both where it is no range.

    Examples
    --------
    >>> import duckdb
    >>> from sqlanon.expressions import select
    >>> low, high = bounds(text("[1980-01-02, 1980-01-09)"), "date")
    >>> query = exp.Select(expressions=[low, high]).sql("duckdb")
    >>> [str(day) for day in duckdb.connect().execute(query).fetchall()[0]]
    ['1980-01-02', '1980-01-08']
    """
    value = _VALUES[kind]
    closed = [value, f"{value}-{value}", f"{value} to {value}"]
    half_open = rf"\[{value}, {value}\)"
    lows = [_value(label, form, 1, kind) for form in [*closed, half_open, f"≥{value}"]]
    highs = [_value(label, form, min(2, form.count(value)), kind) for form in closed]
    highs += [_before(_value(label, form, i, kind), kind) for form, i in ((half_open, 2), (f"<{value}", 1))]
    if kind == "date":
        periods = _periods(label)
        lows += [first for first, _ in periods]
        highs += [last for _, last in periods]
    return _first_known(lows), _first_known(highs)


def _first_known(values: list[exp.Expr]) -> exp.Expr:
    return exp.Coalesce(this=values[0], expressions=values[1:])


def _before(bound: exp.Expr, kind: Kind) -> exp.Expr:
    """The last value before a bound, where there is one."""
    return bound if kind == "number" else (bound - 1)


def _value(label: exp.Expr, form: str, group: int, kind: Kind) -> exp.Expr:
    return _tried(part_of(label, form, group), _TYPES[kind])


def _tried(value: exp.Expr, type_: str) -> exp.TryCast:
    return exp.TryCast(this=value, to=exp.DataType.build(type_))


def _day(*parts: exp.Expr) -> exp.Expr:
    """A date, of the parts of its text; NULL if it is none."""
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.DPipe(this=whole, expression=part)
    return _tried(whole, "DATE")


def _periods(label: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    """The first and the last day of a calendar level's label; NULL of those that are none."""
    year, decade = part_of(label, "([0-9]{4})"), part_of(label, "([0-9]{3})0s")
    month = _day(part_of(label, "([0-9]{4}-[0-9]{2})"), text("-01"))
    # There is no year 0: the first decade begins with year 1.
    began = exp.Case(ifs=[exp.If(this=decade.eq("000"), true=text("0001"))])
    began = began.else_(exp.DPipe(this=decade.copy(), expression=text("0")))
    return [
        (month, anonymous("last_day", month.copy())),
        (_day(year, text("-01-01")), _day(year.copy(), text("-12-31"))),
        (_day(began, text("-01-01")), _day(decade.copy(), text("9-12-31"))),
        _quarter(label),
        _week(label),
    ]


def _quarter(label: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    form = "([0-9]{4})-Q([1-4])"
    quarter = _tried(part_of(label, form, 2), "INTEGER")
    year = _day(part_of(label, form), text("-01-01"))

    def month(nth: exp.Expr) -> exp.Expr:
        return cast(year + anonymous("to_months", nth), "DATE")

    before = number(3) * exp.Paren(this=quarter - 1)
    last = (number(3) * quarter) - 1
    return month(before), anonymous("last_day", month(last))


def _week(label: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """The fourth of January is always in the first week of its ISO year."""
    form = "([0-9]{4})-W([0-9]{2})"
    first = cast(anonymous("date_trunc", text("week"), _day(part_of(label, form), text("-01-04"))), "DATE")
    week = _tried(part_of(label, form, 2), "INTEGER")
    days = number(7) * exp.Paren(this=week - 1)
    monday = first + exp.Paren(this=days)
    return monday, monday + 6
