"""What two releases of one table reveal together: the complementary release, and the temporal attack.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, sections 4.2 (figures 4 and 5, example 6) and 4.3 (example 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.ledger.joint.row_matching import ReleaseLink, both_grouped, finest, joined, meeting
from sqlanon.ledger.joint.unmatched import with_unmatched
from sqlanon.support.expressions import all_of, col, fragment, named, number, same, subquery, table, template

MEETING = "sqlanon meeting"

_COMPLEMENTARY = template("""
    WITH "sqlanon meeting" AS MATERIALIZED (:pairs)
    SELECT :values, n
    FROM :combinations AS c
    WHERE n < :k
""")

_COMPLEMENTARY_VICTIMS = template("""
    WITH "sqlanon meeting" AS MATERIALIZED (:pairs),
    "sqlanon found" AS MATERIALIZED (
        SELECT :values
        FROM :combinations AS c
        WHERE n < :k
    )
    SELECT count(*) AS combinations, :rows AS victims
    FROM "sqlanon found" AS f
""")
_PAIR = template("SELECT a.i AS a, b.i AS b, a.n AS n_a, b.n AS n_b, least(a.n, b.n) AS n")
# A group has at most its rows in a combination, however many groups of the other release it meets there. No group is in
# two parts, so that their bounds add up.
_MOST_ROWS = template("""
    SELECT :values, sum(n)::BIGINT AS n
    FROM (
        SELECT :by, min(n) AS n
        FROM (
            SELECT :by, sum(n) AS n
            FROM (SELECT :by, least(sum(n), min(n_a)) AS n FROM :pairs AS p GROUP BY :by, a) AS e
            GROUP BY :by
            UNION ALL
            SELECT :by, sum(n) AS n
            FROM (SELECT :by, least(sum(n), min(n_b)) AS n FROM :pairs AS p GROUP BY :by, b) AS e
            GROUP BY :by
        ) AS s
        GROUP BY :by
    ) AS c
    GROUP BY :values
""")
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

# All levels are known: groups meet by their keys. Where releases have most rows in common, few keys have more.
_NEW_BY_KEY = template("""
    SELECT :columns, least(b.n, m.n) AS n
    FROM "sqlanon second" AS b
    JOIN :more AS m ON :same
""")
_MORE = template("""
    SELECT :keys, b.n - coalesce(a.n, 0) AS n
    FROM :now AS b
    LEFT JOIN :then AS a ON :meeting
    WHERE b.n > coalesce(a.n, 0)
""")
_THEN = template("""
    SELECT :keys, sum(n)::BIGINT AS n
    FROM "sqlanon first" AS t
    GROUP BY :keys
""")
_NOW = template("""
    SELECT :keys, sum(n)::BIGINT AS n
    FROM "sqlanon second" AS t
    GROUP BY :keys
""")

# Labels are of several levels: the most rows that can be new.
_NEW_BY_FLOWS = template("""
    SELECT :columns, u.most AS n
    FROM "sqlanon second" AS b
    JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.i = b.i
