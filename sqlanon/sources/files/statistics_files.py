"""Read files of SPSS, Stata and SAS with pyreadstat: integers, dates, value labels and missing codes are exact.

Another process, `statistics_reader`, reads a file in batches into a raw table: each numeric variable as DOUBLE, next to
it the letter of a missing code and, where it has value labels, the label. Types and values are then derived in SQL.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import MissingLibraryError, SourceError
from sqlanon.places.databases import file_name, is_remote
from sqlanon.sources.columns import refuse_ambiguous_names, refuse_different_columns
from sqlanon.sources.files.scan import FileTable, ReadingChoices, Scan, raw_tables
from sqlanon.sources.files.statistics_reader import FAILED
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    create_table,
    fragment,
    is_not_null,
    is_null,
    select,
    select_star,
    text,
    union_all,
    values_query,
)
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_value

Meaning: TypeAlias = Literal["number", "float", "text", "date", "timestamp", "time", "week", "month", "quarter", "half"]
"""Meaning of a variable's values, by its format: numbers, texts, or days and moments counted from an origin."""

PRODUCT_NAMES = {"spss": "SPSS", "stata": "Stata", "sas": "SAS", "xport": "SAS transport"}

_BATCH_CELLS = 2_000_000
"""Cells in a batch: as Python objects they take some 100 bytes each."""

_MAX_LISTED = 5

_READER = Path(__file__).with_name("statistics_reader.py")
_SCRIPT = (
    "import sys; sys.path[:] = sys.argv[1].split('\\n'); import runpy; runpy.run_path(sys.argv[2], run_name='__main__')"
)
"""Runs the reader with the libraries of this process, and none of the current folder."""

# A moment counts seconds in SPSS and milliseconds in Stata; a date counts seconds in SPSS, otherwise days.
_ORIGIN: Mapping[str, str] = {"spss": "1582-10-14", "stata": "1960-01-01", "sas": "1960-01-01", "xport": "1960-01-01"}
_SECONDS_OF_DAY = 86_400

_SPSS: Mapping[str, Meaning] = {
    **dict.fromkeys(("DATE", "ADATE", "EDATE", "JDATE", "SDATE", "QYR", "MOYR", "WKYR"), "date"),
    **dict.fromkeys(("DATETIME", "YMDHMS"), "timestamp"),
    **dict.fromkeys(("TIME", "DTIME", "MTIME"), "time"),
}
_SAS_TIMESTAMP = re.compile(
    r"(DATETIME|DATEAMPM|MDYAMPM|DT(DATE|MONYY|WKDATX|YEAR|YYQC)|[EB]8601D[TNZX]|IS8601D[TNZ]|NLDATM\w*)"
)
_SAS_TIME = re.compile(r"(TIME|HHMM|HOUR|MMSS|TOD|TIMEAMPM|[EB]8601(TM|LZ)|IS8601(TM|LZ)|NLTIM\w*)")
_SAS_DATE = re.compile(
    r"(DATE|DAY|(DDMMYY|MMDDYY|YYMMDD|MMYY|YYMM)[BCDNPS]?|DOWNAME|JULDAY|JULIAN|MONNAME|MONTH|MONYY|NENGO|MINGUO|QTRR?"
    r"|WEEK(DATE|DATX|DAY|U|V|W)|WORDDAT[EX]|YEAR|YYMON|YYQR?[CDNPS]?|PDJUL[GI]|[EB]8601DA|IS8601DA|NLDATE\w*)"
)
_SAS: Mapping[Meaning, re.Pattern[str]] = {"timestamp": _SAS_TIMESTAMP, "time": _SAS_TIME, "date": _SAS_DATE}
_STATA: Mapping[str, Meaning] = {
    "d": "date", "c": "timestamp", "w": "week", "m": "month", "q": "quarter", "h": "half", "y": "number",
}  # fmt: skip
_STATA_PROBLEMS = {
    "C": "counts leap seconds (%tC): convert it in Stata with cofC(), to %tc",
    "b": "counts the days of a business calendar (%tb): convert it in Stata with dofb(), to %td",
}
_STATA_TIME_ONLY = re.compile(r"(HH|Hh|hh|hH|MM|mm|SS|ss|\.s+|AM|am|a\.m\.|A\.M\.|[:_. ])+")
_PADDED = re.compile(r"(?:N|Z|%0)(\d+)(?:\.0[FG])?$")

