"""Columns of texts that are read as numbers, dates or timestamps, as a policy declares.

A text is taken for a value only where it is written as the keys say, whole: numbers go to integers or to a DECIMAL of
as many digits as they have, never through a floating-point number. Where any text is not written so, the source is
refused with the first of them, where they stand, and how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.policy.reading import ColumnType, directives, format_pattern
from sqlanon.policy.sections import Attribute, CsvSection
from sqlanon.sources.date_formats import count_date_formats, date_keys, most_fitting_formats
from sqlanon.sources.source import FindLocations
from sqlanon.support.expressions import (
    cast,
    col,
    fragment,
    named,
    select,
    subquery,
    template,
    text,
)
from sqlanon.support.fields import in_words
from sqlanon.support.notices import with_noun

SHOWN_VALUES = 5
_DIGITS_OF_BIGINT = 18  # every integer of so many digits is one
_MOST_DIGITS = 38  # of a DECIMAL, and of every HUGEINT
_ANY_DIGITS = 18, 3  # of a DECIMAL whose values are not read

_WORDS: Mapping[ColumnType, str] = {
    "integer": "an integer", "number": "a number", "date": "a date", "timestamp": "a timestamp", "text": "a text",
}  # fmt: skip
_KINDS: Mapping[ColumnType, Collection[ColumnKind]] = {
    "integer": {ColumnKind.INTEGER},
    "number": {ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING},
    "date": {ColumnKind.DATE},
    "timestamp": {ColumnKind.DATE, ColumnKind.ZONED},
    "text": {ColumnKind.TEXT},
}


@dataclass(frozen=True)
class ColumnReading:
    """How the texts of a column are read; where ``type`` is None, as numbers or dates if all of them are."""

    name: str  # of its attribute
    type: ColumnType | None = None
    format: str | None = None
    pivot: int | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class NumberMarks:
    decimal: str = "."
    thousands: str | None = None
    are_declared: bool = False
    may_be_thousands: bool = False  # whether 12.345 may mean 12345, as no key says

    @classmethod
    def of(cls, csv: CsvSection) -> NumberMarks:
        return cls(csv.decimal or ".", csv.thousands, csv.has_number_marks)


POINT = NumberMarks()
ONLY_POINT = NumberMarks(are_declared=True)
"""Of texts where no key says that a comma is the decimal mark."""


def build_column_readings(
    attributes: Mapping[str, Attribute], text_columns: Collection[str]
) -> dict[str, ColumnReading]:
    """The columns whose attributes say how they are read, by name in lower case."""
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
"""What may stand at one end of numbers: a sign of a currency, or its code, or percent."""

_SPACE = "[ \u00a0\u202f]?"
_TRIMMED = fragment("trim(:text)")
_WITHOUT_UNIT = fragment("regexp_replace(regexp_replace(trim(:text), :before, '\\1'), :behind, '')")
_UNIT = fragment("regexp_extract(trim(:text), :before, 2) || regexp_extract(trim(:text), :behind, 1)")
_UNITS_OF_VALUES = fragment("count(DISTINCT :unit) FILTER (WHERE NOT :text IS NULL)")
_USUAL_UNIT = fragment("mode(:unit) FILTER (WHERE NOT :text IS NULL)")
_IF_UNIT = fragment("CASE WHEN :unit = :usual THEN true END")
_IF_NUMBER = fragment("CASE WHEN regexp_full_match(:written, :pattern) THEN :number END")
_WITHOUT = fragment("replace(:number, :mark, '')")
_WITH_POINT = fragment("replace(:number, :mark, '.')")
_IN_ISO = fragment("CASE WHEN regexp_full_match(trim(:text), :pattern) THEN :value END")
_IN_FORMAT = fragment("try_strptime(:text, :format)")
# The greatest year up to the pivot that ends in these two digits. Without a match the extract is no number, and NULL.
_WITH_CENTURY = fragment("""
    regexp_extract(:text, :pattern, 1)
        || lpad(
            (
                :pivot - (:pivot - TRY_CAST(regexp_extract(:text, :pattern, 2) AS INTEGER)) % 100
            )::VARCHAR, 4, '0'
        )
        || regexp_extract(:text, :pattern, 3)
