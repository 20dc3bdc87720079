"""Checks of the privacy requirements against the attributes, the population and the release.

They read what is written, sound or not: a wrong number in a requirement hides no wrong name in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from sqlanon.errors import Problem
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join
from sqlanon.policy.sections import Attribute, Role
from sqlanon.policy.values import Section, nearest

_Keys: TypeAlias = Mapping[str, Any]

_ON_SENSITIVE = ("l_diversity", "t_closeness", "delta_disclosure", "beta_likeness", "alpha_k")
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
        yield from _of_attributes(privacy, attributes, names)
    yield from _population(privacy, written)
    yield from _person("source", _keys(written.get("source")), attributes)
    yield from _person("population", _keys(written.get("population")), attributes)


def _of_attributes(privacy: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
    for kind in _ON_SENSITIVE:
        for place, keys in _each(privacy, kind):
            yield from _on_sensitive(place, keys, attributes, names)
    for place, keys in _each(privacy, "k_anonymity"):
        yield from _shield(place, keys, attributes, names)


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


def _on_sensitive(place: str, keys: _Keys, attributes: Mapping[str, Attribute], names: list[str]) -> Iterator[Problem]:
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
    if keys.get("distance") == "hierarchical" and attribute.hierarchy is None:
        yield Problem(
            join(place, "distance"),
            f"hierarchical needs a hierarchy of {name!r}, and there is none: "
            f"add hierarchy = ... to {join('attributes', name)}, or use another distance",
        )
    others = any(attribute.role == "sensitive" for other, attribute in attributes.items() if other != name)
    # An unsound attribute may be meant to be sensitive.
    if keys.get("joint") is True and not others and len(attributes) == len(names):
        yield Problem(join(place, "joint"), f"needs another sensitive attribute beside {name!r}: leave it out")


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
