"""Read files of SPSS, Stata and SAS with pyreadstat: integers, dates, value labels and missing codes are exact.

Another process, `statistics_reader`, reads a file in batches into a raw table: each numeric variable as DOUBLE, beside
it the letter of a missing code and, where it has value labels, the label. Types and values are then derived in SQL.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import MissingLibraryError, SourceError
from sqlanon.places.databases import file_name, is_remote
from sqlanon.sources.statistics_reader import FAILED
from sqlanon.sources.tabular import refuse_ambiguous_names, refuse_different_columns
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    create_table,
    drop_table,
    fragment,
    is_not_null,
    is_null,
    select,
    select_star,
    table,
    text,
    union_all,
    values_query,
)
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_value

Kind: TypeAlias = Literal["spss", "stata", "sas", "xport"]
Meaning: TypeAlias = Literal["number", "float", "text", "date", "timestamp", "time", "week", "month", "quarter", "half"]
"""Meaning of a variable's values, by its format: numbers, texts, or days and moments counted from an origin."""

PRODUCT_NAMES: Mapping[str, str] = {"spss": "SPSS", "stata": "Stata", "sas": "SAS", "xport": "SAS transport"}

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
_SAS: Sequence[tuple[re.Pattern[str], Meaning]] = (
    (_SAS_TIMESTAMP, "timestamp"),
    (_SAS_TIME, "time"),
    (_SAS_DATE, "date"),
)
_STATA: Mapping[str, Meaning] = {
    "d": "date",
    "c": "timestamp",
    "w": "week",
    "m": "month",
    "q": "quarter",
    "h": "half",
    "y": "number",
}
_STATA_TIME_ONLY = re.compile(r"(HH|Hh|hh|hH|MM|mm|SS|ss|\.s+|AM|am|a\.m\.|A\.M\.|[:_. ])+")
_PADDED = re.compile(r"(?:N|Z|%0)(\d+)(?:\.0[FG])?$")

_PERIOD = fragment(
    "(DATE '1960-01-01' + to_years(floor(:value / :periods)::INTEGER)"
    " + to_months(((:value - floor(:value / :periods) * :periods) * :months)::INTEGER))::DATE"
)
_WEEK = fragment(
    "(DATE '1960-01-01' + to_years(floor(:value / 52)::INTEGER)"
    " + to_days(((:value - floor(:value / 52) * 52) * 7)::INTEGER))::DATE"
)

_COUNT = fragment("count(:value)")
_COUNT_WHERE = fragment("count(*) FILTER (WHERE :condition)")

_MAX_EXACT_INTEGER = 2**53
"""From here on, a DOUBLE does not represent every integer."""


@dataclass(frozen=True)
class ReadingChoices:
    """The keys of a policy for these files."""

    value_labels: bool | tuple[str, ...] | None = None
    user_missing: Literal["missing", "keep"] | None = None


class UndecidedReadingError(SourceError):
    """The policy does not say how to read value labels or user-missing values; ``proposal`` has keys that do."""

    def __init__(self, message: str, proposal: Mapping[str, object]) -> None:
        super().__init__(message)
        self.proposal = dict(proposal)


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

    @property
    def value(self) -> exp.Column:
        return col(f"value {self.position}")

    @property
    def letter(self) -> exp.Column:
        return col(f"letter {self.position}")

    @property
    def label(self) -> exp.Column:
        return col(f"label {self.position}")

    def has_labels(self, choices: ReadingChoices) -> bool:
        """Whether values that are read have labels; missing values count only if they are kept."""
        if choices.user_missing == "keep":
            return bool(self.labels)
        return any(self.is_text == isinstance(code, str) and not self.is_missing(code) for code in self.labels)

    def reads_labels(self, choices: ReadingChoices) -> bool:
        return self.has_labels(choices) and _reads_labels(self.name, choices)

    def is_missing(self, code: Any) -> bool:
        return any(low <= code <= high for low, high in self.missing)

    def missing_condition(self) -> exp.Expr:
        ranges = [
            fragment(":value BETWEEN :low AND :high")(value=self.value, low=_literal(low), high=_literal(high))
            for low, high in self.missing
        ]
        return exp.or_(is_not_null(self.letter), *ranges) if not self.is_text else exp.or_(exp.false(), *ranges)

    def present(self, choices: ReadingChoices) -> exp.Expr:
        """The value, NULL where it is missing."""
        if choices.user_missing == "keep" or not self.missing:
            return self.value
        return exp.Case(ifs=[exp.If(this=self.missing_condition(), true=exp.null())], default=self.value)


