"""Releases in Spark: versioned tables, the view that readers know, and manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects.spark import TEXT, type_there
from sqlanon.support.expressions import col, column_definitions, fragment, ident, named, select, template, text

MADE_BY = "sqlanon.release"
"""The property of the tables that are ours: the name of the release."""

SECRET = "secret"
"""The column of what the order of rows is made with."""

MANIFEST = {"table_name": TEXT, "version": "INT", "manifest": TEXT}
"""The columns of a manifest's table: it has one row."""

_statement = partial(fragment, dialect="spark")

manifest_row = _statement("""
    INSERT INTO :target
    SELECT
        CAST(:release AS STRING) AS table_name,
        CAST(:version AS INT) AS version,
        CAST(:manifest AS STRING) AS manifest
""")
manifest_of = template("SELECT table_name, version, manifest FROM :relation")
_FILLED = _statement("""
    INSERT INTO :target
    SELECT :columns
    FROM :rows AS released
    DISTRIBUTE BY xxhash64(:columns)
    SORT BY sha2(concat((SELECT secret FROM :secret), uuid()), 256)
""")
_COMBINATIONS = template("SELECT :columns, :count FROM :relation GROUP BY :columns")
_COUNT = fragment("count(*)")
_IN_PART = _statement("pmod(xxhash64(:columns), :parts) = :part")


def released_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    """The table of a version, without its rows.

    With its columns spelled out: of a query Spark takes over the comments, which are the source's, too. And a table
    that is there before its rows are is found, and dropped, if they never are.
    """
    return _parquet_table(target, {name: type_there(type_) or "" for name, type_ in types.items()}, release)


def manifest_table(target: exp.Table, release: str) -> exp.Create:
    return _parquet_table(target, MANIFEST, release)


def _parquet_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    # A schema may have a collation for those that have none, which takes texts that differ for the same.
    own = {name: f"{type_} COLLATE UTF8_BINARY" if type_.upper() == TEXT else type_ for name, type_ in types.items()}
    made = column_definitions(target, own.items())
    parquet = exp.FileFormatProperty(this=exp.Var(this="PARQUET"))
    mark = exp.Property(this=text(MADE_BY), value=text(release))
    made.set("properties", exp.Properties(expressions=[parquet, mark]))
    return made


def filled(target: exp.Table, rows: exp.Query, columns: Sequence[str], secret: exp.Table) -> exp.Expr:
    """Write rows to a table, in an order that tells nothing of where they come from.

    What a row shows decides which file it is in, and a random number where in the file. So a task that Spark runs a
    second time sends each row where it was sent before: rows that a random number sends somewhere could be written
    twice, or not at all.

    The seed of Spark's random numbers stands in its plans, which it logs: who has it knows the order in which rows came
    to a task. So each number is hashed together with a secret.
    """
    return _FILLED(target=target, columns=[col(name) for name in columns], rows=rows, secret=secret)


_COMMENT_ON_COLUMN = _statement("ALTER TABLE :target ALTER COLUMN :name COMMENT :words")
_COMMENT_ON_TABLE = _statement("COMMENT ON TABLE :target IS :words")


def comments_on(target: exp.Table, columns: Mapping[str, str], words: str) -> list[exp.Expr]:
    """The statements that comment on a table and its columns: a view of these columns has their comments.

    >>> from sqlanon.support.expressions import table
    >>> [statement.sql("spark") for statement in comments_on(table("r_v2", "s"), {"zip": "first digits"}, "a release")]
    ["COMMENT ON TABLE `s`.`r_v2` IS 'a release'", "ALTER TABLE `s`.`r_v2` ALTER COLUMN `zip` COMMENT 'first digits'"]
    """
    of_columns = [
        _COMMENT_ON_COLUMN(target=target, name=ident(name), words=text(about)) for name, about in columns.items()
    ]
    return [_COMMENT_ON_TABLE(target=target, words=text(words)), *of_columns]


def first_view(view: exp.Table, rows: exp.Table, columns: Iterable[str], words: str) -> exp.Create:
    """The view that readers name, where nothing has its name yet: otherwise an error.

    >>> from sqlanon.support.expressions import table
    >>> first_view(table("r", "s"), table("r_v1", "s"), ["zip"], "a release").sql("spark")
    "CREATE VIEW `s`.`r` COMMENT 'a release' AS SELECT `zip` FROM `s`.`r_v1`"
    """
    return exp.Create(
        this=view,
        kind="VIEW",
        properties=exp.Properties(expressions=[exp.SchemaCommentProperty(this=text(words))]),
        expression=shown_by_view(rows, columns),
    )


def next_view(view: exp.Table, rows: exp.Table, columns: Iterable[str]) -> exp.Alter:
    """Have a view show another version: one change of the catalog. ``CREATE OR REPLACE VIEW`` drops the view first.

    >>> from sqlanon.support.expressions import table
    >>> next_view(table("r", "s"), table("r_v2", "s"), ["zip"]).sql("spark")
    'ALTER VIEW `s`.`r` AS SELECT `zip` FROM `s`.`r_v2`'
    """
    return exp.Alter(this=view, kind="VIEW", actions=[shown_by_view(rows, columns)])


def comment_on_view(view: exp.Table, words: str) -> exp.Alter:
    """
    >>> from sqlanon.support.expressions import table
    >>> comment_on_view(table("r", "s"), "a release").sql("spark")
    "ALTER VIEW `s`.`r` SET TBLPROPERTIES ('comment'='a release')"
    """
    comment = exp.Property(this=text("comment"), value=text(words))
    properties = exp.AlterSet(expressions=[exp.Properties(expressions=[comment])])
    return exp.Alter(this=view, kind="VIEW", actions=[properties])


def shown_by_view(rows: exp.Table, columns: Iterable[str]) -> exp.Select:
    """The view's query: a list of plain columns of one table, and nothing more.

    >>> from sqlanon.support.expressions import table
    >>> shown_by_view(table("r_v1", "s"), ["zip"]).sql("spark")
    'SELECT `zip` FROM `s`.`r_v1`'
    """
    return select([col(name) for name in columns], rows.copy())


def read_by(query: str) -> list[exp.Table]:
    """The tables that a view's query reads; none where it cannot be read."""
    try:
        return list(parse_one(query, dialect="spark").find_all(exp.Table))
    except SqlglotError:
        return []


def description(relation: exp.Table) -> exp.Describe:
    """One row: all that the catalog has of a table or view, as JSON."""
    return exp.Describe(this=relation.copy(), style="EXTENDED", as_json=True)


def schemas(like: str) -> exp.Command:
    return exp.Command(this="SHOW", expression=f"SCHEMAS LIKE {text(like).sql('spark')}")


def relations(schema: str, release: str) -> exp.Command:
    """The tables and views whose names begin with that of a release: schema, name, whether temporary."""
    like = text(f"{release}*").sql("spark")
    return exp.Command(this="SHOW", expression=f"TABLES IN {ident(schema).sql('spark')} LIKE {like}")


def setting(name: str) -> exp.Command:
    return exp.Command(this="SET", expression=name)


def combinations(relation: exp.Expr, types: Mapping[str, str], count: str) -> exp.Select:
    """The distinct combinations of a release's columns, with how many rows have each."""
    return _COMBINATIONS(columns=[col(name) for name in types], count=named(_COUNT(), count), relation=relation)


def in_part(columns: Sequence[str], part: int, parts: int) -> exp.Expr:
    """Whether a row belongs to a part of so many: what it shows decides."""
    return _IN_PART(columns=[col(name) for name in columns], parts=parts, part=part)
