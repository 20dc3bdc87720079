"""Spark: runs sqlglot expressions in one session, and transfers rows as Arrow.

A session is a classic one, whose driver runs on this machine, or one of Spark Connect, whose driver is a server.
pyspark (the extra ``spark``) is imported only in this package and only when used. Errors of Spark quote statements and
values: `translate_errors` replaces all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote
from uuid import uuid4

from sqlglot import Dialect, exp

from sqlanon.engines.base import RemoteEngine
from sqlanon.engines.dialects.spark import SPARK
from sqlanon.engines.spark import settings as spark_settings
from sqlanon.engines.spark.errors import describe_error, is_about_columns, is_spark_error, silence_pyspark
from sqlanon.errors import SourceError, SqlanonError, UnreadableColumnsError
from sqlanon.support.expressions import ident

if TYPE_CHECKING:
    import pyarrow

    from sqlanon.engines.spark.session import Mapper


def use_signed_types(table: pyarrow.Table) -> pyarrow.Table:
    """Cast an Arrow table to types that Spark has: no unsigned integers, and no string views.

    >>> import pyarrow
    >>> use_signed_types(pyarrow.table({"n": pyarrow.array([255], pyarrow.uint8())})).schema.field("n").type
    DataType(int16)
    """
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


def columns_not_utf8(table: pyarrow.Table) -> list[str]:
    """The columns of an Arrow table with text that is not UTF-8, which Spark does not check.

    >>> import pyarrow
    >>> columns_not_utf8(pyarrow.table({"a": ["ü"], "b": pyarrow.array([b"\\xff"]).view(pyarrow.string())}))
    ['b']
    """
    import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

    def is_valid(column: pa.ChunkedArray) -> bool:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    texts = (field.name for field in table.schema if field.type in (pa.string(), pa.large_string()))
    return [name for name in texts if not is_valid(table[name])]


def count_parquet_rows(folder: Path) -> int:
    """The number of rows in the Parquet files of a folder, by their footers; 0 if the folder does not exist.

    >>> count_parquet_rows(Path("/nowhere"))
    0
    """
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  (it is slow to load)

    return sum(int(read_metadata(file).num_rows) for file in folder.glob("*.parquet"))


_BROADCAST_BYTES = 64 * 2**20
"""Maximum size of an uploaded table that joins broadcast to all executors."""

_BROADCAST_ROWS = 200_000
"""Maximum number of rows of a materialized table that joins broadcast."""

_Result = TypeVar("_Result")


class SparkEngine(RemoteEngine):
    """Runs sqlglot expressions in a Spark session, in a separate thread."""

    dialect = "spark"
    APPROXIMATES_COUNTS = True
    OPENS_READ_ONLY = True
    WRITES_PARQUET = True
    CACHES_ROWS = True
    RUNS_PYTHON = True

    def __init__(self, session: Any, place: str = "source.spark", is_own: bool = False) -> None:
        self.session, self.place = session, place
        self.address: str | None = None
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        self._views: dict[str, Callable[[], Any] | None] = {}
        self._end: Callable[[], None] | None = None
        self._tag = f"sqlanon-{uuid4()}"
        self._worker = ThreadPoolExecutor(1, "sqlanon-spark")
        try:
            with self.translate_errors():
                self._run_in_worker(lambda: self._begin(is_own))
        except BaseException:
            self._worker.shutdown()
            raise

    @classmethod
    def open(cls, address: str, place: str) -> SparkEngine:
        """Connect to a server of Spark Connect, or start a session on a cluster or on this machine."""
        from sqlanon.engines.spark.session import open_session  # noqa: PLC0415  (it is an extra)

        session, end = open_session(address, place)
        try:
            engine = cls(session, place, is_own=True)
        except BaseException:
            end()
            raise
        engine._end, engine.address = end, address
        return engine

    @contextmanager
    def translate_errors(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_spark_error(error):
                raise
            if kind is SourceError and is_about_columns(error):
                kind = UnreadableColumnsError
            raise kind(f"{self.place}: Spark says: {describe_error(error)}") from None

    @property
    def is_local(self) -> bool:
        context = self._context()
        return context is not None and str(context.master).startswith("local")

    @property
    def home(self) -> Any:
        """The address, which may contain a token, or the user's session."""
        return self.address or self.session

    @property
    def catalog(self) -> str:
        """The identity of its catalog, independent of the address: the metastore or the warehouse folder."""
        return catalog_identity(self.session)

    @property
    def replaced_functions(self) -> frozenset[str]:
        return self._run(lambda: spark_settings.replaced_functions(self.session))

    @property
    def version(self) -> str:
        return f"spark {self._run(lambda: self.session.version)}"

    def sql(self, expression: exp.Expr) -> str:
        return self._generator.generate(SPARK.escape_variables(expression))

    def render(self, statement: exp.Expr) -> str:
        return SPARK.escape_variables(statement).sql(self.dialect, pretty=True)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement with parameters ``?``."""
        self._run(lambda: self._frame(statement, parameters))

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if not isinstance(query, exp.Query):  # a command has computed its rows already
            return [tuple(row) for row in self._run(lambda: self._frame(query).collect())]
        arrow = self._arrow(query, parameters)
        return list(zip(*(column.to_pylist() for column in arrow.columns), strict=True))

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        return dict(self._run(lambda: self._frame(exp.select("*").from_(relation.copy())).dtypes))

    def parquet_files(self, pattern: str) -> dict[str, dict[str, str]]:
        """The Parquet files of a pattern or folder, each with its columns and types."""

        def columns_by_file() -> dict[str, dict[str, str]]:
            reader = self.session.read
            files = [unquote(file) for file in reader.parquet(pattern).inputFiles()]
            if len(files) < 2:
                return {file: {} for file in files}
            with ThreadPoolExecutor(8) as pool:  # one job for each file
                columns = pool.map(lambda file: dict(reader.parquet(_escape_path(file)).dtypes), files)
                return dict(zip(files, columns, strict=True))

        return self._run(columns_by_file)

    @contextmanager
    def stream(self, query: exp.Expr) -> Iterator[pyarrow.RecordBatchReader]:
        """The rows of a query as an Arrow stream; all rows are in memory."""
        yield self._arrow(query).to_reader()

    def upload(self, name: str, arrow: Any) -> exp.Table:
        """Create a temporary view of this session from an Arrow table or stream; joins broadcast it if it is small."""
        table = use_signed_types(arrow.read_all() if hasattr(arrow, "read_all") else arrow)
        self._run(lambda: self._create_view(name, self._upload_frame(table), None))
        return exp.Table(this=ident(name))

    def materialize(self, name: str, query: exp.Expr) -> int:
        """Compute a query once and store its rows in the cluster, as a temporary view.

        Rows that are lost with an executor are not computed again: reading them is an error.
        """
        return self._run(lambda: self._checkpoint(name, self._frame(query)))

    def cache(self, name: str, query: exp.Expr) -> int:
        """Store the rows of a query in the compressed columnar cache; lost rows are computed again."""
        return self._run(lambda: self._cache(name, self._frame(query)))

    def materialize_mapped(self, name: str, query: exp.Expr, function: Mapper, types: Mapping[str, str]) -> int:
        from sqlanon.engines.spark.session import send_module  # noqa: PLC0415  (it is an extra)

        schema = ", ".join(f"{self.sql(ident(column))} {type_}" for column, type_ in types.items())

        def map_rows() -> int:
            if self.session.conf.get("spark.speculation", "false").lower() == "true":
                message = "spark.speculation runs tasks twice, but random values must be drawn once: turn it off"
                raise SourceError(f"{self.place}: {message}")
            with send_module(function):
                return self._checkpoint(name, self._frame(query).mapInArrow(function, schema))

        return self._run(map_rows)

    def forget(self, name: str) -> None:
        """Drop a view that `upload` or `materialize` created, with its rows, if it exists."""
        if name in self._views:
            with self.translate_errors():
                self._run(lambda: self._drop_view(name))
            del self._views[name]  # last, so that `close` tries again if the drop fails

    def write_parquet(self, query: exp.Expr, directory: str) -> int:
        row_total = self._run(lambda: self._write_rows(query, Path(directory).as_uri()))
        if row_total != count_parquet_rows(Path(directory)):
            message = f"Spark wrote {row_total:,} rows to {directory}, but not all of them are on this machine"
            raise SourceError(f"{self.place}: {message}: give a folder that its executors and this machine share")
        return row_total

    @contextmanager
    def read_only(self) -> Iterator[None]:
        with self.translate_errors():
            yield

    def close(self) -> None:
        """Drop all views, restore the settings, and end the session if the engine opened it."""
        with suppress(Exception):  # it may be gone
            for name in list(self._views):
                self.forget(name)
        with suppress(Exception):
            self._run_in_worker(lambda: spark_settings.release_settings(self.session))
        self._worker.shutdown()
        if self._end is not None:
            self._end()
            self._end = None

    # The following methods run in the engine's worker thread.

    def _begin(self, is_own: bool) -> None:
        """Tag the jobs of this thread, so that they can be cancelled, and apply the settings."""
        if context := self._context():
            if context._jsc is None:
                raise SourceError(f"{self.place}: the session of Spark was stopped")
            context.addJobTag(self._tag)
        else:
            self.session.addTag(self._tag)
            # pyspark looks checkpoints up in the active session, or else in the first one.
            type(self.session)._active_session.session = self.session
        spark_settings.acquire_settings(self.session, self.place, is_own)

    def _frame(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> Any:
        """The data frame of a statement; a statement that is not a query runs at once."""
        return self.session.sql(self.sql(statement), args=list(parameters) or None)

    def _upload_frame(self, table: pyarrow.Table) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  (it is an extra)

        frame = self.session.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
        return frame.hint("broadcast") if table.nbytes <= _BROADCAST_BYTES else frame

    def _checkpoint(self, name: str, frame: Any) -> int:
        checkpoint = frame.localCheckpoint()
        self._create_view(name, checkpoint, lambda: self._free_checkpoint(checkpoint))
        rows = int(checkpoint.count())
        if rows <= _BROADCAST_ROWS:
            checkpoint.hint("broadcast").createOrReplaceTempView(self.sql(ident(name)))
        return rows

    def _cache(self, name: str, frame: Any) -> int:
        from pyspark import StorageLevel  # noqa: PLC0415  (it is an extra)

        cached = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._create_view(name, cached, cached.unpersist)
        return int(cached.count())

    def _create_view(self, name: str, frame: Any, free: Callable[[], Any] | None) -> None:
        """Create or replace a temporary view; ``free`` releases its rows."""
        frame.createOrReplaceTempView(self.sql(ident(name)))
        free_old, self._views[name] = self._views.get(name), free
        if free_old is not None:
            free_old()

    def _drop_view(self, name: str) -> None:
        self.session.catalog.dropTempView(name)
        if (free := self._views[name]) is not None:
            free()

    def _free_checkpoint(self, checkpoint: Any) -> None:
        if self._context():  # Spark Connect frees unreferenced checkpoints itself
            checkpoint._jdf.queryExecution().analyzed().rdd().unpersist(False)

    def _write_rows(self, query: exp.Expr, directory: str) -> int:
        if self._context():
            from pyspark.sql import Observation  # noqa: PLC0415  (it is an extra)
            from pyspark.sql.functions import count, lit  # noqa: PLC0415  (it is an extra)
        else:
            from pyspark.sql.connect.functions import count, lit  # noqa: PLC0415  (it is an extra)
            from pyspark.sql.connect.observation import Observation  # noqa: PLC0415  (it is an extra)
        observation = Observation()
        self._frame(query).observe(observation, count(lit(1)).alias("rows")).write.parquet(directory)
        return int(observation.get["rows"])

    # The following methods do not.

    def _context(self) -> Any:
        """The SparkContext of a driver on this machine; None for Spark Connect."""
        return getattr(self.session, "_sc", None)

    def _arrow(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> pyarrow.Table:
        arrow = self._run(lambda: self._frame(query, parameters).toArrow())
        if broken := columns_not_utf8(arrow):
            names = ", ".join(map(repr, broken))
            raise SourceError(
                f"{self.place}: text that is not UTF-8 in {names}: mend it with query = ... under [source]"
            )
        return arrow

    def _run(self, work: Callable[[], _Result]) -> _Result:
        def run() -> _Result:
            spark_settings.enforce_settings(self.session)
            return work()

        return self._run_in_worker(run)

    def _run_in_worker(self, work: Callable[[], _Result]) -> _Result:
        """Run work in the engine's thread.

        KeyboardInterrupt, which Python raises in the main thread, would otherwise break off an exchange with Spark, and
        the next request would receive the response to the last one.
        """
        with silence_pyspark():
            future = self._worker.submit(work)
            try:
                return future.result()
            except KeyboardInterrupt:
                with suppress(Exception):  # it may be gone
                    context = self._context()
                    context.cancelJobsWithTag(self._tag) if context else self.session.interruptTag(self._tag)
                with suppress(Exception):  # its error is of no interest
                    future.exception(timeout=20.0)
                raise


def _escape_path(path: str) -> str:
    r"""Escape a path for Hadoop, which would read some characters as a pattern.

    >>> _escape_path("file:/data/a[1].parquet")
    'file:/data/a\\[1\\].parquet'
    """
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def catalog_identity(session: Any) -> str:
    """The identity of a session's catalog: the address of its metastore, or else its warehouse folder."""
    for name in ("spark.hadoop.hive.metastore.uris", "spark.sql.warehouse.dir"):
        with suppress(Exception):  # some servers refuse to read settings
            if value := session.conf.get(name, ""):
                return str(value)
    return "session"
