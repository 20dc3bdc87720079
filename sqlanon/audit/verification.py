"""The verification of a release: all its checks, and the claims that cannot be checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlanon.disclosure.residual_risk import ResidualRisk
from sqlanon.places.addresses import format_location
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.source_change import SourceChange
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.markup import html_table
from sqlanon.support.resources import __version__

CLAIMS = ("published_at", "sqlanon_version", "engine", "version", "policy_hash", "rows", "suppressed_rows", "optimal")
"""Manifest fields that cannot be checked against the rows: a forger can replace them by other consistent values."""


@dataclass(frozen=True)
class Verification:
    """All checks of a release.

    Attributes
    ----------
    path, manifest, checks:
        The release, its manifest, and the checks.
    digest:
        The content digest of the rows.
    suppressed:
        The suppressed rows by label, or None.
    sha256:
        The SHA-256 of the file, if it was just published.
    residual_risk:
        The most serious remaining disclosure in the rows, such as homogeneous classes; None if there is none, or if it
        was not measured.
    source_change:
        The changes of the source since publication, if the release itself is unchanged; else None.
    is_file:
        Whether the release is a file.
    """

    path: Path
    manifest: Manifest
    checks: tuple[Check, ...]
    digest: str
    suppressed: SuppressedRows | None = None
    sha256: str | None = None
    residual_risk: ResidualRisk | None = None
    source_change: SourceChange | None = None
    is_file: bool = False

    @property
    def verified(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def claims(self) -> tuple[str, ...]:
        """The manifest fields that could not be checked; empty if the SHA-256 of a file matches."""
        names = {check.name for check in self.checks if check.passed}
        is_published_file = "sha256" in names or (self.is_file and "against the ledger: sha256" in names)
        return () if is_published_file else CLAIMS

    @property
    def failures(self) -> tuple[str, ...]:
        """The failed checks, with their messages."""
        return tuple(f"{check.name}: {check.message}" for check in self.checks if check.passed is False)

    def _repr_html_(self) -> str:
        """Render the checks as a table for notebooks."""
        results = {True: "ok", False: "FAILED", None: "not verifiable alone"}
        rows = [(check.name, results[check.passed], check.message) for check in self.checks]
        verdict = "verified" if self.verified else "NOT verified"
        return html_table(f"{format_location(self.path)}: {verdict}", ["check", "result", "what was found"], rows)

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if check.passed is False]
        summary = f"failed={failed}" if failed else f"checks={len(self.checks)}"
        return f"Verification({format_location(self.path)!r}, verified={self.verified}, {summary})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "release": format_location(self.path),
            "table": self.manifest.table_name if self.is_file else self.path.name,
            "verified": self.verified,
            **({"draft": True} if self.manifest.draft else {}),
            **({} if self.source_change is None else {"source_change": self.source_change.to_dict()}),
            "checks": [vars(check) for check in self.checks],
            "claims": list(self.claims),
        }


def check_wording(name: str, changes: Iterable[str], message: str, manifest: Manifest) -> Check:
    """A check of the texts that a release derives from its manifest.

    Another version of sqlanon may word them differently: then a difference proves nothing.
    """
    check = check_faults(name, changes, message)
    if check.passed or manifest.sqlanon_version == __version__:
        return check
    message = f"{check.message}; the manifest says that sqlanon {manifest.sqlanon_version} wrote them, and this is "
    return Check(name, None, f"{message}{__version__}: they may be somebody else's, do not rely on them")
