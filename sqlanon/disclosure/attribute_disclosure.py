"""Attribute disclosure: what a class reveals of a sensitive attribute to somebody who finds a person's class.

Sources: A. Machanavajjhala, D. Kifer, J. Gehrke, M. Venkitasubramaniam, l-Diversity: Privacy beyond k-anonymity, ACM
TKDD 1(1), 2007, section 2 (homogeneity, background knowledge); N. Li, T. Li, S. Venkatasubramanian, t-Closeness:
Privacy beyond k-anonymity and l-diversity, ICDE 2007, section 3 (skewness, similarity).

Each query returns the affected classes by their labels, ``label_0`` .., with figures and ``row_count``, the number of
affected rows.
NULL counts as a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.frequency.class_sizes import class_labels, value_counts
from sqlanon.requirements.base import TOLERANCE
from sqlanon.support.expressions import all_columns, as_column, col, fragment, subquery, template

RATIO, LIKELY = 2.0, 0.5
"""A class is skewed if a value is RATIO times as frequent in it as in the whole table, and has the share LIKELY."""

COMMON = 0.9
"""Share of rows from which a value is common: it is expected of everybody, so a homogeneous class reveals nothing."""


_SHARES = template("""
    SELECT
        :labels,
        value,
        row_count,
        row_count::DOUBLE / sum(row_count::DOUBLE) OVER (PARTITION BY :labels) AS share,
        row_count::DOUBLE / sum(row_count::DOUBLE) OVER (PARTITION BY :labels)
            / (sum(row_count::DOUBLE) OVER (PARTITION BY value) / sum(row_count::DOUBLE) OVER ()) AS ratio
    FROM :counts AS c
""")


def homogeneity(release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str) -> exp.Select:
    """Classes whose rows all have one sensitive value: ``label_0`` .., ``value``, ``row_count``."""
    counts = subquery(value_counts(release, quasi_identifiers, sensitive))
    return template("""
        SELECT :labels, any_value(value) AS value, sum(row_count)::BIGINT AS row_count
        FROM :counts AS c
        GROUP BY :labels
        HAVING count(*) = 1
    """)(labels=class_labels(quasi_identifiers), counts=counts)


def homogeneous_rows(release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str) -> exp.Select:
    """One number: the rows in classes with one sensitive value that is not `COMMON`."""
    classes = subquery(homogeneity(release, quasi_identifiers, sensitive))
    return template("""
        SELECT coalesce(sum(c.row_count), 0)::BIGINT
        FROM :classes AS c
        JOIN (SELECT :sensitive AS value, count(*) AS row_count FROM :release GROUP BY :sensitive) AS v
            ON c.value IS NOT DISTINCT FROM v.value
        WHERE v.row_count < :common * (SELECT count(*) FROM :release)
    """)(classes=classes, release=release.copy(), sensitive=col(sensitive), common=COMMON - TOLERANCE)


def background_knowledge(
    release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str, ruled_out: int = 1
) -> exp.Select:
    """Classes with at most one value left for an attacker who can rule out some: ``label_0`` .., ``values``,
    ``row_count``."""
    counts = subquery(value_counts(release, quasi_identifiers, sensitive))
    # Without quasi-identifiers, an empty release still forms one group, which is not a class.
    return template("""
        SELECT :labels, count(*) AS values, sum(row_count)::BIGINT AS row_count
        FROM :counts AS c
        GROUP BY :labels
        HAVING count(*) <= :max_values AND count(*) > 0
    """)(labels=class_labels(quasi_identifiers), counts=counts, max_values=ruled_out + 1)


def skewness(
    release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str, ratio: float = RATIO, likely: float = LIKELY
) -> exp.Select:
    """Values that are much more likely in a class than in the whole release: ``label_0`` .., ``value``, its ``share``
    of the class, the ``ratio`` of that to its share of the release, and ``row_count``, the rows of the class with it.
    """
    shares = _value_shares(release, quasi_identifiers, sensitive)
    labels = class_labels(quasi_identifiers)
    return template("""
        SELECT :labels, value, share, ratio, row_count
        FROM :shares AS s
        WHERE ratio >= :ratio AND share >= :likely
    """)(labels=labels, shares=shares, ratio=ratio - TOLERANCE, likely=likely - TOLERANCE)


def greatest_skew(release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str) -> exp.Select:
    """One number: the greatest ratio of any value in any class; NULL for a release without rows."""
    return template("SELECT max(ratio) AS greatest_ratio FROM :shares AS s")(
        shares=_value_shares(release, quasi_identifiers, sensitive)
    )


def similarity(
    release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str, hierarchy: exp.Expr, height: int
) -> exp.Select:
    """Classes whose sensitive values share a label below the top of their hierarchy: ``label_0`` .., ``level``,
    ``label``, ``row_count``.

    ``level`` is the lowest level at which they agree (0: they are one value, see `homogeneity`), and ``label`` their
    label at that level. A value that is not in the hierarchy is its own label at every level.
    """
    labels_by_level = {col(f"generalized_{level}"): col(f"level_{level}", "h") for level in range(max(height, 1))}
    agreements = [
        (fragment("count(DISTINCT :label) + (count(:label) <> count(*))::INT = 1")(label=label), label)
        for label in labels_by_level
    ]
    level_case, label_case = exp.case(), exp.case()
    for level, (has_one_label, label) in enumerate(agreements):
        level_case = level_case.when(has_one_label, exp.convert(level))
        label_case = label_case.when(has_one_label, exp.func("min", label))
    return template("""
        SELECT :labels, :level AS level, :label AS label, sum(row_count)::BIGINT AS row_count
        FROM (
            SELECT :generalized_values
            FROM :counts AS c
            LEFT JOIN :hierarchy AS h ON c.value::VARCHAR = h.level_0::VARCHAR
        ) AS p
        GROUP BY :labels
        HAVING :is_similar
    """)(
        labels=class_labels(quasi_identifiers),
        level=level_case,
        label=label_case,
        generalized_values=[
            all_columns("c"),
            *(
                as_column(
                    fragment("CASE WHEN NOT h.level_0 IS NULL THEN :label::VARCHAR ELSE c.value::VARCHAR END")(
                        label=level
                    ),
                    label.name,
                )
                for label, level in labels_by_level.items()
            ),
        ],
        counts=subquery(value_counts(release, quasi_identifiers, sensitive)),
        hierarchy=hierarchy,
        is_similar=agreements[-1][0],
    )


def _value_shares(release: exp.Expr, quasi_identifiers: Sequence[str], sensitive: str) -> exp.Subquery:
    """The ``row_count`` of each class and value, its ``share`` of the class, and the ``ratio`` of that to the share of
    the release."""
    counts = subquery(value_counts(release, quasi_identifiers, sensitive))
    return subquery(_SHARES(labels=class_labels(quasi_identifiers), counts=counts))
