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
from functools import partial

from sqlglot import exp

from sqlanon.frequency.statements import PERSON
from sqlanon.risk.leakage import AttributeSets, TableSets, compute_gain, log2
from sqlanon.support.expressions import Namer, aliased, as_column, cast, col, null_safe_equal, template

_GROUPS = template("""
    SELECT :label AS label, count(DISTINCT who) AS row_count, sum(weight) AS weight
    FROM :rows
    GROUP BY :keys
""")
# Bits are added up as decimals, as in `leakage`.
_FIGURES = template("""
    SELECT
        label,
        count(*) AS classes,
        count(*) FILTER (WHERE row_count = 1) AS uniques,
        sum((weight::DOUBLE * :log2)::DECIMAL(38, 18))::DOUBLE AS bits
    FROM :groups AS g
    GROUP BY label
""")


def person_sets(work: Namer, sets: AttributeSets, raw: exp.Table) -> TableSets:
    """Sets of quasi-identifiers counted in persons.

    ``raw`` has the combinations of each person, as `frequency.statements.raw_frequency` creates them.
    """
    query = template("""
        SELECT person, row_number() OVER () AS who, sum(row_count)::BIGINT AS row_count
        FROM :raw
        GROUP BY person
    """)(raw=raw)
    persons = sets.runner.create_table(work("persons_with_rows"), query)
    person_count = sets.runner.count(persons)
    weight = cast(cast(col("row_count", "r"), "DOUBLE") / col("row_count", "p"), "DECIMAL(38, 30)")
    coded = sets.coded_rows(raw).select(col("who", "p"), as_column(weight, "weight"), copy=False)
    coded.join(aliased(persons, "p"), on=null_safe_equal(col(PERSON, "r"), col(PERSON, "p")), copy=False)
    table = sets.runner.create_table(work("coded_persons"), coded)
    whole = math.log2(person_count) if person_count > 1 else 0.0
    figures, gain = partial(_FIGURES, log2=log2("row_count")), partial(compute_gain, rows=person_count)
    counted_sets = TableSets(sets, table, whole, _GROUPS, figures, gain)
    counted_sets.gains_add_up = False
    return counted_sets
