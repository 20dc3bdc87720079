"""Sample uniqueness: the share of rows (or persons) that are alone in their class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, to_float
from sqlanon.requirements.average_risk import AVERAGE_RISK
from sqlanon.requirements.base import TOLERANCE, Entry, Requirement, RetainedClasses, TableCondition
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import fragment
from sqlanon.support.fields import Share


@dataclass(frozen=True)
class SampleUniqueness(TableCondition, Requirement):
    """The share of rows (or persons) that are alone in their class is at most ``limit``.

    Monotone while the retained rows stay the same, as average risk is.
    """

    limit: float

    entry: ClassVar[Entry] = Entry(
        "sample_uniqueness",
        "number",
        "the greatest share of the retained rows that are alone in their class, 0 to 1",
        number=Share,
        example=0.01,
        scope="table",
        macros=(AVERAGE_RISK,),
    )

    label: ClassVar[str] = "sample uniqueness"

    @property
    def upper_bound(self) -> float:
        return self.limit

    def figure(self, retained: RetainedClasses) -> float:
        return retained.uniques / retained.count

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.figures(AVERAGE_RISK, audited.quasi_identifiers, **audited.person_option)
        value = to_float(figures["sample_uniqueness"])
        yield audited.as_person_check(self.check(value, f"it is {value:.6g}"))

    def violations(self, released: WarehouseRelease) -> exp.Select:
        uniques = fragment("sum(CASE WHEN n = 1 THEN 1 ELSE 0 END)")()
        return released.share_above(uniques, self.limit + TOLERANCE)

    def sentence(self, unit: str) -> str:
        return f"At most {100 * self.limit:g} % of the rows are alone in their group."
