"""Checks of a policy's sections against one another: the names in them, the roles of columns, the budget of noise, and
files; and, by `compatibility`, the features that do not go together.

The checks of requirements read what is written, sound or not: a wrong number hides no wrong name.
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
    AFTER_NOISE,
    BUDGETS,
    IDENTIFICATIONS,
    OF_STRATEGIES,
    POPULATIONS,
    ROWS_ELSEWHERE,
    WEIGHTS,
    WITH_DECOYS,
    WITH_EARLIER,
    WITH_NOISE,
    PolicySections,
    collect_sections,
    find_conflicts,
)
from sqlanon.policy.noise import MOST_EPSILON, ROUNDING, Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join
from sqlanon.policy.rules import FileRule
from sqlanon.policy.sections import (
    READING_KEYS,
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    RiskSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.requirements.base import SensitiveAttribute
from sqlanon.requirements.registry import RequirementType, requirement_types_by_key
from sqlanon.support.fields import Section, nearest
from sqlanon.support.names import EARLIER, METADATA_VIEWS, labels_table

_Keys: TypeAlias = Mapping[str, Any]


def _sensitive_attributes(privacy: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    for key, kind in _kinds_with("attribute"):
        for place, keys in _each(privacy, key):
            for where, name in _named(place, keys):
                yield from _on_sensitive(kind, place, where, name, keys, attributes, names)
    for key, _ in _kinds_with("quasi"):
        for place, keys in _each(privacy, key):
            yield from _shield(place, keys, attributes, names)


def _kinds_with(field: str) -> list[tuple[str, RequirementType]]:
    return [
        (key, kind) for key, kind in requirement_types_by_key().items() if field in getattr(kind, "model_fields", ())
    ]


def _keys(part: object) -> _Keys:
    """What a part says, as a table or as its class; nothing, where it is neither."""
    if isinstance(part, Section):
        return dict(part)
    return part if isinstance(part, Mapping) else {}


def _each(privacy: _Keys, kind: str) -> Iterator[tuple[str, _Keys]]:
    given, place = privacy.get(kind), join("privacy", kind)
    if not isinstance(given, list | tuple):
        yield place, _keys(given)
        return
    for index, item in enumerate(given):
        yield f"{place}[{index}]", _keys(item)


def _named(place: str, keys: _Keys) -> Iterator[tuple[str, str]]:
    """The attributes that a requirement names, each with its place."""
    several = keys.get("attributes")
    found = [(join(place, "attribute"), keys.get("attribute"))]
    for index, name in enumerate(several if isinstance(several, list | tuple) else ()):
        found.append((f"{join(place, 'attributes')}[{index}]", name))
    for where, name in found:
        if isinstance(name, str) and name:
            yield where, name


def _on_sensitive(
    kind: RequirementType,
    place: str,
    where: str,
    name: str,
    keys: _Keys,
    attributes: Mapping[str, Attribute],
    names: list[str],
) -> Iterator[Problem]:
    if name not in names:
        yield Problem(where, _unknown(name, "sensitive", attributes, names))
    if (attribute := attributes.get(name)) is None:
        return
    if attribute.role != "sensitive":
        yield Problem(
            where,
            f"{name!r} is {attribute.role}, and this requirement is for sensitive attributes: "
            f'name one of these, or set role = "sensitive" in {join("attributes", name)}',
        )
        return
    others = any(one.role == "sensitive" for other, one in attributes.items() if other != name)
    # An unsound attribute may be meant to be sensitive.
    alone = not others and len(attributes) == len(names)
    spot = SensitiveAttribute(join("attributes", name), attribute.hierarchy is not None, alone)
    for loc, message in kind.find_conflicts(keys, name, spot):
        yield Problem(join(place, ".".join(map(str, loc))), message)


def _shield(place: str, keys: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    quasi = keys.get("quasi")
    seen: set[str] = set()
    for index, name in enumerate(quasi if isinstance(quasi, list | tuple) else ()):
        if not isinstance(name, str) or not name:
            continue
        where = f"{join(place, 'quasi')}[{index}]"
        if name in seen:
            yield Problem(where, f"{name!r} is listed twice")
        elif name not in names:
            yield Problem(where, _unknown(name, "quasi", attributes, names))
        elif name in attributes and attributes[name].role != "quasi":
            yield Problem(
                where,
                f"{name!r} is {attributes[name].role}, and k_anonymity is over quasi-identifiers: declare it quasi; a "
                "shield without it does not count who shares its values",
            )
        seen.add(name)


def _unknown(name: str, role: Role, attributes: Mapping[str, Attribute], names: list[str]) -> str:
    known = {other.lower(): other for other in names if other not in attributes or attributes[other].role == role}
    guess = nearest(name, known)
    if guess is not None:
        advice = f"did you mean {known[guess]!r}?"
    else:
        advice = f"{role} here: {', '.join(known.values())}" if known else "declare it under [attributes]"
    return f"there is no attribute {name!r}; {advice}"


def _person(section: str, keys: _Keys, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    """In the source, the column of persons is never released; in a population, only quasi attributes have columns."""
    person = keys.get("person")
    if not isinstance(person, str):
        return
    for name, attribute in attributes.items():
        if name.lower() != person.lower() or attribute.role == "identifying":
            continue
        place = join(section, "person")
        if attribute.role == "quasi":
            yield Problem(
                place, f"{name!r} is a quasi-identifier, which persons share: name the column that identifies a person"
            )
        elif section == "source":
            yield Problem(
                place,
                f"{name!r} is declared {attribute.role}, but the column of persons is never released: "
                f'set role = "identifying" in {join("attributes", name)}, or leave the attribute out',
            )


def _noise(asked: PolicySections) -> Iterator[Problem]:
    if asked.privacy is None:
        return
    yield from find_conflicts(BUDGETS, asked)
    noisy = {name: one.noise for name, one in asked.attributes.items() if one.noise is not None}
    if noisy:
        yield from _budget(noisy, asked.privacy)
        yield from find_conflicts((*WITH_NOISE, *AFTER_NOISE), asked)


def _budget(noisy: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """What own budgets add up to must leave something for the others, and be the record's if there are none."""
    record, most = privacy.epsilon, privacy.epsilon_total
    spent = math.fsum(noise.epsilon for noise in noisy.values() if noise.epsilon is not None)
    others = [name for name, noise in noisy.items() if noise.epsilon is None]
    least = max(spent, record or 0)
    if most is not None and least > most * (1 + ROUNDING):
        message = f"{most:g} is for all releases, and this one adds {least:g}: raise it, or lower the epsilon"
        yield Problem("privacy.epsilon_total", message)
    if not privacy.linkable_noise:
        yield from _linkable(noisy, least, privacy)
    if record is None:
        for name in others:
            yield Problem(
                join(join("attributes", name), "noise"),
                "has no epsilon: add one here, or epsilon = ... under [privacy], which is shared out",
            )
    elif others and spent >= record * (1 - ROUNDING):
        yield Problem(
            "privacy.epsilon",
            f"{record:g} is the record's, and attributes with their own epsilon take {spent:g} of it: "
            f"nothing is left for {', '.join(others)}",
        )
    elif not others and not math.isclose(spent, record, rel_tol=ROUNDING):
        yield Problem(
            "privacy.epsilon",
            f"{record:g} is the record's, and those of the attributes add up to {spent:g}: make them equal, "
            "or leave it out",
        )


