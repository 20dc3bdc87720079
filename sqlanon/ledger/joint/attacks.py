"""What two releases of one table reveal together: the complementary release, and the temporal attack.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, sections 4.2 (figures 4 and 5, example 6) and 4.3 (example 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.ledger.joint.overlap_flows import ComponentFlows
from sqlanon.ledger.joint.overlaps import OverlapGraph, columns_of_both, group_columns
from sqlanon.ledger.joint.row_matching import (
    FIRST,
    SECOND,
    ReleaseLink,
    finest_values,
    join_groups,
    keys_match,
    with_comparison_parts,
)
from sqlanon.support.expressions import (
    all_of,
    cast,
    col,
    fragment,
    ident,
    named,
    number,
    same,
    star,
    subquery,
    table,
    template,
    union_all,
    values_query,
)

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
    """Combinations of finest values that the join of two releases yields for fewer than k rows: ``finest_0`` .. and
    ``n``.

    The join is on equal shared values and labels that go together; ``n`` is what `bound_rows_of_pairs` says of the
    pairs
    of groups, over all shared values.
    """
    pairs = join_groups([*finest_values(linked), *_pair(linked)], linked)
    query = _COMPLEMENTARY(pairs=pairs, combinations=_combinations(linked), values=linked.values, k=k)
    return with_comparison_parts(query, linked)


def _pair(linked: ReleaseLink) -> list[exp.Expr]:
    """The columns of two groups that meet; ``part`` is a number for the shared values that both have."""
    part = col("prefix_0", "a") if linked.multilevel_attributes else number(1)
    return [*_PAIR().expressions, named(part, "part")]


def _combinations(linked: ReleaseLink) -> exp.Subquery:
    return subquery(bound_rows_of_pairs(table(MEETING), linked.values, [col("part")]))


def bound_rows_of_pairs(pairs: exp.Expr, values: Sequence[exp.Expr], parts: Sequence[exp.Expr] = ()) -> exp.Select:
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


def count_complementary_victims(linked: ReleaseLink, k: int) -> exp.Select:
    """One row: ``combinations`` that `complementary_release` finds, and ``victims``, the released rows in them.

    The query reads `comparison_parts` with numbers. A group that meets several others is in several combinations, but
    has
    no more rows for it: so rows are counted on either side, each group at most in full, and the lesser count is
    reported.
    """
    numbers = range(len(linked.attributes))
    found = _FOUND_PAIRS(same=all_of(same(col(f"finest_{i}", "m"), col(f"finest_{i}", "f")) for i in numbers))
    pairs = join_groups([*finest_values(linked, numbers=True), *_pair(linked)], linked, numbers=True)
    return _COMPLEMENTARY_VICTIMS(
        pairs=pairs, combinations=_combinations(linked), values=linked.values, k=k, rows=count_rows_in_pairs(found)
    )


def count_rows_in_pairs(pairs: exp.Query) -> exp.Expr:
    """How many rows are in pairs of groups: each group at most in full, on either side; the lesser count."""
    return _ROWS_IN(pairs=subquery(pairs))


def temporal_attack(linked: ReleaseLink, k: int, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """Classes of the second release in which some rows, but fewer than k, can be new: ``finest_0`` .. and ``n``, the
    rows.

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
    query = few_new_rows_in_classes(linked, k)
    if linked.multilevel_attributes:
        query = add_unmatched(query, linked, unmatched)
    return with_comparison_parts(query, linked, finest=None)


def few_new_rows_in_classes(linked: ReleaseLink, k: int) -> exp.Select:
    """The query of `temporal`, which reads `comparison_parts`, and `UNMATCHED` where labels are of several levels."""
    _, here = linked.side(is_first=False)
    return _TEMPORAL(
        named=[named(col(f"label_{i}"), f"finest_{i}") for i, _ in here],
        new=subquery(new_rows(linked, _labels(linked))),
        labels=[col(f"label_{i}") for i, _ in here],
        most=k - 1,
    )


def new_rows(linked: ReleaseLink, columns: Sequence[exp.Expr]) -> exp.Select:
    """Columns of the groups of the second release, ``b``, and ``n``, their rows that are new: in `temporal`'s sense."""
    return _NEW_BY_FLOWS(columns=[*columns]) if linked.multilevel_attributes else _new_by_key(linked, columns)


