"""A bound source: one relation that queries can name, and the operations on its rows.

Each kind of source is a class with the methods of `Source`. Callers use these methods and need not know the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine, Workers
from sqlanon.engines.statement_runner import Stage
from sqlanon.policy import SourceSection
from sqlanon.sources.bad_lines import DroppedLines
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.csv_text import ReadFile
from sqlanon.support.coding import Column
from sqlanon.support.expressions import subquery, table

Access: TypeAlias = Literal["rows", "counts", "remote"]
"""How a source is reached: its rows are read here; they were counted elsewhere, and the counts are here; or statements
run where the rows are."""

UNKNOWN_TYPE = "UNKNOWN"
"""Stands for the type of a column that is known elsewhere alone."""

SMALL_TABLE_ROWS = 500_000
"""A table of so many rows has one frequency set, at the lowest levels; a source elsewhere is counted there once."""

LARGE_FILE_BYTES = 32_000_000
"""Files of at least this size, in bytes, are copied to disk: their rows are worth the time to compress them."""

RunQuery: TypeAlias = Callable[[exp.Query], list[tuple[Any, ...]]]

FindLocations: TypeAlias = Callable[[str, Collection[str], int], Sequence[tuple[str, str]]]
"""Finds the first places of some texts in a column, each with its text."""

_Server = TypeVar("_Server")


class RecodingStatement(Protocol):
    @property
    def columns(self) -> Sequence[Column]: ...

    def select(self, shuffled: bool = True) -> exp.Select: ...


@dataclass(frozen=True)
class WorkNames:
    name: str  # the names of views begin with it
    table: exp.Table  # the table that is made of rows that are copied
    reads_rows: bool = True  # whether rows may be read
    # the schema of views, and its database. It has little else: a view looks names up in its own schema first
    views: tuple[str, str] = ("main", "temp")
    on_disk: Callable[[], exp.Table] | None = None  # the table that large files are copied to, if there may be one

    @property
    def copy_target(self) -> exp.Table | None:
        """The table that CSV files are copied to; None where no row may be read."""
        return self.table if self.reads_rows else None

    def choose_copy_target(self, size: int) -> exp.Table | None:
        """The table that files of so many bytes are copied to."""
        return (
            self.on_disk()
            if self.reads_rows and self.on_disk is not None and size >= LARGE_FILE_BYTES
            else self.copy_target
        )

    def view(self, suffix: str) -> exp.Table:
        return table(f"{self.name}_{suffix}", *self.views)


@dataclass(frozen=True)
class CountedCombinations:
    """What was counted of a source: the distinct combinations of its columns, and the column of their counts."""

    table: exp.Table
    count: str


@dataclass(frozen=True)
class SamplingRelation:
    """Rows of which samples can be taken: the engine that hashes them, its relation, and its columns."""

    engine: Any
    relation: exp.Expr
    columns: Sequence[str]


class RemotePersons(ABC):
    """Where the persons are counted of a source whose rows stay elsewhere.

    ``engine`` runs statements there, and ``relation`` has its columns that are looked at or released, beside the person
    column as the server compares it. That column is confined: only counts of its values come here.
    """

    relation: exp.Table

    @property
    @abstractmethod
    def engine(self) -> WorkEngine: ...

    @abstractmethod
    def open(self) -> None:
        """Begin to count: what `engine` makes from now on stays there until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Drop there what was made since `open`."""


REMOTE_ROWS = table("rows_there")
"""Stands in a statement for rows of a source that are in another engine."""


@dataclass(frozen=True)
class AllColumns:
    """The rows of a source with all of its columns, those that are never released included: for hashes of them.

    ``types`` are DuckDB's names of the types of its columns. Where it is read ``again``, a copy is worth its room.
    """

    engine: Any
    relation: exp.Expr
    types: Mapping[str, str]
    again: bool = False


@dataclass(frozen=True)
class Source:
    """The private table, bound; here its rows are read by the engine of the run."""

    relation: exp.Table  # what queries select from
    # name and type text of each column, in order; of a CSV file, those that were not wanted, too
    columns: Mapping[str, str]
    files: tuple[Path, ...] = ()  # the data files that it is read from
    # whether it is a table, or files: some of its columns can be read at little cost. A query or a view cannot
    in_place: bool = True
    # the combinations that were counted elsewhere. Then the relation has nothing but their columns
    combinations: CountedCombinations | None = None
    database_id: str | None = None  # what tells its database from others, for the ledger
    scan: exp.Expr | None = None  # what reads its files, in SQL that people run
    full_query: exp.Query | None = None  # what reads its files with all columns, where the relation has not all of them
    locate: FindLocations | None = None  # what finds the lines or cells of values in its files
    last_row_key: str | None = None  # the key that leaves out the last row, of files other than CSV
    date_formats: Mapping[str, str] = field(default_factory=dict)  # of dates in its files, where they are not ISO
    persons: RemotePersons | None = None  # where its persons are counted, if its rows stay elsewhere
    dropped_lines: tuple[DroppedLines, ...] = ()  # by CSV file, the bad lines that were left out
    csv_files: tuple[ReadFile, ...] = ()  # how CSV files were read

    access: ClassVar[Access] = "rows"
    can_recode: ClassVar[bool] = True
    """Whether its release can be made by an engine of ours."""
    can_measure: ClassVar[bool] = True
    """Whether dependencies between columns can be measured on its rows."""

    @property
    def location(self) -> str:
        return "DuckDB"

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The connection to the server that has its rows, of this kind, at this address (None: any)."""
        return None

    @property
    def workers(self) -> Workers | None:
        """Processes that run Python beside its rows, where these do not come here."""
        return None

    def names(self, section: SourceSection) -> tuple[str | None, str | None]:
        """Its table or its query, for the ledger."""
        return section.table, section.query

    def plan(self) -> Iterator[Stage]:
        yield from ()

    def release_query(self, recoding: RecodingStatement) -> exp.Select:
        return recoding.select()

    def release_note(self, to: str, note: str) -> str:
        return f"one pass over the rows, in the order of their classes, to {to} ({note})"

    def render_statement(self, engine: Engine, query: exp.Expr) -> str:
        """The text of a statement as it runs where the source is; nothing is shipped."""
        return engine.render(query)

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        """The rows of a release, here; where the source is elsewhere, a relation that can be read once."""
        yield recoding.select(shuffled)

    @contextmanager
    def remote_release_query(self, engine: WorkEngine, recoding: RecodingStatement) -> Iterator[exp.Query]:
        """The statement that makes the rows of a release where the source is, while what it reads is there."""
        yield self.release_query(recoding)

    @contextmanager
    def temporary_rows(
        self, engine: WorkEngine, query: exp.Select, share: float | None
    ) -> Iterator[tuple[RunQuery, exp.Table]]:
        """The rows of a query as a temporary table where the source is, and what asks there; of many rows a share."""
        raise NotImplementedError
        yield

    def render_temporary_rows(self, engine: Engine, query: exp.Select) -> tuple[exp.Table, list[str]]:
        """The name of that table, and the text of the statement that makes it."""
        raise NotImplementedError

    def count_distinct_values(self, engine: Engine, names: Sequence[str]) -> Sequence[int]:
        """For each column how many distinct values it has, and how many that are not NULL; counted where they are."""
        return engine.rows(approximate_counts_query(self.relation, names))[0]

    def sampling_relation(self, engine: Engine) -> SamplingRelation | None:
        """What takes samples of its rows; None where none can be taken."""
        return SamplingRelation(engine, self.relation, [*engine.columns(self.relation)])

    def all_columns(self, engine: Engine) -> AllColumns | None:
        """Its rows with all of its columns; None where it has no rows."""
        if self.full_query is None:
            return AllColumns(engine, self.relation, engine.columns(self.relation), again=not self.in_place)
        return AllColumns(engine, subquery(self.full_query.copy(), "source"), self.columns, again=True)

    def query_remote_rows(self, query: exp.Query, relation: exp.Expr) -> Sequence[tuple[Any, ...]]:
        """The answer to a question on `ROWS_THERE`, a relation where its rows are: figures, and no value of a row."""
        raise NotImplementedError("its rows are here")

    def query_remote_release(
        self, engine: WorkEngine, query_of: Callable[[exp.Table], exp.Select], every: AllColumns
    ) -> Sequence[tuple[Any, ...]]:
        """The answer to a question on a release that is made where its rows are, of a table with these columns:
        figures, and no value of a row."""
        raise NotImplementedError("its rows are here")

    def measuring_obstacle(self) -> str | None:
        """Why dependencies between columns cannot be measured on its rows; None: they can."""
        return None if self.can_measure else f"its rows are in {self.location}"

    def holds_table(self, made: exp.Expr) -> bool:
        """Whether a table that was made of it stays where its rows are."""
        return False

    def transfer_errors(self, types: Mapping[str, str]) -> AbstractContextManager[None]:
        """Where a value cannot travel here, its column is named."""
        return nullcontext()

    def refuse_release(self, place: str, schema: str) -> None:
        """Refuse a schema whose readers would be let into the source."""

    def drop(self) -> None:
        """Drop what was made where its rows are."""


@dataclass(frozen=True)
class Population:
    """The population table: the engine that reads it, what it is, and where its views are."""

    engine: WorkEngine
    source: Source
    work_names: WorkNames
