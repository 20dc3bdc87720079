"""Refuse columns of CSV and Excel files whose meaning is in doubt.

A few words among numbers turn a column into text: ``4e`` among ages, ``NA``, a line with totals; commas in numbers do
the same. The month of 01/02/2026 is ambiguous, and so is the century of 01/02/26. Such columns are refused with the
values, their lines, and the keys with which the data holder decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.hierarchies.partial_dates import PARTIAL_DATE
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.policy import Policy
from sqlanon.policy.reading import THOUSANDS
from sqlanon.policy.rules import DatesRule, IntervalsRule, SuppressRule
from sqlanon.requirements import ordered_attributes
from sqlanon.sources.column_kinds import BIRTH, ZIP, find_kind
from sqlanon.sources.files.typed_columns import (
    MAX_LISTED_VALUES,
    POINT,
    NumberMarks,
    count_matches,
    date_keys,
    distinct_values_query,
    find_date_formats,
    has_short_years,
    is_in_format,
    list_values,
    locate_values,
    may_swap_days,
    number_pattern,
    type_of_format,
)
from sqlanon.sources.source import FindLocations
from sqlanon.support.expressions import col, fragment, select, template
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_key, toml_value

MOSTLY = 0.95
"""From this share of numbers or dates among the values of a column, the other values are in doubt."""

_MOSTLY_BY_RULE = 0.5
"""The same share for columns whose rule needs numbers or dates."""

Kind: TypeAlias = Literal["number", "date"]

_MAX_CODES = 10
_DATE = (
    "([0-9]{4}[-./][0-9]{1,2}[-./][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./]([0-9]{2}|[0-9]{4})|"
    "[0-9]{1,2}(-|[.]? ?)[A-Za-z]{3,9}[- ]?[0-9]{4})([ T].*)?"
)
_ANY_MARK = f"[{''.join(map(re.escape, THOUSANDS))}]"
_MARKED_NUMBER = (
    f"[-+]?(?:(?:[1-9][0-9]{{0,2}}(?:{_ANY_MARK}[0-9]{{3}})+|0|[1-9][0-9]*)(?:[.,][0-9]*)?|[.,][0-9]+)"
    "(?:[eE][-+]?[0-9]{1,3})?"
)
_NUMBER_MARKS = [
    NumberMarks(decimal, thousands, are_declared=True)
    for decimal in (".", ",")
    for thousands in (None, *THOUSANDS)
    if thousands != decimal
]

_OTHER_VALUES = template("""
    SELECT value, min(row) AS first, max(max(row)) OVER () = max(rows) AS is_last
    FROM (SELECT row_number() OVER () AS row, count(*) OVER () AS rows, :text AS value FROM :rows) AS r
    WHERE NOT value IS NULL AND NOT (:matches)
    GROUP BY value
    ORDER BY first
    LIMIT :most
