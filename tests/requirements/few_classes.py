"""A requirement on the table as a whole, in one file outside the package: a limit on the number of classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.base import Entry, KeptClasses, Requirement, TableCondition
from sqlanon.requirements.plain_sql import WarehouseRelease, class_sizes
from sqlanon.support.checks import Check
from sqlanon.support.expressions import template
from sqlanon.support.fields import Count

TOO_MANY = template("SELECT count(*) AS figure FROM :classes HAVING count(*) > :limit")


@dataclass(frozen=True)
class FewClasses(Requirement, TableCondition):
    """At most ``limit`` classes. Merged classes are fewer."""

    limit: int

    entry: ClassVar[Entry] = Entry(
        "few_classes",
        "number",
        "the greatest number of classes",
        number=Count,
        scope="table",
    )

    @property
    def name(self) -> str:
        return f"at most {self.limit} classes"

    @property
    def upper_bound(self) -> float:
        return self.limit

    def figure(self, kept_classes: KeptClasses) -> float:
        return kept_classes.classes

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        class_count = sum(audited.class_sizes().values())
        yield Check(self.name, class_count <= self.limit, f"there are {class_count}")

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return TOO_MANY(classes=class_sizes(released.release, released.quasi), limit=self.limit)

    def sentence(self, unit: str) -> str:
        return f"There are at most {self.limit} groups."
