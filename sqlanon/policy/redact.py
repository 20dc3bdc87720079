"""What the manifest of a release may show of the policy that made it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, get_args

from sqlanon.policy.noise import Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.policy.rules import DatesRule, IntervalsRule, MaskRule
from sqlanon.policy.sections import Attribute, Identification, Role, SearchSection

if TYPE_CHECKING:
    from sqlanon.policy.models import Policy


def redact(policy: Policy) -> dict[str, Any]:
    """Return a policy for the eyes of readers of its release, ready for JSON.

    Of attributes and rules, what may be shown is listed, not what must be hidden: a field that a later
    version adds stays hidden until somebody decides otherwise. Of forbidden labels only the number is shown: they are
    values, or stand for some. Requirements and search are parameters. Whether
    persons are counted, and that there is a population, says how to read the figures; their names say more.
    """
    return {
        "undeclared": policy.source.undeclared,
        "persons": policy.source.person is not None,
        "population": policy.population is not None,
        "attributes": {name: _attribute(attribute) for name, attribute in policy.attributes.items()},
        "privacy": policy.privacy.model_dump(mode="json", exclude_none=True, exclude={"epsilon_total"}),
        "search": policy.search.model_dump(mode="json", exclude_none=True),
        "suppressed": policy.release.suppressed if policy.release else "drop",
        **({"decoys": True} if policy.decoys else {}),
    }


def _attribute(attribute: Attribute) -> dict[str, Any]:
    shown: dict[str, Any] = {"role": attribute.role}
    if attribute.hierarchy is not None:
        shown["hierarchy"] = [rule.redacted() for rule in attribute.hierarchy]
    if attribute.noise is not None:
        shown["noise"] = attribute.noise.model_dump(mode="json")
        shown["on_unknown"] = attribute.on_unknown
    elif attribute.role == "quasi":
        shown |= {
            "weight": attribute.weight,
            "on_unknown": attribute.on_unknown,
            "min_level": attribute.min_level,
        }
        if attribute.max_level is not None:
            shown["max_level"] = attribute.max_level
        if attribute.forbidden:
            shown["forbidden"] = len(attribute.forbidden)
        if attribute.identification != "identifying":
            shown["identification"] = attribute.identification
    return shown


def strange_parts(shown: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a redacted policy, as somebody may have written it, that `redact` makes of no policy; as places.

    A key may be missing: older versions knew fewer. Names of attributes are the holder's own.

    >>> sorted(strange_parts({"persons": "John", "attributes": {"zip": {"role": "quasi", "note": 1}}}))
    ['attributes.zip.note', 'persons']
    """
    for name, value in shown.items():
        if name == "attributes":
            for attribute, spec in value.items():
                yield from (f"attributes.{attribute}.{key}" for key in _strange_keys(spec, _OF_ATTRIBUTE))
        elif name in ("privacy", "search"):
            section: type[PrivacySection] | type[SearchSection] = PrivacySection if name == "privacy" else SearchSection
            if not _is_written_by(section, value):
                yield name
    yield from _strange_keys({name: shown[name] for name in shown if name not in _PARTS}, _OF_POLICY)


def _strange_keys(shown: Mapping[str, Any], known: Mapping[str, Callable[[Any], bool]]) -> Iterator[str]:
    return (name for name, value in shown.items() if name not in known or not known[name](value))


def _is_written_by(section: type[PrivacySection] | type[SearchSection] | type[Noise], shown: Any) -> bool:
    """Whether a section that is asked for is written like this, but for what is left out."""
    read, _ = read_part(section, _with_dates(shown), "", {})
    return read is not None and _is_within(shown, read.model_dump(mode="json", exclude_none=True))


def _is_within(shown: Any, written: Any) -> bool:
    if isinstance(shown, dict) and isinstance(written, dict):
        return all(name in written and _is_within(value, written[name]) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(written, list):
        return len(shown) == len(written) and all(map(_is_within, shown, written))
    return json.dumps(shown) == json.dumps(written)


def _is_rules(shown: Any) -> bool:
    return isinstance(shown, list) and all(isinstance(rule, dict) and _is_rule(rule) for rule in shown)


def _is_rule(shown: Mapping[str, Any]) -> bool:
    kind = str(shown.get("rule"))
    rest = {name: value for name, value in shown.items() if name != "rule"}
    if kind in _WITH_PARAMETERS:
        read, _ = read_part(_WITH_PARAMETERS[kind], _with_dates(rest), "", {})
        return read is not None and _is_within(shown, json.loads(json.dumps(read.redacted())))
    own = {"categories": {"levels", "depth"}, "file": {"levels"}, "table": {"levels"}, "suppress": set[str]()}
    return kind in own and rest.keys() <= own[kind] and all(map(_is_count, rest.values()))


def _with_dates(shown: Any) -> Any:
    if isinstance(shown, dict):
        return {name: _with_dates(value) if name in _OF_DATES else value for name, value in shown.items()}
    if isinstance(shown, list):
        return [_with_dates(value) for value in shown]
    try:
        return date.fromisoformat(shown) if isinstance(shown, str) else shown
    except ValueError:
        return shown


def _is_count(shown: Any) -> bool:
    return type(shown) is int and 0 <= shown < 2**63


def _is_number(shown: Any) -> bool:
    return type(shown) in (int, float)


def _is_switch(shown: Any) -> bool:
    return type(shown) is bool


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda shown: isinstance(shown, str) and shown in values


_OF_DATES = ("origin", "below", "above", "bounds")
_PARTS = ("attributes", "privacy", "search")
_WITH_PARAMETERS: Mapping[str, type[MaskRule] | type[IntervalsRule] | type[DatesRule]] = {
    "mask": MaskRule,
    "intervals": IntervalsRule,
    "dates": DatesRule,
}
_OF_POLICY: Mapping[str, Callable[[Any], bool]] = {
    "undeclared": _one_of("error", "drop"),
    "persons": _is_switch,
    "population": _is_switch,
    "suppressed": _one_of("drop", "mask"),
    "decoys": _is_switch,
}
_OF_ATTRIBUTE: Mapping[str, Callable[[Any], bool]] = {
    "role": _one_of(*get_args(Role)),
    "hierarchy": _is_rules,
    "noise": lambda shown: _is_written_by(Noise, shown),
    "weight": _is_number,
    "on_unknown": _one_of("error", "suppress"),
    "min_level": _is_count,
    "max_level": _is_count,
    "forbidden": _is_count,
    "identification": _one_of(*get_args(Identification)),
}
