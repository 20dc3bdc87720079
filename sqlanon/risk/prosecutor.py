"""How risky a table is as it stands, to an attacker who knows that somebody is in it.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013): the prosecutor's risk of
a row is 1 / the size of its equivalence class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlglot import exp

from sqlanon.privacy.base import CLASS_SIZE
from sqlanon.queries.names import col, named, number, select, subquery, total, where


@dataclass(frozen=True)
class Risk:
    """The prosecutor's risk of a table.

    Attributes
    ----------
    rows, classes, smallest_class:
        Rows, equivalence classes, and the rows of the smallest class (0 in an empty table).
    uniques:
        Rows that are alone in their class.
    k, rows_below_k:
        The policy's k (None without one), and the rows in classes of fewer.
    highest_risk, average_risk:
        The greatest risk of a row, and the mean over rows (= classes / rows), 0 to 1.
    """

    rows: int
    classes: int
    smallest_class: int
    uniques: int
    k: int | None
    rows_below_k: int
    highest_risk: float
    average_risk: float

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def risk_query(source: exp.Table, columns: Sequence[str], k: int | None) -> exp.Select:
    """One row: rows, classes, smallest class, uniques, rows in classes of fewer than k."""
    keys: list[exp.Expr] = [col(name) for name in columns]
    sizes = select([named(exp.Count(this=exp.Star()), CLASS_SIZE)], source.copy(), keys)
    size = col(CLASS_SIZE)
    small = exp.LT(this=size, expression=number(k or 0))
    one = exp.EQ(this=size.copy(), expression=number(1))
    figures: list[exp.Expr] = [
        named(exp.Coalesce(this=total(size.copy()), expressions=[number(0)]), "rows"),
        named(exp.Count(this=exp.Star()), "classes"),
        named(exp.Coalesce(this=exp.Min(this=size.copy()), expressions=[number(0)]), "smallest_class"),
        named(where(exp.Count(this=exp.Star()), one), "uniques"),
        named(exp.Coalesce(this=total(size.copy(), small), expressions=[number(0)]), "rows_below_k"),
    ]
    return select(figures, subquery(sizes, "classes"))


def risk_of(figures: Sequence[int], k: int | None) -> Risk:
    """The risk from the figures of `risk_query`.

    >>> risk_of((10, 4, 1, 2, 5), 3).average_risk
    0.4
    """
    rows, classes, smallest, uniques, below = figures
    return Risk(
        rows, classes, smallest, uniques, k, below,
        highest_risk=1 / smallest if smallest else 0.0,
        average_risk=classes / rows if rows else 0.0,
    )  # fmt: skip
