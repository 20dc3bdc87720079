"""How files are read, in figures: what `anonymize` would do with them, and where it would refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.policy.sections import CsvSection
from sqlanon.sources import csv_lines
from sqlanon.sources.bad_lines import DroppedLines
from sqlanon.sources.csv_text import ReadFile, describe_bad_byte, detect_encoding, readable_files
from sqlanon.sources.doubtful_columns import MOSTLY, describe_dates, find_doubtful_columns, find_doubtful_dates
from sqlanon.sources.source import Source
from sqlanon.sources.typed_columns import ONLY_POINT, NumberMarks
from sqlanon.support.expressions import col, fragment, row_count, select, template, text
from sqlanon.support.toml import toml_key, toml_value

_LEAST_SHARE = 0.5  # of the values of a text column that have a type, for the type to be named
_SHOWN_VALUES = 3
_MOST_FILES = 5  # that are described where files are refused
_TYPES = {"BIGINT": r"[-+]?\d+", "DOUBLE": ".*", "DATE": r"\d+-\d+-\d+", "TIMESTAMP": ".*"}
"""How texts of a type are written, each type before those that have its values, too: a cast alone drops what does not
fit, such as decimals."""

_VALUES = fragment("count(:column)")
_FITTING = fragment("count(:read)")
_IF_WRITTEN = fragment("CASE WHEN regexp_full_match(trim(:column), :pattern) THEN :read END")
_OTHER_VALUES = template("""
    SELECT :column AS value, count(*) AS n
    FROM :rows
    WHERE NOT :column IS NULL AND :read IS NULL
    GROUP BY value
    ORDER BY n DESC, value
    LIMIT :most
