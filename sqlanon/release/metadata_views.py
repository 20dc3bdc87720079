"""What a release file has for those who look: the stable view, views that tell about it, tables of labels, comments.

A file may be renamed and attached under any name: views name tables without a catalog. The schema is the main one,
where a reader looks first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from sqlanon.expressions import (
    cast,
    col,
    create_view,
    ident,
    is_there,
    named,
    number,
    select,
    subquery,
    table,
    text,
    total,
)
from sqlanon.policy.names import TOLD

OVERVIEW_COLUMNS = {
    "position": "INTEGER",
    "attribute": "VARCHAR",
    "role": "VARCHAR",
    "level": "INTEGER",
    "height": "INTEGER",
    "what_was_done": "VARCHAR",
}
"""Of ``sqlanon.attributes``."""

QUALITY_COLUMNS = {"position": "INTEGER", "figure": "VARCHAR", "value": "DOUBLE", "meaning": "VARCHAR"}
"""Of ``sqlanon.figures``. No view is called so: duckdb-engine takes tables of one name in two schemas for one."""

SUPPRESSION_COLUMNS = {
    "attribute": "VARCHAR",
    "value": "VARCHAR",
    "suppressed_rows": "BIGINT",
    "released_rows": "BIGINT",
}
"""Of ``sqlanon.suppression``."""


def stable_view(view: exp.Table, rows: exp.Table, columns: Sequence[str]) -> exp.Create:
    """The view that readers name, over the table of the newest version: a column list, and nothing more.

    >>> stable_view(table("patients"), table("patients_v3"), ["zip", "age"]).sql("duckdb")
    'CREATE VIEW "patients" AS SELECT "zip", "age" FROM "patients_v3"'
    """
    return create_view(view, select([col(one) for one in columns], rows))


def about_views(name: str, quasi: Sequence[str], catalog: str) -> list[exp.Create]:
    """The views that tell about a release: of its classes, and of our own tables."""
    queries = (
        _in_order("attributes", OVERVIEW_COLUMNS),
        class_sizes(table(name), quasi),
        select(list(map(col, SUPPRESSION_COLUMNS)), table("suppression", "sqlanon")),
        _in_order("figures", QUALITY_COLUMNS),
    )
    return [create_view(table(one, "main", catalog), query) for one, query in zip(TOLD, queries, strict=True)]


def _in_order(name: str, columns: Iterable[str]) -> exp.Query:
    shown: list[exp.Expr] = [col(one) for one in columns if one != "position"]
    return select(shown, table(name, "sqlanon")).order_by(col("position"), copy=False)


def class_sizes(relation: exp.Expr, quasi: Sequence[str]) -> exp.Query:
    """How many classes there are of each size: ``class_size``, ``classes``, ``rows``."""
    size = named(exp.Count(this=exp.Star()), "class_size")
    classes = select([size], relation, [col(one) for one in quasi])
    if not quasi:
        classes = classes.having(exp.Count(this=exp.Star()) > 0, copy=False)
    columns: list[exp.Expr] = [
        col("class_size"),
        named(exp.Count(this=exp.Star()), "classes"),
        named(total(col("class_size")), "rows"),
    ]
    query = select(columns, subquery(classes, "c"), [col("class_size")])
    return query.order_by(col("class_size"), copy=False)


def labels(attribute: str, relation: exp.Expr, bounds: tuple[exp.Expr, exp.Expr] | None) -> exp.Query:
    """The labels of an attribute that a release has, in order: those of no suppressed row."""
    there = select([col(attribute)], relation, [col(attribute)]).where(is_there(col(attribute)), copy=False)
    low, high = f"{attribute}_low", f"{attribute}_high"
    output: list[exp.Expr] = [col(attribute)]
    order: list[exp.Expr] = [exp.Ordered(this=col(attribute), nulls_first=False)]
    source: exp.Expr = subquery(there, "r")
    if bounds is not None:
        ends: list[exp.Expr] = [named(bounds[0], low), named(bounds[1], high)]
        source = subquery(select([col(attribute), *ends], source), "b")
        output += [col(low), col(high)]
        known = exp.Coalesce(this=col(low), expressions=[col(high)])
        # An end that is open downwards comes first; what has no ends at all, the top, last.
        order = [
            exp.Ordered(this=known, nulls_first=False),
            exp.Ordered(this=col(low), nulls_first=True),
            exp.Ordered(this=col(high), nulls_first=False),
            *order,
        ]
    place = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=order))
    output.insert(1, named(cast(place, "INTEGER"), f"{attribute}_order"))
    return select(output, source).order_by(col(f"{attribute}_order"), copy=False)


def comment(kind: str, target: exp.Expr, told: str) -> exp.Comment:
    """``COMMENT ON kind target IS 'told'``.

    >>> comment("TABLE", table("t"), "it's").sql("duckdb")
    'COMMENT ON TABLE "t" IS \\'it\\'\\'s\\''
    """
    return exp.Comment(this=target, kind=kind, expression=text(told))


def comment_on_column(relation: exp.Table, name: str, told: str) -> exp.Comment:
    """``COMMENT ON COLUMN relation.name IS 'told'``."""
    parts = relation.args
    column = exp.Column(this=ident(name), table=parts["this"], db=parts.get("db"), catalog=parts.get("catalog"))
    return comment("COLUMN", column.copy(), told)


def suppressed_by(
    values: exp.Expr, value: exp.Expr, known: exp.Expr, released: exp.Expr, column: str, least: int
) -> exp.Select:
    """What was suppressed of an attribute, by the labels that the release has: ``value``, ``suppressed_rows``,
    ``released_rows``; only where both are at least ``least``. ``labels`` counts all of them, those left out, too.
    """
    mine = select([named(value, "value"), named(total(col("rows")), "rows")], values, [value.copy()])
    mine = mine.where(known, copy=False)
    label = cast(col(column), "VARCHAR")
    theirs = select([named(label, "value"), named(exp.Count(this=exp.Star()), "rows")], released, [label.copy()])
    left_out = col("rows", "s") - col("rows", "r")
    enough = [(col(one) >= number(least)) for one in ("suppressed_rows", "released_rows")]
    on = exp.NullSafeEQ(this=col("value", "s"), expression=col("value", "r"))
    every = exp.Window(this=exp.Count(this=exp.Star()))
    both = select(
        [
            col("value", "s"),
            named(left_out, "suppressed_rows"),
            named(col("rows", "r"), "released_rows"),
            named(every, "labels"),
        ],
        subquery(mine, "s"),
    ).join(subquery(theirs, "r"), on=on, copy=False)
    shown: list[exp.Expr] = [col(name) for name in ("value", "suppressed_rows", "released_rows", "labels")]
    return select(shown, subquery(both, "b")).where(*enough, copy=False)