_MAX_EXACT_INTEGER = 2**53
"""From here on, a DOUBLE does not represent every integer."""


class UndecidedReadingError(SourceError):
    """The policy does not say how to read value labels or user-missing values; ``proposal`` has keys that do."""

    def __init__(self, message: str, proposal: Mapping[str, object]) -> None:
        super().__init__(message)
        self.proposal = dict(proposal)


@dataclass(frozen=True)
class _Figures:
    """Figures of the values of a variable, without missing ones."""

    count: int = 0
    missing: int = 0
    without_label: int = 0
    is_whole: bool = False
    are_whole_days: bool = False
    least: float | None = None
    most: float | None = None
    letters: int = 0


@dataclass(frozen=True)
class _Variable:
    position: int
    name: str
    is_text: bool
    meaning: Meaning
    format: str
    labels: Mapping[Any, str]  # by code: a number, a text, or the letter of a missing code
    missing: tuple[tuple[Any, Any], ...]  # ranges of user-missing values
    problem: str | None = None  # the reason why its values cannot be read
    figures: _Figures = _Figures()

    def column(self, part: Literal["value", "letter", "label"]) -> exp.Column:
        """A column of the raw table."""
        return col(f"{part} {self.position}")

    def has_labels(self, choices: ReadingChoices) -> bool:
        """Whether values that are read have labels; missing values count only if they are kept."""
        if choices.user_missing == "keep":
            return bool(self.labels)
        return any(
            self.is_text == isinstance(code, str) and not any(low <= code <= high for low, high in self.missing)
            for code in self.labels
        )

    def reads_labels(self, choices: ReadingChoices) -> bool:
        return self.has_labels(choices) and _reads_labels(self.name, choices)

    def missing_condition(self) -> exp.Expr:
        is_between = fragment(":value BETWEEN :low AND :high")
        ranges = [
            is_between(value=self.column("value"), low=_literal(low), high=_literal(high)) for low, high in self.missing
        ]
        return exp.or_(exp.false() if self.is_text else is_not_null(self.column("letter")), *ranges)

    def present(self, choices: ReadingChoices) -> exp.Expr:
        """The value, NULL where it is missing."""
        value = self.column("value")
        if choices.user_missing == "keep" or not self.missing:
            return value
        return exp.Case(ifs=[exp.If(this=self.missing_condition(), true=exp.null())], default=value)


@dataclass(frozen=True)
class _File:
    path: str
    kind: str
    variables: tuple[_Variable, ...]
    rows: int | None

    @property
    def name(self) -> str:
        return file_name(self.path)

    @property
    def day_unit(self) -> int:
        """The length of a day in the unit of dates."""
        return _SECONDS_OF_DAY if self.kind == "spss" else 1

    @property
    def moment_unit(self) -> int:
        """The length of a day in the unit of moments."""
        return _SECONDS_OF_DAY * (1000 if self.kind == "stata" else 1)

    def variable(self, name: str) -> _Variable:
        return next(variable for variable in self.variables if variable.name.lower() == name.lower())


def read_statistics_files(kind: str, scan: Scan, target: exp.Table | None) -> FileTable:
    """Read files of SPSS, Stata or SAS. Without a target, columns are described by their formats, and no rows are read.

    Columns that are not wanted need no decision by the policy.
    """
    if remote := [path for path in scan.paths if is_remote(path)]:
        raise SourceError(
            f"source.files: {file_name(remote[0])}: {PRODUCT_NAMES[kind]} files are read from this machine only"
        )
    if target is None:
        files = [_read_file(kind, scan, path, None) for path in scan.paths]
        return FileTable(values_query(_choose_types(files, scan, has_rows=False), []))
    with raw_tables(scan, target) as raw:
        files = [_read_file(kind, scan, path, rows) for path, rows in zip(scan.paths, raw, strict=True)]
        types = _choose_types(files, scan, has_rows=True)
        queries: list[exp.Query] = []
        for file, rows in zip(files, raw, strict=True):
            values: list[exp.Expr] = [
                as_column(_convert_column(file, file.variable(name), type_, scan.choices), name)
                for name, type_ in types.items()
            ]
            queries.append(select(values, rows))
        scan.engine.execute(create_table(target.copy(), union_all(*queries)))
    return FileTable(target)


