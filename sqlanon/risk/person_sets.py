"""Leakage where the policy counts persons: how much is left to learn is counted in persons, not in rows.

Of n persons, the one that is looked for takes log2 n bits to find; once the class of one of its rows is known, log2 of
the persons in that class. The gain is the mean over persons, and of a person the mean over its rows. Where each person
has one row, it is that of `leakage`. All rows without an id are of one person.

Attributes that leak nothing by themselves can leak everything together, if persons have rows with several values: the
gains of the attributes, added up, bound nothing here.

Names of columns, all ours. In the coded rows: the codes, ``who`` (the number of the person) and ``weight`` (the row's
share of the rows of its person).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.statements import PERSON
from sqlanon.risk.leakage import (
    SETS_AT_ONCE,
    SMALL,
    Attributes,
    AttributeSets,
    SetFigures,
    attribute_sets,
    batches,
    compute_gain,
)
from sqlanon.support.expressions import Namer, aliased, anonymous, cast, col, same, template, union_all

_PERSONS = template("""
    SELECT person, row_number() OVER () AS who, sum(n)::BIGINT AS n
    FROM :raw
    GROUP BY person
""")
_GROUPS = template("""
    SELECT :label AS label, count(DISTINCT who) AS n, sum(weight) AS weight
    FROM :coded
    GROUP BY :keys
""")
# Bits are added up as decimals, as in `leakage`.
_FIGURES = template("""
    SELECT
        label,
        count(*) AS classes,
        count(*) FILTER (WHERE n = 1) AS uniques,
        sum((weight::DOUBLE * :log2)::DECIMAL(38, 18))::DOUBLE AS bits
    FROM :groups AS g
    GROUP BY label
""")


class PersonSets:
    """The sets of a source's quasi-identifiers, where persons are counted.

    ``raw`` has the combinations of each person, as `frequency.statements.raw_frequency` makes them.
    """

    gains_add_up = False

    def __init__(
        self, steps: StatementRunner, work: Namer, sets: AttributeSets, attributes: int, raw: exp.Table
    ) -> None:
        self.steps, self.known = steps, dict[Attributes, SetFigures]()
        self._sets, self._attributes = sets, attributes
        persons = steps.make(work("persons_with_rows"), _PERSONS(raw=raw))
        self._persons = steps.count(persons)
        weight = cast(cast(col("n", "r"), "DOUBLE") / col("n", "p"), "DECIMAL(38, 30)")
        query = sets.coded(raw).select(col("who", "p"), exp.alias_(weight, "weight", quoted=True), copy=False)
        query = query.join(aliased(persons, "p"), on=same(col(PERSON, "r"), col(PERSON, "p")), copy=False)
        self.coded = steps.make(work("coded_persons"), query)

    @property
    def whole(self) -> float:
        """The bits that it takes to find a person."""
        return math.log2(self._persons) if self._persons > 1 else 0.0

    @cached_property
    def at_once(self) -> int:
        """At most this many sets are counted in one statement."""
        return SETS_AT_ONCE if self.steps.count(self.coded) <= SMALL else 1

    def count_up_to(self, most: int) -> None:
        """Count all sets of up to ``most`` attributes."""
        self.count(attribute_sets(self._attributes, most))

    def count(self, wanted: Sequence[Attributes]) -> None:
        """Count sets, as far as they are not known."""
        for batch in batches([one for one in wanted if one not in self.known], self.at_once):
            groups = [_GROUPS(label=i, coded=self.coded, keys=self._sets.keys(one)) for i, one in enumerate(batch)]
            query = _FIGURES(log2=anonymous("log2", cast(col("n"), "DOUBLE")), groups=union_all(*groups))
            answers = {i: figures for i, *figures in self.steps.ask(query, [])}
            for i, one in enumerate(batch):
                classes, uniques, bits = answers.get(i, (0, 0, 0.0))
                self.known[one] = SetFigures(one, classes, uniques, compute_gain(bits, self._persons))
