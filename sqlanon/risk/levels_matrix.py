"""Unique rows at each level of two hierarchies. Names of columns: `frequency.statements` and `coding`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, Coded, code_name
from sqlanon.expressions import aliased, all_of, col, named, number, same, select, subquery, total, union_all
from sqlanon.frequency.statements import quasi_columns

OTHERS = "others"


def numbered_others(raw: exp.Table, others: int) -> exp.Select:
    """The distinct combinations of the first quasi-identifiers, ``q0, q1, ...``, with the number ``others``."""
    distinct = select(quasi_columns(others), raw.copy(), quasi_columns(others))
    return select([*quasi_columns(others), named(exp.Window(this=exp.RowNumber()), OTHERS)], subquery(distinct, "d"))


def with_levels(raw: exp.Table, numbers: exp.Table | None, others: int, attributes: Sequence[Coded]) -> exp.Select:
    """The combinations with the codes of two attributes at all levels, and the number of the others'."""
    query = exp.Select().from_(aliased(raw, "r"), copy=False)
    output: list[exp.Expr] = [named(number(0), OTHERS)]
    if numbers is not None:
        on = all_of(same(col(f"q{i}", "r"), col(f"q{i}", "o")) for i in range(others))
        query = query.join(aliased(numbers, "o"), on=on, copy=False)
        output = [col(OTHERS, "o")]
    for i, attribute in enumerate(attributes):
        on = same(col(f"q{others + i}", "r"), col("value", f"v{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"v{i}"), on=on, copy=False)
        output += [named(col(f"code_{level}", f"v{i}"), code_name(i, level)) for level in range(attribute.height)]
    return query.select(*output, col(ROWS, "r"), copy=False)


def uniques(rows: exp.Table, heights: Sequence[int], cells: Sequence[tuple[int, int]]) -> exp.Select:
    """For each cell ``i``, ``j``, the rows that are ``uniques`` at these levels."""
    each = []
    for cell in cells:
        below = [(i, level) for i, level in enumerate(cell) if level < heights[i]]
        keys: list[exp.Expr] = [col(OTHERS), *(col(code_name(i, level)) for i, level in below)]
        alone = total(col(ROWS)).eq(1)
        groups = select([named(number(1), "one")], rows.copy(), keys).having(alone, copy=False)
        place: list[exp.Expr] = [named(number(cell[0]), "i"), named(number(cell[1]), "j")]
        each.append(select([*place, named(exp.Count(this=exp.Star()), "uniques")], subquery(groups, "g")))
    return select([exp.Star()], subquery(union_all(*each), "cells"))


def row_count(raw: exp.Table) -> exp.Select:
    """One number: the rows of the source."""
    return select([exp.Coalesce(this=total(col(ROWS)), expressions=[number(0)])], raw.copy())
