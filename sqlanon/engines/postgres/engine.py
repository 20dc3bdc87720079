"""PostgreSQL: runs sqlglot expressions on one connection, and transfers rows as Arrow.

The driver is ADBC (the extra ``postgres``), imported only in this module and only when used. Its errors quote
addresses, statements and values: `translate_errors` replaces all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from sqlglot import Dialect, exp

from sqlanon.engines.base import RemoteEngine
from sqlanon.engines.deadline import InterruptedStatementError
from sqlanon.engines.dialects.postgres import catalog_function, query_column_types, server_capabilities
from sqlanon.errors import MissingLibraryError, SourceError, SqlanonError, UnreadableColumnsError
from sqlanon.support.expressions import (
    as_column,
    create_table_with_columns,
    create_temporary_table,
    drop_table,
    fragment,
    ident,
    row_count,
    select_star,
    table,
    template,
    text,
)

if TYPE_CHECKING:
    import pyarrow

SEARCH_PATH = "pg_catalog, pg_temp"
"""The search path of statements: operators, functions and types are the server's own.

PostgreSQL prefers a function of another schema if its arguments fit exactly, even with pg_catalog first in the path.
Such a function would run with the rights of the current user.
"""

_SETTINGS = {
    # First, so that it applies before any other name is looked up.
    "search_path": SEARCH_PATH,
    # The format of values that are read as text.
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "quote_all_identifiers": "off",
    # The meaning of statements.
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "array_nulls": "on",
    "client_encoding": "UTF8",
    # The source is the rows that this user may see; verify reports a row security policy on a release.
    "row_security": "on",
    "application_name": "sqlanon",
    # A reader's transaction that never ends would otherwise block the next release for ever.
    "lock_timeout": "20s",
}

_UNLIMITED = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")
"""Time limits that are disabled for the session, as in pg_dump: a transaction stays open and idle while its rows are
audited on this machine. Not every version of PostgreSQL has all of them."""

_POOLED = (
    "a connection pooler drops the startup parameter `options`, so functions of other users could replace those of "
    "pg_catalog and run with your rights: connect to the server itself"
)

_REFUSED = {
    "password authentication failed": "the user or the password is wrong: set PGPASSWORD, or keep it in ~/.pgpass",
    "no password supplied": "it asks for a password: set PGPASSWORD, or keep it in ~/.pgpass",
    "no pg_hba.conf entry": "it does not accept this user from this machine: see its pg_hba.conf",
    "permission denied for database": "this user may not connect to the database: GRANT CONNECT ON DATABASE",
    "not permitted to log in": "this user may not log in: ALTER ROLE ... LOGIN",
    "unsupported startup parameter": "a connection pooler refuses the startup parameter `options`, which sets the "
    "search_path: connect to the server itself",
    "session is not read-only": _POOLED,
    "too many": "it has no connection to spare: try again later",
    "remaining connection slots": "it has no connection to spare: try again later",
    "starting up": "it is starting up: try again",
    "shutting down": "it is shutting down",
    "connection refused": "no server is listening there",
    "could not translate host name": "the host is not known",
    "timeout expired": "it does not answer",
    "timed out": "it does not answer",
    "does not exist": "it has no such database or no such user",
    "invalid": "the address is not well formed",
}
"""Messages by phrases of libpq, whose own messages may quote the address."""

_KINDS = {
    "22": "a value does not fit its type",
    "23": "a constraint of the database is broken",
    "2B": "other objects depend on what would be dropped",
    "25P02": "an earlier statement of the transaction failed",
    "40": "it collided with another transaction: try again",
    "53": "the server lacks memory or space on its disk",
    "55": "something it needs is in use",
    "55P03": "a table is locked by another transaction: try again when that has ended",
    "57": "it was cancelled, or the server shuts down",
    "57P01": "an administrator ended the connection, or the server shuts down",
}
"""Messages by SQLSTATE, or by its first two characters."""

_UPLOAD_TYPES = {
    **{"int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint", "bool": "boolean"},
    **{"float": "real", "double": "double precision"},
    **{"string": "text", "large_string": "text", "string_view": "text"},
}
"""Types of uploaded columns by the names of Arrow types."""

_SAVEPOINT = "sqlanon_check"

_INTERRUPTED = ("57014", "25P02")
"""A cancelled statement, and statements after it in its transaction."""

_COLUMN_ERRORS = ("42501", "22P05")
"""A missing privilege, or a character without an equal: other columns may be readable."""


class PostgresEngine(RemoteEngine):
    """Runs sqlglot expressions on a connection to PostgreSQL.

    A transaction begins with the first statement, and ends with `commit` or `rollback`.
    """

    dialect = "postgres"
    STREAMS_BATCHES = True
    KEEPS_SUBQUERY_ORDER = True
    RUNS_RECURSIVE_WINDOWS = True
    BINDS_STREAM_PARAMETERS = True
    OPENS_READ_ONLY = True
    CHANGES_TABLES = True

    def __init__(self, connection: Any, place: str, user_path: str = SEARCH_PATH) -> None:
        self.connection, self.place, self._user_path = connection, place, user_path
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        self._has_settings = False
        self._has_savepoint = self._is_interrupted = False

    @classmethod
    def open(cls, address: str, place: str) -> PostgresEngine:
        try:
            import adbc_driver_manager  # noqa: PLC0415  (it is an extra)
            import adbc_driver_postgresql  # noqa: PLC0415
            import adbc_driver_postgresql.dbapi as driver  # noqa: PLC0415
        except ImportError:
            raise MissingLibraryError(f"{place}: PostgreSQL", "adbc-driver-postgresql", "postgres") from None
        try:
            # The driver looks types up when it connects, so the first connection has its search path in the address.
            # The second one has not, so that the user's path can be read.
            pinned = pinned_address(address)
            database = adbc_driver_postgresql.connect(pinned)
            with closing(driver.Connection(database, adbc_driver_manager.AdbcConnection(database))) as probe:
                path = cls(probe, place)._show("search_path")
                database.set_options(uri=address)
                connection = probe.adbc_clone()
        except driver.Error as error:
            message = str(error).lower()
            reason = next((text for phrase, text in _REFUSED.items() if phrase in message), "see the log of the server")
            raise SourceError(f"{place}: PostgreSQL cannot be reached: {reason}") from None
        engine = cls(connection, place)
        if path.replace(" ", "") != SEARCH_PATH.replace(" ", ""):
            engine.close()
            raise SourceError(f"{place}: PostgreSQL cannot be reached: {_POOLED}")
        with engine.translate_errors():
            engine._user_path = engine._show("search_path")
            engine._set(_SETTINGS, for_session=True)
            disable_timeouts = template(
                "SELECT pg_catalog.set_config(s.name, '0', false) AS value FROM pg_catalog.pg_settings AS s "
                "WHERE s.name IN (:names)",
                "postgres",
            )
            engine._rows(disable_timeouts(names=[text(name) for name in _UNLIMITED]))
            engine.commit()
        return engine

    @contextmanager
    def translate_errors(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        import adbc_driver_manager  # noqa: PLC0415  (it comes with the extra)

        try:
            yield
        except adbc_driver_manager.Error as error:
            if self._is_interrupted and str(error.sqlstate) in _INTERRUPTED:
                raise InterruptedStatementError("a statement in PostgreSQL was interrupted") from None
            if kind is SourceError and str(error.sqlstate or "") in _COLUMN_ERRORS:
                kind = UnreadableColumnsError
            raise kind(f"{self.place}: PostgreSQL says: {describe_error(error)}") from None

    @property
    def version(self) -> str:
        return f"postgresql {self.rows(exp.select(exp.func('current_setting', text('server_version'))))[0][0]}"

    def find_release_obstacle(self) -> str | None:
        """The reason why this server cannot be the source or target of a release, or None."""
        is_replica, encoding = self.rows(server_capabilities())[0]
        if is_replica:
            return (
                "the server is a read replica (hot standby), which has no temporary tables, and a release needs them: "
                "name the primary server"
            )
        if encoding != "UTF8":
            return (
                f"the database is encoded in {encoding}, which cannot hold every label of a release, such as ≥28: use "
                "a database in UTF8"
            )
        return None

    @contextmanager
    def at_place(self, place: str) -> Iterator[PostgresEngine]:
        """Report errors of this connection under another place within the context."""
        before, self.place = self.place, place
        try:
            yield self
        finally:
            self.place = before

    def sql(self, expression: exp.Expr) -> str:
        return self._generator.generate(expression)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement with parameters ``$1``, ``$2``, ..."""
        self._apply_settings()
        self._execute(statement, parameters)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._apply_settings()
        return self._rows(query, parameters)

    def names(self, query: exp.Expr) -> list[str]:
        self._apply_settings()
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query))
            return [str(column[0]) for column in cursor.description]

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        names = self.names(select_star(relation.copy()).limit(0, copy=False))
        query = exp.Subquery(this=select_star(relation.copy()), alias=ident("query"))
        types = self.rows(query_column_types(query, names))
        return {name: type_ for name, (type_, _) in zip(names, types, strict=True)}

    def materialize(self, name: str, query: exp.Query) -> int:
        self.forget(name)
        self.execute(create_temporary_table(table(name), query))
        return int(self.rows(row_count(rows=exp.Table(this=ident(name), db=ident("pg_temp"))))[0][0])

    def forget(self, name: str) -> None:
        with self.translate_errors():
            self.execute(drop_table(exp.Table(this=ident(name), db=ident("pg_temp")), exists=True))

    def _execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(statement), parameters or None)

    def _rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query), parameters or None)
            return list(cursor.fetchall())

    def _show(self, setting: str) -> str:
        """The value of a setting. SHOW looks up no names."""
        with self.connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(self.sql(exp.Command(this="SHOW", expression=setting)))
            return str(cursor.fetchall()[0][0])

    def _apply_settings(self) -> None:
        """Apply the settings at the beginning of a transaction: a connection pooler may drop those of the session."""
        if not self._has_settings:
            self._set(_SETTINGS)
            self._has_settings = True

    def _set(self, settings: Mapping[str, str], for_session: bool = False) -> None:
        is_local = exp.Boolean(this=not for_session)
        calls = [
            catalog_function("set_config", text(name), text(value), is_local.copy()) for name, value in settings.items()
        ]
        self._rows(exp.Select(expressions=[as_column(call, f"s{i}") for i, call in enumerate(calls)]))

    @contextmanager
    def on_user_path(self) -> Iterator[None]:
        """Use the user's search path within the context, only to find relations."""
        self._apply_settings()
        self._set({"search_path": self._user_path})
        try:
            yield
        except BaseException:
            self._has_settings = False  # the transaction is aborted and must be rolled back
            raise
        self._set({"search_path": SEARCH_PATH})

    @contextmanager
    def stream(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> Iterator[pyarrow.RecordBatchReader]:
        self._apply_settings()
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query), parameters or None)
            try:
                yield cursor.fetch_record_batch()
            except Exception as error:
                if "[libpq]" not in str(error):  # the stream ended early
                    raise
                if "canceling statement due to user request" in str(error):
                    if self._is_interrupted:
                        raise InterruptedStatementError("a statement in PostgreSQL was interrupted") from None
                    raise KeyboardInterrupt from None
                message = "the statement failed while its rows were read: see the log of the server"
                raise SourceError(f"{self.place}: {message}") from None

    def upload(self, name: str, arrow: Any) -> exp.Table:
        """Create a temporary table of this connection from an Arrow stream of encoded columns."""
        # The driver could create the table, but then its errors have no SQLSTATE.
        types = [(field.name, _UPLOAD_TYPES[str(field.type)]) for field in arrow.schema]
        target = create_table_with_columns(table(name), types)
        target.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
        self.execute(target)
        with self.connection.cursor() as cursor:
            cursor.adbc_ingest(name, arrow, mode="append", temporary=True)
        return exp.Table(this=ident(name), db=ident("pg_temp"))

    def interrupt(self) -> None:
        """Cancel the running statement; for other threads. The transaction fails until it is undone."""
        self._is_interrupted = True
        with suppress(Exception):  # the connection may be gone
            self.connection.adbc_cancel()

    def set_savepoint(self) -> None:
        if self._has_savepoint:
            self._execute(exp.Command(this="RELEASE SAVEPOINT", expression=_SAVEPOINT))
        self._execute(exp.Command(this="SAVEPOINT", expression=_SAVEPOINT))
        self._has_savepoint, self._is_interrupted = True, False

    def undo_to_savepoint(self) -> bool:
        if not (self._is_interrupted and self._has_savepoint):
            return False
        self._is_interrupted = False
        self._execute(exp.Command(this="ROLLBACK TO SAVEPOINT", expression=_SAVEPOINT))
        return True

    def commit(self) -> None:
        self._has_settings = self._has_savepoint = False
        self.connection.commit()

    def rollback(self) -> None:
        self._has_settings = self._has_savepoint = False
        self.connection.rollback()

    @contextmanager
    def rolled_back_unless_committed(
        self,
        kind: type[SqlanonError] = SourceError,
        mode: str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    ) -> Iterator[None]:
        """A transaction that is rolled back at the end, unless it was committed."""
        with self.translate_errors(kind):
            try:
                # Older drivers reuse the mode of the last transaction, and the user may have other defaults.
                self._execute(fragment(mode, "postgres")())
                yield
            finally:
                with suppress(Exception):  # the connection may be gone
                    self.rollback()

    @contextmanager
    def interruptible_transaction(self) -> Iterator[None]:
        """A transaction of statements that see the same rows, and that may be interrupted; it is rolled back.

        The driver would refuse all statements after an interrupted one, so its own transactions are turned off.
        """
        with self.translate_errors():
            self.connection.adbc_connection.set_autocommit(True)
            self._execute(exp.Command(this="BEGIN", expression="ISOLATION LEVEL REPEATABLE READ, READ WRITE"))
            try:
                yield
            finally:
                with suppress(Exception):  # the connection may be gone
                    self._execute(exp.Command(this="ROLLBACK"))
                    self._has_settings = self._has_savepoint = False

    @contextmanager
    def read_only(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        """A read-only transaction in which all statements see the same rows."""
        with self.rolled_back_unless_committed(kind, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"):
            yield

    @contextmanager
    def read_only_committed(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        """A read-only transaction that first locks tables: later statements see the catalog as it is after the lock."""
        with self.rolled_back_unless_committed(kind, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY"):
            yield

    def close(self) -> None:
        with suppress(Exception):  # it may be gone
            self.connection.close()


def pinned_address(address: str) -> str:
    """The address with the settings that the driver's type lookup depends on.

    Other options of the address or the environment remain. The same options make the session read-only, and libpq
    refuses any other session: if a connection pooler drops the options, no statement runs.

    >>> pinned = pinned_address("postgresql://me@db/hospital?options=-csearch_path%3Dclinic&sslmode=require")
    >>> pinned.partition("&options")[0]
    'postgresql://me@db/hospital?sslmode=require&target_session_attrs=read-only'
    >>> unquote(pinned).partition("-csearch_path=clinic ")[2].split(" ")[:2]
    ['-csearch_path=pg_catalog,pg_temp', '-cquote_all_identifiers=off']
    """

    def parameter_name(parameter: str) -> str:
        return unquote(parameter.partition("=")[0]).strip()

    scheme, _, location = address.partition("://")
    user, at, location = location.partition("@") if "@" in location.partition("/")[0] else ("", "", location)
    location, _, query = location.partition("?")
    parameters = [parameter for parameter in query.split("&") if parameter]
    values = {parameter_name(parameter): unquote(parameter.partition("=")[2]) for parameter in parameters}
    user_options = values.get("options", os.environ.get("PGOPTIONS", ""))
    pinned = {
        "search_path": SEARCH_PATH.replace(" ", ""),
        "quote_all_identifiers": "off",
        "default_transaction_read_only": "on",
        "statement_timeout": "0",
    }
    options = " ".join([user_options, *(f"-c{name}={value}" for name, value in pinned.items())]).strip()
    replaced = ("options", "target_session_attrs")
    parameters = [parameter for parameter in parameters if parameter_name(parameter) not in replaced]
    parameters += ["target_session_attrs=read-only", f"options={quote(options, safe='')}"]
    return f"{scheme}://{user}{at}{location}?{'&'.join(parameters)}"


def describe_error(error: Any) -> str:
    """The message for an error of the driver, without values or addresses.

    >>> class Missing(Exception):
    ...     sqlstate, details = "42P01", [(b"PG_DIAG_MESSAGE_PRIMARY", b'relation "t" does not exist')]
    >>> describe_error(Missing())
    'relation "t" does not exist'
    >>> class Late(Exception):
    ...     sqlstate = "57014"
    >>> describe_error(Late("ERROR:  canceling statement due to statement timeout"))
    'it took longer than statement_timeout allows: raise that limit for this user (SQLSTATE 57014)'
    """
    state = str(getattr(error, "sqlstate", None) or "")
    if state.startswith("42"):  # errors about names, types and privileges, whose messages quote no values
        details = dict(getattr(error, "details", None) or ())
        primary = details.get(b"PG_DIAG_MESSAGE_PRIMARY") or details.get("PG_DIAG_MESSAGE_PRIMARY") or b""
        reason = primary.decode(errors="replace") if isinstance(primary, bytes) else str(primary)
        if reason:
            return reason
    if "canceling statement due to statement timeout" in str(error):
        return f"it took longer than statement_timeout allows: raise that limit for this user (SQLSTATE {state})"
    kind = _KINDS.get(state) or _KINDS.get(state[:2], "it failed")
    return f"{kind} (SQLSTATE {state})" if state else "the connection was lost, or the driver failed"
