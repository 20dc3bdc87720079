"""Releases in Spark: versioned tables, the view that readers know, and manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects.spark import SPARK, TEXT, type_there
from sqlanon.expressions import (
    anonymous,
    col,
    drop_table,
    ident,
    named,
    native_type,
    number,
    select,
    subquery,
    text,
)

MADE_BY = "sqlanon.release"
"""The property of the tables that are ours: the name of the release."""

SECRET = "secret"
"""The column of what the order of rows is made with."""

MANIFEST = {"table_name": TEXT, "version": "INT", "manifest": TEXT}
"""The columns of a manifest's table: it has one row."""


def released_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    """The table of a version, without its rows.

    With its columns spelled out: of a query Spark takes over the comments, which are the source's, too. And a table
    that is there before its rows are is found, and dropped, if they never are.
    """
    return _parquet_table(target, {name: type_there(type_) or "" for name, type_ in types.items()}, release)


def manifest_table(target: exp.Table, release: str) -> exp.Create:
    """The table of a version's manifest, without its row."""
    return _parquet_table(target, MANIFEST, release)


def _parquet_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    # A schema may have a collation for those that have none, which takes texts that differ for the same.
    own = {name: f"{type_} COLLATE UTF8_BINARY" if type_.upper() == TEXT else type_ for name, type_ in types.items()}
    columns = [exp.ColumnDef(this=ident(name), kind=native_type(type_)) for name, type_ in own.items()]
    properties: list[exp.Expr] = [
        exp.FileFormatProperty(this=exp.Var(this="PARQUET")),
        exp.Property(this=text(MADE_BY), value=text(release)),
    ]
    return exp.Create(
        this=exp.Schema(this=target, expressions=columns),
        kind="TABLE",
        properties=exp.Properties(expressions=properties),
    )


def filled(target: exp.Table, rows: exp.Query, columns: Sequence[str], secret: exp.Table) -> exp.Insert:
    """Write rows to a table, in an order that tells nothing of where they come from.

    What a row shows decides which file it is in, and a random number where in the file. So a task that Spark runs a
    second time sends each row where it was sent before: rows that a random number sends somewhere could be written
    twice, or not at all.

    The seed of Spark's random numbers stands in its plans, which it logs: who has it knows the order in which rows came
    to a task. So each number is hashed together with a secret.
    """
    shown: list[exp.Expr] = [col(name) for name in columns]
    query = select(shown, subquery(rows, "released"))
    query.set("distribute", exp.Distribute(expressions=[anonymous("xxhash64", *(col(name) for name in columns))]))
    hidden = exp.Subquery(this=select([col(SECRET)], secret.copy()))
    order = anonymous("sha2", anonymous("concat", hidden, anonymous("uuid")), number(256))
    query.set("sort", exp.Sort(expressions=[exp.Ordered(this=order, nulls_first=True)]))
    return exp.Insert(this=target, expression=query)


def manifest_row(target: exp.Table, release: str, version: int, manifest: str) -> exp.Insert:
    values = zip(MANIFEST, MANIFEST.values(), (text(release), number(version), text(manifest)), strict=True)
    row = [named(exp.Cast(this=value, to=native_type(type_)), name) for name, type_, value in values]
    return exp.Insert(this=target, expression=exp.Select(expressions=row))


def manifest_of(relation: exp.Table) -> exp.Select:
    return select([col(name) for name in MANIFEST], relation.copy())


def stable_view(view: exp.Table, rows: exp.Table, columns: Mapping[str, str], told: str) -> exp.Create:
    """The view that readers name, over the table of the newest version: in its place from one moment to the next.

    >>> from sqlanon.expressions import table
    >>> stable_view(table("r", "s"), table("r_v2", "s"), {"zip": "first digits"}, "a release").sql("spark")
    "CREATE OR REPLACE VIEW `s`.`r` (`zip` COMMENT 'first digits') COMMENT 'a release' AS SELECT `zip` FROM `s`.`r_v2`"
    """
    columns_ = [
        exp.ColumnDef(
            this=ident(name),
            constraints=[exp.ColumnConstraint(kind=exp.CommentColumnConstraint(this=text(about)))],
        )
        for name, about in columns.items()
    ]
    return exp.Create(
        this=exp.Schema(this=view, expressions=columns_),
        kind="VIEW",
        replace=True,
        properties=exp.Properties(expressions=[exp.SchemaCommentProperty(this=text(told))]),
        expression=shown_by_view(rows, list(columns)),
    )


def shown_by_view(rows: exp.Table, columns: Sequence[str]) -> exp.Select:
    """The view's query: a list of plain columns of one table, and nothing more.

    >>> from sqlanon.expressions import table
    >>> shown_by_view(table("r_v1", "s"), ["zip"]).sql("spark")
    'SELECT `zip` FROM `s`.`r_v1`'
    """
    return select([col(name) for name in columns], rows.copy())


def read_by(query: str) -> list[exp.Table]:
    try:
        made = parse_one(query, dialect="spark")
    except SqlglotError:
        return []
    return list(made.find_all(exp.Table))


def description(relation: exp.Table) -> exp.Describe:
    """One row: all that the catalog has of a table or view, as JSON."""
    return exp.Describe(this=relation.copy(), style="EXTENDED", as_json=True)


def schemas(like: str) -> exp.Command:
    return _show("SCHEMAS LIKE", text(like))


def relations(schema: str, release: str) -> exp.Command:
    """The tables and views whose names begin with that of a release: schema, name, whether temporary."""
    return _show("TABLES IN", ident(schema), "LIKE", text(f"{release}*"))


def setting(name: str) -> exp.Command:
    """One row: a setting, and its value (``<undefined>`` if it has none)."""
    return exp.Command(this="SET", expression=name)


def _show(*parts: str | exp.Expr) -> exp.Command:
    words = (one if isinstance(one, str) else one.sql("spark") for one in parts)
    return exp.Command(this="SHOW", expression=" ".join(words))


def dropped(target: exp.Table) -> exp.Drop:
    drop = drop_table(target)
    drop.set("exists", True)
    return drop


def combinations(relation: exp.Expr, types: Mapping[str, str], count: str) -> exp.Select:
    """The distinct combinations of a release's columns, with how many rows have each, as they travel."""
    counted = named(exp.Count(this=exp.Star()), count)
    query = select([*map(col, types), counted], relation.copy(), [col(name) for name in types])
    return SPARK.leaving(query, {**types, count: "BIGINT"}, TEXT)


def in_part(columns: Sequence[str], number_: int, parts: int) -> exp.EQ:
    """Whether a row belongs to a part of so many: what it shows decides."""
    hashed = anonymous("xxhash64", *(col(name) for name in columns))
    return anonymous("pmod", hashed, number(parts)).eq(number(number_))
