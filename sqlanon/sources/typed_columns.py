"""Read columns of texts as numbers, dates or timestamps, as a policy declares.

A text becomes a value only if all of it is written as the keys say. Numbers are read as integers or as a DECIMAL with
as many digits as they have, never through a floating-point number. If any text is not written so, the source is refused
with the number of such texts, the first of them, and their locations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.policy.reading import ColumnType, directives, format_pattern
from sqlanon.policy.sections import Attribute, CsvSection
from sqlanon.sources.date_formats import count_date_formats, date_keys, most_fitting_formats
from sqlanon.sources.source import FindLocations
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    fragment,
    select,
    subquery,
    template,
    text,
)
from sqlanon.support.fields import in_words
from sqlanon.support.notices import count_noun

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
    """How the texts of a column are read. Without a ``type``, they are numbers or dates if all of them match."""

    name: str  # of the attribute
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
    def of(cls, csv: CsvSection) -> NumberMarks:
        return cls(csv.decimal or ".", csv.thousands, csv.has_number_marks)


POINT = NumberMarks()
ONLY_POINT = NumberMarks(are_declared=True)
"""For texts in which a comma is never the decimal mark."""


def build_column_readings(
    attributes: Mapping[str, Attribute], text_columns: Collection[str]
) -> dict[str, ColumnReading]:
    """The readings of columns whose attributes declare one, by name in lower case."""
    return {
        name.lower(): ColumnReading(
            name,
            attribute.type or ("text" if name.lower() in text_columns else None),
            attribute.format,
            attribute.pivot,
            attribute.missing,
        )
        for name, attribute in attributes.items()
        if attribute.has_reading_keys
    }


UNITS = r"\p{Sc}|%|[A-Z]{3}"
"""A unit at one end of a number: the sign or code of a currency, or percent."""

_SPACE = "[ \u00a0\u202f]?"
_TRIMMED = fragment("trim(:text)")
_IN_ISO = fragment("CASE WHEN regexp_full_match(trim(:text), :pattern) THEN :value END")
# The latest year up to the pivot that ends in these two digits; NULL where the pattern does not match.
_WITH_CENTURY = fragment("""
    regexp_extract(:text, :pattern, 1)
        || lpad(
            (
                :pivot - (:pivot - TRY_CAST(regexp_extract(:text, :pattern, 2) AS INTEGER)) % 100
            )::VARCHAR, 4, '0'
        )
        || regexp_extract(:text, :pattern, 3)
""")
_UNLESS_MISPLACED = fragment("""
    CASE
        WHEN NOT regexp_full_match(trim(:text), :characters) OR regexp_full_match(trim(:text), :pattern) THEN true
    END
