"""A plan on one screen: what the policy says, and how many statements each stage has."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlanon.engines.statement_runner import Plan
    from sqlanon.policy import Policy

WIDTH = 80
"""The longest line of a summary, in characters."""

_MOST_HIERARCHIES = 8
_LABEL = 15


def plan_summary(policy: Policy, plan: Plan, command: str) -> str:
    """What a policy says, and how many statements each stage has; the command prints them."""
    lines: list[str] = []
    for label, words in _of_policy(policy, plan):
        lines += _wrapped(f"{label}:", words)
    lines += ["quasi-identifiers:", *_hierarchies(policy)]
    stages = [f"{stage.name} ({len(stage.sql)})" for stage in plan.stages]
    lines += _wrapped("statements:", ", ".join(stages))
    return "\n".join([*lines, f"Nothing was run. To print the statements: {command}"])


def _of_policy(policy: Policy, plan: Plan) -> Iterator[tuple[str, str]]:
    from sqlanon.requirements import list_requirements

    yield "source", _source(policy)
    yield "release", _target(policy)
    yield "requirements", ", ".join(one.name for one in list_requirements(policy.privacy))
    yield "strategy", _strategy(policy, plan)
    search = policy.search
    share = f"at most {_percent(search.suppression_limit)} of the" if search.suppression_limit else "no"
    persons = search.suppression_limit and policy.source.person_column is not None
    limits = [f"{share} {'persons with suppressed rows' if persons else 'rows suppressed'}"]
    limits += [f"at most {search.time_limit:g} seconds"] if search.time_limit is not None else []
    limits += [f"at most {search.max_checks:,} checks"] if search.max_checks is not None else []
    yield "measure", ", ".join([search.measure, *limits])
    for role in ("identifying", "sensitive", "insensitive"):
        if names := policy.attributes_with_role(role):
            yield role, _few(names, WIDTH - _LABEL)


def _source(policy: Policy) -> str:
    from sqlanon.places.databases import file_name

    source = policy.source
    rows = "a query" if source.query is not None else f"table {source.table}"
    if source.files:
        return _few([file_name(one) for one in source.files], WIDTH - _LABEL)
    if source.frequency_set:
        return "counts of a table in a warehouse"
    if isinstance(source.database, Path):
        return f"{rows} of {source.database.name}"
    places = {"PostgreSQL": source.postgres, "Spark": source.spark, "a database": source.database}
    return next((f"{rows} in {name}" for name, place in places.items() if place is not None), rows)


def _target(policy: Policy) -> str:
    release = policy.release
    if release is None or not release.has_location:
        return "nowhere: give [release] database or file, or --output FILE"
    file = release.database or release.file
    place = file.name if file is not None else "PostgreSQL" if release.postgres is not None else "Spark"
    return f"{place}, table {release.table}" + (", a draft" if release.draft else "")


def _strategy(policy: Policy, plan: Plan) -> str:
    from sqlanon.policy.strategies import STRATEGIES

    search = policy.search
    words = search.strategy
    if search.suppression == "cells":
        words += " with cells"
    elif search.traits.summarizes:
        words += f" with {search.summary}s"
    words += f": {STRATEGIES[search.strategy].description}"
    if search.is_local:
        return words
    if plan.nodes is not None:
        return f"{words} ({plan.nodes:,} generalizations)"
    return f"{words} (their number depends on the data: on the values of {', '.join(plan.unknown_heights)})"


def _hierarchies(policy: Policy) -> list[str]:
    names = (
        policy.quasi_identifiers
        if len(policy.quasi_identifiers) <= _MOST_HIERARCHIES
        else policy.quasi_identifiers[: _MOST_HIERARCHIES - 1]
    )
    widest = min(max(map(len, names), default=0), 30)
    lines = []
    for name in names:
        attribute = policy.attributes[name]
        rules = ", then ".join(_rule(rule) for rule in attribute.hierarchy or ())
        if attribute.noise is not None:
            epsilon = attribute.noise.epsilon  # else a share of that of the policy
            rules = "noise" if epsilon is None else f"noise, ε = {epsilon:g}"
        lines.append(_cut(f"  {name:<{widest}}  {rules}"))
    more = len(policy.quasi_identifiers) - len(names)
    return [*lines, f"  and {more} more"] if more else lines


def _rule(rule: Any) -> str:
    """A rule in a few words.

    >>> from sqlanon.policy.rules import DatesRule, FileRule, IntervalsRule, MaskRule, SuppressRule
    >>> _rule(MaskRule(mask="right")), _rule(IntervalsRule(widths=(5, 10))), _rule(DatesRule(dates=("month", "year")))
    ('mask from the right', 'intervals of 5, 10', 'dates by month, year')
    >>> _rule(FileRule(file="x/zip.csv")), _rule(SuppressRule())
    ('file zip.csv', 'suppress')
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


def _percent(limit: Any) -> str:
    return f"{100 * float(limit):.4g} %"


def _wrapped(label: str, words: str) -> list[str]:
    return textwrap.wrap(
        words, WIDTH, initial_indent=f"{label:<{_LABEL}}", subsequent_indent=" " * _LABEL,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _few(names: Sequence[str], width: int) -> str:
    """Names in one line: all of them, or the first ones and the number of the others."""
    for shown in range(len(names), 0, -1):
        more = len(names) - shown
        text = ", ".join(names[:shown]) + (f" and {more} more" if more else "")
        if len(text) <= width:
            return text
    return _cut(f"{len(names)} of them", width)


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 4].rpartition(" ")[0] + " ..."
