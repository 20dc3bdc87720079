"""The prosecutor: an attacker who knows that somebody is in the table, and looks for that person's row.

Source: K. El Emam, "Guide to the De-Identification of Personal Health Information" (2013): the prosecutor's risk of
a row is 1 / the size of its equivalence class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlanon.histogram import ClassSizes


@dataclass(frozen=True)
class ProsecutorRisk:
    """The risk of rows, 0 to 1.

    Attributes
    ----------
    highest, average:
        The greatest, and the mean over rows (= classes / rows). Where persons are counted: of a person, and the mean
        over the persons of each class.
    rows_at_highest, share_at_highest:
        The rows that have the highest risk, and their share.
    rows_above:
        By threshold, as text: the rows with a greater risk.
    share_above:
        Their share of all rows, 0 to 1.
    """

    highest: float
    average: float
    rows_at_highest: int
    share_at_highest: float
    rows_above: Mapping[str, int]
    share_above: Mapping[str, float]


def threshold_text(threshold: float) -> str:
    """A threshold as a policy spells it.

    >>> threshold_text(0.2), threshold_text(0.0)
    ('0.2', '0')
    """
    return str(int(threshold)) if threshold == int(threshold) else repr(threshold)


def shares(rows_above: Mapping[str, int], rows: int) -> dict[str, float]:
    """The shares that numbers of rows are of all rows; 0 of none.

    >>> shares({"0.2": 3}, 12)
    {'0.2': 0.25}
    """
    return {threshold: n / rows if rows else 0.0 for threshold, n in rows_above.items()}


def prosecutor_risk(sizes: ClassSizes, thresholds: Sequence[float]) -> ProsecutorRisk:
    """The prosecutor's risk from the sizes of the classes.

    >>> found = prosecutor_risk(ClassSizes.of({1: 2, 4: 2}), [0.2, 0.25])
    >>> found.highest, found.average, found.rows_at_highest, found.share_at_highest
    (1.0, 0.4, 2, 0.2)
    >>> found.rows_above, found.share_above
    ({'0.2': 10, '0.25': 2}, {'0.2': 1.0, '0.25': 0.2})
    """
    least = sizes.smallest
    at_highest = sizes.rows_where(lambda size: size == least)
    above = {threshold_text(t): sizes.rows_where(lambda size, t=t: 1 / size > t) for t in thresholds}  # type: ignore[misc]  # mypy infers no lambda with a default
    return ProsecutorRisk(
        highest=1 / least if least else 0.0,
        average=sizes.classes / sizes.count if sizes.count else 0.0,
        rows_at_highest=at_highest,
        share_at_highest=at_highest / sizes.rows if sizes.rows else 0.0,
        rows_above=above,
        share_above=shares(above, sizes.rows),
    )
