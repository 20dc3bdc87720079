"""Checks of a release that have the source, or leave something out."""

from __future__ import annotations

from sqlanon.requirements.audit import Check

AGAINST = "against the source: "
"""How the names of checks begin that have the source."""


UNREAD = "what is hidden in their unused ends is found by the file's SHA-256 alone (--sha256, --policy)"
"""What no check that reads a file tells, of its blocks or pages."""


def source_check(name: str, passed: bool, claim: str, found: str | None = None) -> Check:
    """A check that has the source.

    Parameters
    ----------
    name:
        Of what, behind `AGAINST`.
    claim, found:
        What is so if it passed, and what was found if it did not: by default the claim.
    """
    return Check(f"{AGAINST}{name}", passed, claim if passed else f"not so: {found or claim}")


__all__ = ["AGAINST", "UNREAD", "Check", "source_check"]
