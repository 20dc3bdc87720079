"""Sample uniqueness: the share of rows (or persons) that are alone in their class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, figure
from sqlanon.requirements.average_risk import AVERAGE_RISK
from sqlanon.requirements.base import TOLERANCE, Entry, Requirement, RetainedClasses, TableCondition
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import fragment
from sqlanon.support.fields import Share

ALONE = fragment("sum(CASE WHEN n = 1 THEN 1 ELSE 0 END)")


@dataclass(frozen=True)
class SampleUniqueness(TableCondition, Requirement):
    """The share of rows (or persons) that are alone in their class is at most ``limit``.

    Monotone where the kept rows stay the same, as average risk is.
    """

    limit: float

    entry: ClassVar[Entry] = Entry(
        "sample_uniqueness",
        "number",
        "the greatest share of the kept rows that are alone in their class, 0 to 1",
        number=Share,
        example=0.01,
        scope="table",
        macros=(AVERAGE_RISK,),
    )

    label: ClassVar[str] = "sample uniqueness"

    @property
    def upper_bound(self) -> float:
        return self.limit

    def figure(self, kept: RetainedClasses) -> float:
        return kept.uniques / kept.count

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.figures(AVERAGE_RISK, list(audited.quasi_identifiers), **audited.person_option)
        value = figure(figures["sample_uniqueness"])
        yield audited.as_person_check(Check(self.name, self.is_within(value), f"it is {value:.6g}"))

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return released.by_share(ALONE(), self.limit + TOLERANCE)

    def sentence(self, who: str) -> str:
        return f"At most {100 * self.limit:g} % of the rows are alone in their group."
