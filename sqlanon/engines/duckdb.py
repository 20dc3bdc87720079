"""DuckDB: runs sqlglot expressions on one connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import Any
from weakref import WeakSet

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import Dialect, exp
from sqlglot.generator import Generator

from sqlanon.engines.base import WorkEngine
from sqlanon.engines.dialects.qualified import QualifiedDuckDB
from sqlanon.engines.dialects.quick_trim import QuickDuckDB
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import DiskError, SqlanonError
from sqlanon.support.expressions import (
    col,
    create_table,
    create_temporary_table,
    drop_table,
    ident,
    quote_name,
    row_count,
    select_star,
    table,
    text,
    values_query,
)
from sqlanon.support.workdir import describe_disk_error

_SYSTEM = (quote_name("system", "main"), quote_name("system", "pg_catalog"))
"""The schemas of the engine's own functions, types and views."""

_MEANING_SETTINGS = (
    "binary_as_string", "default_null_order", "default_order", "dialect_compatibility_mode",
    "disable_timestamptz_casts", "error_on_division_by_zero", "ieee_floating_point_ops", "integer_division",
    "lambda_syntax", "legacy_disable_null_type", "old_implicit_casting", "order_by_non_integer_literal",
    "preserve_identifier_case", "regex_match_operator_semantics", "scalar_subquery_error_on_multiple_rows",
    "table_function_identifier_conversion",
)  # fmt: skip
"""Settings that change the meaning of a query, except time zones. Some versions lack some of these."""

_SETTINGS = (
    *_MEANING_SETTINGS, "arrow_large_buffer_size", "arrow_lossless_conversion", "arrow_output_list_view",
    "default_collation", "errors_as_json", "max_expression_depth", "preserve_insertion_order",
    "produce_arrow_string_view", "warnings_as_errors",
)  # fmt: skip
"""All settings that statements of sqlanon depend on."""

_LIVE: WeakSet[DuckDBEngine] = WeakSet()


