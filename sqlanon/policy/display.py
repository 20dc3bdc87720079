"""A policy at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.rules import Rule
from sqlanon.policy.sections import Attribute, SearchSection
from sqlanon.requirements.registry import list_requirements
from sqlanon.support.markup import html_table


def describe_policy(attributes: Mapping[str, Attribute], privacy: PrivacySection, search: SearchSection) -> str:
    names = {
        role: ", ".join(name for name, one in attributes.items() if one.role == role) for role in ("quasi", "sensitive")
    }
    parts = [_requirements(privacy), *(f"{role}: {listed}" for role, listed in names.items() if listed)]
    return f"Policy({'; '.join([*parts, f'strategy: {search.strategy}'])})"


def policy_table(
    attributes: Mapping[str, Attribute], privacy: PrivacySection, search: SearchSection, persons: bool
) -> str:
    who = "persons with suppressed rows" if persons else "rows suppressed"
    limit = f"at most {100 * float(search.suppression_limit):g} % of the {who}"
    caption = f"{_requirements(privacy)}; strategy {search.strategy}, {limit}"
    rows = [(name, one.role, "; ".join(_done(one))) for name, one in attributes.items()]
    return html_table(caption, ["attribute", "role", "hierarchy"], rows)


def _requirements(privacy: PrivacySection) -> str:
    return ", ".join(one.name for one in list_requirements(privacy))


def _done(attribute: Attribute) -> Iterator[str]:
    if attribute.noise is not None:
        yield "noise"
    for rule in attribute.hierarchy or ():
        yield _in_words(rule)


def _in_words(rule: Rule) -> str:
    """A rule without the values in it."""
    key = {"intervals": "widths", "categories": "", "suppress": ""}.get(rule.kind, rule.kind)
    given = getattr(rule, key) if key else ""
    if isinstance(given, Path):
        given = given.name
    elif isinstance(given, tuple):
        given = ", ".join(map(str, given))
    return f"{rule.kind} {given}".strip()
