"""One publication as the ledger sees it: what it is compared with, and what is written down of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.expressions import named, select, subquery, union_all
from sqlanon.hierarchies import Hierarchy
from sqlanon.ledger.earlier import Earlier
from sqlanon.ledger.joint_audit import JointAudit, held_against, released_row
from sqlanon.ledger.recording import recording, recording_replaced, secret_of
from sqlanon.ledger.source_match import sample_of
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.release.target import Reach
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.earlier import KEY_HASH, key_hash
from sqlanon.sources.run import Run


@dataclass
class LedgerEntry:
    """What the ledger has to do with a release that goes to a place: a `sqlanon.release.publish.Ledger`.

    ``keyed`` has the released rows with their keys, and ``hashed`` keys that the ledger has already. Of a release that
    is extended, ``extends`` is the run that it is of, ``opened`` has it, ``trees`` are its hierarchies with those of
    now, and ``row_of_run`` is the row of this run. ``joint_audit`` is what the release was compared with.
    """

    run: Run
    prepared: SearchInput
    run_id: str
    place: Path
    source_rows: int
    force: bool = False
    keyed: exp.Query | None = None
    hashed: exp.Query | None = None
    trees: Sequence[Hierarchy] | None = None
    extends: str | None = None
    opened: Mapping[str, Earlier] = field(default_factory=dict)
    row_of_run: dict[str, Any] | None = None
    joint_audit: JointAudit | None = None
    _sample: exp.Query | None = None
    _keys: exp.Query | None = None

    def begin(self) -> None:
        """Look at what was published by now; and take what the ledger keeps of the source, before a server is busy with
        the release."""
        self.joint_audit = held_against(self.run, self.prepared, self.place, self.force, self.run_id, self.opened)
        if (path := self._ledger) is not None:
            self._sample = sample_of(self.run, self.prepared.policy, path, self.run_id, self.source_rows)
            self._keys = self._key_hashes(path)

    def checks(self, manifest: Manifest, released: exp.Table) -> list[Check]:
        """Whether the release is safe beside earlier ones."""
        return [] if self.joint_audit is None else self.joint_audit.checks(manifest, released)

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Write down what is about to be published; for good at the end, and not at all if it comes to nothing."""
        run, prepared, policy = self.run, self.prepared, self.prepared.policy
        if policy.catalog is None:
            return nullcontext()
        path, reach = policy.catalog.database, Reach(policy, prepared.source)
        if self._ledger is None:
            return recording_replaced(run.engine, path, self.place, manifest, reach)
        after = [run_id for run_id in prepared.earlier.after if run_id != self.extends]
        row = released_row(self.run_id, self.place, manifest, sha256, run.identity, after, self.joint_audit)
        if self.extends is not None:
            row["extends"] = self.extends
        known = frozenset() if self.joint_audit is None else self.joint_audit.known
        trees = prepared.own_hierarchies if self.trees is None else self.trees
        keep = 1 if policy.release is None else policy.release.keep
        return recording(run.engine, path, row, reach, self._keys, trees, known, keep, self._sample, self.row_of_run)

    def _key_hashes(self, path: Path) -> exp.Query | None:
        """The hashes of the keys of the released rows."""
        if self.keyed is None:
            return None
        hashed = named(key_hash(self.prepared.columns.key, secret_of(self.run.engine, path)), KEY_HASH)
        new = select([hashed], subquery(self.keyed, "released"))
        return new if self.hashed is None else union_all(new, self.hashed)

    @property
    def _ledger(self) -> Path | None:
        """The catalog, where it records the release."""
        section, catalog = self.prepared.policy.release, self.prepared.policy.catalog
        return None if catalog is None or (section is not None and not section.ledger) else catalog.database
