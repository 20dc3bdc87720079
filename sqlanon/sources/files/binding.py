"""Bind data files, by a table of formats.

Parquet files on this machine are scanned in place. Other files are copied once: formats that are slow to read (CSV,
JSON, Excel, SPSS, Stata, SAS), files read over the network, and tables that others may change. A format is an entry of
`FORMATS`; its endings are in `places.databases.ENDINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import (
    KNOWN_ENDINGS,
    OTHER_WORKBOOKS,
    extensions_for,
    file_kind,
    file_name,
    format_address,
    is_remote,
    resolve_data_files,
    strip_table_format,
    table_format,
)
from sqlanon.policy import PopulationSection, SourceSection
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.columns import refuse_ambiguous_names, refuse_different_columns
from sqlanon.sources.extensions import load_extension
from sqlanon.sources.files.csv import read_csv_files
from sqlanon.sources.files.doubtful_columns import (
    NO_CHECKS,
    ColumnChecks,
    refuse_ambiguous_dates,
    refuse_doubtful_columns,
    refuse_future_births,
)
from sqlanon.sources.files.excel import read_excel
from sqlanon.sources.files.json import json_query
from sqlanon.sources.files.scan import DETECT_ALL, FileTable, Read, ReadingChoices, Scan
from sqlanon.sources.files.statistics_files import PRODUCT_NAMES, read_statistics_files
from sqlanon.sources.files.typed_columns import ONLY_POINT, ColumnReading, NumberMarks, projection, read_columns
from sqlanon.sources.kinds import Binding, SourceKind, refuse_query
from sqlanon.sources.relation import bind_relation, source_errors
from sqlanon.sources.source import Source, WorkNames
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
class FileFormat:
    label: str
    function: str | None  # the function of DuckDB, for scripts
    read: Read
    extension: str | None = None
    in_place: bool = False  # local files are scanned without a copy


def _read_by_query(query_of: Callable[[Scan], exp.Query]) -> Read:
    """Read files by a query; a copy has only the wanted columns."""

    def read(scan: Scan, target: exp.Table | None) -> FileTable:
        query = query_of(scan)
        if target is None:
            return FileTable(query)
        columns = scan.engine.columns(subquery(query, "files"))
        names = scan.choose_columns(columns)
        scan.engine.execute(
            create_table(target.copy(), select([col(name) for name in names], subquery(query, "files")))
        )
        return FileTable(target, columns, None if len(names) == len(columns) else query)

    return read


def _parquet_query(scan: Scan) -> exp.Query:
    for path in scan.paths:
        refuse_ambiguous_names(_read_parquet_names(scan.engine, path), file_name(path))
    # A scan of several files drops columns that the first file lacks, and casts values to its types.
    files = {path: scan.engine.columns(read_parquet([path])) for path in scan.paths} if len(scan.paths) > 1 else {}
    refuse_different_columns([*files.items()])
    return select_star(read_parquet(scan.paths))


def _read_parquet_names(engine: DuckDBEngine, path: str) -> list[str]:
    """Read the top-level names in the schema of a Parquet file: a scan renames columns that differ in case only."""
    root, *nodes = engine.rows(
        template("SELECT name, num_children FROM parquet_schema(:path)")(path=literal_path(path))
    )
    names, open_nodes = list[str](), [root[1] or 0]  # the children to come of each open node, in depth-first order
    for name, children in nodes:
        if len(open_nodes) == 1:
            names.append(name)
        open_nodes[-1] -= 1
        open_nodes.append(children or 0)
        while open_nodes and not open_nodes[-1]:
            open_nodes.pop()
    return names


def _folders_query(function: str, scan: Scan) -> exp.Query:
    tables = {path: exp.Table(this=anonymous(function, text(path))) for path in scan.paths}
    columns = {path: scan.engine.columns(relation) for path, relation in tables.items()}
    refuse_different_columns([*columns.items()])
    return union_all(
        *(select([col(name) for name in columns[scan.paths[0]]], relation) for relation in tables.values())
    )


def _iceberg_query(scan: Scan) -> exp.Query:
    for path in scan.paths:
        metadata = Path(path, "metadata")
        if metadata.is_dir() and not (metadata / "version-hint.text").exists():
            raise SourceError(
                f"source.files: {path} has no metadata/version-hint.text, so that the newest version is unknown: name "
                "the metadata file of a version, iceberg:.../metadata/NAME.metadata.json"
            )
    return _folders_query("iceberg_scan", scan)


FORMATS: Mapping[str, FileFormat] = {
    "parquet": FileFormat("Parquet", "read_parquet", _read_by_query(_parquet_query), in_place=True),
    "csv": FileFormat("CSV", "read_csv", read_csv_files),
    "json": FileFormat("JSON", "read_json", _read_by_query(json_query), "json"),
    "excel": FileFormat("Excel", None, read_excel),
    **{kind: FileFormat(name, None, partial(read_statistics_files, kind)) for kind, name in PRODUCT_NAMES.items()},
    # Folders that are one table; the format precedes their name, as in delta:FOLDER.
    "delta": FileFormat("Delta", "delta_scan", _read_by_query(partial(_folders_query, "delta_scan")), "delta"),
    "iceberg": FileFormat("Iceberg", "iceberg_scan", _read_by_query(_iceberg_query), "iceberg"),
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
        addresses = _match_paths(engine, patterns, section.files)
        name, format_ = _find_format(addresses)
        if format_.extension is not None:
            load_extension(engine, format_.extension, "source.files", f"{format_.label} files")
        paths = [strip_table_format(address) for address in addresses]
        local = [Path(path) for path in paths if not is_remote(path)]
        local_files = [path for path in local if path.is_file()]
        if empty := [path for path in local_files if not path.stat().st_size]:
            raise SourceError(f"{empty[0].name} is empty: it has no header and no rows")
        _refuse_keys_of_other_formats(section, name, readings)
        sheet = section.table if name == "excel" and isinstance(section, SourceSection) else None
        texts = {
            column
            for column, reading in readings.items()
            if name == "csv" or (name == "excel" and reading.type == "text")
        }
        choices = ReadingChoices(section.value_labels, section.user_missing)
        scan = Scan(engine, paths, {*text_columns, *texts}, wanted, sheet, choices, section.csv or DETECT_ALL)
        is_copied = work_names.reads_rows and not (format_.in_place and len(local) == len(paths))
        size = sum(path.stat().st_size for path in local_files)
        files = format_.read(scan, work_names.choose_copy_target(size) if is_copied else None)
        if isinstance(files.query, exp.Table):
            relation = files.query
        else:
            relation = work_names.view("files")
            engine.execute(create_temporary_view(relation, files.query))
        relation, files, values = _convert_texts(relation, files, scan, work_names, readings)
        if is_copied and name in ("csv", "excel"):
            _refuse_doubtful_columns(relation, files, scan, checks, readings)
        bound = bind_relation(engine, relation, work_names, True, tuple(local), files.columns, database_id)
    return replace(
        bound,
        scan=_script_relation(name, format_, scan, bound.columns, values),
        full_query=files.full_query,
        locate=files.locate,
        last_row_key=files.last_row_key,
        date_formats=files.date_formats,
        dropped_lines=tuple(files.dropped_lines),
        csv_files=tuple(files.csv_files),
    )


def find_csv_files(engine: DuckDBEngine, section: SourceSection) -> Sequence[str]:
    """Find the CSV files of a section, also if they cannot be read; none for files of other formats."""
    try:
        paths = _match_paths(engine, [resolve_data_files(pattern) for pattern in section.files], section.files)
        return paths if _find_format(paths)[0] == "csv" else ()
    except (SourceError, duckdb.Error):
        return ()


def _refuse_doubtful_columns(
    relation: exp.Table, files: FileTable, scan: Scan, checks: ColumnChecks, readings: Mapping[str, ColumnReading]
) -> None:
    """Refuse columns of CSV and Excel files whose meaning is in doubt."""
    engine = scan.engine
    refuse_ambiguous_dates(engine, relation, checks.dates, files.date_formats)
    if files.refuse_mixed_columns is not None:
        untyped = {*checks.dates} - {*scan.text_columns}
        columns = {
            name.lower(): name
            for name, type_ in engine.columns(relation).items()
            if type_ == "VARCHAR" and name.lower() in untyped
        }
        files.refuse_mixed_columns(columns, {name: reading.missing for name, reading in readings.items()})
    texts = {
        name: share
        for name, share in checks.texts.items()
        if name not in scan.text_columns or (name in readings and readings[name].type is None)
    }
    marks = NumberMarks.from_section(scan.csv) if files.csv_files else ONLY_POINT
    doubts = replace(checks, texts=texts)
    refuse_doubtful_columns(engine, relation, doubts, marks, files.locate, files.last_row_key)
    refuse_future_births(engine, relation, checks.births)


def _convert_texts(
    relation: exp.Table,
    files: FileTable,
    scan: Scan,
    work_names: WorkNames,
    readings: Mapping[str, ColumnReading],
) -> tuple[exp.Table, FileTable, Mapping[str, tuple[exp.Expr, str]]]:
    """Convert columns of texts to their declared types; return the relation with these columns, and their values."""
    engine, marks = scan.engine, replace(NumberMarks.from_section(scan.csv), may_be_thousands=files.may_have_thousands)
    texts = {name.lower() for name in files.columns} if marks.are_declared else set[str]()
    undeclared = texts - {*scan.text_columns}
    values = read_columns(engine, relation, readings, marks, undeclared, files.locate, work_names.reads_rows)
    if not values:
        return relation, files, values
    query = select(projection([*engine.columns(relation)], values), relation.copy())
    if isinstance(files.query, exp.Table):
        typed = table(f"{relation.name}_typed", relation.db, relation.catalog)
        engine.execute(create_table(typed.copy(), query))
        engine.execute(drop_table(relation.copy()))
    else:
        typed = work_names.view("typed")
        engine.execute(create_temporary_view(typed, query))
    columns = {name: values[name][1] if name in values else type_ for name, type_ in files.columns.items()}
    full_query = files.full_query
    if full_query is not None:
        full_query = select(projection([*files.columns], values), subquery(full_query, "files"))
    return typed, replace(files, columns=columns, full_query=full_query), values


def _refuse_keys_of_other_formats(
    section: SourceSection | PopulationSection, name: str, readings: Mapping[str, ColumnReading]
) -> None:
    label = FORMATS[name].label
    for key in ("value_labels", "user_missing"):
        if name not in PRODUCT_NAMES and getattr(section, key) is not None:
            raise SourceError(f"source.{key}: applies to files of SPSS, Stata and SAS, not of {label}: remove it")
    if section.csv not in (None, DETECT_ALL) and name != "csv":
        raise SourceError(f"source.csv: applies to CSV files, and these are {label} files: remove it")
    if readings and name not in _FORMATS_WITH_TEXTS:
        keys = ", ".join(f"attributes.{reading.name}" for reading in readings.values())
        raise SourceError(
            f"{keys}: type, format, pivot and missing apply to CSV, Parquet, JSON and Excel files, and these are "
            f"{label} files: remove them"
        )


def _find_format(paths: list[str]) -> tuple[str, FileFormat]:
    kinds = [file_kind(path) for path in paths]
    if None in kinds:
        unknown = file_name(paths[kinds.index(None)])
        advice = "; save it as .xlsx or CSV" if unknown.lower().endswith(OTHER_WORKBOOKS) else ""
        raise SourceError(f"source.files: {unknown} has an unknown format{advice}; known: {KNOWN_ENDINGS}")
    kind, *other_kinds = [kind for kind in dict.fromkeys(kinds) if kind]
    if other_kinds:
        labels = " and ".join(FORMATS[name].label for name in (kind, *other_kinds))
        raise SourceError(f"source.files: {labels} are mixed; give files of one kind")
    return kind, FORMATS[kind]


def _match_paths(engine: DuckDBEngine, patterns: list[str], given_patterns: tuple[str, ...]) -> list[str]:
    """Find the files that match; HTTP addresses and folders of tables are not expanded."""
    paths: list[str] = []
    for pattern in patterns:
        if table_format(pattern) is not None or pattern.lower().startswith(("http://", "https://")):
            paths.append(pattern)
        else:
            paths += [path for (path,) in engine.rows(template("SELECT file FROM glob(:pattern)")(pattern=pattern))]
    if paths:
        return sorted(set(paths))
    folder, advice = Path(patterns[0]), ""
    for name, subfolder in (("delta", "_delta_log"), ("iceberg", "metadata")):
        if not advice and (folder / subfolder).is_dir():
            advice = f'; it is a folder of {FORMATS[name].label}: write files = "{name}:{folder.name}"'
    raise SourceError(f"source.files: no file matches {', '.join(given_patterns)}{advice}")


def _script_relation(
    name: str, format_: FileFormat, scan: Scan, columns: Collection[str], values: Mapping[str, tuple[exp.Expr, str]]
) -> exp.Expr | None:
    """The relation that reads the files in scripts for people, who add the secrets of an address."""
    if format_.function is None:
        return None
    paths: list[exp.Expr] = [text(format_address(path)) for path in scan.paths]
    relation: exp.Expr
    if name in ("parquet", "csv", "json"):
        texts = [column for column in columns if column.lower() in scan.text_columns or column in values]
        options = _script_options(scan.csv, texts, len(paths) > 1) if name == "csv" else []
        relation = exp.Table(this=anonymous(format_.function, exp.Array(expressions=paths), *options))
    else:
        tables = [exp.Table(this=anonymous(format_.function, path)) for path in paths]
        relation = subquery(union_all(*map(select_star, tables)), "files")
    return subquery(select(projection(columns, values), relation), "files") if values else relation


def _script_options(csv: CsvSection, texts: Sequence[str], has_several_files: bool) -> list[exp.Expr]:
    """Options of ``read_csv`` for the keys of a policy. DuckDB supports few encodings, and no footer."""
    types = [exp.PropertyEQ(this=ident(column), expression=text("VARCHAR")) for column in texts]
    values = {
        "delim": csv.delimiter, "quote": csv.quote, "header": csv.header, "skip": csv.skip, "encoding": csv.encoding,
        "ignore_errors": True if csv.footer or csv.on_bad_line == "drop" else None,
    }  # fmt: skip
    options: dict[str, exp.Expr] = {"types": exp.Struct(expressions=types)} if types else {}
    options |= {name: exp.convert(value) for name, value in values.items() if value is not None}
    if csv.missing:
        options["nullstr"] = exp.Array(expressions=[text(code) for code in csv.missing])
    if has_several_files:
        options["union_by_name"] = exp.true()  # then DuckDB sniffs each file
    return [exp.Var(this=name).eq(value) for name, value in options.items()]
