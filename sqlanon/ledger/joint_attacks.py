"""What two releases of one table reveal together: the complementary release, and the temporal attack.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, sections 4.2 (figures 4 and 5, example 6) and 4.3 (example 7).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import all_of, col, fragment, named, same, subquery, template
from sqlanon.ledger.row_matching import (
    LinkedAttribute,
    both_grouped,
    finest,
    joined,
    meeting,
    met_name,
    of_several_levels,
    shared_in,
    within,
)

MEETING = "sqlanon meeting"

_COMPLEMENTARY = template("""
    WITH "sqlanon meeting" AS MATERIALIZED (:pairs)
    SELECT :values, sum(n)::BIGINT AS n
    FROM "sqlanon meeting" AS m
    GROUP BY :values
    HAVING sum(n)::BIGINT < :k
""")

_COMPLEMENTARY_VICTIMS = template("""
    WITH "sqlanon meeting" AS MATERIALIZED (:pairs),
    "sqlanon found" AS MATERIALIZED (
        SELECT :values
        FROM "sqlanon meeting" AS m
        GROUP BY :values
        HAVING sum(n)::BIGINT < :k
    )
    SELECT count(*) AS combinations, :rows AS victims
    FROM "sqlanon found" AS f
""")
_PAIR = template("SELECT a.i AS a, b.i AS b, a.n AS n_a, b.n AS n_b, least(a.n, b.n) AS n")
_FOUND_PAIRS = template('SELECT m.* FROM "sqlanon meeting" AS m SEMI JOIN "sqlanon found" AS f ON :same')

_ROWS_IN = fragment("""
    least(
        (
            SELECT coalesce(sum(n)::BIGINT, 0)
            FROM (SELECT least(sum(n)::BIGINT, min(n_a)) AS n FROM :pairs AS p GROUP BY a) AS e
        ),
        (
            SELECT coalesce(sum(n)::BIGINT, 0)
            FROM (SELECT least(sum(n)::BIGINT, min(n_b)) AS n FROM :pairs AS p GROUP BY b) AS e
        )
    )
""")

_TEMPORAL = template("""
    SELECT :named, sum(n)::BIGINT AS n
    FROM :new AS new
    GROUP BY :labels
    HAVING sum(n)::BIGINT BETWEEN 1 AND :most
""")

# All levels are known: groups meet by their keys.
_NEW_BY_KEY = template("""
    SELECT :labels, least(b.n, greatest(sum(b.n) OVER (PARTITION BY :keys) - coalesce(a.n, 0), 0)) AS n
    FROM "sqlanon second" AS b
    LEFT JOIN :then AS a ON :meeting
""")
_THEN = template("""
    SELECT :keys, sum(n)::BIGINT AS n
    FROM "sqlanon first" AS t
    GROUP BY :keys
""")

# Labels are of several levels: only rows beyond all that they could be.
_NEW_IN_ANY_CASE = template("""
    SELECT :labels, greatest(b.n - coalesce(t.n, 0), 0) AS n
    FROM "sqlanon second" AS b
    LEFT JOIN (
        SELECT m.b, sum(a.n)::BIGINT AS n
        FROM :met AS m
        JOIN "sqlanon first" AS a ON :is_first
        GROUP BY m.b
    ) AS t ON :is_second
