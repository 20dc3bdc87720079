"""What the classes of a release give away of a sensitive attribute to somebody who finds a person's class.

Sources: A. Machanavajjhala, D. Kifer, J. Gehrke, M. Venkitasubramaniam, l-Diversity: Privacy beyond k-anonymity, ACM
TKDD 1(1), 2007, section 2 (homogeneity, background knowledge); N. Li, T. Li, S. Venkatasubramanian, t-Closeness:
Privacy beyond k-anonymity and l-diversity, ICDE 2007, section 3 (skewness, similarity).

Each query gives the classes by their labels, ``v0`` .., figures, and ``n``, the rows of the victims. NULL is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from sqlanon.disclosure.class_sizes import class_labels, value_counts
from sqlanon.requirements.base import TOLERANCE
from sqlanon.support.expressions import all_columns, col, fragment, named, subquery, template

RATIO, LIKELY = 2.0, 0.5
"""A class is skewed if a value is RATIO times as frequent in it as in the whole table, and has the share LIKELY."""

COMMON = 0.9
"""A value that so many rows have is known of everybody: that a class has no other value reveals nothing."""

# Any value that is not NULL: of a class of NULLs there is none.
_HOMOGENEITY = template("""
    SELECT :labels, any_value(value) AS value, sum(n)::BIGINT AS n
    FROM :counts AS c
    GROUP BY :labels
    HAVING count(*) = 1
""")

_HOMOGENEOUS_ROWS = template("""
    SELECT coalesce(sum(c.n), 0)::BIGINT
    FROM :classes AS c
    JOIN (SELECT :sensitive AS value, count(*) AS n FROM :release GROUP BY :sensitive) AS v
        ON c.value IS NOT DISTINCT FROM v.value
    WHERE v.n < :common * (SELECT count(*) FROM :release)
""")

# Without quasi-identifiers, no rows are one group: it is not a class.
_BACKGROUND_KNOWLEDGE = template("""
    SELECT :labels, count(*) AS values, sum(n)::BIGINT AS n
    FROM :counts AS c
    GROUP BY :labels
    HAVING count(*) <= :most AND count(*) > 0
""")

_SHARES = template("""
    SELECT
        :labels,
        value,
        n,
        n::DOUBLE / sum(n::DOUBLE) OVER (PARTITION BY :labels) AS p,
        n::DOUBLE / sum(n::DOUBLE) OVER (PARTITION BY :labels)
            / (sum(n::DOUBLE) OVER (PARTITION BY value) / sum(n::DOUBLE) OVER ()) AS ratio
    FROM :counts AS c
""")

_SKEWNESS = template("""
    SELECT :labels, value, p, ratio, n
    FROM :shares AS s
    WHERE ratio >= :ratio AND p >= :likely
""")

_GREATEST_SKEW = template("SELECT max(ratio) AS greatest_ratio FROM :shares AS s")

_SIMILARITY = template("""
    SELECT :labels, :level AS level, :label AS label, sum(n)::BIGINT AS n
    FROM (
        SELECT :kinds
        FROM :counts AS c
        LEFT JOIN :hierarchy AS h ON c.value::VARCHAR = h.level_0::VARCHAR
    ) AS p
    GROUP BY :labels
    HAVING :similar
""")
_KIND = fragment("CASE WHEN NOT h.level_0 IS NULL THEN :label::VARCHAR ELSE c.value::VARCHAR END")
_IS_ONE = fragment("count(DISTINCT :kind) + (count(:kind) <> count(*))::INT = 1")


def homogeneity(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """Classes with one sensitive value, which is then known of all their rows: ``v0`` .., ``value``, ``n``."""
    return _HOMOGENEITY(labels=class_labels(quasi), counts=_counts(release, quasi, sensitive))


def homogeneous_rows(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """One number: the rows in classes with one sensitive value that is not `COMMON`."""
    classes = subquery(homogeneity(release, quasi, sensitive))
    return _HOMOGENEOUS_ROWS(
        classes=classes, release=release.copy(), sensitive=col(sensitive), common=COMMON - TOLERANCE
    )


def background_knowledge(release: exp.Expr, quasi: Sequence[str], sensitive: str, known: int = 1) -> exp.Select:
    """Classes with one value left for an adversary who rules out ``known`` of them: ``v0`` .., ``values``, ``n``."""
    return _BACKGROUND_KNOWLEDGE(labels=class_labels(quasi), counts=_counts(release, quasi, sensitive), most=known + 1)


def skewness(
    release: exp.Expr, quasi: Sequence[str], sensitive: str, ratio: float = RATIO, likely: float = LIKELY
) -> exp.Select:
    """Values that a class makes much more likely than they are in the whole release: ``v0`` .., ``value``, ``p``,
    ``ratio`` (p/q), and ``n``, the rows of the class with that value.
    """
    shares = _shares(release, quasi, sensitive)
    return _SKEWNESS(labels=class_labels(quasi), shares=shares, ratio=ratio - TOLERANCE, likely=likely - TOLERANCE)


def greatest_skew(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """One number: the greatest p/q of any value in any class; NULL of no rows."""
    return _GREATEST_SKEW(shares=_shares(release, quasi, sensitive))


def similarity(release: exp.Expr, quasi: Sequence[str], sensitive: str, hierarchy: exp.Expr, height: int) -> exp.Select:
    """Classes whose sensitive values are all of one kind: ``v0`` .., ``level``, ``label``, ``n``.

    They agree at a level of the attribute's hierarchy below its top: ``level`` is the lowest (0: they are one value,
    see `homogeneity`), and ``label`` what they are there. A value that the hierarchy does not have is of its own kind.
    """
    kinds = {col(f"label_{level}"): col(f"level_{level}", "h") for level in range(max(height, 1))}
    agreed = [(_IS_ONE(kind=kind), kind) for kind in kinds]
    return _SIMILARITY(
        labels=class_labels(quasi),
        level=reduce(lambda case, at: case.when(at[1][0], exp.convert(at[0])), enumerate(agreed), exp.case()),
        label=reduce(lambda case, at: case.when(at[0], exp.func("min", at[1])), agreed, exp.case()),
        kinds=[all_columns("c"), *(named(_KIND(label=level), kind.name) for kind, level in kinds.items())],
        counts=_counts(release, quasi, sensitive),
        hierarchy=hierarchy,
        similar=agreed[-1][0],
    )


def _counts(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Subquery:
    return subquery(value_counts(release, quasi, sensitive))


def _shares(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Subquery:
    """By class and value: ``p``, ``ratio`` (p by q, its share of the whole release), and ``n``."""
    return subquery(_SHARES(labels=class_labels(quasi), counts=_counts(release, quasi, sensitive)))
