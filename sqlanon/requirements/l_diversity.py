"""l-diversity: every class has l well-represented values of a sensitive attribute.

Source: A. Machanavajjhala, D. Kifer, J. Gehrke, M. Venkitasubramaniam, "l-Diversity: Privacy beyond k-anonymity",
ACM TKDD 1(1), 2007: definitions 4.1 (entropy l-diversity) and 4.2 (recursive (c, l)-diversity), and section 4.3 on
several sensitive attributes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import anonymous, cast, col, double_total, greatest, number
from sqlanon.requirements.base import TOLERANCE, ClassRequirement, Distribution, plain


class _Diversity(ClassRequirement):
    """What the kinds of l-diversity share: an attribute, its values in a class, and that l values take l rows."""

    attribute: str
    l: float

    @property
    def distribution(self) -> Distribution:
        """The attribute's values."""
        return Distribution(self.attribute)

    @property
    def least_class(self) -> int:
        """l, rounded up: each value needs a row."""
        return math.ceil(self.l - 1e-9)


@dataclass(frozen=True)
class DistinctDiversity(_Diversity):
    """At least ``l`` distinct values in a class, NULL among them.

    Monotone, with suppression too: a part of a class has no value that the class does not have.
    """

    attribute: str
    l: int
    hereditary = True

    @property
    def name(self) -> str:
        """``distinct 3-diversity of diagnosis``."""
        return f"distinct {self.l}-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``distinct``: the number of values."""
        return {"distinct": exp.Count(this=exp.Star())}

    def condition(self) -> exp.Expr:
        """``distinct >= l``."""
        return exp.GTE(this=self.distribution.column("distinct"), expression=number(self.l))


@dataclass(frozen=True)
class EntropyDiversity(_Diversity):
    """−Σ p ln p ≥ ln l in a class.

    Monotone without suppression: entropy is concave, so that two classes merged have at least the lesser entropy of
    the two. Not with suppression: a class that meets it can merge with one that does not, and be lost. A class of n
    rows and entropy H loses at least n (1 − H / ln l) of them, by the same concavity.
    """

    attribute: str
    l: float

    @property
    def name(self) -> str:
        """``entropy 3-diversity of diagnosis``."""
        return f"entropy {plain(self.l)}-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``total``: Σ n. ``logs``: Σ n ln n."""
        logs = exp.Mul(this=col(ROWS), expression=exp.Ln(this=col(ROWS)))
        return {"total": double_total(col(ROWS)), "logs": exp.Sum(this=logs)}

    def derived(self, least: int) -> Mapping[str, exp.Expr]:
        """``entropy``: ln Σ n − Σ n ln n / Σ n."""
        sum_, logs = self.distribution.column("total"), self.distribution.column("logs")
        mean = exp.Div(this=logs, expression=sum_)
        return {"entropy": exp.Sub(this=exp.Ln(this=sum_.copy()), expression=mean)}

    def condition(self) -> exp.Expr:
        """entropy ≥ ln l."""
        return exp.GTE(this=self.distribution.column("entropy"), expression=number(math.log(self.l) - TOLERANCE))

    def shortfall(self) -> exp.Expr:
        """n (1 − H / ln l)."""
        share = exp.Div(this=self.distribution.column("entropy"), expression=number(math.log(self.l) or 1.0))
        missing = exp.Paren(this=exp.Sub(this=number(1), expression=share))
        return greatest(number(1), exp.Mul(this=self.distribution.column("total"), expression=missing))


@dataclass(frozen=True)
class RecursiveDiversity(_Diversity):
    """r1 < c (r_l + ... + r_m) in a class, r_i its i-th largest count; 1-diversity always holds.

    Monotone without suppression: r1 grows at most by the other class's, and the sum of the least counts at least by
    the other's. Not with suppression. A class loses at least r1 − c (r_l + ... + r_m) rows, since no part of it has a
    greater sum of least counts.
    """

    attribute: str
    c: float
    l: int

    @property
    def name(self) -> str:
        """``recursive (4, 3)-diversity of diagnosis``."""
        return f"recursive ({plain(self.c)}, {self.l})-diversity of {self.attribute}"

    def figures(self) -> Mapping[str, exp.Expr]:
        """``counts``: all of them, the largest first."""
        order = exp.Order(this=col(ROWS), expressions=[exp.Ordered(this=col(ROWS), desc=True)])
        return {"counts": exp.ArrayAgg(this=order), "largest": exp.Max(this=col(ROWS))}

    def derived(self, least: int) -> Mapping[str, exp.Expr]:
        """``tail from l``: r_l + ... + r_m."""
        counts = self.distribution.column("counts")
        tail = anonymous("list_slice", counts, number(self.l), anonymous("len", counts.copy()))
        sum_ = exp.Coalesce(this=anonymous("list_sum", tail), expressions=[number(0)])
        return {f"tail from {self.l}": cast(sum_, "DOUBLE")}

    def condition(self) -> exp.Expr:
        """r1 < c (r_l + ... + r_m)."""
        if self.l == 1:
            return exp.true()
        # A quotient is rounded as c itself was: at the border the two are the same number.
        tail = exp.Nullif(this=self.distribution.column(f"tail from {self.l}"), expression=number(0))
        share = exp.Div(this=self.distribution.column("largest"), expression=tail)
        return exp.LT(this=share, expression=number(self.c))

    def shortfall(self) -> exp.Expr:
        """r1 − c (r_l + ... + r_m)."""
        return greatest(number(1), exp.Sub(this=self.distribution.column("largest"), expression=self._allowed()))

    def _allowed(self) -> exp.Expr:
        return exp.Mul(this=number(self.c), expression=self.distribution.column(f"tail from {self.l}"))


@dataclass(frozen=True)
class JointDiversity(ClassRequirement):
    """l-diversity within equal values of all other sensitive attributes.

    Each of them counts as a quasi-identifier: in a class, every group of rows that agree in them has to be l-diverse.
    Monotone without suppression. Not with suppression, whatever the kind: one group that is not l-diverse takes the
    whole class with it. A class loses at least what its groups lose.
    """

    diversity: DistinctDiversity | EntropyDiversity | RecursiveDiversity

    @property
    def distribution(self) -> Distribution:
        """The attribute's values within the others'."""
        return Distribution(self.diversity.attribute, "joint")

    @property
    def name(self) -> str:
        """``joint entropy 3-diversity of diagnosis``."""
        return f"joint {self.diversity.name}"

    @property
    def least_class(self) -> int:
        """As of its groups."""
        return self.diversity.least_class

    def figures(self) -> Mapping[str, exp.Expr]:
        """``holds``: whether all groups meet it. ``short``: Σ of what they lose."""
        group = self.diversity
        lost: exp.Expr = group.shortfall()
        if group.hereditary:
            lost = number(1)
        # Never NULL: an aggregate would pass over a group that has no figure because it has too few values.
        holds = exp.Coalesce(this=exp.Paren(this=group.condition()), expressions=[exp.false()])
        short = exp.If(this=holds, true=number(0), false=lost)
        return {
            self._figure("holds"): exp.LogicalAnd(this=holds.copy()),
            self._figure("short"): double_total(short),
        }

    def condition(self) -> exp.Expr:
        """All groups meet it."""
        return self.distribution.column(self._figure("holds"))

    def shortfall(self) -> exp.Expr:
        """Σ of what the groups lose."""
        return self.distribution.column(self._figure("short"))

    def _figure(self, name: str) -> str:
        return f"{self.diversity.name} {name}"
