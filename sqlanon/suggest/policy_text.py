"""A policy as TOML, with comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlanon.policy.toml import toml_key, toml_text, toml_value
from sqlanon.release.dependencies import Narrowing
from sqlanon.suggest.propose import Proposal
from sqlanon.suggest.trials import Trial

_SHOWN = 5

K = 5
SUPPRESSION_LIMIT = Decimal("0.05")

_Figures = Mapping[frozenset[str], tuple[float | None, float | None]]
"""Distinction and separation, by sets of columns."""


@dataclass(frozen=True)
class Seen:
    """What was seen of a table, every ``step``-th row of it: for the comments."""

    rows: int
    step: int
    apart: _Figures
    narrowing: Sequence[Narrowing]
    trials: Sequence[Trial]


def policy_text(
    source: Mapping[str, object], release: Mapping[str, str], proposals: Sequence[Proposal], seen: Seen
) -> str:
    apart, step = seen.apart, seen.step
    size = f"{seen.rows:,} rows" + (f"; about one in {step:,} was looked at" if step > 1 else "")
    lines = [
        "#:schema ./sqlanon.schema.json",  # for editors: `sqlanon schema > sqlanon.schema.json` beside the policy
        "# A policy to start from, written by `sqlanon suggest`. It goes by names, types and figures, and knows",
        "# nothing of what they mean: read every line before you share anything. It is private, as the table is.",
        f"# Figures are of {size}.",
        *(["# (Of all rows, distinction is less; separation is about the same.)"] if step > 1 else []),
        "",
        "[source]",
        *_pairs(source),
        "",
        "# identifying: never released. quasi: what others may know of a person: generalized.",
        "# sensitive: what nobody should learn. insensitive: all else. (The last two are released as they are.)",
        *_what_tells_apart(proposals, apart),
        *_what_narrows(seen.narrowing),
        "[attributes]",
        *(_attribute(one, apart) for one in proposals),
        "",
        "[privacy]",
        f"k = {K}  # everyone shares their values with at least k - 1 others",
        *_about_sensitive(proposals),
        "",
        "[search]",
        *_about_strategies(seen),
        f"suppression_limit = {SUPPRESSION_LIMIT}  # at most this share of the rows is left out",
        "time_limit = 60  # seconds; then the best is taken that was found",
        "",
        "[release]",
        *_pairs(release),
    ]
    return "\n".join(lines) + "\n"


def chosen(trials: Sequence[Trial]) -> Trial | None:
    """The strategy that keeps the most: first columns, then values. None where none can run.

    >>> from dataclasses import replace
    >>> rough = Trial("rough", {"strategy": "optimal"}, loss=0.1, fully_suppressed=("age",))
    >>> fine = Trial("fine", {"strategy": "mondrian"}, loss=0.2)
    >>> chosen([rough, fine]).name, chosen([replace(fine, error="no")])
    ('fine', None)
    """
    able = [one for one in trials if one.error is None]
    return min(able, key=lambda one: (len(one.fully_suppressed), one.loss), default=None)


def _about_strategies(seen: Seen) -> list[str]:
    """The figures of all strategies, and the keys that choose the best of them."""
    best = chosen(seen.trials)
    if best is None:
        return []
    of = f"a sample of {best.rows:,}" if best.rows < seen.rows else f"all {seen.rows:,}"
    lines = [
        f"# Strategies that were tried on {of} rows, with the policy above; loss 0: nothing is lost, 1: everything.",
        *(f"#   {one.name}: {_tried(one)}" for one in seen.trials),
    ]
    first, *others = best.search.items()
    lines.append(f"{first[0]} = {toml_value(first[1])}  # it keeps the most")
    return lines + _pairs({key: value for key, value in others if value not in ("range", "rows")})


def _tried(one: Trial) -> str:
    if one.error is not None:
        return one.error.splitlines()[0].split(". ")[0]
    parts = [f"loss {'at most ' if one.stopped else ''}{one.loss:.2g}"]
    if one.suppressed_rows:
        parts.append(f"leaves out {100 * one.suppressed_rows / one.rows:.1f} % of the rows")
    if one.fully_suppressed:
        parts.append(f"hides {', '.join(map(toml_key, one.fully_suppressed))}")
    return ", ".join(parts)


def _pairs(section: Mapping[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in section.items()]


def _attribute(one: Proposal, apart: _Figures) -> str:
    rule = one.hierarchy if one.shown is None else one.shown
    hierarchy = "" if rule is None else f", hierarchy = {toml_value(rule)}"
    figures = f"; {_figures(*apart[alone])}" if (alone := frozenset([one.column.name])) in apart else ""
    return f'{toml_key(one.column.name)} = {{ role = "{one.role}"{hierarchy} }}  # {one.reason}{figures}'


def _figures(distinction: float | None, separation: float | None) -> str:
    figures = [f"distinction {distinction:.4f}"] if distinction is not None else []
    figures += [f"separation {separation:.4f}"] if separation is not None else []
    return ", ".join(figures) or "no rows"


def _what_tells_apart(proposals: Sequence[Proposal], apart: _Figures) -> list[str]:
    several = [(names, found) for names, found in apart.items() if len(names) > 1 and found[0] is not None]
    if not several:
        return []
    order = {one.column.name: i for i, one in enumerate(proposals)}
    several.sort(key=lambda one: (-(one[1][0] or 0), len(one[0]), sorted(order[name] for name in one[0])))
    lines = [
        "# What tells rows apart: the distinct combinations of the columns by the rows (distinction), and the share of",
        "# the pairs of rows that differ in them (separation):",
    ]
    for names, found in several[:_SHOWN]:
        listed = ", ".join(toml_key(name) for name in sorted(names, key=lambda name: order[name]))
        lines.append(f"#   {listed}: {_figures(*found)}")
    return lines


def _what_narrows(dependencies: Sequence[Narrowing]) -> list[str]:
    if not dependencies:
        return []
    lines = [
        "# These columns narrow quasi-identifiers although they are generalized: make them quasi, or leave them out:"
    ]
    for one in dependencies:
        names = ", ".join(map(toml_key, one.columns))
        lines.append(f"#   {names}: {one.after:,.1f} of {one.before:,.1f} values of {toml_key(one.quasi)} are left")
    return lines


def _about_sensitive(proposals: Sequence[Proposal]) -> list[str]:
    sensitive = [one.column.name for one in proposals if one.role == "sensitive"]
    if not sensitive:
        return []
    return [
        f"# A class whose rows all have the same {toml_key(sensitive[0])} gives it away. Against that:",
        "# [[privacy.l_diversity]]",
        f"# attribute = {toml_text(sensitive[0])}",
        '# kind = "distinct"',
        "# l = 2",
    ]
