"""A project of ARX as a folder: a policy, the table as CSV, and the hierarchies as ARX exports them."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlanon.arx.archive import Archive, open_archive
from sqlanon.arx.criteria import (
    NO_SELECTION,
    SELECTION,
    WEIGHTED,
    Criterion,
    grouped,
    notes_of,
    read_criterion,
    read_metric,
)
from sqlanon.arx.project import Attribute, Project, read_project
from sqlanon.arx.tables import HierarchyFile, read_hierarchy, write_private, write_table
from sqlanon.errors import SourceError
from sqlanon.support.toml import toml_key, toml_value

POLICY = "policy.toml"
_WIDTH = 100


@dataclass(frozen=True)
class ImportedProject:
    """What was written, and what of the project is not in it.

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
        What was decided, in words.
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
        A folder that is not there yet.
    encoding:
        The encoding of texts that are not in UTF-8: ARX writes hierarchies in that of its machine.

    Raises
    ------
    SourceError
        It is no project of ARX, or it cannot be read.
    """
    project_path, target = Path(path), Path(folder)
    if os.path.lexists(target):
        raise SourceError(f"{target} exists already: name another folder, or remove it")
    hidden = target.absolute().with_name(f".{target.name}.{uuid4().hex[:8]}")
    with open_archive(project_path, encoding) as archive:
        project = read_project(archive)
        try:
            hidden.mkdir(mode=0o700, parents=True)
            left_out, notes = _write(archive, project, hidden)
            hidden.rename(target)
        except OSError as error:
            raise SourceError(f"{target} cannot be written: {error.strerror or error}") from None
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    files = tuple(sorted(file.name for file in target.iterdir()))
    return ImportedProject(target, files, POLICY, tuple(left_out), tuple(notes))


def _write(archive: Archive, project: Project, folder: Path) -> tuple[list[str], list[str]]:
    name = _file_name(archive.path.stem, set())
    notes = write_table(archive, project.separator, project.attributes, folder / f"{name}.csv")
    files, hierarchies = dict[str, str](), dict[str, HierarchyFile]()
    taken: set[str] = set()
    for attribute in project.attributes:
        if attribute.hierarchy is not None and attribute.role in ("quasi", "sensitive"):
            hierarchies[attribute.name] = read_hierarchy(archive, attribute.hierarchy, project.separator)
            files[attribute.name] = f"hierarchy_{_file_name(attribute.name, taken)}.csv"
            write_private(folder / files[attribute.name], hierarchies[attribute.name].content)
    parts = _Translation(project, files, hierarchies)
    text = parts.policy_text(f"{name}.csv", name)
    write_private(folder / POLICY, text)
    return parts.left_out, [*notes, *parts.notes]


def _file_name(name: str, taken: set[str]) -> str:
    """A name of letters, digits and underscores that no other file of these has."""
    plain = re.sub(r"\W+", "_", name).strip("_")[:80] or "column"
    unique, number = plain, 1
    while unique.lower() in taken:
        number += 1
        unique = f"{plain}_{number}"
    taken.add(unique.lower())
    return unique


class _Translation:
    """A project as a policy, and what of it is left out."""

    def __init__(self, project: Project, files: Mapping[str, str], hierarchies: Mapping[str, HierarchyFile]) -> None:
        self._project, self._files, self._hierarchies = project, files, hierarchies
        self.left_out: list[str] = []
        self.notes: list[str] = []
        self._criteria = [*self._read_criteria()]
        self.notes += notes_of(self._criteria)
        self._measure, note = read_metric(project.metric)
        self.left_out += [] if note is None else [note]
        if self._measure in (*WEIGHTED, "height"):
            self.left_out.append("the aggregate function is in a file that only ARX can read: the mean is used")
        self._weights = self._read_weights()
        self.attributes = {attribute.name: self._attribute(attribute) for attribute in project.attributes}

    def _read_criteria(self) -> Iterator[Criterion]:
        roles = {attribute.name: attribute.role for attribute in self._project.attributes}
        for text in self._project.criteria:
            criterion = read_criterion(text)
            if text == SELECTION:
                self.left_out.append(NO_SELECTION)
            elif isinstance(criterion, str):
                self.left_out.append(f"the requirement {text}: {criterion}")
            elif criterion.attribute is not None and roles.get(criterion.attribute) != "sensitive":
                self.left_out.append(f"the requirement {text}: the attribute is not sensitive")
            else:
                yield criterion

    def _read_weights(self) -> dict[str, float]:
        quasi = {one.name: one.weight for one in self._project.attributes if one.role == "quasi"}
        weights = {name: weight for name, weight in quasi.items() if weight is not None}
        if len(weights) < len(quasi) or len(set(weights.values())) < 2:
            return {}
        if self._measure not in WEIGHTED:
            self.left_out.append(f"the attribute weights: the measure {self._measure} has none")
            return {}
        if zero := [name for name, weight in weights.items() if weight <= 0]:
            self.left_out.append(f"the weight 0 of {', '.join(zero)}: weights are above 0, and it gets 0.001")
        return {name: max(weight, 0.001) for name, weight in weights.items()}

    def _attribute(self, attribute: Attribute) -> dict[str, Any]:
        tree: dict[str, Any] = {"role": attribute.role}
        file = self._files.get(attribute.name)
        if attribute.is_response:
            self.left_out.append(f"{attribute.name}: it is a response variable")
        if attribute.micro_aggregation is not None:
            self.left_out.append(
                f"{attribute.name}: micro-aggregation ({attribute.micro_aggregation}) has no counterpart: it is "
                f"{'generalized by its hierarchy' if file else 'released or suppressed whole'}"
            )
        if attribute.role == "sensitive" and file is not None:
            tree["hierarchy"] = {"file": file}
        if attribute.role == "quasi":
            tree |= self._generalization(attribute, file)
        return tree

    def _generalization(self, attribute: Attribute, file: str | None) -> dict[str, Any]:
        if file is None:
            if attribute.micro_aggregation is None:
                self.left_out.append(
                    f"{attribute.name}: the project has no hierarchy: it is released or suppressed whole"
                )
            return {"hierarchy": "suppress"} | self._weight(attribute)
        hierarchy = self._hierarchies[attribute.name]
        tree: dict[str, Any] = {"hierarchy": {"file": file}} | self._weight(attribute)
        top = hierarchy.width - 1
        if attribute.least_level:
            tree["min_level"] = min(attribute.least_level, top)
        most = top if attribute.most_level is None else min(attribute.most_level, top)
        if most < top or not hierarchy.has_root:  # sqlanon would add a level above it
            tree["max_level"] = most
        return tree

    def _weight(self, attribute: Attribute) -> dict[str, Any]:
        weight = self._weights.get(attribute.name)
        return {} if weight is None else {"weight": weight}

    def policy_text(self, table: str, name: str) -> str:
        limit = self._suppression_limit()
        privacy = grouped(self._criteria)
        if not privacy:
            self.left_out.append("no requirement was imported: write one under [privacy] before you anonymize")
        lines = [
            *_comment(f"A policy from the ARX project {self._project.name!r}, written by `sqlanon import-arx`."),
            *_comment("Read every line before you share a release. Keep this file as private as the table."),
            *(["#", *_comment("Not imported:")] if self.left_out else []),
            *(line for text in self.left_out for line in _comment(f"- {text}", "  ")),
            *(["#", *_comment("Decided:")] if self.notes else []),
            *(line for text in self.notes for line in _comment(f"- {text}", "  ")),
            "",
            "[source]",
            f"files = {toml_value(table)}",
            'csv = { delimiter = ",", quote = \'"\', header = true }',
            "",
            "[attributes]",
            *(f"{toml_key(attribute)} = {toml_value(tree)}" for attribute, tree in self.attributes.items()),
            "",
            "[privacy]",
            *(f"{key} = {toml_value(value)}" for key, value in privacy.items() if not isinstance(value, list)),
            *(
                line
                for key, entries in privacy.items()
                if isinstance(entries, list)
                for entry in entries
                for line in (
                    "",
                    f"[[privacy.{key}]]",
                    *(f"{part} = {toml_value(value)}" for part, value in entry.items()),
                )
            ),
            "",
            "[search]",
            f"suppression_limit = {limit}",
            f"measure = {toml_value(self._measure)}",
            "",
            "[release]",
            f"database = {toml_value(f'{name}_release.duckdb')}",
            f"table = {toml_value(name)}",
        ]
        return "\n".join(lines) + "\n"

    def _suppression_limit(self) -> str:
        try:
            limit = Decimal(self._project.suppression_limit or "")
        except InvalidOperation:
            limit = Decimal(-1)
        if not (limit.is_finite() and 0 <= limit <= 1 and limit.adjusted() > -20):
            self.left_out.append("the suppression limit cannot be read: no row is suppressed")
            limit = Decimal(0)
        return format(limit.normalize(), "f")


def _comment(text: str, indent: str = "") -> Sequence[str]:
    lines = textwrap.wrap(_printable(text), _WIDTH - 2 - len(indent), break_on_hyphens=False)
    return [f"# {indent if i else ''}{line}" for i, line in enumerate(lines)]


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
