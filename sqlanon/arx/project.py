"""The contents of a project of ARX: its attributes, its configuration, and the files of its hierarchies."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from sqlanon.arx.archive import Archive, Element

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
    """An attribute of a project; ``hierarchy`` is the path of its hierarchy in the zip."""

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

    @property
    def is_text(self) -> bool:
        return self.type in ("String", "Ordinal")


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
        raise archive.error(f"its files have version {version}; save the project with an ARX that writes 1.0 or 2.0")
    project, config = archive.xml("project.xml"), archive.xml(f"{_FOLDER}config.xml")
    weights = {
        weight.value("attribute"): _read_number(weight.value("weight")) for weight in config.find_all("attributeWeight")
    }
    attributes = tuple(
        _read_attribute(archive, assignment, weights.get(assignment.value("name")))
        for assignment in archive.xml(f"{_FOLDER}definition.xml").find_all("assigment")  # as ARX spells it
    )
    counts = Counter(attribute.name for attribute in attributes)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise archive.error(f"input/definition.xml defines {repeated[0]!r} twice; correct the project with ARX")
    archive.refuse_bomb([*names, *(attribute.hierarchy for attribute in attributes if attribute.hierarchy is not None)])
    separator = next((child.text for child in project.children if child.name == "separator"), "").strip(" \r\n") or ";"
    return Project(
        project.value("name") or archive.path.stem,
        separator[0],
        attributes,
        tuple(criterion.text.strip() for criterion in config.find_all("criterion")),
        config.value("relativeMaxOutliers"),
        config.value("metric"),
    )


def _read_attribute(archive: Archive, assignment: Element, weight: float | None) -> Attribute:
    name, kind = assignment.value("name"), assignment.value("type") or ""
    if not name:
        raise archive.error("input/definition.xml has an attribute without a name; correct the project with ARX")
    if kind not in _ROLES:
        raise archive.error(f"attribute {name!r} has the unknown type {kind!r}; set its type in ARX")
    type_, format_ = assignment.value("datatype") or "String", assignment.value("format")
    if type_ not in _TYPES:  # in version 1.0 a date is written as its format
        type_, format_ = "Date/Time", type_
    hierarchy = f"{_FOLDER}{assignment.value('ref')}"
    return Attribute(
        name,
        _ROLES[kind],
        type_,
        format_,
        hierarchy if assignment.value("ref") and archive.has(hierarchy) else None,
        _read_level(assignment.value("min")),
        _read_level(assignment.value("max")),
        weight,
        assignment.value("microaggregationFunction"),
        assignment.value("response") == "true",
    )


def _read_level(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,9}", text) else None


def _read_number(text: str | None) -> float | None:
    try:
        number = float(text or "nan")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
