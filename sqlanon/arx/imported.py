"""Write a project of ARX as a folder with a policy, the table as CSV, and the hierarchies as ARX exports them."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlanon.arx.archive import Archive, open_archive
from sqlanon.arx.criteria import NO_SELECTION, SELECTION, Criterion, privacy_section, read_criterion, read_metric
from sqlanon.arx.project import Attribute, Project, read_project
from sqlanon.arx.tables import HierarchyFile, read_hierarchy, write_table
from sqlanon.errors import SourceError
from sqlanon.measures import find_measure
from sqlanon.measures.attributes import Height
from sqlanon.support.toml import toml_key, toml_value
from sqlanon.support.workdir import private_files

POLICY = "policy.toml"
_WIDTH = 100


@dataclass(frozen=True)
class ImportedProject:
    """The files of an imported project.

    Attributes
    ----------
    folder:
        The folder of the policy, the table and the hierarchies.
    files:
        The names of the files.
    policy:
        The name of the policy, which is one of them.
    left_out:
        Settings without a counterpart, in words.
    notes:
        Decisions of the import, in words.
    """

    folder: Path
    files: tuple[str, ...]
    policy: str
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def import_project(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], encoding: str | None = None
) -> ImportedProject:
    """Write a project of ARX as a policy, a CSV file and hierarchy files, to a new folder that only its owner reads.

    Parameters
    ----------
    path:
        The project, a .deid file.
    folder:
        A folder that does not exist yet.
    encoding:
        The encoding of texts that are not in UTF-8: ARX writes hierarchies in that of its machine.

    Raises
    ------
    SourceError
        The file is not an ARX project, or it cannot be read.
    """
    project_path, target = Path(path), Path(folder)
    if os.path.lexists(target):
        raise SourceError(f"{target} exists already: name another folder, or remove it")
    staged = target.absolute().with_name(f".{target.name}.{uuid4().hex[:8]}")
    with open_archive(project_path, encoding) as archive:
        project = read_project(archive)
        try:
            staged.mkdir(mode=0o700, parents=True)
            with private_files():
                translation = _write(archive, project, staged)
            staged.rename(target)
        except OSError as error:
            raise SourceError(f"{target} cannot be written: {error.strerror or error}") from None
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    files = tuple(sorted(file.name for file in target.iterdir()))
    return ImportedProject(target, files, POLICY, tuple(translation.left_out), tuple(translation.notes))


def _write(archive: Archive, project: Project, folder: Path) -> _Translation:
    name = _file_name(archive.path.stem, set())
    notes = write_table(archive, project.separator, project.attributes, folder / f"{name}.csv")
    names, hierarchies = set[str](), dict[str, tuple[str, HierarchyFile]]()
    for attribute in project.attributes:
        if attribute.hierarchy is not None and attribute.role in ("quasi", "sensitive"):
            file = f"hierarchy_{_file_name(attribute.name, names)}.csv"
            hierarchy = read_hierarchy(archive, attribute.hierarchy, project.separator)
            (folder / file).write_text(hierarchy.content, encoding="utf-8", newline="")
            hierarchies[attribute.name] = file, hierarchy
    translation = _Translation(project, hierarchies, notes)
    (folder / POLICY).write_text(translation.policy_text(f"{name}.csv", name), encoding="utf-8", newline="")
    return translation


def _file_name(name: str, taken: set[str]) -> str:
    """A unique name of letters, digits and underscores."""
    plain = re.sub(r"\W+", "_", name).strip("_")[:80] or "column"
    unique, number = plain, 1
    while unique.lower() in taken:
        number += 1
        unique = f"{plain}_{number}"
    taken.add(unique.lower())
    return unique


@dataclass
class _Translation:
    """A project as a policy, with its hierarchy files by attribute; ``left_out`` has its settings without a
    counterpart."""

    project: Project
    hierarchies: Mapping[str, tuple[str, HierarchyFile]]
    notes: list[str]
    left_out: list[str] = field(default_factory=list)

    def policy_text(self, table: str, name: str) -> str:
        criteria = [*self._read_criteria()]
        self.notes += [f"{criterion.attribute}: {criterion.note}" for criterion in criteria if criterion.note]
        measure, note = read_metric(self.project.metric)
        self.left_out += [] if note is None else [note]
        measure_class = find_measure(measure)
        has_weights = measure_class is not None and measure_class.aggregates
        if has_weights or measure_class is Height:
            self.left_out.append("the aggregate function is in a file that only ARX can read: the mean is used")
        weights = self._read_weights(measure, has_weights)
        attributes = {
            attribute.name: self._translate_attribute(attribute, weights) for attribute in self.project.attributes
        }
        limit = self._suppression_limit()
        privacy = privacy_section(criteria)
        if not privacy:
            self.left_out.append("no requirement was imported: write one under [privacy] before you anonymize")
        lines = [
            *_comment(f"A policy from the ARX project {self.project.name!r}, written by `sqlanon import-arx`."),
            *_comment("Read every line before you share a release. Keep this file as private as the table."),
        ]
        for heading, texts in (("Not imported:", self.left_out), ("Decided:", self.notes)):
            if texts:
                lines += ["#", *_comment(heading), *(line for text in texts for line in _comment(f"- {text}", "  "))]
        lines += ["", "[source]", f"files = {toml_value(table)}"]
        lines += ['csv = { delimiter = ",", quote = \'"\', header = true }']
        lines += ["", "[attributes]", *_pairs(attributes), "", "[privacy]"]
        lines += _pairs({key: value for key, value in privacy.items() if not isinstance(value, list)})
        for key, entries in privacy.items():
            for entry in entries if isinstance(entries, list) else ():
                lines += ["", f"[[privacy.{key}]]", *_pairs(entry)]
        lines += ["", "[search]", f"suppression_limit = {limit}", f"measure = {toml_value(measure)}"]
        lines += ["", "[release]", *_pairs({"database": f"{name}_release.duckdb", "table": name})]
        return "\n".join(lines) + "\n"

    def _read_criteria(self) -> Iterator[Criterion]:
        roles = {attribute.name: attribute.role for attribute in self.project.attributes}
        for text in self.project.criteria:
            criterion = read_criterion(text)
            if text == SELECTION:
                self.left_out.append(NO_SELECTION)
            elif isinstance(criterion, str):
                self.left_out.append(f"the requirement {text}: {criterion}")
            elif criterion.attribute is not None and roles.get(criterion.attribute) != "sensitive":
                self.left_out.append(f"the requirement {text}: the attribute is not sensitive")
            else:
                yield criterion

    def _read_weights(self, measure: str, has_weights: bool) -> dict[str, float]:
        quasi = {attribute.name: attribute.weight for attribute in self.project.attributes if attribute.role == "quasi"}
        weights = {name: weight for name, weight in quasi.items() if weight is not None}
        if len(weights) < len(quasi) or len(set(weights.values())) < 2:
            return {}
        if not has_weights:
            self.left_out.append(f"the attribute weights: the measure {measure} has none")
            return {}
        if zero := [name for name, weight in weights.items() if weight <= 0]:
            self.left_out.append(f"the weight 0 of {', '.join(zero)}: weights are above 0, and it becomes 0.001")
        return {name: max(weight, 0.001) for name, weight in weights.items()}

    def _translate_attribute(self, attribute: Attribute, weights: Mapping[str, float]) -> dict[str, Any]:
        name, aggregation = attribute.name, attribute.micro_aggregation
        file, hierarchy = self.hierarchies.get(name, (None, None))
        if attribute.is_response:
            self.left_out.append(f"{name}: it is a response variable")
        if aggregation is not None:
            effect = "generalized by its hierarchy" if file else "released or suppressed whole"
            self.left_out.append(f"{name}: micro-aggregation ({aggregation}) has no counterpart: it is {effect}")
        spec: dict[str, Any] = {"role": attribute.role}
        if file is not None:
            spec["hierarchy"] = {"file": file}
        if attribute.role != "quasi":
            return spec
        if hierarchy is None:
            spec["hierarchy"] = "suppress"
            if aggregation is None:
                self.left_out.append(f"{name}: the project has no hierarchy: it is released or suppressed whole")
        if name in weights:
            spec["weight"] = weights[name]
        return spec | ({} if hierarchy is None else _level_limits(attribute, hierarchy))

    def _suppression_limit(self) -> str:
        try:
            limit = Decimal(self.project.suppression_limit or "")
        except InvalidOperation:
            limit = Decimal(-1)
        if not (limit.is_finite() and 0 <= limit <= 1 and limit.adjusted() > -20):
            self.left_out.append("the suppression limit cannot be read: no row is suppressed")
            limit = Decimal(0)
        return format(limit.normalize(), "f")


def _level_limits(attribute: Attribute, hierarchy: HierarchyFile) -> dict[str, int]:
    top, limits = hierarchy.width - 1, dict[str, int]()
    if attribute.least_level:
        limits["min_level"] = min(attribute.least_level, top)
    most = top if attribute.most_level is None else min(attribute.most_level, top)
    if most < top or not hierarchy.has_root:  # sqlanon would add a level above it
        limits["max_level"] = most
    return limits


def _pairs(section: Mapping[str, Any]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in section.items()]


def _comment(text: str, indent: str = "") -> list[str]:
    printable = "".join(char if char.isprintable() else " " for char in text)
    lines = textwrap.wrap(printable, _WIDTH - 2 - len(indent), break_on_hyphens=False)
    return [f"# {indent if i else ''}{line}" for i, line in enumerate(lines)]
