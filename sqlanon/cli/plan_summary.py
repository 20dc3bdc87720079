"""A plan on one screen: the settings of the policy, and the number of statements of each stage."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlanon.engines.statement_runner import Plan
    from sqlanon.policy import Policy
    from sqlanon.policy.linked import LinkedPolicy
    from sqlanon.policy.linked_sections import LinkedReleaseSection
    from sqlanon.policy.sections import ReleaseSection, SourceSection

_WIDTH = 80
"""Maximum length of a line, in characters."""

_LABEL_WIDTH = 15
_MAX_HIERARCHIES = 8


def format_plan(policy: Policy, plan: Plan, command: str) -> str:
    """Summarize a policy and the stages of its plan; ``command`` prints the statements."""
    lines = []
    for label, text in _describe_policy(policy, plan):
        lines += _wrap(f"{label}:", text)
    lines += ["quasi-identifiers:", *_describe_hierarchies(policy)]
    return "\n".join([*lines, *_describe_statements(plan, command)])


def _describe_statements(plan: Plan, command: str) -> list[str]:
    """The number of statements of each stage, and the command that prints them."""
    counts = ", ".join(f"{stage.name} ({len(stage.sql)})" for stage in plan.stages)
    return [*_wrap("statements:", counts), f"Nothing was run. To print the statements: {command}"]


def format_linked_plan(policy: LinkedPolicy, plan: Plan, command: str) -> str:
    """Summarize a policy of several tables and its search; ``command`` prints the statements."""
    lines = []
    for label, text in _describe_linked_policy(policy, plan):
        lines += _wrap(f"{label}:", text)
    for section in policy.ordered_tables:
        table_policy, parent = policy.policy_of(section), policy.parent_of(section)
        key = f", key {', '.join(section.key)}" if section.key else ""
        belongs = f"persons by {', '.join(section.person)}"
        if parent is not None:
            belongs = f"rows of {parent.name} by {', '.join(section.columns_naming(parent.name))}"
            further = [target for target in dict.fromkeys(section.references.values()) if target != parent.name]
            belongs += "".join(f", with {target} by {', '.join(section.columns_naming(target))}" for target in further)
            belongs += key
        lines += _wrap("table:", f"{section.name}, from {_describe_source(table_policy)}: {belongs}")
        lines += _describe_hierarchies(table_policy)
        for role in ("sensitive", "insensitive", "identifying"):
            if names := section.names_of(role):
                lines.append(_shorten(f"  {role}: {', '.join(names)}"))
    return "\n".join([*lines, *_describe_statements(plan, command)])


def _describe_linked_policy(policy: LinkedPolicy, plan: Plan) -> Iterator[tuple[str, str]]:
    from sqlanon.linked.release.sentences import describe_known
    from sqlanon.policy.strategies import STRATEGIES

    release, privacy, search = policy.release, policy.privacy, policy.search
    yield "release", _describe_linked_release(release)
    names = [f"{privacy.k}-anonymity", *(requirement.name for _, _, requirement in privacy.named_requirements)]
    attacker = f"for an attacker who knows {describe_known(privacy.known)} of a person"
    yield "requirements", f"{', '.join(names)}, {attacker}"
    text = f"{search.strategy}: {STRATEGIES[search.strategy].description}"
    if plan.nodes is not None:
        text += f" ({plan.nodes:,} generalizations of all tables together)"
    elif not plan.local:
        text += f" (their number depends on the data: on the values of {', '.join(plan.unknown_heights)})"
    yield "strategy", text
    limits = [
        f"at most {100 * float(limit):.4g} % of the {unit} suppressed"
        for limit, unit in ((search.suppression_limit, "persons"), (search.row_suppression_limit, "child rows"))
        if limit
    ]
    limits += [f"at most {search.time_limit:g} seconds"] if search.time_limit is not None else []
    limits += [f"at most {search.max_checks:,} checks"] if search.max_checks is not None else []
    yield "measure", ", ".join([search.measure, *(limits or ["nothing suppressed"])])


def _describe_linked_release(release: LinkedReleaseSection | None) -> str:
    if release is not None and release.database is not None:
        return release.database.name
    if release is not None and release.folder is not None:
        return f"folder {release.folder.name}"
    if release is not None and release.postgres is not None:
        return f"PostgreSQL, schema {release.schema_name}"
    if release is not None and release.spark:
        return f"Spark, schema {release.schema_name}"
    return "nowhere: give [release] database or folder, or --output"


def _describe_policy(policy: Policy, plan: Plan) -> Iterator[tuple[str, str]]:
    from sqlanon.requirements import list_requirements

    yield "source", _describe_source(policy)
    yield "release", _describe_release(policy)
    yield "requirements", ", ".join(requirement.name for requirement in list_requirements(policy.privacy))
    yield "strategy", _describe_strategy(policy, plan)
    search = policy.search
    limits = ["no rows suppressed"]
    if search.suppression_limit:
        unit = "rows suppressed" if policy.source.person_column is None else "persons with suppressed rows"
        limits = [f"at most {100 * float(search.suppression_limit):.4g} % of the {unit}"]
    limits += [f"at most {search.time_limit:g} seconds"] if search.time_limit is not None else []
    limits += [f"at most {search.max_checks:,} checks"] if search.max_checks is not None else []
    yield "measure", ", ".join([search.measure, *limits])
    for role in ("identifying", "sensitive", "insensitive"):
        if names := policy.attributes_with_role(role):
            yield role, _list_names(names)


def _describe_source(policy: Policy) -> str:
    from sqlanon.places.databases import file_name

    source, server_name = policy.source, _server_name(policy.source)
    rows = "a query" if source.query is not None else f"table {source.table}"
    if source.files:
        return _list_names([file_name(file) for file in source.files])
    if source.frequency_set:
        return "counts of a table in a warehouse"
    if isinstance(source.database, Path):
        return f"{rows} of {source.database.name}"
    location = server_name or (None if source.database is None else "a database")
    return rows if location is None else f"{rows} in {location}"


def _server_name(section: SourceSection | ReleaseSection) -> str | None:
    """The kind of server that a section names."""
    from sqlanon.places.addresses import SERVER_NAMES

    return next((name for key, name in SERVER_NAMES.items() if getattr(section, key) is not None), None)


def _describe_release(policy: Policy) -> str:
    release = policy.release
    if release is None or not release.has_location:
        return "nowhere: give [release] database or file, or --output FILE"
    file = release.database or release.file
    location = _server_name(release) if file is None else file.name
    return f"{location}, table {release.table}" + (", a draft" if release.draft else "")


def _describe_strategy(policy: Policy, plan: Plan) -> str:
    from sqlanon.policy.strategies import STRATEGIES

    search = policy.search
    text = search.strategy
    if search.suppression == "cells":
        text += " with cells"
    elif search.traits.summarizes:
        text += f" with {search.summary}s"
    text += f": {STRATEGIES[search.strategy].description}"
    if search.is_local:
        return text
    if plan.nodes is not None:
        return f"{text} ({plan.nodes:,} generalizations)"
    return f"{text} (their number depends on the data: on the values of {', '.join(plan.unknown_heights)})"


def _describe_hierarchies(policy: Policy) -> list[str]:
    quasi = policy.quasi_identifiers
    names = quasi if len(quasi) <= _MAX_HIERARCHIES else quasi[: _MAX_HIERARCHIES - 1]
    width = min(max(map(len, names), default=0), 30)
    lines = []
    for name in names:
        attribute = policy.attributes[name]
        rules = ", then ".join(_describe_rule(rule) for rule in attribute.hierarchy or ())
        if attribute.noise is not None:
            epsilon = attribute.noise.epsilon  # without one, a share of the policy's ε
            rules = "noise" if epsilon is None else f"noise, ε = {epsilon:g}"
        lines.append(_shorten(f"  {name:<{width}}  {rules}"))
    return lines + ([f"  and {len(quasi) - len(names)} more"] if len(quasi) > len(names) else [])


def _describe_rule(rule: Any) -> str:
    """A rule in a few words.

    >>> from sqlanon.policy.rules import DatesRule, FileRule, IntervalsRule, MaskRule, SuppressRule
    >>> rules = MaskRule(mask="right"), IntervalsRule(widths=(5, 10)), DatesRule(dates=("month", "year"))
    >>> [_describe_rule(rule) for rule in (*rules, FileRule(file="x/zip.csv"), SuppressRule())]
    ['mask from the right', 'intervals of 5, 10', 'dates by month, year', 'file zip.csv', 'suppress']
    """
    match rule.kind:
        case "mask":
            return f"mask from the {rule.mask}"
        case "intervals":
            return f"intervals of {', '.join(f'{width:g}' for width in rule.widths)}"
        case "dates":
            return f"dates by {', '.join(rule.dates)}"
        case "file":
            return f"file {rule.file.name}"
        case "table":
            return f"table {rule.table}"
    return str(rule.kind)


def _wrap(label: str, text: str) -> list[str]:
    start, indent = label.ljust(_LABEL_WIDTH), " " * _LABEL_WIDTH
    return textwrap.wrap(
        text, _WIDTH, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _list_names(names: Sequence[str]) -> str:
    """Names on one line: all, or the first ones and the number of others."""
    width = _WIDTH - _LABEL_WIDTH
    for count in range(len(names), 0, -1):
        more = len(names) - count
        text = ", ".join(names[:count]) + (f" and {more} more" if more else "")
        if len(text) <= width:
            return text
    return _shorten(f"{len(names)} of them", width)


def _shorten(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else text[: width - 4].rpartition(" ")[0] + " ..."