""")


def complementary_release(
    first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[LinkedAttribute], k: int
) -> exp.Select:
    """Combinations of finest values that the join of two releases yields for fewer than k rows: ``v0`` .. and ``n``.

    The join is on equal shared values and labels that go together. A group of rows in one release that meets a group in
    the other stands for no more rows than the lesser of the two has; so ``n`` is the sum of these over the shared
    values, and never more than either release has.
    """
    pairs = _meeting_pairs(attributes, len(shared), numbers=False)
    return both_grouped(_COMPLEMENTARY(pairs=pairs, values=_values(attributes), k=k), first, second, shared, attributes)


def complementary_victims(
    first: exp.Expr,
    second: exp.Expr,
    shared: Sequence[str],
    attributes: Sequence[LinkedAttribute],
    k: int,
    count: str | None = None,
) -> exp.Select:
    """One row: ``combinations`` that `complementary_release` finds, and ``victims``, the released rows in them.

    A group that meets several others is in several combinations, but has no more rows for it: so rows are counted on
    either side, each group at most in full, and the lesser count is reported. ``count`` is as of `groups`.
    """
    numbers = range(len(attributes))
    found = _FOUND_PAIRS(same=all_of(same(col(f"v{i}", "m"), col(f"v{i}", "f")) for i in numbers))
    pairs = _meeting_pairs(attributes, len(shared), numbers=True)
    query = _COMPLEMENTARY_VICTIMS(pairs=pairs, values=_values(attributes), k=k, rows=rows_in(found))
    return both_grouped(query, first, second, shared, attributes, count, "numbers")


def rows_in(pairs: exp.Query) -> exp.Expr:
    """How many rows are in pairs of groups: each group at most in full, on either side; the lesser count."""
    return _ROWS_IN(pairs=subquery(pairs))


def _values(attributes: Sequence[LinkedAttribute]) -> list[exp.Expr]:
    return [col(f"v{i}") for i in range(len(attributes))]


def _meeting_pairs(attributes: Sequence[LinkedAttribute], shared: int, numbers: bool) -> exp.Select:
    """The pairs of groups that meet: finest values, or numbers for these, the number and rows of each group, and
    ``n``."""
    output = [*finest(attributes, numbers), *_PAIR().expressions]
    return joined(output, attributes, shared, numbers)


def temporal(
    then: exp.Expr,
    now: exp.Expr,
    shared: Sequence[str],
    attributes: Sequence[LinkedAttribute],
    k: int,
    count: str | None = None,
) -> exp.Select:
    """Classes of one release in which some rows, but fewer than k, can be new: ``v0`` .. and ``n``, the rows.

    Somebody who knows that a person joined the table in between looks for them among the new rows alone. Rows of both
    releases are counted by shared values and labels at the coarser of the two levels: what `now` has more is new. Where
    `now` is finer, each of its classes may have had all of the new rows. Where labels are of several levels, only those
    rows are counted that are new in any case: more than all rows of `then` that they could be.

    For the rows that are gone, give the releases, and the attributes (`LinkedAttribute.swapped`), in the other order.
    """
    new = _new_in_any_case if of_several_levels(attributes) else _new_by_key
    here = [i for i, one in enumerate(attributes) if one.second is not None]
    query = _TEMPORAL(
        named=[named(col(f"l{i}"), f"v{i}") for i in here],
        new=subquery(new(attributes, len(shared))),
        labels=[col(f"l{i}") for i in here],
        most=k - 1,
    )
    return both_grouped(query, then, now, shared, attributes, count, finest=None)


def _new_by_key(attributes: Sequence[LinkedAttribute], shared: int) -> exp.Select:
    """The rows of each group of `now` that can be new."""
    keys = [f"s{j}" for j in range(shared)]
    keys += [f"k{i}" for i, one in shared_in(attributes) if not one.meets_all]
    return _NEW_BY_KEY(
        labels=_labels(attributes),
        keys=[col(key, "b") for key in keys],
        then=subquery(_THEN(keys=[col(key) for key in keys])),
        meeting=meeting(attributes, shared),
    )


def _new_in_any_case(attributes: Sequence[LinkedAttribute], shared: int) -> exp.Select:
    """The rows of each group of `now` that are more than all of `then` that they could be."""
    compared = len(of_several_levels(attributes))
    last = f"p{compared}"
    return _NEW_IN_ANY_CASE(
        labels=_labels(attributes),
        met=within(met_name(compared), "m"),
        is_first=col(last, "a").eq(col("a", "m")),
        is_second=col(last, "b").eq(col("b", "t")),
    )


def _labels(attributes: Sequence[LinkedAttribute]) -> list[exp.Expr]:
    return [col(f"l{i}", "b") for i, one in enumerate(attributes) if one.second is not None]
