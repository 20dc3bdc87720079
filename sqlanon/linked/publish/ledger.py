"""The ledger of linked releases.

A linked release is refused while there is any other release of the same persons unless it replaces that release, or one
of the two can be made from the other: a reader can match the rows of both, and no comparison finds all that the reader
learns. It can be made from the other if both have the same persons with the same rows, and it is nowhere finer: the
finer release, with other keys, gives the coarser one. And it can if it was made so (`earlier`). So all releases of the
same persons can be made from one of them. Releases of one table are refused while there are linked ones, too.

Each table has a record, with the samples of its source, so that the releases of each table recognize it. A run that
dies while it publishes leaves its records as intents, which count as published until another release replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError, ReleaseError
from sqlanon.ledger import catalog
from sqlanon.ledger.people_samples import SourcePeople
from sqlanon.ledger.recording import (
    RecordedDetails,
    delete_replaced_details,
    lock_publications,
    read_ledger,
    settle_intents,
)
from sqlanon.ledger.records import (
    History,
    Publication,
    find_other_catalogs,
    read_current_publications,
    read_or_create_secret,
    warn_of_other_catalogs,
)
from sqlanon.ledger.source_match import recognize, sample_source
from sqlanon.linked.publish.earlier import EarlierRelease, read_recorded_manifest
from sqlanon.linked.publish.recode import LinkedRecoding
from sqlanon.linked.publish.written_rows import digest_at_levels
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest, describe_structure, hash_manifest
from sqlanon.linked.tables import LinkedTable
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy
from sqlanon.publish.targets.base import Reach
from sqlanon.publish.targets.kinds import kind_for_path
from sqlanon.support.expressions import fragment, text

_REASON = "no comparison finds all that a reader of both learns from linked rows"
_EXCEPTION = "unless both have the same persons and rows, and one is nowhere finer than the other, or is made from it"
_OWN_CATALOG = "a separate catalog is safe only if no reader has both"


@dataclass
class LinkedLedger:
    """The ledger's part in the publication of linked tables."""

    records: LinkedRecords
    catalog: Path
    location: Path
    earlier: EarlierRelease | None = None
    """The release that the new one is made from."""
    run_ids: Mapping[str, str] = field(default_factory=dict)
    details: dict[str, RecordedDetails] = field(default_factory=dict)
    persons_digest: str = ""
    _same_person_releases: list[tuple[Publication, str]] = field(default_factory=list)
    _related_exports: list[str] = field(default_factory=list)
    _replaced_releases: list[Publication] = field(default_factory=list)
    _read_publications: frozenset[tuple[str, Path]] = frozenset()

    @property
    def engine(self) -> DuckDBEngine:
        """The engine that opens the catalog."""
        return self.records.tables[0].run.engine

    def find_related_releases(self) -> None:
        """Find other releases of the same persons, and sample the sources."""
        if not self.catalog.exists():
            with catalog.open_catalog(self.engine, self.catalog):
                read_or_create_secret(self.engine)
        history = read_ledger(self.engine, self.catalog, Reach())
        self.run_ids = {table.name: uuid4().hex for table in self.records.tables}
        self._read_publications = frozenset((record.run_id, record.path) for record in history.publications)
        publications = [record for record in history.publications if record.path != self.location]
        self._replaced_releases = [record for record in history.publications if record.path == self.location]
        for table in self.records.tables:
            policy = _policy_with_person(table)
            people = SourcePeople(table.run, policy)
            self._same_person_releases += self._find_same_persons(table, policy, people, history, publications)
            run_id = self.run_ids[table.name]
            sample = sample_source(table.run, policy, history.secret, run_id, table.rows)
            samples = [sample.rows_for(run_id) for sample in people.samples(history.secret)]
            self.details[table.name] = RecordedDetails((), None, sample, None, samples)
        sources = {table.run.identity for table in self.records.tables}
        self._related_exports = [export.table_name for export in history.exports if export.source in sources]

    def warnings(self) -> list[str]:
        """The warnings about the release once it is published: other catalogs with releases of the same tables."""
        runs = [table.run for table in self.records.tables]
        folders = {file.parent for run in runs for file in run.source.files}
        folders |= {self.location.parent} if kind_for_path(self.location).in_files else set()
        catalogs = {
            file
            for run in runs
            for file in find_other_catalogs(self.engine, self.catalog, run.identity, self.location, folders)
        }
        return warn_of_other_catalogs(sorted(catalogs))

    def refuse_related_releases(self, manifest: LinkedManifest, persons_digest: str, recoding: LinkedRecoding) -> None:
        """Refuse the release if another one of the same persons exists, unless one of the two follows from the
        other."""
        self.persons_digest = persons_digest
        refusals = dict[str, str]()
        safe_digests, recodings = {persons_digest}, [recoding]
        # Releases made from an equal release at this place are made from this one, too.
        safe_runs = {record.run_id for record in self._replaced_releases if record.digest == persons_digest}
        if self.earlier is not None:
            safe_digests.add(self.earlier.digest)
            safe_runs |= {*self.earlier.run_ids.values()}
            recodings.append(self.earlier.recoding)
        releases = sorted(self._same_person_releases, key=lambda release: release[0].published_at)
        for record, reason in releases:  # a release follows the one that it is made from
            is_safe = record.linked and (
                record.digest in safe_digests
                or not safe_runs.isdisjoint(record.after)
                or any(self._recodes_to_release(recoding, manifest, record) for recoding in recodings)
            )
            if is_safe:
                safe_digests.add(record.digest)
                safe_runs.add(record.run_id)
            else:
                refusals.setdefault(f"{format_location(record.path)}, of {record.published_at:%Y-%m-%d %H:%M}", reason)
        for name in self._related_exports:
            refusals.setdefault(f"the export {name}", f"it is of the same source; {_REASON}; {_OWN_CATALOG}")
        if refusals:
            raise AuditError([f"together with {release}: {reason}" for release, reason in refusals.items()])

    def _recodes_to_release(self, recoding: LinkedRecoding, manifest: LinkedManifest, record: Publication) -> bool:
        """Whether a recoding gives a recorded release at the levels of that release, if these are all at or below, or
        all at or above, its own levels."""
        levels = self._find_comparable_levels(record, manifest, recoding.levels)
        return levels is not None and digest_at_levels(recoding, manifest, levels) == record.digest

    def _find_comparable_levels(
        self, record: Publication, manifest: LinkedManifest, compared_levels: Sequence[int | None]
    ) -> list[int] | None:
        """The levels of a recorded release with the same tables and columns, if they are all at or below, or all at or
        above, the compared levels; else None."""
        try:
            earlier = read_recorded_manifest([record], self.records.limits)
        except ReleaseError:  # changed, removed, or not readable
            return None
        if describe_structure(earlier.tables) != describe_structure(manifest.tables):
            return None
        pairs = list(zip(earlier.levels.values(), compared_levels, strict=True))
        levels = [(level, new_level) for level, new_level in pairs if level is not None and new_level is not None]
        heights = [attribute.height for attribute in self.records.attributes]
        if len(levels) < len(pairs) or any(level > height for (level, _), height in zip(levels, heights, strict=True)):
            return None
        if any(level < new for level, new in levels) and any(level > new for level, new in levels):
            return None
        return [level for level, _ in levels]

    def _find_same_persons(
        self,
        table: LinkedTable,
        policy: Policy,
        people: SourcePeople,
        history: History,
        publications: Sequence[Publication],
    ) -> Iterator[tuple[Publication, str]]:
        """The releases of the same persons, or perhaps of the same persons, with the reason."""
        recognition = recognize(table.run, policy, self.catalog, history, publications, people)
        uncompared = recognition.same_rows.unknown - recognition.people.compared
        for record in publications:
            kind = "a release of several tables" if record.linked else "a release of one table"
            reason = f"{_REASON}, {_EXCEPTION}" if record.linked else _REASON
            remedy = (
                "publish over it, or name it in [release] after"
                if record.linked
                else "publish either that table or these"
            )
            if record.source is None or record.source in uncompared:
                relation = f"whose source cannot be compared with {table.name!r}"
            elif recognition.recognizes(record.source):
                relation = f"about the persons or rows of {table.name!r}"
            elif record.source in recognition.undecided_sources:
                relation = f"perhaps about the rows of {table.name!r}, which has the same columns"
            else:
                continue
            yield record, f"{kind}, {relation}; {reason}: {remedy}; {_OWN_CATALOG}"

    @contextmanager
    def recording(self, manifest: LinkedManifest, sha256: str | None) -> Iterator[None]:
        """Record the intent to publish; and, if the context succeeds, that all tables are published."""
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        with lock_publications(self.catalog):
            settle_intents(self.engine, self.catalog, Reach())
            with catalog.open_catalog(self.engine, self.catalog):
                other_publications = {
                    (record.run_id, record.path)
                    for record in read_current_publications(self.engine)
                    if record.path != self.location
                }
                if other_publications - self._read_publications:
                    raise ReleaseError("another release was published with this catalog meanwhile: publish again")
                catalog.insert_records(self.engine, "releases", *self._record_rows(manifest, sha256, now))
                for name, run_id in self.run_ids.items():
                    self.details[name].write(self.engine, run_id)
            try:
                yield
            except (ReleaseError, OSError):  # nothing was published
                self._end_intents("DELETE FROM sqlanon_catalog.sqlanon.releases WHERE run_id IN (:runs)")
                raise
            self._end_intents(
                """
                UPDATE sqlanon_catalog.sqlanon.releases SET replaced_at = :now::TIMESTAMP, intended_at = NULL
                WHERE path = :location AND replaced_at IS NULL AND NOT run_id IN (:runs)
                """,
                "UPDATE sqlanon_catalog.sqlanon.releases SET intended_at = NULL WHERE run_id IN (:runs)",
            )

    def _end_intents(self, *statements: str) -> None:
        """End the intents of the tables."""
        values: dict[str, Any] = {
            "runs": [text(run_id) for run_id in self.run_ids.values()],
            "now": str(datetime.now(timezone.utc).replace(tzinfo=None)),
            "location": str(self.location),
        }
        with catalog.open_catalog(self.engine, self.catalog):
            for statement in statements:
                used = {name: value for name, value in values.items() if f":{name}" in statement}
                self.engine.execute(fragment(statement)(**used))
            delete_replaced_details(self.engine)

    def _record_rows(self, manifest: LinkedManifest, sha256: str | None, now: datetime) -> list[dict[str, Any]]:
        return [
            {
                "run_id": self.run_ids[claims.name],
                "published_at": manifest.published_at,
                "path": str(self.location),
                "table_name": claims.name,
                "released_rows": claims.released_rows,
                "digest": self.persons_digest,
                "source": self.records.table(claims.name).run.identity,
                "policy_hash": manifest.policy_hash,
                "manifest_hash": hash_manifest(manifest),
                "version": manifest.version,
                "sha256": sha256,
                "intended_at": now,
                "linked": True,
                "after": None if self.earlier is None else [self.earlier.run_ids[claims.name]],
            }
            for claims in manifest.tables
        ]


def _policy_with_person(table: LinkedTable) -> Policy:
    """The policy of a table with the column of its persons, if it names them by one column."""
    columns: list[str] = []
    if table.parent is None:
        columns = table.key
    else:
        columns = next(
            (table.columns_naming(owner) for owner in (table.parent, *table.ancestors) if owner.is_person_table), []
        )
    if len(columns) != 1:
        return table.policy
    source = table.policy.source.model_copy(update={"person": columns[0]})
    return table.policy.model_copy(update={"source": source})
