"""Attacks on two releases of one table: the complementary release, and the temporal attack.

The temporal attack counts the rows of a release that the other release cannot contain: new rows, or rows that are gone.
Where labels have several levels, readers assume as few as the counts allow: those that a maximum flow between groups
leaves unmatched (`overlap_flows`). Their number is fixed for each connected component, but differs for a group from one
maximum flow to another: an attacker looks among the most rows that can be new in a person's class.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, sections 4.2 (figures 4 and 5, example 6) and 4.3 (example 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.ledger.joint.label_pairs import FIRST, SECOND
from sqlanon.ledger.joint.overlaps import OverlapGraph, connect
from sqlanon.ledger.joint.row_matching import (
    ReleaseLink,
    finest_values,
    join_groups,
    keys_match,
    matching_prefixes_name,
    same_texts,
    with_comparison_parts,
)
from sqlanon.support.expressions import (
    Namer,
    as_column,
    cast,
    col,
    cols,
    create_table,
    drop_table,
    fragment,
    number,
    prepend_ctes,
    same_values,
    select_star,
    subquery,
    table,
    template,
    union_all,
    value_or_zero,
    values_query,
)

MATCHING_GROUPS = "sqlanon matching groups"
"""The table of matching pairs of groups, within a statement."""

UNMATCHED = "sqlanon unmatched"
"""The table of `bound_unmatched_rows`, within a statement."""

# --- Complementary release


def complementary_release(link: ReleaseLink, k: int) -> exp.Select:
    """The combinations of finest labels that fewer than k rows of the joined releases have: ``finest_0`` .., and
    ``row_count``.

    The releases are joined on equal shared values and matching labels; ``row_count`` is the bound of
    `bound_rows_of_pairs`, summed over all shared values.
    """
    query = template("""
        WITH "sqlanon matching groups" AS MATERIALIZED (:pairs)
        SELECT :values, row_count
        FROM :combinations AS c
        WHERE row_count < :k
    """)(pairs=_matching_groups(link), combinations=_combinations(link), values=link.values, k=k)
    return with_comparison_parts(query, link)


def count_complementary_victims(link: ReleaseLink, k: int) -> exp.Select:
    """One row: the ``combinations`` of `complementary_release`, and ``victims``, the released rows that have them.

    The query reads `comparison_parts`. A group that matches several others is in several combinations, but has no more
    rows: so rows are counted in either release, each group at most once, and the smaller count is reported.
    """
    same_combination = same_values([value.name for value in link.values], "m", "f")
    pairs = template("""
        SELECT m.*
        FROM "sqlanon matching groups" AS m
        SEMI JOIN "sqlanon combinations" AS f ON :same_combination
    """)(same_combination=same_combination)
    return template("""
        WITH "sqlanon matching groups" AS MATERIALIZED (:pairs),
        "sqlanon combinations" AS MATERIALIZED (
            SELECT :values
            FROM :combinations AS c
            WHERE row_count < :k
        )
        SELECT count(*) AS combinations, :victims AS victims
        FROM "sqlanon combinations" AS f
    """)(
        pairs=_matching_groups(link),
        combinations=_combinations(link),
        values=link.values,
        k=k,
        victims=count_rows_in_pairs(pairs),
    )


def group_pairs(*columns: exp.Expr) -> list[exp.Expr]:
    """The columns of a pair of matching groups ``a`` and ``b``: their numbers and rows, and the most rows of both."""
    pair = template("""
        SELECT
            a.group_id AS first_group,
            b.group_id AS second_group,
            a.row_count AS first_rows,
            b.row_count AS second_rows,
            least(a.row_count, b.row_count) AS row_count
    """)
    return [*columns, *pair().expressions]


def _matching_groups(link: ReleaseLink) -> exp.Select:
    """The pairs of matching groups; ``part`` numbers the shared values of the two."""
    part = col("prefix_0", "a") if link.multilevel_attributes else number(1)
    return join_groups([*group_pairs(*finest_values(link)), as_column(part, "part")], link)


def _combinations(link: ReleaseLink) -> exp.Subquery:
    return subquery(bound_rows_of_pairs(table(MATCHING_GROUPS), link.values, [col("part")]))


def bound_rows_of_pairs(pairs: exp.Expr, values: Sequence[exp.Expr], parts: Sequence[exp.Expr] = ()) -> exp.Select:
    """The maximum number of rows that `group_pairs` with the same values have in common: the values, and ``row_count``.

    A group has at most its rows in a combination, however many groups of the other release it matches there. ``parts``
    are columns in which the groups of a pair are equal: as no group is in two parts, their bounds add up.
    """
    return template("""
        WITH
            first_groups AS (
                SELECT :by, least(sum(row_count), min(first_rows)) AS row_count
                FROM :pairs AS pairs
                GROUP BY :by, first_group
            ),
            second_groups AS (
                SELECT :by, least(sum(row_count), min(second_rows)) AS row_count
                FROM :pairs AS pairs
                GROUP BY :by, second_group
            ),
            bounds AS (
                SELECT :by, sum(row_count) AS row_count FROM first_groups GROUP BY :by
                UNION ALL
                SELECT :by, sum(row_count) AS row_count FROM second_groups GROUP BY :by
            ),
            least_bounds AS (
                SELECT :by, min(row_count) AS row_count FROM bounds GROUP BY :by
            )
        SELECT :values, sum(row_count)::BIGINT AS row_count
        FROM least_bounds
        GROUP BY :values
    """)(values=values, by=[*values, *parts], pairs=pairs)


def count_rows_in_pairs(pairs: exp.Query) -> exp.Expr:
    """The number of rows in `group_pairs`: each group counts once in either release; the smaller count."""
    bound = subquery(bound_rows_of_pairs(subquery(pairs), []))
    return value_or_zero(value=bound)


# --- Temporal attack


def temporal_attack(link: ReleaseLink, k: int, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """Classes of the second release in which some rows, but fewer than k, can be new: ``finest_0`` .. and
    ``row_count``.

    An attacker who knows that a person joined in between looks for them among the new rows. Rows of both releases are
    counted by shared values and labels at the coarser of the two levels: rows that the second has in excess are new.
    Where the second is finer, each of its classes may have all new rows; where labels have several levels, as many as
    `bound_unmatched_rows` says: ``unmatched`` are the rows of `labelled_unmatched` then.

    For the rows that are gone, give the link `ReleaseLink.in_reverse`.
    """
    query = few_new_rows_in_classes(link, k)
    if link.multilevel_attributes:
        query = add_unmatched(query, link, unmatched)
    return with_comparison_parts(query, link)


def few_new_rows_in_classes(link: ReleaseLink, k: int) -> exp.Select:
    """The query of `temporal_attack`: it reads `comparison_parts`, and `UNMATCHED` where labels have several levels."""
    attributes = [i for i, _ in link.side(is_first=False)[1]]
    return template("""
        SELECT :output, sum(row_count)::BIGINT AS row_count
        FROM :new AS new
        GROUP BY :labels
        HAVING sum(row_count)::BIGINT BETWEEN 1 AND :most
    """)(
        output=[as_column(col(f"label_{i}"), f"finest_{i}") for i in attributes],
        new=new_rows(link, [col(f"label_{i}", "b") for i in attributes]),
        labels=[col(f"label_{i}") for i in attributes],
        most=k - 1,
    )


def new_rows(link: ReleaseLink, columns: Sequence[exp.Expr]) -> exp.Select:
    """Columns of the groups of the second release, ``b``, and the most rows of each that can be new: ``row_count``."""
    if link.multilevel_attributes:
        # Labels have several levels: the most rows that can be new.
        return template("""
            SELECT :columns, u.most AS row_count
            FROM "sqlanon second" AS b
            JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.group_id = b.group_id
        """)(columns=columns)
    # All levels are known: groups match by their keys. Where releases have most rows in common, few keys gain rows.
    return template("""
        WITH
            first_counts AS (
                SELECT :keys, sum(row_count)::BIGINT AS row_count FROM "sqlanon first" AS groups GROUP BY :keys
            ),
            second_counts AS (
                SELECT :keys, sum(row_count)::BIGINT AS row_count FROM "sqlanon second" AS groups GROUP BY :keys
            ),
            excess AS (
                SELECT :second_keys, b.row_count - coalesce(a.row_count, 0) AS row_count
                FROM second_counts AS b
                LEFT JOIN first_counts AS a ON :keys_match
                WHERE b.row_count > coalesce(a.row_count, 0)
            )
        SELECT :columns, least(b.row_count, excess.row_count) AS row_count
        FROM "sqlanon second" AS b
        JOIN excess ON :same_key
    """)(
        columns=columns,
        keys=cols(link.key),
        second_keys=cols(link.key, "b"),
        keys_match=keys_match(link),
        same_key=same_values(link.key, "b", "excess"),
    )


# --- Unmatched rows

_UNMATCHED_ROWS = template("""
    WITH
        groups AS (
            SELECT true AS is_first, g.group_id, g.row_count, c.component
            FROM :first AS g
            LEFT JOIN :components AS c ON c.node = 2 * g.group_id
            UNION ALL
            SELECT false AS is_first, g.group_id, g.row_count, c.component
            FROM :second AS g
            LEFT JOIN :components AS c ON c.node = (2 * g.group_id) + 1
        ),
        counted AS (
            SELECT
                *,
                sum(row_count) OVER (PARTITION BY component, is_first) AS release_rows,
                sum(row_count) OVER (PARTITION BY component)
                    - sum(row_count) OVER (PARTITION BY component, is_first) AS other_rows,
                row_number() OVER (PARTITION BY component, is_first ORDER BY group_id) AS position
            FROM groups
        )
    SELECT
        s.is_first,
        s.group_id,
        CASE
            WHEN s.component IS NULL THEN s.row_count
            WHEN r.component IS NULL THEN least(s.row_count, greatest(s.release_rows - s.other_rows, 0))
            ELSE coalesce(f.most, 0)
        END::BIGINT AS most,
        CASE
            WHEN s.component IS NULL THEN s.row_count
            WHEN r.component IS NULL AND s.position = 1 THEN greatest(s.release_rows - s.other_rows, 0)
            WHEN r.component IS NULL THEN 0
            ELSE coalesce(f.row_count, 0)
        END::BIGINT AS row_count
    FROM counted AS s
    LEFT JOIN (SELECT DISTINCT component FROM :irregular AS e) AS r ON r.component = s.component
    LEFT JOIN :flows AS f ON f.is_first = s.is_first AND f.group_id = s.group_id
