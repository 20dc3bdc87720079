"""Bind data frames and Arrow data: objects with the Arrow C stream interface are copied once to the work database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.columns import quote_names, refuse_ambiguous_names
from sqlanon.sources.files.typed_columns import projection, read_columns
from sqlanon.sources.kinds import Binding, SourceKind, refuse_query
from sqlanon.sources.relation import bind_relation, source_errors
from sqlanon.sources.source import Source
from sqlanon.support.expressions import create_temporary_view, select

if TYPE_CHECKING:
    import pyarrow

ACCEPTED_OBJECTS = (
    "a path, a duckdb connection, a Spark session, a pandas or polars data frame, or any Arrow table or stream"
)
_POLARS_TYPES_WITHOUT_ARROW = frozenset({"Object", "Int128", "UInt128"})
"""Types of polars columns without an Arrow type. An Object column would be converted to memory addresses."""


class _Arrow(SourceKind):
    name = "arrow"
    reads_texts = True

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        refuse_query(binding.section)
        assert binding.arrow_table is not None
        with source_errors():
            relation, engine = binding.arrow_table, binding.engine
            if values := read_columns(engine, relation, binding.readings, reads=binding.work_names.reads_rows):
                relation = binding.work_names.view("typed")
                output = projection([*engine.columns(binding.arrow_table)], values)
                engine.execute(create_temporary_view(relation, select(output, binding.arrow_table.copy())))
            return engine, bind_relation(engine, relation, binding.work_names, True, database_id="arrow")


KIND = _Arrow()


def copy_arrow(engine: DuckDBEngine, data: Any, target: exp.Table) -> exp.Table:
    """Copy a data frame, an Arrow table or a stream to the work database: the search reads it several times."""
    reader = open_arrow_reader(data)
    schema = reader.schema
    refuse_ambiguous_names(schema.names, f"the {describe_type(data)}")
    if periods := [field.name for field in schema if getattr(field.type, "extension_name", "") == "pandas.period"]:
        raise SourceError(
            f"{_name_columns(periods)}: pandas periods cannot be read; convert with .dt.to_timestamp() or .astype(str)"
        )
    with source_errors():
        try:
            engine.copy_arrow(target, reader)
        except duckdb.NotImplementedException:
            _refuse_types(engine, schema)
            raise
    return target


def open_arrow_reader(data: Any) -> pyarrow.RecordBatchReader:
    """Open the rows of a data frame, an Arrow table or a stream, which can be read once."""
    library = _find_library(data)
    if library == "narwhals" and hasattr(data, "to_native"):
        return open_arrow_reader(data.to_native())
    if library == "pyspark":
        raise SourceError(
            "rows in Spark never leave it, so a Spark data frame is not read: make it a view with "
            'df.createOrReplaceTempView("name"), connect to the session, and set [source] table = "name"'
        )
    if type(data).__name__ == "Series":
        raise SourceError(f"a {describe_type(data)} is one column: give a data frame, such as series.to_frame()")
    try:
        reader = _open_reader(data, library)
    except SourceError:
        raise
    except Exception as error:  # the errors of libraries quote values
        name = type(error).__name__
        raise SourceError(f"the {describe_type(data)} cannot be converted to an Arrow table ({name})") from None
    if reader is None:
        advice = "; make a data frame of it first" if isinstance(data, list | tuple | dict) else ""
        raise SourceError(f"cannot read an object of type {describe_type(data)}: give {ACCEPTED_OBJECTS}{advice}")
    return reader


def _open_reader(data: Any, library: str) -> pyarrow.RecordBatchReader | None:
    import pyarrow  # noqa: PLC0415 - it takes its time, and few sources need it

    if library == "pyarrow" and hasattr(data, "scanner"):
        return data.scanner().to_reader()
    if library == "pandas" and hasattr(data, "columns"):
        return _convert_pandas(data).to_reader()
    if library == "polars":
        data = data.collect() if hasattr(data, "collect") else data
        _refuse_polars_types(data)
    if hasattr(data, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(data)
    return None


def describe_type(data: object) -> str:
    """Describe the type of an object with its library, such as ``polars DataFrame``."""
    library = _find_library(data)
    return type(data).__name__ if library in ("builtins", "__main__") else f"{library} {type(data).__name__}"


def _find_library(data: object) -> str:
    """Find the library of an object; pandas for data frames that inherit from it."""
    frames = (kind for kind in type(data).__mro__ if kind.__name__ == "DataFrame")
    modules = (kind.__module__.partition(".")[0] for kind in (*frames, type(data)))
    libraries = [name if name == "__main__" else name.lstrip("_") for name in modules]
    return next((name for name in libraries if name in ("pandas", "polars", "pyspark")), libraries[-1])


def _convert_pandas(frame: Any) -> pyarrow.Table:
    """Convert a pandas frame without its index. NaN, NaT, None and pandas.NA are NULL."""
    import pyarrow  # noqa: PLC0415

    names = [str(name) for name in frame.columns]
    refuse_ambiguous_names(names, "the pandas DataFrame")
    try:
        return pyarrow.Table.from_pandas(frame, preserve_index=False).rename_columns(names)
    except (pyarrow.ArrowException, TypeError, ValueError):
        wrong = []
        for i, name in enumerate(names):
            try:
                pyarrow.Table.from_pandas(frame.iloc[:, [i]], preserve_index=False)
            except (pyarrow.ArrowException, TypeError, ValueError):
                wrong.append(name)
        if not wrong:
            raise
    raise SourceError(
        f"{_name_columns(wrong)}: values of several types, or of a type that Arrow does not have; convert, for "
        "example with .astype(str)"
    )


def _refuse_polars_types(frame: Any) -> None:
    if wrong := [name for name, type_ in frame.schema.items() if str(type_) in _POLARS_TYPES_WITHOUT_ARROW]:
        types = sorted({str(frame.schema[name]) for name in wrong})
        raise SourceError(f"{_name_columns(wrong)}: {', '.join(types)} has no Arrow type; cast it, or leave it out")


def _refuse_types(engine: DuckDBEngine, schema: pyarrow.Schema) -> None:
    """Refuse columns whose type DuckDB does not read."""
    wrong = []
    for field in schema:
        try:
            with engine.register_arrow(schema.empty_table().select([field.name])) as relation:
                engine.types(relation)
        except duckdb.Error:
            wrong.append(field)
    if wrong:
        types = sorted({str(field.type) for field in wrong})
        names = _name_columns([field.name for field in wrong])
        raise SourceError(f"{names}: DuckDB does not read the type {', '.join(types)}; cast to another type")


def _name_columns(names: list[str]) -> str:
    return f"{'columns' if len(names) > 1 else 'column'} {quote_names(names)}"
