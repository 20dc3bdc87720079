"""Checks of what a policy asks of its release file and of earlier releases, against the rest of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.names import EARLIER, TOLD, labels_table
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join
from sqlanon.policy.sections import Attribute, ReleaseSection, SearchSection, SourceSection

_OF_CLASSES = ("discernibility", "average_class_size", "distinct")
"""The measures that count classes: with earlier releases, what is judged is parts of classes."""


def ledger_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what a key, ``after`` and the name of the released table do not go together with.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    for name in attributes:
        if name.lower() == EARLIER:
            yield Problem(join("attributes", name), "is a name that sqlanon uses: rename it, with query under [source]")
    source: SourceSection | None = parts.get("source")
    if source is not None:
        yield from _key(source, attributes)
    release: ReleaseSection | None = parts.get("release")
    if release is not None and release.database is not None:
        yield from _table(release, attributes)
    if release is not None and release.after:
        yield from _after(parts, release, attributes)


def _key(source: SourceSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    key = {name.lower() for name in source.key}
    for name, attribute in attributes.items():
        if name.lower() in key and attribute.role != "identifying":
            yield Problem(
                "source.key",
                f"{name!r} is declared {attribute.role}, and the columns of a key are never released: "
                f'set role = "identifying" in {join("attributes", name)}, or leave the attribute out',
            )


def _table(release: ReleaseSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    told = dict.fromkeys(TOLD, "a view that tells about the release")
    told |= {labels_table(name).lower(): f"the labels of {name!r}" for name in attributes}
    if (what := told.get(release.table.lower())) is not None:
        yield Problem(
            "release.table", f"{release.table!r} is {what}, in each release file: give the table another name"
        )


def _after(parts: Mapping[str, Any], release: ReleaseSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    place = "release.after"
    search: SearchSection = parts.get("search") or SearchSection()
    privacy: PrivacySection | None = parts.get("privacy")
    if search.is_local:
        told = 'suppression = "cells"' if not search.traits.local else f"strategy {search.strategy}"
        yield Problem(place, f"{told} has no levels to hold against an earlier release's: use one of the full domain")
    if search.measure in _OF_CLASSES:
        yield Problem(
            place,
            f"the measure {search.measure} counts classes, and here parts of them are judged: use loss, for example",
        )
    if release.suppressed == "mask":
        yield Problem(place, 'masked rows would tell of rows that no release has shown: use suppressed = "drop"')
    if parts.get("population") is not None:
        yield Problem(place, "a population has no earlier releases to be held against: leave one of the two out")
    if privacy is not None and privacy.population_uniqueness is not None:
        yield Problem(place, "population uniqueness is estimated from whole classes: leave one of the two out")
    if any(attribute.noise is not None for attribute in attributes.values()):
        yield Problem(place, "noise is drawn anew in each release: leave one of the two out")
