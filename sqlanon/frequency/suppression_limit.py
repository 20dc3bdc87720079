"""How much of a source may be suppressed: rows, or persons where persons are counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.statements import count_persons, sum_rows_of_largest_persons


@dataclass(frozen=True)
class SuppressionLimit:
    """The most rows that may be suppressed; where persons are counted, the most persons who may lose a row.

    A person loses a row where at least one of its rows is suppressed. Then ``rows`` are those of the persons with most
    rows, as many persons as may lose one: whoever suppresses more rows takes one from more persons.
    """

    rows: int
    persons: int | None = None
    all_persons: int | None = None  # of the source

    def allows(self, rows: int, persons: int | None) -> bool:
        """Whether so many rows may be suppressed, of so many persons; None: rows are counted."""
        return rows <= self.rows and (self.persons is None or (persons or 0) <= self.persons)

    def sentence(self, suppressed: int, rows: int, persons: int | None) -> str:
        """What is suppressed of so many rows, and what may be, as the end of a sentence.

        >>> print(SuppressionLimit(5).sentence(12, 100, None))
        12 of 100 rows; the suppression limit allows 5
        >>> print(SuppressionLimit(9, 1, 20).sentence(12, 100, 3))
        rows of 3 of 20 persons (12 of 100 rows); the suppression limit allows 1 person to lose rows
        """
        text = f"{suppressed:,} of {rows:,} rows"
        if self.persons is None:
            return f"{text}; the suppression limit allows {self.rows:,}"
        if persons is not None:
            text = f"rows of {persons:,} of {self.all_persons:,} persons ({text})"
        allowed = f"{self.persons:,} person{'' if self.persons == 1 else 's'}"
        return f"{text}; the suppression limit allows {allowed} to lose rows"

    def share(self, suppressed: int, rows: int, persons: int | None) -> float:
        """The least limit, of four digits, that allows so many of the rows, or persons, to be suppressed."""
        part, whole = (suppressed, rows) if self.persons is None else (persons or 0, self.all_persons or 1)
        return math.ceil(10_000 * part / whole) / 10_000


def floor_share(limit: Decimal, count: int) -> int:
    """At most floor(limit × count), in exact decimal arithmetic.

    >>> floor_share(Decimal("0.29"), 100)
    29
    """
    return int(Fraction(limit) * count)


def count_suppression_limit(
    steps: StatementRunner, limit: Decimal, rows: int, members: exp.Table | None
) -> SuppressionLimit:
    """The limit on a source of so many rows; with ``members``, which persons are in which combinations. The runner is
    of the engine that has these."""
    if members is None:
        return SuppressionLimit(floor_share(limit, rows))
    every = int(steps.look_up(count_persons(members), [(0,)])[0][0])
    persons = floor_share(limit, every)
    if not persons:
        return SuppressionLimit(0, 0, every)
    return SuppressionLimit(
        int(steps.look_up(sum_rows_of_largest_persons(members, persons), [(0,)])[0][0]), persons, every
    )
