"""The policy of a data holder: a frozen tree of sections, read from TOML or from Python.

Sections and attributes are validated one by one, so that all mistakes are reported at once.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr

from sqlanon.errors import PolicyError, Problem
from sqlanon.policy.checks import cross_check
from sqlanon.policy.display import describe_policy, policy_table
from sqlanon.policy.noise import share_epsilon
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join_key, read_part, unknown_key
from sqlanon.policy.query_files import without_folders
from sqlanon.policy.redact import redact_attribute
from sqlanon.policy.sections import (
    AboutSection,
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    RiskSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.requirements.registry import on_change
from sqlanon.support.fields import Section, in_words, nearest_word
from sqlanon.support.names import SHARED_CATALOG, table_parts

SECTIONS: Mapping[str, type[Section]] = {
    "source": SourceSection,
    "population": PopulationSection,
    "privacy": PrivacySection,
    "risk": RiskSection,
    "search": SearchSection,
    "release": ReleaseSection,
    "catalog": CatalogSection,
    "about": AboutSection,
}
_DATA_SUFFIXES = (
    ".csv", ".tsv", ".parquet", ".json", ".xlsx", ".sav", ".dta", ".sas7bdat", ".xpt", ".duckdb", ".db", ".sqlite",
)  # fmt: skip


def several_tables_error() -> PolicyError:
    """The error for a policy of several tables where one of one table is read."""
    message = (
        "this is a policy of several tables: `sqlanon anonymize`, `plan`, `risk`, `attack`, `report` and `verify` read "
        "it, and in Python LinkedPolicy; here a policy of one table is read, with [source] table and [attributes]"
    )
    return PolicyError([Problem("table", message)])


def read_tree(
    tree: Mapping[str, Any], folder: Path | None = None, known_problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Read a whole policy; relative paths start in the folder. A `PolicyError` lists every mistake."""
    if "table" in tree:
        raise several_tables_error()
    context = {"folder": folder}
    sections = ["source", "population", "attributes", "privacy", "risk", "search", "release", "catalog", "about"]
    unknown = [key for key in tree if key not in sections]
    problems = [
        *known_problems,
        *(Problem(join_key("", key), unknown_key(key, sections, "section")) for key in unknown),
    ]
    # A misspelled section is not reported as missing.
    misspelled = {nearest_word(key, sections) for key in unknown}
    raw_sections = {key: tree[key] for key in sections if tree.get(key) is not None}
    raw_sections |= {key: {} for key in ("attributes", "privacy") if key not in raw_sections and key not in misspelled}
    parts: dict[str, Any] = {}
    for key, value in raw_sections.items():
        read = partial(read_part, SECTIONS[key], place=key) if key in SECTIONS else _read_attributes
        part, part_problems = read(value, context=context)
        problems += part_problems
        if part is not None:
            parts[key] = part
    attributes = raw_sections.get("attributes")
    names = [name for name in attributes if isinstance(name, str)] if isinstance(attributes, Mapping) else []
    problems += cross_check(parts, names, {key: {} for key in misspelled if key} | raw_sections)
    if problems:
        raise PolicyError(problems)
    # The release has the name of the source table, unless it needs a schema as well.
    source, release = parts.get("source"), parts.get("release")
    is_named = release is not None and ("table" in release.model_fields_set or release.postgres or release.spark)
    if source and source.table and not source.frequency_set and release and not is_named:
        name = (table_parts(source.table) or (source.table,))[-1]
        parts["release"] = release.model_copy(update={"table": name})
    return parts


def _read_attributes(value: object, context: Mapping[str, Any]) -> tuple[dict[str, Attribute], list[Problem]]:
    if not isinstance(value, Mapping):
        return {}, [Problem("attributes", f"must be a table of columns, not {in_words(value)}")]
    if not value:
        return {}, [Problem("attributes", "no column has a role: add zip = { role = ... } and so on")]
    attributes: dict[str, Attribute] = {}
    problems: list[Problem] = []
    for name, keys in value.items():
        if not isinstance(name, str):
            problems.append(Problem("attributes", f"the name of a column must be a text, not {in_words(name)}"))
            continue
        attribute, attribute_problems = read_part(Attribute, keys, join_key("attributes", name), context)
        problems += attribute_problems
        if attribute is not None:
            attributes[name] = attribute
    return attributes, problems


