"""The comments and descriptions of a release. All of them follow from the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlanon.release.manifest import Manifest
from sqlanon.support.markup import html_table

_LABELS = {
    "mask": "* stands for a hidden character",
    "intervals": "20-24 includes both ends; [20, 25) includes 20, but not 25",
    "dates": "a label is the period that contains the date",
    "categories": "a label is the group of the value",
    "file": "a label is the group of the value",
    "table": "a label is the group of the value",
}
"""What labels mean, by the kind of rule."""

IN_ORDER = " in the release, in order, with the ends of ranges"
CLASSES = "equivalence classes: rows with the same quasi-identifiers"
HIDDEN = "; not shown, because it depends on values that are not released"
OPTIMAL = "1: proven optimal among full-domain generalizations; 0: not proven, or not shown"
"""Parts of the comments and figures that `sqlanon.release.metadata` writes."""


def describe_treatment(manifest: Manifest, name: str) -> str:
    """What was done to an attribute, as a sentence without a full stop."""
    attribute = lowercase_keys(manifest.policy.get("attributes", {})).get(name.lower(), {})
    noise = lowercase_keys(manifest.noise or {}).get(name.lower())
    if noise is not None:
        return f"noise was added inside the classes, ε = {noise['epsilon']:g}"
    role = attribute.get("role")
    if role == "identifying":
        return "left out"
    if role != "quasi":
        return "unchanged"
    level = lowercase_keys(manifest.generalization).get(name.lower())
    height = lowercase_keys(manifest.heights or {}).get(name.lower())
    return _generalized(manifest, attribute.get("hierarchy") or [], level, height)


def _generalized(manifest: Manifest, rules: Sequence[Mapping[str, Any]], level: int | None, height: int | None) -> str:
    if level is None:
        search = manifest.policy.get("search", {})
        return several_levels(search.get("summary"), search.get("ends"))
    return level_in_words(rules, level, height)


_ENDS = {
    "exact": ", and its ends are values of rows in the group",
    "grid": ", and its ends show in which cells of a grid the least and the greatest value lie, not the values",
}
_MEDIANS = {"exact": ", the value of a row", "grid": ", rounded to the middle of a cell of a grid"}
"""What ends and medians reveal, by ``ends`` of the policy."""


def several_levels(summary: str | None, ends: str | None = None) -> str:
    """What a local strategy does to an attribute, for `describe_treatment`.

    >>> several_levels("median", "grid").partition("; ")[2]
    'a number is the median of its group, rounded to the middle of a cell of a grid'
    """
    if summary == "median":
        more = f"; a number is the median of its group{_MEDIANS.get(ends or '', '')}"
    elif summary in ("range", "set"):
        more = f"; a range or a set stands for all values in it{_ENDS.get(ends or '', '')}"
    else:
        more = ""
    return f"generalized as far as each group of rows needs{more}"


def level_in_words(rules: Sequence[Mapping[str, Any]], level: int, height: int | None) -> str:
    """What a level of a hierarchy does to an attribute, for `describe_treatment`.

    >>> level_in_words([{"rule": "dates", "dates": ["month", "year"]}], 2, 3)
    'level 2 of 3: by year; a label is the period that contains the date'
    """
    if level == 0:
        return _open_ends_in_words(rules)
    words = f"level {level}" if height is None else f"level {level} of {height}"
    if level == height:
        return f"{words}: fully suppressed"
    try:
        return f"{words}: {_by_rule(*_rule_at(rules, level))}"
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # a manifest may say anything
        return f"{words}: generalized"


def _open_ends_in_words(rules: Sequence[Mapping[str, Any]]) -> str:
    """What level 0 does to an attribute.

    >>> _open_ends_in_words([{"rule": "intervals", "widths": [5], "below": "18", "above": "90"}])
    'unchanged, but <18 is any value less than 18, and ≥90 is 90 or more'
    """
    try:
        ends = [f"<{rule['below']} is any value less than {rule['below']}" for rule in rules if "below" in rule]
        ends += [f"≥{rule['above']} is {rule['above']} or more" for rule in rules if "above" in rule]
    except TypeError:  # a manifest may say anything
        return "unchanged"
    return f"unchanged, but {', and '.join(ends)}" if ends else "unchanged"


def _by_rule(rule: Mapping[str, Any] | None, own: int) -> str:
    if rule is None:
        return "generalized"
    kind = str(rule["rule"])
    what = {
        "mask": lambda: f"{own} {'character' if own == 1 else 'characters'} hidden from the {rule['mask']}",
        "intervals": lambda: f"intervals of {float(rule['widths'][own - 1]):g}",
        "dates": lambda: f"by {rule['dates'][own - 1]}",
    }.get(kind, lambda: "groups of values")()
    meaning = _LABELS.get(kind)
    return f"{what}{f'; {meaning}' if meaning else ''}"


def _rule_at(rules: Sequence[Mapping[str, Any]], level: int) -> tuple[Mapping[str, Any] | None, int]:
    """The rule of a level, and the level within it; None if an earlier rule does not show its number of levels."""
    below = 0
    for i, rule in enumerate(rules):
        own = _levels_of(rule)
        if own is None:
            return (rule, level - below) if i == len(rules) - 1 else (None, level)
        if level <= below + own:
            return rule, level - below
        below += own
    return None, level


def _levels_of(rule: Mapping[str, Any]) -> int | None:
    own = rule.get("levels")
    for name in ("widths", "dates"):
        if own is None and name in rule:
            own = len(rule[name])
    if own is None:
        own = rule.get("depth", 1 if rule["rule"] == "suppress" else None)
    return None if own is None else int(own)


def lowercase_keys(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in figures.items()}


def comment_on_column(manifest: Manifest, name: str, role: str) -> str:
    kind = "quasi-identifier" if role == "quasi" else f"{role} attribute"
    return f"{kind}: {describe_treatment(manifest, name)}"


def comment_on_release(manifest: Manifest, details: str = "sqlanon.manifest") -> str:
    """What a release is, in a sentence; ``details`` is the relation that has its manifest."""
    privacy = manifest.policy["privacy"]
    k = f"{privacy['k']}-anonymous, " if privacy.get("k") and manifest.guarantee != "combinations" else ""
    decoys = f" ({manifest.decoys} rows are decoys)" if manifest.decoys else ""
    draft = "DRAFT, not for sharing: " if manifest.draft else ""
    smallest = f"{manifest.smallest_class}{'' if manifest.persons is None else ' persons'}"
    return (
        f"{draft}anonymized by sqlanon {manifest.sqlanon_version}: {k}{manifest.released_rows} rows in "
        f"{manifest.classes} classes, smallest: {smallest}{decoys}; details: {details}"
    )


def comment_on_any_version(draft: bool) -> str:
    """The comment on a view whose table changes with each version: it has no figures of one."""
    mark = "DRAFT, not for sharing: " if draft else ""
    return f"{mark}anonymized by sqlanon; figures: the comment of the table that this view reads, and its manifest"


def smallest_class_in_words(manifest: Manifest) -> str:
    """The rows of the smallest class; where persons are counted, its persons, and the rows of the class with fewest."""
    rows = f"{manifest.fewest_rows:,} rows"
    return rows if manifest.persons is None else f"{manifest.smallest_class:,} persons ({rows} or more)"


def persons_in_words(manifest: Manifest) -> str | None:
    """How many persons are released, and suppressed; None where rows are counted."""
    if manifest.persons is None or manifest.released_persons is None or manifest.suppressed_persons is None:
        return None
    released = f"{manifest.released_persons:,} of {manifest.persons:,} with all their rows"
    return f"{released}, {manifest.suppressed_persons:,} with suppressed rows"


def render_manifest(manifest: Manifest, caption: str, what: str, place: object) -> str:
    rows: list[tuple[str, object]] = [
        (what, place),
        *([("draft", "for trying out, not for sharing")] if manifest.draft else []),
        ("rows", f"{manifest.released_rows:,} of {manifest.rows:,}, {manifest.suppressed_rows:,} suppressed"),
        *([] if (persons := persons_in_words(manifest)) is None else [("persons", persons)]),
        ("classes", f"{manifest.classes:,}, smallest: {smallest_class_in_words(manifest)}"),
        *([] if manifest.score is None else [(f"score ({manifest.measure})", f"{manifest.score:.6g}")]),
        ("content digest", manifest.digest),
    ]
    return html_table(caption, ["", ""], rows)


def join_names(names: Sequence[str], most: int | None = None) -> str:
    """Names in a sentence; of more than ``most``, that there are others.

    >>> listed(["zip", "age", "sex"]), listed(["zip"]), listed(["zip", "age", "sex"], 1)
    ('zip, age and sex', 'zip', 'zip and 2 more')
    """
    shown, left = [*names[:most]], len(names[most:]) if most else 0
    if left:
        return f"{', '.join(shown)} and {left:,} more"
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last
