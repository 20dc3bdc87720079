"""Spark: it executes sqlglot expressions in one session, gives Arrow, and takes Arrow in.

A session is a classic one, with the driver beside us, or one of Spark Connect, whose driver is a server. pyspark (the
extra ``spark``) is imported only here and in `sqlanon.engines.spark.session`, and only when it is used. Errors of Spark
quote statements and values: they never get further than `translated_errors`.
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

from sqlanon.engines.base import FEATURES
from sqlanon.engines.dialects.spark import escape_variables
from sqlanon.engines.spark import settings as spark_settings
from sqlanon.engines.spark.errors import describe_error, is_about_columns, is_spark_error, silence_pyspark
from sqlanon.errors import SourceError, SqlanonError, UnreadableColumnsError
from sqlanon.support.expressions import ident

if TYPE_CHECKING:
    import pyarrow

    from sqlanon.engines.spark.session import Mapper


def use_signed_types(table: pyarrow.Table) -> pyarrow.Table:
    """An Arrow table with types that Spark has: it knows no integers without a sign, and no views of texts.

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
    """The columns of an Arrow table with text that is not UTF-8: Spark takes any bytes for text.

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
    """How many rows the Parquet files of a folder have, by their footers; none, where there is no such folder.

    >>> count_parquet_rows(Path("/nowhere"))
    0
    """
    from pyarrow.parquet import read_metadata  # noqa: PLC0415  (it is slow to load)

    return sum(int(read_metadata(file).num_rows) for file in folder.glob("*.parquet"))


_BROADCAST = 64 * 2**20
"""The most bytes of a shipped table that is sent to all executors."""

_BROADCAST_ROWS = 200_000
"""Likewise the most rows of what is kept."""

_FOOTERS_AT_ONCE = 8
"""Files whose columns are read at the same time, each by a job of its own."""

_PATIENCE = 20.0
"""Seconds to wait for a cancelled job."""

_Answer = TypeVar("_Answer")


class SparkEngine:
    dialect = "spark"
    features = FEATURES["spark"]

    def __init__(self, session: Any, place: str = "source.spark", is_ours: bool = False) -> None:

        self.session, self.place = session, place
        self.address: str | None = None
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        self._views: dict[str, Callable[[], Any] | None] = {}
        self._end: Callable[[], None] | None = None
        self._tag = f"sqlanon-{uuid4()}"
        self._worker = ThreadPoolExecutor(1, "sqlanon-spark")
        try:
            with self.translated_errors():
                self._answered(lambda: self._begin(is_ours))
        except BaseException:
            self._worker.shutdown()
            raise

    @classmethod
    def open(cls, address: str, place: str) -> SparkEngine:
        """Connect to a server of Spark Connect, or start a session on a cluster or on this machine."""
        from sqlanon.engines.spark.session import open_session  # noqa: PLC0415  (nor for this)

        session, end = open_session(address, place)
        try:
            engine = cls(session, place, is_ours=True)
        except BaseException:
            end()
            raise
        engine._end, engine.address = end, address
        return engine

    @contextmanager
    def translated_errors(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_spark_error(error):
                raise
            if kind is SourceError and is_about_columns(error):
                kind = UnreadableColumnsError
            raise kind(f"{self.place}: Spark says: {describe_error(error)}") from None

    @property
    def is_here(self) -> bool:
        return self._context() is not None and str(self._context().master).startswith("local")

    @property
    def home(self) -> Any:
        """What leads to it: the address, which may hold a token, or the user's own session."""
        return self.address or self.session

    @property
    def catalog(self) -> str:
        """What tells its catalog from others, whatever way leads to it: its metastore, or where it keeps its tables."""
        return catalog_identity(self.session)

    @property
    def functions_replaced(self) -> frozenset[str]:
        return self._asked(lambda: spark_settings.replaced_functions(self.session))

    @property
    def version(self) -> str:
        return f"spark {self._asked(lambda: self.session.version)}"

    def sql(self, expression: exp.Expr) -> str:
        return self._generator.generate(escape_variables(expression))

    def shown(self, statement: exp.Expr) -> str:
        return escape_variables(statement).sql(self.dialect, pretty=True)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement; parameters stand in it as ``?``."""
        self._asked(lambda: self._frame(statement, parameters))

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if not isinstance(query, exp.Query):  # a command has its rows already: no job
            return [tuple(row) for row in self._asked(lambda: self._frame(query).collect())]
        arrow = self._arrow(query, parameters)
        return list(zip(*(column.to_pylist() for column in arrow.columns), strict=True))

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        return dict(self._asked(lambda: self._frame(exp.select("*").from_(relation.copy())).dtypes))

    def parquet_files(self, pattern: str) -> dict[str, dict[str, str]]:
        """The Parquet files of a pattern or a folder, each with its own columns and their types."""

        def columns_by_file() -> dict[str, dict[str, str]]:
            reader = self.session.read
            files = [unquote(file) for file in reader.parquet(pattern).inputFiles()]
            if len(files) < 2:
                return {file: {} for file in files}
            with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
                columns = pool.map(lambda file: dict(reader.parquet(_without_pattern(file)).dtypes), files)
                return dict(zip(files, columns, strict=True))

        return self._asked(columns_by_file)

    @contextmanager
    def stream(self, query: exp.Expr) -> Iterator[pyarrow.RecordBatchReader]:
        """The rows of a query as Arrow; all of them are in memory meanwhile."""
        yield self._arrow(query).to_reader()

    def upload(self, name: str, arrow: Any) -> exp.Table:
        """Make a temporary view of an Arrow table or stream: only this session sees it.

        Spark has no integers without a sign: they become wider ones. What is small is sent to all executors when it is
        joined.
        """
        table = use_signed_types(arrow.read_all() if hasattr(arrow, "read_all") else arrow)
        self._asked(lambda: self._view(name, self._shipped(table), None))
        return exp.Table(this=ident(name))

    def materialize(self, name: str, query: exp.Expr) -> int:
        """Compute a query once and keep its rows in the cluster, under the name of a temporary view.

        What is lost with an executor is not computed again: whoever reads it has an error then, never other rows.
        """

        return self._asked(lambda: self._kept(name, self._frame(query)))

    def cache(self, name: str, query: exp.Expr) -> int:
        """Keep the rows of a query in the columnar cache, which is small: what is lost of them is read again."""
        return self._asked(lambda: self._cached(name, self._frame(query)))

    def materialize_mapped(self, name: str, query: exp.Expr, function: Mapper, types: Mapping[str, str]) -> int:
        from sqlanon.engines.spark.session import send_module  # noqa: PLC0415  (nor for this)

        schema = ", ".join(f"{self.sql(ident(column))} {type_}" for column, type_ in types.items())

        def mapped() -> int:
            if self.session.conf.get("spark.speculation", "false").lower() == "true":
                message = "spark.speculation runs tasks twice, and random values must be drawn once: turn it off"
                raise SourceError(f"{self.place}: {message}")
            with send_module(function):
                return self._kept(name, self._frame(query).mapInArrow(function, schema))

        return self._asked(mapped)

    def forget(self, name: str) -> None:
        """Drop a view that `upload` or `materialize` made, and what it holds; nothing where there is none."""
        if name in self._views:
            with self.translated_errors():
                self._asked(lambda: self._dropped(name, self._views[name]))
            del self._views[name]  # not before: what could not be dropped is tried again by `close`

    def write_parquet(self, query: exp.Expr, directory: str) -> int:
        written = self._asked(lambda: self._written(query, Path(directory).as_uri()))
        if written != count_parquet_rows(Path(directory)):
            message = f"Spark wrote {written:,} rows to {directory}, and not all of them are here"
            raise SourceError(f"{self.place}: {message}: give a folder that its executors and this machine share")
        return written

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self.translated_errors():
            yield

    def close(self) -> None:
        """Forget what was shipped and kept, put the settings back, and end the session if it is ours."""
        with suppress(Exception):  # it may be gone
            for name in list(self._views):
                self.forget(name)
        with suppress(Exception):
            self._answered(lambda: spark_settings.release_settings(self.session))
        self._worker.shutdown()
        if self._end is not None:
            self._end()
            self._end = None

    # What follows runs in the thread of the engine.

    def _begin(self, is_ours: bool) -> None:
        """All that this thread asks for can be cancelled by its tag; and the settings."""
        if context := self._context():
            if context._jsc is None:
                raise SourceError(f"{self.place}: the session of Spark was stopped")
            context.addJobTag(self._tag)
        else:
            self.session.addTag(self._tag)
            # pyspark takes what was kept for that of the active session, and without one of the first.
            type(self.session)._active_session.session = self.session
        spark_settings.acquire_settings(self.session, self.place, is_ours)

    def _frame(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> Any:
        """A statement, run at once where it is no query."""
        return self.session.sql(self.sql(statement), args=list(parameters) or None)

    def _shipped(self, table: pyarrow.Table) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  (it is an extra)

        frame = self.session.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
        return frame.hint("broadcast") if table.nbytes <= _BROADCAST else frame

    def _kept(self, name: str, frame: Any) -> int:
        kept = frame.localCheckpoint()
        self._view(name, kept, lambda: self._free_checkpoint(kept))
        rows = int(kept.count())
        if rows <= _BROADCAST_ROWS:
            kept.hint("broadcast").createOrReplaceTempView(self.sql(ident(name)))
        return rows

    def _cached(self, name: str, frame: Any) -> int:
        from pyspark import StorageLevel  # noqa: PLC0415  (it is an extra)

        cached = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._view(name, cached, cached.unpersist)
        return int(cached.count())

    def _view(self, name: str, frame: Any, free: Callable[[], Any] | None) -> None:
        """``free``: what frees the rows that a view keeps."""
        frame.createOrReplaceTempView(self.sql(ident(name)))
        before, self._views[name] = self._views.get(name), free
        if before is not None:
            before()

    def _dropped(self, name: str, free: Callable[[], Any] | None) -> None:
        self.session.catalog.dropTempView(name)
        if free is not None:
            free()

    def _free_checkpoint(self, kept: Any) -> None:
        if self._context():  # a server of Spark Connect sees by itself that nobody has it
            kept._jdf.queryExecution().analyzed().rdd().unpersist(False)

    def _written(self, query: exp.Expr, directory: str) -> int:
        if self._context():
            from pyspark.sql import Observation  # noqa: PLC0415  (it is an extra)
            from pyspark.sql.functions import count, lit  # noqa: PLC0415  (it is an extra)
        else:
            from pyspark.sql.connect.functions import count, lit  # noqa: PLC0415  (it is an extra)
            from pyspark.sql.connect.observation import Observation  # noqa: PLC0415  (it is an extra)
        seen = Observation()
        self._frame(query).observe(seen, count(lit(1)).alias("rows")).write.parquet(directory)
        return int(seen.get["rows"])

    # What follows does not.

    def _context(self) -> Any:
        """The driver beside us; None where it is a server."""
        return getattr(self.session, "_sc", None)

    def _arrow(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> pyarrow.Table:
        arrow = self._asked(lambda: self._frame(query, parameters).toArrow())
        if strange := columns_not_utf8(arrow):
            message = (
                f"text that is not UTF-8 in {', '.join(map(repr, strange))}: mend it with query = ... under [source]"
            )
            raise SourceError(f"{self.place}: {message}")
        return arrow

    def _asked(self, work: Callable[[], _Answer]) -> _Answer:
        def held() -> _Answer:
            spark_settings.enforce_settings(self.session)
            return work()

        return self._answered(held)

    def _answered(self, work: Callable[[], _Answer]) -> _Answer:
        """What Spark answers.

        It is asked in a thread of its own. Ctrl-C, which comes to the main thread, would else end a talk with it in the
        middle of a sentence, and the next answer would be that of the last question.
        """
        with silence_pyspark():
            asked = self._worker.submit(work)
            try:
                return asked.result()
            except KeyboardInterrupt:
                with suppress(Exception):  # it may be gone
                    context = self._context()
                    context.cancelJobsWithTag(self._tag) if context else self.session.interruptTag(self._tag)
                with suppress(Exception):  # what it says then is of no interest
                    asked.exception(_PATIENCE)
                raise


def _without_pattern(path: str) -> str:
    r"""A path for Hadoop, which takes some characters for a pattern.

    >>> _without_pattern("file:/data/a[1].parquet")
    'file:/data/a\\[1\\].parquet'
    """
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def catalog_identity(session: Any) -> str:
    """What tells the catalog of a session from others: where its metastore is, or else its tables."""
    for name in ("spark.hadoop.hive.metastore.uris", "spark.sql.warehouse.dir"):
        with suppress(Exception):  # some servers do not tell
            if found := session.conf.get(name, ""):
                return str(found)
    return "session"
