"""Published releases in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import verification_sql, verify_file
from sqlanon.disclosure.residual_risk import ResidualRisk, find_worst_risk
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import MissingLibraryError
from sqlanon.frequency.class_sizes import ClassSizes, class_sizes
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import SUBJECT, open_release
from sqlanon.release.sentences import render_manifest
from sqlanon.support.expressions import select_star, table

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
        The absolute path of the file.
    table:
        The name of the table in a DuckDB file.
    manifest:
        The claims of the release: policy, columns, counts, digest.
    limits:
        Memory and threads for `verify`.
    sha256:
        The SHA-256 of the file, in hexadecimal digits. Send it to readers through another channel than the file,
        so that they find any change of the file (``sqlanon verify RELEASE --sha256 HEX``).
    """

    path: Path
    table: str
    manifest: Manifest
    limits: Limits = NO_LIMITS
    sha256: str | None = None

    def verify(self, sha256: str | None = None) -> Verification:
        """Verify the release alone, as any reader can: columns, counts, requirements, content digest.

        Parameters
        ----------
        sha256:
            The expected SHA-256 of the file, such as `Release.sha256`. It also detects deliberate changes.

        Raises
        ------
        ReleaseError
            The file is missing or not a release, or ``sha256`` is not a SHA-256.
        """
        return verify_file(self.path, limits=self.limits, sha256=sha256, with_risk=True)

    def verify_sql(self) -> list[str]:
        """Return the statements of `verify`, for any DuckDB client that has the release file open."""
        return verification_sql(self.manifest)

    def class_sizes(self) -> list[tuple[int, int]]:
        """Count the classes of each size: pairs of size in rows and number of classes, ascending.

        Raises
        ------
        ReleaseError
            The file is missing or not a release.

        Examples
        --------
        >>> Release(Path("release.duckdb"), "patients", manifest).class_sizes()  # doctest: +SKIP
        [(5, 210), (6, 118), ...]
        """
        return list(self.class_sizes_and_risk()[0].sizes.items())

    def class_sizes_and_risk(self) -> tuple[ClassSizes, ResidualRisk | None]:
        """Measure the sizes of the classes and the most serious residual risk; the file is opened once."""
        with open_release(self.path, self.limits) as release:
            sizes = ClassSizes.from_rows(release.engine.rows(self._class_sizes(SUBJECT.copy())))
            return sizes, find_worst_risk(release.engine, SUBJECT, self.manifest)

    def class_sizes_sql(self) -> str:
        """Return the statement of `class_sizes`, for any DuckDB client that has the release file open."""
        return self._class_sizes(table(self.table)).sql("duckdb", pretty=True)

    def df(self) -> pandas.DataFrame:
        """Read the rows as a pandas data frame, without verification.

        DuckDB converts types: dates become timestamps, and decimals and HUGEINT become floats. `arrow` keeps the types.

        Raises
        ------
        MissingLibraryError
            ``pip install '.[pandas]'`` is needed.
        ReleaseError
            The file is missing or not a release.
        """
        with self._open_rows() as rows:
            return pandas_frame(rows)

    def pl(self) -> polars.DataFrame:
        """Read the rows as a polars data frame, without verification.

        Raises
        ------
        MissingLibraryError
            ``pip install '.[polars]'`` is needed.
        ReleaseError
            The file is missing or not a release.
        """
        with self._open_rows() as rows:
            return polars_frame(rows)

    def arrow(self) -> pyarrow.Table:
        """Read the rows as an Arrow table, without verification.

        Raises
        ------
        ReleaseError
            The file is missing or not a release.
        """
        with self._open_rows() as rows:
            return rows.to_arrow_table()

    @contextmanager
    def _open_rows(self) -> Iterator[duckdb.DuckDBPyRelation]:
        with open_release(self.path, self.limits) as release:
            yield release.engine.relation(select_star(SUBJECT))

    def _class_sizes(self, rows: exp.Table) -> exp.Query:
        return class_sizes(rows, self.manifest.quasi_identifiers)

    def _repr_html_(self) -> str:
        """Render the manifest for notebooks."""
        return render_manifest(self.manifest, f"Release {self.table}", "file", self.path)

    def __repr__(self) -> str:
        return f"Release({str(self.path)!r}, table={self.table!r}, rows={self.manifest.released_rows})"


def pandas_frame(rows: duckdb.DuckDBPyRelation) -> pandas.DataFrame:
    """Convert rows to a pandas data frame."""
    _refuse_without("pandas")
    return rows.df()


def polars_frame(rows: duckdb.DuckDBPyRelation) -> polars.DataFrame:
    """Convert rows to a polars data frame."""
    _refuse_without("polars")
    frame: polars.DataFrame = rows.pl()
    return frame


def _refuse_without(library: str) -> None:
    try:
        import_module(library)
    except ImportError:
        raise MissingLibraryError(f"a {library} data frame", library, library) from None
