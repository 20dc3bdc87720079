"""Writing to the ledger: a run records its intent to publish, and settles it once the release is in its place.

A run that is killed between the two leaves its intent. The next run that opens the ledger looks at the place: if the
release is there, its publication is completed; if not, the intent is dropped. If the place cannot be read, the intent
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

from sqlanon.audit.check import Check, check_sha256
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
from sqlanon.policy import Policy, format_location
from sqlanon.release.targets.base import Reach, Verification, recorded_location
from sqlanon.support.expressions import fragment, number, template, text
from sqlanon.support.workdir import BusyError, exclusive_lock

_INTENTS = template("""
    SELECT run_id, path, table_name, manifest_hash, version, published_at, intended_at
    FROM sqlanon_catalog.sqlanon.releases
    WHERE NOT intended_at IS NULL
    ORDER BY intended_at
""")
_OUT = fragment("""
    UPDATE sqlanon_catalog.sqlanon.releases SET intended_at = NULL
    WHERE run_id = :run AND path = :place AND NOT intended_at IS NULL
""")
_DROP = fragment("""
    DELETE FROM sqlanon_catalog.sqlanon.releases
    WHERE run_id = :run AND path = :place AND NOT intended_at IS NULL
""")
_DROP_ALL = fragment("DELETE FROM sqlanon_catalog.sqlanon.releases WHERE path = :place AND NOT intended_at IS NULL")
_REPLACE = fragment("""
    UPDATE sqlanon_catalog.sqlanon.releases SET replaced_at = :at::TIMESTAMP
    WHERE path = :place AND replaced_at IS NULL AND intended_at IS NULL
        AND (draft OR NOT coalesce(version, 1) IN (:kept)) -- the first that a file has is not counted
""")
_FORGET_KEYS = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_keys WHERE :gone")
_FORGET_SAMPLES = fragment("""
    DELETE FROM sqlanon_catalog.sqlanon.source_samples
    WHERE :gone AND NOT run_id IN (
        SELECT run_id FROM sqlanon_catalog.sqlanon.releases WHERE NOT epsilon IS NULL -- it counts for good
    )
""")
_FORGET_PEOPLE = fragment("DELETE FROM sqlanon_catalog.sqlanon.source_people WHERE :gone")
_FORGET_RELEASED_PEOPLE = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_people WHERE :gone")
_FORGET_NOISE = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_noise WHERE :gone")
_KEEP_KEYS = fragment("""
    INSERT INTO sqlanon_catalog.sqlanon.released_keys
    SELECT :run AS run_id, key_hash FROM :keys
""")
_KEEP_SAMPLE = fragment("INSERT INTO sqlanon_catalog.sqlanon.source_samples SELECT * FROM :sample")
_KEEP_PEOPLE = fragment("INSERT INTO sqlanon_catalog.sqlanon.source_people SELECT * FROM :people")
_SHARED_PEOPLE = template("""
    SELECT count(*)
    FROM sqlanon_catalog.sqlanon.source_people AS s
    SEMI JOIN :people AS p ON s.person = p.person
    WHERE s.run_id IN (:runs)
""")
_KEEP_RELEASED_PEOPLE = fragment("""
    INSERT INTO sqlanon_catalog.sqlanon.released_people
    SELECT :run AS run_id, person FROM :people
""")
_KEEP_NOISE = fragment("""
    INSERT INTO sqlanon_catalog.sqlanon.released_noise
    SELECT :run AS run_id, attribute, labels, low, high, step FROM :ranges