""")


def complementary_release(linked: ReleaseLink, k: int) -> exp.Select:
    """Combinations of finest values that the join of two releases yields for fewer than k rows: ``v0`` .. and ``n``.

    The join is on equal shared values and labels that go together; ``n`` is what `most_rows_of_pairs` says of the pairs
    of groups, over all shared values.
    """
    pairs = joined([*finest(linked), *_pair(linked)], linked)
    query = _COMPLEMENTARY(pairs=pairs, combinations=_combinations(linked), values=linked.values, k=k)
    return both_grouped(query, linked)


def _pair(linked: ReleaseLink) -> list[exp.Expr]:
    """The columns of two groups that meet; ``part`` is a number for the shared values that both have."""
    part = col("p0", "a") if linked.several_levels else number(1)
    return [*_PAIR().expressions, named(part, "part")]


def _combinations(linked: ReleaseLink) -> exp.Subquery:
    return subquery(most_rows_of_pairs(table(MEETING), linked.values, [col("part")]))


def most_rows_of_pairs(pairs: exp.Expr, values: Sequence[exp.Expr], parts: Sequence[exp.Expr] = ()) -> exp.Select:
    """The most rows that pairs of groups with the same values have in common: the values, and ``n``.

    A pair has no more rows than the lesser of its groups, and the pairs of a group no more than the group, on either
    side.

    Parameters
    ----------
    pairs:
        The numbers of the groups, ``a`` and ``b``, their rows ``n_a`` and ``n_b``, the most rows of the pair, ``n``.
    parts:
        Columns in which the groups of a pair are equal. Parts are counted apart, as no group is in two of them.
    """
    return _MOST_ROWS(values=values, by=[*values, *parts], pairs=pairs)


def complementary_victims(linked: ReleaseLink, k: int) -> exp.Select:
    """One row: ``combinations`` that `complementary_release` finds, and ``victims``, the released rows in them.

    The query reads `parts_of_both` with numbers. A group that meets several others is in several combinations, but has
    no more rows for it: so rows are counted on either side, each group at most in full, and the lesser count is
    reported.
    """
    numbers = range(len(linked.attributes))
    found = _FOUND_PAIRS(same=all_of(same(col(f"v{i}", "m"), col(f"v{i}", "f")) for i in numbers))
    pairs = joined([*finest(linked, numbers=True), *_pair(linked)], linked, numbers=True)
    return _COMPLEMENTARY_VICTIMS(
        pairs=pairs, combinations=_combinations(linked), values=linked.values, k=k, rows=rows_in(found)
    )


def rows_in(pairs: exp.Query) -> exp.Expr:
    """How many rows are in pairs of groups: each group at most in full, on either side; the lesser count."""
    return _ROWS_IN(pairs=subquery(pairs))


def temporal(linked: ReleaseLink, k: int, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """Classes of the second release in which some rows, but fewer than k, can be new: ``v0`` .. and ``n``, the rows.

    Somebody who knows that a person joined the table in between looks for them among the new rows alone. Rows of both
    releases are counted by shared values and labels at the coarser of the two levels: what the second has more is new.
    Where it is finer, each of its classes may have had all of the new rows; and where labels are of several levels, as
    many of them as `unmatched` says.

    For the rows that are gone, give the link `ReleaseLink.swapped`.

    Parameters
    ----------
    unmatched:
        What `labelled_unmatched` lists, where labels are of several levels.
    """
    query = new_in_classes(linked, k)
    if linked.several_levels:
        query = with_unmatched(query, linked, unmatched)
    return both_grouped(query, linked, finest=None)


def new_in_classes(linked: ReleaseLink, k: int) -> exp.Select:
    """The query of `temporal`, which reads `parts_of_both`, and `UNMATCHED` where labels are of several levels."""
    _, here = linked.side(is_first=False)
    return _TEMPORAL(
        named=[named(col(f"l{i}"), f"v{i}") for i, _ in here],
        new=subquery(new_rows(linked, _labels(linked))),
        labels=[col(f"l{i}") for i, _ in here],
        most=k - 1,
    )


def new_rows(linked: ReleaseLink, columns: Sequence[exp.Expr]) -> exp.Select:
    """Columns of the groups of the second release, ``b``, and ``n``, their rows that are new: in `temporal`'s sense."""
    return _NEW_BY_FLOWS(columns=[*columns]) if linked.several_levels else _new_by_key(linked, columns)


def _new_by_key(linked: ReleaseLink, columns: Sequence[exp.Expr]) -> exp.Select:
    """The rows of each group of the second release that can be new."""
    keys = [col(name) for name in linked.key]
    more = _MORE(
        keys=[col(name, "b") for name in linked.key],
        now=subquery(_NOW(keys=keys)),
        then=subquery(_THEN(keys=keys)),
        meeting=meeting(linked),
    )
    on = all_of(same(col(name, "b"), col(name, "m")) for name in linked.key)
    return _NEW_BY_KEY(columns=[*columns], more=subquery(more), same=on)


def _labels(linked: ReleaseLink) -> list[exp.Expr]:
    return [col(f"l{i}", "b") for i, _ in linked.side(is_first=False)[1]]
