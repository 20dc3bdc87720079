"""Write to the ledger: a run records its intent to publish, and completes the record once the release is published.

A run that is killed between the two leaves its intent. The next run that opens the ledger reads the location: if the
release exists, its record is completed; if not, the intent is dropped. If the location cannot be read, the intent
stays and counts as a published release.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import OvertakenError, ReleaseError, SourceError, SqlanonError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger import catalog
from sqlanon.ledger.records import (
    Export,
    History,
    Publication,
    read_current_publications,
    read_history,
    read_spent_epsilon,
)
from sqlanon.ledger.released_hierarchies import drop_replaced_hierarchies, is_replaced, store_released_hierarchies
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy
from sqlanon.publish.targets.base import Reach, recorded_location
from sqlanon.release.digests import check_sha256
from sqlanon.support.checks import Check
from sqlanon.support.expressions import all_of, col, cols, fragment, is_not_null, number, template, text
from sqlanon.support.workdir import BusyError, exclusive_lock

UNRECORDED = ""
"""The run ID of a release that the ledger does not record: its intent is dropped once it is published."""


@dataclass(frozen=True)
class Intent:
    """A record of the ledger whose release may be unpublished."""

    run_id: str
    path: Path
    table_name: str
    manifest_hash: str
    version: int | None
    published_at: datetime
    intended_at: datetime


@contextmanager
def lock_publications(path: Path) -> Iterator[None]:
    """Hold the lock of a catalog's publications: an intent without a lock belongs to a run that has ended."""
    try:
        with exclusive_lock(path):
            yield
    except BusyError as error:
        raise SourceError(f"another run is publishing with the catalog {path}: try again when it is done") from error


def read_intents(engine: DuckDBEngine) -> list[Intent]:
    query = template("""
        SELECT run_id, path, table_name, manifest_hash, version, published_at, intended_at
        FROM sqlanon_catalog.sqlanon.releases
        WHERE NOT intended_at IS NULL
        ORDER BY intended_at
    """)
    return [Intent(run_id, Path(path), *more) for run_id, path, *more in engine.rows(query())]


def settle_intents(engine: DuckDBEngine, path: Path, reach: Reach) -> None:
    """Complete or drop the intents of runs that have ended, if their locations can be read. The caller has the lock."""
    with catalog.open_catalog(engine, path):
        intents = read_intents(engine)
    claims_by_intent = {
        intent: claims for intent in intents if (claims := _claims_at(intent, reach, engine)) is not None
    }
    if not claims_by_intent:
        return
    with catalog.open_catalog(engine, path):
        for intent, claims in claims_by_intent.items():
            if (intent.manifest_hash, intent.version) in claims:
                kept_versions = [version for _, version in claims if version not in (None, intent.version)]
                complete_intent(engine, intent, kept_versions)
            else:
                _drop_intents(engine, intent.path, intent.run_id)
                delete_replaced_details(engine)


def complete_intent(engine: DuckDBEngine, intent: Intent, kept_versions: Collection[int | None]) -> None:
    """Record in the open catalog that an intended release is published, and that it replaced those at its location,
    except for retained versions."""
    location = str(intent.path)
    replace_releases = fragment("""
        UPDATE sqlanon_catalog.sqlanon.releases SET replaced_at = :at::TIMESTAMP
        WHERE path = :location AND replaced_at IS NULL AND intended_at IS NULL
            AND (draft OR NOT coalesce(version, 1) IN (:retained_versions)) -- a file without versions has version 1
    """)
    complete = fragment("""
        UPDATE sqlanon_catalog.sqlanon.releases SET intended_at = NULL
        WHERE run_id = :run AND path = :location AND NOT intended_at IS NULL
    """)
    retained = [number(version or 1) for version in kept_versions] or [number(0)]
    engine.execute(replace_releases(location=location, at=str(intent.published_at), retained_versions=retained))
    if intent.run_id != UNRECORDED:
        engine.execute(complete(run=intent.run_id, location=location))
    _drop_intents(engine, intent.path)  # earlier intents for this location
    delete_replaced_details(engine)


def _drop_intents(engine: DuckDBEngine, path: Path, run_id: str | None = None) -> None:
    conditions = [col("path").eq(text(str(path))), is_not_null(col("intended_at"))]
    conditions += [] if run_id is None else [col("run_id").eq(text(run_id))]
    _delete_rows(engine, "releases", all_of(conditions))


def _delete_rows(engine: DuckDBEngine, name: str, condition: exp.Expr) -> None:
    delete = fragment("DELETE FROM :rows WHERE :condition")
    engine.execute(delete(rows=catalog.catalog_table(name), condition=condition))


def delete_replaced_details(engine: DuckDBEngine) -> None:
    """Delete hierarchies, keys, samples and ranges of noise of replaced releases."""
    drop_replaced_hierarchies(engine)
    for name in ("released_keys", "source_people", "released_people", "released_noise"):
        _delete_rows(engine, name, is_replaced())
    # Spent epsilon adds up over all releases of a source, so their samples stay.
    has_no_noise = fragment("""
        NOT run_id IN (SELECT run_id FROM sqlanon_catalog.sqlanon.releases WHERE NOT epsilon IS NULL)
    """)
    _delete_rows(engine, "source_samples", all_of([is_replaced(), has_no_noise()]))


