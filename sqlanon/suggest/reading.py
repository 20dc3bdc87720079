"""What columns of files may mean: words among numbers, dates that can be read in two ways, codes of missing values.

What is certain becomes a key of the policy; of anything else the policy has a comment with the key that decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.sources.column_kinds import find_kind
from sqlanon.sources.doubtful_columns import (
    MOSTLY,
    DoubtfulColumn,
    date_options,
    find_doubtful_columns,
    find_doubtful_dates,
)
from sqlanon.sources.run import Run
from sqlanon.sources.typed_columns import ONLY_POINT, POINT, UNITS, has_short_years
from sqlanon.suggest.profile import MISSING_WORDS, TableProfile
from sqlanon.support.expressions import col, fragment, select, template, text
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_value

_WORDS = re.compile(MISSING_WORDS)
_MARKED_NUMBER = (
    f"[-+]?(?:{UNITS})?[ \u00a0\u202f]?"
    "(?:[0-9]{1,3}(?:[.,' ’_\u00a0\u202f][0-9]{3})*(?:[.,][0-9]+)?|[0-9]+(?:[.,][0-9]+)?|[0-9]+[eE][0-9]{1,3})"
    f"[ \u00a0\u202f]?(?:{UNITS})?"
)
"""How numbers look that are read as texts: with units, with marks between digits, or with an exponent as codes have."""
_CODES = ("-9", "-99", "-999", "98", "99", "998", "999", "9998", "9999", "99999")
"""Numbers that often stand for a missing value."""

_GAP = 0.5
"""How far a code lies from the other values at least, as a share of their range."""

_FEWEST = 2  # rows that have a code
_MOST_WORDS = 20  # distinct texts that are fetched


@dataclass(frozen=True)
class Reading:
    """How a column is read: ``keys`` of its attribute; the keys that ``trials`` use, where people have to decide; and
    comments, the last of which may be a key that is not active."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, Any] = field(default_factory=dict)
    comments: Sequence[str] = ()

    @property
    def tried(self) -> Mapping[str, Any]:
        return {**self.keys, **self.trials}


AS_IT_STANDS = Reading()


def find_readings(run: Run) -> dict[str, Reading]:
    """The columns of CSV and Excel files that are not read as they stand, or that people have to decide."""
    source, engine = run.source, run.engine
    readings: dict[str, Reading] = {}
    if source.locate is None:
        return readings
    texts = {name.lower(): MOSTLY for name in source.columns}
    marks = POINT if source.csv_files else ONLY_POINT
    for column in find_doubtful_columns(engine, source.relation, texts, marks, source.locate, source.last_row_key):
        readings[column.name] = _of_doubtful(column)
    many = {name.lower(): _NUMBERS_BESIDE_CODES for name in source.columns if name not in readings}
    for column in find_doubtful_columns(engine, source.relation, many, marks, source.locate, source.last_row_key):
        if column.has_words and not column.marks and _has_codes_of_missing_values(column):
            readings[column.name] = _of_doubtful(column)
    for name, format_ in find_doubtful_dates(engine, source.relation, source.date_formats).items():
        readings[name] = _of_dates(format_)
    for name in _days_without_marks(run):
        readings[name] = Reading({"type": "date", "format": _DAY_WITHOUT_MARKS})
    for name in source.columns:
        if name not in readings and (example := _find_marked_number(run, name)) is not None:
            readings[name] = _of_marked_numbers(example, is_csv=bool(source.csv_files))
    return readings


_NUMBERS_BESIDE_CODES = 0.5  # the least share of numbers, where all other values are words for missing ones
_DAY_WITHOUT_MARKS = "%Y%m%d"
_LEAST_DAYS = 10  # distinct ones: fewer numbers may be days by chance
_ARE_DAYS = fragment("""
    coalesce(bool_and(:column BETWEEN 18500000 AND 21000000), false)
    AND bool_and(NOT try_strptime(:column::VARCHAR, :format) IS NULL OR :column IS NULL)
    AND approx_count_distinct(:column) >= :least
""")


