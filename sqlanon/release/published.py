"""What is published: a release that its holder can verify."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.markup import html_table
from sqlanon.release.manifest import Manifest
from sqlanon.release.verify import Verification, verification_sql, verify_file


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
    """

    path: Path
    table: str
    manifest: Manifest
    limits: Limits = NO_LIMITS

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest.

        Raises
        ------
        ReleaseError
            It is gone, or is no release any more.
        """
        return verify_file(self.path, limits=self.limits)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`, to be run in the release file with any DuckDB client."""
        return verification_sql(self.manifest)

    def _repr_html_(self) -> str:
        """For notebooks: what it claims as a small table; its file is not opened."""
        claims = self.manifest
        rows = [
            ("file", self.path),
            ("rows", f"{claims.released_rows:,} of {claims.rows:,}, {claims.suppressed_rows:,} suppressed"),
            ("classes", f"{claims.classes:,}, the smallest of {claims.smallest_class:,} rows"),
            (f"score ({claims.measure})", f"{claims.score:.6g}"),
            ("content digest", claims.digest),
        ]
        return html_table(f"Release {self.table}", ["", ""], rows)

    def __repr__(self) -> str:
        return f"Release({str(self.path)!r}, table={self.table!r}, rows={self.manifest.released_rows})"
