"""Count new rows in unions of classes that no row can leave: a class that both releases have, classes that overlap, the
whole table.

Where labels are of several levels, a class of one release overlaps several of the other, and what one has gained
another may have lost. Of a union that no row can leave, counts tell more: whatever its classes are in either release,
the rows that the second has more, by the values that both show unchanged, are new.

A *region* is a connected component of the graph whose nodes are the classes of both releases, and whose edges are pairs
of classes that can have rows in common. Rows that are masked could be of any class: they are no part of a region, and
their label is a class of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.ledger.joint.attacks import add_unmatched
from sqlanon.ledger.joint.overlaps import connect
from sqlanon.ledger.joint.row_matching import FIRST, SECOND, ReleaseLink, matching_prefixes_name, with_comparison_parts
from sqlanon.support.expressions import (
    Namer,
    all_of,
    col,
    create_table,
    drop_table,
    ident,
    named,
    number,
    same,
    subquery,
    table,
    template,
    union_all,
)

Union: TypeAlias = Literal["class", "region", "table"]
"""The unions of classes that are compared: classes with equal labels, regions, and the table."""

REGIONS = "sqlanon regions"
"""The table of `make_regions`, within a statement."""

Place: TypeAlias = Callable[[exp.Select], exp.Select]

_NEW = template("""
    SELECT :named, sum(n)::BIGINT AS n
    FROM :rows AS u
    GROUP BY :by
    HAVING sum(n)::BIGINT BETWEEN 1 AND :most AND sum(n_a) > 0
""")
_NEW_ROWS = template("""
    SELECT :by, :shared, greatest(sum(n_b) - sum(n_a), 0)::BIGINT AS n, sum(n_a)::BIGINT AS n_a
    FROM :both AS g
    GROUP BY :by, :shared
""")
# What leaves one class of a region may come to another: what is new is what is left over of the flow between them.
_NEW_BY_FLOWS = template("""
    SELECT g.region, :shared, sum(u.n)::BIGINT AS n, 1 AS n_a
    FROM :groups AS g
    JOIN "sqlanon unmatched" AS u ON NOT u.is_first AND u.i = g.i
    GROUP BY g.region, :shared
""")
_FIRST_ROWS = template("SELECT :by, :shared, n AS n_a, 0 AS n_b FROM :groups AS g")
_SECOND_ROWS = template("SELECT :by, :shared, 0 AS n_a, n AS n_b FROM :groups AS g")
_WITH_REGION = template("""
    SELECT g.*, r.region
    FROM :groups AS g
    JOIN "sqlanon regions" AS r ON r.is_first = :is_first AND :same
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
    FROM :met AS m
    JOIN (
        SELECT DISTINCT :prefix AS prefix, c.region
        FROM "sqlanon first" AS g
        JOIN :classes AS c ON c.is_first AND :same
    ) AS a ON a.prefix = m.a
    JOIN (
        SELECT DISTINCT :prefix AS prefix, c.region
        FROM "sqlanon second" AS g
        JOIN :classes AS c ON NOT c.is_first AND :same
    ) AS b ON b.prefix = m.b
""")
# The same in one statement: all pairs of a region are made for it.
_REACHED_FIRST = template('SELECT region AS node, region AS component FROM "sqlanon classes" AS c')
_REACHED_NEXT = template("""
    SELECT e.b AS node, r.component
    FROM "sqlanon reached" AS r
    JOIN "sqlanon edges" AS e ON e.a = r.node
