"""Keep the intermediate tables of a run in a DuckDB file, for a person to query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from sqlanon.errors import SourceError, SqlanonError
from sqlanon.sources.run import Run
from sqlanon.support.expressions import create_table, star, table, template

_ATTACHED = "sqlanon_kept_work"
_TABLES = template("""
    SELECT table_name
    FROM duckdb_tables()
    WHERE database_name = :database AND schema_name = :schema
    ORDER BY ALL
""")


@contextmanager
def keep_work_tables(run: Run, path: str | os.PathLike[str]) -> Iterator[None]:
    """Copy the intermediate tables of a run to a new file when the block ends, also if it ends with an error of
    sqlanon, such as an infeasible policy. Only the owner may read the file: it has values of the source.

    Raises
    ------
    SourceError
        The file exists, or cannot be written.
    """
    file = Path(path)
    if os.path.lexists(file):
        raise SourceError(f"{file} exists already: keep the intermediate tables in a new file")
    try:
        folder = TemporaryDirectory(prefix=".sqlanon_work_", dir=file.parent)  # mode 0700
    except OSError as error:
        raise SourceError(f"{file}: the intermediate tables cannot be written: {error.strerror}") from error
    with folder as private:
        staged = Path(private, "work.duckdb")
        try:
            yield
        except SqlanonError:
            _copy_tables(run, staged, file)
            raise
        _copy_tables(run, staged, file)


def _copy_tables(run: Run, staged: Path, file: Path) -> None:
    any_table = run.work("any")
    names = [name for (name,) in run.engine.rows(_TABLES(database=any_table.catalog, schema=any_table.db))]
    try:
        run.engine.attach(staged, _ATTACHED)
        try:
            for name in names:
                run.engine.execute(create_table(table(name, "main", _ATTACHED), star(run.work(name))))
        finally:
            run.engine.detach(_ATTACHED)
        staged.chmod(0o600)
        staged.replace(file)
    except (duckdb.Error, OSError) as error:
        message = str(error).splitlines()[0]
        raise SourceError(f"{file}: the intermediate tables cannot be written: {message}") from error