# Descriptions of files


def _read_file(kind: str, scan: Scan, path: str, raw: exp.Table | None) -> _File:
    """Read the description of a file; with a raw table, copy its rows, and compute figures of its variables."""
    with _open_reader(path, kind) as (description, process):
        file = _describe_file(path, kind, description)
        if raw is not None:
            _copy_rows(scan.engine, file, process, raw)
    if raw is not None:
        return replace(file, variables=tuple(_compute_figures(scan, file, raw)))
    # Formats do not say whether all values have labels.
    assumed = (
        _Figures(
            is_whole=re.search(r"\.[1-9]", variable.format) is None,
            are_whole_days=True,
            without_label=bool(variable.labels),
        )
        for variable in file.variables
    )
    variables = zip(file.variables, assumed, strict=True)
    return replace(file, variables=tuple(replace(variable, figures=figures) for variable, figures in variables))


@contextmanager
def _open_reader(path: str, kind: str) -> Iterator[tuple[Any, Popen[bytes]]]:
    """The description of a file, and the process whose output has the rows as an Arrow stream."""
    import pyarrow  # noqa: PLC0415

    name = file_name(path)
    if importlib.util.find_spec("pyreadstat") is None:
        raise MissingLibraryError(f"{name}: reading {PRODUCT_NAMES[kind]} files", "pyreadstat", "stats")
    command = [sys.executable, "-c", _SCRIPT, "\n".join(sys.path), str(_READER), path, kind, str(_BATCH_CELLS)]
    with TemporaryFile() as errors, Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=errors) as process:
        assert process.stdout is not None
        try:
            header = process.stdout.readline()
            if not header.endswith(b"\n"):
                raise EOFError
            yield json.loads(header), process
        except (EOFError, OSError, pyarrow.ArrowException):
            status = process.wait()
            errors.seek(0)
            reason = "the file is broken, and reading it failed"
            if status == FAILED:
                reason = errors.read().decode(errors="replace").rpartition("\n")[2]
            raise SourceError(f"{name} cannot be read as a file of {PRODUCT_NAMES[kind]}: {reason}") from None
        finally:
            process.kill()


def _describe_file(path: str, kind: str, description: Mapping[str, Any]) -> _File:
    _refuse_cut_file(path, kind)
    variables: list[_Variable] = []
    for position, variable in enumerate(description["variables"]):
        is_text, format_ = variable["type"] == "string", variable["format"]
        meaning, problem = ("text", None) if is_text else _find_meaning(kind, format_)
        if meaning == "number" and variable["type"] == "float":
            meaning = "float"
        labels, ranges = dict(map(tuple, variable["labels"])), tuple(map(tuple, variable["missing"]))
        variables.append(_Variable(position, variable["name"], is_text, meaning, format_, labels, ranges, problem))
    name = file_name(path)
    refuse_ambiguous_names([variable.name for variable in variables], name)
    if not variables:
        raise SourceError(f"{name} has no columns")
    return _File(path, kind, tuple(variables), description["rows"])


def _find_meaning(kind: str, format_: str) -> tuple[Meaning, str | None]:
    """The meaning of numbers in a format, and the reason why they cannot be read, if there is one."""
    if kind == "stata":
        match = re.match(r"%-?(?:t([A-Za-z])|(d))(.*)", format_)
        letter = "" if match is None else match[1] or match[2]
        if match is not None and letter == "c" and _STATA_TIME_ONLY.fullmatch(match[3]):
            return "time", None
        return _STATA.get(letter, "number"), _STATA_PROBLEMS.get(letter)
    name = re.sub(r"[\d.]*$", "", format_.upper())
    if kind == "spss":
        return _SPSS.get(name, "number"), None
    return next((meaning for meaning, pattern in _SAS.items() if pattern.fullmatch(name)), "number"), None


