"""Average risk: the mean over rows of 1 / the size of their class.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013), chapter 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, figure
from sqlanon.requirements.base import TOLERANCE, Entry, Requirement, RetainedClasses, TableCondition
from sqlanon.requirements.macros import Macro
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.fields import ShareAboveZero

AVERAGE_RISK = Macro("average_risk", ("average_risk", "sample_uniqueness", "classes", "rows"))


@dataclass(frozen=True)
class AverageRisk(TableCondition, Requirement):
    """Classes / rows (or persons) ≤ ``limit``.

    Monotone where the kept rows stay the same, which is so without suppression: merged classes are fewer. Not with
    suppression: rows that are kept only further up may come in small classes.
    """

    limit: float

    entry: ClassVar[Entry] = Entry(
        "average_risk",
        "number",
        "the greatest average risk: kept classes / kept rows, more than 0 and at most 1",
        number=ShareAboveZero,
        example=0.05,
        scope="table",
        macros=(AVERAGE_RISK,),
    )

    label: ClassVar[str] = "average risk"

    @property
    def upper_bound(self) -> float:
        return self.limit

    def figure(self, kept: RetainedClasses) -> float:
        return kept.classes / kept.count

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.figures(AVERAGE_RISK, list(audited.quasi_identifiers), **audited.person_option)
        value = figure(figures["average_risk"])
        yield audited.as_person_check(Check(self.name, self.is_within(value), f"it is {value:.6g}"))

    def violations(self, released: WarehouseRelease) -> exp.Select:
        return released.by_share(exp.Count(this=exp.Star()), self.limit + TOLERANCE)

    def sentence(self, who: str) -> str:
        return f"The average risk of being found is at most {100 * self.limit:g} %."
