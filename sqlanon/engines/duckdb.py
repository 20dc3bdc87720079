"""DuckDB: it executes sqlglot expressions on one connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import Any
from weakref import WeakSet

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import Dialect, exp

from sqlanon.engines.base import FEATURES
from sqlanon.engines.dialects.qualified import QualifiedDuckDB
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
    star,
    table,
    text,
    values_query,
)
from sqlanon.support.workdir import describe_disk_error

_SYSTEM = (quote_name("system", "main"), quote_name("system", "pg_catalog"))
"""The schemas of the engine's own functions, types and views."""

_OF_VALUES = (
    "binary_as_string", "default_null_order", "default_order", "dialect_compatibility_mode",
    "disable_timestamptz_casts", "error_on_division_by_zero", "ieee_floating_point_ops", "integer_division",
    "lambda_syntax", "legacy_disable_null_type", "old_implicit_casting", "order_by_non_integer_literal",
    "preserve_identifier_case", "regex_match_operator_semantics", "scalar_subquery_error_on_multiple_rows",
    "table_function_identifier_conversion",
)  # fmt: skip
"""Settings that change what a query means. Time zones are another matter. Some versions lack some of these."""

_SETTINGS = (
    *_OF_VALUES, "arrow_large_buffer_size", "arrow_lossless_conversion", "arrow_output_list_view", "default_collation",
    "errors_as_json", "max_expression_depth", "preserve_insertion_order", "produce_arrow_string_view",
    "warnings_as_errors",
)  # fmt: skip
"""These, and others that statements of ours depend on."""

_LIVE: WeakSet[DuckDBEngine] = WeakSet()