def _refuse_cut_file(path: str, kind: str) -> None:
    """Refuse files without their end, and transport files with several data sets: the library reads a part of them."""
    header, count = re.compile(rb"HEADER RECORD\*{7}MEMB(ER|V8 )  HEADER RECORD!"), 0
    with Path(path).open("rb") as file:
        start, size = file.read(11), file.seek(0, 2)
        file.seek(max(0, size - 12))
        is_cut = start == b"<stata_dta>" and file.read() != b"</stata_dta>"
        if is_cut or (kind == "xport" and size % 80):
            raise SourceError(f"{file_name(path)} is broken: its end is missing")
        file.seek(0)
        while kind == "xport" and (block := file.read(80 * 100_000)):
            count += sum(match.start() % 80 == 0 for match in header.finditer(block))
    if count > 1:
        raise SourceError(f"{file_name(path)} has {count} data sets: export each to a separate file")


# Raw tables


def _copy_rows(engine: DuckDBEngine, file: _File, process: Popen[bytes], target: exp.Table) -> None:
    import pyarrow  # noqa: PLC0415

    count = 0
    batches = pyarrow.ipc.open_stream(process.stdout)
    empty = pyarrow.Table.from_batches([], batches.schema)
    with engine.register_arrow(empty) as relation:
        engine.execute(create_table(target.copy(), select_star(relation)))
    for batch in batches:
        with engine.register_arrow(pyarrow.Table.from_batches([batch])) as relation:
            engine.execute(exp.Insert(this=target.copy(), expression=select_star(relation)))
        count += batch.num_rows
    if process.wait():  # a truncated stream ends like a complete one
        raise EOFError
    if file.rows is not None and count != file.rows:
        raise SourceError(f"{file.name} is broken: its header declares {file.rows:,} rows, but it has {count:,}")


def _compute_figures(scan: Scan, file: _File, rows: exp.Table) -> Iterator[_Variable]:
    """Compute the figures of all variables in one pass."""
    count, count_where = fragment("count(:value)"), fragment("count(*) FILTER (WHERE :condition)")
    is_whole = fragment("coalesce(bool_and(:value = floor(:value) AND abs(:value) <= :exact), TRUE)")
    figures: list[dict[str, exp.Expr]] = []
    for variable in file.variables:
        value = variable.present(scan.choices)
        lacks_label = exp.and_(is_not_null(value), is_null(variable.column("label")))
        expressions: dict[str, exp.Expr] = {
            "count": count(value=value),
            "missing": count_where(condition=variable.missing_condition()),
            "without_label": count_where(condition=lacks_label if variable.labels else exp.false()),
        }
        if not variable.is_text:
            expressions |= {
                "is_whole": is_whole(value=value, exact=_MAX_EXACT_INTEGER),
                "are_whole_days": fragment("coalesce(bool_and(:value % :day = 0), TRUE)")(
                    value=value, day=file.day_unit
                ),
                "least": exp.Min(this=value.copy()),
                "most": exp.Max(this=value.copy()),
                "letters": count(value=variable.column("letter")),
            }
        figures.append(expressions)
    output = [expression for expressions in figures for expression in expressions.values()]
    row = iter(scan.engine.rows(select(output, rows))[0])
    for variable, expressions in zip(file.variables, figures, strict=True):
        yield replace(variable, figures=_Figures(**{name: next(row) for name in expressions}))


# Decisions of the policy


