"""Rows as the classes of one generalization, without hierarchies: values stand for codes.

No person is in two rows of such a frequency set that end in one class: persons add up.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.frequency.statements import PERSONS, POPULATION
from sqlanon.support.coding import ROWS, code_name
from sqlanon.support.expressions import col, named, number, subquery, template, union_all

_ROWS = template("SELECT :codes, n, :more FROM :rows")
_MEMBERS = template("SELECT :keys, person, sum(n)::BIGINT AS n FROM :rows GROUP BY :keys, person")
_VALUES = template("""
    SELECT :codes, :others, s.v, s.share, r.n
    FROM :pairs AS r
    JOIN :values AS s ON r.value IS NOT DISTINCT FROM s.value
""")
_POPULATION = template("SELECT :codes, :none, population FROM :rows")


def uncoded_frequency_set(
    rows: exp.Expr, attributes: Sequence[int], persons: bool, population: exp.Expr | None = None
) -> exp.Subquery:
    """The frequency set of the level 0, over some of the quasi-identifiers."""
    keys = [col(f"q{i}") for i in attributes]
    source = subquery(_MEMBERS(keys=keys, rows=rows), "members") if persons else rows
    codes = [named(key, code_name(i, 0)) for i, key in enumerate(keys)]
    more = [named(number(1), PERSONS)] if persons else []
    more += [named(number(0), POPULATION)] if population is not None else []
    own = _ROWS(codes=codes, more=more, rows=source)
    if population is None:
        return subquery(own, "frequency")
    none = [named(number(0), name) for name in (ROWS, *([PERSONS] if persons else []))]
    return subquery(union_all(own, _POPULATION(codes=codes, none=none, rows=population)), "frequency")


def uncoded_distribution(pairs: exp.Query, values: exp.Table, quasi: int, inner: int) -> exp.Subquery:
    """The counts of a sensitive attribute's values by combination."""
    codes = [named(col(f"q{i}", "r"), code_name(i, 0)) for i in range(quasi)]
    others = [col(f"o{i}", "r") for i in range(inner)]
    return subquery(_VALUES(codes=codes, others=others, pairs=pairs, values=values), "values")
