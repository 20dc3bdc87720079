"""CSV files: how to read them.

The engine's sniffer says how a file is written; then everything is spelled out, so that a column of codes
(02139) stays text, and so that the names in the file are seen before anything renames them. Each of several files is
read with its own options: the engine drops rows without an error where the new lines, or the lines above the header,
are those of another file.

To sniff a whole file takes longer than to read it. So the first rows tell the types, and the one pass that copies a
file holds every value against them. Where one does not fit (a late 1.5 in a column of whole numbers would be rounded
in silence, a late 02139 would lose its zero), the files are sniffed as a whole and read again: the answer is the same.

The engine's own casts change some dates: of ``2020-01-01 00:00:00 foo`` they drop the word. A value that they would
change is refused with its place.

The sniffer reads a file as one column of whole lines where any line is broken. So a file of one column whose lines
have a delimiter is refused, and so is each line with another number of fields than the header. The engine takes an
empty field too many for none, unless NULL has another spelling (`_NO_TEXT`); its versions before 2.0 always do, and
there the lines are parsed again where any ends in a delimiter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from sqlanon.sources import csv_lines
from sqlanon.sources.bad_lines import DroppedLines, UnclearLinesError, copy_good_lines, read_good_records
from sqlanon.sources.csv_text import copy_path, describe_bad_byte, readable_files
from sqlanon.sources.tabular import refuse_ambiguous_names, refuse_different_columns
from sqlanon.sources.typed_columns import SHORT_NUMBER, ZONE, projection, read_columns, thousands_error, without_zone
from sqlanon.support.expressions import (
    anonymous,
    cast,
    col,
    create_table,
    drop_table,
    fragment,
    ident,
    is_there,
    literal_path,
    named,
    select,
    star,
    subquery,
    table,
    template,
    text,
    union_all,
)
from sqlanon.support.toml import toml_key
from sqlanon.support.workdir import spill_directory

_WHOLE_FILE = -1
_SAMPLE = 4096  # rows: to sniff more takes longer than to read a small file
_FIRST = 2048  # rows that are surely in the sample

_INTEGER = "-?(0|[1-9][0-9]{0,%d})"
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?"
_PLAIN = {
    "BOOLEAN": "(?i)true|false",
    "BIGINT": _INTEGER % 17,
    "HUGEINT": _INTEGER % 36,
    "DOUBLE": _INTEGER % 300 + "([.][0-9]+([eE][-+]?[0-9]{1,2})?|[eE][-+][0-9]{1,2})?",
    "DATE": _DAY,
    "TIME": _CLOCK,
    "TIMESTAMP": f"{_DAY}([ T]{_CLOCK})?",
}
"""How values of a type are spelled that are of it wherever they stand in a file. There are other spellings, too."""


_ZONED = "TIMESTAMP WITH TIME ZONE"
_DAY_READ = "[0-9]{4,6}[-/][0-9]{1,2}[-/][0-9]{1,2}"
_CLOCK_READ = "[0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]{1,6}0{0,3})?)?"
_READ_EXACTLY = {
    "DATE": f" *({_DAY_READ}|-?infinity) *",
    "TIME": f" *{_CLOCK_READ} *",
    "TIMESTAMP": f" *({_DAY_READ}([ T]+{_CLOCK_READ}( ?UTC|Z|[+]00(:?00)?)?)?|-?infinity) *",
    _ZONED: f" *{_DAY_READ}[ T]+{_CLOCK_READ}{ZONE} *",
}
"""How values of a type are spelled that the engine's cast keeps, those with a zone without it. It drops words, offsets
and BC of others."""

_FORMATS = {"dateformat": "DATE", "timestampformat": "TIMESTAMP"}  # the types that these options are for

_MOST_FILES = 3  # that an error names
_MOST_TITLES = 3  # lines above the header
_SCANNED_LINES = 20_480  # that types follow from where no row is read
_NO_DELIMITER = "\x1f"  # a line is then one value
_COMMENTS_IN_ROWS = template("""
    SELECT count(*)
    FROM :lines
    WHERE CASE WHEN starts_with(line, :comment) THEN length(string_split(line, :delimiter)) >= :fields
        -- the parts of the line that are not quoted
        ELSE contains(array_to_string(list_slice(string_split(line, :quote), 1, -1, 2), ''), :comment) END
""")

_HAS_TEXT = template("""
    SELECT count(*) > 0
    FROM (SELECT 1 FROM :lines WHERE regexp_matches(line, '[^\\s\ufeff]') LIMIT 1) AS l
""")

_STRANGE_VALUES = template("""
    SELECT count(*), min(row)
    FROM (SELECT row_number() OVER () AS row, :column AS value, :read AS read FROM :rows) AS r
    WHERE NOT value IS NULL AND read IS NULL
""")
_IF_FULL_MATCH = fragment("CASE WHEN regexp_full_match(:column, :spelling) THEN :read END")
_IF_MATCH = fragment("CASE WHEN regexp_matches(:column, :digits) THEN :read END")
_IN_FORMAT = fragment("try_strptime(:column, :format)")
_MAY_BE_THOUSANDS = fragment("""
    coalesce(bool_and(abs(:column) < 1000 AND abs(:column * 1000 - round(:column * 1000)) < 1e-6), false)
    AND coalesce(bool_and(:column = 0 OR abs(:column) >= 1), false)
""")
_OTHER_NUMBERS = template("""
    SELECT
        count(*) FILTER (WHERE NOT regexp_full_match(value, ' *([-+]?[1-9][0-9]{0,2}([.][0-9]{3})?|0?) *')),
        count(*) FILTER (WHERE contains(value, '.'))
    FROM :texts
