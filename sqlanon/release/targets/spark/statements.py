"""Spark statements for releases: versioned tables, the view that readers use, and manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects.spark import TEXT, from_duckdb_type
from sqlanon.support.expressions import col, create_table_with_columns, fragment, ident, template, text

RELEASE_PROPERTY = "sqlanon.release"
"""The table property with the name of the release that a table was created for."""

SECRET = "secret"
"""The column of the secret that the row order depends on."""

MANIFEST_TYPES = {"table_name": TEXT, "version": "INT", "manifest": TEXT}
"""The columns of a manifest table, which has one row."""

_statement = partial(fragment, dialect="spark")

insert_manifest = _statement("""
    INSERT INTO :target
    SELECT
        CAST(:release AS STRING) AS table_name,
        CAST(:version AS INT) AS version,
        CAST(:manifest AS STRING) AS manifest
""")
select_manifest = template("SELECT table_name, version, manifest FROM :relation")

create_view = _statement("CREATE VIEW :view COMMENT :comment AS SELECT :columns FROM :rows")
"""An error if the name is taken."""
replace_view_query = _statement("ALTER VIEW :view AS SELECT :columns FROM :rows")
"""One change of the catalog; ``CREATE OR REPLACE VIEW`` would drop the view first."""
comment_on_view = _statement("ALTER VIEW :view SET TBLPROPERTIES ('comment' = :comment)")
comment_on_table = _statement("COMMENT ON TABLE :target IS :comment")
comment_on_column = _statement("ALTER TABLE :target ALTER COLUMN :name COMMENT :comment")
"""A view of the column shows the comment as its own."""

describe = _statement("DESCRIBE EXTENDED :relation AS JSON")

_INSERT_SHUFFLED = _statement("""
    INSERT INTO :target
    SELECT :columns
    FROM :rows AS released
    DISTRIBUTE BY xxhash64(:columns)
    SORT BY sha2(concat((SELECT secret FROM :secret), uuid()), 256)
""")


def create_version_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    """Create the table of a version without rows.

    CREATE TABLE ... AS SELECT would copy the comments of the source. A table that exists before its rows is also found
    and dropped if the rows are never written.
    """
    return _create_parquet_table(
        target, {name: from_duckdb_type(type_) or "" for name, type_ in types.items()}, release
    )


def create_manifest_table(target: exp.Table, release: str) -> exp.Create:
    return _create_parquet_table(target, MANIFEST_TYPES, release)


def _create_parquet_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    # The default collation of the schema may treat different texts as equal.
    columns = {
        name: f"{type_} COLLATE UTF8_BINARY" if type_.upper() == TEXT else type_ for name, type_ in types.items()
    }
    create = create_table_with_columns(target, columns.items())
    parquet = exp.FileFormatProperty(this=exp.Var(this="PARQUET"))
    release_property = exp.Property(this=text(RELEASE_PROPERTY), value=text(release))
    create.set("properties", exp.Properties(expressions=[parquet, release_property]))
    return create


def insert_shuffled(target: exp.Table, rows: exp.Query, columns: Sequence[str], secret: exp.Table) -> exp.Expr:
    """Insert rows in an order that is independent of the order of the source.

    The values of a row decide its file, so a task that Spark repeats sends each row to the same file again; with a
    random file, rows could be lost or duplicated. The order within a file is random. The seed of ``uuid()`` is in the
    plans that Spark logs, and the source order could be restored with it, so each value is hashed with a secret.
    """
    return _INSERT_SHUFFLED(target=target, columns=[col(name) for name in columns], rows=rows, secret=secret)


def comment_statements(target: exp.Table, columns: Mapping[str, str], comment: str) -> list[exp.Expr]:
    """Comment on a table and its columns.

    >>> from sqlanon.support.expressions import table
    >>> statements = comment_statements(table("r_v2", "s"), {"zip": "first digits"}, "a release")
    >>> [statement.sql("spark") for statement in statements]
    ["COMMENT ON TABLE `s`.`r_v2` IS 'a release'", "ALTER TABLE `s`.`r_v2` ALTER COLUMN `zip` COMMENT 'first digits'"]
    """
    return [
        comment_on_table(target=target, comment=text(comment)),
        *(
            comment_on_column(target=target, name=ident(name), comment=text(column_comment))
            for name, column_comment in columns.items()
        ),
    ]


def tables_in_query(query: str) -> list[exp.Table]:
    """The tables that a view's query reads; empty if it cannot be parsed."""
    try:
        return list(parse_one(query, dialect="spark").find_all(exp.Table))
    except SqlglotError:
        return []


def show_schemas(pattern: str) -> exp.Command:
    return exp.Command(this="SHOW", expression=f"SCHEMAS LIKE {text(pattern).sql('spark')}")


def show_relations(schema: str, release: str) -> exp.Command:
    """List the tables and views whose names begin with that of a release: schema, name, is temporary."""
    pattern = text(f"{release}*").sql("spark")
    return exp.Command(this="SHOW", expression=f"TABLES IN {ident(schema).sql('spark')} LIKE {pattern}")


def show_setting(name: str) -> exp.Command:
    return exp.Command(this="SET", expression=name)
