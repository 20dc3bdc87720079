"""Files of SPSS, Stata and SAS, read by pyreadstat: integers, dates, value labels and missing codes are exact.

Another process, `statistics_reader`, reads a file in pieces, which go into a raw table: each numeric variable as
DOUBLE, beside it the letter of a missing code and, where it has value labels, the label. All else is SQL over that
table: which type the values have, and what they are.
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
    cast,
    col,
    create_table,
    drop_table,
    fragment,
    is_null,
    is_there,
    named,
    select,
    star,
    table,
    text,
    union_all,
    values_query,
)
from sqlanon.support.notices import with_noun
from sqlanon.support.toml import toml_value

Kind: TypeAlias = Literal["spss", "stata", "sas", "xport"]
Meaning: TypeAlias = Literal["number", "float", "text", "date", "timestamp", "time", "week", "month", "quarter", "half"]
"""What the values of a variable are, by its format: numbers, texts, or days and moments counted from an origin."""

WORDS: Mapping[str, str] = {"spss": "SPSS", "stata": "Stata", "sas": "SAS", "xport": "SAS transport"}

_CELLS = 2_000_000
"""Cells that are read at once: they are objects of Python meanwhile, some 100 bytes each."""

_SHOWN = 5

_READER = Path(__file__).with_name("statistics_reader.py")
_SCRIPT = (
    "import sys; sys.path[:] = sys.argv[1].split('\\n'); import runpy; runpy.run_path(sys.argv[2], run_name='__main__')"
)
"""Runs the reader with the libraries of this process, and none of the folder that it is started in."""

# In SPSS a moment is a number of seconds, in Stata of milliseconds; a date is one of seconds in SPSS, else of days.
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

_RANGE = fragment(":value BETWEEN :low AND :high")
_SECONDS = fragment("(:origin::TIMESTAMP) + to_microseconds(:whole * 1000000 + :rest)")
_WHOLE = fragment("floor(:value)::BIGINT")
_MICROSECONDS = fragment("round((:value - floor(:value)) * :unit)::BIGINT * :width")
_MILLISECONDS = fragment("(:origin::TIMESTAMP) + to_microseconds(round(:value * 1000)::BIGINT)")
_DAYS = fragment("((:origin::TIMESTAMP) + to_days(floor(:value / :unit)::INTEGER))::DATE")
_DAYS_AND_TIME = fragment("(:origin::TIMESTAMP) + to_microseconds(round(:value * 86400000000)::BIGINT)")
_TIME = fragment("TIME '00:00:00' + to_microseconds(round(:value * :unit)::BIGINT)")
_PERIOD = fragment(
    "(DATE '1960-01-01' + to_years(floor(:value / :periods)::INTEGER)"
    " + to_months(((:value - floor(:value / :periods) * :periods) * :months)::INTEGER))::DATE"
)
_WEEK = fragment(
    "(DATE '1960-01-01' + to_years(floor(:value / 52)::INTEGER)"
    " + to_days(((:value - floor(:value / 52) * 52) * 7)::INTEGER))::DATE"
)
_PADDED_TEXT = fragment("lpad(:whole, greatest(length(:whole), :width)::INTEGER, '0')")

_COUNT = fragment("count(:value)")
_COUNT_WHERE = fragment("count(*) FILTER (WHERE :condition)")
_ALL_WHOLE = fragment("coalesce(bool_and(:value = floor(:value) AND abs(:value) <= :exact), TRUE)")
_WHOLE_DAYS = fragment("coalesce(bool_and(:value % :unit = 0), TRUE)")
_MIN = fragment("min(:value)")
_MAX = fragment("max(:value)")

_EXACT = 2**53
"""Beyond it a DOUBLE does not tell integers apart."""


@dataclass(frozen=True)
class ReadingChoices:
    """What a policy decides of such files: whether labels are read, and what user-missing values become."""

    value_labels: bool | tuple[str, ...] | None = None
    user_missing: Literal["missing", "keep"] | None = None


class UndecidedReadingError(SourceError):
    """Value labels or user-missing values that the policy does not decide; ``proposal`` has keys that decide."""

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
    problem: str | None = None  # why its values cannot be read

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
        """Whether there are labels of values that are read: of missing ones, only where these are kept."""
        if choices.user_missing == "keep":
            return bool(self.labels)
        return any(self.is_text == isinstance(code, str) and not self.is_missing(code) for code in self.labels)

    def reads_labels(self, choices: ReadingChoices) -> bool:
        return self.has_labels(choices) and _reads_labels(self.name, choices)

    def is_missing(self, code: Any) -> bool:
        return any(low <= code <= high for low, high in self.missing)

    def missing_condition(self) -> exp.Expr:
        ranges = [_RANGE(value=self.value, low=_literal(low), high=_literal(high)) for low, high in self.missing]
        return exp.or_(is_there(self.letter), *ranges) if not self.is_text else exp.or_(exp.false(), *ranges)

    def present(self, choices: ReadingChoices) -> exp.Expr:
        """Its value, NULL where it is missing."""
        if choices.user_missing == "keep" or not self.missing:
            return self.value
        return exp.Case(ifs=[exp.If(this=self.missing_condition(), true=exp.null())], default=self.value)


@dataclass(frozen=True)
class _Figures:
    """What the values of a variable show: all of them, without the missing ones."""

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
    """Copy the rows of files to a table. Of columns that are not ``wanted`` nothing needs to be decided."""
    raw = [table(f"{target.name}_raw_{index}", target.db, target.catalog) for index in range(len(paths))]
    try:
        files = _read_files(paths, kind, engine, raw)
        figures = [_figures(engine, file, rows, choices) for file, rows in zip(files, raw, strict=True)]
        _refuse_undecided(files, figures, wanted, choices)
        _refuse_labels(files, figures, wanted, choices)
        types = _common_types(files, figures, text_columns, wanted, choices)
        queries = [
            select(
                [named(_converted(file, name, type_, figures_, choices), name) for name, type_ in types.items()], rows
            )
            for file, figures_, rows in zip(files, figures, raw, strict=True)
        ]
        engine.execute(create_table(target.copy(), union_all(*queries)))
    finally:
        for rows in raw:
            engine.execute(drop_table(rows.copy(), exists=True))


def describe_statistics_files(
    paths: list[str], kind: Kind, text_columns: Collection[str], wanted: Collection[str], choices: ReadingChoices
) -> exp.Select:
    """A relation without rows that has the columns of files, as far as their formats say: plans read no rows."""
    files = _read_files(paths, kind)
    figures = [[_figures_of_format(variable) for variable in file.variables] for file in files]
    _refuse_undecided(files, figures, wanted, choices)
    types = _common_types(files, figures, text_columns, wanted, choices)
    return values_query(types, [])


# What a file says of itself


def _read_files(
    paths: list[str], kind: Kind, engine: DuckDBEngine | None = None, raw: Sequence[exp.Table] = ()
) -> list[_File]:
    """What files say of themselves; with an engine, their rows go into raw tables."""
    if remote := [path for path in paths if is_remote(path)]:
        raise SourceError(f"source.files: {file_name(remote[0])}: {WORDS[kind]} files are read from this machine only")
    files: list[_File] = []
    for index, path in enumerate(paths):
        with _reading(path, kind) as (description, process):
            files.append(_described_file(path, kind, description))
            if engine is not None:
                _copy_raw(engine, files[-1], process, raw[index])
    refuse_different_columns([(file.path, dict.fromkeys(one.name for one in file.variables)) for file in files])
    return files


@contextmanager
def _reading(path: str, kind: Kind) -> Iterator[tuple[Any, Popen[bytes]]]:
    """What a file says of itself, and the process that reads it: its output has the rows as an Arrow stream."""
    import pyarrow  # noqa: PLC0415

    name = file_name(path)
    if importlib.util.find_spec("pyreadstat") is None:
        raise MissingLibraryError(f"{name}: reading {WORDS[kind]} files", "pyreadstat", "stats")
    command = [sys.executable, "-c", _SCRIPT, "\n".join(sys.path), str(_READER), path, kind, str(_CELLS)]
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
            raise SourceError(f"{name} cannot be read as a file of {WORDS[kind]}: {reason}") from None
        finally:
            process.kill()


def _described_file(path: str, kind: Kind, description: Mapping[str, Any]) -> _File:
    variables = tuple(_variables(description["variables"], kind))
    _refuse_cut_file(path, kind)
    if kind == "xport":
        _refuse_several_tables(path)
    name = file_name(path)
    refuse_ambiguous_names([variable.name for variable in variables], name)
    if not variables:
        raise SourceError(f"{name} has no columns")
    return _File(path, kind, variables, description["rows"])


def _variables(descriptions: Sequence[Mapping[str, Any]], kind: Kind) -> Iterator[_Variable]:
    for position, description in enumerate(descriptions):
        is_text = description["type"] == "string"
        meaning, problem = ("text", None) if is_text else _meaning(kind, description["format"])
        if meaning == "number" and description["type"] == "float":
            meaning = "float"
        labels = dict(map(tuple, description["labels"]))
        ranges = tuple(map(tuple, description["missing"]))
        yield _Variable(position, description["name"], is_text, meaning, description["format"], labels, ranges, problem)


def _meaning(kind: Kind, format_: str) -> tuple[Meaning, str | None]:
    """What numbers of a format are, and why they cannot be read, if so."""
    if kind == "stata":
        match = re.match(r"%-?(?:t([A-Za-z])|(d))(.*)", format_)
        return ("number", None) if match is None else _meaning_in_stata(match[1] or match[2], match[3])
    name = re.sub(r"[\d.]*$", "", format_.upper())
    if kind == "spss":
        return _SPSS.get(name, "number"), None
    return next((meaning for pattern, meaning in _SAS if pattern.fullmatch(name)), "number"), None


def _meaning_in_stata(letter: str, display: str) -> tuple[Meaning, str | None]:
    problems = {
        "C": "counts leap seconds (%tC): convert it in Stata with cofC(), to %tc",
        "b": "counts the days of a business calendar (%tb): convert it in Stata with dofb(), to %td",
    }
    if letter == "c" and _STATA_TIME_ONLY.fullmatch(display):
        return "time", None
    return _STATA.get(letter, "number"), problems.get(letter)


def _refuse_cut_file(path: str, kind: Kind) -> None:
    """The library reads some files whose end is missing, without the labels or rows that were in it."""
    with Path(path).open("rb") as file:
        start, size = file.read(11), file.seek(0, 2)
        file.seek(max(0, size - 12))
        is_cut = start == b"<stata_dta>" and file.read() != b"</stata_dta>"
    if is_cut or (kind == "xport" and size % 80):
        raise SourceError(f"{file_name(path)} is broken: its end is missing")


def _refuse_several_tables(path: str) -> None:
    """A transport file may have several data sets, and the library reads the first one."""
    header, count = re.compile(rb"HEADER RECORD\*{7}MEMB(ER|V8 )  HEADER RECORD!"), 0
    with Path(path).open("rb") as file:
        while block := file.read(80 * 100_000):
            count += sum(match.start() % 80 == 0 for match in header.finditer(block))
    if count > 1:
        raise SourceError(f"{file_name(path)} has {count} data sets: export each to a file of its own")


# The raw table


def _copy_raw(engine: DuckDBEngine, file: _File, process: Popen[bytes], target: exp.Table) -> None:
    import pyarrow  # noqa: PLC0415

    count = 0
    batches = pyarrow.ipc.open_stream(process.stdout)
    empty = pyarrow.Table.from_batches([], batches.schema)
    with engine.register_arrow(empty) as relation:
        engine.execute(create_table(target.copy(), star(relation)))
    for batch in batches:
        with engine.register_arrow(pyarrow.Table.from_batches([batch])) as relation:
            engine.execute(exp.Insert(this=target.copy(), expression=star(relation)))
        count += batch.num_rows
    if process.wait():  # a stream that is cut off ends like a whole one
        raise EOFError
    if file.rows is not None and count != file.rows:
        raise SourceError(f"{file.name} is broken: it says that it has {file.rows:,} rows, and {count:,} are read")


def _figures(engine: DuckDBEngine, file: _File, rows: exp.Table, choices: ReadingChoices) -> list[_Figures]:
    figures: list[exp.Expr] = []
    for variable in file.variables:
        value, is_missing = variable.present(choices), variable.missing_condition()
        unit = exp.convert(_unit_of_day(file.kind))
        without_label = exp.and_(is_there(value), is_null(variable.label)) if variable.labels else exp.false()
        figures += [_COUNT(value=value), _COUNT_WHERE(condition=is_missing), _COUNT_WHERE(condition=without_label)]
        if not variable.is_text:
            figures += [
                _ALL_WHOLE(value=value, exact=exp.convert(_EXACT)),
                _WHOLE_DAYS(value=value, unit=unit),
                _MIN(value=value),
                _MAX(value=value),
                _COUNT(value=variable.letter),
            ]
    row = iter(engine.rows(select(figures, rows))[0])
    found: list[_Figures] = []
    for variable in file.variables:
        count, missing, without = next(row), next(row), next(row)
        if variable.is_text:
            found.append(_Figures(count, False, False, None, None, missing, 0, without))
        else:
            whole, days, least, most, letters = (next(row) for _ in range(5))
            found.append(_Figures(count, whole, days, least, most, missing, letters, without))
    return found


def _figures_of_format(variable: _Variable) -> _Figures:
    """What the format of a variable says of its values; whether all have labels, it does not say."""
    is_whole = re.search(r"\.[1-9]", variable.format) is None
    return _Figures(0, is_whole, True, None, None, 0, 0, 1 if variable.labels else 0)


# What is decided


def _refuse_undecided(
    files: Sequence[_File], figures: Sequence[Sequence[_Figures]], wanted: Collection[str], choices: ReadingChoices
) -> None:
    """Refuse value labels and user-missing values that no key of the policy decides."""
    labelled = {
        variable.name: (variable, file)
        for file in reversed(files)
        for variable in file.variables
        if variable.has_labels(choices) and _is_wanted(variable.name, wanted)
    }
    missing: dict[str, int] = {}
    for file, of_file in zip(files, figures, strict=True):
        for variable, figure in zip(file.variables, of_file, strict=True):
            if figure.missing and _is_wanted(variable.name, wanted):
                missing[variable.name] = missing.get(variable.name, 0) + figure.missing
    problems: list[str] = []
    complete = [name for name in labelled if not _rows_without_label(files, figures, name)]
    proposal: dict[str, object] = {}
    if labelled and choices.value_labels is None:
        proposal["value_labels"] = complete or False
        columns = _listed([f"{name} ({_example(variable)})" for name, (variable, _) in labelled.items()])
        labels = (
            f"{toml_value(complete)} reads the labels of these columns"
            if complete
            else '["NAME", ...] reads the labels of columns'
        )
        problems.append(
            f"{with_noun(len(labelled), 'column', 'has', 'have')} value labels: {columns}; decide what is read: "
            f"value_labels = {labels}, false reads codes"
        )
    if missing and choices.user_missing is None:
        proposal["user_missing"] = "missing"
        columns = _listed([f"{name} ({with_noun(count, 'value')})" for name, count in missing.items()])
        problems.append(
            f"{with_noun(len(missing), 'column', 'has', 'have')} user-missing values: {columns}; decide what they "
            'are: user_missing = "missing" reads them as NULL, "keep" as values like others'
        )
    if problems:
        raise UndecidedReadingError(f"source.files: {_names(files)}: {'. '.join(problems)}", proposal)


def _refuse_labels(
    files: Sequence[_File], figures: Sequence[Sequence[_Figures]], wanted: Collection[str], choices: ReadingChoices
) -> None:
    """Refuse labels that cannot be read as the policy says, and codes that mean something else in another file."""
    chosen = choices.value_labels
    names = {variable.name.lower(): variable.name for variable in files[0].variables}
    labelled = {variable.name.lower() for file in files for variable in file.variables if variable.labels}
    if isinstance(chosen, tuple):
        if strange := [name for name in chosen if name.lower() not in names]:
            raise SourceError(f"source.value_labels: {_names(files)} has no column {strange[0]!r}")
        if strange := [name for name in chosen if name.lower() not in labelled]:
            raise SourceError(f"source.value_labels: column {strange[0]!r} of {_names(files)} has no value labels")
    if chosen is True:
        for name in names.values():
            is_labelled = any(file.variable(name).has_labels(choices) for file in files)
            rows = _rows_without_label(files, figures, name) if is_labelled and _is_wanted(name, wanted) else 0
            if rows:
                raise SourceError(
                    f"source.value_labels: {with_noun(rows, 'value')} of {name!r} in {_names(files)} "
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
            other, at = first.setdefault(code, (label, file.name))
            if other != label:
                raise SourceError(
                    f"source.files: code {_shown(code)} of {name!r} is {other!r} in {at} and {label!r} in {file.name}: "
                    f'read its labels, value_labels = ["{name}"]'
                )


def _is_wanted(name: str, wanted: Collection[str]) -> bool:
    return not wanted or name.lower() in wanted


def _rows_without_label(files: Sequence[_File], figures: Sequence[Sequence[_Figures]], name: str) -> int:
    return sum(
        (of_file[variable.position].without_label if variable.labels else of_file[variable.position].count)
        for file, of_file in zip(files, figures, strict=True)
        for variable in (file.variable(name),)
    )


def _reads_labels(name: str, choices: ReadingChoices) -> bool:
    if isinstance(choices.value_labels, tuple):
        return name.lower() in {one.lower() for one in choices.value_labels}
    return choices.value_labels is True


# Types, and values of these types


def _common_types(
    files: Sequence[_File],
    figures: Sequence[Sequence[_Figures]],
    text_columns: Collection[str],
    wanted: Collection[str],
    choices: ReadingChoices,
) -> dict[str, str]:
    """The type of each column, by the values of all files."""
    types: dict[str, str] = {}
    for name in (variable.name for variable in files[0].variables):
        parts = [(file, file.variable(name)) for file in files]
        seen = [(*part, of_file[part[1].position]) for part, of_file in zip(parts, figures, strict=True)]
        for file, variable, figure in seen:
            _refuse_unreadable(file, variable, figure, _is_wanted(name, wanted))
        as_text = name.lower() in text_columns or any(
            variable.reads_labels(choices) or (choices.user_missing == "keep" and figure.letters)
            for _, variable, figure in seen
        )
        with_values = [one for one in seen if one[2].count or one[2].letters] or seen[:1]
        of_files = {_type(file.kind, variable, figure): file.name for file, variable, figure in reversed(with_values)}
        if as_text and not {"DATE", "TIMESTAMP", "TIME"} & {*of_files}:
            types[name] = "VARCHAR"
        else:
            types[name] = "VARCHAR" if as_text and len(of_files) == 1 else _common_type(name, of_files)
    return types


def _common_type(name: str, files: Mapping[str, str]) -> str:
    """One type for the values of all files; which file has it first, by type."""
    types = {*files}
    if len(types) == 1:
        return types.pop()
    if types <= {"BIGINT", "FLOAT", "DOUBLE"}:
        return "DOUBLE"
    if types == {"DATE", "TIMESTAMP"}:
        return "TIMESTAMP"
    shown = " and ".join(f"{type_} in {file}" for type_, file in files.items())
    raise SourceError(f"source.files: {name!r} is {shown}; make it alike in all files")


def _type(kind: Kind, variable: _Variable, figures: _Figures) -> str:
    """The type of the values of a variable."""
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
        case "time" if least >= 0 and most < _unit_of_moments(kind):  # else it is a duration
            type_ = "TIME"
    return type_


def _unit_of_day(kind: Kind) -> int:
    """A day, in the unit of dates."""
    return _SECONDS_OF_DAY if kind == "spss" else 1


def _unit_of_moments(kind: Kind) -> int:
    """A day, in the unit of moments."""
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
            f"{file.name}: column {variable.name!r} has dates outside of the years 1 to 9999; correct the file, or "
            "take its date format away"
        )


def _converted(file: _File, name: str, type_: str, figures: Sequence[_Figures], choices: ReadingChoices) -> exp.Expr:
    """A column of a file as values of a type: the label, else the value, else the letter of a missing code."""
    variable = file.variable(name)
    value = variable.present(choices)
    shown = [_as_type(file, variable, value, _type(file.kind, variable, figures[variable.position]), type_)]
    keeps_letters = choices.user_missing == "keep" and not variable.is_text and type_ == "VARCHAR"
    if variable.reads_labels(choices):
        is_read = exp.or_(is_there(value), is_there(variable.letter)) if keeps_letters else is_there(value)
        shown.insert(0, exp.Case(ifs=[exp.If(this=is_read, true=variable.label)]))
    if keeps_letters:
        shown.append(exp.DPipe(this=text("."), expression=variable.letter))
    return cast(exp.Coalesce(this=shown[0], expressions=shown[1:]) if len(shown) > 1 else shown[0], type_)


def _as_type(file: _File, variable: _Variable, value: exp.Expr, own: str, type_: str) -> exp.Expr:
    """A value of its own type, then of that of its column in all files."""
    if variable.is_text:
        return value
    typed = _typed(file, variable, value, own)
    if type_ != "VARCHAR":
        return typed
    padded = _PADDED.match(variable.format.upper())
    if own == "BIGINT" and padded is not None:  # as the format shows it: 02139
        return _PADDED_TEXT(whole=cast(typed, "VARCHAR"), width=exp.convert(int(padded[1])))
    return cast(typed, "VARCHAR")


def _typed(file: _File, variable: _Variable, value: exp.Expr, type_: str) -> exp.Expr:
    """A number as what it stands for."""
    origin = text(f"{_ORIGIN[file.kind]} 00:00:00")
    typed: exp.Expr = cast(value, type_)
    match (variable.meaning, type_):
        case ("date", "DATE"):
            typed = _DAYS(origin=origin, value=value, unit=exp.convert(_unit_of_day(file.kind)))
        case ("date", "TIMESTAMP") if file.kind != "spss":
            typed = _DAYS_AND_TIME(origin=origin, value=value)
        case ("date" | "timestamp", "TIMESTAMP") if file.kind == "stata":
            typed = _MILLISECONDS(origin=origin, value=value)
        case ("date" | "timestamp", "TIMESTAMP"):
            # Seconds since 1582 have five decimals as DOUBLE, and since 1960 six.
            unit, width = (100_000, 10) if file.kind == "spss" else (1_000_000, 1)
            rest = _MICROSECONDS(value=value, unit=exp.convert(unit), width=exp.convert(width))
            typed = _SECONDS(origin=origin, whole=_WHOLE(value=value), rest=rest)
        case ("time", "TIME"):
            typed = _TIME(value=value, unit=exp.convert(1000 if file.kind == "stata" else 1_000_000))
        case ("week", "DATE"):
            typed = _WEEK(value=value)
        case ("month" | "quarter" | "half", "DATE"):
            periods = {"month": 12, "quarter": 4, "half": 2}[variable.meaning]
            typed = _PERIOD(value=value, periods=exp.convert(periods), months=exp.convert(12 // periods))
    return typed


# For messages


def _names(files: Sequence[_File]) -> str:
    return files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"


def _example(variable: _Variable) -> str:
    codes = [code for code in variable.labels if variable.is_text == isinstance(code, str)][:2]
    return ", ".join(f"{_shown(code)} = {variable.labels[code]}" for code in codes)


def _shown(code: Any) -> str:
    if isinstance(code, float) and code == math.floor(code) and abs(code) <= _EXACT:
        return str(int(code))
    return str(code)


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _literal(value: Any) -> exp.Expr:
    return text(value) if isinstance(value, str) else exp.cast(exp.convert(repr(float(value))), "DOUBLE")
