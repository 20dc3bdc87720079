"""The stages audit and publish: a release is staged, counted, audited, and committed.

Readers see the earlier release until the commit. A run that dies after it has recorded its intent leaves the intent in
the ledger, and the next run completes or removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.errors import AuditError, OvertakenError
from sqlanon.publish.targets.base import Draft, ReleaseTarget, Staged
from sqlanon.release.manifest import Manifest
from sqlanon.support.checks import Check
from sqlanon.support.expressions import create_table, select_star

ATTEMPTS = 5
"""Maximum number of attempts while other runs publish to the same target."""


class Ledger(Protocol):
    """The ledger as one publication uses it."""

    @property
    def held_against(self) -> Sequence[Path]:
        """The locations of the earlier releases that the release was compared with."""

    @property
    def queries(self) -> Sequence[str]:
        """Queries for the rows that are the reason of a refusal."""

    def begin(self) -> None:
        """Read the releases that have been published until now."""

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        """Refuse to keep versions that are not in the ledger, because they were not compared."""

    def checks(self, manifest: Manifest, released: exp.Table) -> Sequence[Check]:
        """Check that the release is safe together with earlier ones."""

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record an intent; on exit record the publication, or remove the intent if it failed."""

    def notes(self, digest: str) -> Sequence[str]:
        """Warnings about the published release with this digest."""


NOT_COMPARED = (
    "the policy has no catalog: this release was not compared with earlier ones of its source, and later ones will not "
    "be compared with it; set [catalog] database (in Python catalog={'database': ...})"
)


@dataclass(frozen=True)
class NoLedger:
    """The ledger of a run without a catalog: nothing is compared or recorded, and a policy keeps one version."""

    is_draft: bool = False
    held_against: Sequence[Path] = ()
    queries: Sequence[str] = ()

    def begin(self) -> None:
        pass

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        pass

    def checks(self, manifest: Manifest, released: exp.Table) -> Sequence[Check]:
        return ()

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        return nullcontext()

    def notes(self, digest: str) -> Sequence[str]:
        return () if self.is_draft else (NOT_COMPARED,)  # drafts are never compared


def publish(target: ReleaseTarget, draft: Draft, ledger: Ledger, attempts: int = ATTEMPTS) -> Any:
    """Publish a release; try again if another run has published in the meantime."""
    for remaining in reversed(range(attempts)):
        try:
            return _publish_once(target, draft, ledger)
        except OvertakenError:
            if not remaining:
                raise
    raise AssertionError("at least one attempt")


def _publish_once(target: ReleaseTarget, draft: Draft, ledger: Ledger) -> Any:
    ledger.begin()
    with target.stage(draft) as staged:
        ledger.refuse_unknown_versions(staged.kept_manifests)
        manifest = draft.manifest(target.table_name, target.facts(staged))
        audit(staged, manifest, draft, ledger)
        with staged.lock(), ledger.recording(manifest, staged.sha256):
            return target.commit(staged, manifest)


def copy_audited_rows(target: ReleaseTarget, draft: Draft, rows: exp.Table) -> exp.Table:
    """Audit a release and copy its rows to a table of the source's engine, without publishing it."""
    with target.stage(draft) as staged:
        audit(staged, draft.manifest(target.table_name, target.facts(staged)), draft, NoLedger())
        with staged.rows() as released:
            draft.run.engine.execute(create_table(rows, select_star(released)))
    return rows


def audit(staged: Staged, manifest: Manifest, draft: Draft, ledger: Ledger) -> None:
    """Complete a staged release and check it: alone, against its source and run, and against earlier releases."""
    with staged.rows() as released:
        checks = [*draft.checks(released), *ledger.checks(manifest, released)]
        suppressed = draft.suppressed_by_label(released)
    verification = _merge_checks(staged.complete(manifest, suppressed), checks)
    if failures := [*verification.failures, *find_mismatches(verification.manifest, manifest, draft)]:
        raise AuditError(failures, ledger.queries)


def _merge_checks(verification: Verification, checks: Sequence[Check]) -> Verification:
    """Add checks to a verification; they replace checks with the same name, which need the source."""
    by_name = {check.name: check for check in checks}
    merged = [by_name.pop(check.name, check) for check in verification.checks]
    return replace(verification, checks=(*merged, *by_name.values()))


def find_mismatches(manifest: Manifest, expected_manifest: Manifest, draft: Draft) -> list[str]:
    """Compare the written release with the run, to detect lost or added rows."""
    failures, expected = [], draft.expected_figures
    if manifest != expected_manifest:
        failures.append("the manifest in the file is not the one that was written")
    if manifest.released_rows != expected.rows:
        failures.append(f"{manifest.released_rows} rows are in the release (expected: {expected.rows})")
    if expected.digest not in (None, manifest.digest):
        failures.append("the rows are not those of the release that is extended, with the new ones")
    # Masked rows form a separate class, or enlarge a class with the same labels.
    form_class = bool(expected.masked_rows) and manifest.classes == expected.classes + 1
    smallest = min(expected.smallest_class, expected.masked_rows) if form_class else expected.smallest_class
    enlarge_class = expected.masked_rows and not form_class
    has_smallest_class = manifest.fewest_rows == smallest or enlarge_class
    if manifest.classes != expected.classes + form_class or not has_smallest_class:
        failures.append(
            f"{manifest.classes} classes, the smallest of {manifest.fewest_rows} rows, are in the release; the search "
            f"found {expected.classes}, the smallest of {expected.smallest_class}; has the source changed since?"
        )
    if manifest.columns != draft.columns():
        failures.append("the columns are not those of the policy")
    return failures
