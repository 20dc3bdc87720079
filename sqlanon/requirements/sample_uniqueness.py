"""Sample uniqueness: the share of rows (or persons) that are alone in their class."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.average_risk import AVERAGE_RISK, ClassSizeLimit
from sqlanon.requirements.base import TOLERANCE, Entry, KeptClasses
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import fragment
from sqlanon.support.fields import Share


class SampleUniqueness(ClassSizeLimit):
    """The share of rows (or persons) that are alone in their class is at most ``limit``.

    Monotone while the kept rows stay the same, as average risk is.
    """

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

    def figure(self, kept_classes: KeptClasses) -> float:
        return kept_classes.single_classes / kept_classes.count

    def violations(self, released: WarehouseRelease) -> exp.Select:
        uniques = fragment("sum(CASE WHEN row_count = 1 THEN 1 ELSE 0 END)")()
        return released.share_above(uniques, self.limit + TOLERANCE)

    def sentence(self, unit: str) -> str:
        return f"At most {100 * self.limit:g} % of the rows are alone in their group."
