"""Conversion of rows to data frames, by DuckDB."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sqlanon.errors import MissingLibraryError

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars


def pandas_frame(rows: duckdb.DuckDBPyRelation) -> pandas.DataFrame:
    _refuse_without("pandas")
    return rows.df()


def polars_frame(rows: duckdb.DuckDBPyRelation) -> polars.DataFrame:
    _refuse_without("polars")
    frame: polars.DataFrame = rows.pl()
    return frame


def _refuse_without(library: str) -> None:
    try:
        import_module(library)
    except ImportError:
        raise MissingLibraryError(f"a {library} data frame", library, library) from None
