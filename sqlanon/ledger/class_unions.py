"""What two releases show of unions of their classes: a class that both have, classes that overlap, the whole table.

Where labels are of several levels, a class of one release overlaps several of the other, and what one has gained
another may have lost. Of a union that no row can leave, counts tell more: whatever its classes are in either release,
the rows that the second has more, by the values that both show unchanged, are new.

A *region* is a connected component of the graph whose nodes are the classes of both releases, and whose edges are pairs
of classes that can have rows in common. Rows that are masked could be of any class: they are no part of a region, and
their label is a class of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.expressions import (
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
from sqlanon.ledger.row_matching import FIRST, SECOND, ReleaseLink, both_grouped, met_name

Union: TypeAlias = Literal["class", "region", "table"]
"""The unions of classes that are compared: classes with equal labels, regions, and the table."""

REGIONS = "sqlanon regions"
"""The table of `make_regions`, within a statement."""

Place: TypeAlias = Callable[[exp.Select], exp.Select]

_NEW = template("""
    SELECT :named, sum(n)::BIGINT AS n
    FROM (
        SELECT :by, greatest(sum(n_b) - sum(n_a), 0)::BIGINT AS n, sum(n_a) AS n_a
        FROM :both AS g
        GROUP BY :by, :shared
    ) AS u
    GROUP BY :by
    HAVING sum(n)::BIGINT BETWEEN 1 AND :most AND sum(n_a) > 0
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
_ROOTS = template("SELECT region AS class, region FROM :classes AS c")
# The least region of a class and its neighbours; then the region of that one, which halves the way to the least of all.
_NEARER = template("""
    WITH nearest AS MATERIALIZED (
        SELECT c.class, least(c.region, min(n.region)) AS region
        FROM :regions AS c
        LEFT JOIN (
            SELECT e.a AS class, r.region FROM :edges AS e JOIN :regions AS r ON r.class = e.b
            UNION ALL
            SELECT e.b AS class, r.region FROM :edges AS e JOIN :regions AS r ON r.class = e.a
        ) AS n ON n.class = c.class
        GROUP BY c.class, c.region
    )
    SELECT n.class, r.region
    FROM nearest AS n
    JOIN nearest AS r ON r.class = n.region
""")
_MOVED = template("SELECT count(*) FROM :before AS b JOIN :after AS a ON a.class = b.class WHERE a.region <> b.region")
# The same in one statement: all pairs of a region are made for it.
_REACHED_FIRST = template('SELECT region AS class, region FROM "sqlanon classes" AS c')
_REACHED_NEXT = template("""
    SELECT e.b AS class, r.region
    FROM "sqlanon reached" AS r
    JOIN "sqlanon edges" AS e ON e.a = r.class
""")
_BACKWARDS = template("SELECT b AS a, a AS b FROM :edges AS e")
_LEAST = template('SELECT class, min(region) AS region FROM "sqlanon reached" AS r GROUP BY class')
_SWAPPED = template("SELECT * REPLACE (NOT is_first AS is_first) FROM :regions AS r")
_REGIONS = template(
    "SELECT c.* REPLACE (r.region AS region) FROM :classes AS c JOIN :regions AS r ON r.class = c.region"
)


def new_in_unions(linked: ReleaseLink, k: int, union: Union) -> exp.Select:
    """Unions of classes that both releases have, with some new rows, but fewer than k: ``n``, and of a class its
    labels, ``v0`` ..

    The rows of a union are counted by shared values. For the rows that are gone, give the link `ReleaseLink.swapped`.
    """
    labels = [(i, f"l{i}") for i, _ in linked.both]
    own: list[exp.Expr] = [col(name, "g") for _, name in labels]
    shown: list[exp.Expr] = [named(col(name), f"v{i}") for i, name in labels]
    match union:
        case "class" if labels:
            by = own
        case "region":
            by, shown = [col("region", "g")], [col("region")]
        case _:
            by, shown = [named(number(1), "whole")], []
    names = [one.alias_or_name for one in by]
    shared = [f"s{j}" for j in range(len(linked.shared))]
    values = [col(name, "g") for name in shared]
    rows = union_all(
        _FIRST_ROWS(by=by, shared=values, groups=_groups(linked, union, is_first=True)),
        _SECOND_ROWS(by=by, shared=values, groups=_groups(linked, union, is_first=False)),
    )
    query = _NEW(named=shown, by=[*map(col, names)], shared=[*map(col, shared)], both=subquery(rows), most=k - 1)
    return both_grouped(query, linked, finest=None)


