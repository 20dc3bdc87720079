"""Attacks on two releases of one table: the complementary release, and the temporal attack.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, sections 4.2 (figures 4 and 5, example 6) and 4.3 (example 7).

The temporal attack counts the rows of a release that the other release cannot contain: new rows, or rows that are gone.
Where labels have several levels, the assignment of rows to classes is a flow between groups (`overlap_flows`). Readers
assume as few new or gone rows as the counts allow: those that a greatest flow leaves unmatched. Their number is fixed
for each connected component, but differs for a group from one greatest flow to another. An attacker who knows that a
person joined the table looks among the most rows that can be new in the person's class.

In a component in which all groups of one release match all groups of the other, any rows of a group can be unmatched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.ledger.joint.label_pairs import FIRST, SECOND
from sqlanon.ledger.joint.overlaps import OverlapGraph, columns_of_both, group_columns
from sqlanon.ledger.joint.row_matching import (
    ReleaseLink,
    finest_values,
    join_groups,
    keys_match,
    with_comparison_parts,
)
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    fragment,
    ident,
    null_safe_equal,
    number,
    select_star,
    subquery,
    table,
    template,
    union_all,
    values_query,
)

MATCHING_GROUPS = "sqlanon matching groups"
"""The table of matching pairs of groups, within a statement."""

UNMATCHED = "sqlanon unmatched"
"""The table of `bound_unmatched_rows`, within a statement."""

# --- Complementary release

_COMPLEMENTARY = template("""
    WITH "sqlanon matching groups" AS MATERIALIZED (:pairs)
    SELECT :values, n
    FROM :combinations AS c
    WHERE n < :k
""")
_COMPLEMENTARY_VICTIMS = template("""
    WITH "sqlanon matching groups" AS MATERIALIZED (:pairs),
    "sqlanon combinations" AS MATERIALIZED (
        SELECT :values
        FROM :combinations AS c
        WHERE n < :k
    )
    SELECT count(*) AS combinations, :rows AS victims
    FROM "sqlanon combinations" AS f
""")
# A group has at most its rows in a combination, however many groups of the other release it matches there. No group is
# in two parts, so their bounds add up.
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
_PAIRS_OF_COMBINATIONS = template("""
    SELECT m.*
    FROM "sqlanon matching groups" AS m
    SEMI JOIN "sqlanon combinations" AS f ON :same_combination
""")
_ROWS_IN_PAIRS = fragment("""
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


def complementary_release(linked: ReleaseLink, k: int) -> exp.Select:
    """The combinations of finest labels that fewer than k rows of the joined releases have: ``finest_0`` .., ``n``.

    The releases are joined on equal shared values and matching labels; ``n`` is the bound of `bound_rows_of_pairs`,
    summed over all shared values.
    """
    pairs = join_groups([*finest_values(linked), *_pair_columns(linked)], linked)
    query = _COMPLEMENTARY(pairs=pairs, combinations=_combinations(linked), values=linked.values, k=k)
    return with_comparison_parts(query, linked)


def _pair_columns(linked: ReleaseLink) -> list[exp.Expr]:
    """The columns of a pair of groups; ``part`` numbers the shared values of the two."""
    part = col("prefix_0", "a") if linked.multilevel_attributes else number(1)
    return [
        *template("SELECT a.i AS a, b.i AS b, a.n AS n_a, b.n AS n_b, least(a.n, b.n) AS n")().expressions,
        as_column(part, "part"),
    ]


def _combinations(linked: ReleaseLink) -> exp.Subquery:
    return subquery(bound_rows_of_pairs(table(MATCHING_GROUPS), linked.values, [col("part")]))


def bound_rows_of_pairs(pairs: exp.Expr, values: Sequence[exp.Expr], parts: Sequence[exp.Expr] = ()) -> exp.Select:
    """The most rows that pairs of groups with the same values have in common: the values, and ``n``.

    A pair has no more rows than the smaller of its groups, and all pairs of a group no more than the group.

    Parameters
    ----------
    pairs:
        The numbers of the groups, ``a`` and ``b``, their rows ``n_a`` and ``n_b``, the most rows of the pair, ``n``.
    parts:
        Columns in which the groups of a pair are equal. Parts are counted separately, as no group is in two of them.
    """
    return _MOST_ROWS(values=values, by=[*values, *parts], pairs=pairs)