""")
_UNMATCHED_TYPES = {"is_first": "BOOLEAN", "group_id": "BIGINT", "most": "BIGINT", "row_count": "BIGINT"}


def bound_unmatched_rows(graph: OverlapGraph, first: exp.Expr, second: exp.Expr) -> exp.Select:
    """The groups of both releases, ``is_first`` and ``group_id``, with the ``most`` of their rows that can be new or
    gone.

    ``row_count`` is the number of unmatched rows in one maximum flow: its sum over the groups of a component is the
    number of rows that are new or gone in every maximum flow.

    Raises
    ------
    TooManyStepsError
        The flows take too many steps.
    """
    return _UNMATCHED_ROWS(
        first=first,
        second=second,
        components=graph.components,
        irregular=graph.irregular,
        flows=subquery(values_query(_UNMATCHED_TYPES, [*graph.flows.unmatched_groups()])),
    )


def labelled_unmatched(link: ReleaseLink) -> exp.Select:
    """The rows of `UNMATCHED` that can be new or gone, with the labels and shared values of their groups as texts."""
    queries = []
    for release, is_first in ((FIRST, True), (SECOND, False)):
        columns = link.group_columns(is_first)
        labels: list[exp.Expr] = [
            as_column(cast(col(name, "g") if name in columns else exp.null(), "VARCHAR"), name)
            for name in link.all_group_columns
        ]
        query = template("""
            SELECT u.is_first, u.most, u.row_count, :labels
            FROM :groups AS g
            JOIN "sqlanon unmatched" AS u ON u.is_first = :is_first AND u.group_id = g.group_id
            WHERE u.most > 0
        """)
        queries.append(query(labels=labels, groups=table(release), is_first=exp.convert(is_first)))
    return select_star(subquery(union_all(*queries), "u"))


def add_unmatched(query: exp.Select, link: ReleaseLink, rows: Sequence[Sequence[Any]]) -> exp.Select:
    """Add the table `UNMATCHED`, made of the rows of `labelled_unmatched`, to a query that reads it."""
    types = {name: type_ for name, type_ in _UNMATCHED_TYPES.items() if name != "group_id"}
    labelled = values_query({**types, **dict.fromkeys(link.all_group_columns, "VARCHAR")}, rows)
    unmatched = [
        template("""
            SELECT x.is_first, g.group_id, x.most, x.row_count
            FROM :labelled AS x
            JOIN :groups AS g ON x.is_first = :is_first AND :same_labels
        """)(
            labelled=labelled.copy(),
            groups=table(release),
            is_first=exp.convert(is_first),
            same_labels=same_texts(link.group_columns(is_first), "g", "x"),
        )
        for release, is_first in ((FIRST, True), (SECOND, False))
    ]
    return prepend_ctes(query, {UNMATCHED: union_all(*unmatched)})


# --- New rows in unions of classes
#
# A row that one class gained may be a row that an overlapping class lost, but no row leaves a union of such classes:
# rows that it has in excess in the second release, by shared values, are new. A region is a connected component of
# classes of both releases that can have rows in common. Masked rows are part of no region: they are a class.

Union: TypeAlias = Literal["class", "region", "table"]
"""The compared unions of classes: classes with equal labels, regions, and the table."""

REGIONS = "sqlanon regions"
"""The table of `make_regions`, within a statement."""

_REGIONS = template("""
    SELECT c.* REPLACE (r.component AS region)
    FROM :classes AS c
    JOIN :components AS r ON r.node = c.region
