"""Link noisy records to the originals of their class: is a record's own original the nearest, and how many are near?

The queries read `noise_rows` (``record``, ``class``, ``x_j``, ``v_j``, ``y_j``) and `noise_classes`; the columns are
documented in `noise.statements`.

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
"""Half of the width of a range that holds all values, for classes without noise."""


# Ordered with the noisy values, the nearest original is one of two neighbours. One of them exists, and least() ignores
# NULL.
_LINKED_IN_ONE_ATTRIBUTE = template("""
    WITH positions AS (
        SELECT
            NULL AS record, class, x_0 AS position, x_0 AS original,
            NULL AS original_value, NULL AS equal_originals
        FROM :noisy
        UNION ALL
        SELECT
            record, class, y_0 AS position, NULL AS original,
            x_0 AS original_value, count(*) OVER (PARTITION BY class, x_0) AS equal_originals
        FROM :noisy
    ), neighbours AS (
        SELECT
            positions.*,
            max(original) OVER (
                PARTITION BY class ORDER BY position RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS next_lower,
            min(original) OVER (
                PARTITION BY class ORDER BY position DESC RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS next_higher
        FROM positions
    )
    SELECT
        record,
        abs(position - original_value) <= least(position - next_lower, next_higher - position) AS is_linked,
        abs(position - original_value) <= least(position - next_lower, next_higher - position)
            AND equal_originals = 1
            AND NOT coalesce(
                (position - next_lower) = (next_higher - position) AND next_lower <> next_higher, FALSE
            ) AS is_strictly_linked
    FROM neighbours
    WHERE record IS NOT NULL
""")
# All pairs of records of a class are compared.
_LINKED_IN_SEVERAL_ATTRIBUTES = template("""
    WITH distances AS (
        SELECT r.record, :own_distance AS own_distance, min(:other_distance) AS nearest_other
        FROM :noisy AS r
        JOIN :classes AS c ON r.class = c.class
        LEFT JOIN :noisy AS o ON r.class = o.class AND r.record <> o.record
        WHERE r.record % :every = 0
        GROUP BY r.record, :own_distance
    )
    SELECT
        record,
        own_distance <= coalesce(nearest_other, :everything) AS is_linked,
        own_distance < coalesce(nearest_other, :everything) AS is_strictly_linked
    FROM distances
""")


def linked_records(noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], every: int = 1) -> exp.Select:
    """The records with ``is_linked`` and ``is_strictly_linked``. With several attributes, only one record of ``every``.

    A record is linked if no original of its class is nearer than its own, and strictly if all others are farther.
    """
    if len(columns) == 1:
        return _LINKED_IN_ONE_ATTRIBUTE(noisy=noisy)
    query = _LINKED_IN_SEVERAL_ATTRIBUTES(
        everything=EVERYTHING,
        own_distance=_distance(columns, "r"),
        other_distance=_distance(columns, "o"),
        noisy=noisy,
        classes=classes,
        every=every,
    )
    return mark_row_level(query)


def _distance(columns: Sequence[NoisyColumn], original: str) -> exp.Expr:
    """The distance of a noisy record from an original: the largest of the attributes, in units of their noise scales.

    An attribute without noise is the same in the whole class, and contributes nothing.
    """
    distance = fragment("CASE WHEN :delta = 0.0 THEN 0.0 ELSE abs(:y - :x) / (:delta / :epsilon) END")
    distances = [
        distance(delta=col(f"delta_{j}", "c"), y=col(f"y_{j}", "r"), x=col(f"x_{j}", original), epsilon=column.epsilon)
        for j, column in enumerate(columns)
    ]
    return greatest(*distances) if len(distances) > 1 else distances[0]


def _half_widths(columns: Sequence[NoisyColumn], confidence: float) -> list[exp.Expr]:
    """Half of the linking range, by attribute: −b ln(1 − β^(1/m)) for m attributes, b = Δ/ε the scale of the noise."""
    factor = -math.log(-math.expm1(math.log(confidence) / len(columns)))
    half_width = fragment("CASE WHEN :delta = 0.0 THEN :everything ELSE :delta * :factor END")
    return [
        half_width(delta=col(f"delta_{j}", "c"), everything=EVERYTHING, factor=factor / column.epsilon)
        for j, column in enumerate(columns)
    ]


def nearby_originals(
    noisy: exp.Table, classes: exp.Table, columns: Sequence[NoisyColumn], confidence: float, j: int
) -> exp.Select:
    """For each record, ``nearby_count``: the originals of its class in its linking range, in attribute ``j``.

    The range is centred on the noisy value before rounding and clamping, so that it holds the original with the
    policy's confidence. The released value reveals less.
    """
    # At equal positions, the lower ends of ranges sort before originals, and upper ends after them. The count is the
    # originals up to the upper end less those before the lower end.
    query = template("""
        WITH positions AS (
            SELECT NULL AS record, class, :original AS position, 1 AS tie_order, 1 AS original_count
            FROM :noisy
            UNION ALL
            SELECT r.record, r.class, :value - :half_width AS position, 0 AS tie_order, 0 AS original_count
            FROM :noisy AS r
            JOIN :classes AS c ON r.class = c.class
            UNION ALL
            SELECT r.record, r.class, :value + :half_width AS position, 2 AS tie_order, 0 AS original_count
            FROM :noisy AS r
            JOIN :classes AS c ON r.class = c.class
        ), running_counts AS (
            SELECT
                record,
                tie_order,
                sum(original_count) OVER (
                    PARTITION BY class ORDER BY position, tie_order ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS originals_so_far
            FROM positions
        )
        SELECT
            record,
            sum(CASE WHEN tie_order = 2 THEN originals_so_far ELSE -originals_so_far END)::BIGINT AS nearby_count
        FROM running_counts
        WHERE record IS NOT NULL
        GROUP BY record
    """)
    half_width = _half_widths(columns, confidence)[j]
    return mark_row_level(
        query(original=col(f"x_{j}"), value=col(f"v_{j}", "r"), half_width=half_width, noisy=noisy, classes=classes)
    )


def nearby_originals_in_all(
    noisy: exp.Table,
    classes: exp.Table,
    columns: Sequence[NoisyColumn],
    confidence: float,
    nearby_tables: Sequence[exp.Table],
    k: int,
) -> exp.Select:
    """For each record, ``nearby_count``: the originals of its class in its linking range, in all attributes.

    Counts of k or more may be underestimated, but never to below k.

    Of n originals, n_j in the range of attribute j, at least Σ n_j − (m − 1) n and at most the least n_j are in all
    ranges. These bounds decide most records; the others are compared with all records of their class.
    """
    counts: list[exp.Expr] = [col("nearby_count", f"m{j}") for j in range(len(nearby_tables))]
    bounds = template("""
        SELECT r.record, :count_sum - :other_attributes * c.size AS lower_bound, :least_count AS upper_bound
        FROM :noisy AS r
        JOIN :classes AS c ON r.class = c.class
    """)(
        count_sum=reduce(add, counts),
        other_attributes=len(nearby_tables) - 1,
        least_count=least(*counts),
        noisy=noisy,
        classes=classes,
    )
    for j, nearby_table in enumerate(nearby_tables):
        on = col("record", "r").eq(col("record", f"m{j}"))
        bounds = bounds.join(aliased(nearby_table, f"m{j}"), on=on, copy=False)
    is_inside = fragment("abs(:value - :original) <= :half_width")
    is_nearby = all_of(
        is_inside(value=col(f"v_{j}", "r"), original=col(f"x_{j}", "o"), half_width=half_width)
        for j, half_width in enumerate(_half_widths(columns, confidence))
    )
    query = template("""
        SELECT
            b.record,
            coalesce(n.nearby_count, CASE WHEN b.upper_bound = 0 THEN 0 ELSE b.lower_bound END) AS nearby_count
        FROM bounds AS b
        LEFT JOIN (
            SELECT r.record, count(*) FILTER (WHERE :is_nearby) AS nearby_count
            FROM bounds AS b
            JOIN :noisy AS r ON b.record = r.record
            JOIN :classes AS c ON r.class = c.class
            JOIN :noisy AS o ON r.class = o.class
            WHERE b.lower_bound < :k AND b.upper_bound > 0
            GROUP BY r.record
        ) AS n ON b.record = n.record
    """)(is_nearby=is_nearby, noisy=noisy, classes=classes, k=k)
    return query.with_(ident("bounds"), as_=bounds, materialized=True, copy=False)


def record_pairs(classes: exp.Table) -> exp.Select:
    """One row: the number of pairs of records within classes."""
    return template("SELECT coalesce(sum(pow(size::DOUBLE, 2)), 0) FROM :classes")(classes=classes)


def linking_counts(links: exp.Table, released_records: exp.Table | None) -> exp.Select:
    """One row, over the released records: all that were compared, the linked ones, and the strictly linked ones."""
    query = template("""
        SELECT count(*), count(*) FILTER (WHERE l.is_linked), count(*) FILTER (WHERE l.is_strictly_linked)
        FROM :links AS l
    """)(links=links)
    if released_records is None:
        return query
    on = col("record", "l").eq(col("record", "k"))
    return query.join(aliased(released_records, "k"), on=on, join_type="semi", copy=False)
