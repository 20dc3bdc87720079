"""Earlier releases, opened for what later ones are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.travel import arrived, travelling
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.expressions import create_temporary_table, drop_table, star, table
from sqlanon.ledger.records import Publication
from sqlanon.ledger.release_links import ComparedRelease
from sqlanon.policy import in_postgres, shown_place
from sqlanon.policy.spark import in_spark
from sqlanon.release.attached import attached, read_claims
from sqlanon.release.file_hash import file_check
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import SUBJECT, OpenRelease
from sqlanon.release.targets.postgres_reader import PostgresSpot, open_postgres
from sqlanon.release.verify import verify_file, verify_release

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
def opened(
    engine: DuckDBEngine, publication: Publication, verified: bool = False, addresses: Sequence[str] = ()
) -> Iterator[Earlier]:
    """Open an earlier release, once it is known to be as it was published: by the hash of its file, or verified."""
    path, name = publication.path, f"{EARLIER_FILE}_{publication.run_id[:12]}"
    if in_spark(path):
        raise ReleaseError(f"{shown_place(path)} is in Spark, and nothing can be held against releases there yet")
    if in_postgres(path):
        with open_postgres(_spot(publication, addresses), engine.limits) as release:
            found = verify_release(path, release, fresh=False)
            _refuse_others(publication, found.manifest, found.digest, found.failures)
            with _copied(engine, release, name) as relation:
                yield Earlier(path, found.manifest, relation, publication)
        return
    # As it was written, it is as it was audited then.
    recorded = publication.sha256
    is_same_file = recorded is not None and path.is_file() and bool(file_check(path, recorded).passed)
    if verified or is_same_file:
        manifest = read_claims(path, engine.limits, publication.version)
        _refuse_others(publication, manifest, manifest.digest, ())
    else:
        found = verify_file(path, limits=engine.limits, version=publication.version)
        manifest = found.manifest
        _refuse_others(publication, manifest, found.digest, found.failures)
    if recorded is not None and not is_same_file:
        raise ReleaseError(f"{path} is not the release that the ledger has of it: its file was changed")
    with attached(engine, path, manifest, name) as relation:
        yield Earlier(path, manifest, relation, publication)


def _refuse_others(publication: Publication, manifest: Manifest, digest: str, failures: Sequence[str]) -> None:
    """Refuse what is not the release that was published."""
    place = shown_place(publication.path)
    if publication.manifest_hash not in (None, manifest.fingerprint()):
        raise ReleaseError(f"{place} is not the release that the ledger has of it: its manifest was changed")
    if digest != publication.digest:
        raise ReleaseError(f"{place} is not the release that the ledger has of it: it was changed")
    if failures:
        raise BrokenReleaseError(f"{place} is not as it was published: {'; '.join(failures)}")


def _spot(publication: Publication, addresses: Sequence[str]) -> PostgresSpot:
    """Where a release in PostgreSQL is, by the addresses that are known."""
    path, name = publication.path, publication.table_name
    for address in addresses:
        spot = PostgresSpot(address, path.name.removesuffix(f".{name}"), name)
        if spot.path == path:
            return spot
    raise ReleaseError(f"{shown_place(path)} is in PostgreSQL, and the policy names no server that is this one")


@contextmanager
def _copied(engine: DuckDBEngine, release: OpenRelease, name: str) -> Iterator[exp.Table]:
    """The rows of an open release as a table of another engine, for a while."""
    target, types = table(name, "main", "temp"), release.engine.columns(SUBJECT)
    with (
        release.engine.stream(travelling(star(SUBJECT), types, "VARCHAR")) as reader,
        engine.registered(reader) as relation,
    ):
        engine.execute(create_temporary_table(target.copy(), arrived(relation, types)))
    try:
        yield target
    finally:
        engine.execute(drop_table(target.copy()))
