"""Earlier releases, opened for what later ones are held against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.ledger.records import Publication
from sqlanon.release.attached import attached, read_claims
from sqlanon.release.side_by_side import Subject
from sqlanon.release.verify import verify_file

EARLIER_FILE = "sqlanon_earlier_file"
"""So begins the name of an earlier release, for the engine that has its source."""


@dataclass(frozen=True)
class Earlier(Subject):
    """An earlier release that stands where the ledger says, as it was published; its rows while it is open.

    Attributes
    ----------
    publication:
        What the ledger says of it.
    """

    publication: Publication


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
        manifest = read_claims(path, engine.limits, publication.version)
        digest = manifest.digest
    else:
        found = verify_file(path, limits=engine.limits, version=publication.version)
        manifest, digest, failures = found.manifest, found.digest, found.failures
    if publication.manifest_hash not in (None, manifest.fingerprint()):
        raise ReleaseError(f"{path} is not the release that the ledger has of it: its manifest was changed")
    if digest != publication.digest:
        raise ReleaseError(f"{publication.path} is not the release that the ledger has of it: it was changed")
    if failures:
        raise BrokenReleaseError(f"{publication.path} is not as it was published: {'; '.join(failures)}")
    with attached(engine, path, manifest, f"{EARLIER_FILE}_{publication.run_id[:12]}") as relation:
        yield Earlier(path, manifest, relation, publication)
