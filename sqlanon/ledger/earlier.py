"""Earlier releases, opened for what later ones are held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.ledger.records import Publication
from sqlanon.release.attached import attached, read_claims
from sqlanon.release.manifest import Manifest
from sqlanon.release.verify import verify_file

EARLIER_FILE = "sqlanon_earlier_file"
"""So begins the name of an earlier release, for the engine that has its source."""


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
def opened(engine: DuckDBEngine, publication: Publication, verified: bool = False) -> Iterator[Earlier]:
    """Open an earlier release, once it is verified.

    Parameters
    ----------
    engine:
        Reads it.
    publication:
        What the ledger has of it.
    verified:
        Whether it was verified in this run already: then only its manifest is read again.

    Raises
    ------
    ReleaseError
        It is not there any more, or is another one.
    """
    path = publication.path
    failures: tuple[str, ...] = ()
    if verified:
        manifest = read_claims(path, engine.limits)
        digest = manifest.digest
    else:
        found = verify_file(path, limits=engine.limits)
        manifest, digest, failures = found.manifest, found.digest, found.failures
    if digest != publication.digest:
        raise ReleaseError(f"{publication.path} is not the release that the ledger has of it: it was changed")
    if failures:
        raise BrokenReleaseError(f"{publication.path} is not as it was published: {'; '.join(failures)}")
    with attached(engine, path, manifest, f"{EARLIER_FILE}_{publication.run_id[:12]}") as relation:
        yield Earlier(publication, manifest, relation)
