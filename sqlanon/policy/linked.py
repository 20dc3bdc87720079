"""The policy of linked tables: one table of persons, and tables whose rows belong to them.

A policy file with ``[[table]]`` is read as a `LinkedPolicy`; without, as a `Policy`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from sqlanon.errors import PolicyError, Problem
from sqlanon.policy.linked_checks import (
    check_earlier_release,
    check_linked_sections,
    check_release_in_spark,
    find_sensitive,
)
from sqlanon.policy.linked_requirements import bind_group_requirement
from sqlanon.policy.linked_sections import (
    LinkedPrivacySection,
    LinkedReleaseSection,
    LinkedSearchSection,
    LinkedSourceSection,
    TableSection,
)
from sqlanon.policy.models import Policy, read_file, without_file_folders
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join_key, read_part, unknown_key
from sqlanon.policy.redact import redact_attribute
from sqlanon.policy.sections import AboutSection, Attribute, CatalogSection, SearchSection, SourceSection
from sqlanon.requirements.base import ClassCondition
from sqlanon.support.fields import Section


@dataclass(frozen=True)
class GroupRequirement:
    """A requirement on a sensitive attribute: its key, as it is written, its condition on groups, and the attribute."""

    key: str
    parameters: Mapping[str, Any]
    condition: ClassCondition
    section: TableSection
    attribute: str


class LinkedPolicy(Section):
    """The policy of several tables about the same persons.

    Parameters
    ----------
    table:
        The tables; exactly one has ``person``, the others reference it directly or through other tables.
    source, privacy, search, release, catalog, about:
        As in `Policy`.

    Raises
    ------
    PolicyError
        Lists every mistake of the policy with its place.
    """

    source: LinkedSourceSection = Field(default_factory=LinkedSourceSection)
    table: tuple[TableSection, ...]
    privacy: LinkedPrivacySection
    search: LinkedSearchSection = Field(default_factory=LinkedSearchSection)
    release: LinkedReleaseSection | None = None
    catalog: CatalogSection | None = None
    about: AboutSection | None = None

    def __init__(self, /, **tree: Any) -> None:
        super().__init__(**read_linked_tree(tree))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LinkedPolicy:
        """Read a policy from a TOML file, as `Policy.load` does."""
        tree, folder = read_file(path)
        return cls(**read_linked_tree(tree, folder))

    @cached_property
    def shift(self) -> int | None:
        """The maximum number of days by which all dates of a person are moved; None if they are not."""
        shifts = (attribute.shift for section in self.table for attribute in section.attributes.values())
        return next((shift for shift in shifts if shift is not None), None)

    @cached_property
    def ordered_tables(self) -> tuple[TableSection, ...]:
        """The tables, parents before children, the table of persons first."""
        by_name, ordered = {section.name: section for section in self.table}, list[TableSection]()

        def add(section: TableSection) -> None:
            if section not in ordered:
                for parent in section.references.values():
                    add(by_name[parent])
                ordered.append(section)

        add(next(section for section in self.table if section.person))
        for section in self.table:
            add(section)
        return tuple(ordered)

    def without_location(self) -> LinkedPolicy:
        """The policy of a result that is not published there."""
        location = None if self.release is None else LinkedReleaseSection(after=self.release.after)
        return self.model_copy(update={"release": location})

    def fingerprint(self) -> str:
        """The SHA-256 of the policy, which is independent of how it is written; see `Policy.fingerprint`."""
        tree = self.model_dump(mode="json", exclude_none=True, exclude={"about": True})
        return hashlib.sha256(json.dumps(without_file_folders(tree), separators=(",", ":")).encode()).hexdigest()

    def redact(self) -> dict[str, Any]:
        """The part of the policy that a manifest may show; see `Policy.redact`."""
        return {
            "tables": {
                section.name: {name: redact_attribute(attribute) for name, attribute in section.attributes.items()}
                for section in self.ordered_tables
            },
            "privacy": self.privacy.model_dump(mode="json", exclude_none=True),
            "search": self.search.model_dump(mode="json", exclude_none=True),
        }

    @cached_property
    def group_requirements(self) -> tuple[GroupRequirement, ...]:
        """The requirements on sensitive attributes, with their tables."""
        requirements, parameters = [], self.privacy.model_dump(mode="json", exclude_none=True)
        for key, i, requirement in self.privacy.named_requirements:
            section, name = find_sensitive(self.table, requirement.sensitive_attributes[0])[0]
            requirements.append(
                GroupRequirement(key, parameters[key][i], bind_group_requirement(requirement), section, name)
            )
        return tuple(requirements)

    def parent_of(self, section: TableSection) -> TableSection | None:
        """The table whose rows a table's rows belong to, the nearest that they name; None for the table of persons."""
        names = set(section.references.values())
        return next((table for table in reversed(self.ordered_tables) if table.name in names), None)

    def policy_of(self, section: TableSection) -> Policy:
        """The policy of one table by itself, as the stages before the search read it."""
        is_elsewhere = bool(section.files) or section.database is not None
        location: dict[str, Any] = {"database": section.database if is_elsewhere else self.source.database}
        location |= {"postgres": None, "spark": None} if is_elsewhere else self.source.server
        location["table"] = None if section.query or section.files else section.table or section.name
        location |= {"query": section.query, "files": section.files, "csv": section.csv or self.source.csv}
        location |= {"undeclared": section.undeclared, "person": False}
        attributes = {
            name: Attribute.model_construct(**{**dict(attribute), "role": "insensitive"})
            if attribute.role == "key"
            else attribute
            for name, attribute in section.attributes.items()
        }
        return Policy.model_construct(
            source=SourceSection().model_copy(update=location),
            attributes=attributes,
            privacy=PrivacySection.model_validate({"k": 1}),
            search=SearchSection(),
            population=None,
            risk=None,
            release=None,
            catalog=None,
            about=None,
        )