def _linkable(noisy: Mapping[str, Noise], epsilon: float, privacy: PrivacySection) -> Iterator[Problem]:
    """Noise that is too weak to hide whose value is whose."""
    most = MOST_EPSILON * (1 + ROUNDING)
    risk = (
        f"above {MOST_EPSILON:g} noise hides little: a reader who has the values, of another release too, links most "
        "rows to persons by the nearest value"
    )
    remedy = (
        "or set linkable_noise = true under [privacy] if this may happen to every row, and see the linking risk that "
        "is then shown"
    )
    if epsilon > most:
        place = "privacy.epsilon"
        if privacy.epsilon is None:
            greatest = max(noisy, key=lambda name: noisy[name].epsilon or 0)
            place = join(join(join("attributes", greatest), "noise"), "epsilon")
        yield Problem(place, f"the epsilon of a record is {epsilon:g}; {risk}: lower it, {remedy}")
    elif privacy.epsilon_total is not None and privacy.epsilon_total > most:
        yield Problem(
            "privacy.epsilon_total", f"a record may spend {privacy.epsilon_total:g}; {risk}: lower it, {remedy}"
        )


def _names_of_releases(asked: PolicySections) -> Iterator[Problem]:
    for name in asked.attributes:
        if name.lower() == EARLIER:
            yield Problem(join("attributes", name), "is a name that sqlanon uses: rename it, with query under [source]")
    if asked.source is not None:
        yield from _key(asked.source, asked.attributes)
    if asked.release is not None and asked.release.database is not None:
        yield from _table(asked.release, asked.attributes)