def count_complementary_victims(linked: ReleaseLink, k: int) -> exp.Select:
    """One row: the ``combinations`` of `complementary_release`, and ``victims``, the released rows that have them.

    The query reads `comparison_parts` with numbers. A group that matches several others is in several combinations,
    but has no more rows: so rows are counted in either release, each group at most once, and the smaller count is
    reported.
    """
    same_combination = all_of(
        null_safe_equal(col(f"finest_{i}", "m"), col(f"finest_{i}", "f")) for i in range(len(linked.attributes))
    )
    return _COMPLEMENTARY_VICTIMS(
        pairs=join_groups([*finest_values(linked, numbers=True), *_pair_columns(linked)], linked, numbers=True),
        combinations=_combinations(linked),
        values=linked.values,
        k=k,
        rows=count_rows_in_pairs(_PAIRS_OF_COMBINATIONS(same_combination=same_combination)),
    )


def count_rows_in_pairs(pairs: exp.Query) -> exp.Expr:
    """The number of rows in pairs of groups: each group counts once in either release; the smaller count."""
    return _ROWS_IN_PAIRS(pairs=subquery(pairs))


# --- Temporal attack

_FEW_NEW_ROWS = template("""
    SELECT :named, sum(n)::BIGINT AS n
    FROM :new AS new
    GROUP BY :labels
    HAVING sum(n)::BIGINT BETWEEN 1 AND :most
""")
# All levels are known: groups match by their keys. Where releases have most rows in common, few keys have more rows.
_NEW_ROWS_BY_KEY = template("""
    SELECT :columns, least(b.n, m.n) AS n
    FROM "sqlanon second" AS b
    JOIN (
        SELECT :keys_now, b.n - coalesce(a.n, 0) AS n
        FROM (SELECT :keys, sum(n)::BIGINT AS n FROM "sqlanon second" AS t GROUP BY :keys) AS b
        LEFT JOIN (SELECT :keys, sum(n)::BIGINT AS n FROM "sqlanon first" AS t GROUP BY :keys) AS a ON :keys_match
        WHERE b.n > coalesce(a.n, 0)
    ) AS m ON :same_key
""")
# Labels have several levels: the most rows that can be new.
_NEW_ROWS_BY_FLOWS = template("""
    SELECT :columns, u.most AS n
    FROM "sqlanon second" AS b
    JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.i = b.i
""")