""")


def few_new_rows_in_unions(link: ReleaseLink, k: int, union: Union) -> exp.Select:
    """Unions of classes of both releases with some new rows, but fewer than k: ``row_count``, and the labels of a
    class, ``finest_0`` ..

    The rows of a union are counted by shared values. For rows that are gone, give the link `ReleaseLink.in_reverse`.
    The query reads `comparison_parts`, and `REGIONS` and `UNMATCHED` for a region.
    """
    by = cols(union_columns(link, union))
    labels: list[exp.Expr] = [as_column(col(f"label_{i}"), f"finest_{i}") for i, _ in link.shared_attributes]
    return template("""
        SELECT :output, sum(row_count)::BIGINT AS row_count
        FROM :rows AS u
        GROUP BY :by
        HAVING sum(row_count)::BIGINT BETWEEN 1 AND :most AND sum(first_rows) > 0
    """)(
        output=labels if union == "class" and labels else by,
        rows=new_rows_in_unions(link, union),
        by=by,
        most=k - 1,
    )


def union_columns(link: ReleaseLink, union: Union) -> list[str]:
    """The columns that distinguish unions of classes: labels, the number of a region, or one for the whole table."""
    if union == "region":
        return ["region"]
    return (_shared_labels(link) if union == "class" else []) or ["whole"]


def _shared_labels(link: ReleaseLink) -> list[str]:
    return [f"label_{i}" for i, _ in link.shared_attributes]


def new_rows_in_unions(link: ReleaseLink, union: Union) -> exp.Select:
    """The rows that are new in unions of classes, by `union_columns` and shared values: ``row_count``.

    ``first_rows`` is 0 where the first release has no row.
    """
    names, shared = union_columns(link, union), link.shared_columns
    if union == "region":
        # Rows that leave one class of a region may come to another: rows that the flow between them does not match are
        # new.
        return template("""
            SELECT g.region, :shared, sum(u.row_count)::BIGINT AS row_count, 1 AS first_rows
            FROM (
                SELECT g.*, r.region
                FROM "sqlanon second" AS g
                JOIN "sqlanon regions" AS r ON NOT r.is_first AND :same_labels
            ) AS g
            JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.group_id = g.group_id
            GROUP BY g.region, :shared
        """)(shared=cols(shared, "g"), same_labels=same_values(_shared_labels(link), "g", "r"))
    by_group = [as_column(number(1), "whole")] if names == ["whole"] else cols(names, "g")
    return template("""
        SELECT
            :by,
            :shared,
            greatest(sum(second_rows) - sum(first_rows), 0)::BIGINT AS row_count,
            sum(first_rows)::BIGINT AS first_rows
        FROM (
            SELECT :by_group, :shared_of_group, row_count AS first_rows, 0 AS second_rows FROM "sqlanon first" AS g
            UNION ALL
            SELECT :by_group, :shared_of_group, 0 AS first_rows, row_count AS second_rows FROM "sqlanon second" AS g
        ) AS g
        GROUP BY :by, :shared
    """)(by=cols(names), shared=cols(shared), by_group=by_group, shared_of_group=cols(shared, "g"))


def _classes(link: ReleaseLink) -> exp.Select:
    return template("""
        SELECT *, row_number() OVER () AS region
        FROM (
            SELECT DISTINCT true AS is_first, :labels FROM "sqlanon first" AS g
            UNION ALL
            SELECT DISTINCT false AS is_first, :labels FROM "sqlanon second" AS g
        ) AS c
    """)(labels=cols(_shared_labels(link), "g"))


def _edges(link: ReleaseLink, classes: exp.Table) -> exp.Select:
    """The classes of the two releases that can have rows in common: ``first_node``, ``second_node``."""
    longest = len(link.multilevel_attributes)
    return template("""
        SELECT DISTINCT a.region AS first_node, b.region AS second_node
        FROM :matching_prefixes AS m
        JOIN (
            SELECT DISTINCT :prefix AS prefix, c.region
            FROM "sqlanon first" AS g
            JOIN :classes AS c ON c.is_first AND :same_labels
        ) AS a ON a.prefix = m.first_prefix
        JOIN (
            SELECT DISTINCT :prefix AS prefix, c.region
            FROM "sqlanon second" AS g
            JOIN :classes AS c ON NOT c.is_first AND :same_labels
        ) AS b ON b.prefix = m.second_prefix
    """)(
        matching_prefixes=table(matching_prefixes_name(longest)),
        prefix=col(f"prefix_{longest}", "g"),
        classes=classes,
        same_labels=same_values(_shared_labels(link), "g", "c"),
    )


def make_regions(
    engine: Engine, work: Namer, link: ReleaseLink, with_tables: Callable[[exp.Select], exp.Select]
) -> exp.Table:
    """Make the table of the classes of both releases with their ``region``: ``is_first``, and the labels ``label_0`` ..

    ``with_tables`` makes a query read tables in place of the parts that `comparison_parts` names.
    """
    classes, edges, regions = (work(f"joint {name}") for name in ("classes", "edges", "regions"))
    engine.execute(create_table(classes.copy(), with_tables(_classes(link))))
    engine.execute(create_table(edges.copy(), with_tables(_edges(link, classes))))
    nodes = subquery(template("SELECT region AS node FROM :classes AS c")(classes=classes))
    components = connect(engine, work, "joint components", nodes, edges)
    engine.execute(create_table(regions.copy(), _REGIONS(classes=classes, components=components)))
    for target in (classes, edges, components):
        engine.execute(drop_table(target))
    return regions


def readable_unions(link: ReleaseLink, k: int, union: Union, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """`few_new_rows_in_unions` as one statement with the regions.

    Only for few classes: the statement enumerates all pairs of classes of a region.

    >>> from sqlanon.ledger.joint.label_pairs import LinkedAttribute
    >>> attribute = LinkedAttribute("x", "x", "x", (0, 1), (0, 1), table("h"), height=1)
    >>> link = ReleaseLink(table("one"), table("two"), (), (attribute,))
    >>> readable_unions(link, 5, "region").args["with_"].args["recursive"]
    True
    """
    query = few_new_rows_in_unions(link, k, union)
    if union == "region":
        query = add_regions(add_unmatched(query, link, unmatched), link)
    return with_comparison_parts(query, link)


def add_regions(query: exp.Select, link: ReleaseLink) -> exp.Select:
    """Add the table `REGIONS` to a query of both releases that reads it: the statement is recursive then."""
    classes, edges = table("sqlanon classes"), table("sqlanon edges")
    either_direction = fragment("""
        SELECT first_node, second_node FROM :edges AS e
        UNION ALL
        SELECT second_node AS first_node, first_node AS second_node FROM :edges AS e
    """)(edges=_edges(link, classes))
    reached = fragment("""
        SELECT region AS node, region AS component FROM "sqlanon classes" AS c
        UNION
        SELECT e.second_node AS node, r.component
        FROM "sqlanon reached" AS r
        JOIN "sqlanon edges" AS e ON e.first_node = r.node
    """)()
    components = template('SELECT node, min(component) AS component FROM "sqlanon reached" AS r GROUP BY node')()
    regions = _REGIONS(classes=classes, components=components)
    parts = {classes.name: _classes(link), edges.name: either_direction, "sqlanon reached": reached, REGIONS: regions}
    return prepend_ctes(query, parts, recursive=True)