""")
_FORGET_RUN = fragment("DELETE FROM sqlanon_catalog.sqlanon.runs WHERE run_id = :run")
_FORGET_KEYS_OF = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_keys WHERE run_id = :run")
_FORGET_SAMPLE_OF = fragment("DELETE FROM sqlanon_catalog.sqlanon.source_samples WHERE run_id = :run")
_FORGET_PEOPLE_OF = fragment("DELETE FROM sqlanon_catalog.sqlanon.source_people WHERE run_id = :run")
_FORGET_RELEASED_PEOPLE_OF = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_people WHERE run_id = :run")
_FORGET_NOISE_OF = fragment("DELETE FROM sqlanon_catalog.sqlanon.released_noise WHERE run_id = :run")
_DROP_EXPORT = fragment("DELETE FROM sqlanon_catalog.sqlanon.exports WHERE run_id = :run AND path = :folder")

UNRECORDED = ""
"""Stands for the run of a release that the ledger forgets once it is published."""


@dataclass(frozen=True)
class Intent:
    """A row of the ledger whose release may not be published."""

    run_id: str
    path: Path
    table_name: str
    manifest_hash: str
    version: int | None
    published_at: datetime
    intended_at: datetime

    @property
    def claim(self) -> tuple[str, int | None]:
        return self.manifest_hash, self.version


@contextmanager
def lock_publications(path: Path) -> Iterator[None]:
    """Hold the lock of a catalog's publications: an intent without it belongs to a run that has ended."""
    try:
        with exclusive_lock(path):
            yield
    except BusyError as error:
        raise SourceError(f"another run is publishing with the catalog {path}: try again when it is done") from error


def read_intents(engine: DuckDBEngine) -> list[Intent]:
    return [Intent(run_id, Path(place), *more) for run_id, place, *more in engine.rows(_INTENTS())]


def settle_intents(engine: DuckDBEngine, path: Path, reach: Reach) -> None:
    """Complete or drop the intents of runs that have ended, if their places can be read. The caller has the lock."""
    with catalog.open_catalog(engine, path):
        found = read_intents(engine)
    there = {one: _claims_at(one, reach, engine) for one in found}
    if not any(claims is not None for claims in there.values()):
        return
    with catalog.open_catalog(engine, path):
        for one, claims in there.items():
            if claims is not None and one.claim in claims:
                complete_intent(engine, one, [version for _, version in claims if version not in (None, one.version)])
            elif claims is not None:
                engine.execute(_DROP(run=one.run_id, place=str(one.path)))
                delete_replaced_details(engine)


def complete_intent(engine: DuckDBEngine, intent: Intent, kept: Collection[int | None]) -> None:
    """Record in the open catalog that an intended release is published, and that those in its place are replaced,
    except for the versions that are kept there."""
    place = str(intent.path)
    versions = [one or 1 for one in kept] or [0]
    engine.execute(_REPLACE(place=place, at=str(intent.published_at), kept=[number(one) for one in versions]))
    if intent.run_id != UNRECORDED:
        engine.execute(_OUT(run=intent.run_id, place=place))
    engine.execute(_DROP_ALL(place=place))  # whatever was intended for this place before
    delete_replaced_details(engine)


def delete_replaced_details(engine: DuckDBEngine) -> None:
    """Delete hierarchies, keys, samples and ranges of noise of releases that were replaced."""
    drop_replaced_hierarchies(engine)
    engine.execute(_FORGET_KEYS(gone=is_replaced()))
    engine.execute(_FORGET_SAMPLES(gone=is_replaced()))
    engine.execute(_FORGET_PEOPLE(gone=is_replaced()))
    engine.execute(_FORGET_RELEASED_PEOPLE(gone=is_replaced()))
    engine.execute(_FORGET_NOISE(gone=is_replaced()))


def _claims_at(intent: Intent, reach: Reach, engine: DuckDBEngine) -> frozenset[tuple[str, int | None]] | None:
    """The fingerprints of the manifests in the place of an intent, with their versions; None if it cannot be read."""
    try:
        found = recorded_location(intent.path, intent.table_name, reach).read_manifests(engine.limits)
    except (SqlanonError, OSError):
        return None
    return None if found is None else frozenset((one.fingerprint(), one.version) for one in found)


def read_ledger(engine: DuckDBEngine, path: Path, reach: Reach) -> History:
    """Read the ledger, after settling the intents of runs that have ended."""
    if not path.exists():
        return History()
    with catalog.open_catalog(engine, path):
        found = read_history(engine)
    if not any(one.intended_at for one in (*found.publications, *found.drafts)):
        return found
    with lock_publications(path):
        settle_intents(engine, path, reach)
    with catalog.open_catalog(engine, path):
        return read_history(engine)