def toml_parser() -> Any:
    """The TOML parser of this Python. It is imported by name: a type checker has only one of the two modules."""
    return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def parse_toml(file: Path) -> dict[str, Any]:
    """The tree of a policy file."""
    place = str(file)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        candidates = {path.stem.lower(): path.name for path in file.parent.glob("*.toml")}
        guess = nearest_word(file.stem, candidates)
        advice = f"; did you mean {candidates[guess]}?" if guess else ""
        raise PolicyError([Problem(place, f"file not found{advice}")], "the command") from None
    except IsADirectoryError:
        raise PolicyError([Problem(place, "this is a folder: give the path to a policy file")], "the command") from None
    except OSError as error:
        raise PolicyError([Problem(place, f"cannot be read: {error.strerror or error}")]) from None
    try:
        tree: dict[str, Any] = toml_parser().loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError([Problem(place, f"line {line} is not UTF-8: save the file as UTF-8")]) from None
    except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
        raise PolicyError([Problem(place, _describe_syntax_error(file, content, str(error)))]) from None
    return tree


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Path]:
    """The tree of a policy file, with its default catalog, and its folder."""
    file = Path(path).absolute()
    return {"catalog": {"database": SHARED_CATALOG}, **parse_toml(file)}, file.parent


def _describe_syntax_error(file: Path, content: bytes, error: str) -> str:
    """Describe why a file is not TOML. The line is quoted for policies only, because data is private."""
    if file.suffix.lower() in _DATA_SUFFIXES:
        return f"this is data, not a policy; `sqlanon suggest {shlex.quote(file.name)}` writes a policy for it"
    message = f"this is not TOML: {error}"
    position = re.search(r"\(at line (\d+), column \d+\)$", error)
    if file.suffix.lower() != ".toml" or position is None:
        return message
    lines = content.decode("utf-8-sig").splitlines()
    line = lines[int(position[1]) - 1].strip() if int(position[1]) <= len(lines) else ""
    if "://" in line or "password" in line.lower():
        return message
    advice = '; text needs quotes, as in key = "value"' if "Invalid value" in error else ""
    return f"{message}: {line!r}{advice}"


def without_file_folders(tree: Any, key: str = "") -> Any:
    """The tree of a policy with the names of files in place of their paths."""
    if isinstance(tree, dict):
        return {name: without_file_folders(part, name) for name, part in tree.items()}
    if isinstance(tree, list):
        return [without_file_folders(part, key) for part in tree]
    if key == "query" and isinstance(tree, str):
        return without_folders(tree)
    return Path(tree).name if key in ("database", "file", "files", "frequency_set") and isinstance(tree, str) else tree


