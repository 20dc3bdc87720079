"""Confidence: no value of a sensitive attribute belongs to more than a share of the persons of a group.

For linked tables, where a person may have several values of an attribute: in the rows of a child table. A group is the
persons who share what an attacker may know.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlanon.requirements.base import CLASS_COUNT, TOLERANCE, ClassCondition, format_number
from sqlanon.support.coding import ROW_COUNT
from sqlanon.support.expressions import col, fragment
from sqlanon.support.fields import Name, Section, ShareAboveZero, policy_key


class Confidence(Section, ClassCondition):
    """At most a share of the persons of a group have the same value of an attribute, in any of their rows.

    Source: Y. Xu, K. Wang, A. W.-C. Fu, P. S. Yu, "Anonymizing transaction databases for publication" (KDD 2008),
    (h, k, p)-coherence: h is this share.

    >>> Confidence(attribute="diagnosis", max=0.5).name
    'confidence of at most 0.5 in diagnosis'
    """

    attribute: Name = policy_key(
        "a sensitive attribute of any table, after the name of its table if several have it",
        example="visits.diagnosis",
        default=...,
    )
    max: ShareAboveZero = policy_key(
        "the greatest share of the persons of a group with the same value, more than 0 and at most 1",
        example=0.5,
        default=...,
    )

    @property
    def name(self) -> str:
        return f"confidence of at most {format_number(self.max)} in {self.attribute}"

    @property
    def sensitive_attributes(self) -> tuple[str, ...]:
        """The attribute."""
        return (self.attribute,)

    def figures(self) -> Mapping[str, exp.Expr]:
        return {"most persons": exp.Max(this=col(ROW_COUNT))}

    def condition(self) -> exp.Expr:
        return fragment(":most / :persons::DOUBLE <= :max_share")(
            most=self.figure_column("most persons"), persons=col(CLASS_COUNT), max_share=self.max + TOLERANCE
        )