def _days_without_marks(run: Run) -> list[str]:
    """The columns of CSV files whose whole numbers are all days, such as 19560412."""
    source = run.source
    names = [name for name, type_ in source.columns.items() if type_ == "BIGINT"] if source.csv_files else []
    if not names:
        return []
    figures: list[exp.Expr] = [
        _ARE_DAYS(column=col(name), format=text(_DAY_WITHOUT_MARKS), least=exp.convert(_LEAST_DAYS)) for name in names
    ]
    are_days = StatementRunner(run.engine).fetch_rows(select(figures, source.relation.copy()), [])[0]
    return [name for name, is_day in zip(names, are_days, strict=True) if is_day]


_MARKED = template("""
    SELECT count(*) FILTER (WHERE regexp_full_match(trim(value), :pattern)) >= :share * count(*),
        any_value(value ORDER BY value) FILTER (
            WHERE regexp_full_match(trim(value), :pattern) AND NOT regexp_full_match(trim(value), :plain)
        )
    FROM (SELECT DISTINCT :column AS value FROM :rows WHERE NOT :column IS NULL) AS v
""")


def _find_marked_number(run: Run, name: str) -> str | None:
    """A number with a unit or marks, in a column of texts of which most are such numbers."""
    source = run.source
    kind = find_kind(name)
    if source.columns[name] != "VARCHAR" or (kind is not None and kind.role == "identifying"):
        return None
    query = _MARKED(
        column=col(name),
        rows=source.relation,
        pattern=text(_MARKED_NUMBER),
        plain=text("[-+]?[0-9]+"),
        share=exp.convert(MOSTLY),
    )
    are_marked, example = StatementRunner(run.engine).fetch_rows(query, [])[0]
    return str(example) if are_marked and example is not None else None


def _of_marked_numbers(example: str, is_csv: bool) -> Reading:
    marks = "; decimal and thousands under [source.csv] say what points and commas mean" if is_csv else ""
    return Reading(
        trials={"type": "text"},
        comments=[f'Texts such as {toml_value(example)} may be numbers. If they are, set type = "number"{marks}'],
    )


def _of_doubtful(column: DoubtfulColumn) -> Reading:
    codes = column.codes
    if not column.has_words and column.kind == "date":
        return _of_text_dates(column)
    if not column.has_words:
        decide = f'Decide how they are written: {column.mark_keys}; or set type = "text"'
        return Reading(trials={"type": "text"}, comments=[f"{column.summary}. {decide}"])
    if column.marks:
        note = f"numbers with marks: {column.mark_keys}"
        return Reading(trials={"type": "text"}, comments=[f"{column.summary}. {note}"])
    if codes is not None and _has_codes_of_missing_values(column):
        return Reading({"missing": list(codes)}, comments=[f"{column.summary}. They are NULL."])
    if codes is not None and column.kind == "date" and column.formats:
        return _of_dates_beside_words(column, codes)
    listed = "..." if codes is None else ", ".join(map(toml_value, codes))
    decide = f'{column.summary}. Decide what they are: missing = [{listed}] or type = "text"'
    footer = f", or {column.last_row_key}" if column.is_last else ""
    has_numbers = codes is not None and column.kind == "number"
    return Reading(
        trials={"missing": list(codes or ())} if has_numbers else {"type": "text"}, comments=[decide + footer]
    )


def _has_codes_of_missing_values(column: DoubtfulColumn) -> bool:
    """Whether a column has numbers, and words for missing values, and nothing else."""
    codes = column.codes
    return column.kind == "number" and codes is not None and all(_WORDS.fullmatch(code) for code in codes)


def _of_dates_beside_words(column: DoubtfulColumn, codes: Sequence[str]) -> Reading:
    """The hierarchy is one of dates, which `anonymize` refuses until people decide."""
    keys = f"missing = [{', '.join(map(toml_value, codes))}]"
    if not column.are_read_as_dates:
        keys += f" with {column.date_keys}"
    footer = f", or {column.last_row_key}" if column.is_last else ""
    decide = f'Decide what they are: {keys}; or type = "text" with hierarchy = {{ mask = "right" }}{footer}'
    return Reading(
        trials={"missing": list(codes), **_trial_of_dates(column.formats[0])}, comments=[f"{column.summary}. {decide}"]
    )


