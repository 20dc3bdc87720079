"""Reading a policy: section by section and attribute by attribute, so that all mistakes show at once."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlanon.errors import PolicyError, Problem
from sqlanon.fields import Section, in_words, nearest
from sqlanon.policy.checks import cross_check
from sqlanon.policy.names import table_parts
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join, read_part, unknown_key
from sqlanon.policy.sections import (
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    RiskSection,
    SearchSection,
    SourceSection,
)

_SECTIONS: Mapping[str, type[Section]] = {
    "source": SourceSection,
    "population": PopulationSection,
    "privacy": PrivacySection,
    "risk": RiskSection,
    "search": SearchSection,
    "release": ReleaseSection,
    "catalog": CatalogSection,
}
_NEEDED = ("attributes", "privacy")


def read_tree(tree: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Read a whole policy; relative paths start in the folder. A `PolicyError` has every mistake."""
    context = {"folder": folder}
    known = ["source", "population", "attributes", "privacy", "risk", "search", "release", "catalog"]
    unknown = [key for key in tree if key not in known]
    problems = [Problem(join("", key), unknown_key(key, known, "section")) for key in unknown]
    # Whatever is misspelled is not missing, too.
    meant = {nearest(key, known) for key in unknown}
    given = {key: tree[key] for key in known if tree.get(key) is not None}
    given |= {key: {} for key in _NEEDED if key not in given and key not in meant}

    parts: dict[str, Any] = {}
    for key, value in given.items():
        part: object
        if key == "attributes":
            part, found = _read_attributes(value, context)
        else:
            part, found = read_part(_SECTIONS[key], value, key, context)
        problems += found
        if part is not None:
            parts[key] = part
    declared = given.get("attributes")
    names = [name for name in declared if isinstance(name, str)] if isinstance(declared, Mapping) else []
    problems += cross_check(parts, names, {key: {} for key in meant if key} | given)
    if problems:
        raise PolicyError(problems)
    return _with_release_table(parts)


def _read_attributes(value: object, context: Mapping[str, Any]) -> tuple[dict[str, Attribute], list[Problem]]:
    if not isinstance(value, Mapping):
        return {}, [Problem("attributes", f"must be a table of columns, not {in_words(value)}")]
    if not value:
        return {}, [Problem("attributes", "no column has a role: add zip = { role = ... } and so on")]
    sound: dict[str, Attribute] = {}
    problems: list[Problem] = []
    for name, given in value.items():
        if not isinstance(name, str):
            problems.append(Problem("attributes", f"the name of a column is a text, not {in_words(name)}"))
            continue
        attribute, found = read_part(Attribute, given, join("attributes", name), context)
        problems += found
        if attribute is not None:
            sound[name] = attribute
    return sound, problems


def _with_release_table(parts: dict[str, Any]) -> dict[str, Any]:
    source, release = parts.get("source"), parts.get("release")
    if not source or not source.table or not release or "table" in release.model_fields_set:
        return parts
    if release.postgres or release.spark:  # there it has a schema, too
        return parts
    if source.frequency_set:  # in a warehouse it stands beside its source
        return parts
    name = table_parts(source.table)[-1] if table_parts(source.table) else source.table
    return {**parts, "release": release.model_copy(update={"table": name})}


def parse_toml(file: Path) -> dict[str, Any]:
    # By name and here: a type checker needs neither of the two, and a policy from Python no parser.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    place = str(file)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PolicyError([Problem(place, f"cannot be read: {error.strerror or error}")]) from None
    try:
        tree: dict[str, Any] = toml.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError([Problem(place, f"line {line} is not UTF-8: save the file as UTF-8")]) from None
    except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
        raise PolicyError([Problem(place, f"is not TOML: {error}")]) from None
    return tree
