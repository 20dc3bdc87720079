"""Earlier releases, opened for what later ones are held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.ledger.records import Publication
from sqlanon.release.attached import attached
from sqlanon.release.manifest import Manifest
from sqlanon.release.verify import verify_file

EARLIER_FILE = "sqlanon_earlier_file"
"""An earlier release, for the engine that has its source."""


@dataclass(frozen=True)
class Earlier:
    """An earlier release that stands where the ledger says, as it was published.

    Attributes
    ----------
    publication, manifest:
        What the ledger says of it, and what it says of itself.
    relation:
        Its rows, while it is open.
    """

    publication: Publication
    manifest: Manifest
    relation: exp.Table

    @property
    def levels(self) -> Mapping[str, int | None]:
        """By quasi-identifier, in lower case, its level; None where it is shown at several."""
        return {name.lower(): level for name, level in self.manifest.generalization.items()}

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns of the quasi-identifiers that make its classes, by their names in lower case."""
        return {name.lower(): name for name in self.manifest.quasi}

    @property
    def as_they_are(self) -> Mapping[str, str]:
        """The columns that it shows as the source has them, by their names in lower case."""
        return {one.name.lower(): one.name for one in self.manifest.columns if one.role != "quasi"}

    @property
    def attributes(self) -> Mapping[str, str]:
        """The names that its policy gives the quasi-identifiers, by these in lower case."""
        return {name.lower(): name for name in self.manifest.generalization}

    @property
    def is_masked(self) -> bool:
        """Whether rows may be in it with every quasi-identifier at its top."""
        return self.manifest.policy.get("suppressed") == "mask" and self.manifest.suppressed_rows > 0

    @property
    def k(self) -> int | None:
        """The k that it promises."""
        k = self.manifest.policy.get("privacy", {}).get("k")
        return k if isinstance(k, int) else None


@contextmanager
def opened(engine: DuckDBEngine, publication: Publication) -> Iterator[Earlier]:
    """Open an earlier release, once it is verified.

    Raises
    ------
    ReleaseError
        It is not there any more, or is another one.
    """
    found = verify_file(publication.path, limits=engine.limits)
    if found.digest != publication.digest:
        raise ReleaseError(f"{publication.path} is not the release that the ledger has of it: it was changed")
    if not found.verified:
        raise BrokenReleaseError(f"{publication.path} is not as it was published: {'; '.join(found.failures)}")
    with attached(engine, found, EARLIER_FILE) as relation:
        yield Earlier(publication, found.manifest, relation)
