"""k-anonymity: every released row is one of at least k that read the same in all quasi-identifiers.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information: k-anonymity and its
enforcement through generalization and suppression" (1998), definition 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.privacy.base import CLASS_SIZE
from sqlanon.queries.names import col, number


@dataclass(frozen=True)
class KAnonymity:
    """At least ``k`` rows in a class.

    Monotone, with suppression too: generalizing further only merges classes, so that a class of k rows
    stays one, and the rows in smaller classes become fewer or stay as many.

    >>> KAnonymity(5).condition().sql("duckdb")
    '"class_size" >= 5'
    """

    k: int

    @property
    def least_class(self) -> int:
        """k."""
        return self.k

    @property
    def name(self) -> str:
        """``5-anonymity``."""
        return f"{self.k}-anonymity"

    def class_aggregates(self) -> list[exp.Alias]:
        """None: the size of a class is always there."""
        return []

    def condition(self) -> exp.Expr:
        """``class_size >= k``."""
        return exp.GTE(this=col(CLASS_SIZE), expression=number(self.k))
