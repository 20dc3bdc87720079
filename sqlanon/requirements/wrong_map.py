"""Wrong-map: the share of the released rows that match only other people in the population is bounded.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map protection).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from pydantic import Field
from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease, Check, needs_population
from sqlanon.requirements.base import Entry, Requirement, RetainedRows, SeparateCondition
from sqlanon.requirements.null_map import ROWS
from sqlanon.support.expressions import all_of, cast, col, same, template
from sqlanon.support.fields import Section, Share

_WRONG_ROWS = template("""
    SELECT coalesce(sum(:count)::BIGINT, 0)
    FROM :rows AS r
    SEMI JOIN :population AS p ON :in_class
    ANTI JOIN :population AS p ON :in_class AND :of_person
""")


class WrongMap(Section, SeparateCondition, Requirement):
    """Limits the share of released rows that match people in the population, but not the person that the row is about.

    A row matches whom it agrees with in all quasi-identifiers, generalized the same way. An attacker who looks up such
    a row finds only other people. Ids are compared as text. A row without an id belongs to nobody.

    >>> WrongMap(max=0.05).name
    'wrong-map of at most 0.05'
    """

    max: Share = Field(
        description="the greatest share of the released rows that match only other people",
        examples=[0.05],
    )

    entry: ClassVar[Entry] = Entry(
        "wrong_map",
        "table",
        "a limit on the share of the released rows that match only other people in [population]",
        scope="population",
        verifiable_alone=False,
        whole_source=True,
        compares_persons=True,
    )

    # Not monotone: further up, a row may match its own person, and one that matched nobody may match others.

    label: ClassVar[str] = "wrong-map"

    @property
    def upper_bound(self) -> float:
        return self.max

    def figure(self, kept: RetainedRows) -> float:
        return kept.count_wrong_matches() / kept.rows

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        if audited.population is None or audited.person is None:
            yield needs_population(self.name)
            return
        relation, options = audited.population
        population = exp.to_table(relation, dialect="duckdb")
        in_class = [same(col(name, "r"), col(name, "p")) for name in audited.quasi_identifiers]
        persons = audited.person, options["population_person"]
        wrong = audited.query_value(wrong_rows(audited.table, population, in_class, *persons)) or 0
        released = audited.query_value(ROWS(released=audited.table)) or 0
        holds = released > 0 and self.is_within(wrong / released)
        yield Check(self.name, holds, f"{wrong:,} of {released:,} rows match only other people in the population")

    def sentence(self, who: str) -> str:
        return f"At most {100 * self.max:g} % of the rows match only other people in the population (wrong-map)."


def wrong_rows(
    rows: exp.Expr,
    population: exp.Expr,
    in_class: Iterable[exp.Expr],
    person: str,
    population_person: str,
    count: exp.Expr | int = 1,
) -> exp.Select:
    """One number: the rows that match only other people in the population, each ``count`` rows. The parts of the
    condition that a row and a person match name them ``r`` and ``p``.
    """
    ids = [cast(col(person, "r"), "VARCHAR"), cast(col(population_person, "p"), "VARCHAR")]
    own = exp.EQ(this=ids[0], expression=ids[1])
    return _WRONG_ROWS(count=count, rows=rows, population=population, in_class=all_of(in_class), of_person=own)
