"""Bounds on what one value of a sensitive attribute becomes more likely by, in a class: δ-disclosure, β-likeness, α.

Sources: J. Brickell, V. Shmatikov, "The cost of privacy: destruction of data-mining utility in anonymized data
publishing", KDD 2008, definition 3 (δ-disclosure privacy); J. Cao, P. Karras, "Publishing microdata with a robust
privacy guarantee", PVLDB 5(11), 2012, definitions 2 and 3 (basic and enhanced β-likeness); R. Wong, J. Li, A. Fu,
K. Wang, "(α, k)-anonymity: an enhanced k-anonymity model for privacy preserving data publishing", KDD 2006,
definition 4, for every value.

The share of a value in two classes merged lies between its shares in the two: all of them are monotone without
suppression, and none with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import all_of, anonymous, col, double_total, greatest, number
from sqlanon.frequency.distribution import CUMULATED, SHARE
from sqlanon.requirements.base import TOLERANCE, ClassRequirement, Distribution, plain


class _Shares(ClassRequirement):
    """A condition on the shares p of the values in a class, beside their shares q in the table."""

    attribute: str

    @property
    def distribution(self) -> Distribution:
        """The attribute's values."""
        return Distribution(self.attribute)

    def _figure(self, name: str) -> exp.Expr:
        return self.distribution.column(name)


def _ratio() -> exp.Expr:
    """n / q: what p / q is, times the size of the class."""
    return exp.Div(this=col(ROWS), expression=col(SHARE))


@dataclass(frozen=True)
class DeltaDisclosure(_Shares):
    """|ln(p / q)| ≤ δ for every value of the table; a value that is missing from a class fails it.

    A class from which a value is missing loses all of its rows: its parts have that value no more than it has.

    Attributes
    ----------
    values:
        How many values the table has; None: as many as the domain has when it is asked.
    """

    attribute: str
    delta: float
    values: int | None = 1

    @property
    def name(self) -> str:
        """``1-disclosure privacy of diagnosis``."""
        return f"{plain(self.delta)}-disclosure privacy of {self.attribute}"

    @property
    def least_class(self) -> int:
        """A row for each value of the table."""
        return self.values or 1

    @property
    def needs_domain(self) -> bool:
        """Where the values are not counted yet."""
        return self.values is None

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``, ``distinct``, and the greatest and the least n / q."""
        return {
            "total": double_total(col(ROWS)),
            "distinct": exp.Count(this=exp.Star()),
            "greatest ratio": exp.Max(this=_ratio()),
            "least ratio": exp.Min(this=_ratio()),
        }

    def derived(self, least: int) -> Mapping[str, exp.Expr]:
        """``values``: how many the table has, where that is not known yet."""
        return {"values": anonymous("len", col(CUMULATED))} if self.values is None else {}

    def condition(self) -> exp.Expr:
        """All values are there, and |ln(p / q)| ≤ δ for the greatest and for the least p / q."""
        all_there = exp.EQ(this=self._figure("distinct"), expression=self._all())
        return all_of([all_there, *(self._near(self._figure(f"{which} ratio")) for which in ("greatest", "least"))])

    def shortfall(self) -> exp.Expr:
        """All rows where a value is missing."""
        missing = exp.LT(this=self._figure("distinct"), expression=self._all())
        return exp.If(this=missing, true=self._figure("total"), false=number(1))

    def _all(self) -> exp.Expr:
        return self._figure("values") if self.values is None else number(self.values)

    def _near(self, ratio: exp.Expr) -> exp.Expr:
        log = exp.Ln(this=exp.Div(this=ratio, expression=self._figure("total")))
        return exp.LTE(this=exp.Abs(this=log), expression=number(self.delta + TOLERANCE))


@dataclass(frozen=True)
class BetaLikeness(_Shares):
    """(p − q) / q ≤ β for every value; with ``enhanced``, ≤ min(β, −ln q), which keeps frequent values in check too."""

    attribute: str
    beta: float
    enhanced: bool = True

    @property
    def name(self) -> str:
        """``enhanced 2-likeness of diagnosis``."""
        return f"{'enhanced' if self.enhanced else 'basic'} {plain(self.beta)}-likeness of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``, and the greatest n / (q (1 + bound)): at most the total where all values are within bounds."""
        bound: exp.Expr = number(self.beta)
        if self.enhanced:
            bound = anonymous("LEAST", bound, exp.Neg(this=exp.Ln(this=col(SHARE))))
        most = exp.Paren(this=exp.Add(this=number(1 + TOLERANCE), expression=bound))
        return {
            "total": double_total(col(ROWS)),
            self._worst: exp.Max(this=exp.Div(this=_ratio(), expression=most)),
        }

    def condition(self) -> exp.Expr:
        """No value is beyond its bound."""
        return exp.LTE(this=self._figure(self._worst), expression=self._figure("total"))

    @property
    def _worst(self) -> str:
        return f"beyond {'enhanced' if self.enhanced else 'basic'} {self.beta!r}"


@dataclass(frozen=True)
class AlphaK(_Shares):
    """(α, k)-anonymity, together with k: no value has more than a share α of a class.

    A class of n rows, c of them with one value, loses at least (c − α n) / (1 − α) of them.
    """

    attribute: str
    alpha: float

    @property
    def name(self) -> str:
        """``share of at most 0.5 of each diagnosis``."""
        return f"share of at most {plain(self.alpha)} of each {self.attribute}"

    @property
    def least_class(self) -> int:
        """1 / α, rounded up: so many values are needed."""
        return math.ceil(1 / self.alpha - 1e-9)

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``, and the ``largest`` count."""
        return {"total": double_total(col(ROWS)), "largest": exp.Max(this=col(ROWS))}

    def condition(self) -> exp.Expr:
        """largest / total ≤ α."""
        share = exp.Div(this=self._figure("largest"), expression=self._figure("total"))
        return exp.LTE(this=share, expression=number(self.alpha + TOLERANCE))

    def shortfall(self) -> exp.Expr:
        """(largest − α total) / (1 − α)."""
        if self.alpha >= 1:
            return number(0)
        allowed = exp.Mul(this=number(self.alpha), expression=self._figure("total"))
        over = exp.Paren(this=exp.Sub(this=self._figure("largest"), expression=allowed))
        return greatest(number(1), exp.Div(this=over, expression=number(1 - self.alpha)))
