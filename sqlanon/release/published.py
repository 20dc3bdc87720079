"""What is published: a release that its holder can verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.expressions import star, table
from sqlanon.release.class_sizes import class_sizes
from sqlanon.release.frames import pandas_frame, polars_frame
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import SUBJECT, open_release
from sqlanon.release.target import Verification
from sqlanon.release.verify import verification_sql, verify_file
from sqlanon.release.words import claims_table

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow


@dataclass(frozen=True)
class Release:
    """A published release.

    Attributes
    ----------
    path:
        Its file, absolute.
    table:
        Its table in a DuckDB file.
    manifest:
        What it claims.
    limits:
        What `verify` may take of the machine.
    sha256:
        The SHA-256 of its file, in hexadecimal digits. Pass it on by another way than the file: a reader who has it
        finds any change (``sqlanon verify RELEASE --sha256 HEX``).
    """

    path: Path
    table: str
    manifest: Manifest
    limits: Limits = NO_LIMITS
    sha256: str | None = None

    def verify(self, sha256: str | None = None) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest.

        Parameters
        ----------
        sha256:
            The SHA-256 that its file should have, such as `Release.sha256`: it finds deliberate changes, too.

        Raises
        ------
        ReleaseError
            It is gone, or is no release any more; or ``sha256`` is no SHA-256.
        """
        return verify_file(self.path, limits=self.limits, sha256=sha256)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`, to be run in the release file with any DuckDB client."""
        return verification_sql(self.manifest)

    def class_sizes(self) -> list[tuple[int, int]]:
        """How many classes there are of each size, as any reader can count them: size in rows, and classes; ascending.

        Raises
        ------
        ReleaseError
            It is gone, or is no release any more.

        Examples
        --------
        >>> Release(Path("release.duckdb"), "patients", manifest).class_sizes()  # doctest: +SKIP
        [(5, 210), (6, 118), ...]
        """
        with open_release(self.path, self.limits) as release:
            return [(size, classes) for size, classes, _ in release.engine.rows(self._class_sizes(SUBJECT.copy()))]

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run in the release file with any DuckDB client."""
        return self._class_sizes(table(self.table)).sql("duckdb", pretty=True)

    def df(self) -> pandas.DataFrame:
        """Its rows as a pandas data frame, read from its file; they are not verified.

        DuckDB converts the types: dates become timestamps, decimals and HUGEINT floats. `arrow` keeps them.

        Raises
        ------
        MissingLibraryError
            ``pip install 'sqlanon[pandas]'`` is needed.
        ReleaseError
            It is gone, or is no release any more.
        """
        with self._opened() as rows:
            return pandas_frame(rows)

    def pl(self) -> polars.DataFrame:
        """Its rows as a polars data frame, read from its file; they are not verified.

        Raises
        ------
        MissingLibraryError
            ``pip install 'sqlanon[polars]'`` is needed.
        ReleaseError
            It is gone, or is no release any more.
        """
        with self._opened() as rows:
            return polars_frame(rows)

    def arrow(self) -> pyarrow.Table:
        """Its rows as an Arrow table, read from its file; they are not verified.

        Raises
        ------
        ReleaseError
            It is gone, or is no release any more.
        """
        with self._opened() as rows:
            return rows.to_arrow_table()

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyRelation]:
        with open_release(self.path, self.limits) as release:
            yield release.engine.relation(star(SUBJECT))

    def _class_sizes(self, rows: exp.Table) -> exp.Query:
        return class_sizes(rows, self.manifest.quasi)

    def _repr_html_(self) -> str:
        """For notebooks: what it claims as a small table; its file is not opened."""
        return claims_table(self.manifest, f"Release {self.table}", "file", self.path)

    def __repr__(self) -> str:
        return f"Release({str(self.path)!r}, table={self.table!r}, rows={self.manifest.released_rows})"
