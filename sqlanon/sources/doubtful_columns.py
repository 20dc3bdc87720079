"""Columns of CSV and Excel files that may mean something else than the engine makes of them.

A few words among numbers make the column a text: ``4e`` among ages, ``NA``, a line with totals. So do commas in
numbers. The month of 01/02/2026 is ambiguous, and so is the century of 01/02/26. The data holder decides: such columns
are refused, with the values, their lines, and the keys that decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import date
from functools import partial
from typing import Literal

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import col, fragment, named, subquery, template, text
from sqlanon.fields import in_words
from sqlanon.notices import with_noun
from sqlanon.policy import Policy
from sqlanon.policy.reading import format_pattern
from sqlanon.policy.rules import DatesRule, IntervalsRule, SuppressRule
from sqlanon.policy.toml import toml_key, toml_value
from sqlanon.records import dataclass
from sqlanon.requirements import ordered_attributes
from sqlanon.sources.bound import Locate
from sqlanon.sources.column_kinds import ZIP, kind_by_name
from sqlanon.sources.typed_columns import POINT, SHOWN_VALUES, NumberMarks, number_pattern

MOSTLY = 0.95
"""The share of numbers or dates among the values of a column from which the others are doubtful."""

_BY_RULE = 0.5
"""The same share where a rule needs numbers or dates."""

_MOST_CODES = 10
_MOST_OTHERS = _MOST_CODES + 1
_MARKS = "-./"
_DATES = [
    f"([0-9]{{4}}[{mark}][0-9]{{1,2}}[{mark}][0-9]{{1,2}}|[0-9]{{1,2}}[{mark}][0-9]{{1,2}}[{mark}]([0-9]{{2}}|[0-9]{{4}}))"
    "([ T].*)?"
    for mark in _MARKS
]
_ORDERS = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d", "%d{0}%m{0}%y", "%m{0}%d{0}%y")
_COMMAS = NumberMarks(",", ".", are_declared=True)

_SEEN = fragment("count(:text)")
_NUMERALS = fragment("count(*) FILTER (WHERE :text >= '+' AND :text < ':')")
_MATCHING = fragment("coalesce(sum(n) FILTER (WHERE regexp_full_match(trim(value), :pattern)), 0)::BIGINT")
_IN_FORMAT = fragment(
    "count(*) FILTER (WHERE regexp_full_match(trim(value), :pattern) AND NOT :read IS NULL) = count(*)"
)
_READ = fragment("try_strptime(trim(value), :format)")
_DISTINCT = template("SELECT :text AS value, count(*) AS n FROM :rows WHERE NOT :text IS NULL GROUP BY :text")
_FIGURES = template("SELECT :figures FROM :rows")
_OTHERS = template("""
    SELECT value, min(row) AS first, max(max(row)) OVER () = max(rows) AS is_last
    FROM (SELECT row_number() OVER () AS row, count(*) OVER () AS rows, :text AS value FROM :rows) AS r
    WHERE NOT value IS NULL AND NOT regexp_full_match(trim(value), :pattern)
    GROUP BY value
    ORDER BY first
    LIMIT :most
