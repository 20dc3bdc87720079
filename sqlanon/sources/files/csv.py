"""Copy CSV files to a table.

All options are passed to the engine's reader explicitly, and each of several files is read with its own: otherwise the
engine renames columns, drops zeros of codes (02139), and drops rows without an error.

Sniffing a whole file takes longer than reading it. So the first rows decide the types, and the pass that copies a file
checks every value against them. If one does not fit (a late 1.5 in a column of integers would be rounded silently),
the files are sniffed as a whole and read again: the result is the same. A date that the engine's cast would change is
refused with its row: from ``2020-01-01 00:00:00 foo`` it drops the word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.columns import refuse_different_columns
from sqlanon.sources.files import csv_lines
from sqlanon.sources.files.bad_lines import DroppedLines, UnclearLinesError, copy_good_lines, read_good_records
from sqlanon.sources.files.csv_lines import DATE_FORMAT_TYPES, CsvFile, Options
from sqlanon.sources.files.csv_sniffer import (
    FIRST_MATCH,
    NO_TEXT,
    BrokenLinesError,
    number_options,
    one_column_error,
    open_lines,
    read_csv,
    refuse_broken_lines,
    refuse_comments_in_rows,
    refuse_extra_delimiters,
    refuse_last_lines,
    refuse_lines_above_rows,
    refuse_unreadable_lines,
    sniff_file,
)
from sqlanon.sources.files.csv_text import copy_path, describe_bad_byte, readable_files
from sqlanon.sources.files.scan import DETECT_ALL, FileTable, Scan
from sqlanon.sources.files.typed_columns import (
    SHORT_NUMBER,
    ZONE,
    projection,
    read_columns,
    thousands_error,
    try_cast,
    without_zone,
)
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    create_table,
    drop_table,
    fragment,
    row_count,
    select,
    select_star,
    subquery,
    table,
    template,
    text,
    union_all,
    values_query,
)
from sqlanon.support.toml import toml_key
from sqlanon.support.workdir import spill_directory

_WHOLE_FILE = -1
_SAMPLE_ROWS = 4096  # sniffing more takes longer than reading a small file
_FIRST_ROWS = 2048  # that are always part of the sample
_SCANNED_LINES = 20_480  # from which plans infer types
_MAX_LISTED_FILES = 3  # in an error
_MAX_PATTERN_FIELDS = 500  # the engine's patterns repeat a part at most 1,000 times

_ZONED = "TIMESTAMP WITH TIME ZONE"
_NUMBER_TYPES = ("BIGINT", "HUGEINT", "BIGNUM", "DOUBLE")

_INTEGER = "-?(0|[1-9][0-9]{0,%d})"
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?"
_PLAIN_VALUES = {
    "BOOLEAN": "(?i)true|false",
    "BIGINT": _INTEGER % 17,
    "HUGEINT": _INTEGER % 36,
    "DOUBLE": _INTEGER % 300 + "([.][0-9]+([eE][-+]?[0-9]{1,2})?|[eE][-+][0-9]{1,2})?",
    "DATE": _DAY,
    "TIME": _CLOCK,
    "TIMESTAMP": f"{_DAY}([ T]{_CLOCK})?",
}
"""By type, a pattern of values that have this type wherever they occur in a file. Not every value of it matches."""

_LENIENT_DAY = "[0-9]{4,6}[-/][0-9]{1,2}[-/][0-9]{1,2}"
_LENIENT_CLOCK = "[0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]{1,6}0{0,3})?)?"
_EXACT_VALUES = {
    "DATE": f" *({_LENIENT_DAY}|-?infinity) *",
    "TIME": f" *{_LENIENT_CLOCK} *",
    "TIMESTAMP": f" *({_LENIENT_DAY}([ T]+{_LENIENT_CLOCK}( ?UTC|Z|[+]00(:?00)?)?)?|-?infinity) *",
    _ZONED: f" *{_LENIENT_DAY}[ T]+{_LENIENT_CLOCK}{ZONE} *",
}
"""By type, a pattern of values that the engine's cast does not change, apart from a zone. From other values it drops
words, offsets and BC."""


@dataclass(frozen=True)
class CsvTable:
    """CSV files that are read as one table."""

    columns: Mapping[str, str]  # type by name, in the order of the first file
    files: Sequence[CsvFile]
    section: CsvSection = DETECT_ALL

    @property
    def may_have_thousands(self) -> bool:
        """Whether 12.345 may mean 12345: semicolons as delimiters suggest that commas are decimal marks."""
        return not self.section.has_number_marks and all(file.options["delim"] == ";" for file in self.files)

    def with_types(self, types: Mapping[str, str]) -> CsvTable:
        """The same table with other column types, by name in lower case."""
        return replace(self, columns={name: types.get(name.lower(), type_) for name, type_ in self.columns.items()})


def read_csv_files(scan: Scan, target: exp.Table | None) -> FileTable:
    """Read CSV files: copy them, or describe them by their first rows."""
    return _describe_files(scan) if target is None else copy_csv(scan, target)


def copy_csv(scan: Scan, target: exp.Table) -> FileTable:
    """Copy CSV files with the same columns to a table, in one pass if the other rows are like the first ones.

    If no value of the first rows is quoted, the quote is ``"``: a later ``'x'`` keeps its apostrophes. Columns that are
    not wanted are copied where the engine cannot read the files themselves again.
    """
    engine, section = scan.engine, scan.csv
    with _readable_files(scan) as (readable, dropped):
        try:
            csv_table = _copy_rows(readable, target)
        except duckdb.InvalidInputException:
            for path in readable.paths:
                refuse_broken_lines(engine, path, section)
            for path in readable.paths:
                refuse_unreadable_lines(engine, path, is_only_file=len(readable.paths) == 1)
            raise
        _refuse_delimiters_in_one_column(engine, csv_table, target)
        _refuse_rows_inside_values(engine, csv_table, target)
        _refuse_points_between_thousands(engine, csv_table, target)
        for file in csv_table.files:
            refuse_last_lines(file, section)
        for file in csv_table.files:
            refuse_extra_delimiters(engine, file, section)
    columns, copied = csv_table.columns, readable.choose_columns(csv_table.columns)
    full_query = None
    if len(copied) < len(columns):
        types = {name: type_ if name in copied else "VARCHAR" for name, type_ in columns.items()}
        full_query = _read_converted(replace(csv_table, columns=types), list(types), _convert_exactly)
    formats = {
        name: format_
        for file in csv_table.files
        for name, type_ in columns.items()
        if (format_ := _date_format(type_, file.options)) is not None
    }
    return FileTable(
        target,
        columns,
        full_query,
        partial(_find_values, scan, csv_table.files, bool(dropped)),
        date_formats=formats,
        may_have_thousands=csv_table.may_have_thousands,
        csv_files=[replace(file, path=path) for path, file in zip(scan.paths, csv_table.files, strict=True)],
        dropped_lines=dropped,
    )


def _describe_files(scan: Scan) -> FileTable:
    """Describe CSV files for plans: their columns, inferred from their first rows."""
    with _readable_files(scan, _SCANNED_LINES) as (readable, dropped):
        csv_table = _sniff_files(replace(readable, wanted=()), **number_options(scan.csv))
        query = _read_converted(csv_table, list(csv_table.columns), _convert_zones)
    if readable.paths != [*scan.paths]:
        types = {name: "TIMESTAMP" if type_ == _ZONED else type_ for name, type_ in csv_table.columns.items()}
        query = values_query(types, [])
    return FileTable(query, dropped_lines=dropped)


def _find_values(
    scan: Scan, files: Sequence[CsvFile], has_bad_lines: bool, column: str, values: Collection[str], limit: int
) -> list[tuple[str, str]]:
    """Find the first lines of CSV files that have one of some values in a column; each line with its value."""
    locations: list[tuple[str, str]] = []
    with readable_files(scan.paths, scan.csv) as readable:
        for path, file in zip(readable, files, strict=True):
            position = [name.lower() for name in file.columns].index(column.lower())
            lines, records = open_lines(scan.engine, path)(None), file.layout().records
            if has_bad_lines:
                records = partial(read_good_records, layout=file.layout(), has_given_quote=scan.csv.quote is not None)
            for record in islice(records(lines), int(bool(file.options["header"])), None):
                if position < len(record.fields) and (value := record.fields[position]) in values:
                    prefix = f"{file_name(path)}, " if len(scan.paths) > 1 else ""
                    locations.append((f"{prefix}line {record.line:,}", value))
                    if len(locations) == limit:
                        return locations
    return locations


def _date_format(type_: str, options: Options) -> str | None:
    formats = (
        str(options[name])
        for name, option_type in DATE_FORMAT_TYPES.items()
        if option_type == type_ and name in options
    )
    return next(formats, None)


@contextmanager
def _readable_files(scan: Scan, read_lines: int | None = None) -> Iterator[tuple[Scan, Sequence[DroppedLines]]]:
    """Replace files that the engine cannot read by copies: decoded, without a footer, and without bad lines if the
    policy drops them.

    With ``read_lines``, only this number of lines of each file is copied.
    """
    with readable_files(scan.paths, scan.csv, read_lines) as paths, ExitStack() as stack:
        folder, dropped = None, list[DroppedLines]()
        for i, path in enumerate(paths if scan.csv.on_bad_line == "drop" else ()):
            layout = _find_layout_with_bad_lines(scan, path, read_lines is None)
            if layout is not None:
                folder = folder or stack.enter_context(spill_directory())
                copy = str(copy_path(folder, i, path))
                lines = _copy_good_lines(scan, path, layout, copy, read_lines)
                if lines.count:
                    dropped.append(replace(lines, path=scan.paths[i]))
                    paths[i] = copy
        yield replace(scan, paths=paths, wanted=scan.wanted if paths == [*scan.paths] else ()), dropped


def _sniff_sample(scan: Scan, path: str) -> CsvFile:
    return sniff_file(scan.engine, path, scan.csv, {"sample_size": _SAMPLE_ROWS, **number_options(scan.csv)})


def _find_layout_with_bad_lines(scan: Scan, path: str, reads_rows: bool) -> csv_lines.Layout | None:
    """The layout of a file that may have bad lines, because it would be refused; None for a file without them."""
    file = None
    try:
        file = _sniff_sample(scan, path)
        if reads_rows:
            _refuse_extra_fields(scan.engine, file)
            refuse_extra_delimiters(scan.engine, file, scan.csv)
            if not csv_lines.can_open(path) or csv_lines.describe_null_byte(path) is None:
                return None
    except BrokenLinesError as error:
        return error.layout
    except duckdb.InvalidInputException:
        pass
    if file is not None and not file.has_one_column:
        return file.layout()
    return csv_lines.guess_layout(open_lines(scan.engine, path), scan.csv)


def _refuse_extra_fields(engine: DuckDBEngine, file: CsvFile) -> None:
    """Read all fields as texts, also empty ones: the engine refuses lines with other numbers of fields."""
    engine.rows(row_count(rows=read_csv([file.with_texts()], nullstr=NO_TEXT)))


def _copy_good_lines(
    scan: Scan, path: str, layout: csv_lines.Layout, copy: str, read_lines: int | None
) -> DroppedLines:
    name = file_name(path)
    if not csv_lines.can_open(path):
        raise SourceError(
            f"source.csv: {name}: bad lines are dropped from files on this machine, plain or as .gz; download or "
            "unpack it first"
        )
    flaw = describe_bad_byte(path)
    if flaw is not None or csv_lines.may_be_utf_16(path):
        raise SourceError(f"source.files: {name}: {csv_lines.describe_null_byte(path) or flaw}")
    has_given_quote = scan.csv.quote is not None
    try:
        with Path(copy).open("w", encoding="utf-8", newline="") as target:
            lines = copy_good_lines(csv_lines.read_lines(path), layout, target, name, has_given_quote, read_lines)
    except UnclearLinesError as error:
        raise SourceError(f"source.files: {name}: {error}") from None
    if lines.count > lines.rows:
        flaw = csv_lines.describe_broken_lines(open_lines(scan.engine, path), layout)
        raise SourceError(f'source.files: {name}: {flaw}; with on_bad_line = "drop", most lines would be dropped')
    if lines.count:
        file = _sniff_sample(scan, copy)
        if len(file.columns) != lines.fields or not file.layout().is_like(layout):
            raise SourceError(
                f"source.files: {lines.message}; the other lines look as if they had another delimiter or other "
                "quotes: set delimiter and quote under [source.csv]"
            )
    return lines


def _copy_rows(scan: Scan, target: exp.Table) -> CsvTable:
    engine = scan.engine
    with suppress(duckdb.ConversionException, duckdb.InvalidInputException):  # files may be broken
        if (csv_table := _copy_by_sample(scan, target)) is not None:
            return csv_table
    csv_table = _sniff_files(scan, sample_size=_WHOLE_FILE)
    numbers = {name.lower() for name, type_ in csv_table.columns.items() if type_ in _NUMBER_TYPES}
    csv_table = csv_table.with_types(dict.fromkeys(numbers, "VARCHAR"))
    names = scan.choose_columns(csv_table.columns)
    for file in csv_table.files:  # the copy reads empty fields as NULL, so that it misses extra ones
        _refuse_extra_fields(engine, file)
    try:
        engine.execute(create_table(target.copy(), _read_converted(csv_table, names, _convert_exactly)))
    except duckdb.InvalidInputException:
        _refuse_strange_values(engine, csv_table, names)
        raise
    return csv_table.with_types(_convert_number_columns(engine, target, numbers))


def _copy_by_sample(scan: Scan, target: exp.Table) -> CsvTable | None:
    """Copy files with the types of their first rows; None, and no table, where these do not suffice."""
    engine = scan.engine
    csv_table = _sniff_files(scan, sample_size=_SAMPLE_ROWS)
    types_by_file = [{name.lower(): type_ for name, type_ in file.columns.items()} for file in csv_table.files]
    has_same_types = all(types == types_by_file[0] for types in types_by_file)
    if not has_same_types or not {"VARCHAR", *_PLAIN_VALUES}.issuperset(csv_table.columns.values()):
        return None
    names = scan.choose_columns(csv_table.columns)
    query = _read_converted(csv_table, names, _cast_strictly, checks_empty_fields=True)
    engine.execute(create_table(target.copy(), query))
    inferred_texts = [
        name for name in names if csv_table.columns[name] == "VARCHAR" and name.lower() not in scan.text_columns
    ]
    # A column without a value in the first rows has an unknown type.
    first_rows = subquery(select_star(target.copy()).limit(_FIRST_ROWS, copy=False), "f")
    counts = [exp.Count(this=col(name)) for name in inferred_texts]
    if not counts or all(engine.rows(select([*counts], first_rows))[0]):
        return csv_table
    engine.execute(drop_table(target.copy()))
    return None


def _convert_number_columns(engine: DuckDBEngine, target: exp.Table, names: Collection[str]) -> dict[str, str]:
    """Convert columns of texts to numbers, and return their types: the engine would also read 0x10 and 1e400 as
    numbers, and round long ones."""
    values = read_columns(engine, target, {}, undeclared=names)
    if values:
        texts = table(f"{target.name}_texts", target.db, target.catalog)
        engine.execute(create_table(texts.copy(), select_star(target.copy())))
        engine.execute(drop_table(target.copy()))
        engine.execute(create_table(target.copy(), select(projection([*engine.columns(texts)], values), texts.copy())))
        engine.execute(drop_table(texts))
    return {name.lower(): type_ for name, (_, type_) in values.items()}


def _sniff_files(scan: Scan, **sample_size: str | int) -> CsvTable:
    """Detect the layouts of all files: columns are matched by name, and columns of several types are text."""
    section = scan.csv
    reads_marks_from_texts = section.has_number_marks and "decimal_separator" not in sample_size
    files = [sniff_file(scan.engine, path, section, sample_size) for path in scan.paths]
    _refuse_files_without_header(files)
    for file in files:
        refuse_comments_in_rows(scan.engine, file)
        if section.skip is None:
            refuse_lines_above_rows(file)
    refuse_different_columns([(file.path, dict.fromkeys(file.columns)) for file in files])
    for option, type_ in DATE_FORMAT_TYPES.items():
        files = _agree_on_date_format(scan, files, option, type_, sample_size)
    names = {name.lower(): name for name in files[0].columns}
    types = dict(files[0].columns)
    for file in files:
        for name, type_ in file.columns.items():
            # The engine reads numbers with marks as DOUBLE, which may round them.
            is_text = name.lower() in scan.text_columns or (reads_marks_from_texts and type_ in _NUMBER_TYPES)
            if types[names[name.lower()]] != type_ or is_text:
                types[names[name.lower()]] = "VARCHAR"
    return CsvTable(types, files, section)


def _agree_on_date_format(
    scan: Scan, files: list[CsvFile], option: str, type_: str, sample_size: Mapping[str, str | int]
) -> list[CsvFile]:
    """Sniff files again with the one date format that fits all: a 02/13/2026 in one file decides how the 01/02/2026 of
    another is read."""

    def columns_of_type(file: CsvFile) -> set[str]:
        names = {name.lower() for name, column_type in file.columns.items() if column_type == type_}
        return names - {*scan.text_columns}

    common = set.intersection(*map(columns_of_type, files))
    if scan.wanted:  # other columns are read as text, if at all
        common &= {*scan.wanted}
    formats = list(dict.fromkeys(file.options.get(option) for file in files))
    if not common or len(formats) == 1:
        return files
    fitting: list[list[CsvFile]] = []
    for format_ in formats:
        options = sample_size if format_ is None else {**sample_size, option: format_}
        candidates = [sniff_file(scan.engine, file.path, scan.csv, options) for file in files]
        if all(file.options.get(option) == format_ and common <= columns_of_type(file) for file in candidates):
            fitting.append(candidates)
    if len(fitting) == 1:
        return fitting[0]
    differing = next(file for file in files if file.options.get(option) != formats[0])
    first, second = (
        f"{file.name} writes dates as {file.options.get(option, '2026-01-31 23:59:59')}"
        for file in (files[0], differing)
    )
    columns = [repr(name) for name in files[0].columns if name.lower() in common]
    raise SourceError(
        f"source.files: {first}, and {second}, in column{'s' * (len(columns) > 1)} {', '.join(columns)}; write the "
        "dates of all files alike, best as 2026-01-31"
    )


def _read_converted(
    csv_table: CsvTable,
    names: list[str],
    convert: Callable[[str, str, Options], exp.Expr | None],
    checks_empty_fields: bool = False,
) -> exp.Query:
    """Read the rows of all files, those with the same layout together. A column with a conversion is read as text.

    With ``checks_empty_fields`` a line with an extra empty field is an error.
    """
    queries: list[exp.Query] = []
    for files in _group_by_layout(csv_table):
        conversions = {name: convert(name, csv_table.columns[name], files[0].options) for name in names}
        as_text = {name for name, conversion in conversions.items() if conversion is not None}
        columns = {name: "VARCHAR" if name in as_text else type_ for name, type_ in files[0].columns.items()}
        typed = [replace(file, columns=columns) for file in files]
        output: list[exp.Expr] = [as_column(conversion or col(name), name) for name, conversion in conversions.items()]
        queries.append(select(output, _read_texts(typed, names) if checks_empty_fields else read_csv(typed)))
    return union_all(*queries)


def _group_by_layout(csv_table: CsvTable) -> list[list[CsvFile]]:
    """Group files with the same options and order of columns, with the column names and types of the table."""
    names = {name.lower(): name for name in csv_table.columns}
    groups: list[list[CsvFile]] = []
    for file in csv_table.files:
        order = [names[name.lower()] for name in file.columns]
        typed = replace(file, columns={name: csv_table.columns[name] for name in order})
        for group in groups:
            if group[0].options == typed.options and [*group[0].columns] == order:
                group.append(typed)
                break
        else:
            groups.append([typed])
    return groups


def _read_texts(files: Sequence[CsvFile], names: Sequence[str]) -> exp.Expr:
    """Read columns of files as texts. In a file with one column, a blank line is a row."""
    if files[0].has_one_column:
        return read_csv(files)
    missing = [""] if files[0].missing is None else files[0].missing
    unless_missing = fragment("CASE WHEN NOT :column IN (:missing) THEN :column END")
    texts: list[exp.Expr] = [
        as_column(unless_missing(column=col(name), missing=missing) if missing else col(name), name) for name in names
    ]
    return subquery(select(texts, read_csv([file.with_texts() for file in files], nullstr=NO_TEXT)), "texts")


def _cast_strictly(name: str, type_: str, options: Options) -> exp.Expr | None:
    """Cast a text; fail at a value that is not plainly of the type. None for text."""
    if type_ == "VARCHAR":
        return None
    if _date_format(type_, options) is not None:
        return _convert_exactly(name, type_, options)
    is_exact: exp.Expr = exp.true()
    if type_ == "DOUBLE":  # a DOUBLE rounds numbers of more digits
        is_exact = fragment("length(:column) <= :short OR :column::DOUBLE::VARCHAR = :column")(
            column=col(name), short=SHORT_NUMBER
        )
    return fragment("""
        CASE
            WHEN regexp_full_match(:column, :pattern) AND (:is_exact) THEN :value
            WHEN NOT :column IS NULL THEN error('')
        END
    """)(column=col(name), pattern=_PLAIN_VALUES[type_], is_exact=is_exact, value=cast(col(name), type_))


def _convert_exactly(name: str, type_: str, options: Options) -> exp.Expr | None:
    """Cast a text to a date or time; fail at a value that the engine would change. None for other types."""
    read = _read_exactly(name, type_, options)
    if read is None:
        return None
    checked = fragment("CASE WHEN :column IS NULL OR NOT :read IS NULL THEN :read ELSE error('') END")
    return checked(column=col(name), read=read)


def _convert_zones(name: str, type_: str, options: Options) -> exp.Expr | None:
    return _convert_exactly(name, type_, options) if type_ == _ZONED else None


def _read_exactly(name: str, type_: str, options: Options) -> exp.Expr | None:
    """Read a text as a date or time, NULL where the engine would change it; None for other types."""
    if type_ not in _EXACT_VALUES:
        return None
    format_ = _date_format(type_, options)
    if format_ is not None:
        digits = "[0-9]{4}" if "%Y" in format_ else ""  # the engine reads 13/02/20 as the year 20
        return try_cast(
            fragment("CASE WHEN regexp_matches(:column, :digits) THEN try_strptime(:column, :format) END")(
                column=col(name), digits=digits, format=format_
            ),
            type_,
        )
    read = try_cast(without_zone(col(name)), "TIMESTAMP") if type_ == _ZONED else try_cast(col(name), type_)
    return fragment("CASE WHEN regexp_full_match(:column, :pattern) THEN :read END")(
        column=col(name), pattern=_EXACT_VALUES[type_], read=read
    )


def _refuse_strange_values(engine: DuckDBEngine, csv_table: CsvTable, names: list[str]) -> None:
    """Refuse dates and times that the engine would change."""
    for file in csv_table.files:
        spellings = {name.lower(): name for name in file.columns}
        rows = read_csv([replace(file, columns=dict.fromkeys(file.columns, "VARCHAR"))])
        for name in names:
            type_, column = csv_table.columns[name], spellings[name.lower()]
            read = _read_exactly(column, type_, file.options)
            if read is None:
                continue
            query = template("""
                SELECT count(*), min(row)
                FROM (SELECT row_number() OVER () AS row, :column AS value, :read AS read FROM :rows) AS r
                WHERE NOT value IS NULL AND read IS NULL
            """)(column=col(column), read=read, rows=rows)
            count, first = engine.rows(query)[0]
            if not count:
                continue
            values = f"1 value (row {first:,})" if count == 1 else f"{count:,} values (the first in row {first:,})"
            attribute = f"attributes.{toml_key(column)}"
            keys = [f'type = "text" in {attribute} reads them as texts']
            if type_ in ("DATE", "TIMESTAMP"):
                keys.append(f'type = "{type_.lower()}" with format = ... says how all of them are written')
            raise SourceError(
                f"source.files: {file.name}: column {column!r} is read as {type_}, which cannot hold {values} as "
                f"written; correct the file, or decide how it is read: {'; '.join(keys)}"
            )


def _refuse_files_without_header(files: Sequence[CsvFile]) -> None:
    """Refuse several files if any has no header: columns are matched by name, and its names are only positions."""
    names = [file.name for file in files if not file.options["header"]]
    if len(files) > 1 and names:
        more = len(names) - _MAX_LISTED_FILES
        first_names = [*names[:_MAX_LISTED_FILES], *([f"{more:,} more"] if more > 0 else [])]
        verb = "has" if len(names) == 1 else "have"
        raise SourceError(
            f"source.files: {' and '.join(first_names)} {verb} no header line, and the columns of several files are "
            "matched by name; give each file a header line, or name one file"
        )


def _refuse_delimiters_in_one_column(engine: DuckDBEngine, csv_table: CsvTable, target: exp.Table) -> None:
    """Refuse whole lines as values, also below the sampled lines."""
    if len(csv_table.columns) > 1 or csv_table.section.delimiter is not None:
        return
    condition = anonymous("regexp_matches", cast(col(*csv_table.columns), "VARCHAR"), text(r"[,;\t|]"))
    if (row := engine.rows(FIRST_MATCH(rows=target.copy(), condition=condition))[0][0]) is not None:
        raise one_column_error(
            csv_table.files[0], f"row {row:,} has {', '.join(map(csv_lines.delimiter_name, ',;|'))} or a tab"
        )


def _refuse_rows_inside_values(engine: DuckDBEngine, csv_table: CsvTable, target: exp.Table) -> None:
    """Refuse stray quotes around line ends: between them, whole rows become part of one value."""
    # The first check also refuses NUL bytes.
    if not _may_have_line_breaks(engine, csv_table, target) or not 1 < len(csv_table.columns) <= _MAX_PATTERN_FIELDS:
        return
    for file in csv_table.files:
        newline = _newline(file)
        patterns = _patterns_of_rows(str(file.options["delim"]), newline, len(file.columns))
        conditions = [
            fragment("contains(:column, :newline) AND regexp_full_match(:column, :pattern)")(
                column=col(name), newline=newline, pattern=pattern
            )
            for name, pattern in zip(file.columns, patterns, strict=True)
        ]
        rows = read_csv([file.with_texts()])
        row = engine.rows(FIRST_MATCH(rows=rows, condition=exp.or_(*conditions, copy=False)))[0][0]
        if row is not None:
            quote = "'\"'" if file.options["quote"] == '"' else f'"{file.options["quote"]}"'
            raise SourceError(
                f"source.files: {file.name}: a quoted value in row {row:,} has line breaks, and its lines look like "
                "separate rows, which stray quotes would make one value; correct the quotes, or confirm them: "
                f"quote = {quote} under [source.csv]"
            )


def _may_have_line_breaks(engine: DuckDBEngine, csv_table: CsvTable, target: exp.Table) -> bool:
    """Whether values may have line breaks: not where files have as many lines as rows. Refuses NUL bytes."""
    if not all(csv_lines.can_open(file.path) for file in csv_table.files):
        has_line_break = fragment("contains(:column, chr(10)) OR contains(:column, chr(13))")
        texts = [name for name, type_ in engine.columns(target).items() if type_ == "VARCHAR"]
        query = template("SELECT count(*) > 0 FROM (SELECT 1 FROM :rows WHERE :condition LIMIT 1) AS r")
        condition = exp.or_(exp.false(), *(has_line_break(column=col(name)) for name in texts), copy=False)
        return bool(engine.rows(query(rows=target, condition=condition))[0][0])
    lines, may_quote = 0, False
    for file in csv_table.files:
        facts = csv_lines.search_bytes(file.path, str(file.options["quote"] or '"'), _newline(file))
        if facts.has_null:
            refuse_broken_lines(engine, file.path, csv_table.section, file)
        may_quote = may_quote or facts.lines is not None
        lines_above = int(file.options["skip"]) + bool(file.options["header"])
        lines += facts.lines - lines_above if facts.lines is not None else 0
    if not may_quote or csv_table.section.quote is not None:
        return False
    return bool(lines != engine.rows(row_count(rows=target.copy()))[0][0])


def _newline(file: CsvFile) -> str:
    return "\r" if file.options.get("new_line") == "\\r" else "\n"


def _patterns_of_rows(delimiter: str, newline: str, fields: int) -> Iterator[str]:
    """For each field, the pattern of its value if each line of its record is a separate row: the fields after it,
    any whole lines, and the fields before it. With two fields, ordinary texts match unless a whole line is required."""
    end, any_text = re.escape(delimiter), f"[^{newline}{re.escape(delimiter)}]*"
    whole_lines = f"({any_text}({end}{any_text}){{{fields - 1}}}{newline}){'+' if fields == 2 else '*'}"
    for i in range(fields):
        yield f"{any_text}({end}{any_text}){{{fields - 1 - i}}}{newline}{whole_lines}({any_text}{end}){{{i}}}{any_text}"


def _refuse_points_between_thousands(engine: DuckDBEngine, csv_table: CsvTable, target: exp.Table) -> None:
    """Refuse numbers such as 12.345 where all are like that, and semicolons suggest that commas are decimal marks."""
    if not csv_table.may_have_thousands:
        return
    names = [name for name in engine.columns(target) if csv_table.columns.get(name) == "DOUBLE"]
    may_be_thousands = fragment("""
        coalesce(bool_and(abs(:column) < 1000 AND abs(:column * 1000 - round(:column * 1000)) < 1e-6), false)
        AND coalesce(bool_and(:column = 0 OR abs(:column) >= 1), false)
    """)
    figures = [may_be_thousands(column=col(name)) for name in names]
    are_likely = engine.rows(select(figures, target.copy()))[0] if names else ()
    for name in (name for name, is_likely in zip(names, are_likely, strict=True) if is_likely):
        texts = [select([as_column(col(name), "value")], read_csv([file.with_texts()])) for file in csv_table.files]
        query = template("""
            SELECT
                count(*) FILTER (WHERE contains(value, '.')) AS with_points,
                count(*) FILTER (
                    WHERE NOT regexp_full_match(value, ' *([-+]?[1-9][0-9]{0,2}([.][0-9]{3})?|0?) *')
                ) AS other_spellings
            FROM :texts
        """)(texts=subquery(union_all(*texts), "t"))
        with_points, other_spellings = engine.rows(query)[0]
        if with_points and not other_spellings:
            raise thousands_error(name)
