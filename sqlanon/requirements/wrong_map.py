"""Wrong-map: a limit on the share of released rows that match only other people in the population.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4 (k-map, null-map and wrong-map protection).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from sqlglot import exp

from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.base import Entry, KeptRows, Requirement, SeparateCondition
from sqlanon.support.checks import Check
from sqlanon.support.expressions import all_of, cast, col, null_safe_equal, row_count, template
from sqlanon.support.fields import Section, Share, policy_key


class WrongMap(Section, SeparateCondition, Requirement):
    """A limit on the share of released rows that match people in the population, but not the person of the row.

    A row matches the people with the same quasi-identifiers, generalized the same way. An attacker who looks up such a
    row finds only other people. Ids are compared as text. A row without an id matches only other people.

    >>> WrongMap(max=0.05).name
    'wrong-map of at most 0.05'
    """

    max: Share = policy_key(
        "the greatest share of the released rows that match only other people", example=0.05, default=...
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

    # Not monotone: further up, a row may match its person, and an unmatched row may match other people.

    label: ClassVar[str] = "wrong-map"

    @property
    def upper_bound(self) -> float:
        return self.max

    def figure(self, kept_rows: KeptRows) -> float:
        return kept_rows.count_wrong_matches() / kept_rows.rows

    def audit(self, audited: AuditedRelease) -> Iterator[Check]:
        assert audited.population is not None and audited.person is not None
        relation, options = audited.population
        population = exp.to_table(relation, dialect="duckdb")
        in_class = [null_safe_equal(col(name, "r"), col(name, "p")) for name in audited.quasi_identifiers]
        persons = audited.person, options["population_person"]
        wrong = audited.query_value(wrong_rows(audited.table, population, in_class, *persons)) or 0
        released = audited.query_value(row_count(rows=audited.table)) or 0
        holds = released > 0 and self.is_within(wrong / released)
        yield Check(self.name, holds, f"{wrong:,} of {released:,} rows match only other people in the population")

    def sentence(self, unit: str) -> str:
        return f"At most {100 * self.max:g} % of the rows match only other people in the population (wrong-map)."


def wrong_rows(
    rows: exp.Expr,
    population: exp.Expr,
    in_class: Iterable[exp.Expr],
    person: str,
    population_person: str,
    count: exp.Expr | int = 1,
) -> exp.Select:
    """Count the rows that match only other people in the population; each stands for ``count`` rows.

    ``in_class`` are the conditions that row ``r`` and person ``p`` have the same quasi-identifiers.
    """
    return template("""
        SELECT coalesce(sum(:count)::BIGINT, 0)
        FROM :rows AS r
        SEMI JOIN :population AS p ON :in_class
        ANTI JOIN :population AS p ON :in_class AND :person = :population_person
    """)(
        count=count,
        rows=rows,
        population=population,
        in_class=all_of(in_class),
        person=cast(col(person, "r"), "VARCHAR"),
        population_person=cast(col(population_person, "p"), "VARCHAR"),
    )
