"""Checks between the sections of a policy: names, roles of columns, the noise budget, files, and incompatible features.

The checks of requirements read the policy as written, valid or not, so that a wrong number does not hide a wrong name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from sqlanon.errors import Problem
from sqlanon.places.addresses import database_path_flaw, is_variable, release_file_flaw
from sqlanon.places.databases import is_remote, local_database, strip_table_format
from sqlanon.policy.compatibility import (
    BUDGETS,
    EARLIER_RELEASES,
    IDENTIFICATIONS,
    LATE_SUPPRESSION,
    POPULATIONS,
    REMOTE_SOURCES,
    STRATEGY_SUPPORT,
    WEIGHTS,
    WITH_DECOYS,
    WITH_NOISE,
    PolicySections,
    collect_sections,
    find_conflicts,
)
from sqlanon.policy.noise import MOST_EPSILON, ROUNDING, Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join_key
from sqlanon.policy.rules import FileRule
from sqlanon.policy.sections import (
    READING_KEYS,
    Attribute,
    PopulationSection,
    RiskSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.requirements.base import SensitiveAttribute
from sqlanon.requirements.registry import RequirementType, requirement_types_by_key
from sqlanon.support.fields import Section, nearest_word
from sqlanon.support.names import EARLIER_RELEASES_COLUMN, METADATA_VIEWS, labels_table

_Attributes: TypeAlias = Mapping[str, Attribute]
_Keys: TypeAlias = Mapping[str, Any]


def cross_check(parts: Mapping[str, Any], names: list[str], written: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the sections of a policy against one another.

    Parameters
    ----------
    parts:
        The valid sections.
    names:
        The names of all attributes, valid or not.
    written:
        The sections as written; for a misspelled section, an empty table.
    """
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    privacy = _as_keys(written.get("privacy"))
    policy = collect_sections(
        parts,
        written={name: _as_keys(part) for name, part in written.items() if part is not None},
        privacy_keys_known=set(privacy) <= set(PrivacySection.model_fields),
        complete=len(attributes) == len(names),
    )
    yield from _check_names(names)
    if names and policy.complete:
        yield from _check_quasi_identifiers(attributes)
    yield from find_conflicts((*WEIGHTS, *STRATEGY_SUPPORT), policy)
    if "search" not in written:
        policy = replace(policy, search=SearchSection())
    yield from find_conflicts(IDENTIFICATIONS, policy)
    if names:  # otherwise the problems of the attributes say enough
        yield from _check_requirements(privacy, attributes, names)
    yield from find_conflicts(POPULATIONS, policy)
    for section in ("source", "population"):
        yield from _check_person(section, _as_keys(written.get(section)), attributes)
    yield from _check_noise(policy)
    yield from _check_reserved_names(policy)
    yield from find_conflicts((*EARLIER_RELEASES, *WITH_DECOYS), policy)
    if policy.risk is not None:
        yield from _check_risk(policy.risk, attributes, names)
    yield from find_conflicts(REMOTE_SOURCES, policy)
    if policy.source is not None:
        yield from _check_reading(policy.source, attributes)
    yield from _check_files(policy)


def _as_keys(part: object) -> _Keys:
    """The keys of a section, written as a table or as its class; none for anything else."""
    if isinstance(part, Section):
        return dict(part)
    return part if isinstance(part, Mapping) else {}


# --- Attributes


