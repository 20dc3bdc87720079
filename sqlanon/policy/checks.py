"""Checks of a policy's sections against one another, over those that are sound in themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.decoy_checks import decoy_check
from sqlanon.policy.ledger_checks import ledger_check
from sqlanon.policy.noise_checks import noise_check
from sqlanon.policy.places import why_not_written
from sqlanon.policy.postgres_checks import postgres_check
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.privacy_checks import privacy_check
from sqlanon.policy.problems import join
from sqlanon.policy.risk_checks import risk_check
from sqlanon.policy.rules import FileRule
from sqlanon.policy.sections import (
    AGGREGATED,
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    SearchSection,
    SourceSection,
)
from sqlanon.policy.spark_checks import spark_check
from sqlanon.policy.warehouse_checks import warehouse_check


def cross_check(parts: Mapping[str, Any], names: list[str], written: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems between sections.

    Parameters
    ----------
    parts:
        The sections that are sound, by name; ``attributes`` holds the sound attributes.
    names:
        The names of all attributes, sound or not.
    written:
        The sections as they are written, by name; of one whose name is misspelled, an empty table.
    """
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    yield from _names(names)
    if names and len(attributes) == len(names):
        yield from _quasi(attributes)
    if search := parts.get("search"):
        yield from _weights(attributes, search)
        yield from _strategy(search, parts.get("privacy"))
    if search or "search" not in written:
        yield from _identification(attributes, search or SearchSection())
    yield from privacy_check(written, attributes, names)
    yield from noise_check(parts, names)
    yield from ledger_check(parts)
    yield from decoy_check(parts)
    yield from risk_check(parts)
    yield from postgres_check(parts)
    yield from spark_check(parts)
    yield from warehouse_check(parts)
    yield from _files(parts, attributes)


def _names(names: list[str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name in names:
        place = join("attributes", name)
        if not name:
            yield Problem(place, "an attribute needs the name of its column")
        elif (first := seen.setdefault(name.lower(), name)) != name:
            yield Problem(place, f"differs from {first!r} in case only: in SQL they are one column; keep one")


def _quasi(attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    if not any(attribute.role == "quasi" for attribute in attributes.values()):
        yield Problem(
            "attributes",
            "no attribute is quasi, so there is nothing to generalize: "
            'give role = "quasi" to what others may know of a person (age, sex, zip, ...)',
        )
    elif not any(attribute.role == "quasi" and attribute.noise is None for attribute in attributes.values()):
        yield Problem(
            "attributes",
            "every quasi attribute has noise, which hides a record inside its class, and nothing makes classes: "
            "give one of them a hierarchy",
        )


def _strategy(search: SearchSection, privacy: PrivacySection | None) -> Iterator[Problem]:
    """What a strategy cannot look at is said at once: it would not be met."""
    if privacy is None or not search.is_local:
        return
    asked = set(privacy.requirements)
    local = 'suppression = "cells"' if not search.traits.local else f"strategy {search.strategy}"
    wide = "use a strategy of the full domain, such as optimal"
    of_population = {"k_map", "delta_presence"}
    of_table = {"average_risk", "sample_uniqueness", "population_uniqueness"}
    for name in sorted(asked & of_population):
        yield Problem(join("privacy", name), f"{local} does not look at a population: {wide}")
    for name in sorted(asked & of_table):
        yield Problem(join("privacy", name), f"{local} decides class by class, and this is of the whole table: {wide}")
    only = search.traits.knows
    if only is not None:
        for name in sorted(asked - only - of_population - of_table):
            yield Problem(join("privacy", name), f"{local} knows {' and '.join(sorted(only))} only: {wide}")


def _identification(attributes: Mapping[str, Attribute], search: SearchSection) -> Iterator[Problem]:
    """Only one strategy asks how identifying an attribute is; with another it would be ignored."""
    for name, attribute in attributes.items():
        if attribute.identification != "identifying" and not search.traits.of_combinations:
            yield Problem(
                join(join("attributes", name), "identification"),
                f"is for strategy mu-argus, and this one is {search.strategy}: leave it out",
            )


def _weights(attributes: Mapping[str, Attribute], search: SearchSection) -> Iterator[Problem]:
    """Weights enter sums of the attributes' figures; where there is no such sum they would be ignored."""
    if search.measure not in AGGREGATED:
        where = f"the measure {search.measure}"
    elif search.aggregate not in ("mean", "sum"):
        where = f"the aggregate {search.aggregate}"
    else:
        return
    for name, attribute in attributes.items():
        if attribute.weight != 1:
            yield Problem(
                join(join("attributes", name), "weight"),
                f"{where} has no weights: leave it out, or use loss or precision with mean or sum",
            )


def _files(parts: Mapping[str, Any], attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    """No file that is written may be one that is read, and the release may not be the catalog."""
    release: ReleaseSection | None = parts.get("release")
    catalog: CatalogSection | None = parts.get("catalog")
    written = {"catalog.database": catalog.database if catalog else None}
    if release:
        written |= {"release.database": release.database, "release.file": release.file}
    outputs = {place: path for place, path in written.items() if path is not None}
    for place, path in outputs.items():
        read = (name for name in ("source", "population") if name in parts and _is_read(path, parts[name]))
        if (section := next(read, None)) is not None:  # both may be in one file
            yield Problem(
                place, f"is the {section}, or one of its files; the {section} is only ever read: use another file"
            )
        if reason := why_not_written(path):
            yield Problem(place, reason)
        for name, attribute in attributes.items():
            if any(isinstance(rule, FileRule) and same_file(path, rule.file) for rule in attribute.hierarchy or ()):
                yield Problem(place, f"is the hierarchy file of {join('attributes', name)}: use another file")
        if place != "catalog.database" and catalog and same_file(path, catalog.database):
            yield Problem(place, "is the catalog, which is private and never handed out: use another file")


def _is_read(path: Path, section: SourceSection | PopulationSection) -> bool:
    in_database = section.database is not None and same_file(path, section.database)
    patterns = (*section.files, *(section.frequency_set if isinstance(section, SourceSection) else ()))
    return in_database or any(_matches(path, pattern) for pattern in patterns)


def same_file(one: Path, other: Path) -> bool:
    """Tell whether two paths are one file, through links of both kinds."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)  # by hard links
    except OSError:  # one of them does not exist, or may not be looked at
        return False


def _matches(path: Path, pattern: str) -> bool:
    """Tell whether a file falls under a pattern, now or as soon as it exists."""
    if "://" in pattern:
        return False
    return _segments_match(path.absolute().parts, Path(pattern).absolute().parts) or _segments_match(
        Path(os.path.realpath(path)).parts, Path(os.path.realpath(pattern)).parts
    )


def _segments_match(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_segments_match(path[skip:], pattern[1:]) for skip in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _segments_match(path[1:], pattern[1:])
