"""Descriptions of a policy for a prompt and a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.rules import Rule
from sqlanon.policy.sections import Attribute, SearchSection
from sqlanon.requirements.registry import list_requirements
from sqlanon.support.markup import html_table


def describe_policy(attributes: Mapping[str, Attribute], privacy: PrivacySection, search: SearchSection) -> str:
    parts = [_list_requirements(privacy)]
    for role in ("quasi", "sensitive"):
        names = [name for name, attribute in attributes.items() if attribute.role == role]
        if names:
            parts.append(f"{role}: {', '.join(names)}")
    return f"Policy({'; '.join([*parts, f'strategy: {search.strategy}'])})"


def policy_table(
    attributes: Mapping[str, Attribute], privacy: PrivacySection, search: SearchSection, persons: bool
) -> str:
    unit = "persons with suppressed rows" if persons else "rows suppressed"
    limit = f"at most {100 * float(search.suppression_limit):g} % of the {unit}"
    caption = f"{_list_requirements(privacy)}; strategy {search.strategy}, {limit}"
    rows = [(name, attribute.role, "; ".join(_describe_treatment(attribute))) for name, attribute in attributes.items()]
    return html_table(caption, ["attribute", "role", "hierarchy"], rows)


def _list_requirements(privacy: PrivacySection) -> str:
    return ", ".join(requirement.name for requirement in list_requirements(privacy))


def _describe_treatment(attribute: Attribute) -> Iterator[str]:
    if attribute.noise is not None:
        yield "noise"
    for rule in attribute.hierarchy or ():
        yield _describe_rule(rule)


def _describe_rule(rule: Rule) -> str:
    """Describe a rule without ground values."""
    key = {"intervals": "widths", "categories": "", "suppress": ""}.get(rule.kind, rule.kind)
    parameter = getattr(rule, key) if key else ""
    if isinstance(parameter, Path):
        parameter = parameter.name
    elif isinstance(parameter, tuple):
        parameter = ", ".join(map(str, parameter))
    return f"{rule.kind} {parameter}".strip()