def _refuse_undecided(files: Sequence[_File], scan: Scan) -> None:
    """Refuse value labels and user-missing values for which the policy has no key."""
    labelled, missing = dict[str, _Variable](), dict[str, int]()
    for file in files:
        for variable in file.variables:
            if variable.has_labels(scan.choices) and scan.is_wanted(variable.name):
                labelled.setdefault(variable.name, variable)
            if variable.figures.missing and scan.is_wanted(variable.name):
                missing[variable.name] = missing.get(variable.name, 0) + variable.figures.missing
    problems: list[str] = []
    proposal: dict[str, object] = {}
    if labelled and scan.choices.value_labels is None:
        complete = [name for name in labelled if not _count_rows_without_label(files, name)]
        proposal["value_labels"] = complete or False
        columns = _join_words([f"{name} ({_describe_labels(variable)})" for name, variable in labelled.items()])
        labels = f"{toml_value(complete)} reads the labels of these columns"
        if not complete:
            labels = '["NAME", ...] reads the labels of columns'
        problems.append(
            f"{count_noun(len(labelled), 'column', 'has', 'have')} value labels: {columns}; decide how they are read: "
            f"value_labels = {labels}, false reads codes"
        )
    if missing and scan.choices.user_missing is None:
        proposal["user_missing"] = "missing"
        columns = _join_words([f"{name} ({count_noun(count, 'value')})" for name, count in missing.items()])
        problems.append(
            f"{count_noun(len(missing), 'column', 'has', 'have')} user-missing values: {columns}; decide how they "
            'are read: user_missing = "missing" reads them as NULL, "keep" as ordinary values'
        )
    if problems:
        raise UndecidedReadingError(f"source.files: {_describe_files(files)}: {'. '.join(problems)}", proposal)


def _refuse_labels(files: Sequence[_File], scan: Scan) -> None:
    """Refuse labels that cannot be read as the policy says, and codes with another label in another file."""
    chosen, description = scan.choices.value_labels, _describe_files(files)
    names = {variable.name.lower(): variable.name for variable in files[0].variables}
    labelled = {variable.name.lower() for file in files for variable in file.variables if variable.labels}
    if isinstance(chosen, tuple):
        if unknown := [name for name in chosen if name.lower() not in names]:
            raise SourceError(f"source.value_labels: {description} has no column {unknown[0]!r}")
        if unlabelled := [name for name in chosen if name.lower() not in labelled]:
            raise SourceError(f"source.value_labels: column {unlabelled[0]!r} of {description} has no value labels")
    wanted = [name for name in names.values() if scan.is_wanted(name)]
    for name in wanted if chosen is True else ():
        is_labelled = any(file.variable(name).has_labels(scan.choices) for file in files)
        if is_labelled and (rows := _count_rows_without_label(files, name)):
            raise SourceError(
                f"source.value_labels: {count_noun(rows, 'value')} of {name!r} in {description} "
                f"{'has' if rows == 1 else 'have'} no label: list the columns whose labels are read, "
                'value_labels = ["NAME", ...]; a value without a label is then read as the text of its code'
            )
    for name in wanted:
        first: dict[Any, tuple[str, str]] = {}
        for file in files if not _reads_labels(name, scan.choices) else ():
            for code, label in file.variable(name).labels.items():
                first_label, first_file = first.setdefault(code, (label, file.name))
                if first_label != label:
                    raise SourceError(
                        f"source.files: code {_format_code(code)} of {name!r} is {first_label!r} in {first_file} and "
                        f'{label!r} in {file.name}: read its labels, value_labels = ["{name}"]'
                    )


def _count_rows_without_label(files: Sequence[_File], name: str) -> int:
    variables = [file.variable(name) for file in files]
    return sum(variable.figures.without_label if variable.labels else variable.figures.count for variable in variables)


def _reads_labels(name: str, choices: ReadingChoices) -> bool:
    if isinstance(choices.value_labels, tuple):
        return name.lower() in {column.lower() for column in choices.value_labels}
    return choices.value_labels is True


# Types and values


