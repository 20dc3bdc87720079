"""Describe how files are read: their layout and columns, and where `anonymize` would refuse them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.files import csv_lines
from sqlanon.sources.files.bad_lines import DroppedLines
from sqlanon.sources.files.csv_lines import CsvFile
from sqlanon.sources.files.csv_text import describe_bad_byte, detect_encoding, readable_files
from sqlanon.sources.files.doubtful_columns import MOSTLY, describe_dates, find_doubtful_columns, find_doubtful_dates
from sqlanon.sources.files.typed_columns import ONLY_POINT, NumberMarks, try_cast
from sqlanon.sources.source import Source
from sqlanon.support.expressions import col, fragment, row_count, select, template
from sqlanon.support.toml import toml_key, toml_value

_MIN_SHARE = 0.5  # of values that have a type, for the type to be reported
_MAX_EXAMPLES = 3
_MAX_FILES = 5  # described if files are refused
_TYPES = {"BIGINT": r"[-+]?\d+", "DOUBLE": ".*", "DATE": r"\d+-\d+-\d+", "TIMESTAMP": ".*"}
"""The spelling of texts of a type; a type comes before types that include its values. A cast alone would drop parts
that do not fit, such as decimals."""


@dataclass(frozen=True)
class InspectedFile:
    """The detected format of a CSV file; incomplete if the file was refused."""

    name: str
    encoding: str | None  # None: unknown
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None  # the character before a quote in a value; None: the quote is doubled
    header: bool | None = None
    skip: int | None = None
    fields: int | None = None
    bad_lines: int = 0
    first_bad_lines: Sequence[str] = ()  # the first bad lines, with their numbers of fields


@dataclass(frozen=True)
class InspectedColumn:
    """A column. ``fits`` is a type that most values of a text have, ``share`` their share, and ``others`` the most
    frequent other values with their numbers of rows."""

    name: str
    type: str
    values: int  # rows with a value
    fits: str | None = None
    share: float | None = None
    others: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspection:
    """The result of `sqlanon.Database.inspect`: how files are read.

    Attributes
    ----------
    files:
        For each CSV file its encoding, delimiter, quote, header and lines above it, and its bad lines.
    rows:
        The number of rows; None if the files are refused.
    columns:
        The columns with their types, in the order of the first file. Where at least half of the values of a text have a
        type, but not all, ``fits`` is that type, ``share`` the share of the values and ``others`` the most frequent
        values that do not have it.
    missing:
        The texts that mean NULL in every column; None for files other than CSV.
    csv:
        The keys of ``[source.csv]`` that read the files in this way.
    undecided:
        Columns that `anonymize` refuses as quasi-identifiers: what they contain, and the keys that decide. For SPSS,
        Stata and SAS files also the value labels and user-missing values, and how they were read for the inspection.
    refusal:
        The reason why the files are refused; None if they are read.
    """

    files: tuple[InspectedFile, ...] = ()
    rows: int | None = None
    columns: tuple[InspectedColumn, ...] = ()
    missing: tuple[str, ...] | None = None
    csv: Mapping[str, object] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    refusal: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The inspection as data for JSON."""
        return asdict(self)

    def toml(self) -> str:
        """The table ``[source.csv]`` of a policy; empty for files other than CSV."""
        lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in self.csv.items()]
        return "\n".join(["[source.csv]", *lines, ""]) if self.csv else ""


def inspect_source(engine: DuckDBEngine, source: Source, csv: CsvSection | None) -> Inspection:
    """Describe files that are bound as a source."""
    rows = engine.rows(row_count(rows=source.relation))[0][0]
    columns, undecided = _inspect_columns(engine, source), _find_undecided(engine, source, csv)
    if not source.csv_files:
        return Inspection(rows=rows, columns=columns, undecided=undecided)
    section = csv or CsvSection()
    dropped = {file.path: file for file in source.dropped_lines}
    files = tuple(_inspect_file(file, section, dropped.get(file.path)) for file in source.csv_files)
    return Inspection(files, rows, columns, section.missing_texts, _csv_keys(section, files), undecided)


def _find_undecided(engine: DuckDBEngine, source: Source, csv: CsvSection | None) -> tuple[str, ...]:
    if source.locate is None:
        return ()
    texts = {name.lower(): MOSTLY for name in source.columns}
    marks = NumberMarks.from_section(csv or CsvSection()) if source.csv_files else ONLY_POINT
    doubtful = find_doubtful_columns(engine, source.relation, texts, marks, source.locate, source.last_row_key)
    dates = find_doubtful_dates(engine, source.relation, source.date_formats)
    return (*(column.describe() for column in doubtful), *(describe_dates(name, dates[name]) for name in dates))


