"""Data frames and Arrow: whatever has the Arrow C stream interface, copied once to a private table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.columns import quote_names
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.relation import bind_relation, source_errors
from sqlanon.sources.source import Source
from sqlanon.sources.tabular import refuse_ambiguous_names, refuse_query
from sqlanon.sources.typed_columns import projection, read_columns
from sqlanon.support.expressions import create_temporary_view, select

if TYPE_CHECKING:
    import pyarrow

TAKEN = "a path, a duckdb connection, a Spark session, a pandas or polars data frame, or any Arrow table or stream"
_WITHOUT_ARROW = frozenset({"Object", "Int128", "UInt128"})
"""Types of polars columns that Arrow has no type for. Of an Object column it would get addresses in memory."""


class _Arrow(SourceKind):
    name = "arrow"
    reads_texts = True

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        refuse_query(binding.section)
        assert binding.arrow_table is not None
        with source_errors():
            found, engine = binding.arrow_table, binding.engine
            if values := read_columns(engine, found, binding.readings, reads=binding.work_names.reads_rows):
                found = binding.work_names.view("typed")
                output = projection([*engine.columns(binding.arrow_table)], values)
                engine.execute(create_temporary_view(found, select(output, binding.arrow_table.copy())))
            return engine, bind_relation(engine, found, binding.work_names, True, database_id="arrow")


KIND = _Arrow()


def copy_arrow(engine: DuckDBEngine, given: Any, target: exp.Table) -> exp.Table:
    """Copy a data frame, an Arrow table or a stream to a private table: the search reads it several times."""
    reader = arrow_reader(given)
    schema = reader.schema
    refuse_ambiguous_names(schema.names, f"the {shown_type(given)}")
    if periods := [field.name for field in schema if getattr(field.type, "extension_name", "") == "pandas.period"]:
        raise SourceError(
            f"{_columns(periods)}: pandas periods cannot be read; convert with .dt.to_timestamp() or .astype(str)"
        )
    with source_errors():
        try:
            engine.copy_arrow(target, reader)
        except duckdb.NotImplementedException:
            _refuse_types(engine, schema)
            raise
    return target


def arrow_reader(given: Any) -> pyarrow.RecordBatchReader:
    """The rows of a data frame, an Arrow table or a stream, to be read once."""
    library = _library(given)
    if library == "narwhals" and hasattr(given, "to_native"):
        return arrow_reader(given.to_native())
    if library == "pyspark":
        raise SourceError(
            "rows in Spark never leave it, so a Spark data frame is not read: make it a view with "
            'df.createOrReplaceTempView("name"), connect to the session, and set [source] table = "name"'
        )
    if type(given).__name__ == "Series":
        raise SourceError(f"a {shown_type(given)} is one column: give a data frame, such as series.to_frame()")
    try:
        reader = _reader(given, library)
    except SourceError:
        raise
    except Exception as error:  # each library has its own errors, and they quote values
        name = type(error).__name__
        raise SourceError(f"the {shown_type(given)} cannot be converted to an Arrow table ({name})") from None
    if reader is None:
        advice = "; make a data frame of it first" if isinstance(given, list | tuple | dict) else ""
        raise SourceError(f"cannot read an object of type {shown_type(given)}: give {TAKEN}{advice}")
    return reader


def _reader(given: Any, library: str) -> pyarrow.RecordBatchReader | None:
    import pyarrow  # noqa: PLC0415 - it takes its time, and few sources need it

    if library == "pyarrow" and hasattr(given, "scanner"):
        return given.scanner().to_reader()
    if library == "pandas" and hasattr(given, "columns"):
        return _of_pandas(given).to_reader()
    if library == "polars":
        given = given.collect() if hasattr(given, "collect") else given
        _refuse_polars_types(given)
    if hasattr(given, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(given)
    return None


def shown_type(given: object) -> str:
    """The type of an object with its library, such as ``polars DataFrame``."""
    library = _library(given)
    return type(given).__name__ if library in ("builtins", "__main__") else f"{library} {type(given).__name__}"


def _library(given: object) -> str:
    """The library of an object; of a data frame that inherits from pandas', pandas."""
    frames = (kind for kind in type(given).__mro__ if kind.__name__ == "DataFrame")
    modules = (kind.__module__.partition(".")[0] for kind in (*frames, type(given)))
    libraries = [name if name == "__main__" else name.lstrip("_") for name in modules]
    return next((name for name in libraries if name in ("pandas", "polars", "pyspark")), libraries[-1])


def _of_pandas(frame: Any) -> pyarrow.Table:
    """A pandas frame without its index. NaN, NaT, None and pandas.NA are NULL."""
    import pyarrow  # noqa: PLC0415

    names = [str(name) for name in frame.columns]
    refuse_ambiguous_names(names, "the pandas DataFrame")
    try:
        return pyarrow.Table.from_pandas(frame, preserve_index=False).rename_columns(names)
    except (pyarrow.ArrowException, TypeError, ValueError):
        wrong = [name for place, name in enumerate(names) if not _is_arrow(frame.iloc[:, [place]])]
        if not wrong:
            raise
    raise SourceError(
        f"{_columns(wrong)}: values of several types, or of a type that Arrow does not have; convert, for example with "
        ".astype(str)"
    )


def _is_arrow(frame: Any) -> bool:
    import pyarrow  # noqa: PLC0415

    try:
        pyarrow.Table.from_pandas(frame, preserve_index=False)
    except (pyarrow.ArrowException, TypeError, ValueError):
        return False
    return True


def _refuse_polars_types(frame: Any) -> None:
    if wrong := [name for name, type_ in frame.schema.items() if str(type_) in _WITHOUT_ARROW]:
        types = sorted({str(frame.schema[name]) for name in wrong})
        raise SourceError(f"{_columns(wrong)}: {', '.join(types)} has no Arrow type; cast, or leave out")


def _refuse_types(engine: DuckDBEngine, schema: pyarrow.Schema) -> None:
    """Name the columns of a type that DuckDB does not read."""
    wrong = []
    for field in schema:
        try:
            with engine.register_arrow(schema.empty_table().select([field.name])) as relation:
                engine.types(relation)
        except duckdb.Error:
            wrong.append(field)
    if wrong:
        types = sorted({str(field.type) for field in wrong})
        names = _columns([field.name for field in wrong])
        raise SourceError(f"{names}: DuckDB does not read the type {', '.join(types)}; cast to another type")


def _columns(names: list[str]) -> str:
    return f"{'columns' if len(names) > 1 else 'column'} {quote_names(names)}"