@dataclass(frozen=True)
class _Figures:
    """Figures of the values of a variable, without missing ones."""

    count: int
    is_whole: bool
    are_whole_days: bool
    least: float | None
    most: float | None
    missing: int
    letters: int
    without_label: int


@dataclass(frozen=True)
class _File:
    path: str
    kind: Kind
    variables: tuple[_Variable, ...]
    rows: int | None

    @property
    def name(self) -> str:
        return file_name(self.path)

    def variable(self, name: str) -> _Variable:
        return next(variable for variable in self.variables if variable.name.lower() == name.lower())


def copy_statistics_files(
    engine: DuckDBEngine,
    paths: list[str],
    kind: Kind,
    text_columns: Collection[str],
    wanted: Collection[str],
    choices: ReadingChoices,
    target: exp.Table,
) -> None:
    """Copy the rows of files to a table. Columns that are not ``wanted`` need no decision by the policy."""
    raw = [table(f"{target.name}_raw_{index}", target.db, target.catalog) for index in range(len(paths))]
    try:
        files = _read_files(paths, kind, engine, raw)
        figures = [_compute_figures(engine, file, rows, choices) for file, rows in zip(files, raw, strict=True)]
        _refuse_undecided(files, figures, wanted, choices)
        _refuse_labels(files, figures, wanted, choices)
        types = _common_types(files, figures, text_columns, wanted, choices)
        queries = [
            select(
                [
                    as_column(_convert_column(file, name, type_, file_figures, choices), name)
                    for name, type_ in types.items()
                ],
                rows,
            )
            for file, file_figures, rows in zip(files, figures, raw, strict=True)
        ]
        engine.execute(create_table(target.copy(), union_all(*queries)))
    finally:
        for rows in raw:
            engine.execute(drop_table(rows.copy(), exists=True))


def describe_statistics_files(
    paths: list[str], kind: Kind, text_columns: Collection[str], wanted: Collection[str], choices: ReadingChoices
) -> exp.Select:
    """A query without rows that has the columns of files, by their formats: for plans, which read no rows."""
    files = _read_files(paths, kind)
    figures = [[_assume_figures(variable) for variable in file.variables] for file in files]
    _refuse_undecided(files, figures, wanted, choices)
    types = _common_types(files, figures, text_columns, wanted, choices)
    return values_query(types, [])


# Descriptions of files


def _read_files(
    paths: list[str], kind: Kind, engine: DuckDBEngine | None = None, raw: Sequence[exp.Table] = ()
) -> list[_File]:
    """Read the descriptions of files; with an engine, copy their rows to raw tables."""
    if remote := [path for path in paths if is_remote(path)]:
        raise SourceError(
            f"source.files: {file_name(remote[0])}: {PRODUCT_NAMES[kind]} files are read from this machine only"
        )
    files: list[_File] = []
    for index, path in enumerate(paths):
        with _open_reader(path, kind) as (description, process):
            files.append(_describe_file(path, kind, description))
            if engine is not None:
                _copy_rows(engine, files[-1], process, raw[index])
    refuse_different_columns(
        [(file.path, dict.fromkeys(variable.name for variable in file.variables)) for file in files]
    )
    return files


@contextmanager
def _open_reader(path: str, kind: Kind) -> Iterator[tuple[Any, Popen[bytes]]]:
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


def _describe_file(path: str, kind: Kind, description: Mapping[str, Any]) -> _File:
    variables = tuple(_parse_variables(description["variables"], kind))
    _refuse_cut_file(path, kind)
    if kind == "xport":
        _refuse_several_tables(path)
    name = file_name(path)
    refuse_ambiguous_names([variable.name for variable in variables], name)
    if not variables:
        raise SourceError(f"{name} has no columns")
    return _File(path, kind, variables, description["rows"])


