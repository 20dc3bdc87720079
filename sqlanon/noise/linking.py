"""Linking noisy records to the originals of their class: is a record's own value the nearest, and how many are near.

Over what `noise.statements` makes: ``record``, ``class``, ``x_j`` and ``y_j``, and the classes with their ranges.

Source: (k,ε)-Anonymity (see `sqlanon.policy.noise`): the linking attack, the linking range, β-confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add

from sqlglot import exp

from sqlanon.noise.statements import NoisyColumn
from sqlanon.support.expressions import aliased, all_of, col, fragment, greatest, ident, least, mark_row_level, template

EVERYTHING = 1e300
"""The half-width of a range that holds all values: where there is no noise."""

# One attribute: in the order of originals and noisy values, the nearest original is one of two neighbours. There is one
# at least, and least() passes over NULL.
_LINKS_OF_ONE = template("""
    SELECT
        record,
        abs(place - own) <= least((place - below), (above - place)) AS linked,
        abs(place - own) <= least((place - below), (above - place))
            AND others = 1
            AND NOT coalesce((place - below) = (above - place) AND below <> above, FALSE) AS strictly
    FROM (
        SELECT
            b.*,
            max(original) OVER (
                PARTITION BY class ORDER BY place RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS below,
            min(original) OVER (
                PARTITION BY class ORDER BY place DESC RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS above
        FROM (
            SELECT NULL AS record, class, x_0 AS place, x_0 AS original, NULL AS own, NULL AS others
            FROM :noisy
            UNION ALL
            SELECT
                record, class, y_0 AS place, NULL AS original, x_0 AS own,
                count(*) OVER (PARTITION BY class, x_0) AS others
            FROM :noisy
        ) AS b
    ) AS p
    WHERE record IS NOT NULL
""")
# Several attributes: all pairs of a class count.
_LINKS_OF_SEVERAL = template("""
    SELECT
        record,
        own <= coalesce(nearest, :everything) AS linked,
        own < coalesce(nearest, :everything) AS strictly
    FROM (
        SELECT r.record, :own AS own, min(:other) AS nearest
        FROM :noisy AS r
        JOIN :classes AS c ON r.class = c.class
        LEFT JOIN :noisy AS o ON r.class = o.class AND r.record <> o.record
        WHERE r.record % :every = 0
        GROUP BY r.record, :own
    ) AS p
""")


def linked_records(noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], every: int = 1) -> exp.Select:
    """Which records are linked to their own values: ``record``, ``linked`` and ``strictly``.

    Linked: no original of the class is strictly nearer than its own. Strictly: its own is nearer than all others.
    """
    if len(columns) == 1:
        return _LINKS_OF_ONE(noisy=noisy)
    own, other = _distance(columns, "r"), _distance(columns, "o")
    return mark_row_level(
        _LINKS_OF_SEVERAL(everything=EVERYTHING, own=own, other=other, noisy=noisy, classes=classes, every=every)
    )


_DISTANCE = fragment("CASE WHEN :delta = 0.0 THEN 0.0 ELSE abs(:y - :x) / (:delta / :epsilon) END")


def _distance(columns: Sequence[NoisyColumn], alias: str) -> exp.Expr:
    """How far a noisy record is from an original: the largest of the attributes' distances, each by its scale.

    An attribute without noise is the same in all of the class: it tells nothing.
    """
    parts = [
        _DISTANCE(delta=col(f"delta_{j}", "c"), y=col(f"y_{j}", "r"), x=col(f"x_{j}", alias), epsilon=one.epsilon)
        for j, one in enumerate(columns)
    ]
    return greatest(*parts) if len(parts) > 1 else parts[0]


_HALF_WIDTH = fragment("CASE WHEN :delta = 0.0 THEN :everything ELSE :delta * :factor END")


def _half_widths(columns: Sequence[NoisyColumn], confidence: float) -> list[exp.Expr]:
    """Half of the linking range, by attribute: −b ln(1 − β^(1/m)) for m attributes, b = Δ/ε the scale of the noise."""
    factor = -math.log(-math.expm1(math.log(confidence) / len(columns)))
    return [
        _HALF_WIDTH(delta=col(f"delta_{j}", "c"), everything=EVERYTHING, factor=factor / one.epsilon)
        for j, one in enumerate(columns)
    ]


# In the order of places: originals up to the upper end of a range, less those before its lower end.
_NEAR = template("""
    SELECT record, sum(CASE WHEN turn = 2 THEN so_far ELSE -so_far END)::BIGINT AS near
    FROM (
        SELECT
            record,
            turn,
            sum(original) OVER (
                PARTITION BY class ORDER BY place, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS so_far
        FROM (
            SELECT NULL AS record, class, :original AS place, 1 AS turn, 1 AS original
            FROM :noisy
            UNION ALL
            SELECT r.record, r.class, :value - :width AS place, 0 AS turn, 0 AS original
            FROM :noisy AS r
            JOIN :classes AS c ON r.class = c.class
            UNION ALL
            SELECT r.record, r.class, :value + :width AS place, 2 AS turn, 0 AS original
            FROM :noisy AS r
            JOIN :classes AS c ON r.class = c.class
        ) AS e
    ) AS c
    WHERE record IS NOT NULL
    GROUP BY record
""")


def nearby_originals(
    noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], confidence: float, j: int
) -> exp.Select:
    """How many originals of its class are in the linking range of each record, in attribute ``j``: as ``near``.

    The range is around the value with noise, before it is rounded and cut off at bounds: so it holds the original with
    the policy's confidence. (What is released tells less.)
    """
    width, value = _half_widths(columns, confidence)[j], col(f"v_{j}", "r")
    return mark_row_level(_NEAR(original=col(f"x_{j}"), value=value, width=width, noisy=noisy, classes=classes))


_BOUNDS = template("""
    SELECT r.record, :all_counts - :others * c.size AS at_least, :least AS at_most
    FROM :noisy AS r
    JOIN :classes AS c ON r.class = c.class
""")
_NEAR_IN_ALL = template("""
    SELECT b.record, coalesce(n.near, CASE WHEN b.at_most = 0 THEN 0 ELSE b.at_least END) AS near
    FROM bounds AS b
    LEFT JOIN (
        SELECT r.record, count(*) FILTER (WHERE :inside) AS near
        FROM bounds AS b
        JOIN :noisy AS r ON b.record = r.record
        JOIN :classes AS c ON r.class = c.class
        JOIN :noisy AS o ON r.class = o.class
        WHERE b.at_least < :k AND b.at_most > 0
        GROUP BY r.record
    ) AS n ON b.record = n.record
""")
_IS_INSIDE = fragment("abs(:value - :original) <= :width")


def nearby_originals_in_all(
    noisy: exp.Table,
    classes: exp.Table,
    columns: Sequence[NoisyColumn],
    confidence: float,
    each: Sequence[exp.Table],
    k: int,
) -> exp.Select:
    """How many originals are in the linking range in all attributes: ``record`` and ``near``; k or more may be told as
    less than it is, but not as less than k.

    Of n originals, n_j in the range of attribute j, at least Σ n_j − (m − 1) n are in all, and at most the least n_j:
    that decides of most records. Of the others, all pairs of the class are looked at.
    """
    counts: list[exp.Expr] = [col("near", f"m{j}") for j in range(len(each))]
    bounds = _BOUNDS(
        all_counts=reduce(add, counts), others=len(each) - 1, least=least(*counts), noisy=noisy, classes=classes
    )
    for j, table in enumerate(each):
        on = col("record", "r").eq(col("record", f"m{j}"))
        bounds = bounds.join(aliased(table, f"m{j}"), on=on, copy=False)
    inside = all_of(
        _IS_INSIDE(value=col(f"v_{j}", "r"), original=col(f"x_{j}", "o"), width=width)
        for j, width in enumerate(_half_widths(columns, confidence))
    )
    query = _NEAR_IN_ALL(inside=inside, noisy=noisy, classes=classes, k=k)
    return query.with_(ident("bounds"), as_=bounds, materialized=True, copy=False)


_PAIRS = template("SELECT coalesce(sum(pow(size::DOUBLE, 2)), 0) FROM :classes")
_RISK = template(
    "SELECT count(*), count(*) FILTER (WHERE l.linked), count(*) FILTER (WHERE l.strictly) FROM :links AS l"
)


def record_pairs(classes: exp.Table) -> exp.Select:
    """One row: how many pairs of records there are within classes."""
    return _PAIRS(classes=classes)


def linking_counts(links: exp.Table, kept: exp.Table | None) -> exp.Select:
    """One row, of the records that are released: how many were looked at, are linked, and are strictly."""
    query = _RISK(links=links)
    if kept is None:
        return query
    on = col("record", "l").eq(col("record", "k"))
    return query.join(aliased(kept, "k"), on=on, join_type="semi", copy=False)
