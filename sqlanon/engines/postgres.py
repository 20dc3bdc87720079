"""PostgreSQL: it executes sqlglot expressions on one connection, gives Arrow, and takes Arrow in.

It is reached over ADBC (the extra ``postgres``), which is imported only here and only when it is used. Errors of the
driver quote addresses, statements and values: they never get further than `told`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sqlglot import Dialect, exp

from sqlanon.errors import MissingLibraryError, SourceError, SqlanonError
from sqlanon.queries.names import ident, text

if TYPE_CHECKING:
    import pyarrow

_SETTINGS = {
    # What is read as text is read in these words only.
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "client_encoding": "UTF8",
    "application_name": "sqlanon",
    # Who reads a release in a transaction that is never ended would hold up the next one for ever.
    "lock_timeout": "20s",
}

_REFUSED = {
    "password authentication failed": "the user or the password is wrong: set PGPASSWORD, or keep it in ~/.pgpass",
    "no password supplied": "it asks for a password: set PGPASSWORD, or keep it in ~/.pgpass",
    "no pg_hba.conf entry": "it lets nobody in from here as this user: see its pg_hba.conf",
    "connection refused": "nobody listens there",
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
    "2B": "something else depends on what is to be dropped",
    "40": "it collided with another transaction: try again",
    "53": "the server lacks memory or space on its disk",
    "55": "something it needs is in use",
    "57": "it was cancelled, or the server shuts down",
}
"""What the first two characters of an SQLSTATE mean."""

_OF_LIBPQ = "[libpq]"
"""Stands in what the driver says of a stream that ends early."""

_CANCELLED = "canceling statement due to user request"

_NAMES_ONLY = "42"
"""Errors of this class are about names, types and rights: what the server says of these is shown."""


class PostgresEngine:
    """Runs sqlglot expressions on a connection to PostgreSQL.

    A transaction begins by itself, and ends with `commit` or `rollback`.

    Parameters
    ----------
    connection:
        Of ADBC.
    place:
        What the policy calls it, for messages: ``source.postgres``.
    """

    dialect = "postgres"

    def __init__(self, connection: Any, place: str) -> None:
        self.connection, self.place = connection, place
        self._generator = Dialect.get_or_raise(self.dialect).generator()

    @classmethod
    def open(cls, address: str, place: str) -> PostgresEngine:
        """Connect to a server.

        Raises
        ------
        MissingLibraryError
            The extra is not installed.
        SourceError
            The server cannot be reached; its address is not told.
        """
        try:
            import adbc_driver_postgresql.dbapi as driver  # noqa: PLC0415  (it is an extra)
        except ImportError:
            raise MissingLibraryError(f"{place}: PostgreSQL", "adbc-driver-postgresql", "postgres") from None
        try:
            engine = cls(driver.connect(address), place)
        except driver.Error as error:
            message = str(error).lower()
            reason = next((told for word, told in _REFUSED.items() if word in message), "see the log of the server")
            raise SourceError(f"{place}: PostgreSQL cannot be reached: {reason}") from None
        with engine.told():
            for name, value in _SETTINGS.items():
                setting = exp.EQ(this=exp.Var(this=name), expression=text(value))
                engine.execute(exp.Set(expressions=[exp.SetItem(this=setting)]))
            engine.commit()
        return engine

    @contextmanager
    def told(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        """Errors of the driver become one of ours, which quotes neither values nor the address."""
        import adbc_driver_manager  # noqa: PLC0415  (it comes with the extra)

        try:
            yield
        except adbc_driver_manager.Error as error:
            raise kind(f"{self.place}: PostgreSQL says: {reason_of(error)}") from None

    @property
    def version(self) -> str:
        """Name and version of the engine."""
        return f"postgresql {self.rows(exp.select(exp.func('current_setting', text('server_version'))))[0][0]}"

    def sql(self, expression: exp.Expr) -> str:
        """The text of an expression."""
        return self._generator.generate(expression)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement; parameters stand in it as ``$1``, ``$2``, ..."""
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(statement), parameters or None)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and bring its rows to Python."""
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query), parameters or None)
            return list(cursor.fetchall())

    @contextmanager
    def stream(self, query: exp.Expr) -> Iterator[pyarrow.RecordBatchReader]:
        """The rows of a query as Arrow, as they come.

        Raises
        ------
        SourceError
            The statement failed while its rows were read; then whoever reads them has an error of its own.
        KeyboardInterrupt
            Somebody cancelled it, such as the driver when it hears Ctrl-C.
        """
        with self.connection.cursor() as cursor:
            cursor.execute(self.sql(query))
            try:
                yield cursor.fetch_record_batch()
            except Exception as error:
                if _OF_LIBPQ not in str(error):
                    raise
                if _CANCELLED in str(error):
                    raise KeyboardInterrupt from None
                told = "the statement failed while its rows were read: see the log of the server"
                raise SourceError(f"{self.place}: {told}") from None

    def ingest(self, name: str, arrow: Any) -> exp.Table:
        """Make a temporary table of an Arrow table or stream: only this connection sees it."""
        with self.connection.cursor() as cursor:
            cursor.adbc_ingest(name, arrow, mode="create", temporary=True)
        return exp.Table(this=ident(name), db=ident("pg_temp"))

    def commit(self) -> None:
        """End the transaction: what was done in it stays."""
        self.connection.commit()

    def rollback(self) -> None:
        """End the transaction: nothing of it stays."""
        self.connection.rollback()

    @contextmanager
    def undone_unless_committed(
        self, kind: type[SqlanonError] = SourceError, mode: str = "READ WRITE"
    ) -> Iterator[None]:
        """A transaction of which nothing stays, but for what was committed meanwhile."""
        with self.told(kind):
            try:
                # Older drivers begin one as the one before was.
                self.execute(exp.Command(this="SET", expression=f"TRANSACTION {mode}"))
                yield
            finally:
                with suppress(Exception):  # the connection may be gone
                    self.rollback()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction in which nothing can be written, temporary tables excepted."""
        with self.undone_unless_committed(mode="READ ONLY"):
            yield

    def close(self) -> None:
        """Close the connection."""
        with suppress(Exception):  # it may be gone
            self.connection.close()


def reason_of(error: Any) -> str:
    """What may be told of an error of the driver.

    >>> class Missing(Exception):
    ...     sqlstate, details = "42P01", [(b"PG_DIAG_MESSAGE_PRIMARY", b'relation "t" does not exist')]
    >>> reason_of(Missing())
    'relation "t" does not exist'
    """
    state = str(getattr(error, "sqlstate", None) or "")
    if state.startswith(_NAMES_ONLY):
        details = dict(getattr(error, "details", None) or ())
        primary = details.get(b"PG_DIAG_MESSAGE_PRIMARY") or details.get("PG_DIAG_MESSAGE_PRIMARY") or b""
        told = primary.decode(errors="replace") if isinstance(primary, bytes) else str(primary)
        if told:
            return told
    kind = _KINDS.get(state[:2], "it failed")
    return f"{kind} (SQLSTATE {state})" if state else "the connection was lost, or the driver failed"
