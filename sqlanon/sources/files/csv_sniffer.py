"""Detect how a CSV file is written, and refuse files whose structure is in doubt.

DuckDB's sniffer proposes the options, and every option is then passed to the reader explicitly. Where any line is
broken, the sniffer may read the file as one column of whole lines. So a file of one column whose lines have a delimiter
is refused, and so is each line whose number of fields differs from the header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.columns import refuse_ambiguous_names
from sqlanon.sources.files import csv_lines
from sqlanon.sources.files.csv_lines import CsvFile, Options
from sqlanon.sources.files.csv_text import describe_bad_byte
from sqlanon.support.expressions import anonymous, ident, literal_path, select_star, template, text
from sqlanon.support.notices import count_noun

NO_TEXT = "\x1fnothing\x1e"
"""A NULL text that no value equals: every field keeps its text, also an extra empty one at the end of a line."""

FINDS_EXTRA_DELIMITERS = int(duckdb.__version__.split(".")[0]) >= 2
"""Whether ``read_csv`` reports an extra empty field at the end of a line. DuckDB before 2.0 ignores it."""

_MAX_TITLE_LINES = 3

FIRST_MATCH = template("""
    SELECT min(row)
    FROM (SELECT row_number() OVER () AS row, :condition AS is_match FROM :rows) AS r
    WHERE is_match
