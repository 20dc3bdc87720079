"""Rows as the classes of one generalization, without hierarchies: values stand for codes.

No person is in two rows of such a frequency set that end in one class: persons add up.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, code_name
from sqlanon.expressions import aliased, col, named, number, same, select, subquery, total, union_all
from sqlanon.frequency.statements import PERSON, PERSONS, POPULATION
from sqlanon.requirements.base import SHARE, VALUE


def frequency(
    rows: exp.Expr, attributes: Sequence[int], persons: bool, population: exp.Expr | None = None
) -> exp.Subquery:
    """The frequency set of the level 0, over some of the quasi-identifiers."""
    keys: list[exp.Expr] = [col(f"q{i}") for i in attributes]
    source = rows.copy()
    if persons:
        members = [*keys, col(PERSON)]
        each = [*(key.copy() for key in members), named(total(col(ROWS)), ROWS)]
        source = subquery(select(each, source, members), "members")
    coded: list[exp.Expr] = [named(key.copy(), code_name(i, 0)) for i, key in enumerate(keys)]
    own = select([*coded, col(ROWS), *([named(number(1), PERSONS)] if persons else [])], source)
    if population is None:
        return subquery(own, "frequency")
    own.select(named(number(0), POPULATION), copy=False)
    none = [named(number(0), name) for name in (ROWS, *([PERSONS] if persons else []))]
    theirs = select([*(part.copy() for part in coded), *none, col(POPULATION)], population.copy())
    return subquery(union_all(own, theirs), "frequency")


def distribution(pairs: exp.Query, values: exp.Table, quasi: int, inner: int) -> exp.Subquery:
    """The counts of a sensitive attribute's values by combination."""
    output: list[exp.Expr] = [named(col(f"q{i}", "r"), code_name(i, 0)) for i in range(quasi)]
    output += [col(f"o{i}", "r") for i in range(inner)]
    output += [col(VALUE, "s"), col(SHARE, "s"), col(ROWS, "r")]
    on = same(col("value", "r"), col("value", "s"))
    return subquery(select(output, subquery(pairs, "r")).join(aliased(values, "s"), on=on, copy=False), "values")
