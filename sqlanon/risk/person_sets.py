"""Leakage if the policy counts persons: the uncertainty is that among persons, not among rows.

Finding one of n persons takes log2 n bits; once the class of one of the person's rows is known, log2 of the persons in
that class. The gain is the mean over persons, and for a person the mean over the person's rows. If each person has one
row, it is that of `leakage`. All rows without an id belong to one person.

Attributes that leak nothing alone can leak everything together if persons have rows with several values: the sum of the
gains of attributes is not a bound here.

Coded rows have the codes, ``who`` (the number of the person) and ``weight`` (the row's share of the rows of its
person).
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
from sqlanon.support.expressions import (
    Namer,
    aliased,
    anonymous,
    as_column,
    cast,
    col,
    null_safe_equal,
    template,
    union_all,
)

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
    """Counts sets of a source's quasi-identifiers, in persons.

    ``raw`` has the combinations of each person, as `frequency.statements.raw_frequency` creates them.
    """

    gains_add_up = False

    def __init__(
        self, runner: StatementRunner, work: Namer, sets: AttributeSets, attributes: int, raw: exp.Table
    ) -> None:
        self.runner, self.known = runner, dict[Attributes, SetFigures]()
        self._sets, self._attributes = sets, attributes
        persons = runner.create_table(work("persons_with_rows"), _PERSONS(raw=raw))
        self._persons = runner.count(persons)
        weight = cast(cast(col("n", "r"), "DOUBLE") / col("n", "p"), "DECIMAL(38, 30)")
        query = sets.coded(raw).select(col("who", "p"), as_column(weight, "weight"), copy=False)
        query = query.join(aliased(persons, "p"), on=null_safe_equal(col(PERSON, "r"), col(PERSON, "p")), copy=False)
        self.coded = runner.create_table(work("coded_persons"), query)

    @property
    def whole(self) -> float:
        """The bits that it takes to find a person."""
        return math.log2(self._persons) if self._persons > 1 else 0.0

    @cached_property
    def at_once(self) -> int:
        """The number of sets that are counted in one statement."""
        return SETS_AT_ONCE if self.runner.count(self.coded) <= SMALL else 1

    def count_up_to(self, size: int) -> None:
        """Count all sets of up to ``size`` attributes."""
        self.count(attribute_sets(self._attributes, size))

    def count(self, sets: Sequence[Attributes]) -> None:
        """Count the sets that are not known yet."""
        for batch in batches([attributes for attributes in sets if attributes not in self.known], self.at_once):
            groups = [
                _GROUPS(label=i, coded=self.coded, keys=self._sets.keys(attributes))
                for i, attributes in enumerate(batch)
            ]
            query = _FIGURES(log2=anonymous("log2", cast(col("n"), "DOUBLE")), groups=union_all(*groups))
            figures_by_label = {label: figures for label, *figures in self.runner.fetch_rows(query, [])}
            for i, attributes in enumerate(batch):
                classes, uniques, bits = figures_by_label.get(i, (0, 0, 0.0))
                gain = compute_gain(bits, self._persons)
                self.known[attributes] = SetFigures(attributes, classes, uniques, gain)
