"""Read columns of texts as numbers, dates or timestamps, as a policy declares.

A text becomes a value only if all of it is written as the keys say. Numbers are read as integers or as a DECIMAL with
as many digits as they have, never through a floating-point number. If any text is not written so, the source is refused
with the number of such texts, the first of them, and their locations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.policy.reading import ColumnType, directives, format_pattern
from sqlanon.policy.sections import Attribute, CsvSection
from sqlanon.sources.source import FindLocations
from sqlanon.support.expressions import as_column, cast, col, fragment, select, subquery, template
from sqlanon.support.fields import in_words
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_value

MAX_LISTED_VALUES = 5
_BIGINT_DIGITS = 18  # every integer of 18 digits is a BIGINT
_MAX_DIGITS = 38  # of a DECIMAL or HUGEINT
_DEFAULT_PRECISION, _DEFAULT_SCALE = 18, 3  # of a DECIMAL if no rows are read

_TYPE_NAMES: Mapping[ColumnType, str] = {
    "integer": "an integer", "number": "a number", "date": "a date", "timestamp": "a timestamp", "text": "a text",
}  # fmt: skip
_TYPE_KINDS: Mapping[ColumnType, Collection[ColumnKind]] = {
    "integer": {ColumnKind.INTEGER},
    "number": {ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING},
    "date": {ColumnKind.DATE},
    "timestamp": {ColumnKind.DATE, ColumnKind.ZONED},
    "text": {ColumnKind.TEXT},
}


@dataclass(frozen=True)
class ColumnReading:
    """The rules by which the texts of a column are read.

    Without a ``type``, they are numbers or dates if all of them match.
    """

    name: str  # the name of the attribute
    type: ColumnType | None = None
    format: str | None = None
    pivot: int | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class NumberMarks:
    decimal: str = "."
    thousands: str | None = None
    are_declared: bool = False
    may_be_thousands: bool = False  # no key decides whether 12.345 means 12345

    @classmethod
    def from_section(cls, csv: CsvSection) -> NumberMarks:
        return cls(csv.decimal or ".", csv.thousands, csv.has_number_marks)


POINT = NumberMarks()
ONLY_POINT = NumberMarks(are_declared=True)
"""For texts in which a comma is never the decimal mark."""


def build_column_readings(
    attributes: Mapping[str, Attribute], text_columns: Collection[str]
) -> dict[str, ColumnReading]:
    """The readings of columns whose attributes declare one, by name in lower case."""
    readings: dict[str, ColumnReading] = {}
    for name, attribute in attributes.items():
        if attribute.has_reading_keys:
            type_ = attribute.type or ("text" if name.lower() in text_columns else None)
            reading = ColumnReading(name, type_, attribute.format, attribute.pivot, attribute.missing)
            readings[name.lower()] = reading
    return readings


# Formats of dates

_DAYS_BY_NUMBERS = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d", "%d{0}%m{0}%y", "%m{0}%d{0}%y")
_DAYS_BY_NAMES = ("%d%b%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%d. %B %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_DATE_FORMATS = [
    day + clock
    for day in (*(order.format(mark) for mark in "-./" for order in _DAYS_BY_NUMBERS), *_DAYS_BY_NAMES)
    for clock in _CLOCKS
]


def distinct_values_query(value: exp.Expr, rows: exp.Expr) -> exp.Subquery:
    """Each distinct text as ``value``, with its ``row_count``."""
    query = template("""
        SELECT value, count(*) AS row_count
        FROM (SELECT :text AS value FROM :rows) AS texts
        WHERE NOT value IS NULL
        GROUP BY value
    """)
    return subquery(query(text=value, rows=rows), "v")


def count_matches(engine: DuckDBEngine, distinct: exp.Expr, conditions: Sequence[exp.Expr]) -> Sequence[int]:
    """Count the rows that match each condition on ``value``, in one pass over their distinct values."""
    count = fragment("coalesce(sum(row_count) FILTER (WHERE :condition), 0)::BIGINT")
    return engine.rows(select([count(condition=condition) for condition in conditions], distinct.copy()))[0]


def is_in_format(format_: str) -> exp.Expr:
    """The condition that ``value`` is a date in a format."""
    return fragment("regexp_full_match(trim(value), :pattern) AND NOT try_strptime(trim(value), :format) IS NULL")(
        pattern=format_pattern(format_), format=format_
    )


def find_date_formats(engine: DuckDBEngine, distinct: exp.Expr) -> tuple[Sequence[str], int]:
    """Find the usual date formats that fit the most rows, and the number of these rows.

    All formats are tried on a sample of the distinct values, and those that occur in it on all values.
    """
    sample = subquery(template("SELECT value, row_count FROM :distinct LIMIT 1000")(distinct=distinct), "sample")
    formats, counts = _DATE_FORMATS, dict[str, int]()
    for values in (sample, distinct):
        if formats:
            figures = count_matches(engine, values, [is_in_format(format_) for format_ in formats])
            counts = dict(zip(formats, figures, strict=True))
            formats = [format_ for format_, count in counts.items() if count]
    most = max(counts.values(), default=0) if formats else 0
    return [format_ for format_ in formats if counts[format_] == most], most


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


def date_keys(formats: Sequence[str]) -> str:
    """The keys of a policy that read texts as dates in one of some formats.

    >>> date_keys(["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"])
    'type = "timestamp", format = "%d/%m/%Y %H:%M" or format = "%m/%d/%Y %H:%M"'
    """
    kind = type_of_format(formats[0]) if formats else "date"
    options = " or ".join(f"format = {toml_value(format_)}" for format_ in formats) or "format = ..."
    pivot = f", pivot = {date.today().year} (the last year that they can mean)"
    return f'type = "{kind}", {options}' + (pivot if any(map(has_short_years, formats)) else "")


# Values

UNITS = r"\p{Sc}|%|[A-Z]{3}"
"""A unit at one end of a number: the sign or code of a currency, or percent."""

_SPACE = "[ \u00a0\u202f]?"
_UNITS_AT_ENDS = {"before": f"^([-+]?)({UNITS}){_SPACE}", "behind": f"{_SPACE}({UNITS})$"}
_TRIMMED = fragment("trim(:text)")
_IF_TRIMMED_MATCHES = fragment("CASE WHEN regexp_full_match(trim(:text), :pattern) THEN :value END")

ZONE = " ?(UTC|Z|[-+][0-9]{2}(:?[0-9]{2})?|[A-Za-z]+/[A-Za-z_/+-]+)"
"""A zone after a time, or its offset from UTC."""

_ISO_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO = {
    "DATE": _ISO_DAY,
    "TIMESTAMP": f"{_ISO_DAY}([ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?({ZONE})?)?",
}


def try_cast(value: exp.Expr, type_: str) -> exp.TryCast:
    return exp.TryCast(this=value, to=exp.DataType.build(type_, dialect="duckdb"))


def without_zone(value: exp.Expr) -> exp.Expr:
    """Remove the zone from a time, which keeps the local time: the engine would convert it to UTC."""
    return fragment("regexp_replace(trim(:text), :zone, '\\1')")(text=value, zone=f"(:[0-9.]+){ZONE}$")


def number_pattern(marks: NumberMarks, is_integer: bool = False, leading_zeros: bool = True) -> str:
    """The pattern of numbers, or of integers without decimals and exponent; codes may have leading zeros."""
    whole = "[0-9]+" if leading_zeros else "(?:0|[1-9][0-9]*)"
    if marks.thousands is not None:
        first = "[0-9]{1,3}" if leading_zeros else "[1-9][0-9]{0,2}"
        whole = f"(?:{first}(?:{re.escape(marks.thousands)}[0-9]{{3}})+|{whole})"
    if is_integer:
        return f"[-+]?{whole}"
    mark = re.escape(marks.decimal)
    return f"[-+]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][-+]?[0-9]{{1,3}})?"


def _character_pattern(marks: NumberMarks) -> str:
    """The pattern of texts that have only characters of numbers."""
    return f"[-+]?[0-9][0-9.,{re.escape(marks.thousands or '')}]*"


def _unit(value: exp.Expr) -> exp.Expr:
    """Extract the unit at either end of a number; empty without one."""
    return fragment("regexp_extract(trim(:text), :before, 2) || regexp_extract(trim(:text), :behind, 1)")(
        text=value, **_UNITS_AT_ENDS
    )


def _number(value: exp.Expr, pattern: str, marks: NumberMarks, may_have_unit: bool = False) -> exp.Expr:
    """Rewrite a text as the engine spells numbers; NULL for other texts."""
    digits: exp.Expr = _TRIMMED(text=value)
    if may_have_unit:
        digits = fragment("regexp_replace(regexp_replace(trim(:text), :before, '\\1'), :behind, '')")(
            text=value, **_UNITS_AT_ENDS
        )
    number = digits
    if marks.thousands is not None:
        number = fragment("replace(:number, :mark, '')")(number=number, mark=marks.thousands)
    if marks.decimal != ".":
        number = fragment("replace(:number, :mark, '.')")(number=number, mark=marks.decimal)
    return fragment("CASE WHEN regexp_full_match(:digits, :pattern) THEN :number END")(
        digits=digits, pattern=pattern, number=number
    )


def _day_or_time(value: exp.Expr, reading: ColumnReading, type_: Literal["DATE", "TIMESTAMP"]) -> exp.Expr:
    """Read a text as a date or timestamp; NULL for other texts."""
    trimmed: exp.Expr = _TRIMMED(text=value)
    if reading.format is None:
        iso = without_zone(value) if type_ == "TIMESTAMP" else trimmed
        return _IF_TRIMMED_MATCHES(text=value, pattern=_ISO[type_], value=try_cast(iso, type_))
    pattern, format_ = format_pattern(reading.format), reading.format
    if reading.pivot is not None and "y" in directives(format_):
        # The latest year up to the pivot that ends in these two digits; NULL where the pattern does not match.
        trimmed = fragment("""
            regexp_extract(:text, :pattern, 1)
                || lpad((
                    :pivot - (:pivot - TRY_CAST(regexp_extract(:text, :pattern, 2) AS INTEGER)) % 100
                )::VARCHAR, 4, '0')
                || regexp_extract(:text, :pattern, 3)
        """)(text=trimmed, pattern=f"^{pattern}$", pivot=reading.pivot)
        format_ = re.sub("%(.)", lambda match: "%Y" if match[1] == "y" else match[0], format_)
    read = try_cast(fragment("try_strptime(:text, :format)")(text=trimmed, format=format_), type_)
    return _IF_TRIMMED_MATCHES(text=value, pattern=pattern, value=read)


# Columns

SHORT_NUMBER = 16
"""DOUBLE shows numbers of up to 16 characters, fifteen digits and a point, unchanged."""

_NUMBER_FIGURES = {
    "digits": fragment("max(length(ltrim(regexp_extract(:number, '^[-+]?([0-9]*)', 1), '0')))"),
    "decimals": fragment("max(length(regexp_extract(:number, '[.]([0-9]*)', 1)))"),
    "exponent": fragment("coalesce(bool_or(contains(lower(:number), 'e')), false)"),
    "plain_exponent": fragment("coalesce(bool_or(regexp_matches(:number, '^-.*[eE]|[.].*[eE]|[eE][-+]')), false)"),
    "doubles": fragment(f"""
        count(*) FILTER (
            WHERE isfinite(TRY_CAST(:number AS DOUBLE))
            AND (
                (length(:number) <= {SHORT_NUMBER} AND NOT regexp_matches(:number, '[eE][-+]?[0-9]{{3}}'))
                OR TRY_CAST(:number AS DOUBLE)::VARCHAR = :number
            )
        )
    """),
    "may_be_thousands": fragment("""
        coalesce(bool_and(regexp_full_match(:number, '[-+]?[1-9][0-9]{0,2}([.][0-9]{3})?|0')), false)
        AND bool_or(contains(:number, '.'))
    """),
}
_UNIT_FIGURES = {
    "units": fragment("count(DISTINCT :unit) FILTER (WHERE NOT :text IS NULL)"),
    "usual_unit": fragment("mode(:unit) FILTER (WHERE NOT :text IS NULL)"),
}


@dataclass(frozen=True)
class _TextColumn:
    """A column of texts, with the expressions that may read its values."""

    engine: DuckDBEngine
    rows: exp.Expr
    marks: NumberMarks
    locate: FindLocations | None
    name: str
    reading: ColumnReading
    is_declared: bool
    value: exp.Expr  # the text, NULL for the codes of missing values
    readings: Mapping[str, exp.Expr]  # ``number``, as the engine spells it; ``day``; ``time``
    figures: Mapping[str, Any] = field(default_factory=dict)  # none if no row may be read

    def figure_expressions(self, i: int) -> dict[str, exp.Expr]:
        """Figures over columns ``text_i``, ``number_i``, ``day_i`` and ``time_i``."""
        value = col(f"text_{i}")
        figures: dict[str, exp.Expr] = {
            f"{kind}s": exp.Count(this=col(f"{kind}_{i}")) for kind in ("text", *self.readings)
        }
        if "number" in self.readings:
            figures |= {name: figure(number=col(f"number_{i}")) for name, figure in _NUMBER_FIGURES.items()}
        if self.reading.type in ("integer", "number"):
            figures |= {name: figure(unit=_unit(value), text=value) for name, figure in _UNIT_FIGURES.items()}
        if not self.is_declared:
            count = fragment("count(*) FILTER (WHERE regexp_full_match(trim(:text), :pattern))")
            figures["lenient"] = count(text=value, pattern=number_pattern(self.marks))
            figures["like_numbers"] = count(text=value, pattern=_character_pattern(self.marks))
        return figures

    def read(self) -> tuple[exp.Expr, str] | None:
        """Read the column as its type; None leaves it unchanged."""
        type_, figures = self.reading.type, self.figures
        if type_ not in (None, "text"):
            return self._read_declared(type_)
        if type_ is None and (count := figures.get("texts")):
            if figures["numbers"] == count and (number := self._read_numbers()) is not None:
                return number
            for kind, sql_type in (("day", "DATE"), ("time", "TIMESTAMP")):
                if kind in self.readings and figures[f"{kind}s"] == count:
                    return self.readings[kind], sql_type
            if not self.is_declared and self.marks.are_declared:
                self._refuse_misplaced_marks()
        return (self.value, "VARCHAR") if self.reading.missing else None

    def _read_declared(self, type_: ColumnType) -> tuple[exp.Expr, str]:
        ((kind, value),) = self.readings.items()
        if misfits := self.figures.get("texts", 0) - self.figures.get(f"{kind}s", 0):
            raise self._misfits_error(type_, value, misfits)
        if kind != "number":
            return value, "DATE" if kind == "day" else "TIMESTAMP"
        if self.figures.get("units", 0) > 1:
            raise self._different_units_error(self.figures["usual_unit"])
        number = self._read_numbers()
        if number is None:
            raise SourceError(
                f"attributes.{self.reading.name}.type: column {self.name!r} has numbers of more than {_MAX_DIGITS} "
                'digits, or beyond 1e308, which no type holds exactly; set type = "text"'
            )
        return number

    def _read_numbers(self) -> tuple[exp.Expr, str] | None:
        """Read all numbers of the column as a type that holds them exactly; None without such a type.

        Numbers with an exponent are read as floating-point numbers; 1E5 alone may be a code. Decimals are read as
        floating-point numbers if no key applies to the numbers, and DOUBLE shows all of them unchanged.
        """
        figures, marks = self.figures, self.marks
        digits, decimals = figures.get("digits"), figures.get("decimals")
        if not figures and self.reading.type == "number":
            digits, decimals = _DEFAULT_PRECISION - _DEFAULT_SCALE, _DEFAULT_SCALE
        if marks.may_be_thousands and figures.get("may_be_thousands"):
            raise thousands_error(self.name)
        digits, decimals = max(digits or 0, 1), decimals or 0
        fits_double = bool(figures) and figures["doubles"] == figures["numbers"]
        has_key = self.is_declared or marks.are_declared
        if figures.get("exponent"):
            if not fits_double or not (has_key or figures["plain_exponent"]):
                return None
            type_ = "DOUBLE"
        elif decimals and fits_double and not has_key:
            type_ = "DOUBLE"
        elif digits + decimals > _MAX_DIGITS:
            return None
        elif decimals:
            type_ = f"DECIMAL({digits + decimals}, {decimals})"
        else:
            type_ = "BIGINT" if digits <= _BIGINT_DIGITS else "HUGEINT"
        return cast(self.readings["number"].copy(), type_), type_.replace(" ", "")

    def _refuse_misplaced_marks(self) -> None:
        """Refuse misplaced marks in a column of numbers, such as ``12.34.567`` with a point between thousands."""
        marks, lenient = self.marks, self.figures["lenient"]
        misplaced = self.figures["like_numbers"] - lenient
        if misplaced <= 0 or 2 * lenient < self.figures["texts"]:
            return
        read = fragment("""
            CASE
                WHEN NOT regexp_full_match(trim(:text), :characters) OR regexp_full_match(trim(:text), :pattern)
                THEN true
            END
        """)(text=self.value, characters=_character_pattern(marks), pattern=number_pattern(marks))
        thousands = "" if marks.thousands is None else f" and thousands = {in_words(marks.thousands)}"
        raise SourceError(
            f"source.csv: {count_noun(misplaced, 'value')} of column {self.name!r} "
            f"{'is' if misplaced == 1 else 'are'} not written with decimal = {in_words(marks.decimal)}{thousands}: "
            f'{self._list_misfits(read)}; correct the file, or set type = "text" in attributes.{self.name}'
        )

    def _misfits_error(self, type_: ColumnType, read: exp.Expr, misfits: int) -> SourceError:
        reading = self.reading
        key = "type" if reading.format is None else "format"
        format_ = "" if reading.format is None else f" in the format {reading.format}"
        are = "value of the column is not" if misfits == 1 else "values of the column are not"
        return SourceError(
            f"attributes.{reading.name}.{key}: {misfits:,} {are} {_TYPE_NAMES[type_]}{format_}: "
            f"{self._list_misfits(read)}; correct them, {self._suggest_formats(type_, misfits)}"
            'list those that mean NULL under missing = [...], or set type = "text"'
        )

    def _suggest_formats(self, type_: ColumnType, misfits: int) -> str:
        """Suggest usual date formats that read more values."""
        if type_ not in ("date", "timestamp"):
            return ""
        formats, fitting = find_date_formats(self.engine, distinct_values_query(self.value, self.rows))
        count = self.figures["texts"]
        if fitting <= count - misfits:
            return ""
        share = f"all {count:,}" if fitting == count else f"{fitting:,} of {count:,}"
        return f"set {date_keys(formats)}, which reads {share} values, "

    def _different_units_error(self, usual_unit: str) -> SourceError:
        read = fragment("CASE WHEN :unit = :usual THEN true END")(unit=_unit(self.value), usual=usual_unit)
        most = f"most numbers have {in_words(usual_unit)}" if usual_unit else "most numbers have no unit"
        return SourceError(
            f"attributes.{self.reading.name}.type: {most}, and others have not: {self._list_misfits(read)}; write all "
            'of them in one unit, list those that mean NULL under missing = [...], or set type = "text"'
        )

    def _list_misfits(self, read: exp.Expr) -> str:
        """List the first values that do not fit, with their locations."""
        query = template("""
            SELECT value, min(row) AS row
            FROM (SELECT row_number() OVER () AS row, :text AS value, :read AS read FROM :rows) AS r
            WHERE NOT value IS NULL AND read IS NULL
            GROUP BY value
            ORDER BY row
            LIMIT :most
        """)(text=self.value, read=read, rows=self.rows, most=MAX_LISTED_VALUES)
        return list_values(locate_values(self.name, self.engine.rows(query), self.locate))


def locate_values(
    column: str, rows_by_value: Sequence[tuple[str, int]], locate: FindLocations | None
) -> Sequence[tuple[str, str]]:
    """Locate values in the files of a source, else in its rows: locations, each with its value."""
    locations = locate and locate(column, {value for value, _ in rows_by_value}, MAX_LISTED_VALUES)
    return locations or [(f"row {row:,}", value) for value, row in rows_by_value]


def list_values(locations: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{in_words(value)} ({location})" for location, value in locations)


def read_columns(
    engine: DuckDBEngine,
    rows: exp.Expr,
    readings: Mapping[str, ColumnReading],
    marks: NumberMarks = POINT,
    undeclared: Collection[str] = (),
    locate: FindLocations | None = None,
    reads: bool = True,
) -> dict[str, tuple[exp.Expr, str]]:
    """Find the columns of a relation that need conversion: the expression of each, and its type.

    ``undeclared`` are further columns of texts, in lower case, whose values may be numbers with the marks. If no row
    may be read, numbers get a default type.
    """
    columns: list[_TextColumn] = []
    converted: dict[str, tuple[exp.Expr, str]] = {}
    for name, type_ in engine.columns(rows).items():
        reading = readings.get(name.lower())
        if reading is None and type_ == "VARCHAR" and name.lower() in undeclared:
            reading = ColumnReading(name)
        if reading is None:
            continue
        if column_kind(type_) is ColumnKind.TEXT:
            is_declared = name.lower() in readings
            value = _replace_codes(col(name), reading.missing)
            expressions = _build_readings(value, reading, marks, is_declared)
            columns.append(_TextColumn(engine, rows, marks, locate, name, reading, is_declared, value, expressions))
        elif (typed := _read_typed_column(name, type_, reading)) is not None:
            converted[name] = typed, type_
    if reads and columns:
        columns = _compute_figures(engine, rows, columns)
    return converted | {
        column.name: value_and_type for column in columns if (value_and_type := column.read()) is not None
    }


def projection(names: Collection[str], values: Mapping[str, tuple[exp.Expr, str]]) -> list[exp.Expr]:
    """Select all columns, converted ones by their expressions."""
    return [as_column(values[name][0].copy(), name) if name in values else col(name) for name in names]


def _replace_codes(value: exp.Expr, codes: Sequence[str | exp.Expr]) -> exp.Expr:
    """The value, NULL for the codes of missing values."""
    return fragment("CASE WHEN NOT :text IN (:codes) THEN :text END")(text=value, codes=[*codes]) if codes else value


def _build_readings(
    value: exp.Expr, reading: ColumnReading, marks: NumberMarks, is_declared: bool
) -> dict[str, exp.Expr]:
    """The expressions that may read the texts of a column."""
    match reading.type:
        case "text":
            return {}
        case "integer" | "number":
            pattern = number_pattern(marks, reading.type == "integer")
            return {"number": _number(value, pattern, marks, may_have_unit=True)}
        case "date":
            return {"day": _day_or_time(value, reading, "DATE")}
        case "timestamp":
            return {"time": _day_or_time(value, reading, "TIMESTAMP")}
    expressions = {"number": _number(value, number_pattern(marks, leading_zeros=False), marks)}
    if is_declared:
        expressions["day"] = _day_or_time(value, reading, "DATE")
        expressions["time"] = _day_or_time(value, reading, "TIMESTAMP")
    return expressions


def _compute_figures(engine: DuckDBEngine, rows: exp.Expr, columns: Sequence[_TextColumn]) -> list[_TextColumn]:
    """Compute the figures of all columns in one pass."""
    values: list[exp.Expr] = [
        as_column(value.copy(), f"{kind}_{i}")
        for i, column in enumerate(columns)
        for kind, value in {"text": column.value, **column.readings}.items()
    ]
    figures = [column.figure_expressions(i) for i, column in enumerate(columns)]
    output = [expression for expressions in figures for expression in expressions.values()]
    row = iter(engine.rows(select(output, subquery(select(values, rows.copy()), "p")))[0])
    return [
        replace(column, figures={name: next(row) for name in expressions})
        for column, expressions in zip(columns, figures, strict=True)
    ]


def _read_typed_column(name: str, type_: str, reading: ColumnReading) -> exp.Expr | None:
    """Read a column that has a type already, without the codes of missing values; None leaves it unchanged."""
    kind = column_kind(type_)
    if reading.type is not None and (kind not in _TYPE_KINDS[reading.type] or reading.format is not None):
        raise SourceError(
            f"attributes.{reading.name}.{'type' if reading.format is None else 'format'}: applies to texts, and column "
            f"{name!r} is {type_} already: remove it"
        )
    if not reading.missing:
        return None
    if kind not in (ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING):
        raise SourceError(
            f"attributes.{reading.name}.missing: applies to texts and numbers, and column {name!r} is {type_}: "
            "remove it"
        )
    pattern = r"[-+]?\d+" if kind is ColumnKind.INTEGER else r"[-+]?\d+(\.\d+)?"
    if invalid := [code for code in reading.missing if not re.fullmatch(pattern, code)]:
        raise SourceError(
            f"attributes.{reading.name}.missing: {in_words(invalid[0])} cannot be a value of column {name!r}, "
            f"which is {type_}: remove it"
        )
    return cast(_replace_codes(col(name), [exp.Literal.number(code.lstrip("+")) for code in reading.missing]), type_)


def thousands_error(column: str) -> SourceError:
    return SourceError(
        f"source.files: column {column!r} has numbers with three digits after each point: under [source.csv], set "
        'thousands = "." and decimal = "," if 12.345 means 12345, otherwise decimal = "."'
    )