def _parse_variables(descriptions: Sequence[Mapping[str, Any]], kind: Kind) -> Iterator[_Variable]:
    for position, description in enumerate(descriptions):
        is_text = description["type"] == "string"
        meaning, problem = ("text", None) if is_text else _find_meaning(kind, description["format"])
        if meaning == "number" and description["type"] == "float":
            meaning = "float"
        labels = dict(map(tuple, description["labels"]))
        ranges = tuple(map(tuple, description["missing"]))
        yield _Variable(position, description["name"], is_text, meaning, description["format"], labels, ranges, problem)


def _find_meaning(kind: Kind, format_: str) -> tuple[Meaning, str | None]:
    """The meaning of numbers in a format, and the reason why they cannot be read, if there is one."""
    if kind == "stata":
        match = re.match(r"%-?(?:t([A-Za-z])|(d))(.*)", format_)
        return ("number", None) if match is None else _find_meaning_in_stata(match[1] or match[2], match[3])
    name = re.sub(r"[\d.]*$", "", format_.upper())
    if kind == "spss":
        return _SPSS.get(name, "number"), None
    return next((meaning for pattern, meaning in _SAS if pattern.fullmatch(name)), "number"), None


def _find_meaning_in_stata(letter: str, display: str) -> tuple[Meaning, str | None]:
    problems = {
        "C": "counts leap seconds (%tC): convert it in Stata with cofC(), to %tc",
        "b": "counts the days of a business calendar (%tb): convert it in Stata with dofb(), to %td",
    }
    if letter == "c" and _STATA_TIME_ONLY.fullmatch(display):
        return "time", None
    return _STATA.get(letter, "number"), problems.get(letter)


def _refuse_cut_file(path: str, kind: Kind) -> None:
    """Refuse files without their end: the library reads some of them, without the labels or rows of the end."""
    with Path(path).open("rb") as file:
        start, size = file.read(11), file.seek(0, 2)
        file.seek(max(0, size - 12))
        is_cut = start == b"<stata_dta>" and file.read() != b"</stata_dta>"
    if is_cut or (kind == "xport" and size % 80):
        raise SourceError(f"{file_name(path)} is broken: its end is missing")


def _refuse_several_tables(path: str) -> None:
    """Refuse a transport file with several data sets: the library reads only the first one."""
    header, count = re.compile(rb"HEADER RECORD\*{7}MEMB(ER|V8 )  HEADER RECORD!"), 0
    with Path(path).open("rb") as file:
        while block := file.read(80 * 100_000):
            count += sum(match.start() % 80 == 0 for match in header.finditer(block))
    if count > 1:
        raise SourceError(f"{file_name(path)} has {count} data sets: export each to a file of its own")


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
        raise SourceError(f"{file.name} is broken: its header says {file.rows:,} rows, and it has {count:,}")


def _compute_figures(engine: DuckDBEngine, file: _File, rows: exp.Table, choices: ReadingChoices) -> list[_Figures]:
    figures: list[exp.Expr] = []
    for variable in file.variables:
        value, is_missing = variable.present(choices), variable.missing_condition()
        unit = exp.convert(_unit_of_day(file.kind))
        without_label = exp.and_(is_not_null(value), is_null(variable.label)) if variable.labels else exp.false()
        figures += [_COUNT(value=value), _COUNT_WHERE(condition=is_missing), _COUNT_WHERE(condition=without_label)]
        if not variable.is_text:
            figures += [
                fragment("coalesce(bool_and(:value = floor(:value) AND abs(:value) <= :exact), TRUE)")(
                    value=value, exact=exp.convert(_MAX_EXACT_INTEGER)
                ),
                fragment("coalesce(bool_and(:value % :unit = 0), TRUE)")(value=value, unit=unit),
                exp.Min(this=value.copy()),
                exp.Max(this=value.copy()),
                _COUNT(value=variable.letter),
            ]
    row = iter(engine.rows(select(figures, rows))[0])
    all_figures: list[_Figures] = []
    for variable in file.variables:
        count, missing, without = next(row), next(row), next(row)
        if variable.is_text:
            all_figures.append(_Figures(count, False, False, None, None, missing, 0, without))
        else:
            whole, days, least, most, letters = (next(row) for _ in range(5))
            all_figures.append(_Figures(count, whole, days, least, most, missing, letters, without))
    return all_figures


def _assume_figures(variable: _Variable) -> _Figures:
    """Assume figures of a variable by its format, which does not say whether all values have labels."""
    is_whole = re.search(r"\.[1-9]", variable.format) is None
    return _Figures(0, is_whole, True, None, None, 0, 0, 1 if variable.labels else 0)


