"""Releases of linked tables: all tables are written and verified together, then appear at once."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import AuditError
from sqlanon.linked.publish.earlier import EarlierRelease
from sqlanon.linked.publish.ledger import LinkedLedger
from sqlanon.linked.publish.recode import LinkedRecoding
from sqlanon.linked.publish.targets.base import LinkedLocation, target_for, verify_tables
from sqlanon.linked.publish.written_rows import open_written, write_rows
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.verification import (
    LinkedVerification,
    count_and_digest_rows,
    digest_persons,
    smallest_group,
)
from sqlanon.places.addresses import format_location
from sqlanon.release.manifest import utc_now, version_name
from sqlanon.support.resources import __version__


@dataclass(frozen=True)
class LinkedRelease:
    """A published release of linked tables."""

    location: LinkedLocation
    manifest: LinkedManifest
    verification: LinkedVerification
    limits: Limits = NO_LIMITS
    warnings: Sequence[str] = ()

    @property
    def path(self) -> Path:
        """The file, the folder, or the server and schema without secrets."""
        return self.location.path

    def to_dict(self) -> dict[str, Any]:
        """The location and the smallest group, as JSON values."""
        return {"release": format_location(self.path), "smallest_group": self.manifest.smallest_group}

    def verify(self) -> LinkedVerification:
        """Verify the release as it is now."""
        return verify_tables(self.location, self.limits)


def publish_linked(
    recoding: LinkedRecoding,
    target: str | PathLike[str] | None,
    claims: Mapping[str, Any],
    earlier: EarlierRelease | None = None,
    is_recorded: bool = True,
) -> LinkedRelease:
    """Write the released tables to a new location, verify them as a reader would, and show them.

    ``claims`` are the fields of the manifest that the rows do not show; ``earlier`` is the release that the rows are
    made from; ``is_recorded`` says whether the ledger compares and records the release.

    Raises
    ------
    ReleaseError
        The location cannot be written, or holds something else.
    AuditError
        The written release does not meet the policy; the release that was there is unchanged.
    """
    records = recoding.records
    release_target, limits = target_for(records, target), records.limits
    ledger = None
    if is_recorded and records.policy.catalog is not None:
        ledger = LinkedLedger(records, records.policy.catalog.database, release_target.location.path, earlier)
        ledger.find_related_releases()
    recoding.create_surrogates()
    with release_target.stage(records) as staged:
        table_fields = write_rows(recoding, staged.file, staged.version)
        with open_written(staged.file, limits) as engine:
            manifest = _build_manifest(
                engine, table_fields, {**claims, "persons": records.persons, "version": staged.version}
            )
            if ledger is not None:
                ledger.refuse_related_releases(manifest, digest_persons(engine, manifest), recoding)
            staged.write(engine, manifest)
        verification = staged.verify(manifest)
        if failures := [*verification.failures, *_find_mismatches(verification.manifest, manifest, recoding)]:
            raise AuditError(failures)
        with nullcontext() if ledger is None else ledger.recording(manifest, staged.sha256):
            staged.commit()
    location = release_target.location
    warnings = () if ledger is None else tuple(ledger.warnings())
    return LinkedRelease(location, manifest, replace(verification, path=location.path), limits, warnings)


def refuse_unusable_target(records: LinkedRecords) -> None:
    """Refuse the policy's location for the release where publishing would, before the search."""
    with target_for(records, None).stage(records):
        pass  # nothing is written


def _find_mismatches(
    manifest: LinkedManifest, expected_manifest: LinkedManifest, recoding: LinkedRecoding
) -> Iterator[str]:
    """Compare the written release with the run, to detect lost or added rows."""
    if manifest != expected_manifest:
        yield "the manifest in the release is not the one that was written"
    for claims, linked_table in zip(manifest.tables, recoding.records.tables, strict=True):
        expected_rows = recoding.count_kept_rows(linked_table)
        if claims.released_rows != expected_rows:
            yield f"{claims.released_rows:,} rows of {claims.name!r} are in the release (expected: {expected_rows:,})"


def _build_manifest(
    engine: DuckDBEngine, table_fields: Sequence[Mapping[str, Any]], claims: Mapping[str, Any]
) -> LinkedManifest:
    """The manifest of the written rows, which are counted independently of the search."""
    table_claims = []
    for fields in table_fields:
        rows, digest = count_and_digest_rows(engine, version_name(fields["name"], claims["version"]))
        table_claims.append(
            TableClaims(**fields, released_rows=rows, suppressed_rows=fields["rows"] - rows, digest=digest)
        )
    manifest = LinkedManifest(
        published_at=utc_now(),
        sqlanon_version=__version__,
        engine=f"{engine.version}, python {platform.python_version()}",
        tables=tuple(table_claims),
        released_persons=table_claims[0].released_rows,
        smallest_group=0,
        **claims,
    )
    return replace(manifest, smallest_group=smallest_group(engine, manifest) or 0)
