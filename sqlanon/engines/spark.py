"""Spark: it executes sqlglot expressions in one session, gives Arrow, and takes Arrow in.

A session is a classic one, with the driver beside us, or one of Spark Connect, whose driver is a server. pyspark (the
extra ``spark``) is imported only here and in `sqlanon.engines.spark_session`, and only when it is used. Errors of Spark
quote statements and values: they never get further than `told`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import Dialect, exp

from sqlanon.engines.spark_errors import is_cancelled, is_of_spark, reason_of
from sqlanon.engines.spark_session import open_session
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.queries.names import ident

if TYPE_CHECKING:
    import pyarrow

_SETTINGS = {
    # What is read as text, and what text becomes, means the same in each session.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.escapedStringLiterals": "false",
}

_BROADCAST = 64 * 2**20
"""A table that was shipped is sent to all executors, where it has at most so many bytes."""

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark writes what Spark says of a statement, values and all, to stderr."""

_TAG = "sqlanon"


Mapper: TypeAlias = "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]"
"""Makes of batches of rows others."""


class SparkEngine:
    """Runs sqlglot expressions in a session of Spark.

    Parameters
    ----------
    session:
        Of pyspark, classic or of Spark Connect. A user's own one is used as it is: its temporary views are visible;
        the settings that are changed are put back by `close`.
    place:
        What the policy calls it, for messages: ``source.spark``.

    Raises
    ------
    SourceError
        The session does not answer.
    """

    dialect = "spark"

    def __init__(self, session: Any, place: str = "source.spark") -> None:
        self.session, self.place = session, place
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        self._views: dict[str, Any] = {}
        self._end: Callable[[], None] | None = None
        self._before: dict[str, str | None] = {}
        with self.told():
            for name, value in _SETTINGS.items():
                if session.conf.get(name) != value:
                    self._before[name] = session.conf.get(name, None)
                    session.conf.set(name, value)

    @classmethod
    def open(cls, address: str, place: str) -> SparkEngine:
        """Connect to a server of Spark Connect, or start a session on a cluster or on this machine.

        Parameters
        ----------
        address:
            ``sc://host:port``, or a master: ``local[2]``, ``local-cluster[2,1,1024]``, ``spark://host:port``.
        place:
            What the policy calls it.

        Raises
        ------
        MissingLibraryError
            The extra is not installed.
        SourceError
            The server cannot be reached, or no session can be started; the address is not told.
        """
        session, end = open_session(address, place)
        try:
            engine = cls(session, place)
        except BaseException:
            end()
            raise
        engine._end = end
        return engine

    @contextmanager
    def told(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        """Errors of Spark become one of ours, which quotes neither values nor the address."""
        try:
            with _quietly():
                yield
        except Exception as error:
            if not is_of_spark(error):
                raise
            if is_cancelled(error):
                raise KeyboardInterrupt from None
            raise kind(f"{self.place}: Spark says: {reason_of(error)}") from None

    @property
    def version(self) -> str:
        """Name and version of the engine."""
        return f"spark {self.session.version}"

    def sql(self, expression: exp.Expr) -> str:
        """The text of an expression."""
        return self._generator.generate(expression)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement; parameters stand in it as ``?``."""
        with self._cancelled_when_interrupted():
            self._frame(statement, parameters)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and bring its rows to Python."""
        arrow = self._arrow(query, parameters)
        return list(zip(*(column.to_pylist() for column in arrow.columns), strict=True))

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        """Name and type text of a relation's columns; reads no rows."""
        with self._cancelled_when_interrupted():
            return dict(self._frame(exp.select("*").from_(relation.copy())).dtypes)

    @contextmanager
    def stream(self, query: exp.Expr) -> Iterator[pyarrow.RecordBatchReader]:
        """The rows of a query as Arrow; all of them are in memory meanwhile."""
        yield self._arrow(query).to_reader()

    def ingest(self, name: str, arrow: Any) -> exp.Table:
        """Make a temporary view of an Arrow table or stream: only this session sees it.

        Spark has no integers without a sign: they become wider ones. What is small is sent to all executors when it is
        joined.
        """
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  (it is an extra)

        table = _signed(arrow.read_all() if hasattr(arrow, "read_all") else arrow)
        with self._cancelled_when_interrupted():
            frame = self.session.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
            self._view(name, frame.hint("broadcast") if table.nbytes <= _BROADCAST else frame, None)
        return exp.Table(this=ident(name))

    def keep(self, name: str, query: exp.Expr) -> int:
        """Compute a query once and keep its rows in the cluster, under the name of a temporary view.

        What is lost with an executor is not computed again: whoever reads it has an error then, never other rows.

        Returns
        -------
        int
            The number of its rows.
        """
        with self._cancelled_when_interrupted():
            return self._kept(name, self._frame(query))

    def keep_mapped(self, name: str, query: exp.Expr, function: Mapper, types: Mapping[str, str]) -> int:
        """Have the workers make other rows of those of a query, by Python, and keep them as `keep` does.

        Parameters
        ----------
        name, query:
            Of the view, and whose rows.
        function:
            Makes of batches of rows others, in another process and on another machine. The module that it is of is sent
            there with it; what that imports has to be there.
        types:
            Spark's types of its columns, by name.

        Returns
        -------
        int
            The number of its rows.

        Raises
        ------
        SourceError
            Tasks may run twice there (``spark.speculation``): what is drawn at random might come out in two ways.
        """
        schema = ", ".join(f"{self.sql(ident(column))} {type_}" for column, type_ in types.items())
        with self._cancelled_when_interrupted(), _sent(function):
            if self.session.conf.get("spark.speculation", "false") == "true":
                raise SourceError(
                    f"{self.place}: spark.speculation has tasks run twice, and noise must be drawn once: turn it off"
                )
            return self._kept(name, self._frame(query).mapInArrow(function, schema))

    def _kept(self, name: str, frame: Any) -> int:
        kept = frame.localCheckpoint()
        self._view(name, kept, kept)
        return int(kept.count())

    def forget(self, name: str) -> None:
        """Drop a view that `ingest` or `keep` made, and what it holds; nothing where there is none."""
        if name in self._views:
            kept = self._views.pop(name)
            self.execute(exp.Drop(tables=[exp.Table(this=ident(name))], kind="VIEW", exists=True))
            if kept is not None and hasattr(kept, "_jdf"):  # a server of Spark Connect cleans up by itself
                kept._jdf.queryExecution().analyzed().rdd().unpersist(False)

    def write_parquet(self, query: exp.Expr, directory: str) -> None:
        """Have Spark write the rows of a query as Parquet files, in a new directory that it sees."""
        with self._cancelled_when_interrupted():
            self._frame(query).write.parquet(directory)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A while in which the source is read: errors become ours."""
        with self.told():
            yield

    def close(self) -> None:
        """Forget what was shipped and kept, put the settings back, and end the session if it is ours."""
        with suppress(Exception), _quietly():  # it may be gone
            for name in list(self._views):
                self.forget(name)
            for name, value in self._before.items():
                if value is None:
                    self.session.conf.unset(name)
                else:
                    self.session.conf.set(name, value)
        if self._end is not None:
            self._end()

    def _frame(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> Any:
        """A statement, run at once where it is no query."""
        return self.session.sql(self.sql(statement), args=list(parameters) or None)

    def _arrow(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> pyarrow.Table:
        with self._cancelled_when_interrupted():
            return self._frame(query, parameters).toArrow()

    def _view(self, name: str, frame: Any, kept: Any) -> None:
        frame.createOrReplaceTempView(self.sql(ident(name)))
        self._views[name] = kept

    @contextmanager
    def _cancelled_when_interrupted(self) -> Iterator[None]:
        """What runs there ends when we are interrupted here."""
        self.session.addTag(_TAG)
        try:
            yield
        except KeyboardInterrupt:
            with suppress(Exception):  # the session may be gone
                self.session.interruptTag(_TAG)
            raise
        finally:
            with suppress(Exception):
                self.session.removeTag(_TAG)


@contextmanager
def _quietly() -> Iterator[None]:
    """pyspark says nothing to stderr meanwhile."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (it is an extra)

    loggers: list[logging.Logger] = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextmanager
def _sent(function: Mapper) -> Iterator[None]:
    """A function is sent to the workers with all of its module: they need not have it."""
    from pyspark import cloudpickle  # noqa: PLC0415  (it is an extra)

    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _signed(table: pyarrow.Table) -> pyarrow.Table:
    """An Arrow table with types that Spark has."""
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.string_view(): pa.string(),
        pa.binary_view(): pa.binary(),
    }
    fields = [field.with_type(wider.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))
