"""The rows of a release that was verified, for an engine that has other things too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.queries.names import create_temporary_view, drop_view, read_parquet, star, table
from sqlanon.release.verify import Verification


@contextmanager
def attached(engine: DuckDBEngine, found: Verification, alias: str) -> Iterator[exp.Table]:
    """The rows of a release, as a relation of an engine, for a while.

    Parameters
    ----------
    engine:
        Reads them.
    found:
        The release; what else there may be in a file that is not verified should not be read by it.
    alias:
        Of the database while it is attached, or of a view.
    """
    if found.path.suffix.lower() == ".parquet":
        view = table(alias, "main", "temp")  # macros look up names
        engine.execute(create_temporary_view(view.copy(), star(read_parquet([str(found.path)]))))
        try:
            yield view
        finally:
            engine.execute(drop_view(view.copy()))
        return
    engine.attach(found.path, alias, read_only=True)
    try:
        yield table(found.manifest.table_name, "main", alias)
    finally:
        engine.detach(alias)