""")
_UNLESS_STRANGE = fragment("""
    CASE
        WHEN NOT regexp_full_match(trim(:text), :signs) OR regexp_full_match(trim(:text), :pattern) THEN true
    END
""")
_UNLESS_MISSING = fragment("CASE WHEN NOT :text IN (:codes) THEN :text END")

ZONE = " ?(UTC|Z|[-+][0-9]{2}(:?[0-9]{2})?|[A-Za-z]+/[A-Za-z_/+-]+)"
"""The zone behind a time, or its offset from UTC."""

_WITHOUT_ZONE = fragment("regexp_replace(trim(:text), :zone, '\\1')")

_ISO_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO = {
    "DATE": _ISO_DAY,
    "TIMESTAMP": f"{_ISO_DAY}([ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?({ZONE})?)?",
}


def without_zone(value: exp.Expr) -> exp.Expr:
    """The text of a time as the clock showed it where it was written: the engine would move it to UTC."""
    return _WITHOUT_ZONE(text=value, zone=text(f"(:[0-9.]+){ZONE}$"))


def number_pattern(marks: NumberMarks, is_integer: bool = False, leading_zeros: bool = True) -> str:
    """The pattern of numbers; of integers that have no decimals and no exponent; or of those without zeros before
    them, which codes have."""
    whole = "[0-9]+" if leading_zeros else "(?:0|[1-9][0-9]*)"
    if marks.thousands is not None:
        first = "[0-9]{1,3}" if leading_zeros else "[1-9][0-9]{0,2}"
        whole = f"(?:{first}(?:{re.escape(marks.thousands)}[0-9]{{3}})+|{whole})"
    if is_integer:
        return f"[-+]?{whole}"
    mark = re.escape(marks.decimal)
    return f"[-+]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][-+]?[0-9]{{1,3}})?"


def _signs_pattern(marks: NumberMarks) -> str:
    """What has no other characters than numbers have."""
    return f"[-+]?[0-9][0-9.,{re.escape(marks.thousands or '')}]*"


def _unit_patterns() -> dict[str, exp.Expr]:
    return {"before": text(f"^([-+]?)({UNITS}){_SPACE}"), "behind": text(f"{_SPACE}({UNITS})$")}


def _unit(value: exp.Expr) -> exp.Expr:
    """The unit of a number, at either end; empty without one."""
    return _UNIT(text=value, **_unit_patterns())


def _number(value: exp.Expr, pattern: str, marks: NumberMarks, may_have_unit: bool = False) -> exp.Expr:
    """A text as the engine writes numbers; NULL where it is none."""
    written: exp.Expr = _TRIMMED(text=value)
    if may_have_unit:
        written = _WITHOUT_UNIT(text=value, **_unit_patterns())
    number = written
    if marks.thousands is not None:
        number = _WITHOUT(number=number, mark=text(marks.thousands))
    if marks.decimal != ".":
        number = _WITH_POINT(number=number, mark=text(marks.decimal))
    return _IF_NUMBER(written=written, pattern=text(pattern), number=number)


def _day_or_time(value: exp.Expr, reading: ColumnReading, type_: Literal["DATE", "TIMESTAMP"]) -> exp.Expr:
    """A text as a date or timestamp; NULL where it is none."""
    trimmed: exp.Expr = _TRIMMED(text=value)
    if reading.format is None:
        iso = without_zone(value) if type_ == "TIMESTAMP" else trimmed
        return _IN_ISO(text=value, pattern=text(_ISO[type_]), value=_try_cast(iso, type_))
    pattern, format_ = format_pattern(reading.format), reading.format
    if reading.pivot is not None and "y" in directives(format_):
        trimmed = _WITH_CENTURY(text=trimmed, pattern=text(f"^{pattern}$"), pivot=reading.pivot)
        format_ = re.sub("%(.)", lambda found: "%Y" if found[1] == "y" else found[0], format_)
    read = _try_cast(_IN_FORMAT(text=trimmed, format=text(format_)), type_)
    return _IN_ISO(text=value, pattern=text(pattern), value=read)


def _try_cast(value: exp.Expr, type_: str) -> exp.Expr:
    return exp.TryCast(this=value, to=exp.DataType.build(type_, dialect="duckdb"))


_SEEN = fragment("count(:text)")
_FITTING = fragment("count(:read)")
_WHOLE_DIGITS = fragment("max(length(ltrim(regexp_extract(:number, '^[-+]?([0-9]*)', 1), '0')))")
_DECIMALS = fragment("max(length(regexp_extract(:number, '[.]([0-9]*)', 1)))")
_MAY_BE_THOUSANDS = fragment("""
    coalesce(bool_and(regexp_full_match(:number, '[-+]?[1-9][0-9]{0,2}([.][0-9]{3})?|0')), false)
    AND bool_or(contains(:number, '.'))
