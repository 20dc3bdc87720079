"""Interfaces of engines: the operations that every engine has, and the optional ones. Engines hold no privacy
knowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from sqlglot import exp

from sqlanon.errors import SourceError, SqlanonError
from sqlanon.support.expressions import create_table, drop_table


class Queryable(Protocol):
    """Runs sqlglot expressions."""

    @property
    def dialect(self) -> str: ...

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None: ...

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows. The result must be small: at most as large as a lattice or a hierarchy."""
        ...

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        """Names and types (in the engine's spelling) of the columns, in order; reads no rows."""
        ...

    def render(self, statement: exp.Expr) -> str:
        """Formatted SQL text of a statement, as the engine would run it."""
        return statement.sql(self.dialect, pretty=True)


class Engine(Queryable, Protocol):
    """A database engine. The constants say which optional features it has."""

    STREAMS_BATCHES: ClassVar[bool] = False  # `stream` yields batches as they are computed: memory use stays flat
    KEEPS_SUBQUERY_ORDER: ClassVar[bool] = False  # also of an ordered subquery that is joined to small tables
    RUNS_RECURSIVE_WINDOWS: ClassVar[bool] = False  # runs WITH RECURSIVE whose steps contain window functions
    APPROXIMATES_COUNTS: ClassVar[bool] = False  # has `approx_count_distinct`
    BINDS_STREAM_PARAMETERS: ClassVar[bool] = False  # `stream` takes parameters, as `rows` does
    OPENS_READ_ONLY: ClassVar[bool] = False  # implements `RemoteEngine.read_only`
    WRITES_PARQUET: ClassVar[bool] = False  # implements `RemoteEngine.write_parquet`
    CACHES_ROWS: ClassVar[bool] = False  # implements `RemoteEngine.cache`
    CHANGES_TABLES: ClassVar[bool] = False  # INSERT, DELETE and UPDATE ... FROM, for tables of `materialize`
    RUNS_PYTHON: ClassVar[bool] = False  # implements `RemoteEngine.materialize_mapped`

    def materialize(self, name: str, query: exp.Query) -> int:
        """Store the rows of a query in a temporary table of this connection; return their number."""
        ...

    def upload(self, name: str, arrow: Any) -> exp.Table:
        """Create a temporary table of this connection from an Arrow table or stream."""
        ...

    def stream(self, query: exp.Query) -> AbstractContextManager[Any]:
        """The rows of a query as an Arrow stream. The engine runs nothing else while the stream is open."""
        ...


class RemoteEngine(Engine):
    """An engine that holds the source: `engines.federation` sends it the statements that read its tables."""

    place: str = ""
    """The words for the engine in messages, such as the policy key of its address."""

    def translate_errors(self, kind: type[SqlanonError] = SourceError) -> AbstractContextManager[None]:
        """Raise the engine's errors as errors of sqlanon, without values or addresses in their text."""
        raise NotImplementedError

    def forget(self, name: str) -> None:
        """Drop a table that `materialize` or `upload` created, if it exists."""
        raise NotImplementedError

    @property
    def is_local(self) -> bool:
        """Whether the whole engine runs on this machine and sees its folders."""
        return False

    def read_only(self) -> AbstractContextManager[None]:
        """Open a read-only transaction, if the engine has transactions; raise its errors as in `translate_errors`."""
        raise NotImplementedError

    def write_parquet(self, query: exp.Expr, directory: str) -> int:
        """Write the rows of a query as Parquet files to a new directory that the engine and this machine share."""
        raise NotImplementedError

    def cache(self, name: str, query: exp.Query) -> int:
        """Like `materialize`, with less memory: the query must return the same rows whenever it runs."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Interrupt the running statement, which raises `InterruptedStatementError`; for other threads. By default
        statements are not interrupted."""

    def set_savepoint(self) -> None:
        """Begin a part of the transaction that `undo_to_savepoint` can undo, in place of the last one. Engines whose
        statements are not interrupted need none."""

    def undo_to_savepoint(self) -> bool:
        """Undo the part of the transaction if it may have been interrupted; return whether it was undone."""
        return False

    def materialize_mapped(
        self, name: str, query: exp.Expr, function: Callable[..., Any], types: Mapping[str, str]
    ) -> int:
        """Like `materialize`, for the rows that a Python function makes of the rows of a query."""
        raise NotImplementedError


class Workers(Protocol):
    """Processes that run Python functions on the machines of a remote engine."""

    @property
    def place(self) -> str: ...

    def map_remotely(
        self, target: exp.Table, query: exp.Query, function: Callable[..., Any], types: Mapping[str, str]
    ) -> None:
        """Create a remote table from the rows that a function makes of the rows of a query."""
        ...


class WorkEngine(Engine, Protocol):
    """The engine that holds the work database of a run."""

    def copy_arrow(self, target: exp.Table, arrow: Any, query: Callable[[exp.Table], exp.Query] = ...) -> None:
        """Create a table from an Arrow table or stream; ``query`` transforms it, by default ``SELECT *``."""
        ...

    def register_arrow(self, arrow: Any) -> AbstractContextManager[exp.Table]:
        """Make an Arrow table or stream queryable within the context; a stream can be read once."""
        ...

    def prepare_grouping(self, query: exp.Select) -> Callable[[Iterable[str]], tuple[Any, ...]]:
        """Prepare a query of one row that runs many times, each time grouped by other columns."""
        ...

    def set_savepoint(self) -> None:
        """Begin statements that may be interrupted."""
        ...

    def undo_interrupted(self, targets: Iterable[exp.Table]) -> bool:
        """Undo the statements since `set_savepoint` if one of them may have been interrupted; return whether they were.

        ``targets`` are the tables that they created. Where statements stand by themselves, all remain.
        """
        ...


def replace_table(engine: Engine, target: exp.Table, query: exp.Query) -> exp.Table:
    """Create a table from a query, in place of the existing one."""
    engine.execute(drop_table(target.copy(), exists=True))
    engine.execute(create_table(target.copy(), query))
    return target
