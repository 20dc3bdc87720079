"""PostgreSQL: it executes sqlglot expressions on one connection, gives Arrow, and takes Arrow in.

It is reached over ADBC (the extra ``postgres``), which is imported only here and only when it is used. Errors of the
driver quote addresses, statements and values: they never get further than `translated_errors`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from sqlglot import Dialect, exp

from sqlanon.engines.base import FEATURES
from sqlanon.engines.dialects.postgres import catalog_function, query_column_types, server_capabilities
from sqlanon.errors import MissingLibraryError, SourceError, SqlanonError, UnreadableColumnsError
from sqlanon.support.expressions import (
    column_definitions,
    create_temporary_table,
    drop_table,
    ident,
    named,
    row_count,
    star,
    table,
    template,
    text,
)

if TYPE_CHECKING:
    import pyarrow

SEARCH_PATH = "pg_catalog, pg_temp"
"""Where statements look names up: operators, functions and types are the server's own, whatever else there is.

A function of another schema is taken in place of the server's own if its arguments fit exactly, even where pg_catalog
stands first. Such a function would run with the rights of the current user.
"""

_SETTINGS = {
    # First: it holds before anything else is looked up.
    "search_path": SEARCH_PATH,
    # What is read as text is read in these words only.
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "quote_all_identifiers": "off",
    # What is written means the same everywhere.
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "array_nulls": "on",
    "client_encoding": "UTF8",
    # The rows that this user may see are the source; verify reports a policy on a release.
    "row_security": "on",
    "application_name": "sqlanon",
    # Who reads a release in a transaction that is never ended would hold up the next one for ever.
    "lock_timeout": "20s",
}

_UNLIMITED = (
    "statement_timeout",
    "transaction_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)
"""Time limits that are off for the session, as pg_dump turns them off: a transaction stays open, and idle, while its
rows are audited on this machine. Not every version of PostgreSQL has all of them."""

_WITHOUT_LIMITS = template(
    """
    SELECT pg_catalog.set_config(s.name, '0', false) AS made
    FROM pg_catalog.pg_settings AS s
    WHERE s.name IN (:names)
    """,
    "postgres",
)

_POOLED = (
    "a connection pooler drops the startup parameter `options`, so that names would not be looked up in pg_catalog "
    "alone, and functions of others could run with your rights: connect to the server itself"
)

_REFUSED = {
    "password authentication failed": "the user or the password is wrong: set PGPASSWORD, or keep it in ~/.pgpass",
    "no password supplied": "it asks for a password: set PGPASSWORD, or keep it in ~/.pgpass",
    "no pg_hba.conf entry": "it does not accept this user from here: see its pg_hba.conf",
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
"""What libpq says, and what is told of it: its own words may quote the address."""

_KINDS = {
    "22": "a value does not fit its type",
    "23": "a constraint of the database is broken",
    "2B": "other objects depend on what would be dropped",
    "40": "it collided with another transaction: try again",
    "53": "the server lacks memory or space on its disk",
    "55": "something it needs is in use",
    "55P03": "a table is locked by another transaction: try again when that has ended",
    "57": "it was cancelled, or the server shuts down",
    "57P01": "an administrator ended the connection, or the server shuts down",
}
"""What an SQLSTATE, or its first two characters, means."""

_TRAVELLING = {
    **{"int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint", "bool": "boolean"},
    **{"float": "real", "double": "double precision"},
    **{"string": "text", "large_string": "text", "string_view": "text"},
}
"""By Arrow's name of a type, as what it is taken in."""

_OF_LIBPQ = "[libpq]"
"""Stands in what the driver says of a stream that ends early."""

_STATEMENT_TIMEOUT = "canceling statement due to statement timeout"

_CANCELLED = "canceling statement due to user request"

_OF_COLUMNS = ("42501", "22P05")
"""A right is missing, or a character of a text has no equal: other columns may be readable."""

_NAMES_ONLY = "42"
"""Errors of this class are about names, types and rights: what the server says of these is shown."""


