"""Find the rows of two releases that are new, or gone, in every or in some world that a reader considers.

Where labels are of several levels, which rows of one release are in which class of the other is a flow between groups
(`overlap_flows`). A reader assumes as few rows new or gone as the counts allow: what is left over in a greatest flow.
Of each connected component this is one number; of a group it is more in some greatest flows than in others. Whoever
knows that a person joined the table looks for it among the most rows that can be new in its class.

In a component in which all groups of one release meet all of the other, any rows of a group can be left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.ledger.joint.overlap_flows import ComponentFlows
from sqlanon.ledger.joint.overlaps import OverlapGraph, columns_of_both, group_columns
from sqlanon.ledger.joint.row_matching import FIRST, SECOND, ReleaseLink
from sqlanon.support.expressions import (
    all_of,
    cast,
    col,
    ident,
    named,
    same,
    star,
    subquery,
    table,
    template,
    union_all,
    values_query,
)

UNMATCHED = "sqlanon unmatched"
"""The table of `unmatched_rows`, within a statement."""

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


def unmatched_rows(graph: OverlapGraph, first: exp.Expr, second: exp.Expr) -> exp.Select:
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


def with_unmatched(query: exp.Select, linked: ReleaseLink, rows: Sequence[Sequence[Any]]) -> exp.Select:
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
