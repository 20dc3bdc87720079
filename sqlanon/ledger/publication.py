"""One publication as the ledger sees it: what it is compared with, and what is written down of it."""

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
from sqlanon.policy import format_location
from sqlanon.release.draft import ReplacedRelease
from sqlanon.release.manifest import Manifest
from sqlanon.release.targets.base import ANOTHER_PLACE, Reach, kind_for_path
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.expressions import col, is_there, named, select, subquery, union_all


@dataclass(frozen=True)
class ExtensionRecord:
    """The release that another one extends, by its run; ``trees`` are its hierarchies with those of now, ``hashed`` the
    keys that the ledger has of it, and ``row_of_run`` is the row of the run that extends it."""

    run_id: str
    trees: Sequence[Hierarchy]
    hashed: exp.Query
    row_of_run: dict[str, Any]


@dataclass
class LedgerEntry:
    """What the ledger has to do with a release that goes to a place: a `sqlanon.release.publish.Ledger`.

    ``keyed`` has the released rows with their keys, and ``peopled`` those with their persons, where the policy names
    these. ``noise_ranges`` has the classes with the ranges of their noise. ``joint_audit`` is what the release was
    compared with. ``replaces`` is the release that it replaces without rows that have left the source: readers may have
    a copy of it, and so it is compared with it, too.
    """

    run: Run
    prepared: SearchInput
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
        """The places of the earlier releases that it was compared with."""
        return () if self.joint_audit is None else tuple(one.path for one in self.joint_audit.earlier)

    @property
    def queries(self) -> Sequence[str]:
        """SQL that lists the rows for which it is refused."""
        return () if self.joint_audit is None else self.joint_audit.queries

    def begin(self) -> None:
        """Look at what was published by now; and take what the ledger keeps of the source, before a server is busy with
        the release."""
        policy, extended = self.prepared.policy, self.extended
        assert policy.catalog is not None  # else it would be `NoLedger`
        if not policy.catalog.database.exists():  # removed since the run was recorded
            with open_catalog(self.run.engine, policy.catalog.database):
                read_or_create_secret(self.run.engine)
        people = SourcePeople(self.run, policy)
        known = read_source_history(self.run, self.prepared, self.place, self.run_id, people)
        if extended is not None:
            # An extension has the rows of that release, unchanged, and classes of at least k new rows each
            # (`ExtensionDraft.checks` counts both): a reader of the two can tell no fewer apart.
            known = replace(known, earlier=[one for one in known.earlier if one.run_id != extended.run_id])
        if self.replaces is not None:
            known = replace(
                known, earlier=[*known.earlier, *([known.replaced] if known.replaced else [])], replaced=None
            )
            if self.replaces.run_id not in {one.run_id for one in known.earlier}:
                raise ReleaseError(f"{self.place} was replaced meanwhile: withdraw from the release that is there now")
        withdraws = None if self.replaces is None else self.replaces.run_id
        is_extension, ranges = extended is not None, self._make_noise_ranges()
        self.joint_audit = JointAudit(
            self.run,
            self.prepared,
            self.place,
            known,
            self.force,
            is_extension,
            withdraws=withdraws,
            noise_ranges=ranges,
        )
        if policy.release is not None and not policy.release.ledger:
            return
        sample = sample_source(self.run, policy, known.secret, self.run_id, self.source_rows)
        trees = self.prepared.policy_hierarchies if extended is None else extended.trees
        row_of_run = None if extended is None else extended.row_of_run
        samples = [one.rows_for(self.run_id) for one in people.samples(known.secret)]
        kept = RecordedDetails(trees, self._key_hashes(known.secret), sample, row_of_run)
        hashes = self._person_hashes(known.secret)
        self._kept = replace(kept, people=samples, released_people=hashes, noise_ranges=ranges)

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        """Refuse to keep versions in the place that are not recorded as they are: they were not compared."""
        if not kept:
            return
        policy = self.prepared.policy
        assert policy.catalog is not None
        known = read_ledger(self.run.engine, policy.catalog.database, Reach(policy, self.prepared.source))
        recorded = {(each.version, each.manifest_hash) for each in known.publications if each.path == self.place}
        unknown = [each.rows_table for each in kept if (each.version, each.fingerprint()) not in recorded]
        if unknown:
            raise ReleaseError(
                f"{self.place} has {' and '.join(sorted(unknown))}, which release.keep = {policy.retained_versions} "
                f"would keep and the catalog {policy.catalog.database} does not have: it was not compared with this "
                "release, and a reader of both may single out whoever came or left in between. Set [catalog] database "
                "to the catalog that recorded it; or publish to another place, with --output; or set keep = 1, which "
                "is safe only if nobody has a copy of it"
            )

    def checks(self, manifest: Manifest, released: exp.Table) -> list[Check]:
        """Whether the release is safe beside earlier ones."""
        return [] if self.joint_audit is None else self.joint_audit.checks(manifest, released)

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Write down what is about to be published; for good at the end, and not at all if it comes to nothing.

        Where the ledger is not to know the release, it still is to know that another one is gone.
        """
        policy, audit = self.prepared.policy, self.joint_audit
        assert policy.catalog is not None  # else it would be `NoLedger`
        assert audit is not None  # it has begun
        row = _row(self.run_id if self._kept is not None else UNRECORDED, self.place, manifest)
        if self._kept is not None:
            extends = None if self.extended is None else self.extended.run_id
            withdrawn = None if self.replaces is None else self.replaces.run_id
            row |= {
                "sha256": sha256,
                "source": self.run.identity,
                "policy_hash": manifest.policy_hash,
                "epsilon": manifest.epsilon,
                "noise": manifest.noise and json.dumps({name: one["epsilon"] for name, one in manifest.noise.items()}),
                "same_source": audit.history.same_source,
                "after": [run_id for run_id in self.prepared.earlier.run_ids if run_id != extends],
                "breaks": audit.breaks,
                "extends": extends,
                "withdraws": withdrawn,
                "only_rows_of": withdrawn if self.replaces is not None and self.replaces.only_its_rows else None,
            }
        keep = 1 if self._kept is None or self.replaces is not None else policy.retained_versions
        path, reach = policy.catalog.database, Reach(policy, self.prepared.source)
        return recording(self.run.engine, path, reach, row, keep, audit.history.known, self._kept)

    def notes(self, digest: str) -> Sequence[str]:
        """What to warn of, once the release with a digest is published."""
        return () if self.joint_audit is None else self.joint_audit.notes(digest)

    def _make_noise_ranges(self) -> exp.Table | None:
        if self.noise_ranges is None:
            return None
        return make_noise_ranges(self.run, self.noise_ranges, self.prepared)

    def _person_hashes(self, secret: str) -> exp.Query | None:
        person = self.prepared.columns.person
        if self.peopled is None or person is None:
            return None
        hashed = person_hash(col(person), self.prepared.source.columns[person], secret)
        people = select([named(hashed, "person")], subquery(self.peopled, "released"))
        return people.where(is_there(col(person)), copy=False).distinct()

    def _key_hashes(self, secret: str) -> exp.Query | None:
        if self.keyed is None:
            return None
        hashed = named(key_hash(self.prepared.columns.key, secret), KEY_HASH)
        new = select([hashed], subquery(self.keyed, "released"))
        return new if self.extended is None else union_all(new, self.extended.hashed)


@dataclass(frozen=True)
class DraftEntry:
    """What the ledger has to do with a draft that goes to a place: a `sqlanon.release.publish.Ledger`.

    It is compared with nothing, and only its row is written down: what is out can be told from releases.
    """

    run: Run
    prepared: SearchInput
    run_id: str
    place: Path
    held_against: Sequence[Path] = ()
    queries: Sequence[str] = ()

    def begin(self) -> None:
        """Refuse to take the place of a release, in whatever state that is."""
        policy = self.prepared.policy
        assert policy.catalog is not None  # else it would be `NoLedger`
        known = read_ledger(self.run.engine, policy.catalog.database, Reach(policy, self.prepared.source))
        if there := [one for one in known.publications if one.path == self.place]:
            raise ReleaseError(
                f"the ledger has a release at {there[-1]}, which a draft does not replace: {ANOTHER_PLACE}"
            )

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        """Refuse nothing: a draft keeps no versions."""

    def checks(self, manifest: Manifest, released: exp.Table) -> list[Check]:
        """Compare it with nothing."""
        return []

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Write down that it is about to be there; and that it is, unless the ledger is not to know it."""
        policy = self.prepared.policy
        assert policy.catalog is not None
        row = _row(self.run_id, self.place, manifest) | {
            "draft": True,
            "sha256": sha256,
            "source": self.run.identity,
            "policy_hash": manifest.policy_hash,
            "epsilon": manifest.epsilon,
            "after": list(self.prepared.earlier.run_ids),
        }
        if policy.release is not None and not policy.release.ledger:
            row["run_id"] = UNRECORDED
        reach = Reach(policy, self.prepared.source)
        return recording(self.run.engine, policy.catalog.database, reach, row, 1, (), None)

    def notes(self, digest: str) -> Sequence[str]:
        """Warn of nothing."""
        return ()


