"""The ledger's part in one publication: compare the release with earlier ones, and record it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlglot import exp

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
from sqlanon.publish.draft import ReplacedRelease
from sqlanon.publish.stage import NoLedger
from sqlanon.publish.targets.base import PUBLISH_ELSEWHERE, Reach
from sqlanon.publish.targets.kinds import kind_for_path
from sqlanon.release.manifest import Manifest
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.checks import Check
from sqlanon.support.expressions import as_column, col, is_not_null, select, subquery, union_all


@dataclass(frozen=True)
class ExtensionRecord:
    """The release that another one extends."""

    run_id: str
    hierarchies: Sequence[Hierarchy]  # its hierarchies, merged with the current ones
    hashed: exp.Query  # the key hashes of its rows in the ledger
    row_of_run: dict[str, Any]  # the record of the run that extends it


@dataclass
class LedgerEntry:
    """The ledger's part in the publication of a release: a `sqlanon.publish.stage.Ledger`."""

    run: Run
    search_input: SearchInput
    run_id: str
    place: Path
    source_rows: int
    force: bool = False
    keyed: exp.Query | None = None  # the released rows with their keys
    extended: ExtensionRecord | None = None
    joint_audit: JointAudit | None = None  # the comparison with earlier releases
    peopled: exp.Query | None = None
    noise_ranges: exp.Query | None = None  # the classes with the ranges of their noise
    replaces: ReplacedRelease | None = None  # readers may have a copy of that release, so the two are compared
    _details: RecordedDetails | None = None

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
        policy, extended, replaces = self.search_input.policy, self.extended, self.replaces
        path, _ = _find_catalog(self.search_input)
        if not path.exists():  # it was deleted after the run was recorded
            with open_catalog(self.run.engine, path):
                read_or_create_secret(self.run.engine)
        people = SourcePeople(self.run, policy)
        history = read_source_history(self.run, self.search_input, self.place, self.run_id, people)
        if extended is not None:
            # An extension has the rows of that release unchanged, and at least k new rows in a class
            # (`ExtensionDraft.checks` counts both): readers of the two cannot single out fewer.
            earlier = [publication for publication in history.earlier if publication.run_id != extended.run_id]
            history = replace(history, earlier=earlier)
        if replaces is not None:
            earlier = [*history.earlier, *([history.replaced] if history.replaced else [])]
            history = replace(history, earlier=earlier, replaced=None)
            if replaces.run_id not in {publication.run_id for publication in earlier}:
                raise ReleaseError(f"{self.place} was replaced in the meantime: withdraw from the current release")
        ranges = None
        if self.noise_ranges is not None:
            ranges = make_noise_ranges(self.run, self.noise_ranges, self.search_input)
        self.joint_audit = JointAudit(
            self.run,
            self.search_input,
            self.place,
            history,
            self.force,
            extends=extended is not None,
            withdraws=None if replaces is None else replaces.run_id,
            noise_ranges=ranges,
        )
        if policy.release is not None and not policy.release.ledger:
            return
        self._details = RecordedDetails(
            self.search_input.policy_hierarchies if extended is None else extended.hierarchies,
            self._key_hashes(history.secret),
            sample_source(self.run, policy, history.secret, self.run_id, self.source_rows),
            None if extended is None else extended.row_of_run,
            [sample.rows_for(self.run_id) for sample in people.samples(history.secret)],
            self._person_hashes(history.secret),
            ranges,
        )

    def refuse_unknown_versions(self, manifests: Sequence[Manifest]) -> None:
        """Refuse to keep versions that are not in the ledger: they were not compared with the release."""
        if not manifests:
            return
        path, reach = _find_catalog(self.search_input)
        recorded = {
            (publication.version, publication.manifest_hash)
            for publication in read_ledger(self.run.engine, path, reach).publications
            if publication.path == self.place
        }
        unknown = [
            manifest.rows_table for manifest in manifests if (manifest.version, manifest.fingerprint()) not in recorded
        ]
        if unknown:
            keep = self.search_input.policy.retained_versions
            raise ReleaseError(
                f"{self.place} has {' and '.join(sorted(unknown))}, which release.keep = {keep} would keep and the "
                f"catalog {path} does not have: it was not compared with this release, and a reader of both may single "
                "out persons who joined or left in between. Set [catalog] database to the catalog that recorded it; or "
                "publish to another place, with --output; or set keep = 1, which is safe only if no reader has a copy "
                "of it"
            )

    def checks(self, manifest: Manifest, released: exp.Table) -> list[Check]:
        """Check whether the release is safe together with earlier ones."""
        return [] if self.joint_audit is None else self.joint_audit.checks(manifest, released)

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record the publication; the record is dropped if publishing fails.

        Where release.ledger is false, the ledger still records that another release was replaced.
        """
        audit, search_input, is_recorded = self.joint_audit, self.search_input, self._details is not None
        assert audit is not None  # made by `begin`
        row = _row(self.run_id if is_recorded else UNRECORDED, self.place, manifest)
        if is_recorded:
            extends = None if self.extended is None else self.extended.run_id
            withdrawn = None if self.replaces is None else self.replaces.run_id
            epsilons = {name: noise["epsilon"] for name, noise in (manifest.noise or {}).items()}
            row |= _row_of_source(self.run, manifest, sha256) | {
                "noise": json.dumps(epsilons) if epsilons else None,
                "same_source": audit.history.same_source,
                "after": [run_id for run_id in search_input.earlier.run_ids if run_id != extends],
                "breaks": audit.breaks,
                "extends": extends,
                "withdraws": withdrawn,
                "only_rows_of": withdrawn if self.replaces is not None and self.replaces.only_its_rows else None,
            }
        keep = search_input.policy.retained_versions if is_recorded and self.replaces is None else 1
        path, reach = _find_catalog(search_input)
        return recording(self.run.engine, path, reach, row, keep, audit.history.recorded_releases, self._details)

    def notes(self, digest: str) -> Sequence[str]:
        """The warnings once the release with this digest is published."""
        return () if self.joint_audit is None else self.joint_audit.notes(digest)

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


@dataclass(frozen=True, kw_only=True)
class DraftEntry(NoLedger):
    """The ledger's part in writing a draft: it is not compared with releases, and only its record is written."""

    run: Run
    search_input: SearchInput
    run_id: str
    place: Path
    is_draft: bool = True

    def begin(self) -> None:
        """Refuse to replace a release, in whatever state it is."""
        path, reach = _find_catalog(self.search_input)
        publications = read_ledger(self.run.engine, path, reach).publications
        if published := [publication for publication in publications if publication.path == self.place]:
            raise ReleaseError(
                f"the ledger has a release at {published[-1]}, which a draft does not replace: {PUBLISH_ELSEWHERE}"
            )

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record the draft, unless release.ledger is false."""
        release, after = self.search_input.policy.release, list(self.search_input.earlier.run_ids)
        row = _row(UNRECORDED if release is not None and not release.ledger else self.run_id, self.place, manifest)
        row |= _row_of_source(self.run, manifest, sha256) | {"draft": True, "after": after}
        path, reach = _find_catalog(self.search_input)
        return recording(self.run.engine, path, reach, row, 1, (), None)


def _find_catalog(search_input: SearchInput) -> tuple[Path, Reach]:
    policy = search_input.policy
    assert policy.catalog is not None  # otherwise the ledger is `NoLedger`
    return policy.catalog.database, Reach(policy, search_input.source)


def _row_of_source(run: Run, manifest: Manifest, sha256: str | None) -> dict[str, Any]:
    """The part of a record that identifies the source, the policy and the file."""
    return {
        "sha256": sha256,
        "source": run.identity,
        "policy_hash": manifest.policy_hash,
        "epsilon": manifest.epsilon,
    }


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
    policy, (path, reach) = search_input.policy, _find_catalog(search_input)
    ledger = read_ledger(run.engine, path, reach)
    publications, noise_records = ledger.publications, ledger.spent if policy.noisy_attributes else ()
    records: list[Publication | SpentEpsilon] = [*publications, *noise_records]
    recognition = recognize(run, policy, path, ledger, records, people)
    all_records: list[Publication | SpentEpsilon] = [*publications, *ledger.spent]
    bases = search_input.earlier.run_ids
    of_source = [record for record in publications if recognition.recognizes(record.source) or record.run_id in bases]
    noise_records = [record for record in noise_records if recognition.has_rows_of(record.source)]
    at_target = [record for record in of_source if record.path == target and record.run_id not in bases]
    at_target.sort(key=lambda record: record.version or 1, reverse=True)
    keep = policy.retained_versions
    kept_versions, replaced = at_target[: keep - 1], next(iter(at_target[keep - 1 :]), None)
    folders = {file.parent for file in search_input.source.files}
    folders |= {target.parent} if kind_for_path(target).in_files else set()
    sourced_records = [record for record in records if record.source is not None]
    return SourceHistory(
        earlier=[record for record in of_source if record not in at_target or record in kept_versions],
        replaced=replaced,
        recorded_releases=frozenset((record.run_id, record.path) for record in all_records),
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
            *_warn_of_undecided([record for record in publications if record.source in recognition.undecided_sources]),
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
