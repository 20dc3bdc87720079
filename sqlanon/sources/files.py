"""Bind data files, by a table of formats.

Parquet files on this machine are scanned in place. Other files are copied once: formats that are slow to read (CSV,
JSON, Excel, SPSS, Stata, SAS), files read over the network, and tables that others may change. A format is an entry of
`FORMATS`; its endings are in `formats.ENDINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import (
    extensions_for,
    file_name,
    format_address,
    is_remote,
    resolve_data_files,
    strip_table_format,
    table_format,
)
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.bad_lines import DroppedLines
from sqlanon.sources.csv import (
    DETECT_ALL,
    CsvTable,
    copy_csv,
    date_formats,
    find_values,
    read_all_columns,
    scan_csv,
)
from sqlanon.sources.csv_text import ReadFile
from sqlanon.sources.doubtful_columns import (
    NO_CHECKS,
    ColumnChecks,
    refuse_ambiguous_dates,
    refuse_doubtful_columns,
    refuse_future_births,
)
from sqlanon.sources.excel import ExcelTable, copy_excel, describe_excel
from sqlanon.sources.extensions import load_extension
from sqlanon.sources.formats import KNOWN_ENDINGS, OTHER_WORKBOOKS, file_kind
from sqlanon.sources.json import scan_json
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.relation import bind_relation, source_errors
from sqlanon.sources.source import FindLocations, Source, WorkNames
from sqlanon.sources.statistics_files import (
    PRODUCT_NAMES,
    Kind,
    ReadingChoices,
    copy_statistics_files,
    describe_statistics_files,
)
from sqlanon.sources.tabular import refuse_ambiguous_names, refuse_different_columns, refuse_query
from sqlanon.sources.typed_columns import ONLY_POINT, ColumnReading, NumberMarks, projection, read_columns
from sqlanon.support.expressions import (
    anonymous,
    col,
    create_table,
    create_temporary_view,
    drop_table,
    ident,
    literal_path,
    read_parquet,
    select,
    select_star,
    subquery,
    table,
    template,
    text,
    union_all,
)


@dataclass(frozen=True)
class Scan:
    """Files to read, and how."""

    engine: DuckDBEngine
    paths: list[str]
    text_columns: Collection[str]  # in lower case, as all column names of a scan
    sheet: str | None = None
    wanted: Collection[str] = ()
    choices: ReadingChoices = field(default_factory=ReadingChoices)
    csv: CsvSection = DETECT_ALL


@dataclass(frozen=True)
class FileFormat:
    label: str
    function: str | None  # of DuckDB, for scripts
    query: Callable[[Scan], exp.Query]  # for plans only, if there is `copy`
    extension: str | None = None
    in_place: bool = False  # local files are scanned without a copy
    copy: Callable[[Scan, exp.Table], None] | None = None  # copies files with a library


def _scan_parquet(scan: Scan) -> exp.Select:
    for path in scan.paths:
        refuse_ambiguous_names(_read_parquet_names(scan.engine, path), file_name(path))
    # A scan of several files drops columns that the first file lacks, and casts values to its types.
    files = {path: scan.engine.columns(read_parquet([path])) for path in scan.paths} if len(scan.paths) > 1 else {}
    refuse_different_columns([*files.items()])
    return select_star(read_parquet(scan.paths))


def _scan_folders(function: str) -> Callable[[Scan], exp.Query]:
    def query(scan: Scan) -> exp.Query:
        tables = {path: exp.Table(this=anonymous(function, text(path))) for path in scan.paths}
        columns = {path: scan.engine.columns(relation) for path, relation in tables.items()}
        refuse_different_columns([*columns.items()])
        names = [col(name) for name in columns[scan.paths[0]]]
        return union_all(*(select([name.copy() for name in names], relation) for relation in tables.values()))

    return query


def _scan_iceberg(scan: Scan) -> exp.Query:
    for path in scan.paths:
        metadata = Path(path, "metadata")
        if metadata.is_dir() and not (metadata / "version-hint.text").exists():
            raise SourceError(
                f"source.files: {path} has no metadata/version-hint.text, so that the newest version is unknown: name "
                "the metadata file of a version, iceberg:.../metadata/NAME.metadata.json"
            )
    return _scan_folders("iceberg_scan")(scan)


def _statistics_format(kind: Kind) -> FileFormat:
    def options(scan: Scan) -> tuple[list[str], Kind, Collection[str], Collection[str], ReadingChoices]:
        return scan.paths, kind, scan.text_columns, scan.wanted, scan.choices

    def copy(scan: Scan, target: exp.Table) -> None:
        copy_statistics_files(scan.engine, *options(scan), target)

    return FileFormat(PRODUCT_NAMES[kind], None, lambda scan: describe_statistics_files(*options(scan)), copy=copy)


def _excel_options(scan: Scan) -> tuple[DuckDBEngine, Sequence[str], Collection[str], str | None, Collection[str]]:
    return scan.engine, scan.paths, scan.text_columns, scan.sheet, scan.wanted


FORMATS: Mapping[str, FileFormat] = {
    "parquet": FileFormat("Parquet", "read_parquet", _scan_parquet, in_place=True),
    "csv": FileFormat(
        "CSV",
        "read_csv",
        lambda scan: scan_csv(scan.engine, scan.paths, scan.text_columns, scan.csv)[0],
    ),
    "json": FileFormat(
        "JSON",
        "read_json",
        lambda scan: scan_json(scan.engine, scan.paths, scan.text_columns),
        extension="json",
    ),
    "excel": FileFormat("Excel", None, lambda scan: describe_excel(*_excel_options(scan))),
    "spss": _statistics_format("spss"),
    "stata": _statistics_format("stata"),
    "sas": _statistics_format("sas"),
    "xport": _statistics_format("xport"),
    # Folders that are one table; the format precedes their name, as in delta:FOLDER.
    "delta": FileFormat("Delta", "delta_scan", _scan_folders("delta_scan"), extension="delta"),
    "iceberg": FileFormat("Iceberg", "iceberg_scan", _scan_iceberg, extension="iceberg"),
}


class _Files(SourceKind):
    name = "files"
    reads_texts = True

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        names = binding.text_attributes, binding.needed_columns, binding.database_id
        source = bind_files(
            binding.engine, binding.section, binding.work_names, *names, binding.readings, binding.checks
        )
        return binding.engine, source


KIND = _Files()
_NO_READINGS: Mapping[str, ColumnReading] = {}
_FORMATS_WITH_TEXTS = ("csv", "parquet", "json", "excel")
"""Formats whose columns of texts may be read as another type."""


def bind_files(
    engine: DuckDBEngine,
    section: SourceSection | PopulationSection,
    work_names: WorkNames,
    text_columns: Collection[str] = (),
    wanted: Collection[str] = (),
    database_id: str | None = None,
    readings: Mapping[str, ColumnReading] = _NO_READINGS,
    checks: ColumnChecks = NO_CHECKS,
) -> Source:
    refuse_query(section)
    with source_errors():
        patterns = [resolve_data_files(pattern) for pattern in section.files]
        for extension in dict.fromkeys(name for pattern in patterns for name in extensions_for(pattern)):
            load_extension(engine, extension, "source.files", "files over the network")
        paths = _match_paths(engine, patterns, section.files)
        name, format_ = _find_format(paths)
        if format_.extension is not None:
            load_extension(engine, format_.extension, "source.files", f"{format_.label} files")
        if empty := [
            path
            for path in paths
            if not is_remote(path)
            and Path(strip_table_format(path)).is_file()
            and not Path(strip_table_format(path)).stat().st_size
        ]:
            raise SourceError(f"{file_name(empty[0])} is empty: it has no header and no rows")
        sheet = section.table if name == "excel" and isinstance(section, SourceSection) else None
        choices = ReadingChoices(section.value_labels, section.user_missing)
        if name not in PRODUCT_NAMES:
            _refuse_reading_choices(choices, format_)
        csv = section.csv or DETECT_ALL
        if csv != DETECT_ALL and name != "csv":
            raise SourceError(f"source.csv: applies to CSV files, and these are {format_.label} files: remove it")
        if readings and name not in _FORMATS_WITH_TEXTS:
            keys = ", ".join(f"attributes.{reading.name}" for reading in readings.values())
            raise SourceError(
                f"{keys}: type, format, pivot and missing apply to CSV, Parquet, JSON and Excel files, and these are "
                f"{format_.label} files: remove them"
            )
        declared = {
            column
            for column, reading in readings.items()
            if name == "csv" or (name == "excel" and reading.type == "text")
        }
        as_text = {*text_columns, *declared}
        scan = Scan(engine, [strip_table_format(path) for path in paths], as_text, sheet, wanted, choices, csv)
        relation = _read_files(name, format_, scan, work_names, wanted)
        relation, values = _convert_texts(relation, scan, work_names, readings)
        _refuse_doubtful_columns(relation, scan, checks, readings)
        local = tuple(Path(path) for path in scan.paths if not is_remote(path))
        bound = bind_relation(engine, relation.table, work_names, True, local, relation.columns, database_id)
    script_relation = _script_relation(name, format_, scan, bound.columns, values)
    bound = replace(bound, scan=script_relation, full_query=relation.full_query, dropped_lines=tuple(relation.dropped))
    bound = replace(bound, locate=relation.locate(scan), last_row_key=relation.last_row_key)
    if relation.layout is None:
        return bound
    bound = replace(bound, date_formats=date_formats(relation.layout))
    pairs = zip(scan.paths, relation.layout.files, strict=True)
    return replace(bound, csv_files=tuple(ReadFile(path, file.options, len(file.columns)) for path, file in pairs))


def find_csv_files(engine: DuckDBEngine, section: SourceSection) -> Sequence[str]:
    """Find the CSV files of a section, also if they cannot be read; none for files of other formats."""
    try:
        paths = _match_paths(engine, [resolve_data_files(pattern) for pattern in section.files], section.files)
        return paths if _find_format(paths)[0] == "csv" else ()
    except (SourceError, duckdb.Error):
        return ()


def _refuse_doubtful_columns(
    relation: _FileRelation, scan: Scan, checks: ColumnChecks, readings: Mapping[str, ColumnReading]
) -> None:
    """Refuse columns of CSV and Excel files whose meaning is in doubt."""
    engine, rows = scan.engine, relation.table
    if relation.layout is not None:
        refuse_ambiguous_dates(engine, rows, checks.dates, date_formats(relation.layout))
    elif relation.excel is not None:
        types = engine.columns(rows)
        untyped = {
            name.lower(): name
            for name, type_ in types.items()
            if type_ == "VARCHAR" and name.lower() in {*checks.dates} - {*scan.text_columns}
        }
        relation.excel.refuse_mixed_columns(untyped, {name: reading.missing for name, reading in readings.items()})
    else:
        return
    texts = {
        name: share
        for name, share in checks.texts.items()
        if name not in scan.text_columns or (name in readings and readings[name].type is None)
    }
    marks = ONLY_POINT if relation.layout is None else NumberMarks.of(scan.csv)
    doubts = replace(checks, texts=texts)
    refuse_doubtful_columns(engine, rows, doubts, marks, relation.locate(scan), relation.last_row_key)
    refuse_future_births(engine, rows, checks.births)


def _convert_texts(
    relation: _FileRelation, scan: Scan, work_names: WorkNames, readings: Mapping[str, ColumnReading]
) -> tuple[_FileRelation, Mapping[str, tuple[exp.Expr, str]]]:
    """Convert columns of texts to their declared types; return the relation with these columns, and their values."""
    engine, source, layout = scan.engine, relation.table, relation.layout
    marks = replace(NumberMarks.of(scan.csv), may_be_thousands=layout is not None and layout.may_have_thousands)
    texts = () if layout is None or not marks.are_declared else {name.lower() for name in layout.columns}
    locate = relation.locate(scan)
    undeclared = {*texts} - {*scan.text_columns}
    values = read_columns(engine, source, readings, marks, undeclared, locate, work_names.reads_rows)
    if not values:
        return relation, values
    query = select(projection([*engine.columns(source)], values), source.copy())
    if relation.is_copied:
        typed = table(f"{source.name}_typed", source.db, source.catalog)
        engine.execute(create_table(typed.copy(), query))
        engine.execute(drop_table(source.copy()))
    else:
        typed = work_names.view("typed")
        engine.execute(create_temporary_view(typed, query))
    columns = {name: values[name][1] if name in values else type_ for name, type_ in relation.columns.items()}
    whole = relation.full_query
    if whole is not None:
        whole = select(projection([*relation.columns], values), subquery(whole, "files"))
    return replace(relation, table=typed, columns=columns, full_query=whole), values


def _refuse_reading_choices(choices: ReadingChoices, format_: FileFormat) -> None:
    for key in ("value_labels", "user_missing"):
        if getattr(choices, key) is not None:
            raise SourceError(
                f"source.{key}: applies to files of SPSS, Stata and SAS, not of {format_.label}: remove it"
            )


def _find_format(paths: list[str]) -> tuple[str, FileFormat]:
    kinds = [file_kind(path) for path in paths]
    if None in kinds:
        unknown = file_name(paths[kinds.index(None)])
        advice = "; save it as .xlsx or CSV" if unknown.lower().endswith(OTHER_WORKBOOKS) else ""
        raise SourceError(f"source.files: {unknown} has an unknown format{advice}; known: {KNOWN_ENDINGS}")
    if len(set(kinds)) > 1:
        labels = " and ".join(FORMATS[kind].label for kind in dict.fromkeys(kinds) if kind)
        raise SourceError(f"source.files: {labels} are mixed; give files of one kind")
    kind = kinds[0]
    assert kind is not None
    return kind, FORMATS[kind]


def _match_paths(engine: DuckDBEngine, patterns: list[str], given_patterns: tuple[str, ...]) -> list[str]:
    """Find the files that match; HTTP addresses and folders of tables are not expanded."""
    paths: list[str] = []
    for pattern in patterns:
        if table_format(pattern) is not None or pattern.lower().startswith(("http://", "https://")):
            paths.append(pattern)
        else:
            paths += [path for (path,) in engine.rows(template("SELECT file FROM glob(:pattern)")(pattern=pattern))]
    if not paths:
        raise SourceError(
            f"source.files: no file matches {', '.join(given_patterns)}{_suggest_table_format(Path(patterns[0]))}"
        )
    return sorted(set(paths))


def _suggest_table_format(folder: Path) -> str:
    for name, subfolder in (("delta", "_delta_log"), ("iceberg", "metadata")):
        if (folder / subfolder).is_dir():
            return f'; it is a folder of {FORMATS[name].label}: write files = "{name}:{folder.name}"'
    return ""


@dataclass(frozen=True)
class _FileRelation:
    """A relation of files."""

    table: exp.Table
    columns: Mapping[str, str] = field(default_factory=dict)  # of all columns, if the relation has only some
    full_query: exp.Query | None = None  # reads all columns, likewise
    is_copied: bool = False
    layout: CsvTable | None = None  # for CSV files whose rows are read
    excel: ExcelTable | None = None  # for Excel files whose rows are read
    dropped: Sequence[DroppedLines] = ()  # bad lines of CSV files

    @property
    def last_row_key(self) -> str | None:
        """The key that leaves the last row out of files other than CSV."""
        return None if self.excel is None else self.excel.without_last_row

    def locate(self, scan: Scan) -> FindLocations | None:
        """A function that finds values in the lines of CSV files, or the cells of Excel files."""
        if self.excel is not None:
            return self.excel.locate(scan.engine)
        return None if self.layout is None else partial(find_values, scan.engine, scan.paths, self.layout)


def _read_files(
    name: str, format_: FileFormat, scan: Scan, work_names: WorkNames, wanted: Collection[str]
) -> _FileRelation:
    local = [Path(path) for path in scan.paths if not is_remote(path)]
    is_copied = work_names.reads_rows and not (format_.in_place and len(local) == len(scan.paths))
    copy = (
        work_names.choose_copy_target(sum(path.stat().st_size for path in local if path.is_file()))
        if is_copied
        else None
    )
    if copy is not None and name == "csv":
        layout = copy_csv(scan.engine, scan.paths, scan.text_columns, wanted, copy, scan.csv)
        return _FileRelation(copy, layout.columns, read_all_columns(layout), True, layout, dropped=layout.dropped)
    if copy is not None and name == "excel":
        return _FileRelation(copy, is_copied=True, excel=copy_excel(*_excel_options(scan), copy))
    if copy is not None and format_.copy is not None:
        format_.copy(scan, copy)
        return _FileRelation(copy, is_copied=True)
    dropped: Sequence[DroppedLines] = ()
    if name == "csv":
        query, dropped = scan_csv(scan.engine, scan.paths, scan.text_columns, scan.csv)
    else:
        query = format_.query(scan)
    if copy is not None:
        columns = scan.engine.columns(subquery(query, "files"))
        names = [name for name in columns if name.lower() in wanted] or list(columns)
        output: list[exp.Expr] = [col(name) for name in names]
        scan.engine.execute(create_table(copy.copy(), select(output, subquery(query, "files"))))
        return _FileRelation(copy, columns, None if len(names) == len(columns) else query, True)
    view = work_names.view("files")
    scan.engine.execute(create_temporary_view(view, query))
    return _FileRelation(view, dropped=dropped)


def _script_relation(
    name: str,
    format_: FileFormat,
    scan: Scan,
    columns: Collection[str],
    values: Mapping[str, tuple[exp.Expr, str]],
) -> exp.Expr | None:
    """The relation that reads the files in scripts for people, who add the secrets of an address."""
    if format_.function is None:
        return None
    paths: list[exp.Expr] = [text(format_address(path)) for path in scan.paths]
    options: list[exp.Expr] = []
    texts = [column for column in columns if column.lower() in scan.text_columns or column in values]
    if name == "csv" and texts:
        types = [exp.PropertyEQ(this=ident(column), expression=text("VARCHAR")) for column in texts]
        options.append(exp.Var(this="types").eq(exp.Struct(expressions=types)))
    if name == "csv":
        options += _script_options(scan.csv)
    if name == "csv" and len(paths) > 1:
        options.append(exp.Var(this="union_by_name").eq(exp.true()))  # then DuckDB sniffs each file
    relation: exp.Expr
    if name in ("parquet", "csv", "json"):
        relation = exp.Table(this=anonymous(format_.function, exp.Array(expressions=paths), *options))
    else:
        tables = [exp.Table(this=anonymous(format_.function, path)) for path in paths]
        relation = subquery(union_all(*map(select_star, tables)), "files")
    return subquery(select(projection(columns, values), relation), "files") if values else relation


def _script_options(csv: CsvSection) -> list[exp.Expr]:
    """Options of ``read_csv`` for the keys of a policy. DuckDB supports few encodings, and no footer."""
    options_by_name = {
        "delim": csv.delimiter, "quote": csv.quote, "header": csv.header, "skip": csv.skip, "encoding": csv.encoding,
        "ignore_errors": True if csv.footer or csv.on_bad_line == "drop" else None,
    }  # fmt: skip
    options: list[exp.Expr] = [
        exp.Var(this=name).eq(exp.convert(value)) for name, value in options_by_name.items() if value is not None
    ]
    if csv.missing:
        options.append(exp.Var(this="nullstr").eq(exp.Array(expressions=[text(code) for code in csv.missing])))
    return options


def _read_parquet_names(engine: DuckDBEngine, path: str) -> list[str]:
    """Read the top-level names in the schema of a Parquet file: a scan renames columns that differ in case only."""
    nodes = engine.rows(template("SELECT name, num_children FROM parquet_schema(:path)")(path=literal_path(path)))
    names: list[str] = []
    position = 1
    for _ in range(nodes[0][1] or 0):
        names.append(nodes[position][0])
        position = _skip_node(nodes, position)
    return names


def _skip_node(nodes: list[tuple[Any, ...]], position: int) -> int:
    """The position after a node and all of its children, in depth-first order."""
    children, position = nodes[position][1] or 0, position + 1
    for _ in range(children):
        position = _skip_node(nodes, position)
    return position
