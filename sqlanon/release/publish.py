"""The stages audit and publish: a release is staged, counted, audited, and put in its place.

Until the last step, readers see the earlier release. A run that dies between recording its intent and the end of
`ReleaseTarget.commit` leaves the intent, and the next run completes or removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.errors import AuditError, OvertakenError
from sqlanon.release.manifest import Manifest
from sqlanon.release.targets.base import Draft, Published, ReleaseTarget, Staged, Verification
from sqlanon.support.expressions import create_table, star

ATTEMPTS = 5
"""The number of attempts if other runs publish at the same time."""


AnyRelease = TypeVar("AnyRelease", bound=Published)


class Ledger(Protocol):
    """The part of the ledger in one publication."""

    @property
    def held_against(self) -> Sequence[Path]:
        """The places of the earlier releases that it was compared with."""
        ...

    @property
    def queries(self) -> Sequence[str]:
        """SQL that lists the rows for which it is refused."""
        ...

    def begin(self) -> None:
        """Read what has been published by now."""
        ...

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        """Refuse to keep versions in the place that it does not know: they were not compared."""
        ...

    def checks(self, manifest: Manifest, released: exp.Table) -> Sequence[Check]:
        """Whether the release is safe beside earlier ones."""
        ...

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record the publication: as an intent, then for good, or not at all if it fails."""
        ...

    def notes(self, digest: str) -> Sequence[str]:
        """Warnings after the release with this digest is published."""
        ...


NOT_COMPARED = (
    "the policy has no catalog: this release was not compared with earlier ones of its source, and later ones will not "
    "be compared with it; set [catalog] database (in Python catalog={'database': ...})"
)


@dataclass(frozen=True)
class NoLedger:
    """The ledger of a run without a catalog: it compares and records nothing, and says so of a release."""

    is_draft: bool = False
    held_against: Sequence[Path] = ()
    queries: Sequence[str] = ()

    def begin(self) -> None:
        """Read nothing."""

    def refuse_unknown_versions(self, kept: Sequence[Manifest]) -> None:
        """Refuse nothing: without a ledger, a policy keeps one version."""

    def checks(self, manifest: Manifest, released: exp.Table) -> Sequence[Check]:
        """Compare nothing."""
        return ()

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Record nothing."""
        return nullcontext()

    def notes(self, digest: str) -> Sequence[str]:
        """Warn that nothing is known of other releases; a draft is compared with none in any case."""
        return () if self.is_draft else (NOT_COMPARED,)


def publish(
    target: ReleaseTarget[Any, AnyRelease], draft: Draft, ledger: Ledger, attempts: int = ATTEMPTS
) -> AnyRelease:
    """Publish a release; try again if another run published at the same time."""
    for left in reversed(range(attempts)):
        try:
            return _publish_once(target, draft, ledger)
        except OvertakenError:
            if not left:
                raise
    raise AssertionError("at least one attempt")


def _publish_once(target: ReleaseTarget[Any, AnyRelease], draft: Draft, ledger: Ledger) -> AnyRelease:
    ledger.begin()
    with target.stage(draft) as staged:
        ledger.refuse_unknown_versions(staged.kept_manifests)
        manifest = draft.manifest(target.table_name, target.facts(staged))
        audit(staged, manifest, draft, ledger)
        with staged.lock(), ledger.recording(manifest, staged.sha256):
            return target.commit(staged, manifest)


def copy_audited_rows(target: ReleaseTarget[Any, Any], draft: Draft, rows: exp.Table) -> exp.Table:
    """Copy the rows of an audited release to a table beside its source, without publishing it."""
    with target.stage(draft) as staged:
        audit(staged, draft.manifest(target.table_name, target.facts(staged)), draft, NoLedger())
        with staged.rows() as released:
            draft.run.engine.execute(create_table(rows, star(released)))
    return rows


def audit(staged: Staged, manifest: Manifest, draft: Draft, ledger: Ledger) -> None:
    """Complete a staged release and check it: alone, with its source, and against the run and earlier releases."""
    with staged.rows() as released:
        checks = [*draft.checks(released), *ledger.checks(manifest, released)]
        suppressed = draft.suppressed_by_label(released)
    verification = with_checks(staged.complete(manifest, suppressed), checks)
    if failures := [*verification.failures, *find_mismatches(verification.manifest, manifest, draft)]:
        raise AuditError(failures, ledger.queries)


def with_checks(verification: Verification, checks: Sequence[Check]) -> Verification:
    """Replace checks that are not verifiable alone by those with the source."""
    seen = {check.name: check for check in checks}
    alone = {check.name for check in verification.checks}
    merged = [seen.get(check.name, check) for check in verification.checks]
    return replace(verification, checks=(*merged, *(check for name, check in seen.items() if name not in alone)))


def find_mismatches(found: Manifest, written: Manifest, draft: Draft) -> list[str]:
    """Compare the release with the run: no row was lost or added."""
    failures, expected = [], draft.expected_figures
    if found != written:
        failures.append("the manifest in the file is not the one that was written")
    if found.released_rows != expected.rows:
        failures.append(f"{found.released_rows} rows are in the release (expected: {expected.rows})")
    if expected.digest not in (None, found.digest):
        failures.append("the rows are not those of the release that is extended, with the new ones")
    own = 1 if expected.masked_rows and found.classes == expected.classes + 1 else 0
    smallest = min(expected.smallest_class, expected.masked_rows) if own else expected.smallest_class
    merged = expected.masked_rows and not own  # the masked rows read like a kept class, which is larger for it
    if found.classes != expected.classes + own or (found.fewest_rows != smallest and not merged):
        failures.append(
            f"{found.classes} classes, the smallest of {found.fewest_rows} rows, are in the release; the search "
            f"found {expected.classes}, the smallest of {expected.smallest_class}; has the source changed since?"
        )
    if found.columns != draft.columns():
        failures.append("the columns are not those of the policy")
    return failures
