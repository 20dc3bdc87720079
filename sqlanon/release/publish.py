"""The stages audit and publish: a release is staged, counted, audited, and put in its place while the ledger knows.

Until the last step readers see what was there before. A run that dies between the intent in the ledger and the end of
`ReleaseTarget.commit` leaves the intent, and the next run looks what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlglot import exp

from sqlanon.errors import AuditError, OvertakenError
from sqlanon.expressions import create_table, star
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.release.target import Draft, Published, ReleaseTarget, Staged, Verification

ATTEMPTS = 5
"""A release is made again, where another run has published meanwhile, at most so often."""


AnyRelease = TypeVar("AnyRelease", bound=Published)


class Ledger(Protocol):
    """What the ledger has to do with one publication."""

    @property
    def held_against(self) -> Sequence[Path]:
        """The places of the earlier releases that it was compared with."""
        ...

    @property
    def queries(self) -> Sequence[str]:
        """SQL that lists the rows for which it is refused."""
        ...

    def begin(self) -> None:
        """Look at what was published by now."""
        ...

    def checks(self, manifest: Manifest, released: exp.Table) -> Sequence[Check]:
        """Whether the release is safe beside earlier ones."""
        ...

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Write down what is about to be published; for good at the end, and not at all if it comes to nothing."""
        ...

    def notes(self, digest: str) -> Sequence[str]:
        """What to warn of, once the release with a digest is published."""
        ...


class NoLedger:
    """Of a run without a catalog: there is nothing to compare its release with, and nothing to write down."""

    held_against: Sequence[Path] = ()
    queries: Sequence[str] = ()

    def begin(self) -> None:
        """Look at nothing."""

    def checks(self, manifest: Manifest, released: exp.Table) -> Sequence[Check]:
        """Compare the release with nothing."""
        return ()

    def recording(self, manifest: Manifest, sha256: str | None) -> AbstractContextManager[None]:
        """Write down nothing."""
        return nullcontext()

    def notes(self, digest: str) -> Sequence[str]:
        """Warn of nothing."""
        return ()


def publish(
    target: ReleaseTarget[Any, AnyRelease], draft: Draft, ledger: Ledger, attempts: int = ATTEMPTS
) -> AnyRelease:
    """Publish a release; once more, beside what there is by then, where another run has published meanwhile."""
    for left in reversed(range(attempts)):
        try:
            return _put_once(target, draft, ledger)
        except OvertakenError:
            if not left:
                raise
    raise AssertionError("at least one attempt")


def _put_once(target: ReleaseTarget[Any, AnyRelease], draft: Draft, ledger: Ledger) -> AnyRelease:
    ledger.begin()
    with target.stage(draft) as staged:
        manifest = draft.manifest(target.table_name, target.facts(staged))
        audit(staged, manifest, draft, ledger)
        with staged.alone(), ledger.recording(manifest, staged.sha256):
            return target.commit(staged, manifest)


def audited_rows(target: ReleaseTarget[Any, Any], draft: Draft, rows: exp.Table) -> exp.Table:
    """Copy the rows of a release that passes the audit to a table beside its source; nothing is published."""
    with target.stage(draft) as staged:
        audit(staged, draft.manifest(target.table_name, target.facts(staged)), draft, NoLedger())
        with staged.rows() as released:
            draft.run.engine.execute(create_table(rows, star(released)))
    return rows


def audit(staged: Staged, manifest: Manifest, draft: Draft, ledger: Ledger) -> None:
    """Complete a staged release and check it: alone, with its source, beside earlier releases, and by the figures of
    the run."""
    with staged.rows() as released:
        checks = [*draft.checks(released), *ledger.checks(manifest, released)]
        suppressed = draft.suppressed_by(released)
    verification = with_checks(staged.complete(manifest, suppressed), checks)
    if failures := [*verification.failures, *against_the_run(verification.manifest, manifest, draft)]:
        raise AuditError(failures, ledger.queries)


def with_checks(verification: Verification, checks: Sequence[Check]) -> Verification:
    """A verification in which the checks with the source replace those that could not be made without it."""
    seen = {check.name: check for check in checks}
    alone = {check.name for check in verification.checks}
    merged = [seen.get(check.name, check) for check in verification.checks]
    return replace(verification, checks=(*merged, *(check for name, check in seen.items() if name not in alone)))


def against_the_run(found: Manifest, written: Manifest, draft: Draft) -> list[str]:
    """What the run knows and the release alone cannot show: that no row was lost or added."""
    failures, expected = [], draft.expected
    if found != written:
        failures.append("the manifest in the file is not the one that was written")
    if found.released_rows != expected.rows:
        failures.append(f"{found.released_rows} rows are in the release (expected: {expected.rows})")
    own = 1 if expected.masked_rows and found.classes == expected.classes + 1 else 0
    smallest = min(expected.smallest_class, expected.masked_rows) if own else expected.smallest_class
    merged = expected.masked_rows and not own  # the masked rows read like a kept class, which is larger for it
    if found.classes != expected.classes + own or (found.smallest_class != smallest and not merged):
        failures.append(
            f"{found.classes} classes, the smallest of {found.smallest_class} rows, are in the release; the search "
            f"found {expected.classes}, the smallest of {expected.smallest_class}; has the source changed since?"
        )
    if found.columns != draft.columns():
        failures.append("the columns are not those of the policy")
    return failures
