"""Noise on a quasi-identifier in place of generalization, and how the budget of a record is shared out.

Source: N. Holohan, S. Antonatos, S. Braghin, P. Mac Aonghusa, "(k,ε)-Anonymity: k-anonymity with ε-differential
privacy" (2017): the quasi-identifiers are split, k-quasis are generalized and ε-quasis get noise inside their class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    WithJsonSchema,
)

from sqlanon.support.fields import Bound, ExactNumber, Flaw, SparseSection, as_real, in_words

Epsilon = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False), as_real]

ROUNDING = 1e-9
"""Budgets that were added up may differ so much, relatively, from the sum that is asked for."""


MOST_EPSILON = 10.0
"""The greatest ε of a record, and sum over releases, without ``[privacy] linkable_noise``: with ε = 10 the odds of two
rows of a class change by a factor of up to 22,026, and more is no protection of single rows."""


def _two(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        found = f"a list of {len(value)}" if isinstance(value, list | tuple) else in_words(value)
        raise ValueError(f"must be two values, the least and the greatest: [0, 100], not {found}")
    return value


_FINEST = Decimal("1e-100")
_AS_NUMBER = WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "minimum": 1e-100, "maximum": 1e100})


class Noise(SparseSection):
    """Laplace noise of scale Δ/ε, Δ the range of the attribute in its class, for numbers and dates (as days).

    Attributes
    ----------
    epsilon:
        Of this attribute; without it, a share of ``[privacy] epsilon``.
    bounds:
        The least and the greatest value that is released. By default none: the range of a class would show its
        extremes.
    round:
        The released values are multiples of it, or one of the bounds. By default whole numbers and days, the digits of
        a DECIMAL, and for others a power of two.

    >>> Noise(epsilon=1.0, round=0.5).epsilon
    1.0
    """

    _optional = ("epsilon", "bounds", "round")

    epsilon: Epsilon | None = Field(
        default=None, description="the attribute's share of the record's budget", examples=[1.0]
    )
    bounds: Annotated[tuple[Bound, Bound], BeforeValidator(_two)] | None = Field(
        default=None, description="the least and the greatest value that may be released", examples=[[0, 100]]
    )
    round: Annotated[ExactNumber, Field(gt=0), _AS_NUMBER] | None = Field(
        default=None, description="released values are multiples of it", examples=[0.5]
    )

    def _flaws(self) -> Iterator[Flaw]:
        if self.round is not None and not _FINEST <= self.round <= 1 / _FINEST:
            yield ("round",), "must be at least 1e-100 and at most 1e100"
        if self.bounds is not None:
            low, high = self.bounds
            if any(not isinstance(one, date) and abs(one) > 1 / _FINEST for one in (low, high)):
                yield ("bounds",), "must be within ±1e100"
            elif isinstance(low, date) != isinstance(high, date):
                yield ("bounds",), "are a number and a date: give two of a kind"
            elif not low < high:  # type: ignore[operator]  # of one kind
                yield ("bounds",), f"the first, {low}, must be less than the second, {high}"


def share_epsilon(asked: Mapping[str, float | None], record: float | None) -> dict[str, float]:
    """Each attribute's own ε: what it asks for, or (None) an equal share of what the others leave of the record's.

    >>> share_epsilon({"height": None, "weight": 0.5, "bmi": None}, 1.5)
    {'height': 0.5, 'weight': 0.5, 'bmi': 0.5}
    """
    own = [Decimal(str(epsilon)) for epsilon in asked.values() if epsilon is not None]
    share = float((Decimal(str(record or 0)) - sum(own)) / max(len(asked) - len(own), 1))
    return {name: share if epsilon is None else epsilon for name, epsilon in asked.items()}


def noise_claims(policy: Mapping[str, Any]) -> tuple[float | None, dict[str, dict[str, Any]] | None]:
    """What a release claims of noise, by its policy as a tree, redacted or not: the ε of a record, and by attribute its
    ε, bounds and granularity; None without."""
    asked = {name: spec["noise"] for name, spec in policy["attributes"].items() if spec.get("noise") is not None}
    if not asked:
        return None, None
    own = share_epsilon({name: noise.get("epsilon") for name, noise in asked.items()}, policy["privacy"].get("epsilon"))
    return math.fsum(own.values()), {name: {**noise, "epsilon": own[name]} for name, noise in asked.items()}
