"""Comments and descriptions of a release, derived from its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlanon.release.manifest import Manifest
from sqlanon.support.markup import html_table

_LABEL_MEANINGS = {
    "mask": "* stands for a hidden character",
    "intervals": "20-24 includes both ends; [20, 25) includes 20, but not 25",
    "dates": "a label is the period that contains the date",
    "categories": "a label is the group of the value",
    "file": "a label is the group of the value",
    "table": "a label is the group of the value",
}
"""The meaning of labels, by the kind of rule."""

IN_ORDER = " in the release, in order, with the ends of ranges"
CLASSES = "equivalence classes: rows with the same quasi-identifiers"
HIDDEN = "; not shown, because it depends on values that are not released"
OPTIMAL = "1: proven optimal among full-domain generalizations; 0: not proven, or not shown"
"""Parts of the comments and figures that `sqlanon.release.metadata` writes."""


def describe_treatment(manifest: Manifest, name: str) -> str:
    """Describe how an attribute was treated, without a full stop."""
    attribute = manifest.attribute(name)
    noise = lowercase_keys(manifest.noise or {}).get(name.lower())
    if noise is not None:
        return f"noise was added inside the classes, ε = {noise['epsilon']:g}"
    role = attribute.get("role")
    if role == "identifying":
        return "left out"
    if role != "quasi":
        return "unchanged"
    level = lowercase_keys(manifest.generalization).get(name.lower())
    if level is None:
        search = manifest.policy.get("search", {})
        return describe_local_levels(search.get("summary"), search.get("ends"))
    height = lowercase_keys(manifest.heights or {}).get(name.lower())
    return level_in_words(attribute.get("hierarchy") or [], level, height)


_RANGE_ENDS = {
    "exact": ", and its ends are values of rows in the group",
    "grid": ", and its ends show in which cells of a grid the least and the greatest value lie, not the values",
}
_MEDIANS = {"exact": ", the value of a row", "grid": ", rounded to the middle of a cell of a grid"}
"""The precision of ends and medians, by ``ends`` of the policy."""


def describe_local_levels(summary: str | None, ends: str | None = None) -> str:
    """Describe an attribute that a local strategy generalized, for `describe_treatment`.

    >>> describe_local_levels("median", "grid").partition("; ")[2]
    'a number is the median of its group, rounded to the middle of a cell of a grid'
    """
    meaning = ""
    if summary == "median":
        meaning = f"; a number is the median of its group{_MEDIANS.get(ends or '', '')}"
    elif summary in ("range", "set"):
        meaning = f"; a range or a set stands for all values in it{_RANGE_ENDS.get(ends or '', '')}"
    return f"generalized as far as each group of rows needs{meaning}"


def level_in_words(rules: Sequence[Mapping[str, Any]], level: int, height: int | None) -> str:
    """Describe a level of a hierarchy, for `describe_treatment`.

    >>> level_in_words([{"rule": "dates", "dates": ["month", "year"]}], 2, 3)
    'level 2 of 3: by year; a label is the period that contains the date'
    """
    if level == 0:
        return _open_ends_in_words(rules)
    position = f"level {level}" if height is None else f"level {level} of {height}"
    if level == height:
        return f"{position}: fully suppressed"
    try:
        return f"{position}: {_rule_in_words(*_find_rule(rules, level))}"
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # the manifest is not trusted
        return f"{position}: generalized"


def _open_ends_in_words(rules: Sequence[Mapping[str, Any]]) -> str:
    """Describe level 0.

    >>> _open_ends_in_words([{"rule": "intervals", "widths": [5], "below": "18", "above": "90"}])
    'unchanged, but <18 is any value less than 18, and ≥90 is 90 or more'
    """
    try:
        ends = [f"<{rule['below']} is any value less than {rule['below']}" for rule in rules if "below" in rule]
        ends += [f"≥{rule['above']} is {rule['above']} or more" for rule in rules if "above" in rule]
    except TypeError:  # the manifest is not trusted
        return "unchanged"
    return f"unchanged, but {', and '.join(ends)}" if ends else "unchanged"


def _rule_in_words(rule: Mapping[str, Any] | None, level: int) -> str:
    """Describe a level of a rule, counted from the rule's first level."""
    if rule is None:
        return "generalized"
    kind, groups = str(rule["rule"]), "groups of values"
    if kind == "mask":
        groups = f"{level} {'character' if level == 1 else 'characters'} hidden from the {rule['mask']}"
    elif kind == "intervals":
        groups = f"intervals of {float(rule['widths'][level - 1]):g}"
    elif kind == "dates":
        groups = f"by {rule['dates'][level - 1]}"
    meaning = _LABEL_MEANINGS.get(kind)
    return f"{groups}; {meaning}" if meaning else groups