def _row(run_id: str, place: Path, manifest: Manifest) -> dict[str, Any]:
    """What the ledger has of anything that is published."""
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
    run: Run, prepared: SearchInput, target: Path, run_id: str, people: SourcePeople
) -> SourceHistory:
    """The releases that stand of a source, and those that a new one is based on; those that it replaces apart."""
    policy = prepared.policy
    assert policy.catalog is not None
    path = policy.catalog.database
    found = read_ledger(run.engine, path, Reach(policy, prepared.source))
    known, noisy = found.publications, found.spent if policy.noisy_attributes else ()
    everything: list[Publication | SpentEpsilon] = [*known, *noisy]
    recognition = recognize(run, policy, path, found, everything, people)
    of_source = [one for one in known if recognition.recognizes(one.source) or one.run_id in prepared.earlier.run_ids]
    noisy = [one for one in noisy if recognition.has_rows_of(one.source)]
    in_place = [one for one in of_source if one.path == target and one.run_id not in prepared.earlier.run_ids]
    in_place.sort(key=lambda one: one.version or 1, reverse=True)
    keep = policy.retained_versions
    kept, replaced = in_place[: keep - 1], next(iter(in_place[keep - 1 :]), None)
    folders = {file.parent for file in prepared.source.files}
    folders |= {target.parent} if kind_for_path(target).in_files else set()
    others = [one for one in everything if one.source is not None]
    return SourceHistory(
        earlier=[one for one in of_source if one not in in_place or one in kept],
        replaced=replaced,
        known=frozenset([*((one.run_id, one.path) for one in known), *((one.run_id, one.path) for one in found.spent)]),
        spent=[one for one in noisy if one.run_id != run_id],  # published twice, a result shows the same noise
        other_catalogs=find_other_catalogs(run.engine, path, run.identity, target, folders),
        shares=recognition.shares,
        people=recognition.people.shared,
        most_rows=max((one.most_rows for one in people.samples(found.secret) if one.is_person), default=1),
        most_rows_before=read_most_rows_per_person(run.engine, path),
        same_source=next((one.same_source or one.source for one in others if one.source in recognition.shares), None),
        notes=[
            *recognition.same_rows.warn(recognition.people.compared),
            *_undecided([one for one in known if one.source in recognition.undecided]),
            *([] if people.why is None else [f"people of the source cannot be compared with others: {people.why}"]),
            *warn_of_uncompared_exports(found.exports),
        ],
        secret=found.secret,
    )


def _undecided(publications: Sequence[Publication]) -> list[str]:
    """The warning about releases whose sources may have the same rows."""
    if not publications:
        return []
    newest, more = publications[-1], len(publications) - 1
    others = f" (and {more} more)" if more else ""
    return [
        f"{format_location(newest.path)}{others} may be a release of the same people: its source has the same columns "
        "and about as many rows. The two were not compared, because too few rows are unique to recognize them. If they "
        "are the same people, give both policies the same [source], or compare the files with sqlanon attack"
    ]