def list_publications(engine: DuckDBEngine, path: Path, reach: Reach) -> Sequence[Publication]:
    """The publications that no other has replaced, the oldest first."""
    return read_ledger(engine, path, reach).publications


def find_publication(engine: DuckDBEngine, policy: Policy, release: Verification) -> Publication | None:
    """The record of a release, if its policy has keys or `after`, or if it withdraws rows: these need it.

    Of several releases with the same content, the one in that place, or of that policy, or the newest.
    """
    after = policy.release is not None and bool(policy.release.after)
    if policy.catalog is None:
        return None
    withdraws = catalog.is_recorded_withdrawal(engine, policy.catalog.database, release.digest)
    if not (after or policy.source.key or withdraws):
        return None
    found = read_ledger(engine, policy.catalog.database, Reach(policy))
    same = [one for one in (*found.publications, *found.drafts) if one.digest == release.digest]
    if same:
        asked = policy.fingerprint()
        return max(same, key=lambda one: (one.path == release.path, one.policy_hash == asked, one.published_at))
    if not after:
        return None
    ledger = f"the ledger in {policy.catalog.database}"
    raise ReleaseError(f"{ledger} has no release with these rows, so the releases on which it is based are not known")


def check_against_ledger(
    engine: DuckDBEngine, policy: Policy, release: Verification, sha256: str | None
) -> list[Check]:
    """Check that a release is not a draft without its mark, and its file, or its rows on a server, against the recorded
    hash."""
    if policy.catalog is None:
        return []
    checks = []
    if not release.manifest.draft and catalog.is_recorded_draft(engine, policy.catalog.database, release.digest):
        why = "not recorded: the catalog has a draft with these rows, and no release with them"
        forgets = policy.release is not None and not policy.release.ledger
        checks.append(Check("against the ledger: draft", None if forgets else False, why))
    name, place = "against the ledger: sha256", str(release.path)
    recorded = catalog.read_recorded_sha256(
        engine, policy.catalog.database, os.path.realpath(place) if release.is_file else place
    )
    if recorded is None:
        why = (
            f"the ledger has no hash of {'a file' if release.is_file else 'rows'} in this place, or cannot be read now"
        )
        return [*checks, Check(name, None, f"not recorded: {why}")]
    if release.is_file:
        return [*checks, replace(check_sha256(release.path, recorded), name=name)]
    if sha256 is None:
        return checks
    claim, wrong = "the rows are unchanged since they were published", "the rows are not those that were published"
    return [*checks, Check(name, sha256 == recorded, claim if sha256 == recorded else wrong)]


@dataclass(frozen=True)
class RecordedDetails:
    """What the ledger keeps of a release beside its row: hierarchies, hashes of its keys, a sample of its source; the
    row of its run, if that is not recorded yet; samples of the people of its source, and hashes of its own people; and
    the ranges of its classes, with noise."""

    hierarchies: Sequence[Hierarchy]
    keys: exp.Query | None
    sample: exp.Query | None
    run: Mapping[str, Any] | None
    people: Sequence[exp.Query] = ()
    released_people: exp.Query | None = None
    noise_ranges: exp.Table | None = None

    def write(self, engine: DuckDBEngine, run_id: str) -> None:
        """Write it to the open catalog, in place of an earlier attempt of the run."""
        if self.run is not None:
            engine.execute(_FORGET_RUN(run=run_id))
            catalog.insert_records(engine, "runs", self.run)
        if self.keys is not None:
            engine.execute(_FORGET_KEYS_OF(run=run_id))
            engine.execute(_KEEP_KEYS(run=run_id, keys=self.keys))
        if self.sample is not None:
            engine.execute(_FORGET_SAMPLE_OF(run=run_id))
            engine.execute(_KEEP_SAMPLE(sample=self.sample))
        engine.execute(_FORGET_PEOPLE_OF(run=run_id))
        for people in self.people:
            engine.execute(_KEEP_PEOPLE(people=people))
        if self.released_people is not None:
            engine.execute(_FORGET_RELEASED_PEOPLE_OF(run=run_id))
            engine.execute(_KEEP_RELEASED_PEOPLE(run=run_id, people=self.released_people))
        if self.noise_ranges is not None:
            engine.execute(_FORGET_NOISE_OF(run=run_id))
            engine.execute(_KEEP_NOISE(run=run_id, ranges=self.noise_ranges.copy()))
        store_released_hierarchies(engine, run_id, self.hierarchies)


