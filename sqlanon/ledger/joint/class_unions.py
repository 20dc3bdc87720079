"""Count new rows in unions of classes that no row can leave: a class of both releases, overlapping classes, the table.

Where labels have several levels, a class of one release overlaps several of the other, and a row that one class gained
may be a row that another class lost. No row can leave a union of such classes: so the rows that the union has in excess
in the second release, by the values that both releases show unchanged, are new.

A *region* is a connected component of the graph whose nodes are the classes of both releases, and whose edges are pairs
of classes that can have rows in common. Masked rows could belong to any class: they are not part of a region, and their
label is a class of its own.
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
    all_of,
    as_column,
    col,
    create_table,
    drop_table,
    ident,
    null_safe_equal,
    number,
    subquery,
    table,
    template,
    union_all,
)

Union: TypeAlias = Literal["class", "region", "table"]
"""The compared unions of classes: classes with equal labels, regions, and the table."""

REGIONS = "sqlanon regions"
"""The table of `make_regions`, within a statement."""

_FEW_NEW_ROWS = template("""
    SELECT :named, sum(n)::BIGINT AS n
    FROM :rows AS u
    GROUP BY :by
    HAVING sum(n)::BIGINT BETWEEN 1 AND :most AND sum(n_a) > 0
""")
_NEW_ROWS = template("""
    SELECT :by, :shared, greatest(sum(n_b) - sum(n_a), 0)::BIGINT AS n, sum(n_a)::BIGINT AS n_a
    FROM (
        SELECT :by_group, :shared_of_group, n AS n_a, 0 AS n_b FROM "sqlanon first" AS g
        UNION ALL
        SELECT :by_group, :shared_of_group, 0 AS n_a, n AS n_b FROM "sqlanon second" AS g
    ) AS g
    GROUP BY :by, :shared
""")
# Rows that leave one class of a region may come to another: the rows that the flow between them leaves over are new.
_NEW_ROWS_OF_REGIONS = template("""
    SELECT g.region, :shared, sum(u.n)::BIGINT AS n, 1 AS n_a
    FROM (
        SELECT g.*, r.region
        FROM "sqlanon second" AS g
        JOIN "sqlanon regions" AS r ON NOT r.is_first AND :same_labels
    ) AS g
    JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.i = g.i
    GROUP BY g.region, :shared
""")

_CLASSES = template("""
    SELECT *, row_number() OVER () AS region
    FROM (
        SELECT DISTINCT true AS is_first, :labels FROM "sqlanon first" AS g
        UNION ALL
        SELECT DISTINCT false AS is_first, :labels FROM "sqlanon second" AS g
    ) AS c
""")
_EDGES = template("""
    SELECT DISTINCT a.region AS a, b.region AS b
    FROM :matching_prefixes AS m
    JOIN (
        SELECT DISTINCT :prefix AS prefix, c.region
        FROM "sqlanon first" AS g
        JOIN :classes AS c ON c.is_first AND :same_labels
    ) AS a ON a.prefix = m.a
    JOIN (
        SELECT DISTINCT :prefix AS prefix, c.region
        FROM "sqlanon second" AS g
        JOIN :classes AS c ON NOT c.is_first AND :same_labels
    ) AS b ON b.prefix = m.b
""")
_REGIONS = template("""
    SELECT c.* REPLACE (r.component AS region)
    FROM :classes AS c
    JOIN :components AS r ON r.node = c.region
""")
# Regions within one statement: it makes all pairs of classes of a region.
_REACHED_FIRST = template('SELECT region AS node, region AS component FROM "sqlanon classes" AS c')
_REACHED_NEXT = template("""
    SELECT e.b AS node, r.component
    FROM "sqlanon reached" AS r
    JOIN "sqlanon edges" AS e ON e.a = r.node