def temporal_attack(linked: ReleaseLink, k: int, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """Classes of the second release in which some rows, but fewer than k, can be new: ``finest_0`` .. and ``n``.

    An attacker who knows that a person joined in between looks for them among the new rows. Rows of both releases are
    counted by shared values and labels at the coarser of the two levels: rows that the second has in excess are new.
    Where the second is finer, each of its classes may have all new rows; where labels have several levels, as many as
    `bound_unmatched_rows` says.

    For the rows that are gone, give the link `ReleaseLink.swapped`.

    Parameters
    ----------
    unmatched:
        The rows of `labelled_unmatched`, where labels have several levels.
    """
    query = few_new_rows_in_classes(linked, k)
    if linked.multilevel_attributes:
        query = add_unmatched(query, linked, unmatched)
    return with_comparison_parts(query, linked, finest=None)


def few_new_rows_in_classes(linked: ReleaseLink, k: int) -> exp.Select:
    """The query of `temporal_attack`: it reads `comparison_parts`, and `UNMATCHED` where labels have several levels."""
    attributes = [i for i, _ in linked.side(is_first=False)[1]]
    return _FEW_NEW_ROWS(
        named=[as_column(col(f"label_{i}"), f"finest_{i}") for i in attributes],
        new=subquery(new_rows(linked, [col(f"label_{i}", "b") for i in attributes])),
        labels=[col(f"label_{i}") for i in attributes],
        most=k - 1,
    )


def new_rows(linked: ReleaseLink, columns: Sequence[exp.Expr]) -> exp.Select:
    """Columns of the groups of the second release, ``b``, and ``n``, the most rows of each that can be new."""
    if linked.multilevel_attributes:
        return _NEW_ROWS_BY_FLOWS(columns=columns)
    return _NEW_ROWS_BY_KEY(
        columns=columns,
        keys=[col(name) for name in linked.key],
        keys_now=[col(name, "b") for name in linked.key],
        keys_match=keys_match(linked),
        same_key=all_of(null_safe_equal(col(name, "b"), col(name, "m")) for name in linked.key),
    )


# --- Unmatched rows

_UNMATCHED_ROWS = template("""
    SELECT
        s.is_first,
        s.i,
        CASE
            WHEN s.component IS NULL THEN s.n
            WHEN r.component IS NULL THEN least(s.n, greatest(s.release_rows - s.other_rows, 0))
            ELSE coalesce(f.most, 0)
        END::BIGINT AS most,
        CASE
            WHEN s.component IS NULL THEN s.n
            WHEN r.component IS NULL AND s.position = 1 THEN greatest(s.release_rows - s.other_rows, 0)
            WHEN r.component IS NULL THEN 0
            ELSE coalesce(f.n, 0)
        END::BIGINT AS n
    FROM (
        SELECT
            *,
            sum(n) OVER (PARTITION BY component, is_first) AS release_rows,
            sum(n) OVER (PARTITION BY component) - sum(n) OVER (PARTITION BY component, is_first) AS other_rows,
            row_number() OVER (PARTITION BY component, is_first ORDER BY i) AS position
        FROM (
            SELECT true AS is_first, g.i, g.n, c.component
            FROM :first AS g
            LEFT JOIN :components AS c ON c.node = 2 * g.i
            UNION ALL
            SELECT false AS is_first, g.i, g.n, c.component
            FROM :second AS g
            LEFT JOIN :components AS c ON c.node = (2 * g.i) + 1
        ) AS g
    ) AS s
    LEFT JOIN (SELECT DISTINCT component FROM :irregular AS e) AS r ON r.component = s.component
    LEFT JOIN :flows AS f ON f.is_first = s.is_first AND f.i = s.i
""")
_LABELLED = template("""
    SELECT u.is_first, u.most, u.n, :labels
    FROM :groups AS g
    JOIN "sqlanon unmatched" AS u ON u.is_first = :is_first AND u.i = g.i
    WHERE u.most > 0
""")
_BY_LABELS = template("""
    SELECT x.is_first, g.i, x.most, x.n
    FROM :rows AS x
    JOIN :groups AS g ON x.is_first = :is_first AND :same_labels
""")


def bound_unmatched_rows(graph: OverlapGraph, first: exp.Expr, second: exp.Expr) -> exp.Select:
    """The groups of both releases, ``is_first`` and ``i``, with the ``most`` of their rows that can be new or gone.

    ``n`` is the number of unmatched rows in one greatest flow: its sum over the groups of a component is the number of
    rows that are new or gone in every greatest flow.

    Raises
    ------
    TooManyStepsError
        The flows take too many steps.
    """
    columns = {"is_first": "BOOLEAN", "i": "BIGINT", "most": "BIGINT", "n": "BIGINT"}
    rows = [(group.is_first, group.group, group.most, group.rows) for group in graph.flows.unmatched()]
    return _UNMATCHED_ROWS(
        first=first,
        second=second,
        components=graph.components,
        irregular=graph.irregular,
        flows=subquery(values_query(columns, rows)),
    )


def labelled_unmatched(linked: ReleaseLink) -> exp.Select:
    """The rows of `UNMATCHED` that can be new or gone, with the labels and shared values of their groups as texts."""
    queries = []
    for release, is_first in ((FIRST, True), (SECOND, False)):
        columns = group_columns(linked, is_first)
        labels: list[exp.Expr] = [
            as_column(cast(col(name, "g") if name in columns else exp.null(), "VARCHAR"), name)
            for name in columns_of_both(linked)
        ]
        queries.append(_LABELLED(labels=labels, groups=table(release), is_first=exp.convert(is_first)))
    return select_star(subquery(union_all(*queries), "u"))


def add_unmatched(query: exp.Select, linked: ReleaseLink, rows: Sequence[Sequence[Any]]) -> exp.Select:
    """Add the table `UNMATCHED`, made of the rows of `labelled_unmatched`, to a query that reads it."""
    labels = dict.fromkeys(columns_of_both(linked), "VARCHAR")
    types = {"is_first": "BOOLEAN", "most": "BIGINT", "n": "BIGINT", **labels}
    queries = [
        _BY_LABELS(
            rows=subquery(values_query(types, rows), "x"),
            groups=table(release),
            is_first=exp.convert(is_first),
            same_labels=all_of(
                null_safe_equal(cast(col(name, "g"), "VARCHAR"), col(name, "x"))
                for name in group_columns(linked, is_first)
            ),
        )
        for release, is_first in ((FIRST, True), (SECOND, False))
    ]
    parts = exp.Select().with_(ident(UNMATCHED), as_=union_all(*queries), copy=False)
    existing = query.args["with_"].expressions if query.args.get("with_") else []
    query.set("with_", exp.With(expressions=[*parts.args["with_"].expressions, *existing]))
    return query
