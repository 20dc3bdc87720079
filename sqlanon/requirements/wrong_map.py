"""Wrong-map: the share of the released rows that match somebody else of the population, and not their own person, is
bounded.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map protection).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field
from sqlglot import exp

from sqlanon.expressions import all_of, cast, col, same, template
from sqlanon.fields import Section, Share
from sqlanon.requirements.audit import Audited, Check, needs_population
from sqlanon.requirements.base import Entry, KeptRows, Requirement, SeparateCondition, plain
from sqlanon.requirements.null_map import ROWS

WRONG = template("""
    SELECT count(*)
    FROM :released AS r
    SEMI JOIN :population AS p ON :in_class
    ANTI JOIN :population AS p ON :in_class AND :of_person
""")


class WrongMap(Section, Requirement, SeparateCondition):
    """At most a share of the released rows match somebody of the population, but not the person that they are of.

    A row matches whom it agrees with in all quasi-identifiers, generalized the same way. An attacker who looks up such
    a row finds other people only. Ids are compared as text, and a row without one is of nobody.

    >>> WrongMap(max=0.05).name
    'wrong-map of at most 0.05'
    """

    max: Share = Field(
        description="the greatest share of the released rows that match somebody, but not their own person",
        examples=[0.05],
    )

    entry: ClassVar[Entry] = Entry(
        "wrong_map",
        "table",
        "a limit on the share of the released rows that match others of [population], but not their own person",
        scope="population",
        alone=False,
        whole_source=True,
        persons=True,
    )

    # Not monotone: further up, a row may match its own person, and one that matched nobody may match others.

    @property
    def name(self) -> str:
        return f"wrong-map of at most {plain(self.max)}"

    @property
    def most(self) -> float:
        return self.max

    def figure(self, kept: KeptRows) -> float:
        return kept.wrong() / kept.rows

    def audit(self, audited: Audited) -> Iterator[Check]:
        if audited.population is None or audited.person is None:
            yield needs_population(self.name)
            return
        relation, options = audited.population
        ids = (col(audited.person, "r"), col(options["population_person"], "p"))
        query = WRONG(
            released=audited.released,
            population=exp.to_table(relation, dialect="duckdb"),
            in_class=all_of(same(col(name, "r"), col(name, "p")) for name in audited.quasi),
            of_person=exp.EQ(this=cast(ids[0], "VARCHAR"), expression=cast(ids[1], "VARCHAR")),
        )
        wrong = audited.value(query) or 0
        released = audited.value(ROWS(released=audited.released)) or 0
        holds = released > 0 and self.holds(wrong / released)
        yield Check(self.name, holds, f"{wrong:,} of {released:,} rows match other people of the population only")

    def sentence(self, who: str) -> str:
        return f"At most {100 * self.max:g} % of the rows match other people of the population only (wrong-map)."