class Policy(Section):
    """The policy of a data holder: source, roles of attributes, requirements, search and release.

    Parameters
    ----------
    source, population, attributes, privacy, risk, search, release, catalog, about:
        The sections, as dictionaries like in TOML, or as instances of their classes. Only ``attributes`` and
        ``privacy`` are required. Attributes keep their order.

    Raises
    ------
    PolicyError
        Lists every mistake of the policy with its place.

    >>> policy = Policy(
    ...     attributes={"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}},
    ...     privacy={"k": 5},
    ... )
    >>> policy.quasi_identifiers, policy.privacy.k
    (('zip',), 5)
    """

    source: SourceSection = Field(default_factory=SourceSection)
    population: PopulationSection | None = None
    attributes: dict[str, Attribute] = Field(min_length=1)
    privacy: PrivacySection
    risk: RiskSection | None = None
    search: SearchSection = Field(default_factory=SearchSection)
    release: ReleaseSection | None = None
    catalog: CatalogSection | None = None
    about: AboutSection | None = None
    _stem: str | None = PrivateAttr(default=None)

    def __init__(self, /, *positional: object, **tree: Any) -> None:
        if positional:
            raise TypeError(
                "Policy takes sections, as in Policy(attributes=..., privacy=...); Policy.load reads a file"
            )
        super().__init__(**read_tree(tree))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """Read a policy from a TOML file.

        Relative paths start in the file's folder, and become absolute. The default catalog is
        ``sqlanon.catalog.duckdb`` in that folder.

        Raises
        ------
        PolicyError
            If the file cannot be read, is not TOML, or the policy has mistakes; it lists all of them.
        """
        tree, folder = read_file(path)
        return cls.from_file(path, read_tree(tree, folder))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], parts: Mapping[str, Any]) -> Policy:
        """Return the policy of a file with these sections; it keeps the name of the file."""
        policy = cls(**parts)
        policy._stem = Path(path).stem
        return policy

    def __eq__(self, other: object) -> bool:  # independent of the file name
        return isinstance(other, Policy) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # it contains dictionaries

    def _repr_html_(self) -> str:
        return policy_table(self.attributes, self.privacy, self.search, self.source.person_column is not None)

    def __repr__(self) -> str:
        return describe_policy(self.attributes, self.privacy, self.search)

    __str__ = __repr__

    @property
    def quasi_identifiers(self) -> tuple[str, ...]:
        """The quasi-identifiers, in the order of the policy."""
        return self.attributes_with_role("quasi")

    @property
    def k(self) -> int:
        """The fewest persons, or rows, that k-anonymity allows in a class: 1 without ``privacy.k``."""
        return self.privacy.k or 1

    @property
    def generalized_attributes(self) -> tuple[str, ...]:
        """The quasi-identifiers with a hierarchy, which form the classes."""
        return tuple(name for name in self.quasi_identifiers if self.attributes[name].noise is None)

    @property
    def noisy_attributes(self) -> tuple[str, ...]:
        """The quasi-identifiers with noise."""
        return tuple(name for name in self.quasi_identifiers if self.attributes[name].noise is not None)

    @property
    def masks_suppressed_rows(self) -> bool:
        """Whether suppressed rows stay in the release with masked quasi-identifiers."""
        return self.release is not None and self.release.suppressed == "mask"

    @property
    def retained_versions(self) -> int:
        """The number of release versions that are retained."""
        return 1 if self.release is None else self.release.keep

    @property
    def storage_version(self) -> str:
        """The storage version of a release in a DuckDB file: the oldest DuckDB that reads it."""
        return (self.release or ReleaseSection()).storage_version

    @property
    def suppresses_after_noise(self) -> bool:
        """Whether rows may be suppressed after noise is drawn: for confidence, or because they have no value."""
        unknown = any(self.attributes[name].on_unknown == "suppress" for name in self.noisy_attributes)
        return self.privacy.confidence is not None or unknown

    @property
    def epsilons(self) -> dict[str, float]:
        """The ε of each attribute with noise."""
        noise = {name: self.attributes[name].noise for name in self.noisy_attributes}
        return share_epsilon({name: part.epsilon for name, part in noise.items() if part}, self.privacy.epsilon)

    @property
    def epsilon(self) -> float | None:
        """The ε of a record: the sum over all attributes with noise; None without noise."""
        return math.fsum(self.epsilons.values()) if self.noisy_attributes else None

    @property
    def has_decoys(self) -> bool:
        """Whether classes that remain too small are filled with decoys."""
        return self.release is not None and self.release.decoys

    @property
    def is_draft(self) -> bool:
        """Whether releases are drafts."""
        return self.release is not None and self.release.draft

    @property
    def requirements(self) -> dict[str, Any]:
        """The privacy requirements with their parameters, by key."""
        return self.privacy.requirements

    def attributes_with_role(self, role: Role) -> tuple[str, ...]:
        """Return the attributes with a role, in the order of the policy."""
        return tuple(name for name, attribute in self.attributes.items() if attribute.role == role)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the policy, which is independent of how it is written.

        The order of the attributes counts, because it breaks ties between generalizations. Unset keys do not count, so
        that new sections change no fingerprint. Folders of files, ``draft`` and ``about`` do not count either, so that
        a project can move and a policy can be approved.
        """
        tree = self.model_dump(mode="json", exclude_none=True, exclude={"about": True, "release": {"draft"}})
        if tree["privacy"].get("dependencies") == "warn":  # it changes no release
            del tree["privacy"]["dependencies"]
        tree = without_file_folders(tree)
        return hashlib.sha256(json.dumps(tree, separators=(",", ":")).encode()).hexdigest()

    @property
    def file_name(self) -> str | None:
        """The name of the policy file, if there is one."""
        return None if self._stem is None else f"{self._stem}.toml"

    def matches_fingerprint(self, policy_hash: str) -> bool:
        """Return whether the policy has this fingerprint."""
        return policy_hash == self.fingerprint()

    def with_output_file(self, path: Path) -> Policy:
        """Return the policy with another file as the location of its release."""
        section = self.release or ReleaseSection()
        location: dict[str, Any] = dict.fromkeys(ReleaseSection.LOCATION_KEYS)
        if section.postgres or section.spark:
            location["table"] = None  # its schema is on the server
        location["file" if path.suffix.lower() == ".parquet" else "database"] = path
        return self.model_copy(update={"release": section.model_copy(update=location)})

    def redact(self) -> dict[str, Any]:
        """Return the part of the policy that a release manifest may show, ready for JSON.

        It has roles, kinds of rules and parameters, but no ground value, query, path or name of a source. The public
        fields of attributes and rules are listed, so a new field is hidden by default. Forbidden labels can be values,
        so only their number is shown. Persons and population are shown as flags, without the names of their columns.
        """
        return {
            "undeclared": self.source.undeclared,
            "persons": self.source.person_column is not None,
            "population": self.population is not None,
            "attributes": {name: redact_attribute(attribute) for name, attribute in self.attributes.items()},
            "privacy": self.privacy.model_dump(mode="json", exclude_none=True, exclude={"epsilon_total"}),
            "search": self.search.model_dump(mode="json", exclude_none=True),
            "suppressed": self.release.suppressed if self.release else "drop",
            **({"decoys": True} if self.has_decoys else {}),
        }


on_change(partial(Policy.model_rebuild, force=True))
