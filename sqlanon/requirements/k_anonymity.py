"""k-anonymity: every released row is one of at least k that read the same in all quasi-identifiers.

Sources: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information: k-anonymity and its enforcement
through generalization and suppression" (1998), definition 2; for requirements on some of the quasi-identifiers, the
pairs of shield and k of the IAB's paper on anonymizing its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.expressions import col, number
from sqlanon.requirements.base import CLASS_COUNT, ClassRequirement


@dataclass(frozen=True)
class KAnonymity(ClassRequirement):
    """At least ``k`` rows, or persons, in a class.

    Monotone, with suppression too: generalizing further only merges classes, so that a class of k rows
    stays one, and the rows in smaller classes become fewer or stay as many. Persons likewise.

    >>> KAnonymity(5).condition().sql("duckdb")
    '"class_count" >= 5'
    """

    k: int
    hereditary = True

    @property
    def least_class(self) -> int:
        """k."""
        return self.k

    @property
    def name(self) -> str:
        """``5-anonymity``."""
        return f"{self.k}-anonymity"

    def condition(self) -> exp.Expr:
        """``class_count >= k``."""
        return exp.GTE(this=col(CLASS_COUNT), expression=number(self.k))


@dataclass(frozen=True)
class Shield:
    """k-anonymity over some of the quasi-identifiers.

    Suppressing a class for one shield makes the classes of the others smaller: the kept rows are the greatest set in
    which all hold. Monotone, with suppression too: a set of rows that meets all shields meets them when it is
    generalized further, so that the greatest set never shrinks on the way up.

    Attributes
    ----------
    attributes:
        The numbers of its quasi-identifiers, ascending.
    names:
        Their names.
    k:
        The least number of kept rows, or persons, that read the same in them.
    """

    attributes: tuple[int, ...]
    names: tuple[str, ...]
    k: int

    @property
    def name(self) -> str:
        """``3-anonymity of zip, age``."""
        return f"{self.k}-anonymity of {', '.join(self.names)}"


def void_shields(shields: Sequence[Shield], k: int | None) -> Iterator[str]:
    """Say which shields ask for nothing that others do not ask for already.

    >>> list(void_shields([Shield((0,), ("zip",), 3)], 5))
    ['3-anonymity of zip is void: 5-anonymity over all quasi-identifiers asks for as much or more']
    """
    for i, shield in enumerate(shields):
        if k is not None and shield.k <= k:
            yield f"{shield.name} is void: {k}-anonymity over all quasi-identifiers asks for as much or more"
            continue
        for j, other in enumerate(shields):
            wider = set(other.attributes) >= set(shield.attributes) and other.k >= shield.k
            if i != j and wider and (shield != other or j < i):
                yield f"{shield.name} is void: {other.name} asks for as much or more"
                break