def _choose_types(files: Sequence[_File], scan: Scan, has_rows: bool) -> dict[str, str]:
    """Choose the type of each column by the values of all files; refuse what the policy has to decide."""
    refuse_different_columns(
        [(file.path, dict.fromkeys(variable.name for variable in file.variables)) for file in files]
    )
    _refuse_undecided(files, scan)
    if has_rows:
        _refuse_labels(files, scan)
    types: dict[str, str] = {}
    for name in (variable.name for variable in files[0].variables):
        parts = [(file, file.variable(name)) for file in files]
        for file, variable in parts:
            _refuse_unreadable(file, variable, scan.is_wanted(name))
        is_text = name.lower() in scan.text_columns or any(
            variable.reads_labels(scan.choices) or (scan.choices.user_missing == "keep" and variable.figures.letters)
            for _, variable in parts
        )
        with_values = [part for part in parts if part[1].figures.count or part[1].figures.letters] or parts[:1]
        file_by_type = {_infer_type(file, variable): file.name for file, variable in reversed(with_values)}
        has_one_meaning = len(file_by_type) == 1 or not {"DATE", "TIMESTAMP", "TIME"} & {*file_by_type}
        types[name] = "VARCHAR" if is_text and has_one_meaning else _common_type(name, file_by_type)
    return types


def _common_type(name: str, files: Mapping[str, str]) -> str:
    """One type for the values of all files; ``files`` has the first file of each type."""
    types = {*files}
    if len(types) == 1:
        return types.pop()
    if types <= {"BIGINT", "FLOAT", "DOUBLE"}:
        return "DOUBLE"
    if types == {"DATE", "TIMESTAMP"}:
        return "TIMESTAMP"
    types_by_file = " and ".join(f"{type_} in {file}" for type_, file in files.items())
    raise SourceError(f"source.files: {name!r} is {types_by_file}; give it the same type in all files")


def _infer_type(file: _File, variable: _Variable) -> str:
    """Infer the type of the values of a variable."""
    figures = variable.figures
    least, most = figures.least or 0, figures.most or 0
    match variable.meaning:
        case "text":
            return "VARCHAR"
        case "date":
            return "DATE" if figures.are_whole_days else "TIMESTAMP"
        case "timestamp":
            return "TIMESTAMP"
        case "week" | "month" | "quarter" | "half" if figures.is_whole:
            return "DATE"
        case "time" if least >= 0 and most < file.moment_unit:  # otherwise a duration
            return "TIME"
    return "BIGINT" if figures.is_whole else "FLOAT" if variable.meaning == "float" else "DOUBLE"


def _refuse_unreadable(file: _File, variable: _Variable, is_wanted: bool) -> None:
    if variable.problem is not None and is_wanted:
        raise SourceError(f"{file.name}: column {variable.name!r} {variable.problem}; or leave the column out")
    # By meaning, the length of a day; a year has 52 weeks in Stata.
    days: dict[str, float] = {"date": file.day_unit, "timestamp": file.moment_unit}
    days |= {"week": 1 / 7.1, "month": 1 / 31, "quarter": 1 / 92, "half": 1 / 184}
    least, most = variable.figures.least, variable.figures.most
    if variable.meaning not in days or least is None or most is None:
        return
    origin = date.fromisoformat(_ORIGIN[file.kind])
    low, high = ((day - origin).days * days[variable.meaning] for day in (date.min, date.max))
    if not (math.isfinite(most) and low <= least and most < high):
        raise SourceError(
            f"{file.name}: column {variable.name!r} has dates outside the years 1 to 9999; correct the file, or "
            "remove the date format"
        )


def _convert_column(file: _File, variable: _Variable, type_: str, choices: ReadingChoices) -> exp.Expr:
    """Convert a column of a file to a type: the label, else the value, else the letter of a missing code."""
    value, letter = variable.present(choices), variable.column("letter")
    values = [_convert_value(file, variable, value, type_)]
    keeps_letters = choices.user_missing == "keep" and not variable.is_text and type_ == "VARCHAR"
    if variable.reads_labels(choices):
        is_read = exp.or_(is_not_null(value), is_not_null(letter)) if keeps_letters else is_not_null(value)
        values.insert(0, exp.Case(ifs=[exp.If(this=is_read, true=variable.column("label"))]))
    if keeps_letters:
        values.append(exp.DPipe(this=text("."), expression=letter))
    return cast(exp.Coalesce(this=values[0], expressions=values[1:]) if len(values) > 1 else values[0], type_)


