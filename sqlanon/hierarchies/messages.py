"""What is wrong with a hierarchy, in words for people: each message names values, counts and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlanon.fields import shown
from sqlanon.hierarchies.parts import Generated, Listed, Part


class Finding(NamedTuple):
    """A violating row: what it is about, up to two texts more, and how many there are of it."""

    label: str | None
    first: str | None
    last: str | None
    n: int


def _listing(findings: list[Finding], total: int, unit: str = "") -> str:
    """Name the first values, with counts, and how many more there are."""
    names = [shown(finding.label) + _counted(finding.n, unit) for finding in findings]
    more = total - len(findings)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _counted(n: int, unit: str) -> str:
    return f" ({n:,} {unit}{'s' if n != 1 else ''})" if unit else ""


def empty(part: Listed, findings: list[Finding], total: int) -> str:
    """Say that a table lists nothing."""
    return f"{part.what} is empty: it needs one row per ground value, leaf to root"


def lines(part: Listed, findings: list[Finding], total: int) -> str:
    """Say that the engine read a file otherwise than it is."""
    read = findings[0].n
    return f"{part.what} has {part.lines} lines, but the engine reads {read}: check its quotes and line ends"


def odd(part: Listed, column_type: str, findings: list[Finding], total: int) -> str:
    """Say which keys the column cannot hold."""
    if findings[0].label is None and total == 1:
        return f"{part.what} has a row without a key: leave it out, NULL stays NULL up to the top"
    named_keys = _listing([finding for finding in findings if finding.label is not None], total)
    hint = "a hierarchy file has no header; " if part.what.startswith("file") else ""
    return (
        f"{part.what}: keys that are no values of type {column_type}: {named_keys}; "
        f"{hint}each key has to be a value that the column can hold"
    )


def twice(part: Listed, findings: list[Finding], total: int) -> str:
    """Say which keys are listed more than once."""

    def spelled(finding: Finding) -> str:
        if finding.first == finding.last:
            return ""
        return f", spelled {shown(finding.first)} and {shown(finding.last)}"

    names = [f"{shown(finding.label)} ({finding.n:,} times{spelled(finding)})" for finding in findings]
    more = f" and {total - len(findings):,} more" if total > len(findings) else ""
    return f"{part.what}: keys that are listed more than once: {', '.join(names)}{more}; keep one of each"


def missing(part: Listed, findings: list[Finding], total: int) -> str:
    """Say which keys lack a label."""
    names = [f"{shown(finding.label)} (level {finding.first})" for finding in findings]
    more = f" and {total - len(findings):,} more" if total > len(findings) else ""
    return f"{part.what}: keys that lack a label: {', '.join(names)}{more}; each needs one for each level"


def tree(level: int, findings: list[Finding], total: int) -> str:
    """Say which labels have more than one parent."""
    names = "; ".join(f"{shown(finding.label)} lies under {_parents(finding)}" for finding in findings)
    more = f"; and {total - len(findings):,} more" if total > len(findings) else ""
    return (
        f"no tree between levels {level} and {level + 1}: {names}{more}. "
        "Values equal at a level have to be equal above it: give them one parent, or labels that differ"
    )


def _parents(finding: Finding) -> str:
    others = f", and {finding.n - 2:,} more" if finding.n > 2 else ""
    return f"{shown(finding.first)} and {shown(finding.last)}{others}"


def top(height: int, findings: list[Finding], total: int) -> str:
    """Say that the top level has more than one value."""
    return (
        f"the top, level {height}, has {findings[0].n:,} values: {_parents(findings[0])}; "
        "it has to have one: add a last level with the same label everywhere, such as *"
    )


def null(findings: list[Finding], total: int) -> str:
    """Say that NULL has no top."""
    rows = _counted(findings[0].n, "row")
    return (
        f"the hierarchy has no level above the values, and the column has NULL{rows}, "
        "which becomes the top: add a last level with the same label everywhere, such as *"
    )


def unknown(parts: Sequence[Part], findings: list[Finding], total: int) -> str:
    """Say which values of the column have no labels."""
    values = _listing(findings, total, "row")
    suppress = 'on a quasi attribute set on_unknown = "suppress" to leave their rows out'
    if any(isinstance(part, Listed) for part in parts):
        return f"values that are missing from the hierarchy: {values}; add them to it, or {suppress}"
    kinds = " and ".join(part.what for part in parts if isinstance(part, Generated) and not part.total)
    remedy = f"make them NULL in the source query, or {suppress}"
    return f"values that {kinds} have no label for: {values}; {remedy}"
