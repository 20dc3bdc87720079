"""k-anonymity: every released row shares its quasi-identifiers, or a subset of them, with at least k − 1 other rows.

Sources: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information: k-anonymity and its enforcement
through generalization and suppression" (1998), definition 2; for subsets of the quasi-identifiers, the pairs of shield
and k in the IAB's paper on anonymizing its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.base import CLASS_COUNT, ClassCondition, Entry, Requirement, SourceDomains, SubsetCondition
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.checks import Check
from sqlanon.support.expressions import col, number
from sqlanon.support.fields import Count, Name, Section, policy_key
from sqlanon.support.notices import Notice

ROWS = Macro("k_anonymity", ("k", "classes", "rows", "uniques"))
PERSONS = Macro("person_k_anonymity", ("k", "classes", "persons", "rows", "uniques"))


@dataclass(frozen=True)
class KAnonymity(Requirement, ClassCondition):
    """At least ``k`` rows, or persons, in a class.

    Monotone with suppression: generalizing further only merges classes, so a class of k rows keeps at least k, and the
    number of rows in smaller classes never grows. The same holds for persons.

    >>> KAnonymity(5).condition().sql("duckdb")
    '"class_count" >= 5'
    """

    k: int

    entry: ClassVar[Entry] = Entry(
        "k",
        "number",
        "k-anonymity: every equivalence class has at least k rows (or persons)",
        number=Count,
        example=5,
        macros=(ROWS, PERSONS),
        plain_macros=True,
    )
    hereditary = True

    @property
    def name(self) -> str:
        return f"{self.k}-anonymity"

    @property
    def min_class_count(self) -> int:
        return self.k

    def condition(self) -> exp.Expr:
        return col(CLASS_COUNT) >= number(self.k)

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        return self.k

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        """Audit with the macro ``k_anonymity``. Where only combinations are guaranteed, the check of all
        quasi-identifiers may fail."""
        for combination in audited.combinations:
            yield _check(audited, f"{self.k}-anonymity of {', '.join(combination)}", self.k, combination)
        check = _check(audited, self.name, self.k, audited.quasi_identifiers)
        if audited.combinations and not check.passed:
            message = f"not guaranteed: over all quasi-identifiers together, {check.message}; knowing more of a "
            check = replace(check, passed=None, message=f"{message}person than one combination may identify the row")
        yield check

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return released.small_classes(released.quasi, self.k)

    def sentence(self, unit: str) -> str:
        return (
            f"Nobody stands alone: each combination of the generalized columns is shared by at least {self.k} {unit} "
            f"({self.name})."
        )


class Shield(Section, Requirement):
    """k-anonymity over a subset of the quasi-identifiers, with a separate k.

    Source: the pairs ⟨shield, k⟩ in the IAB's paper on anonymizing its data.

    >>> Shield(quasi=("zip", "age"), k=3).quasi
    ('zip', 'age')
    """

    quasi: tuple[Name, ...] = policy_key(
        "the quasi attributes of the shield", example=["zip", "age"], min_length=1, default=...
    )
    k: Count = policy_key(
        "the least number of rows (or persons) with the same values of these attributes", example=20, default=...
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

    def bind(self, source: SourceDomains) -> SubsetCondition:
        positions = sorted(source.quasi.index(name) for name in self.quasi)
        return SubsetCondition(tuple(positions), tuple(source.quasi[i] for i in positions), self.k)

    def guaranteed_k(self, quasi: Sequence[str]) -> int:
        shield = {name.lower() for name in self.quasi}
        return self.k if shield >= {name.lower() for name in quasi} else 1

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        yield _check(audited, self.name, self.k, self.quasi)

    def violations(self, released: WarehouseRelease) -> exp.Select:
        columns = sorted((released.columns[name] for name in self.quasi), key=list(released.quasi).index)
        return released.small_classes(columns, self.k)

    def sentence(self, unit: str) -> str:
        return f"At least {self.k} {unit} share each combination of {', '.join(self.quasi)}."


def _check(audited: AuditedRelease, name: str, required: int, quasi: Sequence[str]) -> Check:
    macro, person = (PERSONS, [audited.person]) if audited.person else (ROWS, [])
    k = audited.figures(macro, quasi, *person)["k"] or 0
    message = f"smallest class: {k} {'persons' if audited.person else 'rows'} (required: {required})"
    if not audited.can_count and k >= required:
        return Check(name, None, f"not verifiable alone: {required} persons required; {message}")
    return Check(name, k >= required, message)


def warn_of_void_shields(shields: Sequence[SubsetCondition], k: int | None) -> Iterator[Notice]:
    """Warn about shields that other requirements imply.

    >>> [notice.message for notice in warn_of_void_shields([SubsetCondition((0,), ("zip",), 3)], 5)]
    ['3-anonymity of zip is void: 5-anonymity over all quasi-identifiers requires as much or more']
    """
    for i, shield in enumerate(shields):
        stronger = [f"{k}-anonymity over all quasi-identifiers"] if k is not None and shield.k <= k else []
        for j, candidate in enumerate(shields):
            implies = set(candidate.attributes) >= set(shield.attributes) and candidate.k >= shield.k
            if i != j and implies and (shield != candidate or j < i):
                stronger.append(candidate.name)
        if stronger:
            yield Notice(f"{shield.name} is void: {stronger[0]} requires as much or more", 0)
