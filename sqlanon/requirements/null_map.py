"""Null-map: a limit on the share of released rows that match nobody in the population.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map protection).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.base import Entry, KeptClasses, Requirement, TableCondition
from sqlanon.requirements.k_map import K_MAP
from sqlanon.support.checks import Check
from sqlanon.support.expressions import row_count
from sqlanon.support.fields import Section, Share, policy_key


class NullMap(Section, TableCondition, Requirement):
    """A limit on the share of released rows that match nobody in the population.

    A row matches the people with the same quasi-identifiers, generalized the same way. A released row without a match
    shows that the table was not drawn from this population, or that the row is wrong.

    >>> NullMap(max=0.01).name
    'null-map of at most 0.01'
    """

    max: Share = policy_key("the greatest share of the released rows that match nobody", example=0.01, default=...)

    entry: ClassVar[Entry] = Entry(
        "null_map",
        "table",
        "a limit on the share of the released rows that match nobody in [population]",
        scope="population",
        verifiable_alone=False,
        whole_source=True,
        macros=(K_MAP,),
    )

    # Monotone while the kept rows stay the same, as they do without suppression: a merged class matches everybody
    # that its parts match.

    label: ClassVar[str] = "null-map"

    @property
    def upper_bound(self) -> float:
        return self.max

    def figure(self, kept_classes: KeptClasses) -> float:
        return kept_classes.unmatched_rows / kept_classes.rows

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        figures = audited.population_figures(K_MAP)
        released = audited.query_value(row_count(rows=audited.table)) or 0
        unmatched = figures["null_map"] or 0
        holds = released > 0 and self.is_within(unmatched / released)
        yield Check(self.name, holds, f"{unmatched:,} of {released:,} rows match nobody in the population")

    def sentence(self, unit: str) -> str:
        return f"At most {100 * self.max:g} % of the rows match nobody in the population (null-map)."