def _system_function(function: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call by full name: a user's connection may have a macro of the same name."""
    return exp.Anonymous(this=f"system.main.{function}", expressions=list(arguments))


@cache
def _render_settings(names: tuple[str, ...]) -> str:
    calls = [_system_function("current_setting", text(name)) for name in names]
    return Dialect.get_or_raise("duckdb").generate(exp.Select(expressions=calls))


@lru_cache(maxsize=64, typed=True)
def _render_assignment(name: str, value: str | bool) -> str:
    assignment = exp.Var(this=name).eq(exp.convert(value))
    return Dialect.get_or_raise("duckdb").generate(exp.Set(expressions=[exp.SetItem(this=assignment)]))


@cache
def _default_settings() -> dict[str, str]:
    with duckdb.connect(":memory:") as connection:
        return DuckDBEngine(connection).settings(_SETTINGS)


_PARSED: dict[str, list[duckdb.Statement]] = {}
"""The statements of the files of sqlanon, by their texts."""

WRONG_OPTIMIZER = "common_subplan"
"""DuckDB's optimizer that takes similar parts of a statement for equal ones, with wrong results and without an error:
issues 25819 and 23679 of DuckDB, and in 2.0.1 two counts over chains of joins of different lengths."""

MANY_JOINS = 40
"""Number of joins above which their order is not optimized: for 200 joins to small tables that takes 17 s and cannot be
interrupted."""

_KEYS = "sqlanon: the columns that it groups by"
"""Placeholder for the grouping columns in the text of a prepared query; no column has this name."""


def group_by_columns(query: exp.Select, columns: Iterable[str]) -> exp.Select:
    """The query with other columns in its only GROUP BY."""
    query = query.copy()
    (group,) = query.find_all(exp.Group)
    group.set("expressions", [col(name) for name in columns])
    return query


def _new_generator() -> Generator:
    try:
        return QuickDuckDB().generator()
    except TypeError as error:
        raise SqlanonError(
            "the compiled build of sqlglot (the package sqlglotc) is installed, but its classes "
            "cannot be extended, as sqlanon does: run pip uninstall sqlglotc"
        ) from error


class RunningStatements:
    """The statements that the main thread runs, for signal handlers.

    DuckDB may ignore an exception that a signal handler raises during a statement. So the handler calls `stop`, another
    thread calls `interrupt` until the statement ends, and KeyboardInterrupt is raised after it.
    """

    def __init__(self) -> None:
        self._running: list[tuple[duckdb.DuckDBPyConnection, float]] = []
        self._stop = False
        self._watched = False

    @contextmanager
    def running(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        if current_thread() is not main_thread():
            yield
            return
        self._running.append((connection, monotonic()))
        try:
            yield
        finally:
            self._running.pop()
            if self._stop and not self._running:
                self._stop = False
                raise KeyboardInterrupt

    def __bool__(self) -> bool:
        return bool(self._running)

    @contextmanager
    def watch_progress(self) -> Iterator[None]:
        """Make `progress` report the share of a statement that is done."""
        before, self._watched = self._watched, True
        for engine in list(_LIVE):
            self.watch(engine.connection)
        try:
            yield
        finally:
            self._watched = before

    def watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        """DuckDB tracks progress only while its progress bar is enabled, printed or not."""
        if self._watched:
            with suppress(duckdb.Error):  # it may be closed, or its settings locked
                connection.execute("SET enable_progress_bar_print = false; SET enable_progress_bar = true")

    def progress(self) -> tuple[float, float | None] | None:
        """Seconds since the running statement began and the share done, if known; None if no statement runs.

        For other threads.
        """
        running = self._running[:]
        if not running:
            return None
        connection, began = running[-1]
        percent = -1.0
        with suppress(duckdb.Error):  # it may be closed
            percent = connection.query_progress()
        return monotonic() - began, percent / 100 if 0 < percent < 100 else None

    @property
    def stopping(self) -> bool:
        return self._stop

    def stop(self) -> None:
        """Raise KeyboardInterrupt when the statement ends."""
        self._stop = True

    def interrupt(self) -> None:
        """Interrupt the statements of all engines, which raise an error; for other threads."""
        for engine in list(_LIVE):
            with suppress(duckdb.Error):  # it may be closed
                engine.connection.interrupt()


RUNNING_STATEMENTS = RunningStatements()


class ClosedError(SqlanonError, duckdb.ConnectionException):
    """The connection was closed before the job was done."""

    def __init__(self) -> None:
        super().__init__(
            "the database is closed: connect again, and publish the result before you close it (inside `with "
            "sqlanon.connect(...) as db:`)"
        )


class DuckDBEngine(WorkEngine):
    """Runs sqlglot expressions on a DuckDB connection.

    DuckDB looks functions up by name. The system's schemas come first in an engine's search path, so that no macro of
    an attached database replaces a function. Temporary macros would still come first, so the engine of a user's
    connection is a second connection to the same databases (`connect_beside`), which has none.
    """

    dialect = "duckdb"
    STREAMS_BATCHES = True
    KEEPS_SUBQUERY_ORDER = True
    RUNS_RECURSIVE_WINDOWS = True
    APPROXIMATES_COUNTS = True
    CHANGES_TABLES = True

    def __init__(self, connection: duckdb.DuckDBPyConnection, holder: DuckDBEngine | None = None) -> None:
        self.connection = connection
        self.holder = holder or self
        self._is_private = False
        self._generator = _new_generator()
        _LIVE.add(self)
        RUNNING_STATEMENTS.watch(connection)

    @classmethod
    def open_private(cls, spill: Path, limits: Limits = NO_LIMITS) -> DuckDBEngine:
        """Open an engine with a new in-memory database that spills to this directory only."""
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": str(spill),
            "python_enable_replacements": False,
            "disabled_optimizers": WRONG_OPTIMIZER,
        }
        config |= {name: value for name, value in asdict(limits).items() if value is not None}
        engine = cls(duckdb.connect(":memory:", config=config)).use_utc().hide_progress_bar()
        engine._is_private = True
        return engine

    def connect_beside(self, holder: DuckDBEngine | None = None) -> DuckDBEngine:
        """Open a second connection to the same databases, without the temporary objects of this one."""
        engine = DuckDBEngine(self.connection.cursor(), holder)
        engine._is_private = self._is_private
        engine._set("search_path", ",".join(_SYSTEM))
        return engine

    def use_default_settings(self) -> DuckDBEngine:
        """Reset the settings that statements depend on to those of a new engine; return the engine."""
        settings = self.settings(_SETTINGS)
        for name, value in _default_settings().items():
            if settings.get(name, value) != value:
                self._set(f"SESSION {name}", value)
        self._set("SESSION python_enable_replacements", False)
        return self

    def settings(self, names: Collection[str] = _MEANING_SETTINGS) -> dict[str, str]:
        """Values of settings by name; by default of those that change the meaning of a query."""
        query = exp.select("name", "value").from_(exp.Table(this=_system_function("duckdb_settings")))
        return {name: value for name, value in self.rows(query) if name in names}

    def follow_search_path(self, *before: str) -> None:
        """Follow the holder's current search path after the system's schemas, then all schemas of its database.

        DuckDB looks up ``schema.table`` only in the databases that have a schema of that name in the path.
        """
        database = self.holder.database
        in_database = exp.column("database_name").eq(text(database))
        query = exp.select("schema_name").from_("duckdb_schemas()").where(in_database)
        schemas = ["main", *sorted(name for (name,) in self.rows(query))]
        path = [self.holder.current_setting("search_path"), *(quote_name(database, schema) for schema in schemas)]
        self._set("search_path", quote_name(database, "main"))  # unqualified schemas in the path are of this database
        self._set("search_path", ",".join(dict.fromkeys([*_SYSTEM, *before, *filter(None, path)])))

    def hide_progress_bar(self) -> DuckDBEngine:
        """Disable the progress bar, which DuckDB prints to stdout in interactive sessions; return the engine."""
        self._set("enable_progress_bar", False)
        RUNNING_STATEMENTS.watch(self.connection)
        return self

    @property
    def database(self) -> str:
        return str(self.rows(exp.Select(expressions=[_system_function("current_database")]))[0][0])

    def current_setting(self, name: str) -> Any:
        return self.current_settings(name)[0]

    def current_settings(self, *names: str) -> tuple[Any, ...]:
        return self._fetch_rows(_render_settings(names))[0]

    def copy_time_zone(self, source: DuckDBEngine) -> None:
        for name in ("TimeZone", "Calendar"):
            with suppress(duckdb.Error):  # time zones are an extension that some builds lack
                self._set(name, source.current_setting(name))

    def use_utc(self) -> DuckDBEngine:
        """Set the time zone to UTC, so that texts of times are the same on every machine; return the engine."""
        with suppress(duckdb.Error):  # time zones are an extension that some builds lack
            self._set("TimeZone", "UTC")
        return self

    @property
    def limits(self) -> Limits:
        """The limits of this engine, for helper engines. DuckDB reports sizes with one digit, rounded down."""
        names = [exp.func("current_setting", text(name)) for name in ("memory_limit", "threads")]
        memory, threads = self.rows(exp.select(*names))[0]
        return Limits(None if memory.endswith("PiB") else memory, threads)  # DuckDB's default without a limit

    @property
    def version(self) -> str:
        return f"duckdb {duckdb.__version__}"

    def files(self) -> list[Path]:
        paths = self.rows(exp.select("path").from_("duckdb_databases()").where("path IS NOT NULL"))
        return [Path(path) for (path,) in paths]

    def close(self) -> None:
        self.connection.close()

    def in_transaction(self) -> bool:
        """Whether a transaction is open; otherwise each statement runs in its own."""
        transaction = exp.Select(expressions=[_system_function("txid_current")])
        return self.rows(transaction) == self.rows(transaction)

    def sql(self, expression: exp.Expr) -> str:
        """The SQL text of an expression. Without a copy: generating it may change the expression."""
        return self._generator.generate(expression, copy=False)

    def render(self, statement: exp.Expr) -> str:
        return statement.sql(self._generator.dialect, pretty=True)

    @contextmanager
    def using_qualified(self, database: str) -> Iterator[None]:
        """Use a database, with full names of all functions in statements.

        Macros of the database, present or future, then cannot replace functions, nor those of created views.
        """
        unqualified, self._generator = self._generator, QualifiedDuckDB().generator()
        try:
            with self.using(database):
                yield
        finally:
            self._generator = unqualified

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        sql = self.sql(statement)
        with self._running(sql):
            self.connection.execute(sql, parameters or None)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return self._fetch_rows(self.sql(query), parameters)

    def interrupt(self) -> None:
        """Interrupt the running statement; for other threads."""
        self.connection.interrupt()

    def set_savepoint(self) -> None:
        """Do nothing: an interrupted statement has changed nothing."""

    def undo_interrupted(self, targets: Iterable[exp.Table]) -> bool:
        """Return False: an interrupted statement has changed nothing."""
        return False

    def prepare_grouping(self, query: exp.Select) -> Callable[[Iterable[str]], tuple[Any, ...]]:
        # The only place that assembles SQL as text, from a generated statement and quoted names: a search runs this
        # query for every generalization, and generating the statement each time would take 0.7 ms of 2.5 ms.
        before, after = self.sql(group_by_columns(query, [_KEYS])).split(quote_name(_KEYS))
        return lambda columns: self._fetch_rows(f"{before}{', '.join(map(quote_name, columns))}{after}")[0]

    def _fetch_rows(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        with self._running(sql):
            return self.connection.execute(sql, parameters or None).fetchall()

    @contextmanager
    def _running(self, sql: str = "") -> Iterator[None]:
        """Run a statement in this context: optimizers that would harm it are disabled, and errors are translated."""
        harmful = [] if self._is_private or sql.upper().count("SELECT") < 2 else [WRONG_OPTIMIZER]
        if sql.count(" JOIN ") > MANY_JOINS:
            harmful.append("join_order")
        with self.without_optimizers(*harmful), self._translate_errors():
            yield

    @contextmanager
    def without_optimizers(self, *names: str) -> Iterator[None]:
        """Disable these optimizers in addition to those that are disabled, unless the configuration is locked."""
        if not names:
            yield
            return
        before, is_locked = self.current_settings("disabled_optimizers", "lock_configuration")
        disabled = str(before or "").split(",")
        missing = [name for name in names if name not in disabled]
        if not missing or is_locked in (True, "true"):
            yield
            return
        with self._change_setting("disabled_optimizers", before, ",".join(filter(None, (*disabled, *missing)))):
            yield

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise disk errors as `DiskError`, with the name of the disk."""
        try:
            with RUNNING_STATEMENTS.running(self.connection):
                yield
        except duckdb.Error as error:
            if isinstance(error, duckdb.ConnectionException) and "already closed" in str(error):
                raise ClosedError from error
            self._raise_disk_error(error)
            raise

    def _raise_disk_error(self, error: duckdb.Error) -> None:
        spill = None
        with suppress(duckdb.Error):  # the connection may be unusable
            spill = self.connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        if problem := describe_disk_error(error, Path(spill) if spill else None):
            raise DiskError(problem) from error

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        return {name: str(type_) for name, type_ in self.types(relation).items()}

    def types(self, relation: exp.Expr) -> dict[str, DuckDBPyType]:
        query = exp.select("*").from_(relation.copy()).limit(0)
        description = self.connection.execute(self.sql(query)).description or []
        return {column[0]: column[1] for column in description}

    def relation(self, query: exp.Query) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(self.sql(query))

    def table_of(self, table: tuple[Mapping[str, str], Sequence[Sequence[Any]]]) -> duckdb.DuckDBPyRelation:
        """A relation from column types by name and rows of plain values."""
        return self.relation(values_query(*table))

    def materialize(self, name: str, query: exp.Query) -> int:
        self.execute(drop_table(table(name, "main", "temp"), exists=True))
        self.execute(create_temporary_table(table(name, "main", "temp"), query))
        return int(self.rows(row_count(rows=table(name, "main", "temp")))[0][0])

    def upload(self, name: str, arrow: Any) -> exp.Table:
        with self.register_arrow(arrow) as relation:
            self.materialize(name, select_star(relation))
        return table(name, "main", "temp")

    def copy_arrow(self, target: exp.Table, arrow: Any, query: Callable[[exp.Table], exp.Query] = select_star) -> None:
        with self.register_arrow(arrow) as relation:
            self.execute(create_table(target, query(relation)))

    @contextmanager
    def register_arrow(self, arrow: Any) -> Iterator[exp.Table]:
        name = f"sqlanon_arrow_{id(arrow)}"
        self.connection.register(name, arrow)
        try:
            yield table(name)
        finally:
            self.connection.unregister(name)

    @contextmanager
    def stream(self, query: exp.Query) -> Iterator[Any]:
        yield self.relation(query).to_arrow_reader()

    def script(self, *scripts: str) -> None:
        """Run scripts. Parsed files of sqlanon are cached: parsing the macro library takes longer than creating it."""
        with self._running():
            for script in scripts:
                if (statements := _PARSED.get(script)) is None:
                    statements = self.connection.extract_statements(script)
                    if len(script) > 1000:  # characters: it is a file
                        _PARSED[script] = statements
                for statement in statements:
                    self.connection.execute(statement)

    def attach(self, path: Path | str, alias: str, **options: str | bool) -> None:
        """Attach a database file under an alias, with options such as ``read_only=True`` or
        ``storage_version="v1.0.0"``."""
        attach_options = [
            exp.AttachOption(this=exp.Var(this=name.upper()), expression=None if value is True else text(str(value)))
            for name, value in options.items()
        ]
        database = exp.Alias(this=text(str(path)), alias=ident(alias))
        self.execute(exp.Attach(this=database, expressions=attach_options))

    def detach(self, alias: str) -> None:
        self.execute(exp.Detach(this=ident(alias), exists=True))

    def use(self, alias: str) -> None:
        """Look up names in an attached database, its macros before the system's functions; for a `holder` only."""
        self._set("search_path", quote_name(alias, "main"))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.connection.begin()
        try:
            yield
        except BaseException:
            with suppress(duckdb.Error):  # an error may have ended it
                self.connection.rollback()
            raise
        try:
            self.connection.commit()
        except duckdb.Error as error:
            self._raise_disk_error(error)
            raise

    @contextmanager
    def using(self, alias: str) -> Iterator[None]:
        with self.setting("search_path", quote_name(alias, "main")):
            yield

    @contextmanager
    def setting(self, name: str, value: str | bool) -> Iterator[None]:
        with self._change_setting(name, self.current_setting(name), value):
            yield

    @contextmanager
    def _change_setting(self, name: str, before: Any, value: str | bool) -> Iterator[None]:
        self._set(name, value)
        try:
            yield
        finally:
            self._set(name, before)

    def _set(self, name: str, value: str | bool) -> None:
        sql = _render_assignment(name, value)
        with self._running(sql):
            self.connection.execute(sql)
