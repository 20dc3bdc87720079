"""Earlier releases, opened for what later ones are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.ledger.records import Publication
from sqlanon.ledger.release_links import ComparedRelease
from sqlanon.policy import shown_place
from sqlanon.release.manifest import Manifest
from sqlanon.release.target import Reach, recorded_place

EARLIER_FILE = "sqlanon_earlier_file"
"""So begins the name of an earlier release, for the engine that has its source."""


@dataclass(frozen=True)
class Earlier(ComparedRelease):
    """An earlier release that stands where the ledger says, as it was published; its rows while it is open.

    Attributes
    ----------
    publication:
        What the ledger says of it.
    """

    publication: Publication


@contextmanager
def opened(engine: DuckDBEngine, publication: Publication, reach: Reach, verified: bool = False) -> Iterator[Earlier]:
    """Open an earlier release, once it is known to be as it was published: by the hash of its file, or verified."""
    path, name = publication.path, f"{EARLIER_FILE}_{publication.run_id[:12]}"
    place = recorded_place(path, publication.table_name, reach)
    with place.opened(engine.limits, publication.version, publication.sha256, verified) as release:
        _refuse_others(publication, release.manifest, release.digest, release.failures)
        if release.is_changed:
            raise ReleaseError(f"{path} is not the release that the ledger has of it: its file was changed")
        with release.rows(engine, name) as relation:
            yield Earlier(path, release.manifest, relation, publication)


def _refuse_others(publication: Publication, manifest: Manifest, digest: str, failures: Sequence[str]) -> None:
    """Refuse what is not the release that was published."""
    place = shown_place(publication.path)
    if publication.manifest_hash not in (None, manifest.fingerprint()):
        raise ReleaseError(f"{place} is not the release that the ledger has of it: its manifest was changed")
    if digest != publication.digest:
        raise ReleaseError(f"{place} is not the release that the ledger has of it: it was changed")
    if failures:
        raise BrokenReleaseError(f"{place} is not as it was published: {'; '.join(failures)}")