""")
_HAS_EXPONENT = fragment("coalesce(bool_or(contains(lower(:number), 'e')), false)")
SHORT_NUMBER = 16
"""Numbers of so many characters, fifteen digits and a point, are those that DOUBLE shows again."""

_FITTING_DOUBLE = fragment("""
    count(*) FILTER (
        WHERE isfinite(TRY_CAST(:number AS DOUBLE))
        AND (
            (length(:number) <= :short AND NOT regexp_matches(:number, '[eE][-+]?[0-9]{3}'))
            OR TRY_CAST(:number AS DOUBLE)::VARCHAR = :number
        )
    )
""")
_IS_PLAIN_EXPONENT = fragment("coalesce(bool_or(regexp_matches(:number, '^-.*[eE]|[.].*[eE]|[eE][-+]')), false)")
_LOOKING_LIKE_NUMBERS = fragment("count(*) FILTER (WHERE regexp_full_match(trim(:text), :pattern))")
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
    """A column of texts, and what its values may be read as."""

    i: int
    column: str
    reading: ColumnReading
    value: exp.Expr  # the text, NULL for the codes of missing values
    number: exp.Expr | None = None  # the text as a number, written as the engine writes it
    day: exp.Expr | None = None
    time: exp.Expr | None = None
    is_declared: bool = True

    def figures(self, marks: NumberMarks) -> list[exp.Alias]:
        i, number, value = self.i, col(f"number_{self.i}"), col(f"text_{self.i}")
        output = [named(_SEEN(text=value), f"seen_{i}")]
        if self.number is not None:
            output += [
                named(_FITTING(read=number), f"numbers_{i}"),
                named(_WHOLE_DIGITS(number=number), f"digits_{i}"),
                named(_DECIMALS(number=number), f"decimals_{i}"),
                named(_HAS_EXPONENT(number=number), f"exponent_{i}"),
                named(_IS_PLAIN_EXPONENT(number=number), f"plain_exponent_{i}"),
                named(_FITTING_DOUBLE(number=number, short=exp.convert(SHORT_NUMBER)), f"doubles_{i}"),
            ]
            output.append(named(_MAY_BE_THOUSANDS(number=number), f"thousands_{i}"))
        if self.reading.type in ("integer", "number"):
            output += [
                named(_UNITS_OF_VALUES(unit=_unit(value), text=value), f"units_{i}"),
                named(_USUAL_UNIT(unit=_unit(value), text=value), f"usual_unit_{i}"),
            ]
        if self.day is not None:
            output.append(named(_FITTING(read=col(f"day_{i}")), f"days_{i}"))
        if self.time is not None:
            output.append(named(_FITTING(read=col(f"time_{i}")), f"times_{i}"))
        if not self.is_declared:
            for name, pattern in (("lenient", number_pattern(marks)), ("like_numbers", _signs_pattern(marks))):
                output.append(named(_LOOKING_LIKE_NUMBERS(text=value, pattern=text(pattern)), f"{name}_{i}"))
        return output

    def parts(self) -> list[exp.Expr]:
        """The columns that the figures are of."""
        parts = {"text": self.value, "number": self.number, "day": self.day, "time": self.time}
        return [named(part.copy(), f"{name}_{self.i}") for name, part in parts.items() if part is not None]


def read_columns(
    engine: DuckDBEngine,
    rows: exp.Expr,
    readings: Mapping[str, ColumnReading],
    marks: NumberMarks = POINT,
    undeclared: Collection[str] = (),
    locate: FindLocations | None = None,
    reads: bool = True,
) -> dict[str, tuple[exp.Expr, str]]:
    """The columns of a relation that are not read as they stand: the expression of each, and its type.

    ``undeclared`` are further columns of texts, in lower case, whose values may be numbers with the marks. Where no row
    may be read, the types are those of most numbers.
    """
    candidates: list[_Candidate] = []
    found: dict[str, tuple[exp.Expr, str]] = {}
    for i, (name, type_) in enumerate(engine.columns(rows).items()):
        reading = readings.get(name.lower())
        if reading is None and type_ == "VARCHAR" and name.lower() in undeclared:
            reading = ColumnReading(name)
        if reading is None:
            continue
        if column_kind(type_) is ColumnKind.TEXT:
            candidates.append(_candidate(i, name, reading, marks, name.lower() in readings))
        elif (own := _without_codes(name, type_, reading)) is not None:
            found[name] = own, type_
    if not candidates:
        return found
    asked = engine, rows, _figures(engine, rows, candidates, marks) if reads else {}, marks, locate
    for candidate in candidates:
        if (typed := _read(asked, candidate)) is not None:
            found[candidate.column] = typed
    return found


def projection(names: Collection[str], values: Mapping[str, tuple[exp.Expr, str]]) -> list[exp.Expr]:
    """All columns, those that are not read as they stand by their expressions."""
    return [named(values[name][0].copy(), name) if name in values else col(name) for name in names]


def _candidate(i: int, name: str, reading: ColumnReading, marks: NumberMarks, is_declared: bool) -> _Candidate:
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


def _without_codes(name: str, type_: str, reading: ColumnReading) -> exp.Expr | None:
    """A column that has a type of its own, without the codes of missing values; None: as it stands."""
    kind = column_kind(type_)
    if reading.type is not None and (kind not in _KINDS[reading.type] or reading.format is not None):
        raise SourceError(
            f"attributes.{reading.name}.{'type' if reading.format is None else 'format'}: says how texts are read, and "
            f"column {name!r} is {type_} already: remove it"
        )
    if not reading.missing:
        return None
    if kind not in (ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING):
        raise SourceError(
            f"attributes.{reading.name}.missing: applies to texts and numbers, and column {name!r} is {type_}: "
            "remove it"
        )
    pattern = r"[-+]?\d+" if kind is ColumnKind.INTEGER else r"[-+]?\d+(\.\d+)?"
    if strange := [code for code in reading.missing if not re.fullmatch(pattern, code)]:
        raise SourceError(
            f"attributes.{reading.name}.missing: {in_words(strange[0])} is no value of column {name!r}, which is "
            f"{type_}: remove it"
        )
    codes = [exp.Literal.number(code.lstrip("+")) for code in reading.missing]
    return cast(_UNLESS_MISSING(text=col(name), codes=codes), type_)


_FIGURES = template("SELECT :figures FROM :parts")


def _figures(
    engine: DuckDBEngine, rows: exp.Expr, candidates: Sequence[_Candidate], marks: NumberMarks
) -> dict[str, Any]:
    parts = [part for candidate in candidates for part in candidate.parts()]
    figures = [figure for candidate in candidates for figure in candidate.figures(marks)]
    names = [figure.alias for figure in figures]
    query = _FIGURES(figures=figures, parts=subquery(select(parts, rows.copy()), "p"))
    return dict(zip(names, engine.rows(query)[0], strict=True))


_Asked: TypeAlias = tuple[DuckDBEngine, exp.Expr, Mapping[str, Any], NumberMarks, FindLocations | None]
"""The engine, the rows, their figures, how numbers are written, and what finds places."""


def _read(asked: _Asked, candidate: _Candidate) -> tuple[exp.Expr, str] | None:
    """A column as its type; None: as it stands."""
    reading, figures = candidate.reading, asked[2]
    own = (candidate.value, "VARCHAR") if reading.missing else None
    if reading.type == "text":
        return own
    if reading.type is not None:
        return _read_declared(asked, candidate, reading.type)
    seen = figures.get(f"seen_{candidate.i}", 0)
    if not seen:
        return own
    if (
        figures[f"numbers_{candidate.i}"] == seen
        and (number := _typed_number(candidate, figures, asked[3])) is not None
    ):
        return number
    for part, name, type_ in ((candidate.day, "days", "DATE"), (candidate.time, "times", "TIMESTAMP")):
        if part is not None and figures[f"{name}_{candidate.i}"] == seen:
            return part, type_
    if not candidate.is_declared and asked[3].are_declared:
        _refuse_strange_numbers(asked, candidate)
    return own


def _read_declared(asked: _Asked, candidate: _Candidate, type_: ColumnType) -> tuple[exp.Expr, str]:
    figures = asked[2]
    parts = {"numbers": candidate.number, "days": candidate.day, "times": candidate.time}
    name, read = next((name, part) for name, part in parts.items() if part is not None)
    misfits = figures.get(f"seen_{candidate.i}", 0) - figures.get(f"{name}_{candidate.i}", 0)
    if misfits:
        raise _misfits_error(asked, candidate, type_, read, misfits)
    if name != "numbers":
        return read, "DATE" if name == "days" else "TIMESTAMP"
    if figures.get(f"units_{candidate.i}", 0) > 1:
        raise _different_units_error(asked, candidate, figures[f"usual_unit_{candidate.i}"])
    number = _typed_number(candidate, figures, asked[3])
    if number is None:
        raise SourceError(
            f"attributes.{candidate.reading.name}.type: column {candidate.column!r} has numbers of more than "
            f'{_MOST_DIGITS} digits, or beyond 1e308, which no type holds exactly; set type = "text"'
        )
    return number


def _typed_number(candidate: _Candidate, figures: Mapping[str, Any], marks: NumberMarks) -> tuple[exp.Expr, str] | None:
    """The type that holds all numbers of a column exactly; None where there is none.

    Numbers with an exponent are written for floating-point numbers, and are read as such; 1E5 alone may be a code. So
    are decimals where no key is about the numbers, if DOUBLE shows all of them again."""
    i = candidate.i
    assert candidate.number is not None
    digits, decimals = figures.get(f"digits_{i}"), figures.get(f"decimals_{i}")
    if not figures and candidate.reading.type == "number":
        digits, decimals = _ANY_DIGITS[0] - _ANY_DIGITS[1], _ANY_DIGITS[1]
    if marks.may_be_thousands and figures.get(f"thousands_{i}"):
        raise thousands_error(candidate.column)
    digits, decimals = max(digits or 0, 1), decimals or 0
    fits_double = bool(figures) and figures[f"doubles_{i}"] == figures[f"numbers_{i}"]
    is_known = candidate.is_declared or marks.are_declared
    if figures.get(f"exponent_{i}"):
        if not fits_double or not (is_known or figures[f"plain_exponent_{i}"]):
            return None
        type_ = "DOUBLE"
    elif decimals and fits_double and not is_known:
        type_ = "DOUBLE"
    elif digits + decimals > _MOST_DIGITS:
        return None
    elif decimals:
        type_ = f"DECIMAL({digits + decimals}, {decimals})"
    else:
        type_ = "BIGINT" if digits <= _DIGITS_OF_BIGINT else "HUGEINT"
    return cast(candidate.number.copy(), type_), type_.replace(" ", "")


def thousands_error(column: str) -> SourceError:
    return SourceError(
        f"source.files: column {column!r} has numbers with three digits behind each point: under [source.csv], set "
        'thousands = "." and decimal = "," if 12.345 means 12345, else decimal = "."'
    )


def _refuse_strange_numbers(asked: _Asked, candidate: _Candidate) -> None:
    """Refuse numbers with misplaced marks in a column of numbers: ``12.34.567`` where a point is between thousands."""
    _, _, figures, marks, _ = asked
    seen, lenient, like_numbers = (figures[f"{name}_{candidate.i}"] for name in ("seen", "lenient", "like_numbers"))
    count = like_numbers - lenient
    if count <= 0 or 2 * lenient < seen:
        return
    read = _UNLESS_STRANGE(text=candidate.value, signs=text(_signs_pattern(marks)), pattern=text(number_pattern(marks)))
    thousands = "" if marks.thousands is None else f" and thousands = {in_words(marks.thousands)}"
    raise SourceError(
        f"source.csv: {with_noun(count, 'value')} of column {candidate.column!r} "
        f"{'is' if count == 1 else 'are'} not written with decimal = {in_words(marks.decimal)}{thousands}: "
        f'{_show_misfits(asked, candidate, read)}; correct the file, or set type = "text" in '
        f"attributes.{candidate.column}"
    )


def _misfits_error(asked: _Asked, candidate: _Candidate, type_: ColumnType, read: exp.Expr, count: int) -> SourceError:
    reading = candidate.reading
    key = "type" if reading.format is None else "format"
    written = "" if reading.format is None else f" in the format {reading.format}"
    are = "value of the column is not" if count == 1 else "values of the column are not"
    return SourceError(
        f"attributes.{reading.name}.{key}: {count:,} {are} {_WORDS[type_]}{written}: "
        f"{_show_misfits(asked, candidate, read)}; correct them, {_other_formats(asked, candidate, type_, count)}list "
        'those that mean NULL under missing = [...], or set type = "text"'
    )


def _other_formats(asked: _Asked, candidate: _Candidate, type_: ColumnType, misfits: int) -> str:
    """Advice on the usual formats of dates by which more values are read."""
    if type_ not in ("date", "timestamp"):
        return ""
    engine, rows, figures, _, _ = asked
    distinct = subquery(_DISTINCT(text=candidate.value.copy(), rows=rows.copy()), "v")
    formats, fitting = most_fitting_formats(count_date_formats(engine, distinct))
    seen = figures[f"seen_{candidate.i}"]
    if fitting <= seen - misfits:
        return ""
    shown = f"all {seen:,}" if fitting == seen else f"{fitting:,} of {seen:,}"
    return f"set {date_keys(formats)}, which reads {shown} values, "


def _different_units_error(asked: _Asked, candidate: _Candidate, usual: str) -> SourceError:
    read = _IF_UNIT(unit=_unit(candidate.value), usual=text(usual))
    most = f"most numbers have {in_words(usual)}" if usual else "most numbers have no unit"
    return SourceError(
        f"attributes.{candidate.reading.name}.type: {most}, and others have not: "
        f"{_show_misfits(asked, candidate, read)}; write all of them in one unit, list those that mean NULL under "
        'missing = [...], or set type = "text"'
    )


def _show_misfits(asked: _Asked, candidate: _Candidate, read: exp.Expr) -> str:
    """The first values that do not fit, and where they stand."""
    engine, rows, _, _, locate = asked
    query = _MISFITS(text=candidate.value.copy(), read=read.copy(), rows=rows.copy(), most=SHOWN_VALUES)
    misfits = engine.rows(query)
    places = None if locate is None else locate(candidate.column, {value for _, value in misfits}, SHOWN_VALUES)
    if not places:
        places = [(f"row {row:,}", value) for row, value in misfits]
    return ", ".join(f"{in_words(value)} ({where})" for where, value in places)