""")
_BACKWARDS = template("SELECT b AS a, a AS b FROM :edges AS e")
_LEAST = template('SELECT node, min(component) AS component FROM "sqlanon reached" AS r GROUP BY node')
_SWAPPED = template("SELECT * REPLACE (NOT is_first AS is_first) FROM :regions AS r")
_REGIONS = template(
    "SELECT c.* REPLACE (r.component AS region) FROM :classes AS c JOIN :components AS r ON r.node = c.region"
)
_NODES = template("SELECT region AS node FROM :classes AS c")


def few_new_rows_in_unions(linked: ReleaseLink, k: int, union: Union) -> exp.Select:
    """Unions of classes that both releases have, with some new rows, but fewer than k: ``n``, and of a class its
    labels, ``finest_0`` ..

    The rows of a union are counted by shared values. For the rows that are gone, give the link `ReleaseLink.swapped`.
    The query reads `comparison_parts`, and `REGIONS` and `UNMATCHED` for a region.
    """
    by = union_columns(linked, union)
    shown = (
        [named(col(f"label_{i}"), f"finest_{i}") for i, _ in linked.shared_attributes]
        if union == "class" and linked.shared_attributes
        else [*map(col, by)]
    )
    return _NEW(named=shown, rows=subquery(new_rows_in_unions(linked, union)), by=[*map(col, by)], most=k - 1)


def union_columns(linked: ReleaseLink, union: Union) -> list[str]:
    """The columns that tell unions of classes apart: labels, the number of a region, or one for the whole table."""
    match union:
        case "class" if linked.shared_attributes:
            return [f"label_{i}" for i, _ in linked.shared_attributes]
        case "region":
            return ["region"]
        case _:
            return ["whole"]


def new_rows_in_unions(linked: ReleaseLink, union: Union) -> exp.Select:
    """The rows that are new in unions of classes, by `union_columns` and shared values: ``n``; ``n_a``, if not 0, were
    there before."""
    names = union_columns(linked, union)
    by: list[exp.Expr] = [named(number(1), "whole")] if names == ["whole"] else [col(name, "g") for name in names]
    shared = [f"shared_{j}" for j in range(len(linked.shared))]
    values = [col(name, "g") for name in shared]
    if union == "region":
        return _NEW_BY_FLOWS(shared=values, groups=_groups(linked, union, is_first=False))
    rows = union_all(
        _FIRST_ROWS(by=by, shared=values, groups=_groups(linked, union, is_first=True)),
        _SECOND_ROWS(by=by, shared=values, groups=_groups(linked, union, is_first=False)),
    )
    return _NEW_ROWS(by=[*map(col, names)], shared=[*map(col, shared)], both=subquery(rows))


def _groups(linked: ReleaseLink, union: Union, is_first: bool) -> exp.Expr:
    groups = table(FIRST if is_first else SECOND)
    if union != "region":
        return groups
    return subquery(_WITH_REGION(groups=groups, is_first=exp.convert(is_first), same=_same_labels(linked, "r")))


def _same_labels(linked: ReleaseLink, other: str) -> exp.Expr:
    return all_of(same(col(f"label_{i}", "g"), col(f"label_{i}", other)) for i, _ in linked.shared_attributes)


def _labels(linked: ReleaseLink) -> list[exp.Expr]:
    return [col(f"label_{i}", "g") for i, _ in linked.shared_attributes]


def _edges(linked: ReleaseLink, classes: exp.Table) -> exp.Select:
    """The classes of the two releases that can have rows in common: their numbers, ``a`` and ``b``."""
    last = len(linked.multilevel_attributes)
    return _EDGES(
        met=table(matching_prefixes_name(last)),
        prefix=col(f"prefix_{last}", "g"),
        classes=classes,
        same=_same_labels(linked, "c"),
    )


def make_regions(engine: Engine, work: Namer, linked: ReleaseLink, place: Place) -> exp.Table:
    """Make the table of the classes of both releases with their ``region``: ``is_first``, and the labels ``label_0`` ..

    Parameters
    ----------
    place:
        Puts tables in the place of the parts of a query, as `comparison_parts` names them.
    """
    classes, edges, regions = (work(f"joint {name}") for name in ("classes", "edges", "regions"))
    tables = {
        classes: place(_CLASSES(labels=_labels(linked))),
        edges: place(_edges(linked, classes)),
    }
    for target, query in tables.items():
        engine.execute(create_table(target.copy(), query))
    components = connect(engine, work, "joint components", subquery(_NODES(classes=classes)), edges)
    engine.execute(create_table(regions.copy(), _REGIONS(classes=classes, components=components)))
    for one in (classes, edges, components):
        engine.execute(drop_table(one))
    return regions


def readable_unions(linked: ReleaseLink, k: int, union: Union, unmatched: Sequence[Sequence[Any]] = ()) -> exp.Select:
    """`few_new_rows_in_unions` as one statement, with the regions: for few classes, as it takes all pairs of those in a
    region.

    >>> from sqlanon.ledger.joint.row_matching import LinkedAttribute
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
    """A query of both releases, as `with_comparison_parts` makes it, with the regions that it reads."""
    classes, edges = table("sqlanon classes"), table("sqlanon edges")
    parts: dict[str, exp.Query] = {
        classes.name: _CLASSES(labels=_labels(linked)),
        edges.name: union_all(_edges(linked, classes), _BACKWARDS(edges=subquery(_edges(linked, classes)))),
        "sqlanon reached": exp.union(_REACHED_FIRST(), _REACHED_NEXT()),
        REGIONS: _REGIONS(classes=classes, components=subquery(_LEAST())),
    }
    # Before what reads them: an engine knows a part from those above it.
    ctes = exp.Select()
    for name, part in parts.items():
        ctes.with_(ident(name), as_=part, copy=False)
    with_ = query.args["with_"]
    own = [one for one in with_.expressions if reads_table(one, REGIONS)]
    others = [one for one in with_.expressions if not reads_table(one, REGIONS)]
    query.set("with_", exp.With(expressions=[*others, *ctes.args["with_"].expressions, *own], recursive=True))
    return query


def reads_table(part: exp.Expr, name: str) -> bool:
    """Whether a part of a statement reads a table."""
    return any(one.name == name for one in part.find_all(exp.Table))


def swap_releases(regions: exp.Expr) -> exp.Select:
    """The table of `make_regions`, of the releases in the other order."""
    return _SWAPPED(regions=regions)
