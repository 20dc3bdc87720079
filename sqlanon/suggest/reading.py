"""Ambiguous columns of files: words among numbers, dates with two readings, codes of missing values.

A certain reading becomes a key of the policy; otherwise the policy has a comment with the key that decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.parts import ColumnKind
from sqlanon.sources.column_kinds import find_kind
from sqlanon.sources.files.doubtful_columns import (
    MOSTLY,
    DoubtfulColumn,
    date_options,
    find_doubtful_columns,
    find_doubtful_dates,
)
from sqlanon.sources.files.typed_columns import ONLY_POINT, POINT, UNITS, has_short_years
from sqlanon.sources.run import Run
from sqlanon.suggest.profile import MISSING_WORDS, TableProfile
from sqlanon.support.expressions import col, fragment, select, template, text
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_value

_MARKED_NUMBER = (
    f"[-+]?(?:{UNITS})?[ \u00a0\u202f]?"
    "(?:[0-9]{1,3}(?:[.,' ’_\u00a0\u202f][0-9]{3})*(?:[.,][0-9]+)?|[0-9]+(?:[.,][0-9]+)?|[0-9]+[eE][0-9]{1,3})"
    f"[ \u00a0\u202f]?(?:{UNITS})?"
)
"""Numbers that are read as texts: with units, with marks between digits, or with an exponent, as codes have."""
_MISSING_NUMBERS = ("-9", "-99", "-999", "98", "99", "998", "999", "9998", "9999", "99999")
"""Numbers that often stand for a missing value."""
_GAP = 0.5  # the least distance of such a number from other values, as a share of their range
_MIN_ROWS = 2  # with such a number
_MAX_WORDS = 20  # distinct texts that are fetched
_NUMBERS_BESIDE_CODES = 0.5  # the least share of numbers, if all other values are words for missing ones
_COMPACT_DAY = "%Y%m%d"
_MIN_DAYS = 10  # fewer distinct numbers may look like days by chance


@dataclass(frozen=True)
class Reading:
    """Reading of a column: ``keys`` of its attribute; ``trials``, keys for trials until people decide; and
    comments, maybe with an inactive key at the end."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, Any] = field(default_factory=dict)
    comments: Sequence[str] = ()

    @property
    def trial_keys(self) -> Mapping[str, Any]:
        return {**self.keys, **self.trials}


UNCHANGED = Reading()
_AS_TEXT = {"type": "text"}


def find_readings(run: Run) -> dict[str, Reading]:
    """The columns of CSV and Excel files whose values change when they are read, or that people have to decide."""
    source, engine = run.source, run.engine
    readings: dict[str, Reading] = {}
    if source.locate is None:
        return readings
    marks = POINT if source.csv_files else ONLY_POINT

    def find_doubtful(least_share: float) -> Iterator[DoubtfulColumn]:
        names = {name.lower(): least_share for name in source.columns if name not in readings}
        yield from find_doubtful_columns(engine, source.relation, names, marks, source.locate, source.last_row_key)

    for column in find_doubtful(MOSTLY):
        readings[column.name] = _read_doubtful(column)
    for column in find_doubtful(_NUMBERS_BESIDE_CODES):
        if column.has_words and not column.marks and _has_only_missing_words(column):
            readings[column.name] = _read_doubtful(column)
    for name, format_ in find_doubtful_dates(engine, source.relation, source.date_formats).items():
        readings[name] = _read_doubtful_dates(format_)
    for name in _find_compact_days(run):
        readings[name] = Reading({"type": "date", "format": _COMPACT_DAY})
    for name in source.columns:
        if name not in readings and (example := _find_marked_number(run, name)) is not None:
            keys = "; decimal and thousands under [source.csv] say what points and commas mean"
            remedy = f'If they are, set type = "number"{keys if source.csv_files else ""}'
            comment = f"Texts such as {toml_value(example)} may be numbers. {remedy}"
            readings[name] = Reading(trials=_AS_TEXT, comments=[comment])
    return readings


def _find_compact_days(run: Run) -> list[str]:
    """The columns of CSV files whose integers are all days, such as 19560412."""
    source = run.source
    names = [name for name, type_ in source.columns.items() if type_ == "BIGINT"] if source.csv_files else []
    if not names:
        return []
    are_days = fragment("""
        coalesce(bool_and(:column BETWEEN 18500000 AND 21000000), false)
        AND bool_and(NOT try_strptime(:column::VARCHAR, :format) IS NULL OR :column IS NULL)
        AND approx_count_distinct(:column) >= :fewest
    """)
    conditions = [
        are_days(column=col(name), format=text(_COMPACT_DAY), fewest=exp.convert(_MIN_DAYS)) for name in names
    ]
    flags = StatementRunner(run.engine).fetch_rows(select(conditions, source.relation.copy()), [])[0]
    return [name for name, is_day in zip(names, flags, strict=True) if is_day]


def _find_marked_number(run: Run, name: str) -> str | None:
    """A number with a unit or marks, in a column that mostly has such numbers as texts."""
    source, kind = run.source, find_kind(name)
    if source.columns[name] != "VARCHAR" or (kind is not None and kind.role == "identifying"):
        return None
    query = template("""
        SELECT count(*) FILTER (WHERE regexp_full_match(trim(value), :pattern)) >= :share * count(*),
            any_value(value ORDER BY value) FILTER (
                WHERE regexp_full_match(trim(value), :pattern) AND NOT regexp_full_match(trim(value), :plain)
            )
        FROM (SELECT DISTINCT :column AS value FROM :rows WHERE NOT :column IS NULL) AS v
    """)(
        column=col(name),
        rows=source.relation,
        pattern=text(_MARKED_NUMBER),
        plain=text("[-+]?[0-9]+"),
        share=exp.convert(MOSTLY),
    )
    are_marked, example = StatementRunner(run.engine).fetch_rows(query, [])[0]
    return str(example) if are_marked and example is not None else None