def _whole(function: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call by the function's full name: a connection may be its user's."""
    return exp.Anonymous(this=f"system.main.{function}", expressions=list(arguments))


@cache
def _settings_of_a_new_engine() -> dict[str, str]:
    with duckdb.connect(":memory:") as connection:
        return DuckDBEngine(connection).settings(_SETTINGS)


_PARSED: dict[str, list[duckdb.Statement]] = {}
_LONG = 1000
"""From how many characters on a script is one of our files, and not a statement with names of a run."""


MANY_JOINS = 40
"""Of statements with more joins the order of the joins is not optimized: for 200 joins to small tables that takes 17 s,
and cannot be interrupted."""

_KEYS = "sqlanon: the columns that it groups by"
"""Stands for them in a query whose text is generated once: no column has this name."""


def group_by_columns(query: exp.Select, columns: Iterable[str]) -> exp.Select:
    """A query that groups by other columns in the one place where it groups."""
    query = query.copy()
    (group,) = query.find_all(exp.Group)
    group.set("expressions", [col(one) for one in columns])
    return query


class RunningStatements:
    """The statements that the main thread runs, for signals.

    A signal's handler that DuckDB calls while it runs a statement must not raise: DuckDB may pass over that. It calls
    `stop`, another thread calls `interrupt` as long as the statement runs, and KeyboardInterrupt is raised after it.
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
    def watched(self) -> Iterator[None]:
        """While it lasts, `progress` knows how far the statement is."""
        before, self._watched = self._watched, True
        for engine in list(_LIVE):
            self.watch(engine.connection)
        try:
            yield
        finally:
            self._watched = before

    def watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        """DuckDB knows how far a statement is where its progress bar is on, printed or not."""
        if self._watched:
            with suppress(duckdb.Error):  # it may be closed, or its settings locked
                connection.execute("SET enable_progress_bar_print = false; SET enable_progress_bar = true")

    def progress(self) -> tuple[float, float | None] | None:
        """From another thread: the seconds that the statement runs, and its share done if that is known; None where
        no statement runs.
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
        """Have KeyboardInterrupt raised as soon as the statement ends."""
        self._stop = True

    def interrupt(self) -> None:
        """End what all engines are about, from another thread: they raise an error."""
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


class DuckDBEngine:
    """Runs sqlglot expressions on a DuckDB connection.

    Functions in a statement are found by name: an engine's search path has the system's schemas first, so that no
    macro of an attached database takes the place of one. Temporary macros come before all else. So the engine of a
    user's connection is a second connection to the same databases (`beside`), which has none.
    """

    dialect = "duckdb"
    features = FEATURES["duckdb"]

    def __init__(self, connection: duckdb.DuckDBPyConnection, holder: DuckDBEngine | None = None) -> None:
        self.connection = connection
        self.holder = holder or self
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        _LIVE.add(self)
        RUNNING_STATEMENTS.watch(connection)

    @classmethod
    def private(cls, spill: Path, limits: Limits = NO_LIMITS) -> DuckDBEngine:
        """An engine with a fresh in-memory database of its own, which spills to a directory and nowhere else."""
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": str(spill),
            "python_enable_replacements": False,
        }
        config |= {name: value for name, value in asdict(limits).items() if value is not None}
        return cls(duckdb.connect(":memory:", config=config)).in_utc().silent()

    def beside(self, holder: DuckDBEngine | None = None) -> DuckDBEngine:
        """A second connection to the same databases, which has nothing of what is temporary in this one."""
        engine = DuckDBEngine(self.connection.cursor(), holder)
        engine._set("search_path", ",".join(_SYSTEM))
        return engine

    def with_settings_of_a_new_engine(self) -> DuckDBEngine:
        """The same engine, in which statements mean what they mean in a new one, whatever is set for all
        connections.
        """
        own = self.settings(_SETTINGS)
        for name, value in _settings_of_a_new_engine().items():
            if own.get(name, value) != value:
                self._set(f"SESSION {name}", value)
        self._set("SESSION python_enable_replacements", False)
        return self

    def settings(self, names: Collection[str] = _OF_VALUES) -> dict[str, str]:
        """Settings, by name; by default those that change what a query means."""
        every = exp.select("name", "value").from_(exp.Table(this=_whole("duckdb_settings")))
        return {name: value for name, value in self.rows(every) if name in names}

    def look_up_as_holder(self, *before: str) -> None:
        """Look up what is not the system's as the holder's connection does now, and in all schemas of its database.

        These must be in the path: a table that is named with its schema is looked up in the databases of the path's
        own schemas of that name.
        """
        database = self.holder.database
        here = exp.column("database_name").eq(text(database))
        schemas = sorted(name for (name,) in self.rows(exp.select("schema_name").from_("duckdb_schemas()").where(here)))
        path = [self.holder.current_setting("search_path"), *(quote_name(database, one) for one in ("main", *schemas))]
        self._set("search_path", quote_name(database, "main"))  # a schema alone in the path is one of this database
        self._set("search_path", ",".join(dict.fromkeys([*_SYSTEM, *before, *filter(None, path)])))

    def silent(self) -> DuckDBEngine:
        """The same engine, without DuckDB's progress bar: an interactive Python prints it to stdout."""
        self._set("enable_progress_bar", False)
        RUNNING_STATEMENTS.watch(self.connection)
        return self

    @property
    def database(self) -> str:
        return str(self.rows(exp.Select(expressions=[_whole("current_database")]))[0][0])

    def current_setting(self, name: str) -> Any:
        return self.rows(exp.Select(expressions=[_whole("current_setting", text(name))]))[0][0]

    def in_time_zone_of(self, other: DuckDBEngine) -> None:
        for name in ("TimeZone", "Calendar"):
            with suppress(duckdb.Error):  # time zones are an extension, which every usual build has
                self._set(name, other.current_setting(name))

    def in_utc(self) -> DuckDBEngine:
        """The same engine, with texts of times that are the same everywhere."""
        with suppress(duckdb.Error):  # time zones are an extension, which every usual build has
            self._set("TimeZone", "UTC")
        return self

    @property
    def limits(self) -> Limits:
        """What it may take, for engines that work for it beside it. DuckDB shows sizes with one digit, rounded down."""
        names = [exp.func("current_setting", text(name)) for name in ("memory_limit", "threads")]
        memory, threads = self.rows(exp.select(*names))[0]
        return Limits(None if memory.endswith("PiB") else memory, threads)  # a limit of petabytes is none

    @property
    def version(self) -> str:
        return f"duckdb {duckdb.__version__}"

    def files(self) -> list[Path]:
        paths = self.rows(exp.select("path").from_("duckdb_databases()").where("path IS NOT NULL"))
        return [Path(path) for (path,) in paths]

    def close(self) -> None:
        self.connection.close()

    def in_transaction(self) -> bool:
        """Whether a transaction is open: outside of one, each statement has one of its own."""
        transaction = exp.Select(expressions=[_whole("txid_current")])
        return self.rows(transaction) == self.rows(transaction)

    def sql(self, expression: exp.Expr) -> str:
        """The text of an expression. It is made without a copy: the expression may be used up."""
        return self._generator.generate(expression, copy=False)

    def shown(self, statement: exp.Expr) -> str:
        return statement.sql(self._generator.dialect, pretty=True)

    @contextmanager
    def inside(self, database: str) -> Iterator[None]:
        """Work in a database of others for a while: it is in use, and all functions in statements have full names.

        So do those of the views that are made: no macro of the database, now or later, takes their place.
        """
        usual, self._generator = self._generator, QualifiedDuckDB().generator()
        try:
            with self.using(database):
                yield
        finally:
            self._generator = usual

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        sql = self.sql(statement)
        with self._running(sql):
            self.connection.execute(sql, parameters or None)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return self._fetched(self.sql(query), parameters)

    def regrouped(self, query: exp.Select) -> Callable[[Iterable[str]], tuple[Any, ...]]:
        # The one place where SQL is put together as text, of a generated statement and quoted names: a search asks this
        # for every generalization, and to generate the statement each time takes 0.7 ms of 2.5 ms.
        before, after = self.sql(group_by_columns(query, [_KEYS])).split(quote_name(_KEYS))
        return lambda columns: self._fetched(f"{before}{', '.join(map(quote_name, columns))}{after}")[0]

    def _fetched(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        with self._running(sql):
            return self.connection.execute(sql, parameters or None).fetchall()

    @contextmanager
    def _running(self, sql: str = "") -> Iterator[None]:
        """While a statement runs: errors of a disk become one of ours, which says which disk it is."""
        with ExitStack() as stack:
            if sql.count(" JOIN ") > MANY_JOINS:
                stack.enter_context(self._joins_as_written())
            stack.enter_context(self._errors_of_disks())
            yield

    @contextmanager
    def _joins_as_written(self) -> Iterator[None]:
        """Join tables in the order of the statement, where the configuration is not locked."""
        disabled = str(self.current_setting("disabled_optimizers") or "")
        if "join_order" in disabled or self.current_setting("lock_configuration") in (True, "true"):
            yield
            return
        with self.setting("disabled_optimizers", ",".join(filter(None, (disabled, "join_order")))):
            yield

    @contextmanager
    def _errors_of_disks(self) -> Iterator[None]:
        try:
            with RUNNING_STATEMENTS.running(self.connection):
                yield
        except duckdb.Error as error:
            if isinstance(error, duckdb.ConnectionException) and "already closed" in str(error):
                raise ClosedError from error
            self._refuse_disk(error)
            raise

    def _refuse_disk(self, error: duckdb.Error) -> None:
        spill = None
        with suppress(duckdb.Error):  # the connection may be of no use any more
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
        """A relation of columns, by name with their types, and rows of plain values."""
        return self.relation(values_query(*table))

    def materialize(self, name: str, query: exp.Query) -> int:
        self.execute(drop_table(table(name, "main", "temp"), exists=True))
        self.execute(create_temporary_table(table(name, "main", "temp"), query))
        return int(self.rows(row_count(rows=table(name, "main", "temp")))[0][0])

    def upload(self, name: str, arrow: Any) -> exp.Table:
        with self.registered(arrow) as relation:
            self.materialize(name, star(relation))
        return table(name, "main", "temp")

    def copy_arrow(self, target: exp.Table, arrow: Any, query: Callable[[exp.Table], exp.Query] = star) -> None:
        with self.registered(arrow) as relation:
            self.execute(create_table(target, query(relation)))

    @contextmanager
    def registered(self, arrow: Any) -> Iterator[exp.Table]:
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
        with self._running():
            for script in scripts:
                for statement in self._parsed(script):
                    self.connection.execute(statement)

    def _parsed(self, statements: str) -> list[duckdb.Statement]:
        """The statements of a file. The macro library takes longer to parse than to make: what is long is kept."""
        if (kept := _PARSED.get(statements)) is None:
            kept = self.connection.extract_statements(statements)
            if len(statements) > _LONG:
                _PARSED[statements] = kept
        return kept

    def attach(self, path: Path | str, alias: str, **options: str | bool) -> None:
        """Attach a database file under an alias; options as ``read_only=True``, ``storage_version="v1.0.0"``."""
        self.execute(
            exp.Attach(
                this=exp.Alias(this=text(str(path)), alias=ident(alias)),
                expressions=[
                    exp.AttachOption(
                        this=exp.Var(this=name.upper()),
                        expression=None if value is True else text(str(value)),
                    )
                    for name, value in options.items()
                ],
            )
        )

    def detach(self, alias: str) -> None:
        self.execute(exp.Detach(this=ident(alias), exists=True))

    def use(self, alias: str) -> None:
        """Look names up in an attached database, its macros before the system's functions: for a `holder` only."""
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
            self._refuse_disk(error)
            raise

    @contextmanager
    def using(self, alias: str) -> Iterator[None]:
        with self.setting("search_path", quote_name(alias, "main")):
            yield

    @contextmanager
    def setting(self, name: str, value: str | bool) -> Iterator[None]:
        before = self.current_setting(name)
        self._set(name, value)
        try:
            yield
        finally:
            self._set(name, before)

    def _set(self, name: str, value: str | bool) -> None:
        assignment = exp.Var(this=name).eq(exp.convert(value))
        self.execute(exp.Set(expressions=[exp.SetItem(this=assignment)]))