""")
_ERROR = fragment("error('')")
_OR_ERROR = fragment("CASE WHEN :column IS NULL OR NOT :read IS NULL THEN :read ELSE error('') END")

_NO_TEXT = "\x1fnothing\x1e"  # that no value is spelled like
_FINDS_EXTRA_DELIMITERS = int(duckdb.__version__.split(".")[0]) >= 2
_IS_SHOWN_AGAIN = fragment("length(:column) <= :short OR :column::DOUBLE::VARCHAR = :column")
_IF_ANY_TEXT = fragment("nullif(:column, '')")
_UNLESS_MISSING = fragment("CASE WHEN NOT :column IN (:missing) THEN :column END")
_COUNT = template("SELECT count(*) FROM :rows")
_STRAY_BACKSLASH = fragment(r"""contains(replace(replace(line, '\\', ''), :quoted, ''), '\')""")
_HAS_LINE_BREAK = fragment("contains(:column, :newline)")
_LOOKS_LIKE_ROWS = fragment("contains(:column, :newline) AND regexp_full_match(:column, :pattern)")
_FIRST_MATCH = template("""
    SELECT min(row)
    FROM (SELECT row_number() OVER () AS row, :condition AS is_match FROM :rows) AS r
    WHERE is_match
""")
_IS_COMMENT = fragment("starts_with(line, :comment) AND length(string_split(line, :delimiter)) <> :fields")
_ANY_MATCH = template("SELECT count(*) > 0 FROM (SELECT 1 FROM :rows WHERE :condition LIMIT 1) AS r")
_LONGEST_PATTERN = 500  # fields: the engine's patterns repeat a part at most 1,000 times

_NUMBERS = ("BIGINT", "HUGEINT", "BIGNUM", "DOUBLE")

Options = Mapping[str, str | bool | int]


DETECTED = CsvSection()
"""All is detected."""


@dataclass(frozen=True)
class CsvFile:
    path: str
    options: Options  # the arguments of ``read_csv``
    columns: Mapping[str, str]  # the type of each column by its name, in order
    missing: Sequence[str] | None = None  # the texts that mean NULL; None: the empty text


@dataclass(frozen=True)
class Layout:
    columns: Mapping[str, str]  # of all files: the type of each column by its name, in the order of the first file
    files: Sequence[CsvFile]
    section: CsvSection = DETECTED  # what the policy says
    copied: Sequence[str] = ()  # the columns that were copied
    dropped: Sequence[DroppedLines] = ()  # by file, what was left out of it

    @property
    def may_have_thousands(self) -> bool:
        """Whether semicolons show that commas may be decimal marks, and points stand between thousands."""
        return not self.section.has_number_marks and all(file.options["delim"] == ";" for file in self.files)


class _BrokenLinesError(SourceError):
    """Some lines of a file are unlike its first one, as it is parsed."""

    def __init__(self, message: str, layout: csv_lines.Layout | None) -> None:
        super().__init__(message)
        self.layout = layout


@dataclass(frozen=True)
class _Reader:
    """What files are read for, and how."""

    engine: DuckDBEngine
    paths: Sequence[str]
    text_columns: Collection[str]
    wanted: Collection[str]
    section: CsvSection


def copy_csv(
    engine: DuckDBEngine,
    paths: list[str],
    text_columns: Collection[str],
    wanted: Collection[str],
    target: exp.Table,
    known: CsvSection = DETECTED,
) -> Layout:
    """Copy CSV files with the same columns to a table, in one pass if their first rows are like the others.

    Where no value of the first rows is quoted, ``"`` is taken for the quote: a later ``'x'`` keeps its apostrophes.
    Columns that are not wanted are copied where the engine cannot read the files themselves again.
    """
    with readable_files(paths, known) as texts, _without_bad_lines(engine, texts, known) as (readable, found):
        originals = dict(zip(texts, paths, strict=True))
        dropped = [replace(lines, path=originals[lines.path]) for lines in found]
        reader = _Reader(engine, readable, text_columns, wanted if readable == paths else (), known)
        try:
            layout = _copy_rows(reader, target)
        except duckdb.InvalidInputException:
            for path in readable:
                _refuse_broken_lines(engine, path, known)
            for path in readable:
                _refuse_unreadable_lines(engine, path, is_alone=len(readable) == 1)
            raise
        _refuse_delimiters_in_one_column(engine, layout, target)
        _refuse_rows_inside_values(engine, layout, target)
        _refuse_points_between_thousands(engine, layout, target)
        for file in layout.files:
            _refuse_last_lines(file, known)
        if not _FINDS_EXTRA_DELIMITERS:
            for file in layout.files:
                _refuse_extra_delimiters(engine, file, known)
    return replace(layout, copied=_wanted(layout, reader.wanted), dropped=dropped)


@contextmanager
def _without_bad_lines(
    engine: DuckDBEngine, paths: list[str], known: CsvSection, read_lines: int | None = None
) -> Iterator[tuple[list[str], Sequence[DroppedLines]]]:
    """The paths of files; of files with bad lines, where the policy drops them, those of copies of their other lines.

    Of so many lines of each file, if not of all of them.
    """
    if known.on_bad_line != "drop":
        yield paths, ()
        return
    with ExitStack() as stack:
        folder = None
        readable, dropped = list[str](), list[DroppedLines]()
        for i, path in enumerate(paths):
            layout = _layout_of_bad_lines(engine, path, known, read_lines is None)
            if layout is not None:
                folder = folder or stack.enter_context(spill_directory())
                copy = str(copy_path(folder, i, path))
                lines = _copy_good_lines(engine, path, layout, known, copy, read_lines)
                if lines.count:
                    dropped.append(replace(lines, path=path))
                    readable.append(copy)
                    continue
            readable.append(path)
        yield readable, dropped


def _layout_of_bad_lines(
    engine: DuckDBEngine, path: str, known: CsvSection, reads_rows: bool
) -> csv_lines.Layout | None:
    """How a file is parsed that may have bad lines; None where it has none. It has some where it would be refused."""
    file = None
    try:
        file = _sniff(engine, path, known, {"sample_size": _SAMPLE, **_number_options(known)})
        if reads_rows:
            engine.rows(_COUNT(rows=_read([_as_text(file)], nullstr=_NO_TEXT)))
            if not _FINDS_EXTRA_DELIMITERS:
                _refuse_extra_delimiters(engine, file, known)
            if not csv_lines.can_open(path) or csv_lines.describe_null_byte(path) is None:
                return None
    except _BrokenLinesError as error:
        return error.layout
    except duckdb.InvalidInputException:
        pass
    if file is not None and len(file.columns) > 1:
        return _lines_layout(file)
    return csv_lines.guess_layout(_open_lines(engine, path), known)


def _copy_good_lines(
    engine: DuckDBEngine,
    path: str,
    layout: csv_lines.Layout,
    known: CsvSection,
    copy: str,
    read_lines: int | None,
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
    is_known = known.quote is not None
    try:
        with Path(copy).open("w", encoding="utf-8", newline="") as target:
            lines = copy_good_lines(csv_lines.read_lines(path), layout, target, name, is_known, read_lines)
    except UnclearLinesError as error:
        raise SourceError(f"source.files: {name}: {error}") from None
    if lines.count > lines.rows:
        flaw = csv_lines.describe_broken_lines(_open_lines(engine, path), layout)
        raise SourceError(f'source.files: {name}: {flaw}; with on_bad_line = "drop", most lines would be dropped')
    if lines.count:
        file = _sniff(engine, copy, known, {"sample_size": _SAMPLE, **_number_options(known)})
        if len(file.columns) != lines.fields or not _lines_layout(file).is_like(layout):
            raise SourceError(
                f"source.files: {lines.message}; the other lines look as if they had another delimiter or other "
                "quotes: set delimiter and quote under [source.csv]"
            )
    return lines


def _copy_rows(reader: _Reader, target: exp.Table) -> Layout:
    engine = reader.engine
    try:
        layout = _copy_by_sample(reader, target)
    except (duckdb.ConversionException, duckdb.InvalidInputException):
        layout = None  # the first rows misled, or the files are broken: then the sniffer knows more
    if layout is None:
        layout = _sniff_files(reader, sample_size=_WHOLE_FILE)
        numbers = {name.lower() for name, type_ in layout.columns.items() if type_ in _NUMBERS}
        layout = _with_types(layout, dict.fromkeys(numbers, "VARCHAR"))
        names = _wanted(layout, reader.wanted)
        for file in layout.files:  # below, the engine reads numbers, and NULL where a field is empty
            engine.rows(_COUNT(rows=_read([_as_text(file)], nullstr=_NO_TEXT)))
        try:
            engine.execute(create_table(target.copy(), _converted(layout, names, _convert_exactly)))
        except duckdb.InvalidInputException:
            _refuse_strange_values(engine, layout, names)
            raise
        layout = _with_types(layout, _read_numbers(engine, target, numbers))
    return layout


def _with_types(layout: Layout, types: Mapping[str, str]) -> Layout:
    """A layout whose columns have other types, by their names in lower case."""
    return replace(layout, columns={name: types.get(name.lower(), type_) for name, type_ in layout.columns.items()})


def _read_numbers(engine: DuckDBEngine, target: exp.Table, numbers: Collection[str]) -> dict[str, str]:
    """Read the numbers in columns of texts: the engine takes 0x10 and 1e400 for numbers, and rounds long ones. Returns
    the types of these columns."""
    values = read_columns(engine, target, {}, undeclared=numbers)
    if values:
        texts = table(f"{target.name}_texts", target.db, target.catalog)
        engine.execute(create_table(texts.copy(), star(target.copy())))
        engine.execute(drop_table(target.copy()))
        engine.execute(create_table(target.copy(), select(projection([*engine.columns(texts)], values), texts.copy())))
        engine.execute(drop_table(texts))
    return {name.lower(): type_ for name, (_, type_) in values.items()}


def find_values(
    engine: DuckDBEngine, paths: list[str], layout: Layout, column: str, values: Collection[str], most: int
) -> list[tuple[str, str]]:
    """The first lines of CSV files that have one of some values in a column, each with its value."""
    places: list[tuple[str, str]] = []
    with readable_files(paths, layout.section) as readable:
        for path, file in zip(readable, layout.files, strict=True):
            i = [name.lower() for name in file.columns].index(column.lower())
            lines, lines_layout = _open_lines(engine, path)(None), _lines_layout(file)
            records = (
                read_good_records(lines, lines_layout, layout.section.quote is not None)
                if layout.dropped
                else lines_layout.records(lines)
            )
            for record in islice(records, int(bool(file.options["header"])), None):
                if i < len(record.fields) and (value := record.fields[i]) in values:
                    name = f"{file_name(path)}, " if len(paths) > 1 else ""
                    places.append((f"{name}line {record.line:,}", value))
                    if len(places) == most:
                        return places
    return places


def date_formats(layout: Layout) -> dict[str, str]:
    """The columns that the engine reads as dates or timestamps in a format of its own, with that format."""
    return {
        name: format_
        for file in layout.files
        for name, type_ in layout.columns.items()
        if (format_ := _format_of(type_, file.options)) is not None
    }


def read_every_column(layout: Layout) -> exp.Query | None:
    """The query that reads CSV files again with all columns, those that were not copied as text; None where all were
    copied."""
    if len(layout.copied) == len(layout.columns):
        return None
    types = {name: type_ if name in layout.copied else "VARCHAR" for name, type_ in layout.columns.items()}
    return _converted(replace(layout, columns=types), list(types), _convert_exactly)


def scan_csv(
    engine: DuckDBEngine, paths: list[str], text_columns: Collection[str], known: CsvSection = DETECTED
) -> tuple[exp.Query, Sequence[DroppedLines]]:
    """The query that would read CSV files, by their first rows alone: it is for its columns."""
    with (
        readable_files(paths, known, _SCANNED_LINES) as texts,
        _without_bad_lines(engine, texts, known, _SCANNED_LINES) as (readable, dropped),
    ):
        layout = _sniff_files(_Reader(engine, readable, text_columns, (), known), **_number_options(known))
        if readable == paths:
            return _converted(layout, list(layout.columns), _convert_zones), dropped
    types = {name: "TIMESTAMP" if type_ == _ZONED else type_ for name, type_ in layout.columns.items()}
    nulls = [named(cast(exp.null(), type_), name) for name, type_ in types.items()]
    return exp.select(*nulls).where(exp.false()), dropped


def _copy_by_sample(reader: _Reader, target: exp.Table) -> Layout | None:
    """As `copy_csv`, by the first rows; None, and no table, where they do not tell enough."""
    engine, text_columns = reader.engine, reader.text_columns
    layout = _sniff_files(reader, sample_size=_SAMPLE)
    same_types = all(_by_lower(file.columns) == _by_lower(layout.files[0].columns) for file in layout.files)
    if not same_types or not {"VARCHAR", *_PLAIN}.issuperset(layout.columns.values()):
        return None
    names = _wanted(layout, reader.wanted)
    engine.execute(create_table(target.copy(), _converted(layout, names, _convert_plainly, are_texts=True)))
    free = [name for name in names if layout.columns[name] == "VARCHAR" and name.lower() not in text_columns]
    if _have_values(engine, target, free):
        return layout
    engine.execute(drop_table(target.copy()))
    return None


def _wanted(layout: Layout, wanted: Collection[str]) -> list[str]:
    return [name for name in layout.columns if name.lower() in wanted] or list(layout.columns)


def _converted(
    layout: Layout,
    names: list[str],
    convert: Callable[[str, str, Options], exp.Expr | None],
    are_texts: bool = False,
) -> exp.Query:
    """The rows of all files, those that are written alike read together. A column with a conversion is read as text.

    Where all columns are texts, a line with an extra empty field is an error, too.
    """
    queries: list[exp.Query] = []
    for files in _alike(layout):
        conversions = {name: convert(name, layout.columns[name], files[0].options) for name in names}
        as_text = {name for name, conversion in conversions.items() if conversion is not None}
        columns = {name: "VARCHAR" if name in as_text else type_ for name, type_ in files[0].columns.items()}
        typed = [replace(file, columns=columns) for file in files]
        output: list[exp.Expr] = [named(conversion or col(name), name) for name, conversion in conversions.items()]
        queries.append(select(output, _read_texts(typed, names) if are_texts else _read(typed)))
    return union_all(*queries)


def _read_texts(files: Sequence[CsvFile], names: Sequence[str]) -> exp.Expr:
    """Some columns of files as texts. A blank line of a file with one column is a row."""
    if len(files[0].columns) == 1:
        return _read(files)
    texts: list[exp.Expr] = [named(_null_if_missing(files[0], name), name) for name in names]
    return subquery(select(texts, _read([_as_text(file) for file in files], nullstr=_NO_TEXT)), "texts")


def _null_if_missing(file: CsvFile, name: str) -> exp.Expr:
    if file.missing is None:
        return _IF_ANY_TEXT(column=col(name))
    codes = [text(code) for code in file.missing]
    return _UNLESS_MISSING(column=col(name), missing=codes) if codes else col(name)


def _as_text(file: CsvFile) -> CsvFile:
    options = {name: value for name, value in file.options.items() if name not in _FORMATS}
    return replace(file, options=options, columns=dict.fromkeys(file.columns, "VARCHAR"))


def _convert_plainly(name: str, type_: str, options: Options) -> exp.Expr | None:
    """The cast of a text, which fails at a value that is not plainly of its type; None for text."""
    if type_ == "VARCHAR":
        return None
    if _format_of(type_, options) is not None:
        return _convert_exactly(name, type_, options)
    plain: exp.Expr = anonymous("regexp_full_match", col(name), text(_PLAIN[type_]))
    if type_ == "DOUBLE":  # of more digits it may be another number
        plain = exp.and_(plain, exp.Paren(this=_IS_SHOWN_AGAIN(column=col(name), short=exp.convert(SHORT_NUMBER))))
    cases = [exp.If(this=plain, true=cast(col(name), type_)), exp.If(this=is_there(col(name)), true=_ERROR())]
    return exp.Case(ifs=cases)


def _convert_exactly(name: str, type_: str, options: Options) -> exp.Expr | None:
    """The cast of a text to a date or time, which fails at a value that the engine would change; None for other
    types."""
    read = _read_exactly(name, type_, options)
    return None if read is None else _OR_ERROR(column=col(name), read=read)


def _convert_zones(name: str, type_: str, options: Options) -> exp.Expr | None:
    return _convert_exactly(name, type_, options) if type_ == _ZONED else None


def _read_exactly(name: str, type_: str, options: Options) -> exp.Expr | None:
    """A text as a date or time, NULL where the engine would change it; None for other types."""
    if type_ not in _READ_EXACTLY:
        return None
    format_ = _format_of(type_, options)
    if format_ is None:
        read = _try_cast(without_zone(col(name)), "TIMESTAMP") if type_ == _ZONED else _try_cast(col(name), type_)
        return _IF_FULL_MATCH(column=col(name), spelling=text(_READ_EXACTLY[type_]), read=read)
    digits = "[0-9]{4}" if "%Y" in format_ else ""  # the engine takes 13/02/20 for the year 20
    read = _try_cast(_IN_FORMAT(column=col(name), format=text(format_)), type_)
    return _IF_MATCH(column=col(name), digits=text(digits), read=read)


def _try_cast(value: exp.Expr, type_: str) -> exp.Expr:
    return exp.TryCast(this=value, to=exp.DataType.build(type_, dialect="duckdb"))


def _format_of(type_: str, options: Options) -> str | None:
    return next(
        (str(options[option]) for option, kind in _FORMATS.items() if kind == type_ and option in options), None
    )


def _refuse_strange_values(engine: DuckDBEngine, layout: Layout, names: list[str]) -> None:
    for file in layout.files:
        spelled = {name.lower(): name for name in file.columns}
        rows = _read([replace(file, columns=dict.fromkeys(file.columns, "VARCHAR"))])
        for name in names:
            type_, column = layout.columns[name], spelled[name.lower()]
            read = _read_exactly(column, type_, file.options)
            if read is None:
                continue
            count, first = engine.rows(_STRANGE_VALUES(column=col(column), read=read, rows=rows.copy()))[0]
            if count:
                raise SourceError(_describe_strange_values(file, column, type_, count, first))


_DAYS = ("DATE", "TIMESTAMP")


def _describe_strange_values(file: CsvFile, column: str, type_: str, count: int, first: int) -> str:
    values = f"1 value (row {first:,})" if count == 1 else f"{count:,} values (the first in row {first:,})"
    place = f"attributes.{toml_key(column)}"
    keys = [f'type = "text" in {place} reads them as texts']
    if type_ in _DAYS:
        keys.append(f'type = "{type_.lower()}" with format = ... says how all of them are written')
    return (
        f"source.files: {file_name(file.path)}: column {column!r} is read as {type_}, which cannot hold {values} as "
        f"written; correct the file, or decide how it is read: {'; '.join(keys)}"
    )


def _have_values(engine: DuckDBEngine, target: exp.Table, names: list[str]) -> bool:
    """Whether each column has a value in the first rows: where it has none, they tell nothing of its type."""
    if not names:
        return True
    first = star(target.copy()).limit(_FIRST, copy=False)
    counts = engine.rows(select([exp.Count(this=col(name)) for name in names], subquery(first, "f")))[0]
    return all(counts)


def _sniff_files(reader: _Reader, **sample_size: str | int) -> Layout:
    """The layout of all files: columns are matched by name, and those of several types are text."""
    engine, text_columns = reader.engine, reader.text_columns
    marks = reader.section.has_number_marks and "decimal_separator" not in sample_size
    files = [_sniff(engine, path, reader.section, sample_size) for path in reader.paths]
    _refuse_files_without_header(files)
    for file in files:
        _refuse_comments_in_rows(engine, file)
        if reader.section.skip is None:
            _refuse_lines_above_rows(file)
    refuse_different_columns([(file.path, dict.fromkeys(file.columns)) for file in files])
    for option, type_ in _FORMATS.items():
        files = _agree_on_format(reader, files, option, type_, sample_size)
    names = {name.lower(): name for name in files[0].columns}
    types = dict(files[0].columns)
    for file in files:
        for name, type_ in file.columns.items():
            # Of numbers with marks the engine makes floating-point numbers: they are read from their texts.
            is_text = name.lower() in text_columns or (marks and type_ in _NUMBERS)
            if types[names[name.lower()]] != type_ or is_text:
                types[names[name.lower()]] = "VARCHAR"
    return Layout(types, files, reader.section)


def _agree_on_format(
    reader: _Reader, files: list[CsvFile], option: str, type_: str, sample_size: Mapping[str, str | int]
) -> list[CsvFile]:
    """The files, sniffed again with the one format of dates that fits them all: the 01/02/2026 of one file has the
    meaning that the 02/13/2026 of another file shows."""

    def columns_of_type(file: CsvFile) -> set[str]:
        return {name.lower() for name, kind in file.columns.items() if kind == type_} - {*reader.text_columns}

    common = set.intersection(*map(columns_of_type, files))
    if reader.wanted:  # others are read as text, if at all
        common &= {*reader.wanted}
    formats = list(dict.fromkeys(file.options.get(option) for file in files))
    if not common or len(formats) == 1:
        return files
    fitting: list[list[CsvFile]] = []
    for format_ in formats:
        given = {} if format_ is None else {option: format_}
        again = [_sniff(reader.engine, file.path, reader.section, {**sample_size, **given}) for file in files]
        if all(file.options.get(option) == format_ and common <= columns_of_type(file) for file in again):
            fitting.append(again)
    if len(fitting) == 1:
        return fitting[0]
    other = next(file for file in files if file.options.get(option) != formats[0])
    raise SourceError(
        f"source.files: {_format_in(files[0], option)}, and {_format_in(other, option)}, in "
        f"{_columns_in(files[0], common)}; write the dates of all files alike, best as 2026-01-31"
    )


def _format_in(file: CsvFile, option: str) -> str:
    return f"{file_name(file.path)} writes dates as {file.options.get(option, '2026-01-31 23:59:59')}"


def _columns_in(file: CsvFile, names: Collection[str]) -> str:
    """Columns as a file spells them."""
    columns = [repr(name) for name in file.columns if name.lower() in names]
    return f"column{'s' * (len(columns) > 1)} {', '.join(columns)}"


def _by_lower(columns: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): type_ for name, type_ in columns.items()}


def _alike(layout: Layout) -> list[list[CsvFile]]:
    """The files with the columns of the layout, by their options and by the order of their columns."""
    names = {name.lower(): name for name in layout.columns}
    groups: list[list[CsvFile]] = []
    for file in layout.files:
        order = [names[name.lower()] for name in file.columns]
        typed = replace(file, columns={name: layout.columns[name] for name in order})
        for group in groups:
            if group[0].options == typed.options and [*group[0].columns] == order:
                group.append(typed)
                break
        else:
            groups.append([typed])
    return groups


def _sniff(engine: DuckDBEngine, path: str, known: CsvSection, options: Options) -> CsvFile:
    """How a file is written: as the policy says, and else as the sniffer does, unless it takes whole lines for the
    values of one column, or passes over lines that have a delimiter. Then the delimiter that splits most lines is the
    right one, if it splits all."""
    options = {**options, **_known_options(known)}
    file = _run_sniffer(engine, path, known, options)
    if file.options["comment"] and not _has_comments(engine, file):
        options["comment"] = ""
        file = _run_sniffer(engine, path, known, options)
    if len(file.columns) <= 1:
        _refuse_blank_file(engine, file)
    open_lines = _open_lines(engine, path)
    if (found := _find_delimiter_outside_rows(file, known, open_lines)) is not None:
        _refuse_broken_lines(engine, path, known)
        layout = csv_lines.guess_layout(open_lines, known)
        if layout is None:
            raise _one_column_error(file, f"line {found[0]:,} has {csv_lines.delimiter_name(found[1])}")
        likely: Options = {
            "delim": layout.delimiter,
            "skip": layout.skip,
            "quote": layout.quote,
            "escape": layout.quote,
        }
        file = _run_sniffer(engine, path, known, {**options, **likely})
    if len(file.columns) <= 1 and known.delimiter is None:
        _refuse_other_separators(file, open_lines)
    if known.skip is None:
        _refuse_titles(file, open_lines)
    if known.delimiter is None:
        _refuse_other_delimiters(file, open_lines)
    if file.options["header"]:
        return _with_written_names(engine, file, known)
    if known.header is None and csv_lines.may_be_header(_lines_layout(file), open_lines):
        line = int(file.options["skip"]) + 1
        raise SourceError(
            f"source.files: {file_name(path)}: line {line:,} may be the header or a row of the data; set header = "
            "true or header = false under [source.csv]"
        )
    return file


def _find_delimiter_outside_rows(
    file: CsvFile, known: CsvSection, open_lines: csv_lines.Lines
) -> tuple[int, str] | None:
    """The first delimiter in lines that the sniffer takes for one value each, or that it passes over."""
    skip = int(file.options["skip"])
    if len(file.columns) <= 1 and known.delimiter is None:
        return csv_lines.find_delimiter(open_lines(csv_lines.SAMPLED_LINES))
    if len(file.columns) > 1 and skip != (known.skip or 0):
        return csv_lines.find_delimiter(islice(open_lines(skip), known.skip or 0, None))
    return None


def _known_options(known: CsvSection) -> dict[str, str | bool | int]:
    """What a policy says, as arguments of the sniffer."""
    written = {"delim": known.delimiter, "quote": known.quote, "header": known.header, "skip": known.skip}
    given: dict[str, str | bool | int] = {name: value for name, value in written.items() if value is not None}
    return given | ({} if known.quote is None else {"escape": known.quote})


def _missing_option(missing: Sequence[str] | None) -> list[exp.Expr]:
    """The argument of the engine's readers for texts that mean NULL."""
    if missing is None:
        return []
    return [exp.Var(this="nullstr").eq(exp.Array(expressions=[text(code) for code in missing or (_NO_TEXT,)]))]


def _number_options(known: CsvSection) -> dict[str, str | int]:
    """What a policy says of numbers, as arguments of the sniffer: for the types that they have before rows are read."""
    if not known.has_number_marks:
        return {}
    thousands = {} if known.thousands is None else {"thousands": known.thousands}
    return {"decimal_separator": known.decimal or ".", **thousands}


def _run_sniffer(engine: DuckDBEngine, path: str, known: CsvSection, options: Options) -> CsvFile:
    call = anonymous("sniff_csv", literal_path(path), *_named_arguments(options), *_missing_option(known.missing))
    names = (
        "Delimiter", "Quote", "Escape", "NewLineDelimiter", "Comment", "SkipRows", "HasHeader", "Columns",
        "DateFormat", "TimestampFormat",
    )  # fmt: skip
    query = select([exp.Column(this=ident(name)) for name in names], exp.Table(this=call))
    delimiter, quote, escape, newline, comment, skip, header, columns, date, timestamp = engine.rows(query)[0]
    written: dict[str, str | bool | int] = {
        "delim": delimiter, "comment": _given(comment), "skip": int(skip), "header": bool(header),
        "quote": (_given(quote) or '"') if known.quote is None else known.quote,  # there may be quotes later
    }  # fmt: skip
    written["escape"] = (_given(escape) if known.quote is None else "") or written["quote"]
    if written["escape"] != written["quote"] and "escape" not in options:
        return _sniff_quotes(engine, path, known, {**options, "delim": delimiter}, written)
    if newline in ("\\n", "\\r\\n", "\\r"):
        written["new_line"] = newline
    written |= {name: value for name, value in (("dateformat", date), ("timestampformat", timestamp)) if value}
    file = CsvFile(path, written, {column["name"]: column["type"] for column in columns}, known.missing)
    is_nameless = bool(header) and [*file.columns] == _generated_names(file)
    if known.header is None or (known.header == bool(header) and not is_nameless):
        return file
    return _with_known_header(engine, file, known.header)


def _sniff_quotes(engine: DuckDBEngine, path: str, known: CsvSection, options: Options, guess: Options) -> CsvFile:
    """A file in which the sniffer takes a character for one that stands before quotes. The engine drops it wherever it
    stands, so that is what it is only where the file cannot be read with doubled quotes, and only a backslash."""
    quote = guess["quote"]
    try:
        return _run_sniffer(engine, path, known, {**options, "quote": quote, "escape": quote})
    except duckdb.InvalidInputException:
        if guess["escape"] != "\\":
            raise
    file = _run_sniffer(engine, path, known, {**options, "quote": quote, "escape": guess["escape"]})
    stray = _STRAY_BACKSLASH(quoted=text(f"\\{quote}"))
    line = engine.rows(
        _FIRST_MATCH(rows=_read([_as_lines(replace(file, options={**file.options, "skip": 0}))]), condition=stray)
    )[0][0]
    if line is not None:
        raise SourceError(
            f"source.files: {file_name(path)}: quotes inside values follow a backslash, and line {line:,} has a "
            "backslash before another character; write quotes inside values twice, and backslashes as they are"
        )
    return file


def _with_known_header(engine: DuckDBEngine, file: CsvFile, has_header: bool) -> CsvFile:
    """A file that the sniffer does not read as the policy says: it overlooks a header above few rows of text."""
    names = _generated_names(file)
    if has_header:
        rows = star(_read([_without_header(file)])).limit(1)
        names = [name or names[i] for i, name in enumerate(engine.rows(rows)[0])]
    options = {**file.options, "header": has_header}
    return replace(file, options=options, columns=dict(zip(names, file.columns.values(), strict=True)))


def _generated_names(file: CsvFile) -> list[str]:
    digits = len(str(len(file.columns) - 1))
    return [f"column{i:0{digits}}" for i in range(len(file.columns))]


def _without_header(file: CsvFile) -> CsvFile:
    """A file whose first row, in columns ``c0``, ``c1``, ..., is the header line."""
    options = {name: value for name, value in file.options.items() if name not in _FORMATS}
    columns = {f"c{i}": "VARCHAR" for i in range(len(file.columns))}
    return CsvFile(file.path, {**options, "header": False}, columns)


def _given(value: str | None) -> str:
    return "" if value in (None, "(empty)") else value or ""


def _refuse_blank_file(engine: DuckDBEngine, file: CsvFile) -> None:
    if not engine.rows(_HAS_TEXT(lines=_read([_as_lines(file)])))[0][0]:
        raise SourceError(f"{file_name(file.path)} is empty: it has no header and no rows")


def _as_lines(file: CsvFile) -> CsvFile:
    """A file whose one column, ``line``, has all lines as they stand."""
    plain = {name: value for name, value in file.options.items() if name not in _FORMATS}
    options = {**plain, "delim": _NO_DELIMITER, "quote": "", "escape": "", "comment": "", "header": False}
    return replace(file, options=options, columns={"line": "VARCHAR"}, missing=None)


def _with_written_names(engine: DuckDBEngine, file: CsvFile, known: CsvSection) -> CsvFile:
    """A file with the names in its header line, read as data: a scan renames columns that differ in case or spaces
    only."""
    if known.header is None:
        _refuse_repeated_header(file, _open_lines(engine, file.path))
    first = engine.rows(star(_read([_without_header(file)])).limit(1))
    if not first:  # its quotes are broken, and the sniffer takes it for a line without
        _refuse_broken_lines(engine, file.path, known, file)
        _refuse_unreadable_lines(engine, file.path, is_alone=True)
    names = [(name or "").removeprefix("\ufeff").strip() for name in first[0]]
    if len(names) > 4 and not any(names[1::2]):
        delimiter = csv_lines.delimiter_name(str(file.options["delim"]))
        raise SourceError(
            f"source.files: {file_name(file.path)}: the header has the delimiter {delimiter} twice between names; a "
            "delimiter has one character: save the file with such a one"
        )
    if not names[-1]:
        _refuse_broken_lines(engine, file.path, known, file)
    refuse_ambiguous_names(names, file_name(file.path))
    written = [name or column for name, column in zip(names, file.columns, strict=True)]
    refuse_ambiguous_names(written, file_name(file.path))
    return replace(file, columns=dict(zip(written, file.columns.values(), strict=True)))


def _has_comments(engine: DuckDBEngine, file: CsvFile) -> bool:
    """Whether any line that begins like a comment is no row: the sniffer takes values such as #N/A for comments."""
    lines = _read([_as_lines(replace(file, options={**file.options, "skip": 0}))])
    marks = {name: text(str(file.options[option])) for name, option in (("comment", "comment"), ("delimiter", "delim"))}
    condition = _IS_COMMENT(fields=exp.convert(len(file.columns)), **marks)
    return bool(engine.rows(_ANY_MATCH(rows=lines, condition=condition))[0][0])


def _refuse_comments_in_rows(engine: DuckDBEngine, file: CsvFile) -> None:
    """A reader that skips comments also skips rows that begin with the same character, and cuts values that have it."""
    comment = str(file.options["comment"])
    if not comment:
        return
    arguments = {"comment": comment, "delimiter": str(file.options["delim"]), "quote": file.options["quote"] or '"'}
    lines = _read([_as_lines(file)])
    count = engine.rows(_COMMENTS_IN_ROWS(lines=lines, fields=len(file.columns), **arguments))[0][0]
    if count:
        raise SourceError(
            f"source.files: {file_name(file.path)} has comments after {comment}, and {comment} also stands in "
            f"{count:,} {'line' if count == 1 else 'lines'} that may be rows; remove the comments from the file"
        )


def _refuse_files_without_header(files: Sequence[CsvFile]) -> None:
    """Columns of several files are matched by name, and without a header line their names are only positions."""
    without = [file_name(file.path) for file in files if not file.options["header"]]
    if len(files) > 1 and without:
        more = len(without) - _MOST_FILES
        shown = [*without[:_MOST_FILES], *([f"{more:,} more"] if more > 0 else [])]
        verb = "has" if len(without) == 1 else "have"
        raise SourceError(
            f"source.files: {' and '.join(shown)} {verb} no header line, and the columns of "
            "several files are matched by name; give each file a header line, or name one file"
        )


def _refuse_lines_above_rows(file: CsvFile) -> None:
    """Without a header, a first row that is shorter than the others looks like a title."""
    lines = int(file.options["skip"])
    if lines and not file.options["header"]:
        first = "line 1 has" if lines == 1 else f"the first {lines:,} lines have"
        raise SourceError(
            f"source.files: {file_name(file.path)} has no header line, and {first} other fields than the lines below; "
            f"set skip = {lines} under [source.csv] if {'it is' if lines == 1 else 'they are'} no row of the data, or "
            "else correct the file"
        )


def _open_lines(engine: DuckDBEngine, path: str) -> csv_lines.Lines:
    """What opens the lines of a file: read here, or by the engine where they are packed or remote."""
    if csv_lines.can_open(path):
        return partial(csv_lines.read_lines, path)
    options: Options = {"delim": _NO_DELIMITER, "quote": "", "escape": "", "header": False, "strict_mode": False}
    rows = star(_read([CsvFile(path, options, {"line": "VARCHAR"})]))

    def lines(limit: int | None) -> Iterator[str]:
        with engine.stream(rows.copy() if limit is None else rows.limit(limit)) as batches:
            for batch in batches:
                yield from (f"{line or ''}\n" for line in batch.column(0).to_pylist())

    return lines


def _lines_layout(file: CsvFile) -> csv_lines.Layout:
    quote, escape, comment = (str(file.options[name]) for name in ("quote", "escape", "comment"))
    return csv_lines.Layout(str(file.options["delim"]), quote, escape, int(file.options["skip"]), comment)


def _refuse_broken_lines(engine: DuckDBEngine, path: str, known: CsvSection, file: CsvFile | None = None) -> None:
    """Refuse a file with lines unlike its first one; where the sniffer says nothing, by the likeliest delimiter."""
    open_lines = _open_lines(engine, path)
    layout = csv_lines.guess_layout(open_lines, known) if file is None else _lines_layout(file)
    flaw: str | None = None
    if csv_lines.can_open(path):
        flaw = csv_lines.describe_null_byte(path) or describe_bad_byte(path)
    if flaw is None and layout is not None:
        flaw = csv_lines.describe_broken_lines(open_lines, layout)
    if flaw is not None:
        raise _BrokenLinesError(f"source.files: {file_name(path)}: {flaw}", layout)


def _refuse_unreadable_lines(engine: DuckDBEngine, path: str, is_alone: bool) -> None:
    """Refuse a file that the engine cannot read, with what its lines show; the only one in any case."""
    flaw = csv_lines.describe_line_ends(path) if csv_lines.can_open(path) else None
    if flaw is None and is_alone:
        flaw = csv_lines.describe_unreadable_lines(_open_lines(engine, path))
    if flaw is not None:
        raise SourceError(f"source.files: {file_name(path)}: {flaw}")


def _one_column_error(file: CsvFile, where: str) -> SourceError:
    return SourceError(
        f"source.files: {file_name(file.path)}: no delimiter splits its lines into the same number of fields, so that "
        f"each line is one value, and {where}; correct the file, or set delimiter under [source.csv]: a character that "
        "no line has makes it one column"
    )


def _refuse_other_separators(file: CsvFile, open_lines: csv_lines.Lines) -> None:
    if (separator := csv_lines.describe_other_separator(open_lines(csv_lines.SAMPLED_LINES))) is not None:
        raise SourceError(
            f"source.files: {file_name(file.path)}: each line would be one value, and {separator}. If the file has "
            "one column, set delimiter to a character that no line has"
        )


def _refuse_delimiters_in_one_column(engine: DuckDBEngine, layout: Layout, target: exp.Table) -> None:
    """Whole lines are no values, behind the first lines either."""
    if len(layout.columns) > 1 or layout.section.delimiter is not None:
        return
    condition = anonymous("regexp_matches", cast(col(*layout.columns), "VARCHAR"), text(r"[,;\t|]"))
    if (row := engine.rows(_FIRST_MATCH(rows=target.copy(), condition=condition))[0][0]) is not None:
        raise _one_column_error(
            layout.files[0], f"row {row:,} has {', '.join(map(csv_lines.delimiter_name, ',;|'))} or a tab"
        )


def _refuse_titles(file: CsvFile, open_lines: csv_lines.Lines) -> None:
    """Lines above the header are few, and fewer than the lines from the header on: else they may be rows."""
    skip = int(file.options["skip"])
    if not skip:
        return
    lines = list(open_lines(2 * skip + 1))
    titles = [line for line in lines[:skip] if line.strip()]
    if any("\udc80" <= sign <= "\udcff" for title in titles for sign in title):  # the engine does not decode them
        raise SourceError(f"source.files: {file_name(file.path)}: {describe_bad_byte(file.path)}")
    delimiter, comment = str(file.options["delim"]), str(file.options["comment"])
    for number, line in enumerate(lines[:skip], 1):
        if delimiter in line and not (comment and line.startswith(comment)):
            raise SourceError(
                f"source.files: {file_name(file.path)}: line {number:,} has {csv_lines.delimiter_name(delimiter)}, "
                f"and line {skip + 1:,} looks like the header; if so, set skip = {skip} under [source.csv], else "
                f"correct line {number:,}"
            )
    if len(titles) > _MOST_TITLES or len(titles) > len(lines) - skip:
        name = csv_lines.delimiter_name(str(file.options["delim"]))
        raise SourceError(
            f"source.files: {file_name(file.path)}: the first {skip:,} lines have no {name}, and line {skip + 1:,} "
            f"has; if they are above the header, set skip = {skip} under [source.csv], else correct them"
        )


def _refuse_repeated_header(file: CsvFile, open_lines: csv_lines.Lines) -> None:
    """The first row of a file without a header is a person."""
    if (flaw := csv_lines.describe_repeated_header(_lines_layout(file), open_lines)) is not None:
        raise SourceError(f"source.files: {file_name(file.path)}: {flaw}")


def _refuse_last_lines(file: CsvFile, known: CsvSection) -> None:
    """Lines below the data are no people; ``footer = 0`` says that they are rows."""
    if "footer" in known.model_fields_set or not csv_lines.can_open(file.path):
        return
    if (flaw := csv_lines.describe_last_lines(file.path, _lines_layout(file))) is not None:
        raise SourceError(f"source.files: {file_name(file.path)}: {flaw}, or footer = 0 to read all lines as rows")


def _refuse_other_delimiters(file: CsvFile, open_lines: csv_lines.Lines) -> None:
    layout = _lines_layout(file)
    if len(file.columns) > 1 and (others := csv_lines.other_delimiters(open_lines, layout)):
        names = " and ".join(map(csv_lines.delimiter_name, [layout.delimiter, *others]))
        raise SourceError(
            f"source.files: {file_name(file.path)}: {names} each split all lines into the same number of fields; "
            "set delimiter under [source.csv]"
        )


def _refuse_extra_delimiters(engine: DuckDBEngine, file: CsvFile, known: CsvSection) -> None:
    if not csv_lines.can_open(file.path) or csv_lines.may_end_in_delimiter(file.path, str(file.options["delim"])):
        _refuse_broken_lines(engine, file.path, known, file)


def _refuse_rows_inside_values(engine: DuckDBEngine, layout: Layout, target: exp.Table) -> None:
    """Refuse stray quotes around line ends: between them, whole rows become a part of one value."""
    if not _have_line_breaks(engine, layout, target) or not 1 < len(layout.columns) <= _LONGEST_PATTERN:
        return
    for file in layout.files:
        newline = _newline(file)
        columns = [
            _LOOKS_LIKE_ROWS(column=col(name), newline=text(newline), pattern=text(pattern))
            for name, pattern in zip(
                file.columns, _row_patterns(str(file.options["delim"]), newline, len(file.columns)), strict=True
            )
        ]
        rows = _read([_as_text(file)])
        row = engine.rows(_FIRST_MATCH(rows=rows, condition=exp.or_(*columns, copy=False)))[0][0]
        if row is not None:
            shown_quote = "'\"'" if file.options["quote"] == '"' else f'"{file.options["quote"]}"'
            raise SourceError(
                f"source.files: {file_name(file.path)}: a quoted value in row {row:,} has line breaks, and its lines "
                "look like rows of their own, which stray quotes would make one value; correct the quotes, or confirm "
                f"them: quote = {shown_quote} under [source.csv]"
            )


def _refuse_points_between_thousands(engine: DuckDBEngine, layout: Layout, target: exp.Table) -> None:
    """Refuse numbers such as 12.345 where all are like that, and semicolons show that commas may be decimal marks."""
    if not layout.may_have_thousands:
        return
    names = [name for name in engine.columns(target) if layout.columns.get(name) == "DOUBLE"]
    if not names:
        return
    are_likely = engine.rows(select([_MAY_BE_THOUSANDS(column=col(name)) for name in names], target.copy()))[0]
    for name in (name for name, is_likely in zip(names, are_likely, strict=True) if is_likely):
        texts = [select([named(col(name), "value")], _read([_as_text(file)])) for file in layout.files]
        others, points = engine.rows(_OTHER_NUMBERS(texts=subquery(union_all(*texts), "t")))[0]
        if points and not others:
            raise thousands_error(name)


def _have_line_breaks(engine: DuckDBEngine, layout: Layout, target: exp.Table) -> bool:
    """Whether values may have line breaks: where the files have as many lines as rows, none has."""
    if not all(csv_lines.can_open(file.path) for file in layout.files):
        texts = [col(name) for name, type_ in engine.columns(target).items() if type_ == "VARCHAR"]
        breaks = [_HAS_LINE_BREAK(column=column.copy(), newline=text(end)) for column in texts for end in "\r\n"]
        return bool(breaks) and bool(
            engine.rows(_ANY_MATCH(rows=target.copy(), condition=exp.or_(*breaks, copy=False)))[0][0]
        )
    lines, may_quote = 0, False
    for file in layout.files:
        facts = csv_lines.search_bytes(file.path, str(file.options["quote"] or '"'), _newline(file))
        if facts.has_null:
            _refuse_broken_lines(engine, file.path, layout.section, file)
        may_quote = may_quote or facts.lines is not None
        above = int(file.options["skip"]) + bool(file.options["header"])
        lines += facts.lines - above if facts.lines is not None else 0
    if not may_quote or layout.section.quote is not None:
        return False
    return bool(lines != engine.rows(_COUNT(rows=target.copy()))[0][0])


def _newline(file: CsvFile) -> str:
    return "\r" if file.options.get("new_line") == "\\r" else "\n"


def _row_patterns(delimiter: str, newline: str, fields: int) -> Iterator[str]:
    """For each field, what its value looks like if all lines of its record are rows of their own: the fields behind
    it, any whole lines, and the fields before it. Of two fields, texts look like that, unless there is a whole line."""
    end, any_text = re.escape(delimiter), f"[^{newline}{re.escape(delimiter)}]*"
    whole = f"({any_text}({end}{any_text}){{{fields - 1}}}{newline}){'+' if fields == 2 else '*'}"
    for i in range(fields):
        yield f"{any_text}({end}{any_text}){{{fields - 1 - i}}}{newline}{whole}({any_text}{end}){{{i}}}{any_text}"


def _read(files: Sequence[CsvFile], **more: str) -> exp.Table:
    """The rows of files with the same options and columns."""
    types = [exp.PropertyEQ(this=ident(name), expression=text(type_)) for name, type_ in files[0].columns.items()]
    arguments = [
        exp.Array(expressions=[literal_path(file.path) for file in files]),
        *_named_arguments({"auto_detect": False, "hive_partitioning": False, **files[0].options, **more}),
        *([] if "nullstr" in more else _missing_option(files[0].missing)),
        exp.Var(this="columns").eq(exp.Struct(expressions=types)),
    ]
    return exp.Table(this=anonymous("read_csv", *arguments))


def _named_arguments(options: Options) -> list[exp.Expr]:
    return [exp.Var(this=name).eq(exp.convert(value)) for name, value in options.items()]
