"""What a project of ARX says: its attributes, its configuration, and where its hierarchies are."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from sqlanon.arx.archive import Archive, Element
from sqlanon.errors import SourceError

DATA = "data/input.csv"
_FOLDER = "input/"
_ROLES = {
    "IDENTIFYING_ATTRIBUTE": "identifying",
    "QUASI_IDENTIFYING_ATTRIBUTE": "quasi",
    "SENSITIVE_ATTRIBUTE": "sensitive",
    "INSENSITIVE_ATTRIBUTE": "insensitive",
}
_TYPES = ("String", "Integer", "Decimal", "Date/Time", "Ordinal")


@dataclass(frozen=True)
class Attribute:
    """An attribute as ARX has it; ``hierarchy`` is the file of its hierarchy in the zip."""

    name: str
    role: str
    type: str
    format: str | None
    hierarchy: str | None
    least_level: int | None
    most_level: int | None
    weight: float | None
    micro_aggregation: str | None
    is_response: bool


@dataclass(frozen=True)
class Project:
    name: str
    separator: str
    attributes: tuple[Attribute, ...]
    criteria: tuple[str, ...]
    suppression_limit: str | None
    metric: str | None


def read_project(archive: Archive) -> Project:
    names = ("metadata.xml", "project.xml", f"{_FOLDER}config.xml", f"{_FOLDER}definition.xml", DATA)
    archive.refuse_bomb(names)
    version = archive.xml("metadata.xml").value("vocabulary") if archive.has("metadata.xml") else None
    if version not in (None, "1.0", "2.0"):
        raise SourceError(f"{archive.path.name}: it has version {version} of ARX's files, and 1.0 and 2.0 are read")
    project, config = archive.xml("project.xml"), archive.xml(f"{_FOLDER}config.xml")
    weights = {weight.value("attribute"): _number(weight.value("weight")) for weight in config.all("attributeWeight")}
    attributes = tuple(
        _attribute(archive, assignment, weights.get(assignment.value("name")))
        for assignment in archive.xml(f"{_FOLDER}definition.xml").all("assigment")  # as ARX spells it
    )
    counts = Counter(attribute.name for attribute in attributes)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise SourceError(f"{archive.path.name}: input/definition.xml defines {twice[0]!r} twice")
    separator = next((child.text for child in project.children if child.name == "separator"), ";")
    separator = separator.strip(" \r\n") or ";"
    archive.refuse_bomb([*names, *(one.hierarchy for one in attributes if one.hierarchy is not None)])
    return Project(
        project.value("name") or archive.path.stem,
        separator[0],
        attributes,
        tuple(criterion.text.strip() for criterion in config.all("criterion")),
        config.value("relativeMaxOutliers"),
        config.value("metric"),
    )


def _attribute(archive: Archive, assignment: Element, weight: float | None) -> Attribute:
    name, kind = assignment.value("name"), assignment.value("type") or ""
    if not name:
        raise SourceError(f"{archive.path.name}: input/definition.xml has an attribute without a name")
    if kind not in _ROLES:
        raise SourceError(f"{archive.path.name}: attribute {name!r} has the unknown type {kind!r}")
    type_, format_ = assignment.value("datatype") or "String", assignment.value("format")
    if type_ not in _TYPES:  # in version 1.0 a date is written as its format
        type_, format_ = "Date/Time", type_
    hierarchy = assignment.value("ref")
    return Attribute(
        name,
        _ROLES[kind],
        type_,
        format_,
        f"{_FOLDER}{hierarchy}" if hierarchy and archive.has(f"{_FOLDER}{hierarchy}") else None,
        _level(assignment.value("min")),
        _level(assignment.value("max")),
        weight,
        assignment.value("microaggregationFunction"),
        assignment.value("response") == "true",
    )


def _level(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,9}", text) else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "nan")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