def _claims_at(intent: Intent, reach: Reach, engine: DuckDBEngine) -> frozenset[tuple[str, int | None]] | None:
    """The fingerprints of the manifests at the location of an intent, with their versions; None if unreadable."""
    try:
        manifests = recorded_location(intent.path, intent.table_name, reach).read_manifests(engine.limits)
    except (SqlanonError, OSError):
        return None
    return None if manifests is None else frozenset((claims.fingerprint(), claims.version) for claims in manifests)


def read_ledger(engine: DuckDBEngine, path: Path, reach: Reach) -> History:
    """Read the ledger, after settling the intents of runs that have ended."""
    if not path.exists():
        return History()
    with catalog.open_catalog(engine, path):
        recorded = read_history(engine)
    if not any(publication.intended_at for publication in (*recorded.publications, *recorded.drafts)):
        return recorded
    with lock_publications(path):
        settle_intents(engine, path, reach)
    with catalog.open_catalog(engine, path):
        return read_history(engine)


def find_publication(engine: DuckDBEngine, policy: Policy, release: Verification) -> Publication | None:
    """The record of a release, if its policy has keys or `after`, or if it withdraws rows: these need it.

    Among releases with the same content, one at the same location comes first, then one of the same policy, then the
    newest.
    """
    after = policy.release is not None and bool(policy.release.after)
    if policy.catalog is None:
        return None
    withdraws = catalog.is_recorded_withdrawal(engine, policy.catalog.database, release.digest)
    if not (after or policy.source.key or withdraws):
        return None
    ledger, policy_hash = read_ledger(engine, policy.catalog.database, Reach(policy)), policy.fingerprint()
    matches = [
        (
            publication.path == release.path,
            publication.policy_hash == policy_hash,
            publication.published_at,
            publication,
        )
        for publication in (*ledger.publications, *ledger.drafts)
        if publication.digest == release.digest
    ]
    if matches:
        return max(matches, key=lambda match: match[:3])[-1]
    if not after:
        return None
    raise ReleaseError(
        f"the ledger in {policy.catalog.database} has no release with these rows, so the releases on which it is based "
        "are not known"
    )


def check_against_ledger(
    engine: DuckDBEngine, policy: Policy, release: Verification, sha256: str | None
) -> list[Check]:
    """Check that a draft is marked, and that the file of a release, or its rows on a server, have the recorded hash."""
    if policy.catalog is None:
        return []
    checks = []
    if not release.manifest.draft and catalog.is_recorded_draft(engine, policy.catalog.database, release.digest):
        reason = "not recorded: the catalog has a draft with these rows, and no release with them"
        forgets = policy.release is not None and not policy.release.ledger
        checks.append(Check("against the ledger: draft", None if forgets else False, reason))
    name = "against the ledger: sha256"
    location = os.path.realpath(release.path) if release.is_file else str(release.path)
    recorded = catalog.read_recorded_sha256(engine, policy.catalog.database, location)
    if recorded is None:
        subject = "a file" if release.is_file else "rows"
        reason = f"not recorded: the ledger has no hash of {subject} at this location, or cannot be read"
        return [*checks, Check(name, None, reason)]
    if release.is_file:
        return [*checks, replace(check_sha256(release.path, recorded), name=name)]
    if sha256 is None:
        return checks
    claim, difference = "the rows are unchanged since they were published", "the rows are not those that were published"
    return [*checks, Check(name, sha256 == recorded, claim if sha256 == recorded else difference)]


@dataclass(frozen=True)
class RecordedDetails:
    """The details of a release that the ledger records."""

    hierarchies: Sequence[Hierarchy]
    keys: exp.Query | None  # the hashes of its keys
    sample: exp.Query | None  # a sample of its source
    run: Mapping[str, Any] | None  # the record of its run, if that is not recorded yet
    people: Sequence[exp.Query] = ()  # samples of the people of its source
    released_people: exp.Query | None = None  # the hashes of its own people
    noise_ranges: exp.Table | None = None  # the ranges of its classes with noise

    def write(self, engine: DuckDBEngine, run_id: str) -> None:
        """Write the details to the open catalog, and replace those of an earlier attempt of the run."""
        if self.run is not None:
            _replace_rows(engine, run_id, "runs")
            catalog.insert_records(engine, "runs", self.run)
        tables: dict[str, tuple[exp.Expr | None, Sequence[str]]] = {
            "released_keys": (self.keys, ["key_hash"]),
            "released_people": (self.released_people, ["person"]),
            "released_noise": (self.noise_ranges, ["attribute", "labels", "low", "high", "step"]),
        }
        for name, (rows, columns) in tables.items():
            if rows is not None:
                query = template("SELECT :run AS run_id, :columns FROM :rows")
                _replace_rows(engine, run_id, name, query(run=run_id, columns=cols(columns), rows=rows.copy()))
        if self.sample is not None:
            _replace_rows(engine, run_id, "source_samples", self.sample)
        _replace_rows(engine, run_id, "source_people", *self.people)
        store_released_hierarchies(engine, run_id, self.hierarchies)