class PostgresEngine:
    """Runs sqlglot expressions on a connection to PostgreSQL.

    A transaction begins by itself, and ends with `commit` or `rollback`.
    """

    dialect = "postgres"
    features = FEATURES["postgres"]

    def __init__(self, connection: Any, place: str, own_path: str = SEARCH_PATH) -> None:
        self.connection, self.place, self._own_path = connection, place, own_path
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        self._is_settled = False

    @classmethod
    def open(cls, address: str, place: str) -> PostgresEngine:
        try:
            import adbc_driver_manager  # noqa: PLC0415  (it is an extra)
            import adbc_driver_postgresql  # noqa: PLC0415
            import adbc_driver_postgresql.dbapi as driver  # noqa: PLC0415
        except ImportError:
            raise MissingLibraryError(f"{place}: PostgreSQL", "adbc-driver-postgresql", "postgres") from None
        try:
            # The driver looks types up before we can say anything: its path is part of the address then. Ours is not,
            # so that the user's own path can be read.
            pinned = pinned_address(address)
            database = adbc_driver_postgresql.connect(pinned)
            with closing(driver.Connection(database, adbc_driver_manager.AdbcConnection(database))) as probe:
                path = cls(probe, place)._shown("search_path")
                database.set_options(uri=address)
                connection = probe.adbc_clone()
        except driver.Error as error:
            message = str(error).lower()
            reason = next((words for word, words in _REFUSED.items() if word in message), "see the log of the server")
            raise SourceError(f"{place}: PostgreSQL cannot be reached: {reason}") from None
        engine = cls(connection, place)
        if path.replace(" ", "") != SEARCH_PATH.replace(" ", ""):
            engine.close()
            raise SourceError(f"{place}: PostgreSQL cannot be reached: {_POOLED}")
        with engine.translated_errors():
            engine._own_path = engine._shown("search_path")
            engine._set(_SETTINGS, for_session=True)
            engine._rows(_WITHOUT_LIMITS(names=[text(name) for name in _UNLIMITED]))
            engine.commit()
        return engine

    @contextmanager
    def translated_errors(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        import adbc_driver_manager  # noqa: PLC0415  (it comes with the extra)

        try:
            yield
        except adbc_driver_manager.Error as error:
            if kind is SourceError and str(error.sqlstate or "") in _OF_COLUMNS:
                kind = UnreadableColumnsError
            raise kind(f"{self.place}: PostgreSQL says: {describe_error(error)}") from None

    @property
    def version(self) -> str:
        return f"postgresql {self.rows(exp.select(exp.func('current_setting', text('server_version'))))[0][0]}"

    def why_not_for_releases(self) -> str | None:
        """Why no release can be made of a table on this server, or put there; None if nothing is in the way."""
        is_replica, encoding = self.rows(server_capabilities())[0]
        if is_replica:
            return (
                "the server is a read replica (hot standby), which takes no temporary tables, and a release is made "
                "with some: name the primary server"
            )
        if encoding != "UTF8":
            return (
                f"the database is encoded in {encoding}, which cannot hold every label of a release, such as ≥28: use "
                "a database in UTF8"
            )
        return None

    @contextmanager
    def named(self, place: str) -> Iterator[PostgresEngine]:
        """The same connection, which errors call by another place meanwhile."""
        before, self.place = self.place, place
        try:
            yield self
        finally:
            self.place = before

    def sql(self, expression: exp.Expr) -> str:
        return self._generator.generate(expression)

    def shown(self, statement: exp.Expr) -> str:
        return statement.sql(self.dialect, pretty=True)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement; parameters stand in it as ``$1``, ``$2``, ..."""
        self._settle()
        self._execute(statement, parameters)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._settle()
        return self._rows(query, parameters)

    def names(self, query: exp.Expr) -> list[str]:
        self._settle()
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query))
            return [str(column[0]) for column in cursor.description]

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        names = self.names(star(relation.copy()).limit(0, copy=False))
        types = self.rows(query_column_types(exp.Subquery(this=star(relation.copy()), alias=ident("query")), names))
        return {name: type_ for name, (type_, _) in zip(names, types, strict=True)}

    def materialize(self, name: str, query: exp.Query) -> int:
        self.forget(name)
        self.execute(create_temporary_table(table(name), query))
        return int(self.rows(row_count(rows=exp.Table(this=ident(name), db=ident("pg_temp"))))[0][0])

    def forget(self, name: str) -> None:
        self.execute(drop_table(exp.Table(this=ident(name), db=ident("pg_temp")), exists=True))

    def _execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(statement), parameters or None)

    def _rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query), parameters or None)
            return list(cursor.fetchall())

    def _shown(self, setting: str) -> str:
        """What a setting is: by SHOW, which looks no name up."""
        with self.connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(f"SHOW {setting}")
            return str(cursor.fetchall()[0][0])

    def _settle(self) -> None:
        """Have a transaction begin with our settings: those of the session may be gone behind a connection pooler."""
        if not self._is_settled:
            self._set(_SETTINGS)
            self._is_settled = True

    def _set(self, settings: Mapping[str, str], for_session: bool = False) -> None:
        local = exp.Boolean(this=not for_session)
        each: list[exp.Expr] = [
            catalog_function("set_config", text(name), text(value), local.copy()) for name, value in settings.items()
        ]
        self._rows(exp.Select(expressions=[named(one, f"s{i}") for i, one in enumerate(each)]))

    @contextmanager
    def on_own_path(self) -> Iterator[None]:
        """Look names up where the user's own settings say, for a moment: to find relations, and nothing else."""
        self._settle()
        self._set({"search_path": self._own_path})
        try:
            yield
        except BaseException:
            self._is_settled = False  # the transaction is broken, and has to be ended
            raise
        self._set({"search_path": SEARCH_PATH})

    @contextmanager
    def stream(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> Iterator[pyarrow.RecordBatchReader]:
        self._settle()
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query), parameters or None)
            try:
                yield cursor.fetch_record_batch()
            except Exception as error:
                if _OF_LIBPQ not in str(error):
                    raise
                if _CANCELLED in str(error):
                    raise KeyboardInterrupt from None
                message = "the statement failed while its rows were read: see the log of the server"
                raise SourceError(f"{self.place}: {message}") from None

    def upload(self, name: str, arrow: Any) -> exp.Table:
        """Make a temporary table of an Arrow stream, whose types travel: only this connection sees it."""
        # The driver would make the table, too, but its errors then do not say what they are.
        types = [(field.name, _TRAVELLING[str(field.type)]) for field in arrow.schema]
        target = column_definitions(table(name), types)
        target.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
        self.execute(target)
        with self.connection.cursor() as cursor:
            cursor.adbc_ingest(name, arrow, mode="append", temporary=True)
        return exp.Table(this=ident(name), db=ident("pg_temp"))

    def commit(self) -> None:
        self._is_settled = False
        self.connection.commit()

    def rollback(self) -> None:
        self._is_settled = False
        self.connection.rollback()

    @contextmanager
    def undone_unless_committed(
        self, kind: type[SqlanonError] = SourceError, mode: str = "ISOLATION LEVEL READ COMMITTED, READ WRITE"
    ) -> Iterator[None]:
        """A transaction of which nothing stays, but for what was committed meanwhile."""
        with self.translated_errors(kind):
            try:
                # Older drivers begin one as the one before was; and the user's own settings may say otherwise.
                self._execute(exp.Command(this="SET", expression=f"TRANSACTION {mode}"))
                yield
            finally:
                with suppress(Exception):  # the connection may be gone
                    self.rollback()

    @contextmanager
    def reading(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        """A transaction in which nothing can be written, and all statements see the same rows."""
        with self.undone_unless_committed(kind, "ISOLATION LEVEL REPEATABLE READ, READ ONLY"):
            yield

    @contextmanager
    def reading_locked(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        """A transaction in which nothing can be written, for reading what is locked first: each statement sees what
        the catalog has by then, and not what it had before the lock."""
        with self.undone_unless_committed(kind, "ISOLATION LEVEL READ COMMITTED, READ ONLY"):
            yield

    def close(self) -> None:
        with suppress(Exception):  # it may be gone
            self.connection.close()


def pinned_address(address: str) -> str:
    """An address that sets what the driver's own look at types depends on, whatever else sets it.

    Options that the address, or the environment, has beside it stay. The session is read-only by the same options, and
    libpq refuses any other: where a connection pooler drops them, no statement runs.

    >>> pinned = pinned_address("postgresql://me@db/hospital?options=-csearch_path%3Dclinic&sslmode=require")
    >>> pinned.partition("&options")[0]
    'postgresql://me@db/hospital?sslmode=require&target_session_attrs=read-only'
    >>> unquote(pinned).partition("-csearch_path=clinic ")[2].split(" ")[:2]
    ['-csearch_path=pg_catalog,pg_temp', '-cquote_all_identifiers=off']
    """
    scheme, _, rest = address.partition("://")
    user, at, rest = rest.partition("@") if "@" in rest.partition("/")[0] else ("", "", rest)
    place, _, written = rest.partition("?")
    pairs = [one for one in written.split("&") if one]
    given = {unquote(one.partition("=")[0]).strip(): unquote(one.partition("=")[2]) for one in pairs}
    before = given.get("options", os.environ.get("PGOPTIONS", ""))
    pinned = {
        "search_path": SEARCH_PATH.replace(" ", ""),
        "quote_all_identifiers": "off",
        "default_transaction_read_only": "on",
        "statement_timeout": "0",
    }
    options = " ".join([before, *(f"-c{name}={value}" for name, value in pinned.items())]).strip()
    replaced = ("options", "target_session_attrs")
    others = [one for one in pairs if unquote(one.partition("=")[0]).strip() not in replaced]
    others += ["target_session_attrs=read-only", f"options={quote(options, safe='')}"]
    return f"{scheme}://{user}{at}{place}?{'&'.join(others)}"


def describe_error(error: Any) -> str:
    """What may be told of an error of the driver.

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
    if state.startswith(_NAMES_ONLY):
        details = dict(getattr(error, "details", None) or ())
        primary = details.get(b"PG_DIAG_MESSAGE_PRIMARY") or details.get("PG_DIAG_MESSAGE_PRIMARY") or b""
        reason = primary.decode(errors="replace") if isinstance(primary, bytes) else str(primary)
        if reason:
            return reason
    if _STATEMENT_TIMEOUT in str(error):
        return f"it took longer than statement_timeout allows: raise that limit for this user (SQLSTATE {state})"
    kind = _KINDS.get(state) or _KINDS.get(state[:2], "it failed")
    return f"{kind} (SQLSTATE {state})" if state else "the connection was lost, or the driver failed"
