"""One check of a release."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check of a release: its name, whether it passed (None: not verifiable alone), and what was seen."""

    name: str
    passed: bool | None
    message: str
