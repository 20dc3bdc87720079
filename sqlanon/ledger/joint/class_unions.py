"""Count new rows in unions of classes that no row can leave: a class of both releases, overlapping classes, the table.

A row that one class gained may be a row that an overlapping class lost, but no row leaves a union of such classes: rows
that it has in excess in the second release, by shared values, are new. A *region* is a connected component of classes
of both releases that can have rows in common. Masked rows are part of no region; their label is a class of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.ledger.joint.attacks import add_unmatched
from sqlanon.ledger.joint.overlaps import connect
from sqlanon.ledger.joint.row_matching import ReleaseLink, matching_prefixes_name, with_comparison_parts
from sqlanon.support.expressions import (
    Namer,
    as_column,
    col,
    cols,
    create_table,
    drop_table,
    fragment,
    number,
    prepend_ctes,
    same_values,
    subquery,
    table,
    template,
)

Union: TypeAlias = Literal["class", "region", "table"]
"""The compared unions of classes: classes with equal labels, regions, and the table."""

REGIONS = "sqlanon regions"
"""The table of `make_regions`, within a statement."""

_NEW_ROWS = template("""
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
""")
# Rows that leave one class of a region may come to another: the rows that the flow between them leaves over are new.
_NEW_ROWS_OF_REGIONS = template("""
    SELECT g.region, :shared, sum(u.row_count)::BIGINT AS row_count, 1 AS first_rows
    FROM (
        SELECT g.*, r.region
        FROM "sqlanon second" AS g
        JOIN "sqlanon regions" AS r ON NOT r.is_first AND :same_labels
    ) AS g
    JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.group_id = g.group_id
    GROUP BY g.region, :shared
""")
_EDGES = template("""
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
""")
_REGIONS = template("""
    SELECT c.* REPLACE (r.component AS region)
    FROM :classes AS c
    JOIN :components AS r ON r.node = c.region
