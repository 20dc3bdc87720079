"""A policy as TOML, with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from sqlanon.release.dependencies import Narrowing
from sqlanon.suggest.propose import Proposal

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN = 5


def toml_text(value: str) -> str:
    """A text as TOML writes it.

    >>> print(toml_text('my "col"'))
    "my \\"col\\""
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """A key as TOML writes it.

    >>> print(toml_key("zip"), toml_key("my.zip"))
    zip "my.zip"
    """
    return name if _BARE.fullmatch(name) else toml_text(name)


def toml_value(value: object) -> str:
    """A value as TOML writes it: a text, a number, a list, a table in one line.

    >>> print(toml_value({"intervals": [Decimal("0.5"), 5]}))
    { intervals = [0.5, 5] }
    """
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(one)}' for key, one in value.items())} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def policy_text(
    source: Mapping[str, object],
    release: Mapping[str, str],
    proposals: Sequence[Proposal],
    apart: Mapping[frozenset[str], tuple[float | None, float | None]],
    rows: int,
    step: int,
    dependencies: Sequence[Narrowing] = (),
) -> str:
    seen = f"{rows:,} rows" + (f"; about one in {step:,} was looked at" if step > 1 else "")
    lines = [
        "# A policy to start from, written by `sqlanon suggest`. It goes by names, types and figures, and knows",
        "# nothing of what they mean: read every line before you share anything. It is private, as the table is.",
        f"# Figures are of {seen}.",
        *(["# (Of all rows, distinction is less; separation is about the same.)"] if step > 1 else []),
        "",
        "[source]",
        *_pairs(source),
        "",
        "# identifying: never released. quasi: what others may know of a person: generalized.",
        "# sensitive: what nobody should learn. insensitive: all else. (The last two are released as they are.)",
        *_what_tells_apart(proposals, apart),
        *_what_narrows(dependencies),
        "[attributes]",
        *(_attribute(one, apart) for one in proposals),
        "",
        "[privacy]",
        "k = 5  # everyone shares their values with at least k - 1 others",
        *_about_sensitive(proposals),
        "",
        "[search]",
        "suppression_limit = 0.05  # at most this share of the rows is left out",
        "time_limit = 60  # seconds; then the best is taken that was found",
        "",
        "[release]",
        *_pairs(release),
    ]
    return "\n".join(lines) + "\n"


def _pairs(section: Mapping[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in section.items()]


def _attribute(one: Proposal, apart: Mapping[frozenset[str], tuple[float | None, float | None]]) -> str:
    hierarchy = f", hierarchy = {toml_value(one.hierarchy)}" if one.hierarchy is not None else ""
    figures = f"; {_figures(*apart[alone])}" if (alone := frozenset([one.column.name])) in apart else ""
    return f'{toml_key(one.column.name)} = {{ role = "{one.role}"{hierarchy} }}  # {one.reason}{figures}'


def _figures(distinction: float | None, separation: float | None) -> str:
    figures = [f"distinction {distinction:.4f}"] if distinction is not None else []
    figures += [f"separation {separation:.4f}"] if separation is not None else []
    return ", ".join(figures) or "no rows"


def _what_tells_apart(
    proposals: Sequence[Proposal], apart: Mapping[frozenset[str], tuple[float | None, float | None]]
) -> list[str]:
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