def inspect_refused(paths: Sequence[str], csv: CsvSection | None, refusal: str) -> Inspection:
    """Describe refused CSV files as far as their first lines allow."""
    section = csv or CsvSection()
    return Inspection(tuple(_inspect_lines(path, section) for path in paths[:_MAX_FILES]), refusal=refusal)


def _inspect_file(file: CsvFile, section: CsvSection, dropped: DroppedLines | None) -> InspectedFile:
    quote, escape = str(file.options["quote"]), str(file.options["escape"])
    return InspectedFile(
        name=file_name(file.path),
        encoding=section.encoding or detect_encoding(file.path, section),
        delimiter=str(file.options["delim"]) if len(file.columns) > 1 else None,
        quote=quote,
        escape=None if escape in ("", quote) else escape,
        header=bool(file.options["header"]),
        skip=int(file.options["skip"]),
        fields=len(file.columns),
        bad_lines=0 if dropped is None else dropped.count,
        first_bad_lines=() if dropped is None else tuple(dropped.examples),
    )


def _inspect_lines(path: str, section: CsvSection) -> InspectedFile:
    name, encoding = file_name(path), section.encoding or detect_encoding(path, section)
    if not csv_lines.can_open(path):
        return InspectedFile(name, encoding)
    if section.encoding is None and describe_bad_byte(path, encoding) is not None:
        return InspectedFile(name, None)
    try:
        with readable_files([path], section) as (readable,):
            open_lines = partial(csv_lines.read_lines, readable)
            layout = csv_lines.guess_layout(open_lines, section)
            comparison = None if layout is None else csv_lines.compare_lines(open_lines, layout)
            is_clear = layout is None or section.delimiter or not csv_lines.find_other_delimiters(open_lines, layout)
    except SourceError:
        return InspectedFile(name, None)
    if layout is None or comparison is None or not is_clear:
        return InspectedFile(name, encoding)
    figures = comparison.expected_fields, comparison.broken_lines, comparison.examples
    return InspectedFile(name, encoding, layout.delimiter, layout.quote, None, section.header, layout.skip, *figures)


def _inspect_columns(engine: DuckDBEngine, source: Source) -> tuple[InspectedColumn, ...]:
    if not source.columns:
        return ()
    figures: list[exp.Expr] = []
    for name, type_ in source.columns.items():
        figures.append(exp.Count(this=col(name)))
        figures += [exp.Count(this=_cast_if_spelled(name, text_type)) for text_type in _TYPES if type_ == "VARCHAR"]
    counts = iter(engine.rows(select(figures, source.relation.copy()))[0])
    columns = []
    for name, type_ in source.columns.items():
        column = InspectedColumn(name, type_, values=next(counts))
        fitting = {text_type: next(counts) for text_type in _TYPES} if type_ == "VARCHAR" else {}
        best = max(fitting, key=lambda text_type: fitting[text_type], default=None)
        if best is not None and column.values * _MIN_SHARE <= fitting[best] < column.values:
            query = template("""
                SELECT :column AS value, count(*) AS row_count
                FROM :rows
                WHERE NOT :column IS NULL AND :read IS NULL
                GROUP BY value
                ORDER BY row_count DESC, value
                LIMIT :most
            """)(column=col(name), rows=source.relation, read=_cast_if_spelled(name, best), most=_MAX_EXAMPLES)
            other_values = dict(engine.rows(query))
            column = replace(column, fits=best, share=fitting[best] / column.values, others=other_values)
        columns.append(column)
    return tuple(columns)


def _cast_if_spelled(name: str, type_: str) -> exp.Expr:
    return fragment("CASE WHEN regexp_full_match(trim(:column), :pattern) THEN :read END")(
        column=col(name), pattern=_TYPES[type_], read=try_cast(col(name), type_)
    )


def _csv_keys(section: CsvSection, files: Sequence[InspectedFile]) -> dict[str, object]:
    """The keys that read files in the same way: those of the policy, and values detected in all files alike."""
    policy_keys = {name: getattr(section, name) for name in CsvSection.model_fields if name in section.model_fields_set}
    detected: dict[str, object] = {}
    for key in ("encoding", "delimiter", "quote", "header", "skip"):
        values = {getattr(file, key) for file in files}
        if len(values) == 1 and (value := values.pop()) is not None:
            detected[key] = value
    if detected.get("quote") == '"' or any(file.escape is not None for file in files):
        detected.pop("quote", None)  # the key would confirm line ends between quotes
    return {
        name: value for name in CsvSection.model_fields if (value := (detected | policy_keys).get(name)) is not None
    }
