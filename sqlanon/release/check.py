"""One check of a release."""

from __future__ import annotations

from dataclasses import dataclass

AGAINST = "against the source: "
"""How the names of checks begin that have the source."""


@dataclass(frozen=True)
class Check:
    """One check of a release: its name, whether it passed (None: not verifiable alone), and what was seen."""

    name: str
    passed: bool | None
    message: str
