"""Checks of a policy's sections against one another. Each assumes sections that are sound in themselves.

The checks of requirements read what is written, sound or not: a wrong number hides no wrong name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from sqlanon.errors import Problem
from sqlanon.fields import Section, nearest
from sqlanon.measures import MEASURES
from sqlanon.policy.names import EARLIER, TOLD, labels_table, table_parts
from sqlanon.policy.noise import ROUNDING, Noise
from sqlanon.policy.places import why_not_written
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join
from sqlanon.policy.risk import RiskSection
from sqlanon.policy.rules import FileRule, TableRule
from sqlanon.policy.sections import (
    Attribute,
    CatalogSection,
    PopulationSection,
    ReleaseSection,
    Role,
    SearchSection,
    SourceSection,
)
from sqlanon.requirements.base import SensitiveSpot
from sqlanon.requirements.registry import Kind, kinds_by_key

_Keys: TypeAlias = Mapping[str, Any]

_OF_POPULATION = ("k_map", "delta_presence")


def privacy_check(written: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    """Yield what is wrong between the requirements and the rest of a policy.

    Parameters
    ----------
    written:
        The sections as they are written, by name; of one whose name is misspelled, an empty table.
    attributes:
        The sound attributes.
    names:
        The names of all attributes, sound or not.
    """
    privacy = _keys(written.get("privacy"))
    if names:  # else: what is wrong with the attributes says it all
        yield from _sensitive_attributes(privacy, attributes, names)
    yield from _population(privacy, written)
    yield from _person("source", _keys(written.get("source")), attributes)
    yield from _person("population", _keys(written.get("population")), attributes)


def _sensitive_attributes(privacy: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    for key, kind in _kinds_with("attribute"):
        for place, keys in _each(privacy, key):
            yield from _on_sensitive(place, keys, kind, attributes, names)
    for key, _ in _kinds_with("quasi"):
        for place, keys in _each(privacy, key):
            yield from _shield(place, keys, attributes, names)


def _kinds_with(field: str) -> list[tuple[str, Kind]]:
    """The requirements that name a sensitive attribute, or quasi-identifiers."""
    return [(key, kind) for key, kind in kinds_by_key().items() if field in getattr(kind, "model_fields", ())]


def _keys(part: object) -> _Keys:
    """What a part says, as a table or as its class; nothing, where it is neither."""
    if isinstance(part, Section):
        return dict(part)
    return part if isinstance(part, Mapping) else {}


def _each(privacy: _Keys, kind: str) -> Iterator[tuple[str, _Keys]]:
    """The requirements of a kind with their places: a list of them, or one without its brackets."""
    given, place = privacy.get(kind), join("privacy", kind)
    if not isinstance(given, list | tuple):
        yield place, _keys(given)
        return
    for index, item in enumerate(given):
        yield f"{place}[{index}]", _keys(item)


def _on_sensitive(
    place: str, keys: _Keys, kind: Kind, attributes: Mapping[str, Attribute], names: list[str]
) -> Iterator[Problem]:
    name = keys.get("attribute")
    if not isinstance(name, str) or not name:
        return
    where = join(place, "attribute")
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
    others = any(attribute.role == "sensitive" for other, attribute in attributes.items() if other != name)
    # An unsound attribute may be meant to be sensitive.
    alone = not others and len(attributes) == len(names)
    spot = SensitiveSpot(join("attributes", name), attribute.hierarchy is not None, alone)
    for path, message in kind.conflicts(keys, name, spot):
        yield Problem(join(place, ".".join(map(str, path))), message)


def _shield(place: str, keys: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    quasi = keys.get("quasi")
    seen: set[str] = set()
    for index, name in enumerate(quasi if isinstance(quasi, list | tuple) else ()):
        if not isinstance(name, str) or not name:
            continue
        where = f"{join(place, 'quasi')}[{index}]"
        if name in seen:
            yield Problem(where, f"{name!r} is in the list already: once is enough")
        elif name not in names:
            yield Problem(where, _unknown(name, "quasi", attributes, names))
        elif name in attributes and attributes[name].role != "quasi":
            yield Problem(
                where, f"{name!r} is {attributes[name].role}, and a shield is over quasi attributes: leave it out"
            )
        seen.add(name)


def _unknown(name: str, role: Role, attributes: Mapping[str, Attribute], names: list[str]) -> str:
    """Say that no attribute has a name, and which one of a role was probably meant; names are matched exactly."""
    known = {other.lower(): other for other in names if other not in attributes or attributes[other].role == role}
    guess = nearest(name, known)
    if guess is not None:
        advice = f"did you mean {known[guess]!r}?"
    else:
        advice = f"{role} here: {', '.join(known.values())}" if known else "declare it under [attributes]"
    return f"there is no attribute {name!r}; {advice}"


def _population(privacy: _Keys, written: _Keys) -> Iterator[Problem]:
    asked = [kind for kind in _OF_POPULATION if privacy.get(kind) is not None]
    if written.get("population") is None:
        for kind in asked:
            message = "needs a population: add [population] with table = ..., query = ... or files = ..."
            yield Problem(join("privacy", kind), message)
    elif privacy and not asked and written.get("risk") is None:
        if not set(privacy) <= set(PrivacySection.model_fields):  # one may be misspelled
            return
        yield Problem(
            "population",
            f"is not used: only {' and '.join(_OF_POPULATION)} look at it, and `risk` where there is "
            "a section [risk]; ask for one of them under [privacy], or leave the section out",
        )
    if "delta_presence" in asked and _keys(written.get("release")).get("suppressed") == "mask":
        yield Problem(
            "release.suppressed",
            'a masked class cannot be held against a class of the population: with privacy.delta_presence, use "drop"',
        )


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
                place, f"{name!r} is a quasi attribute, which persons share: name the column that tells them apart"
            )
        elif section == "source":
            yield Problem(
                place,
                f"{name!r} is declared {attribute.role}, and the column of persons is never released: "
                f'set role = "identifying" in {join("attributes", name)}, or leave the attribute out',
            )


def without_rows(parts: Mapping[str, Any], rows: str, where: str, works_there: bool = False) -> Iterator[Problem]:
    """Yield what needs the rows of a source that are not at hand.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    rows, where:
        Why they are not, and where they are: in words that end a sentence.
    works_there:
        Whether what is done row by row can be done where they are: noise, and the strategies below the full domain.
    """
    source: SourceSection = parts.get("source") or SourceSection()
    if source.person is not None:
        yield Problem("source.person", f"persons are counted row by row, {rows}: leave it out")
    if source.key:
        yield Problem("source.key", f"keys are kept of each row, {rows}: leave it out")
    yield from _of_attributes(parts, rows, where, works_there)
    if parts.get("risk") is not None:
        yield Problem("risk", f"looks at single rows, {rows}: leave it out")
    search: SearchSection = parts.get("search") or SearchSection()
    if search.is_local and not works_there:
        told = f"strategy {search.strategy}" if search.traits.local else 'suppression = "cells"'
        wide = "use a strategy of the full domain, such as optimal"
        yield Problem("search", f"{told} places rows one by one, {rows}: {wide}")
    population: PopulationSection | None = parts.get("population")
    if population is not None and population.database is None and not population.files:
        told = f"tables of a source {where} are no population: give database = ... or files = ..."
        yield Problem("population", told)
    release: ReleaseSection | None = parts.get("release")
    if release is not None and release.decoys:
        yield Problem("release.decoys", f"are drawn among the rows, {rows}: leave them out")
    if release is not None and release.after:
        yield Problem("release.after", f"needs to know which rows an earlier release has, {rows}: leave it out")


def _of_attributes(parts: Mapping[str, Any], rows: str, where: str, works_there: bool) -> Iterator[Problem]:
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    for name, attribute in attributes.items():
        place = join("attributes", name)
        if attribute.noise is not None and not works_there:
            yield Problem(join(place, "noise"), f"is drawn row by row, {rows}: give it a hierarchy")
        if any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ()):
            told = f"names a table of a DuckDB source, and this one is {where}: export it, and use file = ..."
            yield Problem(join(place, "hierarchy"), told)


def noise_check(parts: Mapping[str, Any], names: Sequence[str]) -> Iterator[Problem]:
    """Yield what is wrong between noise and the rest of a policy.

    Parameters
    ----------
    parts:
        The sections that are sound, by name; ``attributes`` holds the sound attributes.
    names:
        The names of all attributes, sound or not.
    """
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    privacy: PrivacySection | None = parts.get("privacy")
    noisy = {name: one.noise for name, one in attributes.items() if one.noise is not None}
    if privacy is None:
        return
    # An unsound attribute may be meant to have noise.
    if not noisy and len(attributes) == len(names):
        for name in ("epsilon", "epsilon_total", "confidence"):
            if getattr(privacy, name) is not None:
                message = "is for attributes with noise, and there is none: add noise = {} to one, or leave it out"
                yield Problem(join("privacy", name), message)
    if noisy:
        yield from _budget(noisy, privacy)
        yield from _classes(noisy, privacy)
        search: SearchSection = parts.get("search", SearchSection())
        if search.traits.of_combinations:
            message = f"{search.strategy} makes no classes of k rows, which noise needs: use optimal, for example"
            yield Problem("search.strategy", message)
        yield from _suppressed_last(attributes, privacy, parts.get("source", SourceSection()))


def _budget(noisy: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """What own budgets add up to must leave something for the others, and be the record's if there are none."""
    record, most = privacy.epsilon, privacy.epsilon_total
    spent = math.fsum(noise.epsilon for noise in noisy.values() if noise.epsilon is not None)
    others = [name for name, noise in noisy.items() if noise.epsilon is None]
    least = max(spent, record or 0)
    if most is not None and least > most * (1 + ROUNDING):
        message = f"{most:g} is for all releases, and this one adds {least:g}: raise it, or lower the epsilon"
        yield Problem("privacy.epsilon_total", message)
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


