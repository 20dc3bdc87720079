"""A release beside others in one engine: its rows alone, and nothing else that its file may hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.expressions import create_temporary_view, drop_view, read_parquet, star, table
from sqlanon.release.contents import found_objects
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import open_release


def read_claims(path: Path, limits: Limits, version: int | None = None) -> Manifest:
    """The manifest of a release, if its rows are a table and nothing more: they can be read by any engine then.

    It is opened as `open_release` does it: nothing in the file can reach beyond it. Without a ``version``, it is the
    newest that counts.
    """
    with open_release(path, limits, version) as release:
        manifest = release.manifest
        if not release.is_parquet:
            found = {name.lower() for name in found_objects(release.engine)}
            is_table = f"table main.{manifest.rows_table}".lower() in found
            if not is_table or any(name.startswith("default of column main.") for name in found):
                raise BrokenReleaseError(f"{path} was a release of sqlanon; its rows are no plain table any more")
    return manifest


def attach_release(engine: DuckDBEngine, path: Path, manifest: Manifest, alias: str) -> exp.Table:
    """The rows of a release that `read_claims` has read, as a relation of another engine."""
    try:
        if path.suffix.lower() == ".parquet":
            view = table(alias, "main", "temp")
            engine.execute(create_temporary_view(view.copy(), star(read_parquet([str(path)]))))
            return view
        engine.attach(path, alias, read_only=True)
        return table(manifest.rows_table, "main", alias)
    except duckdb.Error as error:
        raise ReleaseError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


@contextmanager
def attached(engine: DuckDBEngine, path: Path, manifest: Manifest, alias: str) -> Iterator[exp.Table]:
    """`attach_release` for a while."""
    relation = attach_release(engine, path, manifest, alias)
    try:
        yield relation
    finally:
        detach_release(engine, path, alias)


def detach_release(engine: DuckDBEngine, path: Path, alias: str) -> None:
    """Let go of it."""
    if path.suffix.lower() == ".parquet":
        engine.execute(drop_view(table(alias, "main", "temp")))
    else:
        engine.detach(alias)


def shut(engine: DuckDBEngine) -> None:
    """No file can be read any more but those that are attached."""
    engine.connection.execute("SET enable_external_access = false")
    engine.connection.execute("SET lock_configuration = true")