def _find_rule(rules: Sequence[Mapping[str, Any]], level: int) -> tuple[Mapping[str, Any] | None, int]:
    """The rule of a level, and the level within the rule; None if an earlier rule has an unknown number of levels."""
    levels_below = 0
    for i, rule in enumerate(rules):
        count = _count_levels(rule)
        if count is None:
            return (rule, level - levels_below) if i == len(rules) - 1 else (None, level)
        if level <= levels_below + count:
            return rule, level - levels_below
        levels_below += count
    return None, level


def _count_levels(rule: Mapping[str, Any]) -> int | None:
    count = rule.get("levels")
    for name in ("widths", "dates"):
        if count is None and name in rule:
            count = len(rule[name])
    if count is None:
        count = rule.get("depth", 1 if rule["rule"] == "suppress" else None)
    return None if count is None else int(count)


def lowercase_keys(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in figures.items()}


def comment_on_column(manifest: Manifest, name: str, role: str) -> str:
    kind = "quasi-identifier" if role == "quasi" else f"{role} attribute"
    return f"{kind}: {describe_treatment(manifest, name)}"


def comment_on_release(manifest: Manifest, details: str = "sqlanon.manifest") -> str:
    """Describe a release; ``details`` is the relation with its manifest."""
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
    """The comment on a view whose table changes with each version."""
    mark = "DRAFT, not for sharing: " if draft else ""
    return f"{mark}anonymized by sqlanon; figures: the comment of the table that this view reads, and its manifest"


def smallest_class_in_words(manifest: Manifest) -> str:
    """The size of the smallest class, in rows or in persons."""
    rows = f"{manifest.fewest_rows:,} rows"
    return rows if manifest.persons is None else f"{manifest.smallest_class:,} persons ({rows} or more)"


def persons_in_words(manifest: Manifest) -> str | None:
    """The numbers of released and suppressed persons; None without persons."""
    if manifest.persons is None or manifest.released_persons is None or manifest.suppressed_persons is None:
        return None
    released = f"{manifest.released_persons:,} of {manifest.persons:,} with all their rows"
    return f"{released}, {manifest.suppressed_persons:,} with suppressed rows"


def render_manifest(manifest: Manifest, caption: str, location_label: str, location: object) -> str:
    """Render the claims of a manifest as an HTML table."""
    rows: list[tuple[str, object]] = [
        (location_label, location),
        *([("draft", "for testing, not for sharing")] if manifest.draft else []),
        ("rows", f"{manifest.released_rows:,} of {manifest.rows:,}, {manifest.suppressed_rows:,} suppressed"),
        *([] if (persons := persons_in_words(manifest)) is None else [("persons", persons)]),
        ("classes", f"{manifest.classes:,}, smallest: {smallest_class_in_words(manifest)}"),
        *([] if manifest.score is None else [(f"score ({manifest.measure})", f"{manifest.score:.6g}")]),
        ("content digest", manifest.digest),
    ]
    return html_table(caption, ["", ""], rows)


def join_names(names: Sequence[str], most: int | None = None) -> str:
    """Join names as a sentence does; only ``most`` of them are listed.

    >>> join_names(["zip", "age", "sex"]), join_names(["zip"]), join_names(["zip", "age", "sex"], 1)
    ('zip, age and sex', 'zip', 'zip and 2 more')
    """
    listed_names, unlisted = [*names[:most]], len(names[most:]) if most else 0
    if unlisted:
        return f"{', '.join(listed_names)} and {unlisted:,} more"
    *first, last = listed_names
    return f"{', '.join(first)} and {last}" if first else last