""")


@dataclass(frozen=True)
class ColumnChecks:
    """The columns to check, by name in lower case."""

    # By text column, the share of numbers or dates that raises doubts.
    texts: Mapping[str, float] = field(default_factory=dict)
    dates: Collection[str] = frozenset()  # must have one meaning
    needs: Mapping[str, Kind] = field(default_factory=dict)  # by rules; dates count as numbers
    births: Collection[str] = frozenset()  # must not be in the future


NO_CHECKS = ColumnChecks()


@dataclass(frozen=True)
class DoubtfulColumn:
    """A column of texts in which most, or all, are dates or numbers."""

    name: str
    kind: Kind
    fitting: int
    count: int  # other values; if all are numbers, those with marks
    other_values: Sequence[str]  # the distinct other values, in order of occurrence
    locations: Sequence[tuple[str, str]]  # the locations of the first ones, each with its value
    is_last: bool  # the last row has one of the other values
    marks: Sequence[NumberMarks] = ()  # alternatives, if keys have to decide
    has_words: bool = True  # some values are neither numbers nor dates
    formats: Sequence[str] = ()  # alternatives for the dates
    last_row_key: str = "footer = 1 under [source.csv]"  # leaves the last row out

    @property
    def codes(self) -> Sequence[str] | None:
        """The other values as codes of missing values; None if there are too many."""
        return self.other_values if len(self.other_values) <= _MAX_CODES else None

    @property
    def summary(self) -> str:
        fitting, unlisted = count_noun(self.fitting, self.kind), self.count - len(self.locations)
        examples = list_values(self.locations) + (f", and {unlisted:,} more" if unlisted > 0 else "")
        if self.has_words:
            return f"{fitting} and {count_noun(self.count, 'other value')}: {examples}"
        return (
            f"{fitting}, {'read as texts' if self.kind == 'date' else f'{self.count:,} of them with marks'}: {examples}"
        )

    @property
    def date_keys(self) -> str:
        """The keys that read the texts as dates."""
        return date_keys(self.formats)

    @property
    def mark_keys(self) -> str:
        """The keys that read the texts as numbers."""
        alternatives = [
            " with ".join(
                ([] if marks.decimal == "." else [f"decimal = {toml_value(marks.decimal)}"])
                + ([] if marks.thousands is None else [f"thousands = {toml_value(marks.thousands)}"])
            )
            for marks in self.marks
        ]
        return f"under [source.csv], {' or '.join(alternatives)}"

    @property
    def are_read_as_dates(self) -> bool:
        """Whether the dates need no key once the other values are NULL."""
        return any(format_.startswith("%Y-%m-%d") and "%p" not in format_ for format_ in self.formats)

    def describe(self) -> str:
        attribute = f"attributes.{toml_key(self.name)}"
        start = f"{attribute}: the column has {self.summary}; decide how they are"
        if not self.has_words and self.kind == "date":
            return f'{start} written: {self.date_keys}; or keep them as texts: type = "text"'
        if not self.has_words:
            return f'{start} written: {self.mark_keys}; type = "text" in {attribute} keeps all values as texts'
        codes = "..." if self.codes is None else ", ".join(toml_value(code) for code in self.codes)
        keys = [f"missing = [{codes}] in {attribute} makes them NULL", 'type = "text" keeps all values as texts']
        if self.marks:
            keys.append(f"{self.mark_keys} reads the others as numbers")
        if self.formats and not self.are_read_as_dates:
            keys.append(f"{self.date_keys} reads the others as dates")
        if self.is_last:
            keys.append(f"{self.last_row_key} leaves the last row out")
        return f"{start} read: {'; '.join(keys)}"


def build_column_checks(policy: Policy) -> ColumnChecks:
    """Find the columns to check: those that a release shows and that have no key in the policy."""
    texts, needs, dates, births = dict[str, float](), dict[str, Kind](), set[str](), set[str]()
    ordered = ordered_attributes(policy.privacy)
    for name, attribute in policy.attributes.items():
        key, rules = name.lower(), attribute.hierarchy or ()
        if attribute.role != "identifying" and (kind := find_kind(name)) is not None and kind.name == BIRTH:
            births.add(key)
        if attribute.type is not None:
            continue
        if attribute.role != "identifying":
            dates.add(key)
        if attribute.noise is not None or any(isinstance(rule, IntervalsRule | DatesRule) for rule in rules):
            texts[key] = _MOSTLY_BY_RULE
            if rules:
                needs[key] = "date" if any(isinstance(rule, DatesRule) for rule in rules) else "number"
        elif name in ordered or (attribute.role == "quasi" and all(isinstance(rule, SuppressRule) for rule in rules)):
            texts[key] = MOSTLY
    return ColumnChecks(texts, dates, needs, births)


def refuse_future_births(engine: DuckDBEngine, rows: exp.Expr, births: Collection[str]) -> None:
    """Refuse dates of birth after today: they are wrong, or in another format or century."""
    today = date.today().isoformat()
    is_future = {
        ColumnKind.DATE: fragment("isfinite(day::TIMESTAMP) AND day::TIMESTAMP >= :today::DATE + INTERVAL 1 DAY")(
            today=today
        ),
        ColumnKind.TEXT: fragment("regexp_full_match(day, :pattern) AND day > left(:today, length(day))")(
            today=today, pattern=PARTIAL_DATE
        ),
    }
    count_future = template("""
        SELECT count(*), min(row)
        FROM (SELECT row_number() OVER () AS row, :day AS day FROM :rows) AS r
        WHERE :is_future
    """)
    for name, type_ in engine.columns(rows).items():
        if name.lower() not in births or column_kind(type_) not in is_future:
            continue
        query = count_future(day=col(name), rows=rows, is_future=is_future[column_kind(type_)])
        count, row = engine.rows(query)[0]
        if count:
            raise SourceError(
                f"attributes.{toml_key(name)}: {count_noun(count, 'date')} of birth after today, the first in row "
                f"{row:,}: correct them, or the format and pivot by which they are read"
            )


def find_doubtful_columns(
    engine: DuckDBEngine,
    rows: exp.Expr,
    texts: Mapping[str, float],
    marks: NumberMarks = POINT,
    locate: FindLocations | None = None,
    last_row_key: str | None = None,
) -> list[DoubtfulColumn]:
    """Find columns of texts whose other values are in doubt, from the given shares of numbers or dates on."""
    columns = [
        name
        for name, type_ in engine.columns(rows).items()
        if type_ == "VARCHAR" and name.lower() in texts and not _is_code(name)
    ]
    if not columns:
        return []
    # Matching patterns takes ten times as long, and few columns of texts begin with digits.
    begin_with_digits = fragment("count(*) FILTER (WHERE :text >= '+' AND :text < ':')")
    figures = [figure for name in columns for figure in (exp.Count(this=col(name)), begin_with_digits(text=col(name)))]
    counts = engine.rows(select(figures, rows.copy()))[0]
    doubtful = []
    for name, count, digits in zip(columns, counts[::2], counts[1::2], strict=True):
        least = texts[name.lower()] * count
        if not 0 < least <= digits:
            continue
        notation = _find_notation(engine, distinct_values_query(col(name), rows), marks, count, least)
        if notation is None:
            continue
        query = _OTHER_VALUES(text=col(name), rows=rows, matches=notation.matches, most=_MAX_CODES + 1)
        other_values = engine.rows(query)
        column = DoubtfulColumn(
            name,
            notation.kind,
            notation.fitting,
            notation.count,
            [value for value, *_ in other_values],
            locate_values(name, [(value, row) for value, row, _ in other_values[:MAX_LISTED_VALUES]], locate),
            bool(other_values[0][-1]),
            notation.marks,
            has_words=notation.fitting < count,
            formats=notation.formats,
        )
        doubtful.append(column if last_row_key is None else replace(column, last_row_key=last_row_key))
    return doubtful


@dataclass(frozen=True)
class _Notation:
    """The notation of most texts of a column."""

    kind: Kind
    fitting: int  # rows with numbers or dates
    count: int  # rows that do not match, for the message
    matches: exp.Expr
    marks: Sequence[NumberMarks] = ()
    formats: Sequence[str] = ()


def _find_notation(
    engine: DuckDBEngine, distinct: exp.Expr, marks: NumberMarks, total: int, least: float
) -> _Notation | None:
    """Find how texts are written if at least ``least`` are numbers or dates; None without doubts."""
    plain = _matches(number_pattern(marks))
    conditions = [plain, _matches(_DATE), _matches(PARTIAL_DATE)]
    conditions += [] if marks.are_declared else [_matches(_MARKED_NUMBER)]
    numbers, dates, partial_dates, *marked = count_matches(engine, distinct, conditions)
    if marked and marked[0] >= max(least, numbers + 1):
        fitting, pairs = _find_fitting_marks(engine, distinct)
        if fitting >= max(least, numbers + 1):
            has_words = fitting < total
            matches = _matches(number_pattern(pairs[0], leading_zeros=False)) if has_words else plain
            return _Notation("number", fitting, total - (fitting if has_words else numbers), matches, marks=pairs)
    if partial_dates >= max(least, numbers + 1, dates + 1):
        has_others = partial_dates < total
        return _Notation("date", partial_dates, total - partial_dates, _matches(PARTIAL_DATE)) if has_others else None
    if dates >= max(least, numbers + 1):
        formats, fitting = find_date_formats(engine, distinct)
        if least <= fitting < total:
            return _Notation("date", fitting, total - fitting, is_in_format(formats[0]), formats=formats)
        if dates < total:
            return _Notation("date", dates, total - dates, _matches(_DATE))
        return _Notation("date", total, total, plain, formats=formats if fitting == total else ())
    return _Notation("number", numbers, total - numbers, plain) if least <= numbers < total else None


def _find_fitting_marks(engine: DuckDBEngine, distinct: exp.Expr) -> tuple[int, Sequence[NumberMarks]]:
    """Find the marks that fit most rows, and the number of these rows; without marks that occur in no number."""
    conditions = [_matches(number_pattern(marks, leading_zeros=False)) for marks in _NUMBER_MARKS]
    counts = dict(zip(_NUMBER_MARKS, count_matches(engine, distinct, conditions), strict=True))
    most = max(counts.values())
    fitting = [marks for marks, count in counts.items() if count == most]
    needed = [
        marks
        for marks in fitting
        if (marks.thousands is None or replace(marks, thousands=None) not in fitting)
        and (marks.decimal == "." or replace(marks, decimal=".") not in fitting)
    ]
    return most, needed


def _matches(pattern: str) -> exp.Expr:
    return fragment("regexp_full_match(trim(value), :pattern)")(pattern=pattern)


def _is_code(name: str) -> bool:
    """Whether a column has codes by its name: 02139-1234 in a column with 02139 is a valid code."""
    kind = find_kind(name)
    return kind is not None and (kind.name == ZIP or kind.role == "identifying")


def refuse_doubtful_columns(
    engine: DuckDBEngine,
    rows: exp.Expr,
    checks: ColumnChecks,
    marks: NumberMarks,
    locate: FindLocations | None,
    last_row_key: str | None = None,
) -> None:
    if doubtful := find_doubtful_columns(engine, rows, checks.texts, marks, locate, last_row_key):
        raise SourceError("\n".join(column.describe() for column in doubtful))
    needs = {name: kind for name, kind in checks.needs.items() if name in checks.texts}
    if problems := [*_describe_unfit_texts(engine, rows, needs, marks, locate)]:
        raise SourceError("\n".join(problems))


def _describe_unfit_texts(
    engine: DuckDBEngine,
    rows: exp.Expr,
    needs: Mapping[str, Kind],
    marks: NumberMarks,
    locate: FindLocations | None,
) -> Iterator[str]:
    """Describe columns of texts whose rules need numbers or dates, with the first other values."""

    def find_others(name: str, pattern: str) -> list[tuple[str, int]]:
        query = _OTHER_VALUES(text=col(name), rows=rows, matches=_matches(pattern), most=MAX_LISTED_VALUES)
        return [(value, row) for value, row, _ in engine.rows(query)]

    for name, type_ in engine.columns(rows).items():
        kind = needs.get(name.lower())
        if type_ != "VARCHAR" or kind is None or (kind == "date" and not find_others(name, PARTIAL_DATE)):
            continue
        other_values = find_others(name, _DATE if kind == "date" else f"{number_pattern(marks)}|{_DATE}")
        if not other_values:
            continue
        attribute = f"attributes.{toml_key(name)}"
        needed, keys = ("dates", date_keys(())) if kind == "date" else ("numbers or dates", 'type = "number"')
        yield (
            f"{attribute}: the hierarchy needs {needed}, and the column has texts, such as "
            f"{list_values(locate_values(name, other_values, locate))}; list those that mean NULL under missing = "
            f"[...] in {attribute}, declare with {keys} how the others are written, or give the column another "
            'hierarchy, such as "suppress"'
        )


def refuse_ambiguous_dates(
    engine: DuckDBEngine, rows: exp.Expr, dates: Collection[str], formats: Mapping[str, str]
) -> None:
    """Refuse dates that could have another day, month or century than in the formats that the engine reads."""
    checked = {name: format_ for name, format_ in formats.items() if name.lower() in dates}
    if doubtful := find_doubtful_dates(engine, rows, checked):
        raise SourceError("\n".join(describe_dates(name, format_) for name, format_ in doubtful.items()))


def find_doubtful_dates(engine: DuckDBEngine, rows: exp.Expr, formats: Mapping[str, str]) -> dict[str, str]:
    """Find columns of dates that could have another day, month or century, with the formats that the engine reads."""
    doubtful = {name: format_ for name, format_ in formats.items() if has_short_years(format_)}
    columns = engine.columns(rows)
    names = [name for name, format_ in formats.items() if may_swap_days(format_) and name in columns]
    if names:
        can_be_swapped = fragment("max(day(:date)) <= 12 AND bool_or(day(:date) <> month(:date))")
        figures = engine.rows(select([can_be_swapped(date=col(name)) for name in names], rows.copy()))[0]
        doubtful |= {name: formats[name] for name, is_doubtful in zip(names, figures, strict=True) if is_doubtful}
    return doubtful


def date_options(format_: str) -> tuple[Literal["date", "timestamp"], list[str]]:
    """The type of dates in a format, and the formats that may be meant."""
    options = [format_]
    if may_swap_days(format_):
        options.append(format_.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m"))
    return type_of_format(format_), options


def describe_dates(name: str, format_: str) -> str:
    doubt = "days and months that could be swapped in every value"
    if has_short_years(format_):
        doubt = "years of two digits"
    return (
        f"attributes.{toml_key(name)}: the column has dates with {doubt}; decide how they are written: "
        f"{date_keys(date_options(format_)[1])}"
    )