def _groups(linked: ReleaseLink, union: Union, is_first: bool) -> exp.Expr:
    groups = table(FIRST if is_first else SECOND)
    if union != "region":
        return groups
    return subquery(_WITH_REGION(groups=groups, is_first=exp.convert(is_first), same=_same_labels(linked, "r")))


def _same_labels(linked: ReleaseLink, other: str) -> exp.Expr:
    return all_of(same(col(f"l{i}", "g"), col(f"l{i}", other)) for i, _ in linked.both)


def _labels(linked: ReleaseLink) -> list[exp.Expr]:
    return [col(f"l{i}", "g") for i, _ in linked.both]


def _edges(linked: ReleaseLink, classes: exp.Table) -> exp.Select:
    """The classes of the two releases that can have rows in common: their numbers, ``a`` and ``b``."""
    last = len(linked.several_levels)
    return _EDGES(
        met=table(met_name(last)), prefix=col(f"p{last}", "g"), classes=classes, same=_same_labels(linked, "c")
    )


def make_regions(engine: Engine, work: Namer, linked: ReleaseLink, place: Place) -> exp.Table:
    """Make the table of the classes of both releases with their ``region``: ``is_first``, and the labels ``l0`` ..

    Parameters
    ----------
    place:
        Puts tables in the place of the parts of a query, as `both_grouped` names them.
    """
    classes, edges, regions = (work(f"joint {name}") for name in ("classes", "edges", "regions"))
    steps = 0

    def make(target: exp.Table, query: exp.Select) -> exp.Table:
        engine.execute(create_table(target.copy(), query))
        return target

    make(classes, place(both_grouped(_CLASSES(labels=_labels(linked)), linked, finest=None)))
    make(edges, place(both_grouped(_edges(linked, classes), linked, finest=None)))
    nearest = make(work("joint nearest 0"), _ROOTS(classes=classes))
    while True:
        steps += 1
        nearer = make(work(f"joint nearest {steps}"), _NEARER(regions=nearest, edges=edges))
        moved = engine.rows(_MOVED(before=nearest, after=nearer))[0][0]
        engine.execute(drop_table(nearest))
        nearest = nearer
        if not moved:
            break
    make(regions, _REGIONS(classes=classes, regions=nearest))
    for one in (classes, edges, nearest):
        engine.execute(drop_table(one))
    return regions


def shown_unions(linked: ReleaseLink, k: int, union: Union) -> exp.Select:
    """`new_in_unions` as one statement, with the regions: for few classes, as it takes all pairs of those in a region.

    >>> from sqlanon.ledger.row_matching import LinkedAttribute
    >>> attribute = LinkedAttribute("x", "x", "x", (0, 1), (0, 1), table("h"), height=1)
    >>> linked = ReleaseLink(table("one"), table("two"), (), (attribute,))
    >>> shown_unions(linked, 5, "region").args["with_"].args["recursive"]
    True
    """
    found = new_in_unions(linked, k, union)
    if union != "region":
        return found
    classes, edges = table("sqlanon classes"), table("sqlanon edges")
    parts: dict[str, exp.Query] = {
        classes.name: _CLASSES(labels=_labels(linked)),
        edges.name: union_all(_edges(linked, classes), _BACKWARDS(edges=subquery(_edges(linked, classes)))),
        "sqlanon reached": exp.union(_REACHED_FIRST(), _REACHED_NEXT()),
        REGIONS: _REGIONS(classes=classes, regions=subquery(_LEAST())),
    }
    for name, part in parts.items():
        found.with_(ident(name), as_=part, copy=False)
    found.args["with_"].set("recursive", True)
    return found


def swapped_regions(regions: exp.Expr) -> exp.Select:
    """The table of `make_regions`, of the releases in the other order."""
    return _SWAPPED(regions=regions)
