"""The carriers between `files` and the formats: files to read, and the table that was read from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.files.bad_lines import DroppedLines
from sqlanon.sources.files.csv_lines import CsvFile
from sqlanon.sources.source import FindLocations
from sqlanon.support.expressions import drop_table, table

DETECT_ALL = CsvSection()


@dataclass(frozen=True)
class ReadingChoices:
    """The keys of a policy for files of SPSS, Stata and SAS."""

    value_labels: bool | tuple[str, ...] | None = None
    user_missing: Literal["missing", "keep"] | None = None


@dataclass(frozen=True)
class Scan:
    """Files of one format, and the options to read them. Names of columns are in lower case."""

    engine: DuckDBEngine
    paths: Sequence[str]
    text_columns: Collection[str] = ()
    wanted: Collection[str] = ()  # empty: all columns
    sheet: str | None = None
    choices: ReadingChoices = ReadingChoices()
    csv: CsvSection = DETECT_ALL

    def is_wanted(self, name: str) -> bool:
        return not self.wanted or name.lower() in self.wanted

    def choose_columns(self, names: Collection[str]) -> list[str]:
        """Choose the wanted columns; all if none of them is wanted."""
        return [name for name in names if name.lower() in self.wanted] or list(names)


@dataclass(frozen=True)
class FileTable:
    """Files that were read: a query of their rows, or a table with a copy of them."""

    query: exp.Query | exp.Table
    columns: Mapping[str, str] = field(default_factory=dict)  # all columns, if the table may have only some
    full_query: exp.Query | None = None  # reads all columns, if the table has only some
    locate: FindLocations | None = None  # finds values in lines or cells
    last_row_key: str | None = None  # leaves the last row out of files other than CSV
    date_formats: Mapping[str, str] = field(default_factory=dict)  # by column, if not ISO 8601
    may_have_thousands: bool = False  # 12.345 may mean 12345
    csv_files: Sequence[CsvFile] = ()
    dropped_lines: Sequence[DroppedLines] = ()  # bad lines of CSV files
    # Refuses mixed columns, given the spelling of columns to check, and the codes of missing values.
    refuse_mixed_columns: Callable[[Mapping[str, str], Mapping[str, Collection[str]]], None] | None = None


Read: TypeAlias = Callable[[Scan, "exp.Table | None"], FileTable]
"""Reads files of a format: copies them to a table or, without one, returns a query; for plans it may have no rows."""


@contextmanager
def raw_tables(scan: Scan, target: exp.Table) -> Iterator[list[exp.Table]]:
    """The names of a table for the raw rows of each file; these tables are dropped after the block."""
    raw = [table(f"{target.name}_raw_{i}", target.db, target.catalog) for i in range(len(scan.paths))]
    try:
        yield raw
    finally:
        for rows in raw:
            scan.engine.execute(drop_table(rows.copy(), exists=True))