def _of_text_dates(column: DoubtfulColumn) -> Reading:
    """Dates that the engine leaves texts: in a format of their own beside another column's."""
    if len(column.formats) == 1 and not has_short_years(column.formats[0]):
        return Reading({"type": "date", "format": column.formats[0]})
    decide = f'{column.summary}. Decide how they are written: {column.date_keys}; or type = "text"'
    if not column.formats:
        return Reading(trials={"type": "text"}, comments=[decide])
    return Reading(trials=_trial_of_dates(column.formats[0]), comments=[decide])


def _trial_of_dates(format_: str) -> dict[str, Any]:
    kind, _ = date_options(format_)
    return {"type": kind, "format": format_} | ({"pivot": date.today().year} if has_short_years(format_) else {})


def _of_dates(format_: str) -> Reading:
    """Dates that people decide; the trials take them as the engine does."""
    kind, options = date_options(format_)
    short = has_short_years(format_)
    pivot = {"pivot": date.today().year} if short else {}
    why = "Years of two digits" if short else "Days and months could be swapped in every value"
    written = " or ".join(f"format = {toml_value(option)}" for option in options)
    ends = f", pivot = {pivot['pivot']}: the last year that they can mean" if short else ""
    return Reading(
        trials=_trial_of_dates(format_),
        comments=[f'{why}. Decide how they are written: type = "{kind}", {written}{ends}'],
    )


_OUTSIDE = template("""
    SELECT min(:column) FILTER (WHERE NOT :column IN (:codes)), max(:column) FILTER (WHERE NOT :column IN (:codes))
    FROM :rows
""")
_COUNTS = template("""
    SELECT :column::VARCHAR AS code, count(*) AS n FROM :rows WHERE :column IN (:codes) GROUP BY :column ORDER BY code
""")
_TEXT_CODES = template("""
    SELECT :column AS code, count(*) AS n
    FROM :rows
    WHERE regexp_full_match(:column, :pattern)
    GROUP BY :column
    ORDER BY n DESC, code
    LIMIT :most
""")


def find_missing_codes(run: Run, profile: TableProfile, readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """The columns with values that often stand for missing ones, of the sample: numbers far from all others, and
    words."""
    steps = StatementRunner(run.engine)
    found: dict[str, Reading] = {}
    for column in profile.profiles:
        kind = column_kind(column.type)
        if column.name in readings or not column.values:
            continue
        if kind in (ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING):
            codes = [*_number_codes(steps, profile.sample, column.name)]
        elif kind is ColumnKind.TEXT:
            query = _TEXT_CODES(
                column=col(column.name), rows=profile.sample, pattern=text(MISSING_WORDS), most=_MOST_WORDS
            )
            codes = [(code, count) for code, count in steps.fetch_rows(query, []) if code.strip() or code]
        else:
            continue
        if codes:
            found[column.name] = _of_codes(codes)
    return found


def _number_codes(steps: StatementRunner, rows: exp.Table, name: str) -> Iterator[tuple[str, int]]:
    numbers = [exp.Literal.number(code) for code in _CODES]
    counts = steps.fetch_rows(_COUNTS(column=col(name), rows=rows, codes=numbers), [])
    if not counts:
        return
    least, greatest = steps.fetch_rows(_OUTSIDE(column=col(name), rows=rows, codes=numbers), [])[0]
    if least is None:
        return
    gap = max(_GAP * float(greatest - least), 1)
    for code, count in counts:
        value = float(code)
        is_far = value > float(greatest) + gap or (value < 0 <= least and value < float(least) - 1)
        if is_far and count >= _FEWEST:
            yield code.removesuffix(".0"), count


def _of_codes(codes: Sequence[tuple[str, int]]) -> Reading:
    shown = ", ".join(f"{toml_value(code)} ({count_noun(count, 'row')})" for code, count in codes)
    listed = ", ".join(toml_value(code) for code, _ in codes)
    has_star = any(code == "*" for code, _ in codes)
    return Reading(
        trials={"missing": [code for code, _ in codes]} if has_star else {},
        comments=[f"{shown} may stand for missing values; if so, add missing = [{listed}]"],
    )
