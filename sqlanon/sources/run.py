"""A run: the tables that it makes, and the source that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.policy import Policy
from sqlanon.sources.files.bad_lines import count_dropped_lines, warn_of_dropped_lines
from sqlanon.sources.relation import drop_source_views
from sqlanon.sources.source import Population, Source, WorkNames
from sqlanon.support.expressions import Namer, create_table, drop_schema, select_star, table, template
from sqlanon.support.notices import Notice
from sqlanon.support.resources import REQUIREMENT_MACROS, macro_scripts


@dataclass
class Copies:
    """Copies of large files in a database file of the run, created with the first copy.

    Compressed on disk they take a tenth of the memory, and are read several times as fast.
    """

    engine: DuckDBEngine
    directory: Path
    name: str
    _path: Path | None = None

    def table(self, name: str) -> exp.Table:
        """The name of a new table."""
        if self._path is None:
            path = self.directory / f"{self.name}.duckdb"
            self.engine.attach(path, self.name, storage_version="latest")
            self._path = path
        return table(name, "main", self.name)

    def drop(self) -> None:
        """Remove the file."""
        if self._path is not None:
            self.engine.detach(self.name)
            self._path.unlink(missing_ok=True)
            self._path = None


@dataclass(frozen=True)
class Run:
    """One run: its engine, its names, its source. Leaving its context drops everything that it created.

    ``identity`` identifies the source table in the ledger: JSON, the same for the same table.
    """

    engine: DuckDBEngine
    work: Namer
    work_names: WorkNames
    source: Source
    population: Population | None = None
    identity: str = ""
    copies: Copies | None = None

    @property
    def engines(self) -> tuple[DuckDBEngine, ...]:
        """The engine of the run, and the engine of its population."""
        return self.engine, *(() if self.population is None else (self.population.engine,))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Warnings of bad lines that were dropped from files."""
        population = () if self.population is None else self.population.source.dropped_lines
        return (*warn_of_dropped_lines(self.source.dropped_lines), *warn_of_dropped_lines(population, "population"))

    def dropped_lines(self, policy: Policy) -> int | None:
        """The number of bad lines dropped from the source; None unless the policy drops them."""
        csv = policy.source.csv
        return count_dropped_lines(self.source.dropped_lines) if csv is not None and csv.on_bad_line == "drop" else None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def install_macros(self, files: Sequence[str] = REQUIREMENT_MACROS) -> str:
        """Install the macros that check requirements in the work database, and return its name."""
        name = self.work("any").catalog
        with self.engine.using(name):
            self.engine.script(*macro_scripts(files))
        return name

    def drop(self) -> None:
        any_name = self.work("any")
        self.source.drop()
        with suppress(duckdb.Error):  # the connection may be closed, or in a transaction of its user
            drop_source_views(self.engine, self.work_names)
            if self.population is not None:
                drop_source_views(self.population.engine, self.population.work_names)
            if self.copies is not None:
                self.copies.drop()
            if self.work_names.views[1] == any_name.catalog:
                self.engine.follow_search_path()  # its search path may contain the schema that is dropped
                self.engine.execute(drop_schema(*self.work_names.views))
            self.engine.execute(drop_schema(any_name.db, any_name.catalog))


_ATTACHED = "sqlanon_kept_work"


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
    _refuse_existing(file)
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


def _refuse_existing(file: Path) -> None:
    if os.path.lexists(file):
        raise SourceError(f"{file} exists already: keep the intermediate tables in a new file")


def _copy_tables(run: Run, staged: Path, file: Path) -> None:
    any_table = run.work("any")
    query = template("""
        SELECT table_name
        FROM duckdb_tables()
        WHERE database_name = :database AND schema_name = :schema
        ORDER BY ALL
    """)
    names = [name for (name,) in run.engine.rows(query(database=any_table.catalog, schema=any_table.db))]
    try:
        run.engine.attach(staged, _ATTACHED)
        try:
            for name in names:
                run.engine.execute(create_table(table(name, "main", _ATTACHED), select_star(run.work(name))))
        finally:
            run.engine.detach(_ATTACHED)
        staged.chmod(0o600)
        _refuse_existing(file)  # a search may take hours, and somebody may have written it since
        staged.replace(file)
    except (duckdb.Error, OSError) as error:
        message = str(error).splitlines()[0]
        raise SourceError(f"{file}: the intermediate tables cannot be written: {message}") from error