def _key(source: SourceSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    key = {name.lower() for name in source.key}
    for name, attribute in attributes.items():
        if name.lower() in key and attribute.role != "identifying":
            yield Problem(
                "source.key",
                f"{name!r} is declared {attribute.role}, but the columns of a key are never released: "
                f'set role = "identifying" in {join("attributes", name)}, or leave the attribute out',
            )


def _table(release: ReleaseSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    taken = dict.fromkeys(METADATA_VIEWS, "a view about the release")
    taken |= {labels_table(name).lower(): f"the labels of {name!r}" for name in attributes}
    if (what := taken.get(release.table.lower())) is not None:
        yield Problem(
            "release.table", f"{release.table!r} is {what}, in each release file: give the table another name"
        )


def _risk(section: RiskSection, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    """What the columns of weights and households may not be.

    A household tells its people apart from others, as a person's id does: it is not released. Weights are as harmless
    as a column that is released anyway, but no quasi-identifier: then they would make the classes that they weigh.
    """
    for key, column, allowed in (
        ("weights", section.weights, ("identifying", "insensitive")),
        ("household", section.household, ("identifying",)),
    ):
        for name, attribute in attributes.items():
            if column is not None and name.lower() == column.lower() and attribute.role not in allowed:
                yield Problem(
                    f"risk.{key}",
                    f"{name!r} is declared {attribute.role}, and must be {' or '.join(allowed)} here: "
                    f"change its role in {join('attributes', name)}, or leave the attribute out",
                )
    columns = {name.lower() for name in section.columns.values()}
    if len(columns) < len(section.columns):
        yield Problem("risk.household", "is the column of weights, too: name the column that identifies a household")
    for name in section.priors or ():
        if name not in names:
            yield Problem(join("risk.priors", name), _unknown(name, "quasi", attributes, names))
        elif name in attributes and attributes[name].role != "quasi":
            yield Problem(
                join("risk.priors", name), f"{name!r} is {attributes[name].role}, and priors are for quasi-identifiers"
            )


def cross_check(parts: Mapping[str, Any], names: list[str], written: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems between sections: of the sound ones by name, of the names of all attributes, sound or not, and
    of the sections as they are written (of one whose name is misspelled, an empty table)."""
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    sound = len(attributes) == len(names)
    privacy = _keys(written.get("privacy"))
    asked = collect_sections(
        parts,
        written={name: _keys(part) for name, part in written.items() if part is not None},
        known=set(privacy) <= set(PrivacySection.model_fields),
        complete=sound,
    )
    yield from _names(names)
    if names and sound:
        yield from _quasi(attributes)
    yield from find_conflicts((*WEIGHTS, *OF_STRATEGIES), asked)
    if "search" not in written:
        asked = replace(asked, search=SearchSection())
    yield from find_conflicts(IDENTIFICATIONS, asked)
    if names:  # else: what is wrong with the attributes says it all
        yield from _sensitive_attributes(privacy, attributes, names)
    yield from find_conflicts(POPULATIONS, asked)
    yield from _person("source", _keys(written.get("source")), attributes)
    yield from _person("population", _keys(written.get("population")), attributes)
    yield from _noise(asked)
    yield from _names_of_releases(asked)
    yield from find_conflicts((*WITH_EARLIER, *WITH_DECOYS), asked)
    if asked.risk is not None:
        yield from _risk(asked.risk, attributes, names)
    yield from find_conflicts(ROWS_ELSEWHERE, asked)
    if asked.source is not None:
        yield from _reading(asked.source, attributes)
    yield from _files(parts, attributes)


def _reading(source: SourceSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    """A database knows the types of its columns."""
    where = (
        "a frequency set" if source.frequency_set
        else "PostgreSQL" if source.postgres is not None
        else "Spark" if source.spark is not None
        else "a database" if source.database is not None
        else None
    )  # fmt: skip
    if where is None:
        return
    advice = "" if source.frequency_set else ", and cast the column, or make its codes NULL, with query = ..."
    for name, attribute in attributes.items():
        for key in READING_KEYS:
            if getattr(attribute, key) not in (None, ()):
                place = join(join("attributes", name), key)
                yield Problem(place, f"applies to files and data frames, and this source is {where}: remove it{advice}")


def _names(names: list[str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name in names:
        place = join("attributes", name)
        if not name:
            yield Problem(place, "an attribute needs the name of its column")
        elif (first := seen.setdefault(name.lower(), name)) != name:
            yield Problem(place, f"differs from {first!r} in case only: in SQL they are one column; keep one")


def _quasi(attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    if not any(attribute.role == "quasi" for attribute in attributes.values()):
        yield Problem(
            "attributes",
            'no attribute has role = "quasi", so there is nothing to generalize: '
            "give this role to what others may know of a person (age, sex, zip, ...)",
        )
    elif not any(attribute.role == "quasi" and attribute.noise is None for attribute in attributes.values()):
        yield Problem(
            "attributes",
            "all quasi-identifiers have noise, so there are no classes to hide in: give one of them a hierarchy",
        )


def _files(parts: Mapping[str, Any], attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    """No file that is written may be one that is read; the release is not the catalog, and is named as what it is."""
    found = list(_written_files(parts, attributes))
    release: ReleaseSection | None = parts.get("release")
    if release and release.database and not found and (reason := release_file_flaw(release.database)):
        found.append(Problem("release.database", reason))
    yield from found


def _written_files(parts: Mapping[str, Any], attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    release: ReleaseSection | None = parts.get("release")
    catalog: CatalogSection | None = parts.get("catalog")
    written = {"catalog.database": catalog.database if catalog else None}
    if release:
        written |= {"release.database": release.database, "release.file": release.file}
    outputs = {place: path for place, path in written.items() if path is not None}
    for place, path in outputs.items():
        read = (name for name in ("source", "population") if name in parts and _is_read(path, parts[name]))
        if (section := next(read, None)) is not None:  # both may be in one file
            yield Problem(place, f"is the {section}, or one of its files, which sqlanon only reads: use another file")
        if reason := database_path_flaw(path):
            yield Problem(place, reason)
        for name, attribute in attributes.items():
            if any(isinstance(rule, FileRule) and is_same_file(path, rule.file) for rule in attribute.hierarchy or ()):
                yield Problem(place, f"is the hierarchy file of {join('attributes', name)}: use another file")
        risk: RiskSection | None = parts.get("risk")
        for name, prior in (risk.priors or {} if risk else {}).items():
            if prior.file is not None and is_same_file(path, prior.file):
                yield Problem(place, f"is the file of {join('risk.priors', name)}: use another file")
        if place != "catalog.database" and catalog and is_same_file(path, catalog.database):
            yield Problem(place, "is the catalog, which is private: use another file")


def _is_read(path: Path, section: SourceSection | PopulationSection) -> bool:
    database = local_database(section.database)
    in_database = database is not None and is_same_file(path, database)
    patterns = (*section.files, *(section.frequency_set if isinstance(section, SourceSection) else ()))
    return in_database or any(_matches(path, pattern) for pattern in patterns)


def is_same_file(one: Path, other: Path) -> bool:
    """Tell whether two paths are one file, through links of both kinds."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)  # by hard links
    except OSError:  # one of them does not exist, or may not be looked at
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