# Decisions of the policy


def _refuse_undecided(
    files: Sequence[_File], figures: Sequence[Sequence[_Figures]], wanted: Collection[str], choices: ReadingChoices
) -> None:
    """Refuse value labels and user-missing values for which the policy has no key."""
    labelled = {
        variable.name: (variable, file)
        for file in reversed(files)
        for variable in file.variables
        if variable.has_labels(choices) and _is_wanted(variable.name, wanted)
    }
    missing: dict[str, int] = {}
    for file, file_figures in zip(files, figures, strict=True):
        for variable, variable_figures in zip(file.variables, file_figures, strict=True):
            if variable_figures.missing and _is_wanted(variable.name, wanted):
                missing[variable.name] = missing.get(variable.name, 0) + variable_figures.missing
    problems: list[str] = []
    complete = [name for name in labelled if not _count_rows_without_label(files, figures, name)]
    proposal: dict[str, object] = {}
    if labelled and choices.value_labels is None:
        proposal["value_labels"] = complete or False
        columns = _join_words([f"{name} ({_describe_labels(variable)})" for name, (variable, _) in labelled.items()])
        labels = (
            f"{toml_value(complete)} reads the labels of these columns"
            if complete
            else '["NAME", ...] reads the labels of columns'
        )
        problems.append(
            f"{count_noun(len(labelled), 'column', 'has', 'have')} value labels: {columns}; decide how they are read: "
            f"value_labels = {labels}, false reads codes"
        )
    if missing and choices.user_missing is None:
        proposal["user_missing"] = "missing"
        columns = _join_words([f"{name} ({count_noun(count, 'value')})" for name, count in missing.items()])
        problems.append(
            f"{count_noun(len(missing), 'column', 'has', 'have')} user-missing values: {columns}; decide how they "
            'are read: user_missing = "missing" reads them as NULL, "keep" as ordinary values'
        )
    if problems:
        raise UndecidedReadingError(f"source.files: {_describe_files(files)}: {'. '.join(problems)}", proposal)


def _refuse_labels(
    files: Sequence[_File], figures: Sequence[Sequence[_Figures]], wanted: Collection[str], choices: ReadingChoices
) -> None:
    """Refuse labels that cannot be read as the policy says, and codes with another label in another file."""
    chosen = choices.value_labels
    names = {variable.name.lower(): variable.name for variable in files[0].variables}
    labelled = {variable.name.lower() for file in files for variable in file.variables if variable.labels}
    if isinstance(chosen, tuple):
        if strange := [name for name in chosen if name.lower() not in names]:
            raise SourceError(f"source.value_labels: {_describe_files(files)} has no column {strange[0]!r}")
        if strange := [name for name in chosen if name.lower() not in labelled]:
            raise SourceError(
                f"source.value_labels: column {strange[0]!r} of {_describe_files(files)} has no value labels"
            )
    if chosen is True:
        for name in names.values():
            is_labelled = any(file.variable(name).has_labels(choices) for file in files)
            rows = _count_rows_without_label(files, figures, name) if is_labelled and _is_wanted(name, wanted) else 0
            if rows:
                raise SourceError(
                    f"source.value_labels: {count_noun(rows, 'value')} of {name!r} in {_describe_files(files)} "
                    f"{'has' if rows == 1 else 'have'} no label: list the columns whose labels are read, "
                    'value_labels = ["NAME", ...]; a value without a label is then read as the text of its code'
                )
    for name in names.values():
        if not _reads_labels(name, choices) and _is_wanted(name, wanted):
            _refuse_different_labels(files, name)


def _refuse_different_labels(files: Sequence[_File], name: str) -> None:
    first: dict[Any, tuple[str, str]] = {}
    for file in files:
        for code, label in file.variable(name).labels.items():
            first_label, first_file = first.setdefault(code, (label, file.name))
            if first_label != label:
                raise SourceError(
                    f"source.files: code {_format_code(code)} of {name!r} is {first_label!r} in {first_file} and "
                    f'{label!r} in {file.name}: read its labels, value_labels = ["{name}"]'
                )


def _is_wanted(name: str, wanted: Collection[str]) -> bool:
    return not wanted or name.lower() in wanted