_SECTIONS: Mapping[str, type[Section]] = {
    "source": LinkedSourceSection,
    "privacy": LinkedPrivacySection,
    "search": LinkedSearchSection,
    "release": LinkedReleaseSection,
    "catalog": CatalogSection,
    "about": AboutSection,
}


def is_linked(tree: Mapping[str, Any]) -> bool:
    """Whether the tree of a policy is of several tables."""
    return "table" in tree


def read_linked_tree(
    tree: Mapping[str, Any], folder: Path | None = None, known_problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Read a whole policy of several tables. A `PolicyError` lists every mistake."""
    context = {"folder": folder}
    section_names = ["source", "table", *(key for key in _SECTIONS if key != "source")]
    problems = [
        *known_problems,
        *(
            Problem(join_key("", key), unknown_key(key, section_names, "section"))
            for key in tree
            if key not in section_names
        ),
    ]
    raw = {"privacy": {}, **{key: value for key, value in tree.items() if value is not None}}
    parts: dict[str, Any] = {}
    sections: list[TableSection] = []
    for key, model in _SECTIONS.items():
        if key in raw:
            part, part_problems = read_part(model, raw[key], key, context)
            problems += part_problems
            if part is not None:
                parts[key] = part
    tables = raw.get("table")
    if not isinstance(tables, list | tuple) or not tables:
        problems.append(Problem("table", "must be one table or more: [[table]] with name, person or references"))
        tables = ()
    for i, value in enumerate(tables):
        section, section_problems = read_part(TableSection, value, f"table[{i}]", context)
        problems += section_problems
        if section is not None:
            sections.append(section)
    if len(sections) == len(tables) and sections:
        problems += check_linked_sections(sections, *(parts.get(key) for key in ("source", "privacy", "search")))
        problems += check_release_in_spark(sections, parts.get("source"), parts.get("release"))
        problems += check_earlier_release(sections, *(parts.get(key) for key in ("release", "search", "catalog")))
    if problems:
        raise PolicyError(problems)
    return {**parts, "table": tuple(sections)}