def _read_doubtful(column: DoubtfulColumn) -> Reading:
    codes, formats, summary = column.codes, column.formats, column.summary
    trials: Mapping[str, Any] = _AS_TEXT
    missing = f"missing = [{'...' if codes is None else ', '.join(map(toml_value, codes))}]"
    footer = f", or {column.last_row_key}" if column.is_last else ""
    if not column.has_words and column.kind == "date":  # in another format than another column's
        if len(formats) == 1 and not has_short_years(formats[0]):
            return Reading({"type": "date", "format": formats[0]})
        decision = f'Decide how they are written: {column.date_keys}; or type = "text"'
        trials = _date_keys(formats[0]) if formats else _AS_TEXT
    elif not column.has_words:
        decision = f'Decide how they are written: {column.mark_keys}; or set type = "text"'
    elif column.marks:
        decision = f"numbers with marks: {column.mark_keys}"
    elif _has_only_missing_words(column):
        return Reading({"missing": list(codes or ())}, comments=[f"{summary}. They are NULL."])
    elif codes is not None and column.kind == "date" and formats:
        # The hierarchy is one of dates, which `anonymize` refuses until people decide.
        keys = missing if column.are_read_as_dates else f"{missing} with {column.date_keys}"
        decision = f'Decide what they are: {keys}; or type = "text" with hierarchy = {{ mask = "right" }}{footer}'
        trials = {"missing": list(codes), **_date_keys(formats[0])}
    else:
        decision = f'Decide what they are: {missing} or type = "text"{footer}'
        trials = {"missing": list(codes)} if codes is not None and column.kind == "number" else _AS_TEXT
    return Reading({}, trials, [f"{summary}. {decision}"])


def _has_only_missing_words(column: DoubtfulColumn) -> bool:
    """Whether a column has numbers, and words for missing values, and nothing else."""
    codes = column.codes
    return column.kind == "number" and codes is not None and all(re.fullmatch(MISSING_WORDS, code) for code in codes)


def _date_keys(format_: str) -> dict[str, Any]:
    kind, _ = date_options(format_)
    return {"type": kind, "format": format_} | ({"pivot": date.today().year} if has_short_years(format_) else {})


def _read_doubtful_dates(format_: str) -> Reading:
    """Dates that people decide; trials read them as the engine does."""
    (kind, options), keys = date_options(format_), _date_keys(format_)
    reason, ends = "Days and months could be swapped in every value", ""
    if "pivot" in keys:
        reason, ends = "Years of two digits", f", pivot = {keys['pivot']}: the last year that they can mean"
    formats = " or ".join(f"format = {toml_value(option)}" for option in options)
    return Reading({}, keys, [f'{reason}. Decide how they are written: type = "{kind}", {formats}{ends}'])


_OTHER_RANGE = template("""
    SELECT min(:column) FILTER (WHERE NOT :column IN (:codes)), max(:column) FILTER (WHERE NOT :column IN (:codes))
    FROM :rows
""")
_NUMBER_CODES = template("""
    SELECT :column::VARCHAR AS code, count(*) AS row_count
    FROM :rows
    WHERE :column IN (:codes)
    GROUP BY :column
    ORDER BY code
""")


def find_missing_codes(run: Run, profile: TableProfile, readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """The columns with values that often stand for missing ones: numbers far from all others, and words."""
    steps = StatementRunner(run.engine)
    codes_by_column: dict[str, Reading] = {}
    for column in profile.profiles:
        codes: list[tuple[str, int]] = []
        if column.name in readings or not column.values:
            continue
        if column.is_numeric:
            codes = [*_find_number_codes(steps, profile.sample, column.name)]
        elif column.kind is ColumnKind.TEXT:
            query = template("""
                SELECT :column AS code, count(*) AS row_count
                FROM :rows
                WHERE regexp_full_match(:column, :pattern)
                GROUP BY :column
                ORDER BY row_count DESC, code
                LIMIT :limit
            """)(column=col(column.name), rows=profile.sample, pattern=text(MISSING_WORDS), limit=_MAX_WORDS)
            codes = [(code, count) for code, count in steps.fetch_rows(query, []) if code]
        if codes:
            counts = ", ".join(f"{toml_value(code)} ({count_noun(count, 'row')})" for code, count in codes)
            values = [code for code, _ in codes]
            comment = f"{counts} may stand for missing values; if so, add missing = {toml_value(values)}"
            codes_by_column[column.name] = Reading({}, {"missing": values} if "*" in values else {}, [comment])
    return codes_by_column


def _find_number_codes(steps: StatementRunner, rows: exp.Table, name: str) -> Iterator[tuple[str, int]]:
    column, codes = col(name), [exp.Literal.number(code) for code in _MISSING_NUMBERS]
    counts = steps.fetch_rows(_NUMBER_CODES(column=column, rows=rows, codes=codes), [])
    if not counts:
        return
    minimum, maximum = steps.fetch_rows(_OTHER_RANGE(column=column, rows=rows, codes=codes), [])[0]
    if minimum is None:
        return
    gap = max(_GAP * float(maximum - minimum), 1)
    for code, count in counts:
        value = float(code)
        is_far = value > float(maximum) + gap or (value < 0 <= minimum and value < float(minimum) - 1)
        if is_far and count >= _MIN_ROWS:
            yield code.removesuffix(".0"), count
