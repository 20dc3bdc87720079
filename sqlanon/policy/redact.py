"""What the manifest of a release may show of its policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, get_args

from sqlanon.policy.noise import Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.policy.rules import DatesRule, IntervalsRule, MaskRule
from sqlanon.policy.sections import Attribute, Identification, Role, SearchSection


def redact_attribute(attribute: Attribute) -> dict[str, Any]:
    """An attribute for the eyes of readers of a release."""
    redacted: dict[str, Any] = {"role": attribute.role}
    if attribute.hierarchy is not None:
        redacted["hierarchy"] = [rule.redact() for rule in attribute.hierarchy]
    if attribute.noise is not None:
        redacted["noise"] = attribute.noise.model_dump(mode="json")
        redacted["on_unknown"] = attribute.on_unknown
    elif attribute.role == "quasi":
        redacted |= {
            "weight": attribute.weight,
            "on_unknown": attribute.on_unknown,
            "min_level": attribute.min_level,
        }
        if attribute.max_level is not None:
            redacted["max_level"] = attribute.max_level
        if attribute.forbidden:
            redacted["forbidden"] = len(attribute.forbidden)
        if attribute.identification != "identifying":
            redacted["identification"] = attribute.identification
    return redacted


def find_unknown_parts(redacted: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a redacted policy, as somebody may have written it, that `Policy.redact` makes of none; as places.

    A key may be missing: older versions knew fewer. Names of attributes are the holder's own.

    >>> sorted(find_unknown_parts({"persons": "John", "attributes": {"zip": {"role": "quasi", "note": 1}}}))
    ['attributes.zip.note', 'persons']
    """
    for name, value in redacted.items():
        if name == "attributes":
            for attribute, spec in value.items():
                yield from (f"attributes.{attribute}.{key}" for key in _strange_keys(spec, _OF_ATTRIBUTE))
        elif name in ("privacy", "search"):
            section: type[PrivacySection] | type[SearchSection] = PrivacySection if name == "privacy" else SearchSection
            if not _is_written_by(section, value):
                yield name
    yield from _strange_keys({name: redacted[name] for name in redacted if name not in _PARTS}, _OF_POLICY)


def _strange_keys(redacted: Mapping[str, Any], known: Mapping[str, Callable[[Any], bool]]) -> Iterator[str]:
    return (name for name, value in redacted.items() if name not in known or not known[name](value))


def _is_written_by(section: type[PrivacySection] | type[SearchSection] | type[Noise], redacted: Any) -> bool:
    """Whether a section that is asked for is written like this, but for what is left out."""
    read, _ = read_part(section, _with_dates(redacted), "", {})
    return read is not None and _is_within(redacted, read.model_dump(mode="json", exclude_none=True))


def _is_within(redacted: Any, written: Any) -> bool:
    if isinstance(redacted, dict) and isinstance(written, dict):
        return all(name in written and _is_within(value, written[name]) for name, value in redacted.items())
    if isinstance(redacted, list) and isinstance(written, list):
        return len(redacted) == len(written) and all(map(_is_within, redacted, written))
    return json.dumps(redacted) == json.dumps(written)


def _is_rules(redacted: Any) -> bool:
    return isinstance(redacted, list) and all(isinstance(rule, dict) and _is_rule(rule) for rule in redacted)


def _is_rule(redacted: Mapping[str, Any]) -> bool:
    kind = str(redacted.get("rule"))
    rest = {name: value for name, value in redacted.items() if name != "rule"}
    if kind in _WITH_PARAMETERS:
        read, _ = read_part(_WITH_PARAMETERS[kind], _with_dates(rest), "", {})
        return read is not None and _is_within(redacted, json.loads(json.dumps(read.redact())))
    own = {"categories": {"levels", "depth"}, "file": {"levels"}, "table": {"levels"}, "suppress": set[str]()}
    return kind in own and rest.keys() <= own[kind] and all(map(_is_count, rest.values()))


def _with_dates(redacted: Any) -> Any:
    if isinstance(redacted, dict):
        return {name: _with_dates(value) if name in _OF_DATES else value for name, value in redacted.items()}
    if isinstance(redacted, list):
        return [_with_dates(value) for value in redacted]
    try:
        return date.fromisoformat(redacted) if isinstance(redacted, str) else redacted
    except ValueError:
        return redacted


def _is_count(redacted: Any) -> bool:
    return type(redacted) is int and 0 <= redacted < 2**63


def _is_number(redacted: Any) -> bool:
    return type(redacted) in (int, float)


def _is_switch(redacted: Any) -> bool:
    return type(redacted) is bool


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda redacted: isinstance(redacted, str) and redacted in values


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
    "draft": _is_switch,
}
_OF_ATTRIBUTE: Mapping[str, Callable[[Any], bool]] = {
    "role": _one_of(*get_args(Role)),
    "hierarchy": _is_rules,
    "noise": lambda redacted: _is_written_by(Noise, redacted),
    "weight": _is_number,
    "on_unknown": _one_of("error", "suppress"),
    "min_level": _is_count,
    "max_level": _is_count,
    "forbidden": _is_count,
    "identification": _one_of(*get_args(Identification)),
}
