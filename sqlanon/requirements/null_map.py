"""Null-map: the share of the released rows that match nobody in the population is bounded.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map protection).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from sqlanon.requirements.audit import AuditedRelease, Check, needs_population
from sqlanon.requirements.base import Entry, Requirement, RetainedClasses, TableCondition
from sqlanon.requirements.k_map import K_MAP
from sqlanon.support.expressions import template
from sqlanon.support.fields import Section, Share

ROWS = template("SELECT count(*) FROM :released")


class NullMap(Section, TableCondition, Requirement):
    """Limits the share of released rows that match nobody in the population.

    A row matches whom it agrees with in all quasi-identifiers, generalized the same way. A released row that matches
    nobody shows that the table was not drawn from this population, or that the row is wrong.

    >>> NullMap(max=0.01).name
    'null-map of at most 0.01'
    """

    max: Share = Field(description="the greatest share of the released rows that match nobody", examples=[0.01])

    entry: ClassVar[Entry] = Entry(
        "null_map",
        "table",
        "a limit on the share of the released rows that match nobody in [population]",
        scope="population",
        verifiable_alone=False,
        whole_source=True,
        macros=(K_MAP,),
    )

    # Monotone where the kept rows stay the same, which is so without suppression: a merged class matches whom its parts
    # match.

    label: ClassVar[str] = "null-map"

    @property
    def upper_bound(self) -> float:
        return self.max

    def figure(self, kept: RetainedClasses) -> float:
        return kept.unmatched_rows / kept.rows

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        population = audited.population
        if population is None:
            yield needs_population(self.name)
            return
        relation, options = population
        matched = audited.figures(K_MAP, list(audited.quasi_identifiers), relation, **options)
        released = audited.query_value(ROWS(released=audited.table)) or 0
        nobody = matched["null_map"] or 0
        holds = released > 0 and self.is_within(nobody / released)
        yield Check(self.name, holds, f"{nobody:,} of {released:,} rows match nobody in the population")

    def sentence(self, who: str) -> str:
        return f"At most {100 * self.max:g} % of the rows match nobody in the population (null-map)."