""")
_UNLESS_MISSING = fragment("CASE WHEN NOT :text IN (:codes) THEN :text END")

ZONE = " ?(UTC|Z|[-+][0-9]{2}(:?[0-9]{2})?|[A-Za-z]+/[A-Za-z_/+-]+)"
"""A zone after a time, or its offset from UTC."""


_ISO_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO = {
    "DATE": _ISO_DAY,
    "TIMESTAMP": f"{_ISO_DAY}([ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?({ZONE})?)?",
}


def without_zone(value: exp.Expr) -> exp.Expr:
    """Remove the zone from a time, which keeps the local time: the engine would convert it to UTC."""
    return fragment("regexp_replace(trim(:text), :zone, '\\1')")(text=value, zone=text(f"(:[0-9.]+){ZONE}$"))


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


def _unit_patterns() -> dict[str, exp.Expr]:
    return {"before": text(f"^([-+]?)({UNITS}){_SPACE}"), "behind": text(f"{_SPACE}({UNITS})$")}


def _unit(value: exp.Expr) -> exp.Expr:
    """Extract the unit at either end of a number; empty without one."""
    return fragment("regexp_extract(trim(:text), :before, 2) || regexp_extract(trim(:text), :behind, 1)")(
        text=value, **_unit_patterns()
    )


def _number(value: exp.Expr, pattern: str, marks: NumberMarks, may_have_unit: bool = False) -> exp.Expr:
    """Rewrite a text as the engine spells numbers; NULL for other texts."""
    written: exp.Expr = _TRIMMED(text=value)
    if may_have_unit:
        written = fragment("regexp_replace(regexp_replace(trim(:text), :before, '\\1'), :behind, '')")(
            text=value, **_unit_patterns()
        )
    number = written
    if marks.thousands is not None:
        number = fragment("replace(:number, :mark, '')")(number=number, mark=text(marks.thousands))
    if marks.decimal != ".":
        number = fragment("replace(:number, :mark, '.')")(number=number, mark=text(marks.decimal))
    return fragment("CASE WHEN regexp_full_match(:written, :pattern) THEN :number END")(
        written=written, pattern=text(pattern), number=number
    )


def _day_or_time(value: exp.Expr, reading: ColumnReading, type_: Literal["DATE", "TIMESTAMP"]) -> exp.Expr:
    """Read a text as a date or timestamp; NULL for other texts."""
    trimmed: exp.Expr = _TRIMMED(text=value)
    if reading.format is None:
        iso = without_zone(value) if type_ == "TIMESTAMP" else trimmed
        return _IN_ISO(text=value, pattern=text(_ISO[type_]), value=_try_cast(iso, type_))
    pattern, format_ = format_pattern(reading.format), reading.format
    if reading.pivot is not None and "y" in directives(format_):
        trimmed = _WITH_CENTURY(text=trimmed, pattern=text(f"^{pattern}$"), pivot=reading.pivot)
        format_ = re.sub("%(.)", lambda match: "%Y" if match[1] == "y" else match[0], format_)
    read = _try_cast(fragment("try_strptime(:text, :format)")(text=trimmed, format=text(format_)), type_)
    return _IN_ISO(text=value, pattern=text(pattern), value=read)


def _try_cast(value: exp.Expr, type_: str) -> exp.Expr:
    return exp.TryCast(this=value, to=exp.DataType.build(type_, dialect="duckdb"))


_MAY_BE_THOUSANDS = fragment("""
    coalesce(bool_and(regexp_full_match(:number, '[-+]?[1-9][0-9]{0,2}([.][0-9]{3})?|0')), false)
    AND bool_or(contains(:number, '.'))
""")
SHORT_NUMBER = 16
"""DOUBLE shows numbers of up to 16 characters, fifteen digits and a point, unchanged."""

_FITTING_DOUBLE = fragment("""
    count(*) FILTER (
        WHERE isfinite(TRY_CAST(:number AS DOUBLE))
        AND (
            (length(:number) <= :short AND NOT regexp_matches(:number, '[eE][-+]?[0-9]{3}'))
            OR TRY_CAST(:number AS DOUBLE)::VARCHAR = :number
        )
    )
""")
_DISTINCT = template("""
    SELECT value, count(*) AS n FROM (SELECT :text AS value FROM :rows) AS r WHERE NOT value IS NULL GROUP BY value
""")
_MISFITS = template("""
    SELECT min(row) AS row, value
    FROM (SELECT row_number() OVER () AS row, :text AS value, :read AS read FROM :rows) AS r
    WHERE NOT value IS NULL AND read IS NULL
    GROUP BY value
    ORDER BY row
    LIMIT :most
