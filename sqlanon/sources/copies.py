"""Rows of large files are copied to a file of the run, not into memory: compressed there, they take a tenth of the room
and are read several times as fast."""

from __future__ import annotations

from pathlib import Path

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.expressions import table
from sqlanon.records import dataclass

LARGE = 32_000_000
"""Files of so many bytes are worth the time to compress their rows."""


@dataclass
class DiskCopy:
    """A table in a database file in a private directory."""

    engine: DuckDBEngine
    directory: Path
    name: str
    _path: Path | None = None

    def table(self) -> exp.Table:
        """The table, which is not there yet."""
        if self._path is None:
            self._path = self.directory / f"{self.name}.duckdb"
            self.engine.attach(self._path, self.name, storage_version="latest")
        return table("source_copy", "main", self.name)

    def drop(self) -> None:
        """Remove the file."""
        if self._path is not None:
            self.engine.detach(self.name)
            self._path.unlink(missing_ok=True)
            self._path = None
