"""The policy: what the data holder asks for, as a frozen tree, from TOML or from Python.

It is read section by section and attribute by attribute, so that all mistakes show at once.
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
from sqlanon.support.fields import Section, in_words, nearest
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
_NEEDED = ("attributes", "privacy")
_DATA = (".csv", ".tsv", ".parquet", ".json", ".xlsx", ".sav", ".dta", ".sas7bdat", ".xpt", ".duckdb", ".db", ".sqlite")


def read_tree(
    tree: Mapping[str, Any], folder: Path | None = None, known_problems: Sequence[Problem] = ()
) -> dict[str, Any]:
    """Read a whole policy; relative paths start in the folder. A `PolicyError` has every mistake."""
    context = {"folder": folder}
    known = ["source", "population", "attributes", "privacy", "risk", "search", "release", "catalog", "about"]
    unknown = [key for key in tree if key not in known]
    problems = [*known_problems, *(Problem(join_key("", key), unknown_key(key, known, "section")) for key in unknown)]
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
            part, found = read_part(SECTIONS[key], value, key, context)
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
        attribute, found = read_part(Attribute, given, join_key("attributes", name), context)
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
    """The tree of a policy file."""
    # By name and here: a type checker needs neither of the two, and a policy from Python no parser.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    place = str(file)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        others = {other.stem.lower(): other.name for other in file.parent.glob("*.toml")}
        guess = nearest(file.stem, others)
        advice = f"; did you mean {others[guess]}?" if guess else ""
        raise PolicyError([Problem(place, f"there is no such file{advice}")], "the command") from None
    except IsADirectoryError:
        raise PolicyError([Problem(place, "this is a folder: give the path to a policy file")], "the command") from None
    except OSError as error:
        raise PolicyError([Problem(place, f"cannot be read: {error.strerror or error}")]) from None
    try:
        tree: dict[str, Any] = toml.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError([Problem(place, f"line {line} is not UTF-8: save the file as UTF-8")]) from None
    except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
        raise PolicyError([Problem(place, _not_toml(file, content, str(error)))]) from None
    return tree


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Path]:
    """The tree of a policy file, with the catalog that it has by default, and its folder."""
    file = Path(path).absolute()
    return {"catalog": {"database": SHARED_CATALOG}, **parse_toml(file)}, file.parent


def _not_toml(file: Path, content: bytes, error: str) -> str:
    """What is wrong with a file that is not TOML. The line itself is shown, but of a policy only: data is private."""
    if file.suffix.lower() in _DATA:
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


def _without_folders(tree: Any, key: str = "") -> Any:
    if isinstance(tree, dict):
        return {name: _without_folders(part, name) for name, part in tree.items()}
    if isinstance(tree, list):
        return [_without_folders(part, key) for part in tree]
    if key == "query" and isinstance(tree, str):
        return without_folders(tree)
    return Path(tree).name if key in ("database", "file", "files", "frequency_set") and isinstance(tree, str) else tree


class Policy(Section):
    """What the data holder asks for: the source, the attributes' roles, the requirements, the release.

    Parameters
    ----------
    source, population, attributes, privacy, risk, search, release, catalog, about:
        The sections, as tables (``dict``) like in TOML, or as their classes. Only ``attributes`` and
        ``privacy`` are needed. Attributes keep their order.

    Raises
    ------
    PolicyError
        With every mistake of the policy, each with its place.

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

    def __init__(self, /, *wrong: object, **tree: Any) -> None:
        if wrong:
            raise TypeError(
                "Policy takes sections, as in Policy(attributes=..., privacy=...); Policy.load reads a file"
            )
        super().__init__(**read_tree(tree))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """Read a policy from a TOML file.

        Relative paths are relative to the file's folder, and become absolute. The catalog is by default
        ``sqlanon.catalog.duckdb`` in that folder.

        Raises
        ------
        PolicyError
            When the file cannot be read, is not TOML, or the policy has mistakes: all of them.
        """
        tree, folder = read_file(path)
        return cls.from_file(path, read_tree(tree, folder))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], parts: Mapping[str, Any]) -> Policy:
        """Return the policy of a file that was read: it knows the catalogs that the file has by default."""
        policy = cls(**parts)
        policy._stem = Path(path).stem
        return policy

    def __eq__(self, other: object) -> bool:  # wherever they were read from
        return isinstance(other, Policy) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # it has dictionaries

    def _repr_html_(self) -> str:
        return policy_table(self.attributes, self.privacy, self.search, self.source.person_column is not None)

    def __repr__(self) -> str:
        return describe_policy(self.attributes, self.privacy, self.search)

    __str__ = __repr__

    @property
    def quasi_identifiers(self) -> tuple[str, ...]:
        """The quasi-identifiers, as the policy orders them."""
        return self.attributes_with_role("quasi")

    @property
    def generalized_attributes(self) -> tuple[str, ...]:
        """The quasi-identifiers with a hierarchy: those that make the classes."""
        return tuple(name for name in self.quasi_identifiers if self.attributes[name].noise is None)

    @property
    def noisy_attributes(self) -> tuple[str, ...]:
        """The quasi-identifiers with noise inside their classes."""
        return tuple(name for name in self.quasi_identifiers if self.attributes[name].noise is not None)

    @property
    def masks_suppressed_rows(self) -> bool:
        """Whether suppressed rows stay in the release, masked."""
        return self.release is not None and self.release.suppressed == "mask"

    @property
    def retained_versions(self) -> int:
        """How many versions of the release stay in its place."""
        return 1 if self.release is None else self.release.keep

    @property
    def storage_version(self) -> str:
        """The storage version of a release in a DuckDB file: the oldest DuckDB that reads it."""
        return (self.release or ReleaseSection()).storage_version

    @property
    def suppresses_after_noise(self) -> bool:
        """Whether rows may be suppressed after noise was drawn: for confidence, or because they have no value."""
        unknown = any(self.attributes[name].on_unknown == "suppress" for name in self.noisy_attributes)
        return self.privacy.confidence is not None or unknown

    @property
    def epsilons(self) -> dict[str, float]:
        """The ε of each attribute with noise."""
        asked = {
            name: noise.epsilon for name in self.quasi_identifiers if (noise := self.attributes[name].noise) is not None
        }
        return share_epsilon(asked, self.privacy.epsilon)

    @property
    def epsilon(self) -> float | None:
        """The ε of a record: of all attributes with noise together; None where there are none."""
        return math.fsum(self.epsilons.values()) if self.noisy_attributes else None

    @property
    def has_decoys(self) -> bool:
        """Whether classes that stay too small are filled with decoys."""
        return self.release is not None and self.release.decoys

    @property
    def is_draft(self) -> bool:
        """Whether its releases are drafts."""
        return self.release is not None and self.release.draft

    @property
    def requirements(self) -> dict[str, Any]:
        """The privacy requirements that are asked for, with their parameters, by name."""
        return self.privacy.requirements

    def attributes_with_role(self, role: Role) -> tuple[str, ...]:
        """Return the attributes with a role, as the policy orders them."""
        return tuple(name for name, attribute in self.attributes.items() if attribute.role == role)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the policy, the same for the same policy however it was written.

        The order of the attributes counts, because ties between generalizations are broken by it.
        What is left out does not count, so that sections of later versions change no fingerprint; nor do the
        folders of files, so that a project can move, whether it is a draft, and ``about``, which is for people.
        """
        tree = self.model_dump(mode="json", exclude_none=True, exclude={"about": True, "release": {"draft"}})
        if tree["privacy"].get("dependencies") == "warn":  # it changes no release
            del tree["privacy"]["dependencies"]
        tree = _without_folders(tree)
        return hashlib.sha256(json.dumps(tree, separators=(",", ":")).encode()).hexdigest()

    @property
    def file_name(self) -> str | None:
        """The name of the file that it was read from."""
        return None if self._stem is None else f"{self._stem}.toml"

    def matches_fingerprint(self, policy_hash: str) -> bool:
        """Return whether a release with this hash was made by the policy."""
        return policy_hash == self.fingerprint()

    def with_output_file(self, path: Path) -> Policy:
        """Return the policy with a file as the place of its release, as if it named this file."""
        section = self.release or ReleaseSection()
        places: dict[str, Any] = dict.fromkeys(("database", "file", "postgres", "spark"))
        if section.postgres or section.spark:
            places["table"] = None  # it has a schema there
        places["file" if path.suffix.lower() == ".parquet" else "database"] = path
        return self.model_copy(update={"release": section.model_copy(update=places)})

    def redact(self) -> dict[str, Any]:
        """Return what the manifest of a release may show of the policy, ready for JSON.

        It has roles, kinds of rules and parameters; no ground value, query, path or name of a source.

        Of attributes and rules, what may be shown is listed, not what must be hidden: a field that a later
        version adds stays hidden until somebody decides otherwise. Of forbidden labels only the number is shown: they
        are values, or stand for some. Requirements and search are parameters. Whether persons are counted, and that
        there is a population, says how to read the figures; their names say more.
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
