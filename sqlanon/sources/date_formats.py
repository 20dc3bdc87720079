"""Find the usual date formats in which texts are written, and the keys of a policy that declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy.reading import format_pattern
from sqlanon.support.expressions import fragment, select, subquery, template, text
from sqlanon.support.toml import toml_value

_MARKS = "-./"
_BY_NUMBERS = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d", "%d{0}%m{0}%y", "%m{0}%d{0}%y")
_BY_NAMES = ("%d%b%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%d. %B %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = [
    day + clock
    for day in (*(order.format(mark) for mark in _MARKS for order in _BY_NUMBERS), *_BY_NAMES)
    for clock in _CLOCKS
]
_SAMPLE_TEXTS = 1_000  # distinct texts on which all formats are tried


def is_in_format(format_: str) -> exp.Expr:
    """The condition that ``value`` is a date in a format."""
    return fragment("regexp_full_match(trim(value), :pattern) AND NOT try_strptime(trim(value), :format) IS NULL")(
        pattern=text(format_pattern(format_)), format=text(format_)
    )


def count_date_formats(engine: DuckDBEngine, distinct: exp.Expr) -> Mapping[str, int]:
    """Count the rows in each usual format that occurs in a relation of each distinct ``value`` with its ``n`` rows."""
    sample = subquery(
        template("SELECT value, n FROM :distinct LIMIT :most")(
            distinct=distinct.copy(), most=exp.convert(_SAMPLE_TEXTS)
        ),
        "sample",
    )
    likely = [format_ for format_, count in _count_rows(engine, sample, _FORMATS).items() if count]
    return _count_rows(engine, distinct, likely) if likely else {}


def most_fitting_formats(counts: Mapping[str, int]) -> tuple[Sequence[str], int]:
    """The formats that fit the most rows, and the number of these rows."""
    most = max(counts.values(), default=0)
    return [format_ for format_, count in counts.items() if count == most], most


def _count_rows(engine: DuckDBEngine, distinct: exp.Expr, formats: Sequence[str]) -> dict[str, int]:
    figures: list[exp.Expr] = [
        fragment("coalesce(sum(n) FILTER (WHERE :in_format), 0)::BIGINT")(in_format=is_in_format(format_))
        for format_ in formats
    ]
    return dict(zip(formats, engine.rows(select(figures, distinct.copy()))[0], strict=True))


def has_short_years(format_: str) -> bool:
    return "%y" in format_


def may_swap_days(format_: str) -> bool:
    """Whether only the values distinguish days from months in a format.

    >>> may_swap_days("%d/%m/%Y"), may_swap_days("%Y-%m-%d"), may_swap_days("%d %b %Y")
    (True, False, False)
    """
    is_by_numbers = "%d" in format_ and "%m" in format_
    return is_by_numbers and not (format_.startswith("%Y") and format_.index("%m") < format_.index("%d"))


def type_of_format(format_: str) -> Literal["date", "timestamp"]:
    return "timestamp" if "%H" in format_ or "%I" in format_ else "date"


def pivot_key() -> str:
    return f"pivot = {date.today().year} (the last year that they can mean)"


def date_keys(formats: Sequence[str]) -> str:
    """The keys of a policy that read texts as dates in one of some formats.

    >>> date_keys(["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"])
    'type = "timestamp", format = "%d/%m/%Y %H:%M" or format = "%m/%d/%Y %H:%M"'
    """
    kind = type_of_format(formats[0]) if formats else "date"
    options = " or ".join(f"format = {toml_value(format_)}" for format_ in formats) or "format = ..."
    return f'type = "{kind}", {options}' + (f", {pivot_key()}" if any(map(has_short_years, formats)) else "")
