"""k-anonymity: every released row shares its quasi-identifiers, or some of them, with at least k − 1 others.

Sources: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information: k-anonymity and its enforcement
through generalization and suppression" (1998), definition 2; for requirements on some of the quasi-identifiers, the
pairs of shield and k of the IAB's paper on anonymizing its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field
from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check
from sqlanon.requirements.base import CLASS_COUNT, ClassCondition, Entry, Requirement, SourceFacts, SubsetCondition
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import col, number
from sqlanon.support.fields import Name, Section, StrictInteger
from sqlanon.support.notices import Notice

ROWS = Macro("k_anonymity", ("k", "classes", "rows", "uniques"))
PERSONS = Macro("person_k_anonymity", ("k", "classes", "persons", "rows", "uniques"))


@dataclass(frozen=True)
class KAnonymity(Requirement, ClassCondition):
    """At least ``k`` rows, or persons, in a class.

    Monotone, with suppression too: generalizing further only merges classes, so that a class of k rows
    stays one, and the rows in smaller classes become fewer or stay as many. Persons likewise.

    >>> KAnonymity(5).condition().sql("duckdb")
    '"class_count" >= 5'
    """

    k: int

    entry: ClassVar[Entry] = Entry(
        "k",
        "number",
        "k-anonymity: every equivalence class has at least k rows (or persons)",
        number=Annotated[StrictInteger, Field(ge=1)],
        example=5,
        macros=(ROWS, PERSONS),
        plain_macros=True,
    )
    hereditary = True

    @property
    def name(self) -> str:
        return f"{self.k}-anonymity"

    @property
    def min_class_rows(self) -> int:
        """k."""
        return self.k

    @property
    def min_class_count(self) -> int:
        return self.k

    def condition(self) -> exp.Expr:
        return col(CLASS_COUNT) >= number(self.k)

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        return self.k

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """By ``k_anonymity``; where only some combinations are guaranteed, the whole may fail."""
        for some in audited.combinations:
            yield _check(audited, f"{self.k}-anonymity of {', '.join(some)}", self.k, some)
        whole = _check(audited, self.name, self.k, audited.quasi_identifiers)
        if audited.combinations and not whole.passed:
            message = f"not guaranteed: over all quasi-identifiers together, {whole.message}; knowing more of a "
            whole = replace(whole, passed=None, message=f"{message}person than one combination may identify the row")
        yield whole

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return released.small_classes(released.quasi, self.k)

    def sentence(self, who: str) -> str:
        return (
            f"Nobody stands alone: each combination of the generalized columns is shared by at least {self.k} {who} "
            f"({self.name})."
        )


class Shield(Section, Requirement):
    """k-anonymity over some of the quasi-identifiers, with a k of its own.

    Source: the pairs ⟨shield, k⟩ of the IAB's paper on anonymizing its data.

    >>> Shield(quasi=("zip", "age"), k=3).quasi
    ('zip', 'age')
    """

    quasi: tuple[Name, ...] = Field(
        min_length=1, description="the quasi attributes of the shield", examples=[["zip", "age"]]
    )
    k: Annotated[StrictInteger, Field(ge=1)] = Field(
        description="the least number of rows (or persons) with the same values of these attributes", examples=[20]
    )

    entry: ClassVar[Entry] = Entry(
        "k_anonymity",
        "list",
        "shields: k-anonymity over some of the quasi attributes, each with its k",
        subsets=True,
        macros=(ROWS, PERSONS),
        plain_macros=True,
    )

    @property
    def name(self) -> str:
        return f"{self.k}-anonymity of {', '.join(self.quasi)}"

    @property
    def quasi_identifiers(self) -> tuple[str, ...]:
        return self.quasi

    def bind(self, source: SourceFacts) -> SubsetCondition:
        numbers = sorted(source.quasi.index(name) for name in self.quasi)
        return SubsetCondition(tuple(numbers), tuple(source.quasi[i] for i in numbers), self.k)

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        own = {name.lower() for name in self.quasi}
        return self.k if own >= {name.lower() for name in quasi} else 1

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        yield _check(audited, self.name, self.k, self.quasi)

    def violations(self, released: WarehouseRelease) -> exp.Select:
        own = sorted((released.columns[name] for name in self.quasi), key=list(released.quasi).index)
        return released.small_classes(own, self.k)

    def sentence(self, who: str) -> str:
        return f"At least {self.k} {who} share each combination of {', '.join(self.quasi)}."


def _check(audited: AuditedRelease, name: str, required: int, quasi: Sequence[str]) -> Check:
    macro, person = (PERSONS, [audited.person]) if audited.person else (ROWS, [])
    k = audited.figures(macro, list(quasi), *person)["k"] or 0
    message = f"smallest class: {k} {'persons' if audited.person else 'rows'} (required: {required})"
    if not audited.can_count and k >= required:
        return Check(name, None, f"not verifiable alone: {required} persons required; {message}")
    return Check(name, k >= required, message)


def warn_of_void_shields(shields: Sequence[SubsetCondition], k: int | None) -> Iterator[Notice]:
    """Warn of shields that add nothing to the other requirements.

    >>> [each.message for each in warn_of_void_shields([SubsetCondition((0,), ("zip",), 3)], 5)]
    ['3-anonymity of zip is void: 5-anonymity over all quasi-identifiers requires as much or more']
    """
    for i, shield in enumerate(shields):
        if k is not None and shield.k <= k:
            wider_name = f"{k}-anonymity over all quasi-identifiers"
            yield Notice(f"{shield.name} is void: {wider_name} requires as much or more", 0)
            continue
        for j, other in enumerate(shields):
            wider = set(other.attributes) >= set(shield.attributes) and other.k >= shield.k
            if i != j and wider and (shield != other or j < i):
                yield Notice(f"{shield.name} is void: {other.name} requires as much or more", 0)
                break