def _convert_value(file: _File, variable: _Variable, value: exp.Expr, type_: str) -> exp.Expr:
    """Convert a value to the type it has in its file, then to the type of the column in all files."""
    if variable.is_text:
        return value
    file_type = _infer_type(file, variable)
    typed = _convert_number(file, variable.meaning, value, file_type)
    if type_ != "VARCHAR":
        return typed
    padded = _PADDED.match(variable.format.upper())
    if file_type == "BIGINT" and padded is not None:  # as the format shows it: 02139
        return fragment("lpad(:whole, greatest(length(:whole), :width)::INTEGER, '0')")(
            whole=cast(typed, "VARCHAR"), width=int(padded[1])
        )
    return cast(typed, "VARCHAR")


def _convert_number(file: _File, meaning: Meaning, value: exp.Expr, type_: str) -> exp.Expr:
    """Convert a number to the value that it represents."""
    origin = text(f"{_ORIGIN[file.kind]} 00:00:00")
    typed: exp.Expr = cast(value, type_)
    match (meaning, type_):
        case ("date", "DATE"):
            typed = fragment("((:origin::TIMESTAMP) + to_days(floor(:value / :day)::INTEGER))::DATE")(
                origin=origin, value=value, day=file.day_unit
            )
        case ("date" | "timestamp", "TIMESTAMP") if file.kind == "stata" or (meaning == "date" and file.kind != "spss"):
            microseconds = 86_400_000_000 if meaning == "date" else 1000
            typed = fragment("(:origin::TIMESTAMP) + to_microseconds(round(:value * :microseconds)::BIGINT)")(
                origin=origin, value=value, microseconds=microseconds
            )
        case ("date" | "timestamp", "TIMESTAMP"):
            # Seconds since 1582 have five decimals as DOUBLE, and since 1960 six.
            unit, width = (100_000, 10) if file.kind == "spss" else (1_000_000, 1)
            typed = fragment("""
                (:origin::TIMESTAMP) + to_microseconds(
                    floor(:value)::BIGINT * 1000000 + round((:value - floor(:value)) * :unit)::BIGINT * :width
                )
            """)(origin=origin, value=value, unit=unit, width=width)
        case ("time", "TIME"):
            typed = fragment("TIME '00:00:00' + to_microseconds(round(:value * :unit)::BIGINT)")(
                value=value, unit=1000 if file.kind == "stata" else 1_000_000
            )
        case ("week", "DATE"):
            typed = fragment("""
                (DATE '1960-01-01' + to_years(floor(:value / 52)::INTEGER)
                    + to_days(((:value - floor(:value / 52) * 52) * 7)::INTEGER))::DATE
            """)(value=value)
        case ("month" | "quarter" | "half", "DATE"):
            periods = {"month": 12, "quarter": 4, "half": 2}[meaning]
            typed = fragment("""
                (DATE '1960-01-01' + to_years(floor(:value / :periods)::INTEGER)
                    + to_months(((:value - floor(:value / :periods) * :periods) * :months)::INTEGER))::DATE
            """)(value=value, periods=periods, months=12 // periods)
    return typed


# Messages


def _describe_files(files: Sequence[_File]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _describe_labels(variable: _Variable) -> str:
    codes = [code for code in variable.labels if variable.is_text == isinstance(code, str)][:2]
    return ", ".join(f"{_format_code(code)} = {variable.labels[code]}" for code in codes)


def _format_code(code: Any) -> str:
    is_whole = isinstance(code, float) and code == math.floor(code) and abs(code) <= _MAX_EXACT_INTEGER
    return str(int(code)) if is_whole else str(code)


def _join_words(words: Sequence[str]) -> str:
    more = len(words) - _MAX_LISTED
    return ", ".join(words[:_MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _literal(value: Any) -> exp.Expr:
    return text(value) if isinstance(value, str) else exp.cast(exp.convert(repr(float(value))), "DOUBLE")
