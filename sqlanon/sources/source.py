"""A bound source: one relation that queries can name, and the operations on its rows.

Each kind of source is a class with the methods of `Source`. Callers use these methods and need not know the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine, Workers
from sqlanon.engines.statement_runner import Stage
from sqlanon.policy import SourceSection
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.files.bad_lines import DroppedLines
from sqlanon.sources.files.csv_lines import CsvFile
from sqlanon.support.coding import Column
from sqlanon.support.expressions import subquery, table

Access: TypeAlias = Literal["rows", "counts", "remote"]
"""Access to a source: its rows are local; only counts of its rows are local; or statements run where its rows are."""

UNKNOWN_TYPE = "UNKNOWN"
"""The type of a column that only a remote engine knows."""

SMALL_TABLE_ROWS = 500_000
"""Up to this number of rows, a source has one frequency set, at the lowest levels; a remote source is counted once."""

LARGE_FILE_BYTES = 32_000_000
"""Files of at least this size are copied to disk, where their rows are compressed."""

RunQuery: TypeAlias = Callable[[exp.Query], list[tuple[Any, ...]]]

FindLocations: TypeAlias = Callable[[str, Collection[str], int], Sequence[tuple[str, str]]]
"""Finds some texts in a column: the first locations, each with its text, given the column, the texts and a limit."""

_Server = TypeVar("_Server")


class RecodingStatement(Protocol):
    @property
    def columns(self) -> Sequence[Column]: ...

    def select(self, shuffled: bool = True) -> exp.Select: ...


@dataclass(frozen=True)
class WorkNames:
    """Names for the relations of a run."""

    name: str  # the prefix of views
    table: exp.Table  # the target of copied rows
    reads_rows: bool = True  # False for plans without rows
    # The schema and database of views. The schema has little else: a view looks names up in its own schema first.
    views: tuple[str, str] = ("main", "temp")
    on_disk: Callable[[], exp.Table] | None = None  # creates the target for large files

    def choose_copy_target(self, size: int) -> exp.Table:
        """The target for files of a total size in bytes."""
        return self.table if self.on_disk is None or size < LARGE_FILE_BYTES else self.on_disk()

    def view(self, suffix: str) -> exp.Table:
        return table(f"{self.name}_{suffix}", *self.views)


@dataclass(frozen=True)
class CountedCombinations:
    """The distinct combinations of values of a source, with their counts."""

    table: exp.Table
    count: str  # the column of counts


@dataclass(frozen=True)
class SamplingRelation:
    """Rows that can be sampled: the engine that hashes them, the relation, and its columns."""

    engine: Any
    relation: exp.Expr
    columns: Sequence[str]


class RemotePersons:
    """Counts persons of a remote source.

    ``relation`` has the counted and released columns, and the person column as the server compares it. That column is
    confined: only counts of its values become local.
    """

    def __init__(self, engine: WorkEngine, relation: exp.Table) -> None:
        self.engine, self.relation = engine, relation

    def open(self) -> None:
        """Begin to count: tables that `engine` creates from now on stay on the server until `close`."""

    def close(self) -> None:
        """Drop the tables that were created since `open`."""


REMOTE_ROWS = table("rows_there")
"""A placeholder in statements for the rows of a remote source."""


@dataclass(frozen=True)
class AllColumns:
    """The rows of a source with all of its columns, also those that are never released: for hashes of rows.

    ``types`` are DuckDB's types of the columns. If its rows have to be read ``again``, a copy is worthwhile.
    """

    engine: Any
    relation: exp.Expr
    types: Mapping[str, str]
    again: bool = False


@dataclass(frozen=True)
class Source:
    """The bound source table; in this base class the engine of the run reads its rows."""

    relation: exp.Table
    # The type of each column by name, in order; for files, also of columns that were not copied.
    columns: Mapping[str, str]
    files: tuple[Path, ...] = ()  # the data files that were read
    # Whether some of its columns can be read cheaply, as from tables and files, but not from queries and views.
    in_place: bool = True
    # The combinations counted remotely; the relation then has only their columns.
    combinations: CountedCombinations | None = None
    database_id: str | None = None  # identity of the database, for the ledger
    # The table with its schema, or the query with the schemas of its tables, if the policy's may lack them.
    table_name: str | None = None
    query: str | None = None
    scan: exp.Expr | None = None  # reads the files, in scripts for people
    full_query: exp.Query | None = None  # reads the files with all columns, if the relation has only some
    locate: FindLocations | None = None  # finds values in lines or cells of files
    last_row_key: str | None = None  # leaves the last row out of files other than CSV
    date_formats: Mapping[str, str] = field(default_factory=dict)  # by column, if not ISO 8601
    persons: RemotePersons | None = None  # counts persons of a remote source
    dropped_lines: tuple[DroppedLines, ...] = ()  # bad lines of CSV files
    csv_files: tuple[CsvFile, ...] = ()  # how CSV files were read

    access: ClassVar[Access] = "rows"
    can_recode: ClassVar[bool] = True
    """Whether an engine of sqlanon can make its release."""
    can_measure: ClassVar[bool] = True
    """Whether dependencies between columns can be measured on its rows."""
    can_be_linked: ClassVar[bool] = True
    """Whether the engine of the run can join its rows with those of other tables."""

    @property
    def location(self) -> str:
        return "DuckDB"

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The connection to the server that has its rows, if it has this kind and address (None: any address)."""
        return None

    @property
    def workers(self) -> Workers | None:
        """Processes that run Python next to its rows, for a remote source."""
        return None

    def names(self, section: SourceSection) -> tuple[str | None, str | None]:
        """The table or the query, for the ledger."""
        return self.table_name or section.table, self.query or section.query

    def plan(self) -> Iterator[Stage]:
        yield from ()

    def release_query(self, recoding: RecodingStatement) -> exp.Select:
        return recoding.select()

    def release_note(self, to: str, note: str) -> str:
        return f"one pass over the rows, in the order of their classes, to {to} ({note})"

    def render_statement(self, engine: Engine, query: exp.Expr) -> str:
        """The text of a statement as it runs where the source is, without shipping any table."""
        return engine.render(query)

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        """The rows of a release, as a local relation; from a remote source it can be read only once."""
        yield recoding.select(shuffled)

    @contextmanager
    def read_released(self, query: exp.Select, types: Mapping[str, str]) -> Iterator[exp.Select]:
        """The rows of a release that a query over linked tables makes, as a local relation that can be read once."""
        yield query

    @contextmanager
    def remote_release_query(self, engine: WorkEngine, recoding: RecodingStatement) -> Iterator[exp.Query]:
        """The statement that makes the rows of a release where the source is; its inputs are shipped for the block."""
        yield self.release_query(recoding)

    @contextmanager
    def temporary_rows(
        self, engine: WorkEngine, query: exp.Select, share: float | None
    ) -> Iterator[tuple[RunQuery, exp.Table]]:
        """Store the rows of a query, or a share of them, in a temporary table where the source is; with a function that
        runs queries on it."""
        raise NotImplementedError
        yield

    def render_temporary_rows(self, engine: Engine, query: exp.Select) -> tuple[exp.Table, list[str]]:
        """The name of that temporary table, and the text of the statement that creates it."""
        raise NotImplementedError

    def count_distinct_values(self, engine: Engine, names: Sequence[str]) -> Sequence[int]:
        """Count the distinct values and the values other than NULL of each column, in the engine of the source."""
        return engine.rows(approximate_counts_query(self.relation, names))[0]

    def sampling_relation(self, engine: Engine) -> SamplingRelation | None:
        """The relation that can be sampled; None if sampling is impossible."""
        return SamplingRelation(engine, self.relation, [*engine.columns(self.relation)])

    def all_columns(self, engine: Engine) -> AllColumns | None:
        """The rows with all columns; None for a source without rows."""
        if self.full_query is None:
            return AllColumns(engine, self.relation, engine.columns(self.relation), again=not self.in_place)
        return AllColumns(engine, subquery(self.full_query.copy(), "source"), self.columns, again=True)

    def query_remote_rows(self, query: exp.Query, relation: exp.Expr) -> Sequence[tuple[Any, ...]]:
        """Run a query on `REMOTE_ROWS`, standing for a remote relation; it returns figures, and no source values."""
        raise NotImplementedError("its rows are local")

    def query_remote_release(
        self, engine: WorkEngine, query_of: Callable[[exp.Table], exp.Select], every: AllColumns
    ) -> Sequence[tuple[Any, ...]]:
        """Run a query on a release of a remote table with these columns; it returns figures, and no source values."""
        raise NotImplementedError("its rows are local")

    def measuring_obstacle(self) -> str | None:
        """The reason why dependencies between columns cannot be measured on its rows; None if they can."""
        return None if self.can_measure else f"its rows are in {self.location}"

    def holds_table(self, relation: exp.Expr) -> bool:
        """Whether a table that was created from it is remote."""
        return False

    def transfer_errors(self, types: Mapping[str, str]) -> AbstractContextManager[None]:
        """Name the column of a value that cannot be transferred."""
        return nullcontext()

    def refuse_release(self, postgres: str | None, schema: str, key: str = "release.table") -> None:
        """Refuse to release into a schema whose readers could see the source.

        ``postgres`` is the address of the release in PostgreSQL; None for a release in the Spark of the source.
        """

    def drop(self) -> None:
        """Drop tables that were created where its rows are."""


@dataclass(frozen=True)
class Population:
    """The population table, with the engine that reads it."""

    engine: WorkEngine
    source: Source
    work_names: WorkNames
