"""The ledger's part in one publication: compare the release with earlier ones, and record it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger.catalog import open_catalog
from sqlanon.ledger.growth.marks import KEY_HASH, key_hash
from sqlanon.ledger.joint.audit import JointAudit, SourceHistory
from sqlanon.ledger.joint.noise_intervals import make_noise_ranges
from sqlanon.ledger.people_samples import SourcePeople, person_hash
from sqlanon.ledger.recording import UNRECORDED, RecordedDetails, read_ledger, recording
from sqlanon.ledger.records import (
    Publication,
    SpentEpsilon,
    find_other_catalogs,
    read_or_create_secret,
    warn_of_uncompared_exports,
)
from sqlanon.ledger.same_people import read_most_rows_per_person
from sqlanon.ledger.source_match import recognize, sample_source
from sqlanon.places.addresses import format_location
from sqlanon.release.draft import ReplacedRelease
from sqlanon.release.manifest import Manifest
from sqlanon.release.targets.base import PUBLISH_ELSEWHERE, Reach, kind_for_path
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import as_column, col, is_not_null, select, subquery, union_all


@dataclass(frozen=True)
class ExtensionRecord:
    """The release that another one extends.

    Attributes
    ----------
    hierarchies:
        Its hierarchies, merged with the current ones.
    hashed:
        The key hashes of its rows in the ledger.
    row_of_run:
        The record of the run that extends it.
    """

    run_id: str
    hierarchies: Sequence[Hierarchy]
    hashed: exp.Query
    row_of_run: dict[str, Any]


@dataclass
class LedgerEntry:
    """The ledger's part in the publication of a release: a `sqlanon.release.publish.Ledger`.

    Attributes
    ----------
    keyed, peopled:
        The released rows with their keys, and with their persons, where the policy names these.
    noise_ranges:
        The classes with the ranges of their noise.
    joint_audit:
        The comparison with earlier releases.
    replaces:
        The release that it replaces without rows that have left the source. Readers may have a copy of that release, so
        the two are compared.
    """

    run: Run
    search_input: SearchInput
    run_id: str
    place: Path
    source_rows: int
    force: bool = False
    keyed: exp.Query | None = None
    extended: ExtensionRecord | None = None
    joint_audit: JointAudit | None = None
    peopled: exp.Query | None = None
    noise_ranges: exp.Query | None = None
    replaces: ReplacedRelease | None = None
    _kept: RecordedDetails | None = None

    @property
    def held_against(self) -> tuple[Path, ...]:
        """The paths of the earlier releases with which it was compared."""
        return () if self.joint_audit is None else tuple(publication.path for publication in self.joint_audit.earlier)

    @property
    def queries(self) -> Sequence[str]:
        """SQL that lists the rows for which the release is refused."""
        return () if self.joint_audit is None else self.joint_audit.queries

    def begin(self) -> None:
        """Read the published releases, and sample the source before a server is busy with the release."""
        policy, extended = self.search_input.policy, self.extended
        assert policy.catalog is not None  # otherwise the ledger is `NoLedger`
        if not policy.catalog.database.exists():  # it was deleted after the run was recorded
            with open_catalog(self.run.engine, policy.catalog.database):
                read_or_create_secret(self.run.engine)
        people = SourcePeople(self.run, policy)
        history = read_source_history(self.run, self.search_input, self.place, self.run_id, people)
        if extended is not None:
            # An extension has the rows of that release unchanged, and at least k new rows in a class
            # (`ExtensionDraft.checks` counts both): readers of the two cannot single out fewer.
            history = replace(
                history,
                earlier=[publication for publication in history.earlier if publication.run_id != extended.run_id],
            )
        if self.replaces is not None:
            history = replace(
                history, earlier=[*history.earlier, *([history.replaced] if history.replaced else [])], replaced=None
            )
            if self.replaces.run_id not in {publication.run_id for publication in history.earlier}:
                raise ReleaseError(f"{self.place} was replaced meanwhile: withdraw from the release that is there now")
        withdraws = None if self.replaces is None else self.replaces.run_id
        is_extension, ranges = extended is not None, self._make_noise_ranges()
        self.joint_audit = JointAudit(
            self.run,
            self.search_input,
            self.place,
            history,
            self.force,
            is_extension,
            withdraws=withdraws,
            noise_ranges=ranges,
        )
        if policy.release is not None and not policy.release.ledger:
            return
        sample = sample_source(self.run, policy, history.secret, self.run_id, self.source_rows)
        hierarchies = self.search_input.policy_hierarchies if extended is None else extended.hierarchies
        row_of_run = None if extended is None else extended.row_of_run
        samples = [publication.rows_for(self.run_id) for publication in people.samples(history.secret)]
        details = RecordedDetails(hierarchies, self._key_hashes(history.secret), sample, row_of_run)
        hashes = self._person_hashes(history.secret)
        self._kept = replace(details, people=samples, released_people=hashes, noise_ranges=ranges)

    def refuse_unknown_versions(self, manifests: Sequence[Manifest]) -> None:
        """Refuse to keep versions that are not in the ledger: they were not compared with the release."""
        if not manifests:
            return
        policy = self.search_input.policy
        assert policy.catalog is not None
        ledger = read_ledger(self.run.engine, policy.catalog.database, Reach(policy, self.search_input.source))
        recorded = {
            (manifest.version, manifest.manifest_hash)
            for manifest in ledger.publications
            if manifest.path == self.place
        }
        unknown = [
            manifest.rows_table for manifest in manifests if (manifest.version, manifest.fingerprint()) not in recorded
        ]
        if unknown:
            raise ReleaseError(
                f"{self.place} has {' and '.join(sorted(unknown))}, which release.keep = {policy.retained_versions} "
                f"would keep and the catalog {policy.catalog.database} does not have: it was not compared with this "
                "release, and a reader of both may single out whoever came or left in between. Set [catalog] database "
                "to the catalog that recorded it; or publish to another place, with --output; or set keep = 1, which "
                "is safe only if nobody has a copy of it"
            )

    def checks(self, manifest: Manifest, released: exp.Table) -> list[Check]:
        """Check whether the release is safe beside earlier ones."""
        return [] if self.joint_audit is None else self.joint_audit.checks(manifest, released)

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record the publication; the record is dropped if publishing fails.

        Where release.ledger is false, the ledger still records that another release was replaced.
        """
        policy, audit = self.search_input.policy, self.joint_audit
        assert policy.catalog is not None  # otherwise the ledger is `NoLedger`
        assert audit is not None  # made by `begin`
        row = _row(self.run_id if self._kept is not None else UNRECORDED, self.place, manifest)
        if self._kept is not None:
            extends = None if self.extended is None else self.extended.run_id
            withdrawn = None if self.replaces is None else self.replaces.run_id
            row |= {
                "sha256": sha256,
                "source": self.run.identity,
                "policy_hash": manifest.policy_hash,
                "epsilon": manifest.epsilon,
                "noise": manifest.noise
                and json.dumps({name: noise["epsilon"] for name, noise in manifest.noise.items()}),
                "same_source": audit.history.same_source,
                "after": [run_id for run_id in self.search_input.earlier.run_ids if run_id != extends],
                "breaks": audit.breaks,
                "extends": extends,
                "withdraws": withdrawn,
                "only_rows_of": withdrawn if self.replaces is not None and self.replaces.only_its_rows else None,
            }
        keep = 1 if self._kept is None or self.replaces is not None else policy.retained_versions
        path, reach = policy.catalog.database, Reach(policy, self.search_input.source)
        return recording(self.run.engine, path, reach, row, keep, audit.history.known, self._kept)

    def notes(self, digest: str) -> Sequence[str]:
        """The warnings once the release with this digest is published."""
        return () if self.joint_audit is None else self.joint_audit.notes(digest)

    def _make_noise_ranges(self) -> exp.Table | None:
        if self.noise_ranges is None:
            return None
        return make_noise_ranges(self.run, self.noise_ranges, self.search_input)

    def _person_hashes(self, secret: str) -> exp.Query | None:
        person = self.search_input.columns.person
        if self.peopled is None or person is None:
            return None
        hashed = person_hash(col(person), self.search_input.source.columns[person], secret)
        people = select([as_column(hashed, "person")], subquery(self.peopled, "released"))
        return people.where(is_not_null(col(person)), copy=False).distinct()

    def _key_hashes(self, secret: str) -> exp.Query | None:
        if self.keyed is None:
            return None
        hashed = as_column(key_hash(self.search_input.columns.key, secret), KEY_HASH)
        new = select([hashed], subquery(self.keyed, "released"))
        return new if self.extended is None else union_all(new, self.extended.hashed)


