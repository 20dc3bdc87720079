"""Checks of a release: their results, for the audit, the ledger and readers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

SOURCE_PREFIX = "against the source: "
"""Prefix of the names of checks against the source."""


@dataclass(frozen=True)
class Check:
    """One check of a release: its name, whether it passed (None: not verifiable alone), and what was found."""

    name: str
    passed: bool | None
    message: str

    def as_unverifiable(self, reason: str) -> Check:
        return replace(self, passed=None, message=f"not verifiable alone: {reason}, {self.message}")


def check_faults(name: str, faults: Iterable[str], message: str) -> Check:
    """A check that fails with the faults, or passes with ``message`` if there are none."""
    message_of_faults = "; ".join(faults)
    return Check(name, not message_of_faults, message_of_faults or message)


def source_check(name: str, passed: bool, claim: str, failure: str | None = None) -> Check:
    """A check against the source, with the claim as its message if it passed, else ``failure``."""
    return Check(f"{SOURCE_PREFIX}{name}", passed, claim if passed else failure or f"not true: {claim}")