""")


def few_new_rows_in_unions(linked: ReleaseLink, k: int, union: Union) -> exp.Select:
    """Unions of classes of both releases with some new rows, but fewer than k: ``row_count``, and the labels of a
    class, ``finest_0`` ..

    The rows of a union are counted by shared values. For rows that are gone, give the link `ReleaseLink.in_reverse`.
    The query reads `comparison_parts`, and `REGIONS` and `UNMATCHED` for a region.
    """
    by = cols(union_columns(linked, union))
    labels: list[exp.Expr] = [as_column(col(f"label_{i}"), f"finest_{i}") for i, _ in linked.shared_attributes]
    return template("""
        SELECT :named, sum(row_count)::BIGINT AS row_count
        FROM :rows AS u
        GROUP BY :by
        HAVING sum(row_count)::BIGINT BETWEEN 1 AND :most AND sum(first_rows) > 0
    """)(
        named=labels if union == "class" and labels else by,
        rows=new_rows_in_unions(linked, union),
        by=by,
        most=k - 1,
    )


def union_columns(linked: ReleaseLink, union: Union) -> list[str]:
    """The columns that distinguish unions of classes: labels, the number of a region, or one for the whole table."""
    if union == "region":
        return ["region"]
    return (_shared_labels(linked) if union == "class" else []) or ["whole"]


def _shared_labels(linked: ReleaseLink) -> list[str]:
    return [f"label_{i}" for i, _ in linked.shared_attributes]


def new_rows_in_unions(linked: ReleaseLink, union: Union) -> exp.Select:
    """The rows that are new in unions of classes, by `union_columns` and shared values: ``row_count``.

    ``first_rows`` is 0 where the first release has no row.
    """
    names, shared = union_columns(linked, union), linked.shared_columns
    if union == "region":
        return _NEW_ROWS_OF_REGIONS(shared=cols(shared, "g"), same_labels=same_values(_shared_labels(linked), "g", "r"))
    by_group = [as_column(number(1), "whole")] if names == ["whole"] else cols(names, "g")
    return _NEW_ROWS(by=cols(names), shared=cols(shared), by_group=by_group, shared_of_group=cols(shared, "g"))


def _classes(linked: ReleaseLink) -> exp.Select:
    return template("""
        SELECT *, row_number() OVER () AS region
        FROM (
            SELECT DISTINCT true AS is_first, :labels FROM "sqlanon first" AS g
            UNION ALL
            SELECT DISTINCT false AS is_first, :labels FROM "sqlanon second" AS g
        ) AS c
    """)(labels=cols(_shared_labels(linked), "g"))


def _edges(linked: ReleaseLink, classes: exp.Table) -> exp.Select:
    """The classes of the two releases that can have rows in common: ``first_node``, ``second_node``."""
    longest = len(linked.multilevel_attributes)
    return _EDGES(
        matching_prefixes=table(matching_prefixes_name(longest)),
        prefix=col(f"prefix_{longest}", "g"),
        classes=classes,
        same_labels=same_values(_shared_labels(linked), "g", "c"),
    )


def make_regions(
    engine: Engine, work: Namer, linked: ReleaseLink, with_tables: Callable[[exp.Select], exp.Select]
) -> exp.Table:
    """Make the table of the classes of both releases with their ``region``: ``is_first``, and the labels ``label_0`` ..

    ``with_tables`` makes a query read tables in place of the parts that `comparison_parts` names.
    """
    classes, edges, regions = (work(f"joint {name}") for name in ("classes", "edges", "regions"))
    engine.execute(create_table(classes.copy(), with_tables(_classes(linked))))
    engine.execute(create_table(edges.copy(), with_tables(_edges(linked, classes))))
    nodes = subquery(template("SELECT region AS node FROM :classes AS c")(classes=classes))
    components = connect(engine, work, "joint components", nodes, edges)
    engine.execute(create_table(regions.copy(), _REGIONS(classes=classes, components=components)))
    for target in (classes, edges, components):
        engine.execute(drop_table(target))
    return regions


def readable_unions(linked: ReleaseLink, k: int, union: Union, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """`few_new_rows_in_unions` as one statement with the regions.

    It is for few classes, as it makes all pairs of classes of a region.

    >>> from sqlanon.ledger.joint.label_pairs import LinkedAttribute
    >>> attribute = LinkedAttribute("x", "x", "x", (0, 1), (0, 1), table("h"), height=1)
    >>> linked = ReleaseLink(table("one"), table("two"), (), (attribute,))
    >>> readable_unions(linked, 5, "region").args["with_"].args["recursive"]
    True
    """
    query = few_new_rows_in_unions(linked, k, union)
    if union == "region":
        query = add_regions(add_unmatched(query, linked, unmatched), linked)
    return with_comparison_parts(query, linked)


def add_regions(query: exp.Select, linked: ReleaseLink) -> exp.Select:
    """Add the table `REGIONS` to a query of both releases that reads it: the statement is recursive then."""
    classes, edges = table("sqlanon classes"), table("sqlanon edges")
    either_direction = fragment("""
        SELECT first_node, second_node FROM :edges AS e
        UNION ALL
        SELECT second_node AS first_node, first_node AS second_node FROM :edges AS e
    """)(edges=_edges(linked, classes))
    reached = fragment("""
        SELECT region AS node, region AS component FROM "sqlanon classes" AS c
        UNION
        SELECT e.second_node AS node, r.component
        FROM "sqlanon reached" AS r
        JOIN "sqlanon edges" AS e ON e.first_node = r.node
    """)()
    components = template('SELECT node, min(component) AS component FROM "sqlanon reached" AS r GROUP BY node')()
    regions = _REGIONS(classes=classes, components=components)
    parts = {classes.name: _classes(linked), edges.name: either_direction, "sqlanon reached": reached, REGIONS: regions}
    return prepend_ctes(query, parts, recursive=True)