def _classes(noisy: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """Noise hides a record among those of its class: there must be others, and they cannot be told by the noise."""
    if privacy.k is None or privacy.k < 2:
        yield Problem(
            "privacy.k", "noise hides a record among those of its class, which must have others: add k = 5, for example"
        )
    for i, shield in enumerate(privacy.k_anonymity):
        for j, name in enumerate(shield.quasi):
            if name in noisy:
                yield Problem(
                    f"privacy.k_anonymity[{i}].quasi[{j}]",
                    f"{name!r} has noise, and a shield is over attributes that are generalized: leave it out",
                )


def _suppressed_last(
    attributes: Mapping[str, Attribute], privacy: PrivacySection, source: SourceSection
) -> Iterator[Problem]:
    """Some rows are left out when all else is decided: what cannot be asked again of the rest is refused."""
    late = [
        join(join("attributes", name), "on_unknown")
        for name, one in attributes.items()
        if one.noise is not None and one.on_unknown == "suppress"
    ]
    if privacy.confidence is not None:
        late.append("privacy.confidence")
        if source.person is not None:
            message = "counts rows, and source.person asks for persons: leave one of them out"
            yield Problem("privacy.confidence", message)
    persons_and_shields = bool(privacy.k_anonymity) and source.person is not None
    for place in late:
        for name in ("delta_presence", "population_uniqueness"):
            if getattr(privacy, name) is not None:
                yield Problem(place, f"suppresses rows after {name} was decided: leave one of them out")
        if persons_and_shields and place != "privacy.confidence":
            yield Problem(place, "suppresses rows after shields over persons were decided: leave one of them out")


def decoy_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what decoys do not go together with: they fill classes up to k rows, and promise nothing else.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    release: ReleaseSection | None = parts.get("release")
    if release is None or not release.decoys:
        return
    place = "release.decoys"
    privacy: PrivacySection | None = parts.get("privacy")
    if privacy is not None:
        yield from _requirements(place, privacy)
    search: SearchSection = parts.get("search") or SearchSection()
    if search.is_local:
        told = f"strategy {search.strategy}" if search.traits.local else 'suppression = "cells"'
        message = f"{told} has no levels above a class to take values from: use a strategy of the full domain"
        yield Problem(place, message)
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    if any(attribute.noise is not None for attribute in attributes.values()):
        yield Problem(
            place, "noise hides a record among those of its class, and decoys are none: leave one of them out"
        )
    source: SourceSection = parts.get("source") or SourceSection()
    if source.person is not None:
        yield Problem(place, "are rows of nobody, and source.person asks for persons: leave one of them out")
    if parts.get("population") is not None:
        yield Problem(place, "are in no population, which classes are held against: leave one of the two out")
    if release.suppressed == "mask":
        yield Problem(place, 'fill the classes whose rows would be masked: use suppressed = "drop"')
    if release.after:
        yield Problem(place, "are in no earlier release, which would tell them: leave release.after or decoys out")


def _requirements(place: str, privacy: PrivacySection) -> Iterator[Problem]:
    if privacy.k is None or privacy.k < 2:
        yield Problem("privacy.k", "decoys fill classes up to k rows: add k = 5, for example, or leave them out")
    for name in sorted(privacy.requirements.keys() - {"k"}):
        message = f"go with k alone: what {join('privacy', name)} asks for would be met, or broken, by rows of nobody"
        yield Problem(place, f"{message}; leave one of the two out")


def ledger_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what a key, ``after`` and the name of the released table do not go together with.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    for name in attributes:
        if name.lower() == EARLIER:
            yield Problem(join("attributes", name), "is a name that sqlanon uses: rename it, with query under [source]")
    source: SourceSection | None = parts.get("source")
    if source is not None:
        yield from _key(source, attributes)
    release: ReleaseSection | None = parts.get("release")
    if release is not None and release.database is not None:
        yield from _table(release, attributes)
    if release is not None and release.after:
        yield from _after(parts, release, attributes)


def _key(source: SourceSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    key = {name.lower() for name in source.key}
    for name, attribute in attributes.items():
        if name.lower() in key and attribute.role != "identifying":
            yield Problem(
                "source.key",
                f"{name!r} is declared {attribute.role}, and the columns of a key are never released: "
                f'set role = "identifying" in {join("attributes", name)}, or leave the attribute out',
            )


def _table(release: ReleaseSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    told = dict.fromkeys(TOLD, "a view that tells about the release")
    told |= {labels_table(name).lower(): f"the labels of {name!r}" for name in attributes}
    if (what := told.get(release.table.lower())) is not None:
        yield Problem(
            "release.table", f"{release.table!r} is {what}, in each release file: give the table another name"
        )


def _after(parts: Mapping[str, Any], release: ReleaseSection, attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    place = "release.after"
    search: SearchSection = parts.get("search") or SearchSection()
    privacy: PrivacySection | None = parts.get("privacy")
    if search.is_local:
        told = 'suppression = "cells"' if not search.traits.local else f"strategy {search.strategy}"
        yield Problem(place, f"{told} has no levels to hold against an earlier release's: use one of the full domain")
    if MEASURES[search.measure].counts_classes:
        yield Problem(
            place,
            f"the measure {search.measure} counts classes, and here parts of them are judged: use loss, for example",
        )
    if release.suppressed == "mask":
        yield Problem(place, 'masked rows would tell of rows that no release has shown: use suppressed = "drop"')
    if parts.get("population") is not None:
        yield Problem(place, "a population has no earlier releases to be held against: leave one of the two out")
    if privacy is not None and privacy.population_uniqueness is not None:
        yield Problem(place, "population uniqueness is estimated from whole classes: leave one of the two out")
    if any(attribute.noise is not None for attribute in attributes.values()):
        yield Problem(place, "noise is drawn anew in each release: leave one of the two out")


_HERE = ("database", "file", "postgres", "spark")
"""Where releases go that are written by sqlanon."""


def warehouse_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with a frequency set in place of a source.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    if source is None or not source.frequency_set:
        return
    yield from for_warehouse(parts)
    release: ReleaseSection | None = parts.get("release")
    for name in _HERE:
        if release is not None and getattr(release, name):
            told = "a frequency set has no rows to release: leave it out, export the statement that makes the release "
            told += 'there, and name that with table = "schema.name"'
            yield Problem(f"release.{name}", told)
    if release is not None and release.keep > 1:
        yield Problem("release.keep", "is for a release in a database of its own: leave it out")
    if release is not None and source.table is not None and table_parts(source.table) == table_parts(release.table):
        yield Problem("release.table", "is the source: name another table of the warehouse")


def for_warehouse(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what statements for a warehouse cannot do, or cannot name.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    yield from without_rows(parts, "and sqlanon does not see the rows of a table in a warehouse", "in a warehouse")
    release: ReleaseSection | None = parts.get("release")
    if release is not None and not table_parts(release.table):
        yield Problem("release.table", "must be table, schema.table or database.schema.table, as the warehouse has it")


def spark_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with Spark.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    release: ReleaseSection | None = parts.get("release")
    if source is not None and source.spark is not None:
        yield from _of_source(parts, source)
    elif release is not None and release.spark and source is not None and _is_elsewhere(source):
        told = "is for a source in Spark, and this one is not: give database = ... or file = ..."
        yield Problem("release.spark", told)


def _of_source(parts: Mapping[str, Any], source: SourceSection) -> Iterator[Problem]:
    rows = "and the rows of a source in Spark never leave it"
    yield from without_rows(parts, rows, "in Spark", works_there=True)
    release: ReleaseSection | None = parts.get("release")
    own = table_parts(source.table)[:-1] if source.table else ()
    if release is not None and release.spark and own and own[-1].lower() == table_parts(release.table)[0].lower():
        told = "readers of the release would be let into that one; use another"
        yield Problem("release.table", f"is in the source's schema {own[-1]!r}: {told}")


def _is_elsewhere(source: SourceSection) -> bool:
    """Whether it says where it is. If not, it is what the policy is applied to: that may be a Spark session."""
    return source.database is not None or source.postgres is not None or bool(source.files)


def postgres_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what does not go together with PostgreSQL: its rows are not at hand, but counts of their combinations.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    source: SourceSection | None = parts.get("source")
    release: ReleaseSection | None = parts.get("release")
    if source is not None and source.postgres is not None:
        yield from without_rows(parts, "and the rows of a source in PostgreSQL never leave it", "in PostgreSQL")
        own = table_parts(source.table)[:-1] if source.table else ()
        if release is not None and release.postgres == source.postgres and own[-1:] == table_parts(release.table)[:1]:
            told = "readers of the release would be let into that one; use another"
            yield Problem("release.table", f"is in the source's schema {own[-1]!r}: {told}")


def risk_check(parts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what the columns of weights and households may not be.

    A household tells its people apart from others, as a person's id does: it is not released. Weights are as harmless
    as a column that is released anyway, but no quasi-identifier: then they would make the classes that they weigh.

    Parameters
    ----------
    parts:
        The sections that are sound, by name.
    """
    section: RiskSection | None = parts.get("risk")
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    if section is None:
        return
    for key, column, allowed in (
        ("weights", section.weights, ("identifying", "insensitive")),
        ("household", section.household, ("identifying",)),
    ):
        for name, attribute in attributes.items():
            if column is not None and name.lower() == column.lower() and attribute.role not in allowed:
                yield Problem(
                    f"risk.{key}",
                    f"{name!r} is declared {attribute.role}, and it has to be {' or '.join(allowed)} there: "
                    f"change its role in {join('attributes', name)}, or leave the attribute out",
                )
    columns = {name.lower() for name in section.columns.values()}
    if len(columns) < len(section.columns):
        yield Problem("risk.household", "is the column of weights, too: name the one that tells households apart")


def cross_check(parts: Mapping[str, Any], names: list[str], written: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems between sections.

    Parameters
    ----------
    parts:
        The sections that are sound, by name; ``attributes`` holds the sound attributes.
    names:
        The names of all attributes, sound or not.
    written:
        The sections as they are written, by name; of one whose name is misspelled, an empty table.
    """
    attributes: dict[str, Attribute] = parts.get("attributes", {})
    yield from _names(names)
    if names and len(attributes) == len(names):
        yield from _quasi(attributes)
    if search := parts.get("search"):
        yield from _weights(attributes, search)
        yield from _strategy(search, parts.get("privacy"))
    if search or "search" not in written:
        yield from _identification(attributes, search or SearchSection())
    yield from privacy_check(written, attributes, names)
    yield from noise_check(parts, names)
    yield from ledger_check(parts)
    yield from decoy_check(parts)
    yield from risk_check(parts)
    yield from postgres_check(parts)
    yield from spark_check(parts)
    yield from warehouse_check(parts)
    yield from _files(parts, attributes)


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
            "no attribute is quasi, so there is nothing to generalize: "
            'give role = "quasi" to what others may know of a person (age, sex, zip, ...)',
        )
    elif not any(attribute.role == "quasi" and attribute.noise is None for attribute in attributes.values()):
        yield Problem(
            "attributes",
            "every quasi attribute has noise, which hides a record inside its class, and nothing makes classes: "
            "give one of them a hierarchy",
        )


def _strategy(search: SearchSection, privacy: PrivacySection | None) -> Iterator[Problem]:
    """What a strategy cannot look at is said at once: it would not be met."""
    if privacy is None or not search.is_local:
        return
    asked = set(privacy.requirements)
    local = 'suppression = "cells"' if not search.traits.local else f"strategy {search.strategy}"
    wide = "use a strategy of the full domain, such as optimal"
    of_population = {"k_map", "delta_presence"}
    of_table = {"average_risk", "sample_uniqueness", "population_uniqueness"}
    for name in sorted(asked & of_population):
        yield Problem(join("privacy", name), f"{local} does not look at a population: {wide}")
    for name in sorted(asked & of_table):
        yield Problem(join("privacy", name), f"{local} decides class by class, and this is of the whole table: {wide}")
    only = search.traits.knows
    if only is not None:
        for name in sorted(asked - only - of_population - of_table):
            yield Problem(join("privacy", name), f"{local} knows {' and '.join(sorted(only))} only: {wide}")


def _identification(attributes: Mapping[str, Attribute], search: SearchSection) -> Iterator[Problem]:
    """Only one strategy asks how identifying an attribute is; with another it would be ignored."""
    for name, attribute in attributes.items():
        if attribute.identification != "identifying" and not search.traits.of_combinations:
            yield Problem(
                join(join("attributes", name), "identification"),
                f"is for strategy mu-argus, and this one is {search.strategy}: leave it out",
            )


def _weights(attributes: Mapping[str, Attribute], search: SearchSection) -> Iterator[Problem]:
    """Weights enter sums of the attributes' figures; where there is no such sum they would be ignored."""
    if not MEASURES[search.measure].aggregates:
        where = f"the measure {search.measure}"
    elif search.aggregate not in ("mean", "sum"):
        where = f"the aggregate {search.aggregate}"
    else:
        return
    for name, attribute in attributes.items():
        if attribute.weight != 1:
            yield Problem(
                join(join("attributes", name), "weight"),
                f"{where} has no weights: leave it out, or use loss or precision with mean or sum",
            )


def _files(parts: Mapping[str, Any], attributes: Mapping[str, Attribute]) -> Iterator[Problem]:
    """No file that is written may be one that is read, and the release may not be the catalog."""
    release: ReleaseSection | None = parts.get("release")
    catalog: CatalogSection | None = parts.get("catalog")
    written = {"catalog.database": catalog.database if catalog else None}
    if release:
        written |= {"release.database": release.database, "release.file": release.file}
    outputs = {place: path for place, path in written.items() if path is not None}
    for place, path in outputs.items():
        read = (name for name in ("source", "population") if name in parts and _is_read(path, parts[name]))
        if (section := next(read, None)) is not None:  # both may be in one file
            yield Problem(
                place, f"is the {section}, or one of its files; the {section} is only ever read: use another file"
            )
        if reason := why_not_written(path):
            yield Problem(place, reason)
        for name, attribute in attributes.items():
            if any(isinstance(rule, FileRule) and same_file(path, rule.file) for rule in attribute.hierarchy or ()):
                yield Problem(place, f"is the hierarchy file of {join('attributes', name)}: use another file")
        if place != "catalog.database" and catalog and same_file(path, catalog.database):
            yield Problem(place, "is the catalog, which is private and never handed out: use another file")


def _is_read(path: Path, section: SourceSection | PopulationSection) -> bool:
    in_database = section.database is not None and same_file(path, section.database)
    patterns = (*section.files, *(section.frequency_set if isinstance(section, SourceSection) else ()))
    return in_database or any(_matches(path, pattern) for pattern in patterns)


def same_file(one: Path, other: Path) -> bool:
    """Tell whether two paths are one file, through links of both kinds."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)  # by hard links
    except OSError:  # one of them does not exist, or may not be looked at
        return False


def _matches(path: Path, pattern: str) -> bool:
    """Tell whether a file falls under a pattern, now or as soon as it exists."""
    if "://" in pattern:
        return False
    return _segments_match(path.absolute().parts, Path(pattern).absolute().parts) or _segments_match(
        Path(os.path.realpath(path)).parts, Path(os.path.realpath(pattern)).parts
    )


def _segments_match(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_segments_match(path[skip:], pattern[1:]) for skip in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _segments_match(path[1:], pattern[1:])
