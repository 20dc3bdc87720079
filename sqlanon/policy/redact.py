"""The part of a policy that the manifest of a release may show."""

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
    """The public fields of an attribute."""
    redacted: dict[str, Any] = {"role": attribute.role}
    if attribute.hierarchy is not None:
        redacted["hierarchy"] = [rule.redact() for rule in attribute.hierarchy]
    if attribute.noise is not None:
        redacted["noise"] = attribute.noise.model_dump(mode="json")
        redacted["on_unknown"] = attribute.on_unknown
    elif attribute.role == "quasi":
        redacted |= {"weight": attribute.weight, "on_unknown": attribute.on_unknown, "min_level": attribute.min_level}
        if attribute.max_level is not None:
            redacted["max_level"] = attribute.max_level
        if attribute.forbidden:
            redacted["forbidden"] = len(attribute.forbidden)
        if attribute.identification != "identifying":
            redacted["identification"] = attribute.identification
    return redacted


def find_unknown_parts(redacted: Mapping[str, Any]) -> Iterator[str]:
    """The places in an untrusted redacted policy that `Policy.redact` cannot have written.

    Keys may be missing, and names of attributes are arbitrary.

    >>> sorted(find_unknown_parts({"persons": "John", "attributes": {"zip": {"role": "quasi", "note": 1}}}))
    ['attributes.zip.note', 'persons']
    """
    for name, value in redacted.items():
        if name == "attributes":
            for attribute, spec in value.items():
                yield from (f"attributes.{attribute}.{key}" for key in _unknown_keys(spec, _ATTRIBUTE_KEYS))
        elif name in ("privacy", "search"):
            section: type[PrivacySection] | type[SearchSection] = PrivacySection if name == "privacy" else SearchSection
            if not _matches_section(section, value):
                yield name
    flags = {name: value for name, value in redacted.items() if name not in ("attributes", "privacy", "search")}
    yield from _unknown_keys(flags, _POLICY_KEYS)


def _unknown_keys(redacted: Mapping[str, Any], is_valid: Mapping[str, Callable[[Any], bool]]) -> Iterator[str]:
    return (name for name, value in redacted.items() if name not in is_valid or not is_valid[name](value))


def _matches_section(section: type[PrivacySection] | type[SearchSection] | type[Noise], redacted: Any) -> bool:
    """Whether a section could have been redacted to this, with keys left out."""
    part, _ = read_part(section, _parse_dates(redacted), "", {})
    return part is not None and _is_within(redacted, part.model_dump(mode="json", exclude_none=True))


def _is_within(redacted: Any, full: Any) -> bool:
    if isinstance(redacted, dict) and isinstance(full, dict):
        return all(name in full and _is_within(value, full[name]) for name, value in redacted.items())
    if isinstance(redacted, list) and isinstance(full, list):
        return len(redacted) == len(full) and all(map(_is_within, redacted, full))
    return json.dumps(redacted) == json.dumps(full)


def _is_rules(redacted: Any) -> bool:
    return isinstance(redacted, list) and all(isinstance(rule, dict) and _is_rule(rule) for rule in redacted)


def _is_rule(redacted: Mapping[str, Any]) -> bool:
    kind = str(redacted.get("rule"))
    parameters = {name: value for name, value in redacted.items() if name != "rule"}
    if kind in _PUBLIC_RULES:
        rule, _ = read_part(_PUBLIC_RULES[kind], _parse_dates(parameters), "", {})
        return rule is not None and _is_within(redacted, json.loads(json.dumps(rule.redact())))
    counts = {"categories": {"levels", "depth"}, "file": {"levels"}, "table": {"levels"}, "suppress": set[str]()}
    return kind in counts and parameters.keys() <= counts[kind] and all(map(_is_count, parameters.values()))


def _parse_dates(redacted: Any) -> Any:
    if isinstance(redacted, dict):
        return {name: _parse_dates(value) if name in _DATE_KEYS else value for name, value in redacted.items()}
    if isinstance(redacted, list):
        return [_parse_dates(value) for value in redacted]
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


_DATE_KEYS = ("origin", "below", "above", "bounds")
_PUBLIC_RULES: Mapping[str, type[MaskRule] | type[IntervalsRule] | type[DatesRule]] = {
    "mask": MaskRule,
    "intervals": IntervalsRule,
    "dates": DatesRule,
}
_POLICY_KEYS: Mapping[str, Callable[[Any], bool]] = {
    "undeclared": _one_of("error", "drop"),
    "persons": _is_switch,
    "population": _is_switch,
    "suppressed": _one_of("drop", "mask"),
    "decoys": _is_switch,
    "draft": _is_switch,
}
_ATTRIBUTE_KEYS: Mapping[str, Callable[[Any], bool]] = {
    "role": _one_of(*get_args(Role)),
    "hierarchy": _is_rules,
    "noise": lambda redacted: _matches_section(Noise, redacted),
    "weight": _is_number,
    "on_unknown": _one_of("error", "suppress"),
    "min_level": _is_count,
    "max_level": _is_count,
    "forbidden": _is_count,
    "identification": _one_of(*get_args(Identification)),
}