""")
_LEAST_NODES = template('SELECT node, min(component) AS component FROM "sqlanon reached" AS r GROUP BY node')
_SWAPPED = template("SELECT * REPLACE (NOT is_first AS is_first) FROM :rows AS r")


def few_new_rows_in_unions(linked: ReleaseLink, k: int, union: Union) -> exp.Select:
    """Unions of classes of both releases with some new rows, but fewer than k: ``n``, and the labels of a class,
    ``finest_0`` ..

    The rows of a union are counted by shared values. For the rows that are gone, give the link `ReleaseLink.swapped`.
    The query reads `comparison_parts`, and `REGIONS` and `UNMATCHED` for a region.
    """
    by: list[exp.Expr] = [*map(col, union_columns(linked, union))]
    labels: list[exp.Expr] = [as_column(col(f"label_{i}"), f"finest_{i}") for i, _ in linked.shared_attributes]
    return _FEW_NEW_ROWS(
        named=labels if union == "class" and labels else by,
        rows=subquery(new_rows_in_unions(linked, union)),
        by=by,
        most=k - 1,
    )


def union_columns(linked: ReleaseLink, union: Union) -> list[str]:
    """The columns that distinguish unions of classes: labels, the number of a region, or one for the whole table."""
    match union:
        case "class" if linked.shared_attributes:
            return [f"label_{i}" for i, _ in linked.shared_attributes]
        case "region":
            return ["region"]
        case _:
            return ["whole"]


def new_rows_in_unions(linked: ReleaseLink, union: Union) -> exp.Select:
    """The rows that are new in unions of classes, by `union_columns` and shared values: ``n``.

    ``n_a`` is 0 where the first release has no row.
    """
    names = union_columns(linked, union)
    shared = [f"shared_{j}" for j in range(len(linked.shared))]
    shared_of_group = [col(name, "g") for name in shared]
    if union == "region":
        return _NEW_ROWS_OF_REGIONS(shared=shared_of_group, same_labels=_same_labels(linked, "r"))
    by_group: list[exp.Expr] = (
        [as_column(number(1), "whole")] if names == ["whole"] else [col(name, "g") for name in names]
    )
    return _NEW_ROWS(
        by=[*map(col, names)], shared=[*map(col, shared)], by_group=by_group, shared_of_group=shared_of_group
    )


def _same_labels(linked: ReleaseLink, alias: str) -> exp.Expr:
    return all_of(
        null_safe_equal(col(f"label_{i}", "g"), col(f"label_{i}", alias)) for i, _ in linked.shared_attributes
    )


def _classes(linked: ReleaseLink) -> exp.Select:
    return _CLASSES(labels=[col(f"label_{i}", "g") for i, _ in linked.shared_attributes])


def _edges(linked: ReleaseLink, classes: exp.Table) -> exp.Select:
    """The classes of the two releases that can have rows in common: their numbers, ``a`` and ``b``."""
    longest = len(linked.multilevel_attributes)
    return _EDGES(
        matching_prefixes=table(matching_prefixes_name(longest)),
        prefix=col(f"prefix_{longest}", "g"),
        classes=classes,
        same_labels=_same_labels(linked, "c"),
    )


def make_regions(
    engine: Engine, work: Namer, linked: ReleaseLink, with_tables: Callable[[exp.Select], exp.Select]
) -> exp.Table:
    """Make the table of the classes of both releases with their ``region``: ``is_first``, and the labels ``label_0`` ..

    Parameters
    ----------
    with_tables:
        Makes a query read tables in place of the parts that `comparison_parts` names.
    """
    classes, edges, regions = (work(f"joint {name}") for name in ("classes", "edges", "regions"))
    engine.execute(create_table(classes.copy(), with_tables(_classes(linked))))
    engine.execute(create_table(edges.copy(), with_tables(_edges(linked, classes))))
    components = connect(
        engine,
        work,
        "joint components",
        subquery(template("SELECT region AS node FROM :classes AS c")(classes=classes)),
        edges,
    )
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
    if union != "region":
        return with_comparison_parts(query, linked, finest=None)
    return add_regions(with_comparison_parts(add_unmatched(query, linked, unmatched), linked, finest=None), linked)


def add_regions(query: exp.Select, linked: ReleaseLink) -> exp.Select:
    """Add the table `REGIONS` to a query of both releases that reads it."""
    classes, edges = table("sqlanon classes"), table("sqlanon edges")
    parts: dict[str, exp.Query] = {
        classes.name: _classes(linked),
        edges.name: union_all(
            _edges(linked, classes),
            template("SELECT b AS a, a AS b FROM :edges AS e")(edges=subquery(_edges(linked, classes))),
        ),
        "sqlanon reached": exp.union(_REACHED_FIRST(), _REACHED_NEXT()),
        REGIONS: _REGIONS(classes=classes, components=subquery(_LEAST_NODES())),
    }
    regions = exp.Select()
    for name, part in parts.items():
        regions.with_(ident(name), as_=part, copy=False)
    # A part of a statement can only read the parts before it.
    existing = query.args["with_"].expressions
    reads_regions = [any(read.name == REGIONS for read in part.find_all(exp.Table)) for part in existing]
    before = [part for part, is_reader in zip(existing, reads_regions, strict=True) if not is_reader]
    readers = [part for part, is_reader in zip(existing, reads_regions, strict=True) if is_reader]
    query.set("with_", exp.With(expressions=[*before, *regions.args["with_"].expressions, *readers], recursive=True))
    return query


def swap_releases(rows: exp.Expr) -> exp.Select:
    """Rows with ``is_first`` of the releases in reverse order."""
    return _SWAPPED(rows=rows)