def _count_rows_without_label(files: Sequence[_File], figures: Sequence[Sequence[_Figures]], name: str) -> int:
    return sum(
        (file_figures[variable.position].without_label if variable.labels else file_figures[variable.position].count)
        for file, file_figures in zip(files, figures, strict=True)
        for variable in (file.variable(name),)
    )


def _reads_labels(name: str, choices: ReadingChoices) -> bool:
    if isinstance(choices.value_labels, tuple):
        return name.lower() in {column.lower() for column in choices.value_labels}
    return choices.value_labels is True


# Types and values


def _common_types(
    files: Sequence[_File],
    figures: Sequence[Sequence[_Figures]],
    text_columns: Collection[str],
    wanted: Collection[str],
    choices: ReadingChoices,
) -> dict[str, str]:
    """Infer the type of each column from the values of all files."""
    types: dict[str, str] = {}
    for name in (variable.name for variable in files[0].variables):
        parts = [
            (file, variable, file_figures[variable.position])
            for file, file_figures in zip(files, figures, strict=True)
            for variable in (file.variable(name),)
        ]
        for file, variable, variable_figures in parts:
            _refuse_unreadable(file, variable, variable_figures, _is_wanted(name, wanted))
        is_text = name.lower() in text_columns or any(
            variable.reads_labels(choices) or (choices.user_missing == "keep" and variable_figures.letters)
            for _, variable, variable_figures in parts
        )
        with_values = [part for part in parts if part[2].count or part[2].letters] or parts[:1]
        file_by_type = {
            _infer_type(file.kind, variable, variable_figures): file.name
            for file, variable, variable_figures in reversed(with_values)
        }
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


def _infer_type(kind: Kind, variable: _Variable, figures: _Figures) -> str:
    """Infer the type of the values of a variable."""
    least, most = figures.least or 0, figures.most or 0
    type_ = "BIGINT" if figures.is_whole else "FLOAT" if variable.meaning == "float" else "DOUBLE"
    match variable.meaning:
        case "text":
            type_ = "VARCHAR"
        case "date":
            type_ = "DATE" if figures.are_whole_days else "TIMESTAMP"
        case "timestamp":
            type_ = "TIMESTAMP"
        case "week" | "month" | "quarter" | "half" if figures.is_whole:
            type_ = "DATE"
        case "time" if least >= 0 and most < _unit_of_moments(kind):  # otherwise a duration
            type_ = "TIME"
    return type_


def _unit_of_day(kind: Kind) -> int:
    """The length of a day in the unit of dates."""
    return _SECONDS_OF_DAY if kind == "spss" else 1


def _unit_of_moments(kind: Kind) -> int:
    """The length of a day in the unit of moments."""
    return _SECONDS_OF_DAY * (1000 if kind == "stata" else 1)


def _refuse_unreadable(file: _File, variable: _Variable, figures: _Figures, is_wanted: bool) -> None:
    if variable.problem is not None and is_wanted:
        raise SourceError(f"{file.name}: column {variable.name!r} {variable.problem}; or leave the column out")
    if variable.meaning not in ("date", "timestamp", "week", "month", "quarter", "half") or figures.least is None:
        return
    assert figures.most is not None
    origin = date.fromisoformat(_ORIGIN[file.kind])
    units = {
        "date": _unit_of_day(file.kind),
        "timestamp": _unit_of_moments(file.kind),
        "week": 1 / 7.1,  # a year has 52 weeks in Stata
        "month": 1 / 31,
        "quarter": 1 / 92,
        "half": 1 / 184,
    }
    low, high = ((day - origin).days * units[variable.meaning] for day in (date.min, date.max))
    if not (math.isfinite(figures.most) and low <= figures.least and figures.most < high):
        raise SourceError(
            f"{file.name}: column {variable.name!r} has dates outside the years 1 to 9999; correct the file, or "
            "remove the date format"
        )


