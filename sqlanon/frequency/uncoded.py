"""Frequency sets of rows without hierarchies, in which values take the place of codes, for one generalization.

A person has no two rows in a class of such a set, so counts of persons add up.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.frequency.statements import PERSONS, POPULATION
from sqlanon.support.coding import ROW_COUNT, code_column, inner_column, quasi_column
from sqlanon.support.expressions import as_column, col, number, subquery, template, union_all

_MEMBERS = template("SELECT :keys, person, sum(row_count)::BIGINT AS row_count FROM :rows GROUP BY :keys, person")
_VALUES = template("""
    SELECT :codes, :inner, s.value_code, s.share, r.row_count
    FROM :pairs AS r
    JOIN :values AS s ON r.value IS NOT DISTINCT FROM s.value
""")
_POPULATION = template("SELECT :codes, :zero_counts, population FROM :rows")


def uncoded_frequency_set(
    rows: exp.Expr, attributes: Sequence[int], persons: bool, population: exp.Expr | None = None
) -> exp.Subquery:
    """The frequency set at level 0, over some of the quasi-identifiers."""
    keys = [col(quasi_column(i)) for i in attributes]
    source = subquery(_MEMBERS(keys=keys, rows=rows), "members") if persons else rows
    codes = [as_column(key, code_column(i, 0)) for i, key in enumerate(keys)]
    more = [as_column(number(1), PERSONS)] if persons else []
    more += [as_column(number(0), POPULATION)] if population is not None else []
    source_rows = template("SELECT :codes, row_count, :more FROM :rows")(codes=codes, more=more, rows=source)
    if population is None:
        return subquery(source_rows, "frequency")
    zero_counts = [as_column(number(0), name) for name in (ROW_COUNT, *([PERSONS] if persons else []))]
    return subquery(
        union_all(source_rows, _POPULATION(codes=codes, zero_counts=zero_counts, rows=population)), "frequency"
    )


def uncoded_distribution(pairs: exp.Query, values: exp.Table, quasi: int, inner: int) -> exp.Subquery:
    """The counts of a sensitive attribute's values by combination."""
    codes = [as_column(col(quasi_column(i), "r"), code_column(i, 0)) for i in range(quasi)]
    inner_columns = [col(inner_column(i), "r") for i in range(inner)]
    return subquery(_VALUES(codes=codes, inner=inner_columns, pairs=pairs, values=values), "values")
