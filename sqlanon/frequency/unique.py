"""Which released columns are nearly unique: they re-identify by themselves, whatever is generalized."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import col, is_there, or_zero, select, total, where

NEARLY = 0.9
"""A column with this many distinct values per row is nearly unique."""

KEY = 0.5
"""A column with this many distinct values per row may be a key of many rows, whatever the others share."""


def distinct_counts(source: exp.Table, columns: Sequence[str], counted: str | None = None) -> exp.Select:
    """One row: for each column about how many distinct values it has, and its values; one scan, memory flat."""
    figures: list[exp.Expr] = []
    for name in columns:
        # NULL hashes to something: it is left out of both.
        there = is_there(col(name))
        distinct = exp.ApproxDistinct(this=exp.Anonymous(this="HASH", expressions=[col(name)]))
        values = exp.Count(this=col(name)) if counted is None else or_zero(total(col(counted), there.copy()))
        figures += [where(distinct, there), values]
    return select(figures, source.copy())


def nearly_unique(columns: Sequence[str], figures: Sequence[int], share: float = NEARLY) -> list[str]:
    """The columns whose distinct values are at least a share of their values, by the figures of `distinct_counts`.

    >>> nearly_unique(["cost", "ward"], [98, 100, 5, 100])
    ['cost']
    """
    counts = zip(columns, figures[::2], figures[1::2], strict=True)
    return [name for name, distinct, values in counts if values > 1 and distinct >= share * values]