""")


@dataclass(frozen=True)
class InspectedFile:
    """How a CSV file is written; of a file that is refused, as far as it is known."""

    name: str
    encoding: str | None  # None: not known
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None  # the character before a quote in a value; None: the quote is doubled
    header: bool | None = None
    skip: int | None = None
    fields: int | None = None
    bad_lines: int = 0
    first_bad_lines: Sequence[str] = ()  # with their numbers of fields


@dataclass(frozen=True)
class InspectedColumn:
    """A column. ``fits`` is a type that some values of a text have, with the share that does and the most frequent
    others, by their numbers of rows."""

    name: str
    type: str
    values: int  # rows with a value
    fits: str | None = None
    share: float | None = None
    others: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspection:
    """How files are read: `sqlanon.Database.inspect` returns one.

    Attributes
    ----------
    files:
        Of each CSV file its encoding, delimiter, quote, header and lines above it, and its bad lines.
    rows:
        The number of rows; None if the files are refused.
    columns:
        The columns with their types, in the order of the first file. Where at least half of the values of a text have a
        type, but not all, ``fits`` is that type, ``share`` the share of the values and ``others`` the most frequent
        values that do not have it.
    missing:
        The texts that mean NULL in every column; None for files other than CSV.
    csv:
        The keys of ``[source.csv]`` by which the files are read in this way.
    undecided:
        Of columns that `anonymize` refuses as quasi-identifiers: what they have, and the keys that decide. Of SPSS,
        Stata and SAS files also the value labels and user-missing values, and how they were read for this.
    refusal:
        Why the files are refused; None if they are read.
    """

    files: tuple[InspectedFile, ...] = ()
    rows: int | None = None
    columns: tuple[InspectedColumn, ...] = ()
    missing: tuple[str, ...] | None = None
    csv: Mapping[str, object] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    refusal: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    def toml(self) -> str:
        """The table ``[source.csv]`` as a policy has it; empty for files other than CSV."""
        lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in self.csv.items()]
        return "\n".join(["[source.csv]", *lines, ""]) if self.csv else ""


def inspect_source(engine: DuckDBEngine, source: Source, csv: CsvSection | None) -> Inspection:
    """Describe files that are bound as a source."""
    rows = engine.rows(row_count(rows=source.relation))[0][0]
    columns, undecided = _inspect_columns(engine, source), _find_undecided(engine, source, csv)
    if not source.csv_files:
        return Inspection(rows=rows, columns=columns, undecided=undecided)
    known = csv or CsvSection()
    dropped = {file.path: file for file in source.dropped_lines}
    files = tuple(_inspect_file(file, known, dropped.get(file.path)) for file in source.csv_files)
    return Inspection(files, rows, columns, known.missing_texts, _csv_keys(known, files), undecided)


def _find_undecided(engine: DuckDBEngine, source: Source, csv: CsvSection | None) -> tuple[str, ...]:
    if source.locate is None:
        return ()
    texts = {name.lower(): MOSTLY for name in source.columns}
    marks = NumberMarks.of(csv or CsvSection()) if source.csv_files else ONLY_POINT
    doubtful = find_doubtful_columns(engine, source.relation, texts, marks, source.locate, source.last_row_key)
    dates = find_doubtful_dates(engine, source.relation, source.date_formats)
    return (*(column.describe() for column in doubtful), *(describe_dates(name, dates[name]) for name in dates))


def inspect_refused(paths: Sequence[str], csv: CsvSection | None, refusal: str) -> Inspection:
    """Describe CSV files that are refused, as far as their first lines show how they are written."""
    known = csv or CsvSection()
    return Inspection(tuple(_inspect_lines(path, known) for path in paths[:_MOST_FILES]), refusal=refusal)


def _inspect_file(file: ReadFile, known: CsvSection, dropped: DroppedLines | None) -> InspectedFile:
    quote, escape = str(file.options["quote"]), str(file.options["escape"])
    return InspectedFile(
        name=file_name(file.path),
        encoding=known.encoding or detect_encoding(file.path, known),
        delimiter=str(file.options["delim"]) if file.fields > 1 else None,
        quote=quote,
        escape=None if escape in ("", quote) else escape,
        header=bool(file.options["header"]),
        skip=int(file.options["skip"]),
        fields=file.fields,
        bad_lines=0 if dropped is None else dropped.count,
        first_bad_lines=() if dropped is None else tuple(dropped.examples),
    )


def _inspect_lines(path: str, known: CsvSection) -> InspectedFile:
    name = file_name(path)
    if not csv_lines.can_open(path):
        return InspectedFile(name, known.encoding or detect_encoding(path, known))
    encoding = known.encoding or detect_encoding(path, known)
    if known.encoding is None and describe_bad_byte(path, encoding) is not None:
        return InspectedFile(name, None)
    try:
        with readable_files([path], known) as (readable,):

            def open_lines(limit: int | None) -> Any:
                return csv_lines.read_lines(readable, limit)

            layout = csv_lines.guess_layout(open_lines, known)
            broken = None if layout is None else csv_lines.find_broken_lines(open_lines, layout)
            is_clear = layout is None or known.delimiter or not csv_lines.find_other_delimiters(open_lines, layout)
    except SourceError:
        return InspectedFile(name, None)
    if layout is None or broken is None or not is_clear:
        return InspectedFile(name, encoding)
    return InspectedFile(name, encoding, layout.delimiter, layout.quote, None, known.header, layout.skip, *broken)


def _inspect_columns(engine: DuckDBEngine, source: Source) -> tuple[InspectedColumn, ...]:
    if not source.columns:
        return ()
    figures: list[exp.Expr] = []
    for name, type_ in source.columns.items():
        figures.append(_VALUES(column=col(name)))
        figures += [_FITTING(read=_read(name, other)) for other in _TYPES if type_ == "VARCHAR"]
    counts = iter(engine.rows(select(figures, source.relation.copy()))[0])
    columns = []
    for name, type_ in source.columns.items():
        values = next(counts)
        fitting = {other: next(counts) for other in _TYPES} if type_ == "VARCHAR" else {}
        columns.append(_inspect_column(engine, source, InspectedColumn(name, type_, values), fitting))
    return tuple(columns)


def _inspect_column(
    engine: DuckDBEngine, source: Source, column: InspectedColumn, fitting: Mapping[str, int]
) -> InspectedColumn:
    best = max(fitting, key=lambda type_: fitting[type_], default=None)
    if best is None or not column.values * _LEAST_SHARE <= fitting[best] < column.values:
        return column
    query = _OTHER_VALUES(
        column=col(column.name), rows=source.relation.copy(), read=_read(column.name, best), most=_SHOWN_VALUES
    )
    others = dict(engine.rows(query))
    share = fitting[best] / column.values
    return InspectedColumn(column.name, column.type, column.values, best, share, others)


def _read(name: str, type_: str) -> exp.Expr:
    read = exp.TryCast(this=col(name), to=exp.DataType.build(type_, dialect="duckdb"))
    return _IF_WRITTEN(column=col(name), pattern=text(_TYPES[type_]), read=read)


def _csv_keys(known: CsvSection, files: Sequence[InspectedFile]) -> dict[str, object]:
    """The keys by which files are read as they were: those of the policy, and what was detected alike in all files."""
    given = {name: getattr(known, name) for name in CsvSection.model_fields if name in known.model_fields_set}
    detected: dict[str, object] = {}
    for key in ("encoding", "delimiter", "quote", "header", "skip"):
        values = {getattr(file, key) for file in files}
        if len(values) == 1 and (value := values.pop()) is not None:
            detected[key] = value
    if detected.get("quote") == '"' or any(file.escape is not None for file in files):
        detected.pop("quote", None)  # to name it says that line ends between quotes are meant
    return {name: value for name in CsvSection.model_fields if (value := (detected | given).get(name)) is not None}