@contextmanager
def recording(
    engine: DuckDBEngine,
    path: Path,
    reach: Reach,
    row: dict[str, Any],
    keep: int,
    known: Collection[tuple[str, Path]],
    kept: RecordedDetails | None,
) -> Iterator[None]:
    """Record an intent to publish; and, if the context succeeds, that the release is published and what it replaced.
    No other run with this catalog publishes meanwhile.

    Nothing is ``kept`` of drafts, and of releases that the ledger forgets.
    """
    version, run_id = row["version"] or 0, row["run_id"]
    retained_versions = range(version - keep + 1, version)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with lock_publications(path):
        with _settled(engine, path, reach):
            if kept is not None:
                _refuse_overtaken(engine, row, known, retained_versions, kept.people)
            catalog.insert_records(engine, "releases", row | {"intended_at": now})
            if kept is not None:
                kept.write(engine, run_id)
            (intent,) = [one for one in read_intents(engine) if one.run_id == run_id and one.intended_at == now]
        with _until_known(engine, path, intent, retained_versions, reach):
            yield


@contextmanager
def _settled(engine: DuckDBEngine, path: Path, reach: Reach) -> Iterator[None]:
    """The open catalog, without intents that can be settled."""
    with catalog.open_catalog(engine, path):
        if not read_intents(engine):
            yield
            return
    settle_intents(engine, path, reach)
    with catalog.open_catalog(engine, path):
        yield


@contextmanager
def _until_known(
    engine: DuckDBEngine, path: Path, intent: Intent, kept: Collection[int], reach: Reach
) -> Iterator[None]:
    """Complete an intent if the context succeeds; else settle it."""
    is_known = False
    try:
        yield
        try:
            with catalog.open_catalog(engine, path):
                complete_intent(engine, intent, kept)
        except (SqlanonError, OSError, duckdb.Error) as error:  # it does not undo the release
            raise ReleaseError(
                f"{format_location(intent.path)} is published, but the ledger in {path} cannot be written: "
                f"{str(error).splitlines()[0]}; the next run with this catalog completes it"
            ) from error
        is_known = True
    finally:
        # It may be out all the same. Once more, where the signal that ends this run has ended this, too; else it is
        # left to the next run.
        for _ in () if is_known else range(2):
            with suppress(Exception):
                settle_intents(engine, path, reach)
                break


def _refuse_overtaken(
    engine: DuckDBEngine,
    row: dict[str, Any],
    known: Collection[tuple[str, Path]],
    kept: Collection[int],
    people: Sequence[exp.Query],
) -> None:
    others = set()
    for one in read_current_publications(engine):
        stays = str(one.path) != row["path"] or (one.version or 1) in kept
        if one.draft or not stays or (one.run_id, one.path) in known:
            continue
        if one.source == row["source"]:
            raise OvertakenError("another release of this source was published meanwhile: try again")
        others.add(one.run_id)
    runs = [text(run_id) for run_id in sorted(others)]
    if others and any(engine.rows(_SHARED_PEOPLE(runs=runs, people=one))[0][0] for one in people):
        raise OvertakenError("a release of the same people was published meanwhile: try again")
    if row["epsilon"] is not None:
        noisy = [
            one for one in read_spent_epsilon(engine) if one.source == row["source"] and one.run_id != row["run_id"]
        ]
        if any((one.run_id, one.path) not in known for one in noisy):
            raise OvertakenError("another release of this source was published with noise meanwhile: try again")


@contextmanager
def recording_export(engine: DuckDBEngine, path: Path, export: Export) -> Iterator[None]:
    """Record an export before its folder is written, and take the record back if that fails."""
    with lock_publications(path), catalog.open_catalog(engine, path):
        catalog.insert_records(engine, "exports", asdict(export))
    try:
        yield
    except BaseException:
        with suppress(SqlanonError), lock_publications(path), catalog.open_catalog(engine, path):
            engine.execute(_DROP_EXPORT(run=export.run_id, folder=export.path))
        raise
