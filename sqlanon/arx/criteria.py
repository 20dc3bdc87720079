"""ARX's privacy and quality models, which it writes as texts, as keys of a policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

_NUMBER = r"([0-9.]{1,40}(?:E-?[0-9]{1,3})?)"
_OF = r" for attribute '(.*)'"

_Entry: TypeAlias = "tuple[str, Any]"


@dataclass(frozen=True)
class Criterion:
    """A criterion of ARX as an entry of ``[privacy]``; the sensitive attribute that it is about; what differs."""

    key: str
    value: Any
    attribute: str | None = None
    note: str | None = None


def _number(text: str) -> int | Decimal:
    """A number of Java: 2.0, 1.0E-4."""
    value = Decimal(text)
    if not -20 < value.adjusted() < 18:
        raise InvalidOperation
    return int(value) if value == value.to_integral_value() else value


def _of_attribute(key: str, attribute: str, note: str | None = None, **values: Any) -> Criterion:
    return Criterion(key, {"attribute": attribute, **values}, attribute, note)


_ORDER = "ARX orders values by their data type or hierarchy, sqlanon by the type of the column: compare both orders"

_CRITERIA: Sequence[tuple[str, Callable[..., Criterion]]] = (
    (r"([0-9]{1,18})-anonymity", lambda k: Criterion("k", int(k))),
    (rf"\({_NUMBER}\)-avg-reidentification-risk", lambda risk: Criterion("average_risk", _number(risk))),
    (rf"\({_NUMBER}\)-sample-uniqueness", lambda share: Criterion("sample_uniqueness", _number(share))),
    (
        rf"distinct-{_NUMBER}-diversity{_OF}",
        lambda least, name: _of_attribute("l_diversity", name, kind="distinct", l=_number(least)),
    ),
    (
        rf"(?:shannon-)?entropy-{_NUMBER}-diversity{_OF}",
        lambda least, name: _of_attribute("l_diversity", name, kind="entropy", l=_number(least)),
    ),
    (
        rf"recursive-\({_NUMBER},{_NUMBER}\)-diversity{_OF}",
        lambda c, least, name: _of_attribute("l_diversity", name, kind="recursive", l=_number(least), c=_number(c)),
    ),
    (
        rf"{_NUMBER}-closeness with equal ground-distance{_OF}",
        lambda t, name: _of_attribute("t_closeness", name, distance="equal", t=_number(t)),
    ),
    (
        rf"{_NUMBER}-closeness with ordered distance{_OF}",
        lambda t, name: _of_attribute("t_closeness", name, _ORDER, distance="ordered", t=_number(t)),
    ),
    (
        rf"{_NUMBER}-closeness with hierarchical ground-distance{_OF}",
        lambda t, name: _of_attribute("t_closeness", name, distance="hierarchical", t=_number(t)),
    ),
    (rf"{_NUMBER}-disclosure privacy{_OF}", lambda d, name: _of_attribute("delta_disclosure", name, delta=_number(d))),
    (
        rf"(basic|enhanced)-{_NUMBER}-likeness{_OF}",
        lambda kind, beta, name: _of_attribute("beta_likeness", name, kind=kind, beta=_number(beta)),
    ),
)

SELECTION = "Inclusion"
"""What ARX lists beside its requirements: records were selected, which may be all."""

NO_SELECTION = "the selection of records is in a file that only ARX can read: all records are used"

_WITHOUT_COUNTERPART: Sequence[tuple[str, str]] = (
    (
        r".*-(map|presence).*",
        "the population is a selection of records in a file that only ARX can read: write [population] and "
        "k_map or delta_presence",
    ),
    (
        r".*-population-uniqueness.*",
        "the size of the population is in a file that only ARX can read: write [privacy.population_uniqueness]",
    ),
    (
        r".*-avg-reidentification-risk",
        "a limit on the records at risk beside the average risk has no counterpart: write average_risk, or a greater k",
    ),
    (r".*-DP", "differential privacy by a sample of the records has no counterpart"),
)


def read_criterion(text: str) -> Criterion | str:
    """A criterion as the policy has it, or why it is not imported."""
    for pattern, make in _CRITERIA:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            try:
                return make(*match.groups())
            except InvalidOperation:
                break
    reasons = (reason for pattern, reason in _WITHOUT_COUNTERPART if re.fullmatch(pattern, text, re.DOTALL))
    return next(reasons, "it has no counterpart")


_MEASURES: Mapping[str, tuple[str, str | None]] = {
    "Loss (0.5/1.0/1.0)": ("loss", None),
    "Height": ("height", None),
    "Monotonic precision": ("precision", None),
    "Non-monotonic precision": ("precision", None),
    "Average equivalence class size": ("average_class_size", None),
    "Non-monotonic discernability": ("discernibility", None),
    "Monotonic discernability (DM*)": ("discernibility", "suppressed rows count, and in DM* they do not"),
    "Non-uniform entropy": ("entropy", None),
    "Non-monotonic non-uniform entropy": ("entropy", None),
}
WEIGHTED = ("loss", "precision")
"""The measures that take weights."""


def read_metric(text: str | None) -> tuple[str, str | None]:
    """The measure for a quality model of ARX, and what differs."""
    if text is None:
        return "loss", "the project names no quality model: loss is used"
    if text in _MEASURES:
        return _MEASURES[text]
    if text.startswith("Loss ("):
        return "loss", f"{text}: the factors have no counterpart, and generalization and suppression count alike"
    return "loss", f"the quality model {text!r} has no counterpart: loss is used"


def grouped(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """``[privacy]`` of a policy: of several k the greatest, of several shares the least."""
    privacy: dict[str, Any] = {}
    for criterion in criteria:
        if isinstance(criterion.value, dict):
            privacy.setdefault(criterion.key, []).append(criterion.value)
        else:
            stricter = max if criterion.key == "k" else min
            privacy[criterion.key] = stricter(criterion.value, privacy.get(criterion.key, criterion.value))
    return privacy


def notes_of(criteria: Sequence[Criterion]) -> Iterator[str]:
    return (f"{criterion.attribute}: {criterion.note}" for criterion in criteria if criterion.note is not None)