def _new_by_key(linked: ReleaseLink, columns: Sequence[exp.Expr]) -> exp.Select:
    """The rows of each group of the second release that can be new."""
    keys = [col(name) for name in linked.key]
    more = _MORE(
        keys=[col(name, "b") for name in linked.key],
        now=subquery(_NOW(keys=keys)),
        then=subquery(_THEN(keys=keys)),
        meeting=keys_match(linked),
    )
    on = all_of(same(col(name, "b"), col(name, "m")) for name in linked.key)
    return _NEW_BY_KEY(columns=[*columns], more=subquery(more), same=on)


def _labels(linked: ReleaseLink) -> list[exp.Expr]:
    return [col(f"label_{i}", "b") for i, _ in linked.side(is_first=False)[1]]


UNMATCHED = "sqlanon unmatched"
"""The table of `bound_unmatched_rows`, within a statement."""

_UNMATCHED = template("""
    SELECT
        s.is_first,
        s.i,
        CASE
            WHEN s.component IS NULL THEN s.n
            WHEN r.component IS NULL THEN least(s.n, greatest(s.own - s.other, 0))
            ELSE coalesce(f.most, 0)
        END::BIGINT AS most,
        CASE
            WHEN s.component IS NULL THEN s.n
            WHEN r.component IS NULL THEN CASE WHEN s.place = 1 THEN greatest(s.own - s.other, 0) ELSE 0 END
            ELSE coalesce(f.n, 0)
        END::BIGINT AS n
    FROM (
        SELECT
            *,
            sum(n) OVER (PARTITION BY component, is_first) AS own,
            sum(n) OVER (PARTITION BY component) - sum(n) OVER (PARTITION BY component, is_first) AS other,
            row_number() OVER (PARTITION BY component, is_first ORDER BY i) AS place
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
    JOIN :groups AS g ON x.is_first = :is_first AND :same
""")
_OF_FLOWS = {"is_first": "BOOLEAN", "i": "BIGINT", "most": "BIGINT", "n": "BIGINT"}


def bound_unmatched_rows(graph: OverlapGraph, first: exp.Expr, second: exp.Expr) -> exp.Select:
    """The groups of both releases by their numbers, ``is_first`` and ``i``, with the ``most`` of their rows that can be
    new or gone; and ``n``, of which the sum over the groups of a component is what is new or gone there in any case.

    Raises
    ------
    TooManyStepsError
        The flows take too many steps.
    """
    return _UNMATCHED(
        first=first,
        second=second,
        components=graph.components,
        irregular=graph.irregular,
        flows=subquery(_rows_of_flows(graph.flows)),
    )


def _rows_of_flows(flows: ComponentFlows) -> exp.Select:
    rows = [(one.is_first, one.group, one.most, one.rows) for one in flows.unmatched()]
    return values_query(_OF_FLOWS, rows)


def labelled_unmatched(linked: ReleaseLink) -> exp.Select:
    """The rows of `UNMATCHED` that can be new or gone, ``is_first``, ``most`` and ``n``, with the labels and shared
    values of their groups as texts."""
    names = columns_of_both(linked)
    queries = []
    for name, is_first in ((FIRST, True), (SECOND, False)):
        own = group_columns(linked, is_first)
        labels: list[exp.Expr] = [
            named(cast(col(one, "g") if one in own else exp.null(), "VARCHAR"), one) for one in names
        ]
        queries.append(_LABELLED(labels=labels, groups=table(name), is_first=exp.convert(is_first)))
    return star(subquery(union_all(*queries), "u"))


def add_unmatched(query: exp.Select, linked: ReleaseLink, rows: Sequence[Sequence[Any]]) -> exp.Select:
    """A query that reads `UNMATCHED`, with that table made of what `labelled_unmatched` lists."""
    names = columns_of_both(linked)
    types = {"is_first": "BOOLEAN", "most": "BIGINT", "n": "BIGINT", **dict.fromkeys(names, "VARCHAR")}
    queries = []
    for name, is_first in ((FIRST, True), (SECOND, False)):
        is_same = [same(cast(col(one, "g"), "VARCHAR"), col(one, "x")) for one in group_columns(linked, is_first)]
        queries.append(
            _BY_LABELS(
                rows=subquery(values_query(types, rows), "x"),
                groups=table(name),
                is_first=exp.convert(is_first),
                same=all_of(is_same),
            )
        )
    parts = exp.Select().with_(ident(UNMATCHED), as_=union_all(*queries), copy=False)
    own_parts = query.args["with_"].expressions if query.args.get("with_") else []
    query.set("with_", exp.With(expressions=[*parts.args["with_"].expressions, *own_parts]))
    return query
