"""Privacy and quality models in the wording of ARX, as keys of a policy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlanon.measures import Loss


@dataclass(frozen=True)
class Criterion:
    """A criterion of ARX as an entry of ``[privacy]``, with its sensitive attribute and a note on differences."""

    key: str
    value: Any
    attribute: str | None = None
    note: str | None = None


def _number(name: str) -> str:
    """The pattern of a number of Java (2.0, 1.0E-4), as a named group."""
    return rf"(?P<{name}>[0-9.]{{1,40}}(?:E-?[0-9]{{1,3}})?)"


_OF = " for attribute '(?P<attribute>.*)'"

# Patterns by key of [privacy], and constant parts of the entry. A group named `value` is the whole entry.
_CRITERIA: Sequence[tuple[str, str, Mapping[str, str]]] = (
    ("k", "(?P<value>[0-9]{1,18})-anonymity", {}),
    ("average_risk", rf"\({_number('value')}\)-avg-reidentification-risk", {}),
    ("sample_uniqueness", rf"\({_number('value')}\)-sample-uniqueness", {}),
    ("l_diversity", f"distinct-{_number('l')}-diversity{_OF}", {"kind": "distinct"}),
    ("l_diversity", f"(?:shannon-)?entropy-{_number('l')}-diversity{_OF}", {"kind": "entropy"}),
    ("l_diversity", rf"recursive-\({_number('c')},{_number('l')}\)-diversity{_OF}", {"kind": "recursive"}),
    ("t_closeness", f"{_number('t')}-closeness with equal ground-distance{_OF}", {"distance": "equal"}),
    ("t_closeness", f"{_number('t')}-closeness with ordered distance{_OF}", {"distance": "ordered"}),
    ("t_closeness", f"{_number('t')}-closeness with hierarchical ground-distance{_OF}", {"distance": "hierarchical"}),
    ("delta_disclosure", f"{_number('delta')}-disclosure privacy{_OF}", {}),
    ("beta_likeness", f"(?P<kind>basic|enhanced)-{_number('beta')}-likeness{_OF}", {}),
)
_ORDER_NOTE = (
    "ARX orders values by their data type or hierarchy, sqlanon by the type of the column: compare both orders"
)

SELECTION = "Inclusion"
"""ARX lists it among its requirements if records were selected, possibly all of them."""

NO_SELECTION = "the selection of records is in a file that only ARX can read: all records are used"

_UNSUPPORTED: Mapping[str, str] = {
    r".*-(map|presence).*": "the population is a selection of records in a file that only ARX can read: write "
    "[population] and k_map or delta_presence",
    r".*-population-uniqueness.*": "the size of the population is in a file that only ARX can read: write "
    "[privacy.population_uniqueness]",
    r".*-avg-reidentification-risk": "a limit on the records at risk with an average risk has no counterpart: write "
    "average_risk, or a greater k",
    r".*-DP": "differential privacy by a sample of the records has no counterpart",
}


def read_criterion(text: str) -> Criterion | str:
    """A criterion as an entry of a policy, or the reason why it is not imported."""
    for key, pattern, constants in _CRITERIA:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            groups = match.groupdict()
            attribute, kind = groups.pop("attribute", None), groups.pop("kind", None)
            try:
                numbers = {name: _parse_number(group) for name, group in groups.items()}
            except InvalidOperation:
                break
            if attribute is None:
                return Criterion(key, numbers["value"])
            entry = {"attribute": attribute, **({} if kind is None else {"kind": kind}), **constants, **numbers}
            return Criterion(key, entry, attribute, _ORDER_NOTE if "ordered" in constants.values() else None)
    reasons = (reason for pattern, reason in _UNSUPPORTED.items() if re.fullmatch(pattern, text, re.DOTALL))
    return next(reasons, "it has no counterpart")


def _parse_number(text: str) -> int | Decimal:
    value = Decimal(text)
    if not -20 < value.adjusted() < 18:
        raise InvalidOperation
    return int(value) if value == value.to_integral_value() else value


_MEASURES: Mapping[str, tuple[str, str | None]] = {
    "Loss (0.5/1.0/1.0)": (Loss.name, None),
    "Height": ("height", None),
    "Monotonic precision": ("precision", None),
    "Non-monotonic precision": ("precision", None),
    "Average equivalence class size": ("average_class_size", None),
    "Non-monotonic discernability": ("discernibility", None),
    "Monotonic discernability (DM*)": ("discernibility", "suppressed rows count, and in DM* they do not"),
    "Non-uniform entropy": ("entropy", None),
    "Non-monotonic non-uniform entropy": ("entropy", None),
}


def read_metric(text: str | None) -> tuple[str, str | None]:
    """The measure for a quality model of ARX, and a note on differences."""
    if text is None:
        return Loss.name, "the project names no quality model: loss is used"
    if text in _MEASURES:
        return _MEASURES[text]
    if text.startswith("Loss ("):
        return Loss.name, f"{text}: the factors have no counterpart, and generalization and suppression count alike"
    return Loss.name, f"the quality model {text!r} has no counterpart: loss is used"


def privacy_section(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """``[privacy]`` of a policy, with the greatest k and the smallest of several shares."""
    privacy: dict[str, Any] = {}
    for criterion in criteria:
        if isinstance(criterion.value, dict):
            privacy.setdefault(criterion.key, []).append(criterion.value)
        else:
            strictest = max if criterion.key == "k" else min
            privacy[criterion.key] = strictest(criterion.value, privacy.get(criterion.key, criterion.value))
    return privacy
