"""Which released columns are nearly unique: they re-identify by themselves, whatever is generalized."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.names import col, select

NEARLY = 0.9
"""A column with this many distinct values per row is nearly unique."""


def distinct_counts(source: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: about how many distinct values each column has; one scan, memory flat."""
    counts = [exp.ApproxDistinct(this=exp.Anonymous(this="HASH", expressions=[col(name)])) for name in columns]
    return select(list(counts), source.copy())


def nearly_unique(columns: Sequence[str], counts: Sequence[int], rows: int) -> list[str]:
    """The columns whose distinct values are at least `NEARLY` of the rows.

    >>> nearly_unique(["cost", "ward"], [98, 5], 100)
    ['cost']
    """
    return [name for name, count in zip(columns, counts, strict=True) if rows > 1 and count >= NEARLY * rows]