def _convert_column(
    file: _File, name: str, type_: str, figures: Sequence[_Figures], choices: ReadingChoices
) -> exp.Expr:
    """Convert a column of a file to a type: the label, else the value, else the letter of a missing code."""
    variable = file.variable(name)
    value = variable.present(choices)
    values = [
        _convert_value(file, variable, value, _infer_type(file.kind, variable, figures[variable.position]), type_)
    ]
    keeps_letters = choices.user_missing == "keep" and not variable.is_text and type_ == "VARCHAR"
    if variable.reads_labels(choices):
        is_read = exp.or_(is_not_null(value), is_not_null(variable.letter)) if keeps_letters else is_not_null(value)
        values.insert(0, exp.Case(ifs=[exp.If(this=is_read, true=variable.label)]))
    if keeps_letters:
        values.append(exp.DPipe(this=text("."), expression=variable.letter))
    return cast(exp.Coalesce(this=values[0], expressions=values[1:]) if len(values) > 1 else values[0], type_)


def _convert_value(file: _File, variable: _Variable, value: exp.Expr, file_type: str, type_: str) -> exp.Expr:
    """Convert a value to the type it has in its file, then to the type of the column in all files."""
    if variable.is_text:
        return value
    typed = _convert_number(file, variable, value, file_type)
    if type_ != "VARCHAR":
        return typed
    padded = _PADDED.match(variable.format.upper())
    if file_type == "BIGINT" and padded is not None:  # as the format shows it: 02139
        return fragment("lpad(:whole, greatest(length(:whole), :width)::INTEGER, '0')")(
            whole=cast(typed, "VARCHAR"), width=exp.convert(int(padded[1]))
        )
    return cast(typed, "VARCHAR")


def _convert_number(file: _File, variable: _Variable, value: exp.Expr, type_: str) -> exp.Expr:
    """Convert a number to the value that it represents."""
    origin = text(f"{_ORIGIN[file.kind]} 00:00:00")
    typed: exp.Expr = cast(value, type_)
    match (variable.meaning, type_):
        case ("date", "DATE"):
            typed = fragment("((:origin::TIMESTAMP) + to_days(floor(:value / :unit)::INTEGER))::DATE")(
                origin=origin, value=value, unit=exp.convert(_unit_of_day(file.kind))
            )
        case ("date", "TIMESTAMP") if file.kind != "spss":
            typed = fragment("(:origin::TIMESTAMP) + to_microseconds(round(:value * 86400000000)::BIGINT)")(
                origin=origin, value=value
            )
        case ("date" | "timestamp", "TIMESTAMP") if file.kind == "stata":
            typed = fragment("(:origin::TIMESTAMP) + to_microseconds(round(:value * 1000)::BIGINT)")(
                origin=origin, value=value
            )
        case ("date" | "timestamp", "TIMESTAMP"):
            # Seconds since 1582 have five decimals as DOUBLE, and since 1960 six.
            unit, width = (100_000, 10) if file.kind == "spss" else (1_000_000, 1)
            rest = fragment("round((:value - floor(:value)) * :unit)::BIGINT * :width")(
                value=value, unit=exp.convert(unit), width=exp.convert(width)
            )
            typed = fragment("(:origin::TIMESTAMP) + to_microseconds(:whole * 1000000 + :rest)")(
                origin=origin, whole=fragment("floor(:value)::BIGINT")(value=value), rest=rest
            )
        case ("time", "TIME"):
            typed = fragment("TIME '00:00:00' + to_microseconds(round(:value * :unit)::BIGINT)")(
                value=value, unit=exp.convert(1000 if file.kind == "stata" else 1_000_000)
            )
        case ("week", "DATE"):
            typed = _WEEK(value=value)
        case ("month" | "quarter" | "half", "DATE"):
            periods = {"month": 12, "quarter": 4, "half": 2}[variable.meaning]
            typed = _PERIOD(value=value, periods=exp.convert(periods), months=exp.convert(12 // periods))
    return typed


# Messages


def _describe_files(files: Sequence[_File]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _describe_labels(variable: _Variable) -> str:
    codes = [code for code in variable.labels if variable.is_text == isinstance(code, str)][:2]
    return ", ".join(f"{_format_code(code)} = {variable.labels[code]}" for code in codes)


def _format_code(code: Any) -> str:
    if isinstance(code, float) and code == math.floor(code) and abs(code) <= _MAX_EXACT_INTEGER:
        return str(int(code))
    return str(code)


def _join_words(words: Sequence[str]) -> str:
    more = len(words) - _MAX_LISTED
    return ", ".join(words[:_MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _literal(value: Any) -> exp.Expr:
    return text(value) if isinstance(value, str) else exp.cast(exp.convert(repr(float(value))), "DOUBLE")
