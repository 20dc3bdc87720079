"""The labels of source rows at the levels of a release."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from sqlanon.linked.tables import LinkedTable
from sqlanon.support.expressions import col, null_safe_equal, text


def join_labels(query: exp.Select, table: LinkedTable, levels_of: Callable[[int], Iterable[int]]) -> exp.Select:
    """Join the coded values of a table's quasi-identifiers that have labels below the top.

    ``query`` selects from the rows of the table as ``child``; ``levels_of`` gives the levels by attribute number.
    """
    for i, (attribute, attribute_number) in enumerate(zip(table.attributes, table.attribute_numbers, strict=True)):
        if any(map(attribute.has_inner_labels, levels_of(attribute_number))):
            on = null_safe_equal(col(attribute.column, "child"), col("value", f"coded_{i}"), attribute.nullable)
            query = query.join(attribute.table.as_(f"coded_{i}"), on=on, copy=False)
    return query


def label_at_level(table: LinkedTable, i: int, level: int) -> exp.Expr:
    """The label of a table's quasi-identifier in a query with `join_labels`; below the lowest labels, its value."""
    attribute = table.attributes[i]
    if level < attribute.lowest_labelled:
        return col(attribute.column, "child")
    if level == attribute.height:
        return text(table.hierarchies[i].top or "")
    return col(f"label_{level}", f"coded_{i}")