def _check_names(names: list[str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name in names:
        place = join_key("attributes", name)
        if not name:
            yield Problem(place, "an attribute needs the name of its column")
        elif (first := seen.setdefault(name.lower(), name)) != name:
            yield Problem(place, f"differs from {first!r} only in case: in SQL they are one column; keep one")


def _check_quasi_identifiers(attributes: _Attributes) -> Iterator[Problem]:
    quasi = [attribute for attribute in attributes.values() if attribute.role == "quasi"]
    if not quasi:
        yield Problem(
            "attributes",
            'no attribute has role = "quasi", so nothing is generalized: '
            "give this role to the columns that other people may know about a person (age, sex, zip, ...)",
        )
    elif all(attribute.noise is not None for attribute in quasi):
        yield Problem(
            "attributes",
            "all quasi-identifiers have noise, so they form no classes: give one of them a hierarchy",
        )


def _unknown_attribute(name: str, role: Role, attributes: _Attributes, names: list[str]) -> str:
    candidates = {known.lower(): known for known in names if known not in attributes or attributes[known].role == role}
    guess = nearest_word(name, candidates)
    if guess is not None:
        advice = f"did you mean {candidates[guess]!r}?"
    elif candidates:
        advice = f"the {role} attributes are {', '.join(candidates.values())}"
    else:
        advice = "declare it under [attributes]"
    return f"unknown attribute {name!r}; {advice}"


# --- Requirements


def _check_requirements(privacy: _Keys, attributes: _Attributes, names: list[str]) -> Iterator[Problem]:
    for key, requirement_type in _types_with_field("attribute"):
        for place, keys in _list_items(privacy, key):
            for name_place, name in _named_attributes(place, keys):
                yield from _check_sensitive(requirement_type, place, name_place, name, keys, attributes, names)
    for key, _ in _types_with_field("quasi"):
        for place, keys in _list_items(privacy, key):
            yield from _check_shield(place, keys, attributes, names)


def _types_with_field(field: str) -> list[tuple[str, RequirementType]]:
    types = requirement_types_by_key().items()
    return [(key, type_) for key, type_ in types if field in getattr(type_, "model_fields", ())]


def _list_items(privacy: _Keys, key: str) -> Iterator[tuple[str, _Keys]]:
    """The items of a requirement, each with its place; one item may stand without a list."""
    items, place = privacy.get(key), join_key("privacy", key)
    if not isinstance(items, list | tuple):
        yield place, _as_keys(items)
        return
    for index, item in enumerate(items):
        yield f"{place}[{index}]", _as_keys(item)


def _named_attributes(place: str, keys: _Keys) -> Iterator[tuple[str, str]]:
    """The attributes that a requirement names, each with its place."""
    names = [(join_key(place, "attribute"), keys.get("attribute"))]
    several = keys.get("attributes")
    for index, name in enumerate(several if isinstance(several, list | tuple) else ()):
        names.append((f"{join_key(place, 'attributes')}[{index}]", name))
    for name_place, name in names:
        if isinstance(name, str) and name:
            yield name_place, name


def _check_sensitive(
    requirement_type: RequirementType,
    place: str,
    name_place: str,
    name: str,
    keys: _Keys,
    attributes: _Attributes,
    names: list[str],
) -> Iterator[Problem]:
    if name not in names:
        yield Problem(name_place, _unknown_attribute(name, "sensitive", attributes, names))
    if (attribute := attributes.get(name)) is None:
        return
    path = join_key("attributes", name)
    if attribute.role != "sensitive":
        yield Problem(
            name_place,
            f"{name!r} is {attribute.role}, and this requirement is for sensitive attributes: "
            f'name one of these, or set role = "sensitive" in {path}',
        )
        return
    # An invalid attribute may be meant to be sensitive.
    is_only_one = len(attributes) == len(names) and not any(
        candidate.role == "sensitive" for key, candidate in attributes.items() if key != name
    )
    sensitive = SensitiveAttribute(path, attribute.hierarchy is not None, is_only_one)
    for loc, message in requirement_type.find_conflicts(keys, name, sensitive):
        yield Problem(join_key(place, ".".join(map(str, loc))), message)


def _check_shield(place: str, keys: _Keys, attributes: _Attributes, names: list[str]) -> Iterator[Problem]:
    quasi = keys.get("quasi")
    seen: set[str] = set()
    for index, name in enumerate(quasi if isinstance(quasi, list | tuple) else ()):
        if not isinstance(name, str) or not name:
            continue
        name_place = f"{join_key(place, 'quasi')}[{index}]"
        if name in seen:
            yield Problem(name_place, f"{name!r} is listed twice")
        elif name not in names:
            yield Problem(name_place, _unknown_attribute(name, "quasi", attributes, names))
        elif name in attributes and attributes[name].role != "quasi":
            yield Problem(
                name_place,
                f"{name!r} is {attributes[name].role}, and k_anonymity is over quasi-identifiers: declare it quasi; a "
                "shield without it does not count who shares its values",
            )
        seen.add(name)


# --- Columns that are never released


def _check_person(section: str, keys: _Keys, attributes: _Attributes) -> Iterator[Problem]:
    """The person column of the source is never released; a population needs columns for quasi-identifiers only."""
    person = keys.get("person")
    if not isinstance(person, str):
        return
    place = join_key(section, "person")
    for name, attribute in attributes.items():
        if name.lower() != person.lower() or attribute.role == "identifying":
            continue
        if attribute.role == "quasi":
            yield Problem(
                place, f"{name!r} is a quasi-identifier, which persons share: name the column that identifies a person"
            )
        elif section == "source":
            yield Problem(place, _never_released(name, attribute, "the person column is"))


def _never_released(name: str, attribute: Attribute, columns: str) -> str:
    return (
        f"{name!r} is declared {attribute.role}, but {columns} never released: "
        f'set role = "identifying" in {join_key("attributes", name)}, or leave the attribute out'
    )


def _check_reserved_names(policy: PolicySections) -> Iterator[Problem]:
    for name in policy.attributes:
        if name.lower() == EARLIER_RELEASES_COLUMN:
            message = "is a name that sqlanon reserves: rename the column, with query under [source]"
            yield Problem(join_key("attributes", name), message)
    if policy.source is not None:
        key = {name.lower() for name in policy.source.key}
        for name, attribute in policy.attributes.items():
            if name.lower() in key and attribute.role != "identifying":
                yield Problem("source.key", _never_released(name, attribute, "the columns of a key are"))
    if policy.get("release.database") is not None:
        table = policy.release.table
        reserved = dict.fromkeys(METADATA_VIEWS, "a view about the release")
        reserved |= {labels_table(name).lower(): f"the labels of {name!r}" for name in policy.attributes}
        if (description := reserved.get(table.lower())) is not None:
            message = f"{table!r} is {description}, in each release file: give the table another name"
            yield Problem("release.table", message)


def _check_risk(section: RiskSection, attributes: _Attributes, names: list[str]) -> Iterator[Problem]:
    """Check the roles of the columns of weights and households, and the names of priors.

    A household identifies its members, as a person's id does, so it is never released. Weights may be released, but as
    a quasi-identifier they would form the classes that they weigh.
    """
    for key, column, allowed in (
        ("weights", section.weights, ("identifying", "insensitive")),
        ("household", section.household, ("identifying",)),
    ):
        for name, attribute in attributes.items():
            if column is not None and name.lower() == column.lower() and attribute.role not in allowed:
                yield Problem(
                    f"risk.{key}",
                    f"{name!r} is declared {attribute.role}, and must be {' or '.join(allowed)}: "
                    f"change its role in {join_key('attributes', name)}, or leave the attribute out",
                )
    columns = {name.lower() for name in section.columns.values()}
    if len(columns) < len(section.columns):
        yield Problem("risk.household", "is also the column of weights: name the column that identifies a household")
    for name in section.priors or ():
        place = join_key("risk.priors", name)
        if name not in names:
            yield Problem(place, _unknown_attribute(name, "quasi", attributes, names))
        elif name in attributes and attributes[name].role != "quasi":
            yield Problem(place, f"{name!r} is {attributes[name].role}, and priors are for quasi-identifiers")


# --- Noise


def _check_noise(policy: PolicySections) -> Iterator[Problem]:
    if policy.privacy is None:
        return
    yield from find_conflicts(BUDGETS, policy)
    noise = {name: attribute.noise for name, attribute in policy.attributes.items() if attribute.noise is not None}
    if noise:
        yield from _check_budget(noise, policy.privacy)
        yield from find_conflicts((*WITH_NOISE, *LATE_SUPPRESSION), policy)


def _check_budget(noise: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """The explicit budgets must leave something for the attributes without one, or else add up to the record's."""
    record, total = privacy.epsilon, privacy.epsilon_total
    spent = math.fsum(part.epsilon for part in noise.values() if part.epsilon is not None)
    unset = [name for name, part in noise.items() if part.epsilon is None]
    release_epsilon = max(spent, record or 0)
    if total is not None and release_epsilon > total * (1 + ROUNDING):
        message = (
            f"{total:g} is for all releases, and this one adds {release_epsilon:g}: raise it, or lower the epsilon"
        )
        yield Problem("privacy.epsilon_total", message)
    if not privacy.linkable_noise:
        yield from _check_linkability(noise, release_epsilon, privacy)
    if record is None:
        for name in unset:
            yield Problem(
                join_key(join_key("attributes", name), "noise"),
                "has no epsilon: add one here, or epsilon = ... under [privacy], which is shared out",
            )
    elif unset and spent >= record * (1 - ROUNDING):
        yield Problem(
            "privacy.epsilon",
            f"{record:g} is the budget of a record, and attributes with an epsilon take {spent:g} of it: "
            f"nothing is left for {', '.join(unset)}",
        )
    elif not unset and not math.isclose(spent, record, rel_tol=ROUNDING):
        yield Problem(
            "privacy.epsilon",
            f"{record:g} is the budget of a record, and those of the attributes add up to {spent:g}: make them equal, "
            "or leave it out",
        )


def _check_linkability(noise: Mapping[str, Noise], epsilon: float, privacy: PrivacySection) -> Iterator[Problem]:
    """Refuse noise that is too weak to hide which value belongs to which person."""
    limit = MOST_EPSILON * (1 + ROUNDING)
    advice = (
        f"above {MOST_EPSILON:g} noise hides little: a reader who has the values, of another release too, links most "
        "rows to persons by the nearest value: lower it, or set linkable_noise = true under [privacy] if this may "
        "happen to every row, and see the linking risk that is then shown"
    )
    if epsilon > limit:
        place = "privacy.epsilon"
        if privacy.epsilon is None:
            greatest = max(noise, key=lambda name: noise[name].epsilon or 0)
            place = join_key(join_key(join_key("attributes", greatest), "noise"), "epsilon")
        yield Problem(place, f"the epsilon of a record is {epsilon:g}; {advice}")
    elif privacy.epsilon_total is not None and privacy.epsilon_total > limit:
        yield Problem("privacy.epsilon_total", f"a record may spend {privacy.epsilon_total:g}; {advice}")


# --- Sources and files


def _check_reading(source: SourceSection, attributes: _Attributes) -> Iterator[Problem]:
    """A database determines the types of its columns."""
    kinds = {
        "a frequency set": source.frequency_set,
        "PostgreSQL": source.postgres,
        "Spark": source.spark,
        "a database": source.database,
    }
    kind = next((kind for kind, location in kinds.items() if location), None)
    if kind is None:
        return
    advice = "" if source.frequency_set else ", and cast the column, or make its codes NULL, with query = ..."
    for name, attribute in attributes.items():
        for key in READING_KEYS:
            if getattr(attribute, key) not in (None, ()):
                message = f"applies to files and data frames, and this source is {kind}: remove it{advice}"
                yield Problem(join_key(join_key("attributes", name), key), message)


def _check_files(policy: PolicySections) -> Iterator[Problem]:
    """No output may be an input; the release is not the catalog, and its file name has a suitable ending."""
    problems = list(_find_overwritten_files(policy))
    database = policy.get("release.database")
    if database and not problems and (flaw := release_file_flaw(database)):
        problems.append(Problem("release.database", flaw))
    yield from problems


def _find_overwritten_files(policy: PolicySections) -> Iterator[Problem]:
    catalog: Path | None = policy.get("catalog.database")
    for place in ("catalog.database", "release.database", "release.file"):
        path: Path | None = policy.get(place)
        if path is None:
            continue
        sections = {"source": policy.source, "population": policy.population}
        read = next((name for name, section in sections.items() if _is_input(path, section)), None)
        if read is not None:  # one message, where both are in one file
            yield Problem(place, f"is the {read}, or one of its files, which sqlanon only reads: use another file")
        if flaw := database_path_flaw(path):
            yield Problem(place, flaw)
        for description, files in _policy_files(policy):
            if any(is_same_file(path, file) for file in files):
                yield Problem(place, f"is the {description}: use another file")
        if place != "catalog.database" and catalog and is_same_file(path, catalog):
            yield Problem(place, "is the catalog, which is private: use another file")


def _policy_files(policy: PolicySections) -> Iterator[tuple[str, list[Path]]]:
    """The files that a policy names beside its source, with a description."""
    for name, attribute in policy.attributes.items():
        files = [rule.file for rule in attribute.hierarchy or () if isinstance(rule, FileRule)]
        yield f"hierarchy file of {join_key('attributes', name)}", files
    for name, prior in (policy.get("risk.priors") or {}).items():
        yield f"file of {join_key('risk.priors', name)}", [] if prior.file is None else [prior.file]


def _is_input(path: Path, section: SourceSection | PopulationSection | None) -> bool:
    if section is None:
        return False
    database = local_database(section.database)
    if database is not None and is_same_file(path, database):
        return True
    patterns = (*section.files, *(section.frequency_set if isinstance(section, SourceSection) else ()))
    return any(_matches(path, pattern) for pattern in patterns)


def is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths are one file, through symbolic and hard links."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return first.samefile(second)
    except OSError:  # one of them is missing or not accessible
        return False


def _matches(path: Path, pattern: str) -> bool:
    if is_remote(pattern) or is_variable(pattern):
        return False
    pattern = strip_table_format(pattern)
    return _segments_match(path.absolute().parts, Path(pattern).absolute().parts) or _segments_match(
        Path(os.path.realpath(path)).parts, Path(os.path.realpath(pattern)).parts
    )


def _segments_match(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_segments_match(path[skip:], pattern[1:]) for skip in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _segments_match(path[1:], pattern[1:])