""")


@dataclass(frozen=True)
class _Candidate:
    """A column of texts, with the expressions that may read its values."""

    i: int  # its position, in the names of figures
    column: str
    reading: ColumnReading
    value: exp.Expr  # the text, NULL for the codes of missing values
    number: exp.Expr | None = None  # the number, spelled as the engine spells it
    day: exp.Expr | None = None
    time: exp.Expr | None = None
    is_declared: bool = True

    def figures(self, marks: NumberMarks) -> list[exp.Alias]:
        i, number, value = self.i, col(f"number_{self.i}"), col(f"text_{self.i}")
        output = [as_column(exp.Count(this=value.copy()), f"count_{i}")]
        if self.number is not None:
            output += [
                as_column(exp.Count(this=number.copy()), f"numbers_{i}"),
                as_column(
                    fragment("max(length(ltrim(regexp_extract(:number, '^[-+]?([0-9]*)', 1), '0')))")(number=number),
                    f"digits_{i}",
                ),
                as_column(
                    fragment("max(length(regexp_extract(:number, '[.]([0-9]*)', 1)))")(number=number), f"decimals_{i}"
                ),
                as_column(
                    fragment("coalesce(bool_or(contains(lower(:number), 'e')), false)")(number=number), f"exponent_{i}"
                ),
                as_column(
                    fragment("coalesce(bool_or(regexp_matches(:number, '^-.*[eE]|[.].*[eE]|[eE][-+]')), false)")(
                        number=number
                    ),
                    f"plain_exponent_{i}",
                ),
                as_column(_FITTING_DOUBLE(number=number, short=exp.convert(SHORT_NUMBER)), f"doubles_{i}"),
            ]
            output.append(as_column(_MAY_BE_THOUSANDS(number=number), f"thousands_{i}"))
        if self.reading.type in ("integer", "number"):
            output += [
                as_column(
                    fragment("count(DISTINCT :unit) FILTER (WHERE NOT :text IS NULL)")(unit=_unit(value), text=value),
                    f"units_{i}",
                ),
                as_column(
                    fragment("mode(:unit) FILTER (WHERE NOT :text IS NULL)")(unit=_unit(value), text=value),
                    f"usual_unit_{i}",
                ),
            ]
        if self.day is not None:
            output.append(as_column(exp.Count(this=col(f"day_{i}")), f"days_{i}"))
        if self.time is not None:
            output.append(as_column(exp.Count(this=col(f"time_{i}")), f"times_{i}"))
        if not self.is_declared:
            for name, pattern in (("lenient", number_pattern(marks)), ("like_numbers", _character_pattern(marks))):
                output.append(
                    as_column(
                        fragment("count(*) FILTER (WHERE regexp_full_match(trim(:text), :pattern))")(
                            text=value, pattern=text(pattern)
                        ),
                        f"{name}_{i}",
                    )
                )
        return output

    def readings(self) -> list[exp.Expr]:
        """The columns from which the figures are computed."""
        values = {"text": self.value, "number": self.number, "day": self.day, "time": self.time}
        return [as_column(value.copy(), f"{name}_{self.i}") for name, value in values.items() if value is not None]


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
    candidates: list[_Candidate] = []
    converted: dict[str, tuple[exp.Expr, str]] = {}
    for i, (name, type_) in enumerate(engine.columns(rows).items()):
        reading = readings.get(name.lower())
        if reading is None and type_ == "VARCHAR" and name.lower() in undeclared:
            reading = ColumnReading(name)
        if reading is None:
            continue
        if column_kind(type_) is ColumnKind.TEXT:
            candidates.append(_build_candidate(i, name, reading, marks, name.lower() in readings))
        elif (value := _read_typed_column(name, type_, reading)) is not None:
            converted[name] = value, type_
    if not candidates:
        return converted
    figures = _compute_figures(engine, rows, candidates, marks) if reads else {}
    reader = _TextReader(engine, rows, figures, marks, locate)
    for candidate in candidates:
        if (value_and_type := reader.read(candidate)) is not None:
            converted[candidate.column] = value_and_type
    return converted


def projection(names: Collection[str], values: Mapping[str, tuple[exp.Expr, str]]) -> list[exp.Expr]:
    """Select all columns, converted ones by their expressions."""
    return [as_column(values[name][0].copy(), name) if name in values else col(name) for name in names]


def _build_candidate(i: int, name: str, reading: ColumnReading, marks: NumberMarks, is_declared: bool) -> _Candidate:
    value: exp.Expr = col(name)
    if reading.missing:
        value = _UNLESS_MISSING(text=value, codes=[text(code) for code in reading.missing])
    candidate = _Candidate(i, name, reading, value, is_declared=is_declared)
    if reading.type == "text":
        return candidate
    if reading.type is None:
        number = _number(value, number_pattern(marks, leading_zeros=False), marks)
        if not is_declared:
            return replace(candidate, number=number)
        day, time = _day_or_time(value, reading, "DATE"), _day_or_time(value, reading, "TIMESTAMP")
        return replace(candidate, number=number, day=day, time=time)
    if reading.type in ("integer", "number"):
        pattern = number_pattern(marks, reading.type == "integer")
        return replace(candidate, number=_number(value, pattern, marks, may_have_unit=True))
    if reading.type == "date":
        return replace(candidate, day=_day_or_time(value, reading, "DATE"))
    return replace(candidate, time=_day_or_time(value, reading, "TIMESTAMP"))


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
    codes = [exp.Literal.number(code.lstrip("+")) for code in reading.missing]
    return cast(_UNLESS_MISSING(text=col(name), codes=codes), type_)


def _compute_figures(
    engine: DuckDBEngine, rows: exp.Expr, candidates: Sequence[_Candidate], marks: NumberMarks
) -> dict[str, Any]:
    readings = [reading for candidate in candidates for reading in candidate.readings()]
    figures = [figure for candidate in candidates for figure in candidate.figures(marks)]
    names = [figure.alias for figure in figures]
    query = select([*figures], subquery(select(readings, rows.copy()), "p"))
    return dict(zip(names, engine.rows(query)[0], strict=True))


@dataclass(frozen=True)
class _TextReader:
    """Reads columns of texts as values of types, by figures of the texts."""

    engine: DuckDBEngine
    rows: exp.Expr
    figures: Mapping[str, Any]
    marks: NumberMarks
    locate: FindLocations | None

    def read(self, candidate: _Candidate) -> tuple[exp.Expr, str] | None:
        """Read a column as its type; None leaves it unchanged."""
        reading, i, figures = candidate.reading, candidate.i, self.figures
        as_text = (candidate.value, "VARCHAR") if reading.missing else None
        if reading.type == "text":
            return as_text
        if reading.type is not None:
            return self._read_declared(candidate, reading.type)
        count = figures.get(f"count_{i}", 0)
        if not count:
            return as_text
        if figures[f"numbers_{i}"] == count and (number := self._read_numbers(candidate)) is not None:
            return number
        for value, name, type_ in ((candidate.day, "days", "DATE"), (candidate.time, "times", "TIMESTAMP")):
            if value is not None and figures[f"{name}_{i}"] == count:
                return value, type_
        if not candidate.is_declared and self.marks.are_declared:
            self._refuse_misplaced_marks(candidate)
        return as_text

    def _read_declared(self, candidate: _Candidate, type_: ColumnType) -> tuple[exp.Expr, str]:
        figures, i = self.figures, candidate.i
        values = {"numbers": candidate.number, "days": candidate.day, "times": candidate.time}
        name, value = next((name, value) for name, value in values.items() if value is not None)
        misfits = figures.get(f"count_{i}", 0) - figures.get(f"{name}_{i}", 0)
        if misfits:
            raise self._misfits_error(candidate, type_, value, misfits)
        if name != "numbers":
            return value, "DATE" if name == "days" else "TIMESTAMP"
        if figures.get(f"units_{i}", 0) > 1:
            raise self._different_units_error(candidate, figures[f"usual_unit_{i}"])
        number = self._read_numbers(candidate)
        if number is None:
            raise SourceError(
                f"attributes.{candidate.reading.name}.type: column {candidate.column!r} has numbers of more than "
                f'{_MAX_DIGITS} digits, or beyond 1e308, which no type holds exactly; set type = "text"'
            )
        return number

    def _read_numbers(self, candidate: _Candidate) -> tuple[exp.Expr, str] | None:
        """Read all numbers of a column as a type that holds them exactly; None without such a type.

        Numbers with an exponent are read as floating-point numbers; 1E5 alone may be a code. Decimals are read as
        floating-point numbers if no key applies to the numbers, and DOUBLE shows all of them unchanged.
        """
        i, figures, marks = candidate.i, self.figures, self.marks
        assert candidate.number is not None
        digits, decimals = figures.get(f"digits_{i}"), figures.get(f"decimals_{i}")
        if not figures and candidate.reading.type == "number":
            digits, decimals = _DEFAULT_PRECISION - _DEFAULT_SCALE, _DEFAULT_SCALE
        if marks.may_be_thousands and figures.get(f"thousands_{i}"):
            raise thousands_error(candidate.column)
        digits, decimals = max(digits or 0, 1), decimals or 0
        fits_double = bool(figures) and figures[f"doubles_{i}"] == figures[f"numbers_{i}"]
        has_key = candidate.is_declared or marks.are_declared
        if figures.get(f"exponent_{i}"):
            if not fits_double or not (has_key or figures[f"plain_exponent_{i}"]):
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
        return cast(candidate.number.copy(), type_), type_.replace(" ", "")

    def _refuse_misplaced_marks(self, candidate: _Candidate) -> None:
        """Refuse misplaced marks in a column of numbers, such as ``12.34.567`` with a point between thousands."""
        marks = self.marks
        count, lenient, like_numbers = (
            self.figures[f"{name}_{candidate.i}"] for name in ("count", "lenient", "like_numbers")
        )
        misplaced = like_numbers - lenient
        if misplaced <= 0 or 2 * lenient < count:
            return
        read = _UNLESS_MISPLACED(
            text=candidate.value, characters=text(_character_pattern(marks)), pattern=text(number_pattern(marks))
        )
        thousands = "" if marks.thousands is None else f" and thousands = {in_words(marks.thousands)}"
        raise SourceError(
            f"source.csv: {count_noun(misplaced, 'value')} of column {candidate.column!r} "
            f"{'is' if misplaced == 1 else 'are'} not written with decimal = {in_words(marks.decimal)}{thousands}: "
            f'{self._list_misfits(candidate, read)}; correct the file, or set type = "text" in '
            f"attributes.{candidate.column}"
        )

    def _misfits_error(self, candidate: _Candidate, type_: ColumnType, read: exp.Expr, misfits: int) -> SourceError:
        reading = candidate.reading
        key = "type" if reading.format is None else "format"
        format_ = "" if reading.format is None else f" in the format {reading.format}"
        are = "value of the column is not" if misfits == 1 else "values of the column are not"
        return SourceError(
            f"attributes.{reading.name}.{key}: {misfits:,} {are} {_TYPE_NAMES[type_]}{format_}: "
            f"{self._list_misfits(candidate, read)}; correct them, {self._suggest_formats(candidate, type_, misfits)}"
            'list those that mean NULL under missing = [...], or set type = "text"'
        )

    def _suggest_formats(self, candidate: _Candidate, type_: ColumnType, misfits: int) -> str:
        """Suggest usual date formats that read more values."""
        if type_ not in ("date", "timestamp"):
            return ""
        distinct = subquery(_DISTINCT(text=candidate.value.copy(), rows=self.rows.copy()), "v")
        formats, fitting = most_fitting_formats(count_date_formats(self.engine, distinct))
        count = self.figures[f"count_{candidate.i}"]
        if fitting <= count - misfits:
            return ""
        share = f"all {count:,}" if fitting == count else f"{fitting:,} of {count:,}"
        return f"set {date_keys(formats)}, which reads {share} values, "

    def _different_units_error(self, candidate: _Candidate, usual_unit: str) -> SourceError:
        read = fragment("CASE WHEN :unit = :usual THEN true END")(unit=_unit(candidate.value), usual=text(usual_unit))
        most = f"most numbers have {in_words(usual_unit)}" if usual_unit else "most numbers have no unit"
        return SourceError(
            f"attributes.{candidate.reading.name}.type: {most}, and others have not: "
            f"{self._list_misfits(candidate, read)}; write all of them in one unit, list those that mean NULL under "
            'missing = [...], or set type = "text"'
        )

    def _list_misfits(self, candidate: _Candidate, read: exp.Expr) -> str:
        """List the first values that do not fit, with their locations."""
        query = _MISFITS(text=candidate.value.copy(), read=read.copy(), rows=self.rows.copy(), most=MAX_LISTED_VALUES)
        misfits = self.engine.rows(query)
        locations = self.locate and self.locate(candidate.column, {value for _, value in misfits}, MAX_LISTED_VALUES)
        return ", ".join(
            f"{in_words(value)} ({location})"
            for location, value in locations or [(f"row {row:,}", value) for row, value in misfits]
        )


def thousands_error(column: str) -> SourceError:
    return SourceError(
        f"source.files: column {column!r} has numbers with three digits behind each point: under [source.csv], set "
        'thousands = "." and decimal = "," if 12.345 means 12345, else decimal = "."'
    )