def _replace_rows(engine: DuckDBEngine, run_id: str, name: str, *queries: exp.Query) -> None:
    """Replace the rows of a run in a table of the open catalog."""
    _delete_rows(engine, name, col("run_id").eq(text(run_id)))
    for query in queries:
        engine.execute(exp.Insert(this=catalog.catalog_table(name), expression=query))


@contextmanager
def recording(
    engine: DuckDBEngine,
    path: Path,
    reach: Reach,
    row: dict[str, Any],
    keep: int,
    compared: Collection[tuple[str, Path]],
    details: RecordedDetails | None,
) -> Iterator[None]:
    """Record an intent to publish; and, if the context succeeds, that the release is published and which it replaced.

    No other run with this catalog can publish at the same time. Details are None for drafts, and for releases that the
    ledger does not record.
    """
    version, run_id = row["version"] or 0, row["run_id"]
    retained_versions = range(version - keep + 1, version)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with lock_publications(path):
        with _open_settled_catalog(engine, path, reach):
            if details is not None:
                _refuse_overtaken(engine, row, compared, retained_versions, details.people)
            catalog.insert_records(engine, "releases", row | {"intended_at": now})
            if details is not None:
                details.write(engine, run_id)
            (intent,) = [
                intent for intent in read_intents(engine) if intent.run_id == run_id and intent.intended_at == now
            ]
        with _complete_or_settle(engine, path, intent, retained_versions, reach):
            yield


@contextmanager
def _open_settled_catalog(engine: DuckDBEngine, path: Path, reach: Reach) -> Iterator[None]:
    """Open the catalog after settling its intents."""
    with catalog.open_catalog(engine, path):
        if not read_intents(engine):
            yield
            return
    settle_intents(engine, path, reach)
    with catalog.open_catalog(engine, path):
        yield


@contextmanager
def _complete_or_settle(
    engine: DuckDBEngine, path: Path, intent: Intent, kept_versions: Collection[int], reach: Reach
) -> Iterator[None]:
    """Complete an intent if the context succeeds; settle it otherwise."""
    is_known = False
    try:
        yield
        try:
            with catalog.open_catalog(engine, path):
                complete_intent(engine, intent, kept_versions)
        except (SqlanonError, OSError, duckdb.Error) as error:  # the release stays published
            raise ReleaseError(
                f"{format_location(intent.path)} is published, but the ledger in {path} cannot be written: "
                f"{str(error).splitlines()[0]}; the next run with this catalog completes it"
            ) from error
        is_known = True
    finally:
        # The release may be published anyway. A second attempt, as a signal may have interrupted the first; otherwise
        # the next run settles it.
        for _ in () if is_known else range(2):
            with suppress(Exception):
                settle_intents(engine, path, reach)
                break


def _refuse_overtaken(
    engine: DuckDBEngine,
    row: dict[str, Any],
    compared: Collection[tuple[str, Path]],
    kept_versions: Collection[int],
    people: Sequence[exp.Query],
) -> None:
    other_runs = set()
    for publication in read_current_publications(engine):
        stays = str(publication.path) != row["path"] or (publication.version or 1) in kept_versions
        if publication.draft or not stays or (publication.run_id, publication.path) in compared:
            continue
        if publication.source == row["source"]:
            raise OvertakenError("another release of this source was published in the meantime: try again")
        other_runs.add(publication.run_id)
    shared_people = template("""
        SELECT count(*)
        FROM sqlanon_catalog.sqlanon.source_people AS s
        SEMI JOIN :people AS p ON s.person = p.person
        WHERE s.run_id IN (:runs)
    """)
    runs = [text(run_id) for run_id in sorted(other_runs)]
    if other_runs and any(engine.rows(shared_people(runs=runs, people=query))[0][0] for query in people):
        raise OvertakenError("a release of the same people was published in the meantime: try again")
    if row["epsilon"] is not None:
        new_records = [record for record in read_spent_epsilon(engine) if (record.run_id, record.path) not in compared]
        if any(record.source == row["source"] and record.run_id != row["run_id"] for record in new_records):
            raise OvertakenError("another release of this source was published with noise in the meantime: try again")


@contextmanager
def recording_export(engine: DuckDBEngine, path: Path, export: Export) -> Iterator[None]:
    """Record an export before its folder is written, and take the record back if that fails."""
    with lock_publications(path), catalog.open_catalog(engine, path):
        catalog.insert_records(engine, "exports", asdict(export))
    try:
        yield
    except BaseException:
        with suppress(SqlanonError), lock_publications(path), catalog.open_catalog(engine, path):
            is_export = all_of([col("run_id").eq(text(export.run_id)), col("path").eq(text(export.path))])
            _delete_rows(engine, "exports", is_export)
        raise