""")
_DAYS = fragment("max(day(:date)) <= 12 AND bool_or(day(:date) <> month(:date))")


@dataclass(frozen=True)
class ColumnChecks:
    """The columns, in lower case, whose texts may not be numbers or dates but for a few, from which share of these on;
    and those whose dates must have one meaning."""

    texts: Mapping[str, float] = field(default_factory=dict)
    dates: Collection[str] = frozenset()


NO_CHECKS = ColumnChecks()
COMMAS = 'under [source.csv], decimal = "," if decimals follow them, or thousands = "," if they separate thousands'
"""The keys that decide of numbers with commas."""


@dataclass(frozen=True)
class DoubtfulColumn:
    """A column of texts, most of which are numbers or dates; or all of them, as dates or as numbers with commas."""

    name: str
    kind: Literal["number", "date"]
    fitting: int
    count: int  # values that are no numbers or dates; if all are numbers, those with commas
    others: Sequence[str]  # the distinct ones, in their order
    places: Sequence[tuple[str, str]]  # the first ones: where they are, and the value
    is_last: bool  # whether the last row has one
    has_commas: bool = False  # whether the numbers have commas
    has_words: bool = True  # whether any value is no number or date
    formats: Sequence[str] = ()  # that all values may be written in, if all are dates
    last_row_key: str = "footer = 1 under [source.csv]"  # that leaves the last row out

    @property
    def shown(self) -> str:
        more = f", and {self.count - len(self.places):,} more" if self.count > len(self.places) else ""
        return ", ".join(f"{in_words(value)} ({where})" for where, value in self.places) + more

    @property
    def codes(self) -> Sequence[str] | None:
        """The values as codes of missing values; None where they are too many."""
        return self.others if len(self.others) <= _MOST_CODES else None

    @property
    def summary(self) -> str:
        are = "is" if self.count == 1 else "are"
        if not self.has_words and self.kind == "date":
            return f"{with_noun(self.fitting, 'date')}, read as texts: {self.shown}"
        if not self.has_words:
            return f"{with_noun(self.fitting, self.kind)}, {self.count:,} of them with a comma: {self.shown}"
        return (
            f"{with_noun(self.fitting, self.kind)}, and {with_noun(self.count, 'value')} that {are} none: {self.shown}"
        )

    @property
    def date_keys(self) -> str:
        """The keys by which dates are read that stay texts without."""
        written = " or ".join(f"format = {toml_value(format_)}" for format_ in self.formats) or "format = ..."
        has_short = any(map(has_short_years, self.formats))
        return f'type = "date", {written}' + (f", {_pivot_key()}" if has_short else "")

    def describe(self) -> str:
        place = f"attributes.{toml_key(self.name)}"
        if not self.has_words and self.kind == "date":
            return (
                f"{place}: the column has {self.summary}; decide how they are written: {self.date_keys}; or keep them "
                'as texts: type = "text"'
            )
        if not self.has_words:
            return (
                f"{place}: the column has {self.summary}; decide what the commas are: {COMMAS}; "
                f'type = "text" in {place} keeps all values as texts'
            )
        codes = "..." if self.codes is None else ", ".join(toml_value(code) for code in self.codes)
        keys = [f"missing = [{codes}] in {place} makes them NULL", 'type = "text" keeps all values as texts']
        if self.has_commas:
            keys.append('decimal = "," under [source.csv] reads the others as numbers')
        if self.is_last:
            keys.append(f"{self.last_row_key} leaves the last row out")
        return f"{place}: the column has {self.summary}; decide what they are: {'; '.join(keys)}"


def column_checks(policy: Policy) -> ColumnChecks:
    """The columns that a policy has no key for, and whose values decide what a release shows."""
    texts: dict[str, float] = {}
    ordered = ordered_attributes(policy.privacy)
    for name, attribute in policy.attributes.items():
        rules = attribute.hierarchy or ()
        if attribute.type is not None:
            continue
        if attribute.noise is not None or any(isinstance(rule, IntervalsRule | DatesRule) for rule in rules):
            texts[name.lower()] = _BY_RULE
        elif name in ordered or (attribute.role == "quasi" and all(isinstance(rule, SuppressRule) for rule in rules)):
            texts[name.lower()] = MOSTLY
    dates = {
        name.lower()
        for name, attribute in policy.attributes.items()
        if attribute.role != "identifying" and attribute.type is None
    }
    return ColumnChecks(texts, dates)


def find_doubtful_columns(
    engine: DuckDBEngine,
    rows: exp.Expr,
    texts: Mapping[str, float],
    marks: NumberMarks = POINT,
    locate: Locate | None = None,
    last_row_key: str | None = None,
) -> list[DoubtfulColumn]:
    """The columns of texts, by name in lower case, in which more values than a share are numbers or dates, not all."""
    columns = [
        name
        for name, type_ in engine.columns(rows).items()
        if type_ == "VARCHAR" and name.lower() in texts and not _is_code(name)
    ]
    if not columns:
        return []
    counts = _ask(engine, rows, {name: [_SEEN(text=col(name)), _NUMERALS(text=col(name))] for name in columns})
    # To compare with patterns takes ten times as long, and few columns of texts begin with digits.
    likely = [name for name in columns if 0 < texts[name.lower()] * counts[name][0] <= counts[name][1]]
    if not likely:
        return []
    numbers = [number_pattern(marks), *([] if marks.are_declared else [number_pattern(_COMMAS)])]
    patterns = [*numbers, *_DATES]
    found = []
    for name in likely:
        distinct = subquery(_DISTINCT(text=col(name), rows=rows.copy()), "v")
        matching = _ask(engine, distinct, {name: [_MATCHING(pattern=text(pattern)) for pattern in patterns]})
        seen, least = counts[name][0], texts[name.lower()] * counts[name][0]
        fitting, j = max((count, -j) for j, count in enumerate(matching[name]))
        has_commas, has_dates = 0 < -j < len(numbers), -j >= len(numbers)
        if least <= fitting and (fitting < seen or has_commas or has_dates):
            places = None if locate is None else partial(locate, name)
            pattern = patterns[-j] if fitting < seen else patterns[0]
            others = engine.rows(_OTHERS(text=col(name), rows=rows.copy(), pattern=text(pattern), most=_MOST_OTHERS))
            column = DoubtfulColumn(
                name,
                "date" if has_dates else "number",
                fitting,
                seen - (fitting if fitting < seen else matching[name][0]),
                [value for value, *_ in others],
                _places(others[:SHOWN_VALUES], places),
                bool(others[0][-1]),
                has_commas,
                has_words=fitting < seen,
                formats=_fitting_formats(engine, distinct, _MARKS[-j - len(numbers)])
                if has_dates and fitting == seen
                else (),
            )
            column = column if last_row_key is None else replace(column, last_row_key=last_row_key)
            found.append(column)
    return found


def _fitting_formats(engine: DuckDBEngine, distinct: exp.Expr, mark: str) -> Sequence[str]:
    """The formats of dates, with a mark between their parts, that all of some distinct values are written in."""
    formats = [order.format(mark) for order in _ORDERS]
    figures = [
        _IN_FORMAT(pattern=text(format_pattern(format_)), read=_READ(format=text(format_))) for format_ in formats
    ]
    fit = _ask(engine, distinct, {"formats": figures})["formats"]
    return [format_ for format_, fits in zip(formats, fit, strict=True) if fits]


def _places(
    others: Sequence[tuple[str, int, bool]],
    locate: Callable[[Collection[str], int], Sequence[tuple[str, str]]] | None,
) -> Sequence[tuple[str, str]]:
    places = None if locate is None else locate({value for value, *_ in others}, SHOWN_VALUES)
    return places or [(f"row {row:,}", value) for value, row, _ in others]


def _is_code(name: str) -> bool:
    """Whether a column has codes by its name: 02139-1234 beside 02139 is none that is broken."""
    kind = kind_by_name(name)
    return kind is not None and (kind.name == ZIP or kind.role == "identifying")


def _ask(engine: DuckDBEngine, rows: exp.Expr, figures: Mapping[str, Sequence[exp.Expr]]) -> dict[str, tuple[int, ...]]:
    """Figures of columns, in one pass."""
    output = [named(figure, f"figure_{i}_{j}") for i, of in enumerate(figures.values()) for j, figure in enumerate(of)]
    values = iter(engine.rows(_FIGURES(figures=output, rows=rows.copy()))[0])
    return {name: tuple(next(values) for _ in of) for name, of in figures.items()}


def refuse_doubtful_columns(
    engine: DuckDBEngine,
    rows: exp.Expr,
    checks: ColumnChecks,
    marks: NumberMarks,
    locate: Locate | None,
    last_row_key: str | None = None,
) -> None:
    if doubtful := find_doubtful_columns(engine, rows, checks.texts, marks, locate, last_row_key):
        raise SourceError("\n".join(column.describe() for column in doubtful))


def _pivot_key() -> str:
    return f"pivot = {date.today().year} (the last year that they can mean)"


def has_short_years(format_: str) -> bool:
    return "%y" in format_


def may_swap_days(format_: str) -> bool:
    """Whether days and months of a format are told apart by their values alone.

    >>> may_swap_days("%d/%m/%Y"), may_swap_days("%Y-%m-%d"), may_swap_days("%d %b %Y")
    (True, False, False)
    """
    is_by_numbers = "%d" in format_ and "%m" in format_
    return is_by_numbers and not (format_.startswith("%Y") and format_.index("%m") < format_.index("%d"))


def ambiguous_dates(engine: DuckDBEngine, rows: exp.Expr, formats: Mapping[str, str]) -> list[str]:
    """Of columns of dates in a format those whose days and months could be swapped in every value."""
    columns = engine.columns(rows)
    names = [name for name, format_ in formats.items() if may_swap_days(format_) and name in columns]
    if not names:
        return []
    found = _ask(engine, rows, {name: [_DAYS(date=col(name))] for name in names})
    return [name for name in names if found[name][0]]


def refuse_ambiguous_dates(
    engine: DuckDBEngine, rows: exp.Expr, dates: Collection[str], formats: Mapping[str, str]
) -> None:
    """Refuse dates that could have another day, month or century; `formats` is how the engine takes them."""
    checked = {name: format_ for name, format_ in formats.items() if name.lower() in dates}
    if found := find_doubtful_dates(engine, rows, checked):
        raise SourceError("\n".join(describe_dates(name, found[name]) for name in found))


def find_doubtful_dates(engine: DuckDBEngine, rows: exp.Expr, formats: Mapping[str, str]) -> dict[str, str]:
    """The columns of dates that could have another day, month or century, with the formats that the engine takes."""
    short = [name for name, format_ in formats.items() if has_short_years(format_)]
    return {name: formats[name] for name in [*short, *ambiguous_dates(engine, rows, formats)]}


def date_options(format_: str) -> tuple[Literal["date", "timestamp"], list[str]]:
    """The type of dates in a format, and the formats that they may be meant in."""
    options = [format_]
    if may_swap_days(format_):
        options.append(format_.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m"))
    return ("timestamp" if "%H" in format_ or "%I" in format_ else "date"), options


def describe_dates(name: str, format_: str) -> str:
    kind, options = date_options(format_)
    written = " or ".join(f"format = {toml_value(option)}" for option in options)
    what = "years of two digits" if has_short_years(format_) else "days and months that could be swapped in every value"
    pivot = f", {_pivot_key()}" if has_short_years(format_) else ""
    return (
        f"attributes.{toml_key(name)}: the column has dates with {what}; decide how they are written: "
        f'type = "{kind}", {written}{pivot}'
    )
