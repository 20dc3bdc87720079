"""Checks of decoys against the rest of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join
from sqlanon.policy.sections import Attribute, ReleaseSection, SearchSection, SourceSection


def decoy_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what decoys do not go together with: they fill classes up to k rows, and promise nothing else.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    release: ReleaseSection | None = parts.get("release")
    if release is None or not release.decoys:
        return
    place = "release.decoys"
    privacy: PrivacySection | None = parts.get("privacy")
    if privacy is not None:
        yield from _requirements(place, privacy)
    search: SearchSection = parts.get("search") or SearchSection()
    if search.is_local:
        told = f"strategy {search.strategy}" if search.traits.local else 'suppression = "cells"'
        message = f"{told} has no levels above a class to take values from: use a strategy of the full domain"
        yield Problem(place, message)
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    if any(attribute.noise is not None for attribute in attributes.values()):
        yield Problem(
            place, "noise hides a record among those of its class, and decoys are none: leave one of them out"
        )
    source: SourceSection = parts.get("source") or SourceSection()
    if source.person is not None:
        yield Problem(place, "are rows of nobody, and source.person asks for persons: leave one of them out")
    if parts.get("population") is not None:
        yield Problem(place, "are in no population, which classes are held against: leave one of the two out")
    if release.suppressed == "mask":
        yield Problem(place, 'fill the classes whose rows would be masked: use suppressed = "drop"')
    if release.after:
        yield Problem(place, "are in no earlier release, which would tell them: leave release.after or decoys out")


def _requirements(place: str, privacy: PrivacySection) -> Iterator[Problem]:
    if privacy.k is None or privacy.k < 2:
        yield Problem("privacy.k", "decoys fill classes up to k rows: add k = 5, for example, or leave them out")
    for name in sorted(privacy.requirements.keys() - {"k"}):
        message = f"go with k alone: what {join('privacy', name)} asks for would be met, or broken, by rows of nobody"
        yield Problem(place, f"{message}; leave one of the two out")