""")


class BrokenLinesError(SourceError):
    """Some lines of a file do not match its first line, parsed with ``layout``."""

    def __init__(self, message: str, layout: csv_lines.Layout | None) -> None:
        super().__init__(message)
        self.layout = layout


def read_csv(files: Sequence[CsvFile], **more_options: str) -> exp.Table:
    """Read files that have the same options and columns."""
    types = [exp.PropertyEQ(this=ident(name), expression=text(type_)) for name, type_ in files[0].columns.items()]
    arguments = [
        exp.Array(expressions=[literal_path(file.path) for file in files]),
        *_named_arguments({"auto_detect": False, "hive_partitioning": False, **files[0].options, **more_options}),
        *([] if "nullstr" in more_options else _null_argument(files[0].missing)),
        exp.Var(this="columns").eq(exp.Struct(expressions=types)),
    ]
    return exp.Table(this=anonymous("read_csv", *arguments))


def _named_arguments(options: Options) -> list[exp.Expr]:
    return [exp.Var(this=name).eq(exp.convert(value)) for name, value in options.items()]


def _null_argument(missing: Sequence[str] | None) -> list[exp.Expr]:
    if missing is None:
        return []
    return [exp.Var(this="nullstr").eq(exp.Array(expressions=[text(code) for code in missing or (NO_TEXT,)]))]


def open_lines(engine: DuckDBEngine, path: str) -> csv_lines.Lines:
    """Open the lines of a file: with Python, or with the engine where the file is remote or packed as .zst."""
    if csv_lines.can_open(path):
        return partial(csv_lines.read_lines, path)
    options: Options = {
        "delim": csv_lines.NO_DELIMITER,
        "quote": "",
        "escape": "",
        "header": False,
        "strict_mode": False,
    }
    rows = select_star(read_csv([CsvFile(path, options, {"line": "VARCHAR"})]))

    def read_lines(limit: int | None) -> Iterator[str]:
        with engine.stream(rows.copy() if limit is None else rows.limit(limit)) as batches:
            for batch in batches:
                yield from (f"{line or ''}\n" for line in batch.column(0).to_pylist())

    return read_lines


def number_options(section: CsvSection) -> dict[str, str | int]:
    """The number marks of the policy as arguments of the sniffer."""
    if not section.has_number_marks:
        return {}
    thousands = {} if section.thousands is None else {"thousands": section.thousands}
    return {"decimal_separator": section.decimal or ".", **thousands}


def sniff_file(engine: DuckDBEngine, path: str, section: CsvSection, options: Options) -> CsvFile:
    """Detect how a file is written: keys of the policy first, then the sniffer.

    Where the sniffer reads whole lines as the values of one column, or skips lines that have a delimiter, the delimiter
    that splits most lines is used instead, provided that it splits all of them.
    """
    keys = {"delim": section.delimiter, "quote": section.quote, "header": section.header, "skip": section.skip}
    keys["escape"] = section.quote
    options = {**options, **{name: value for name, value in keys.items() if value is not None}}
    file = _run_sniffer(engine, path, section, options)
    if file.options["comment"] and not _has_comments(engine, file):
        options["comment"] = ""
        file = _run_sniffer(engine, path, section, options)
    has_text = template("""
        SELECT count(*) > 0
        FROM (SELECT 1 FROM :lines WHERE regexp_matches(line, '[^\\s\ufeff]') LIMIT 1) AS l
    """)
    if file.has_one_column and not engine.rows(has_text(lines=read_csv([file.with_lines()])))[0][0]:
        raise SourceError(f"{file.name} is empty: it has no header and no rows")
    lines = open_lines(engine, path)
    if (delimiter := _find_delimiter_outside_rows(file, section, lines)) is not None:
        refuse_broken_lines(engine, path, section)
        layout = csv_lines.guess_layout(lines, section)
        if layout is None:
            raise one_column_error(file, f"line {delimiter[0]:,} has {csv_lines.delimiter_name(delimiter[1])}")
        guess: Options = {"delim": layout.delimiter, "skip": layout.skip, "quote": layout.quote, "escape": layout.quote}
        file = _run_sniffer(engine, path, section, {**options, **guess})
    _refuse_doubtful_structure(file, section, lines)
    if file.options["header"]:
        return _with_names_of_header(engine, file, section)
    if section.header is None and csv_lines.may_be_header(file.layout(), lines):
        line = int(file.options["skip"]) + 1
        raise SourceError(
            f"source.files: {file.name}: line {line:,} may be the header or a row of the data; set header = true or "
            "header = false under [source.csv]"
        )
    return file


def _find_delimiter_outside_rows(file: CsvFile, section: CsvSection, lines: csv_lines.Lines) -> tuple[int, str] | None:
    """The first line with a delimiter among lines that the sniffer reads as one value each, or skips."""
    skip = int(file.options["skip"])
    if file.has_one_column and section.delimiter is None:
        return csv_lines.find_delimiter(lines(csv_lines.SAMPLED_LINES))
    if not file.has_one_column and skip != (section.skip or 0):
        return csv_lines.find_delimiter(islice(lines(skip), section.skip or 0, None))
    return None


def _run_sniffer(engine: DuckDBEngine, path: str, section: CsvSection, options: Options) -> CsvFile:
    call = anonymous("sniff_csv", literal_path(path), *_named_arguments(options), *_null_argument(section.missing))
    query = template("""
        SELECT Delimiter, Quote, Escape, NewLineDelimiter, Comment, SkipRows, HasHeader, Columns, DateFormat,
            TimestampFormat
        FROM :sniffed
    """)(sniffed=exp.Table(this=call))
    delimiter, quote, escape, newline, comment, skip, header, columns, date, timestamp = engine.rows(query)[0]
    quote, escape, comment = ("" if value in (None, "(empty)") else value for value in (quote, escape, comment))
    # Values below the sample may be quoted even if no sampled value is.
    quote = (quote or '"') if section.quote is None else section.quote
    escape = (escape if section.quote is None else "") or quote
    detected: dict[str, str | bool | int] = {
        "delim": delimiter, "comment": comment, "skip": int(skip), "header": bool(header), "quote": quote,
        "escape": escape,
    }  # fmt: skip
    if escape != quote and "escape" not in options:
        return _sniff_escape(engine, path, section, {**options, "delim": delimiter, "quote": quote}, escape)
    if newline in ("\\n", "\\r\\n", "\\r"):
        detected["new_line"] = newline
    detected |= {name: value for name, value in (("dateformat", date), ("timestampformat", timestamp)) if value}
    file = CsvFile(path, detected, {column["name"]: column["type"] for column in columns}, section.missing)
    is_nameless = bool(header) and [*file.columns] == _generate_names(file)
    if section.header is None or (section.header == bool(header) and not is_nameless):
        return file
    return _with_given_header(engine, file, section.header)


def _sniff_escape(engine: DuckDBEngine, path: str, section: CsvSection, options: Options, escape: str) -> CsvFile:
    """Sniff a file whose quotes inside values seem to follow an escape character.

    The engine drops an escape character wherever it occurs. So it is accepted only where the file cannot be read with
    doubled quotes, and only if it is a backslash that occurs nowhere else.
    """
    quote = options["quote"]
    try:
        return _run_sniffer(engine, path, section, {**options, "escape": quote})
    except duckdb.InvalidInputException:
        if escape != "\\":
            raise
    file = _run_sniffer(engine, path, section, {**options, "escape": escape})
    lines = read_csv([file.with_lines(from_top=True)])
    query = template(r"""
        SELECT min(row)
        FROM (SELECT row_number() OVER () AS row, line FROM :lines) AS r
        WHERE contains(replace(replace(line, '\\', ''), :escaped_quote, ''), '\')
    """)(lines=lines, escaped_quote=f"\\{quote}")
    line = engine.rows(query)[0][0]
    if line is not None:
        raise SourceError(
            f"source.files: {file.name}: quotes inside values follow a backslash, and line {line:,} has a backslash "
            "before another character; write quotes inside values twice, and backslashes as they are"
        )
    return file


def _with_given_header(engine: DuckDBEngine, file: CsvFile, has_header: bool) -> CsvFile:
    """Correct a file for the policy's ``header``: the sniffer overlooks a header above few rows of text."""
    names = _generate_names(file)
    if has_header:
        first_row = engine.rows(select_star(read_csv([file.with_header_as_row()])).limit(1))[0]
        names = [name or names[i] for i, name in enumerate(first_row)]
    options = {**file.options, "header": has_header}
    return replace(file, options=options, columns=dict(zip(names, file.columns.values(), strict=True)))


def _generate_names(file: CsvFile) -> list[str]:
    digits = len(str(len(file.columns) - 1))
    return [f"column{i:0{digits}}" for i in range(len(file.columns))]


def _with_names_of_header(engine: DuckDBEngine, file: CsvFile, section: CsvSection) -> CsvFile:
    """Read the column names as data: a scan renames columns that differ in case or spaces only."""
    if section.header is None:
        flaw = csv_lines.describe_repeated_header(file.layout(), open_lines(engine, file.path))
        if flaw is not None:
            raise SourceError(f"source.files: {file.name}: {flaw}")
    first_rows = engine.rows(select_star(read_csv([file.with_header_as_row()])).limit(1))
    if not first_rows:  # the quotes of the header are broken, and the sniffer treats it as unquoted
        refuse_broken_lines(engine, file.path, section, file)
        refuse_unreadable_lines(engine, file.path, is_only_file=True)
    names = [(name or "").removeprefix("\ufeff").strip() for name in first_rows[0]]
    if len(names) > 4 and not any(names[1::2]):
        delimiter = csv_lines.delimiter_name(str(file.options["delim"]))
        raise SourceError(
            f"source.files: {file.name}: the header has the delimiter {delimiter} twice between names; save the file "
            "with a delimiter of one character"
        )
    if not names[-1]:
        refuse_broken_lines(engine, file.path, section, file)
    refuse_ambiguous_names(names, file.name)
    names = [name or column for name, column in zip(names, file.columns, strict=True)]
    refuse_ambiguous_names(names, file.name)
    return replace(file, columns=dict(zip(names, file.columns.values(), strict=True)))


def _has_comments(engine: DuckDBEngine, file: CsvFile) -> bool:
    query = template("""
        SELECT count(*) > 0
        FROM (
            SELECT 1
            FROM :lines
            -- A line with as many fields as the header is a row: the sniffer takes values such as #N/A for comments.
            WHERE starts_with(line, :comment) AND length(string_split(line, :delimiter)) <> :fields
            LIMIT 1
        ) AS l
    """)(
        lines=read_csv([file.with_lines(from_top=True)]),
        comment=str(file.options["comment"]),
        delimiter=str(file.options["delim"]),
        fields=len(file.columns),
    )
    return bool(engine.rows(query)[0][0])


def refuse_comments_in_rows(engine: DuckDBEngine, file: CsvFile) -> None:
    """Refuse a comment character that also occurs in rows: the reader would skip these rows, or cut their values."""
    comment = str(file.options["comment"])
    if not comment:
        return
    query = template("""
        SELECT count(*)
        FROM :lines
        WHERE CASE WHEN starts_with(line, :comment) THEN length(string_split(line, :delimiter)) >= :fields
            -- the parts of the line outside quotes
            ELSE contains(array_to_string(list_slice(string_split(line, :quote), 1, -1, 2), ''), :comment) END
    """)(
        lines=read_csv([file.with_lines()]),
        comment=comment,
        delimiter=str(file.options["delim"]),
        quote=file.options["quote"] or '"',
        fields=len(file.columns),
    )
    if count := engine.rows(query)[0][0]:
        raise SourceError(
            f"source.files: {file.name} has comments after {comment}, and {comment} also occurs in "
            f"{count_noun(count, 'line')} that may be rows; remove the comments from the file"
        )


def refuse_lines_above_rows(file: CsvFile) -> None:
    """Refuse skipped lines in a file without a header: a first row that is shorter than the others looks like a
    title."""
    skip = int(file.options["skip"])
    if skip and not file.options["header"]:
        first_lines = "line 1 has" if skip == 1 else f"the first {skip:,} lines have"
        raise SourceError(
            f"source.files: {file.name} has no header line, and {first_lines} other fields than the lines below; set "
            f"skip = {skip} under [source.csv] if {'it is' if skip == 1 else 'they are'} not part of the data, or "
            "otherwise correct the file"
        )


def refuse_broken_lines(engine: DuckDBEngine, path: str, section: CsvSection, file: CsvFile | None = None) -> None:
    """Refuse a file with lines that do not match its first line; without ``file``, by the likeliest delimiter."""
    lines = open_lines(engine, path)
    layout = csv_lines.guess_layout(lines, section) if file is None else file.layout()
    flaw: str | None = None
    if csv_lines.can_open(path):
        flaw = csv_lines.describe_null_byte(path) or describe_bad_byte(path)
    if flaw is None and layout is not None:
        flaw = csv_lines.describe_broken_lines(lines, layout)
    if flaw is not None:
        raise BrokenLinesError(f"source.files: {file_name(path)}: {flaw}", layout)


def refuse_unreadable_lines(engine: DuckDBEngine, path: str, is_only_file: bool) -> None:
    """Refuse a file that the engine cannot read because of its lines; the only file is refused in any case."""
    flaw = csv_lines.describe_line_ends(path) if csv_lines.can_open(path) else None
    if flaw is None and is_only_file:
        flaw = csv_lines.describe_unreadable_lines(open_lines(engine, path))
    if flaw is not None:
        raise SourceError(f"source.files: {file_name(path)}: {flaw}")


def refuse_extra_delimiters(engine: DuckDBEngine, file: CsvFile, section: CsvSection) -> None:
    """Refuse lines with an extra empty field at the end, where the engine ignores it."""
    if FINDS_EXTRA_DELIMITERS:
        return
    if not csv_lines.can_open(file.path) or csv_lines.may_end_in_delimiter(file.path, str(file.options["delim"])):
        refuse_broken_lines(engine, file.path, section, file)


def refuse_last_lines(file: CsvFile, section: CsvSection) -> None:
    """Refuse totals and blank rows at the end of a file, unless ``footer`` is set: they would count as persons."""
    if "footer" in section.model_fields_set or not csv_lines.can_open(file.path):
        return
    if (flaw := csv_lines.describe_last_lines(file.path, file.layout())) is not None:
        raise SourceError(f"source.files: {file.name}: {flaw}, or footer = 0 to read all lines as rows")


def one_column_error(file: CsvFile, reason: str) -> SourceError:
    return SourceError(
        f"source.files: {file.name}: no delimiter splits its lines into the same number of fields, so that each line "
        f"is one value, and {reason}; correct the file, or set delimiter under [source.csv]: a character that no line "
        "has makes it one column"
    )


def _refuse_doubtful_structure(file: CsvFile, section: CsvSection, lines: csv_lines.Lines) -> None:
    if section.delimiter is None and file.has_one_column:
        separator = csv_lines.describe_other_separator(lines(csv_lines.SAMPLED_LINES))
        if separator is not None:
            raise SourceError(
                f"source.files: {file.name}: each line would be one value, and {separator}. If the file has one "
                "column, set delimiter to a character that no line has"
            )
    if section.skip is None:
        _refuse_titles(file, lines)
    if section.delimiter is None and not file.has_one_column:
        layout = file.layout()
        if alternatives := csv_lines.find_other_delimiters(lines, layout):
            names = " and ".join(map(csv_lines.delimiter_name, [layout.delimiter, *alternatives]))
            raise SourceError(
                f"source.files: {file.name}: {names} each split all lines into the same number of fields; set "
                "delimiter under [source.csv]"
            )


def _refuse_titles(file: CsvFile, lines: csv_lines.Lines) -> None:
    """Refuse lines above the header that may be rows: many, as many as the lines below, or with a delimiter."""
    skip = int(file.options["skip"])
    if not skip:
        return
    first_lines = list(lines(2 * skip + 1))
    titles = [line for line in first_lines[:skip] if line.strip()]
    if any("\udc80" <= character <= "\udcff" for title in titles for character in title):
        # The engine does not decode skipped lines.
        raise SourceError(f"source.files: {file.name}: {describe_bad_byte(file.path)}")
    delimiter, comment = str(file.options["delim"]), str(file.options["comment"])
    delimiter_name = csv_lines.delimiter_name(delimiter)
    for number, line in enumerate(first_lines[:skip], 1):
        if delimiter in line and not (comment and line.startswith(comment)):
            raise SourceError(
                f"source.files: {file.name}: line {number:,} has {delimiter_name}, and line {skip + 1:,} looks like "
                f"the header; if so, set skip = {skip} under [source.csv], otherwise correct line {number:,}"
            )
    if len(titles) > _MAX_TITLE_LINES or len(titles) > len(first_lines) - skip:
        raise SourceError(
            f"source.files: {file.name}: the first {skip:,} lines have no {delimiter_name}, and line {skip + 1:,} has; "
            f"if they are above the header, set skip = {skip} under [source.csv], otherwise correct them"
        )