@dataclass(frozen=True)
class DraftEntry:
    """The ledger's part in writing a draft: a `sqlanon.release.publish.Ledger`.

    A draft is not compared with releases, and only its record is written.
    """

    run: Run
    search_input: SearchInput
    run_id: str
    place: Path
    held_against: Sequence[Path] = ()
    queries: Sequence[str] = ()

    def begin(self) -> None:
        """Refuse to replace a release, in whatever state it is."""
        policy = self.search_input.policy
        assert policy.catalog is not None  # otherwise the ledger is `NoLedger`
        ledger = read_ledger(self.run.engine, policy.catalog.database, Reach(policy, self.search_input.source))
        if published := [publication for publication in ledger.publications if publication.path == self.place]:
            raise ReleaseError(
                f"the ledger has a release at {published[-1]}, which a draft does not replace: {PUBLISH_ELSEWHERE}"
            )

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        """Do nothing: a draft keeps no versions."""

    def checks(self, manifest: Manifest, released: exp.Table) -> list[Check]:
        """No checks: a draft is not compared with releases."""
        return []

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record the draft, unless release.ledger is false."""
        policy = self.search_input.policy
        assert policy.catalog is not None
        row = _row(self.run_id, self.place, manifest) | {
            "draft": True,
            "sha256": sha256,
            "source": self.run.identity,
            "policy_hash": manifest.policy_hash,
            "epsilon": manifest.epsilon,
            "after": list(self.search_input.earlier.run_ids),
        }
        if policy.release is not None and not policy.release.ledger:
            row["run_id"] = UNRECORDED
        reach = Reach(policy, self.search_input.source)
        return recording(self.run.engine, policy.catalog.database, reach, row, 1, (), None)

    def notes(self, digest: str) -> Sequence[str]:
        """No warnings."""
        return ()


def _row(run_id: str, place: Path, manifest: Manifest) -> dict[str, Any]:
    """The record of a release or draft."""
    return {
        "run_id": run_id,
        "published_at": manifest.published_at,
        "path": str(place),
        "table_name": manifest.table_name,
        "released_rows": manifest.released_rows,
        "digest": manifest.digest,
        "manifest_hash": manifest.fingerprint(),
        "version": manifest.version,
    }


def read_source_history(
    run: Run, search_input: SearchInput, target: Path, run_id: str, people: SourcePeople
) -> SourceHistory:
    """The current releases of a source with which a new one is compared, and the release that it replaces."""
    policy = search_input.policy
    assert policy.catalog is not None
    path = policy.catalog.database
    ledger = read_ledger(run.engine, path, Reach(policy, search_input.source))
    publications, noise_records = ledger.publications, ledger.spent if policy.noisy_attributes else ()
    records: list[Publication | SpentEpsilon] = [*publications, *noise_records]
    recognition = recognize(run, policy, path, ledger, records, people)
    of_source = [
        record
        for record in publications
        if recognition.recognizes(record.source) or record.run_id in search_input.earlier.run_ids
    ]
    noise_records = [record for record in noise_records if recognition.has_rows_of(record.source)]
    at_target = [
        record for record in of_source if record.path == target and record.run_id not in search_input.earlier.run_ids
    ]
    at_target.sort(key=lambda record: record.version or 1, reverse=True)
    keep = policy.retained_versions
    kept_versions, replaced = at_target[: keep - 1], next(iter(at_target[keep - 1 :]), None)
    folders = {file.parent for file in search_input.source.files}
    folders |= {target.parent} if kind_for_path(target).in_files else set()
    sourced_records = [record for record in records if record.source is not None]
    return SourceHistory(
        earlier=[record for record in of_source if record not in at_target or record in kept_versions],
        replaced=replaced,
        known=frozenset(
            [
                *((record.run_id, record.path) for record in publications),
                *((record.run_id, record.path) for record in ledger.spent),
            ]
        ),
        # A result that is published twice has the same noise.
        spent=[record for record in noise_records if record.run_id != run_id],
        other_catalogs=find_other_catalogs(run.engine, path, run.identity, target, folders),
        shares=recognition.shares,
        people=recognition.people.shared,
        most_rows=max((record.most_rows for record in people.samples(ledger.secret) if record.is_person), default=1),
        most_rows_before=read_most_rows_per_person(run.engine, path),
        same_source=next(
            (record.same_source or record.source for record in sourced_records if record.source in recognition.shares),
            None,
        ),
        notes=[
            *recognition.same_rows.warn(recognition.people.compared),
            *_warn_of_undecided([record for record in publications if record.source in recognition.undecided]),
            *([] if people.why is None else [f"people of the source cannot be compared with others: {people.why}"]),
            *warn_of_uncompared_exports(ledger.exports),
        ],
        secret=ledger.secret,
    )


def _warn_of_undecided(publications: Sequence[Publication]) -> list[str]:
    """The warning about releases whose sources may have the same rows."""
    if not publications:
        return []
    newest, others_count = publications[-1], len(publications) - 1
    and_others = f" (and {others_count} more)" if others_count else ""
    return [
        f"{format_location(newest.path)}{and_others} may be a release of the same people: its source has the same "
        "columns and about as many rows. The two were not compared, because too few rows are unique to recognize them. "
        "If they are the same people, give both policies the same [source], or compare the files with sqlanon attack"
    ]
