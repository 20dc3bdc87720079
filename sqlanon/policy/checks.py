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
from sqlanon.places.addresses import SERVER_NAMES, database_path_flaw, is_variable, release_file_flaw
from sqlanon.places.databases import is_remote, local_database, strip_table_format
from sqlanon.policy import compatibility
from sqlanon.policy.compatibility import PolicySections, collect_sections, find_conflicts
from sqlanon.policy.noise import MAX_EPSILON, ROUNDING, Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join_key
from sqlanon.policy.rules import FileRule
from sqlanon.policy.sections import READING_KEYS, Attribute, PopulationSection, Role, SearchSection, SourceSection
from sqlanon.requirements.base import SensitiveAttribute
from sqlanon.requirements.registry import RequirementType, requirement_types_by_key
from sqlanon.support.fields import Section, nearest_word
from sqlanon.support.names import EARLIER_RELEASES_COLUMN, METADATA_VIEWS, labels_table

_Keys: TypeAlias = Mapping[str, Any]


def cross_check(parts: Mapping[str, Any], names: list[str], raw_sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the sections of a policy against one another.

    Parameters
    ----------
    parts:
        The valid sections.
    names:
        The names of all attributes, valid or not.
    raw_sections:
        The sections as written; for a misspelled section, an empty table.
    """
    policy = collect_sections(
        parts,
        raw={name: _as_keys(part) for name, part in raw_sections.items() if part is not None},
        privacy_keys_known=set(_as_keys(raw_sections.get("privacy"))) <= set(PrivacySection.model_fields),
        attribute_names=names,
    )
    yield from _check_names(policy)
    yield from find_conflicts((*compatibility.WEIGHTS, *compatibility.STRATEGY_SUPPORT), policy)
    if "search" not in raw_sections:
        policy = replace(policy, search=SearchSection())
    yield from find_conflicts(compatibility.IDENTIFICATIONS, policy)
    if names:  # otherwise the problems of the attributes say enough
        yield from _check_requirements(policy)
    yield from find_conflicts(compatibility.POPULATIONS, policy)
    yield from _check_person("source", policy)
    yield from _check_person("population", policy)
    yield from _check_noise(policy)
    yield from _check_reserved_names(policy)
    yield from find_conflicts((*compatibility.EARLIER_RELEASES, *compatibility.WITH_DECOYS), policy)
    yield from _check_risk(policy)
    yield from find_conflicts(compatibility.REMOTE_SOURCES, policy)
    yield from _check_reading(policy)
    yield from _check_files(policy)


def _as_keys(part: object) -> _Keys:
    """The keys of a section, written as a table or as its class; none for anything else."""
    if isinstance(part, Section):
        return dict(part)
    return part if isinstance(part, Mapping) else {}


def _attribute_place(name: str, *keys: str) -> str:
    place = join_key("attributes", name)
    return ".".join([place, *keys])


# --- Attributes


def _check_names(policy: PolicySections) -> Iterator[Problem]:
    names_by_lower: dict[str, str] = {}
    for name in policy.attribute_names:
        if not name:
            yield Problem(_attribute_place(name), "an attribute needs the name of its column")
        elif (first := names_by_lower.setdefault(name.lower(), name)) != name:
            message = f"differs from {first!r} only in case: in SQL they are one column; keep one"
            yield Problem(_attribute_place(name), message)
    if not policy.attribute_names or not policy.complete:
        return
    quasi = [attribute for attribute in policy.attributes.values() if attribute.role == "quasi"]
    if not quasi:
        advice = "give this role to the columns that other people may know about a person (age, sex, zip, ...)"
        yield Problem("attributes", f'no attribute has role = "quasi", so nothing is generalized: {advice}')
    elif all(attribute.noise is not None for attribute in quasi):
        message = "all quasi-identifiers have noise, so they form no classes: give one of them a hierarchy"
        yield Problem("attributes", message)


def _find_unknown_attribute(policy: PolicySections, name: str, role: Role, advice: str) -> str | None:
    """The problem with a name that should be an attribute with a role; ``advice`` is for one with another role."""
    attributes = policy.attributes
    if name in policy.attribute_names:
        is_other = name in attributes and attributes[name].role != role
        return f"{name!r} is {attributes[name].role}, and {advice}" if is_other else None
    candidates = [key for key in policy.attribute_names if key not in attributes or attributes[key].role == role]
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    guess = nearest_word(name, by_lower)
    if guess is not None:
        return f"unknown attribute {name!r}; did you mean {by_lower[guess]!r}?"
    advice = f"the {role} attributes are {', '.join(candidates)}" if candidates else "declare it under [attributes]"
    return f"unknown attribute {name!r}; {advice}"


# --- Requirements


def _check_requirements(policy: PolicySections) -> Iterator[Problem]:
    for requirement_type, place, keys in _list_items(policy, "attribute"):
        yield from _check_sensitive(policy, requirement_type, place, keys)
    for _, place, keys in _list_items(policy, "quasi"):
        yield from _check_shield(policy, place, keys)


def _list_items(policy: PolicySections, field: str) -> Iterator[tuple[RequirementType, str, _Keys]]:
    """The items of all requirements with a field, each with its place; one item may stand without a list."""
    for key, requirement_type in requirement_types_by_key().items():
        if field in getattr(requirement_type, "model_fields", ()):
            items, place = policy.raw.get("privacy", {}).get(key), f"privacy.{key}"
            if isinstance(items, list | tuple):
                yield from ((requirement_type, f"{place}[{i}]", _as_keys(item)) for i, item in enumerate(items))
            else:
                yield requirement_type, place, _as_keys(items)


def _listed_names(place: str, keys: _Keys, key: str) -> list[tuple[str, Any]]:
    names = keys.get(key)
    return [(f"{place}.{key}[{i}]", name) for i, name in enumerate(names if isinstance(names, list | tuple) else ())]


def _check_sensitive(
    policy: PolicySections, requirement_type: RequirementType, place: str, keys: _Keys
) -> Iterator[Problem]:
    """Check the attributes that a requirement names."""
    names = [(f"{place}.attribute", keys.get("attribute")), *_listed_names(place, keys, "attributes")]
    for name_place, name in [(name_place, name) for name_place, name in names if isinstance(name, str) and name]:
        attribute_place = _attribute_place(name)
        advice = "this requirement is for sensitive attributes: name one of these, or set role ="
        if problem := _find_unknown_attribute(policy, name, "sensitive", f'{advice} "sensitive" in {attribute_place}'):
            yield Problem(name_place, problem)
        elif name in policy.attributes:
            # An invalid attribute may be meant to be sensitive.
            is_only_one = policy.complete and not any(
                attribute.role == "sensitive" for key, attribute in policy.attributes.items() if key != name
            )
            has_hierarchy = policy.attributes[name].hierarchy is not None
            sensitive = SensitiveAttribute(attribute_place, has_hierarchy, is_only_one)
            for loc, message in requirement_type.find_conflicts(keys, name, sensitive):
                yield Problem(join_key(place, ".".join(map(str, loc))), message)


def _check_shield(policy: PolicySections, place: str, keys: _Keys) -> Iterator[Problem]:
    advice = (
        "k_anonymity is over quasi-identifiers: declare it quasi; a shield without it does not count who shares its "
        "values"
    )
    checked_names: set[str] = set()
    for name_place, name in _listed_names(place, keys, "quasi"):
        if isinstance(name, str) and name in checked_names:
            yield Problem(name_place, f"{name!r} is listed twice")
        elif isinstance(name, str) and name:
            if problem := _find_unknown_attribute(policy, name, "quasi", advice):
                yield Problem(name_place, problem)
            checked_names.add(name)


# --- Columns that are never released


def _check_person(section: str, policy: PolicySections) -> Iterator[Problem]:
    """The person column of the source is never released; a population needs columns for quasi-identifiers only."""
    person, place = policy.raw.get(section, {}).get("person"), f"{section}.person"
    for name, attribute in policy.attributes.items():
        if not isinstance(person, str) or name.lower() != person.lower() or attribute.role == "identifying":
            continue
        if attribute.role == "quasi":
            message = "is a quasi-identifier, which persons share: name the column that identifies a person"
            yield Problem(place, f"{name!r} {message}")
        elif section == "source":
            yield Problem(place, _never_released(name, attribute, "the person column is"))


def _never_released(name: str, attribute: Attribute, columns: str) -> str:
    advice = f'set role = "identifying" in {_attribute_place(name)}, or leave the attribute out'
    return f"{name!r} is declared {attribute.role}, but {columns} never released: {advice}"


def _check_reserved_names(policy: PolicySections) -> Iterator[Problem]:
    for name in policy.attributes:
        if name.lower() == EARLIER_RELEASES_COLUMN:
            message = "is a name that sqlanon reserves: rename the column, with query under [source]"
            yield Problem(_attribute_place(name), message)
    key = {name.lower() for name in policy.get("source.key") or ()}
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


def _check_risk(policy: PolicySections) -> Iterator[Problem]:
    """Check the roles of the columns of weights and households, and the names of priors.

    A household identifies its members, as a person's id does, so it is never released. Weights may be released, but as
    a quasi-identifier they would form the classes that they weigh.
    """
    if policy.risk is None:
        return
    for key, column in policy.risk.columns.items():
        roles = ("identifying", "insensitive") if key == "weights" else ("identifying",)
        for name, attribute in policy.attributes.items():
            if name.lower() == column.lower() and attribute.role not in roles:
                yield Problem(
                    f"risk.{key}",
                    f"{name!r} is declared {attribute.role}, and must be {' or '.join(roles)}: change its role in "
                    f"{_attribute_place(name)}, or leave the attribute out",
                )
    if len({column.lower() for column in policy.risk.columns.values()}) < len(policy.risk.columns):
        yield Problem("risk.household", "is also the column of weights: name the column that identifies a household")
    for name in policy.risk.priors or ():
        if problem := _find_unknown_attribute(policy, name, "quasi", "priors are for quasi-identifiers"):
            yield Problem(join_key("risk.priors", name), problem)


# --- Noise


def _check_noise(policy: PolicySections) -> Iterator[Problem]:
    if policy.privacy is None:
        return
    yield from find_conflicts(compatibility.BUDGETS, policy)
    if noise := {name: policy.attributes[name].noise for name in policy.noisy_attributes}:
        yield from _check_budget(noise, policy.privacy)
        yield from find_conflicts((*compatibility.WITH_NOISE, *compatibility.LATE_SUPPRESSION), policy)


def _check_budget(noise: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """The explicit budgets must leave something for the attributes without one, or else add up to the record's."""
    record, total = privacy.epsilon, privacy.epsilon_total
    spent = math.fsum(part.epsilon for part in noise.values() if part.epsilon is not None)
    unset = [name for name, part in noise.items() if part.epsilon is None]
    release_epsilon = max(spent, record or 0)
    if total is not None and release_epsilon > total * (1 + ROUNDING):
        message = f"is for all releases, and this one adds {release_epsilon:g}: raise it, or lower the epsilon"
        yield Problem("privacy.epsilon_total", f"{total:g} {message}")
    if not privacy.linkable_noise:
        yield from _check_linkability(noise, release_epsilon, privacy)
    if record is None:
        message = "has no epsilon: add one here, or epsilon = ... under [privacy], which is shared out"
        yield from (Problem(_attribute_place(name, "noise"), message) for name in unset)
        return
    message = f"{record:g} is the budget of a record, and"
    if unset and spent >= record * (1 - ROUNDING):
        message += f" attributes with an epsilon take {spent:g} of it: nothing is left for {', '.join(unset)}"
        yield Problem("privacy.epsilon", message)
    elif not unset and not math.isclose(spent, record, rel_tol=ROUNDING):
        message += f" those of the attributes add up to {spent:g}: make them equal, or leave it out"
        yield Problem("privacy.epsilon", message)


def _check_linkability(noise: Mapping[str, Noise], epsilon: float, privacy: PrivacySection) -> Iterator[Problem]:
    """Refuse noise that is too weak to hide which value belongs to which person."""
    limit = MAX_EPSILON * (1 + ROUNDING)
    advice = (
        f"above {MAX_EPSILON:g} noise hides little: a reader who has the values, of another release too, links most "
        "rows to persons by the nearest value: lower it, or set linkable_noise = true under [privacy] if this may "
        "happen to every row, and see the linking risk that is then shown"
    )
    if epsilon > limit:
        greatest = max(noise, key=lambda name: noise[name].epsilon or 0)
        place = _attribute_place(greatest, "noise", "epsilon") if privacy.epsilon is None else "privacy.epsilon"
        yield Problem(place, f"the epsilon of a record is {epsilon:g}; {advice}")
    elif privacy.epsilon_total is not None and privacy.epsilon_total > limit:
        yield Problem("privacy.epsilon_total", f"a record may spend {privacy.epsilon_total:g}; {advice}")


# --- Sources and files


def _check_reading(policy: PolicySections) -> Iterator[Problem]:
    """A database determines the types of its columns."""
    kinds = {
        "a frequency set": "source.frequency_set",
        **{name: f"source.{key}" for key, name in SERVER_NAMES.items()},
        "a database": "source.database",
    }
    kind = next((kind for kind, path in kinds.items() if policy.get(path)), None)
    if kind is None:
        return
    cast_advice = ", and cast the column, or make its codes NULL, with query = ..."
    advice = f"remove it{'' if kind == 'a frequency set' else cast_advice}"
    for name, attribute in policy.attributes.items():
        for key in READING_KEYS:
            if getattr(attribute, key) not in (None, ()):
                message = f"applies to files and data frames, and this source is {kind}: {advice}"
                yield Problem(_attribute_place(name, key), message)


def _check_files(policy: PolicySections) -> Iterator[Problem]:
    """No output may be an input; the release is not the catalog, and its file name has a suitable ending."""
    problems = list(_find_overwritten_files(policy))
    database = policy.get("release.database")
    if database and not problems and (flaw := release_file_flaw(database)):
        problems.append(Problem("release.database", flaw))
    yield from problems


def _find_overwritten_files(policy: PolicySections) -> Iterator[Problem]:
    catalog: Path | None = policy.get("catalog.database")
    sections = {"source": policy.source, "population": policy.population}
    files = {  # the other files that the policy names
        **{
            f"hierarchy file of {_attribute_place(name)}": [rule.file for rule in rules if isinstance(rule, FileRule)]
            for name, attribute in policy.attributes.items()
            if (rules := attribute.hierarchy)
        },
        **{
            f"file of {join_key('risk.priors', name)}": [prior.file]
            for name, prior in (policy.get("risk.priors") or {}).items()
            if prior.file is not None
        },
    }
    for place in ("catalog.database", "release.database", "release.file"):
        if (path := policy.get(place)) is None:
            continue
        source = next((name for name, section in sections.items() if _is_input(path, section)), None)
        if source is not None:  # one message if both are in one file
            yield Problem(place, f"is the {source}, or one of its files, which sqlanon only reads: use another file")
        if flaw := database_path_flaw(path):
            yield Problem(place, flaw)
        for description, paths in files.items():
            if any(is_same_file(path, file) for file in paths):
                yield Problem(place, f"is the {description}: use another file")
        if place != "catalog.database" and catalog and is_same_file(path, catalog):
            yield Problem(place, "is the catalog, which is private: use another file")


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
