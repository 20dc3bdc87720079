"""Noise on a quasi-identifier instead of generalization, and the distribution of a record's budget.

Source: N. Holohan, S. Antonatos, S. Braghin, P. Mac Aonghusa, "(k,ε)-Anonymity: k-anonymity with ε-differential
privacy" (2017): the quasi-identifiers are split, k-quasis are generalized and ε-quasis get noise inside their class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from sqlanon.support.fields import Bound, ExactNumber, Flaw, SparseSection, as_real, in_words, policy_key

Epsilon = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False), as_real]

ROUNDING = 1e-9
"""The relative rounding allowance between a sum of budgets and the required sum."""

MAX_EPSILON = 10.0
"""The greatest ε of a record, and sum over releases, without ``[privacy] linkable_noise``: with ε = 10 the odds of two
rows of a class change by a factor of up to 22,026, and a greater ε does not protect single rows."""


def _require_pair(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        description = f"a list of {len(value)}" if isinstance(value, list | tuple) else in_words(value)
        raise ValueError(f"must be two values, the least and the greatest: [0, 100], not {description}")
    return value


_FINEST = Decimal("1e-100")
_AS_NUMBER = WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "minimum": 1e-100, "maximum": 1e100})


class Noise(SparseSection):
    """Laplace noise of scale Δ/ε, Δ the range of the attribute in its class, for numbers and dates (as days).

    Attributes
    ----------
    epsilon:
        The budget of the attribute; by default, a share of ``[privacy] epsilon``.
    bounds:
        The least and the greatest value that is released. By default none: the range of a class would show its
        extremes.
    round:
        The released values are multiples of it, or one of the bounds. By default whole numbers and days, the digits of
        a DECIMAL, and a power of two for other types.

    >>> Noise(epsilon=1.0, round=0.5).epsilon
    1.0
    """

    epsilon: Epsilon | None = policy_key("the attribute's share of the record's budget", example=1.0)
    bounds: Annotated[tuple[Bound, Bound], BeforeValidator(_require_pair)] | None = policy_key(
        "the least and the greatest value that may be released", example=[0, 100]
    )
    round: Annotated[ExactNumber, Field(gt=0), _AS_NUMBER] | None = policy_key(
        "released values are multiples of it", example=0.5
    )

    def _flaws(self) -> Iterator[Flaw]:
        if self.round is not None and not _FINEST <= self.round <= 1 / _FINEST:
            yield ("round",), "must be at least 1e-100 and at most 1e100"
        if self.bounds is not None:
            low, high = self.bounds
            if any(not isinstance(bound, date) and abs(bound) > 1 / _FINEST for bound in (low, high)):
                yield ("bounds",), "must be within ±1e100"
            elif isinstance(low, date) != isinstance(high, date):
                yield ("bounds",), "are a number and a date: give two numbers or two dates"
            elif not low < high:  # type: ignore[operator]  # of one kind
                yield ("bounds",), f"the first, {low}, must be less than the second, {high}"


def share_epsilon(explicit: Mapping[str, float | None], record: float | None) -> dict[str, float]:
    """The ε of each attribute: its explicit one, or (None) an equal share of the record's remaining budget.

    >>> share_epsilon({"height": None, "weight": 0.5, "bmi": None}, 1.5)
    {'height': 0.5, 'weight': 0.5, 'bmi': 0.5}
    """
    spent = [Decimal(str(epsilon)) for epsilon in explicit.values() if epsilon is not None]
    share = float((Decimal(str(record or 0)) - sum(spent)) / max(len(explicit) - len(spent), 1))
    return {name: share if epsilon is None else epsilon for name, epsilon in explicit.items()}


def noise_claims(policy: Mapping[str, Any]) -> tuple[float | None, dict[str, dict[str, Any]] | None]:
    """The noise that a release claims, from its policy as a tree, redacted or not; None without noise.

    Returns the ε of a record, and for each attribute its ε, bounds and granularity.
    """
    attributes = policy["attributes"].items()
    noise = {name: attribute["noise"] for name, attribute in attributes if attribute.get("noise") is not None}
    if not noise:
        return None, None
    explicit = {name: part.get("epsilon") for name, part in noise.items()}
    epsilons = share_epsilon(explicit, policy["privacy"].get("epsilon"))
    return math.fsum(epsilons.values()), {name: {**part, "epsilon": epsilons[name]} for name, part in noise.items()}
