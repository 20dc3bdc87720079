"""The number of rows or persons of a source that may be suppressed."""

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
    """The maximum number of suppressed rows; if persons are counted, of persons with suppressed rows.

    Then ``rows`` is the total of the persons with the most rows, for the allowed number of persons: suppressing more
    rows always affects more persons.
    """

    rows: int
    persons: int | None = None
    all_persons: int | None = None  # the persons of the source

    def allows(self, rows: int, persons: int | None) -> bool:
        """Whether the suppression of these rows, of this number of persons, is within the limit."""
        return rows <= self.rows and (self.persons is None or (persons or 0) <= self.persons)

    def sentence(self, suppressed: int, rows: int, persons: int | None) -> str:
        """The end of a sentence with the suppressed and the allowed numbers.

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
        """The smallest limit with four digits that allows these suppressed rows or persons."""
        part, whole = (suppressed, rows) if self.persons is None else (persons or 0, self.all_persons or 1)
        return math.ceil(10_000 * part / whole) / 10_000


def floor_share(limit: Decimal, count: int) -> int:
    """At most floor(limit × count), in exact decimal arithmetic.

    >>> floor_share(Decimal("0.29"), 100)
    29
    """
    return int(Fraction(limit) * count)


def count_suppression_limit(
    runner: StatementRunner, limit: Decimal, rows: int, members: exp.Table | None
) -> SuppressionLimit:
    """The suppression limit of a source. With ``members``, the persons of each combination, it counts persons.

    The runner must be of the engine that has ``members``.
    """
    if members is None:
        return SuppressionLimit(floor_share(limit, rows))
    all_persons = int(runner.fetch_rows(count_persons(members), [(0,)], in_plan=False)[0][0])
    persons = floor_share(limit, all_persons)
    if not persons:
        return SuppressionLimit(0, 0, all_persons)
    limit_rows = int(runner.fetch_rows(sum_rows_of_largest_persons(members, persons), [(0,)], in_plan=False)[0][0])
    return SuppressionLimit(limit_rows, persons, all_persons)
