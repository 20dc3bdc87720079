"""Spark's catalog: the statements for the tables and the view of a release, and checks of these and their comments.

The right rows may come from the wrong table, and be replaced later; and comments and defaults can reveal what the view
does not show.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects.spark import TEXT, from_duckdb_type
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.spark.errors import error_condition
from sqlanon.publish.targets.server import (
    ServerLocation,
    check_versions,
    column_comments,
    columns_of_table,
    version_number,
)
from sqlanon.publish.targets.spark.rows import types_of
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.metadata import column_list
from sqlanon.release.sentences import comment_on_any_version, comment_on_release
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import col, create_table_with_columns, fragment, ident, table, template, text

RELEASE_PROPERTY = "sqlanon.release"
"""The table property with the name of the release that a table was created for."""

SECRET = "secret"
"""The column of the secret that the row order depends on."""

MANIFEST_TYPES = {"table_name": "VARCHAR", "version": "INTEGER", "manifest": "VARCHAR"}
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


def create_version_table(target: exp.Table, types: Mapping[str, str], release: str) -> exp.Create:
    """Create a table of a release without rows, by DuckDB's types.

    CREATE TABLE ... AS SELECT would copy the comments of the source. A table that exists before its rows is also found
    and dropped if the rows are never written.
    """
    columns = {name: from_duckdb_type(type_) or "" for name, type_ in types.items()}
    # The default collation of the schema may treat different texts as equal.
    columns |= {name: f"{type_} COLLATE UTF8_BINARY" for name, type_ in columns.items() if type_.upper() == TEXT}
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
    return _statement("""
        INSERT INTO :target
        SELECT :columns
        FROM :rows AS released
        DISTRIBUTE BY xxhash64(:columns)
        SORT BY sha2(concat((SELECT secret FROM :secret), uuid()), 256)
    """)(target=target, columns=[col(name) for name in columns], rows=rows, secret=secret)


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


def show_relations(kind: str, pattern: str) -> exp.Command:
    """List schemas, or the tables and views of a schema, whose names match a pattern."""
    return exp.Command(this="SHOW", expression=f"{kind} LIKE {text(pattern).sql('spark')}")


MANIFEST_SUFFIX = "_manifest"
"""The end of the name of a manifest table."""

_REDACTED = "*********(redacted)"
"""Spark's text for a property whose value looks like a secret: a release may be called ``tokens``."""

_HIVE_PROPERTIES = frozenset(
    {"transient_lastDdlTime", "numFiles", "numRows", "rawDataSize", "totalSize", "bucketing_version"}
)
"""Properties with numbers that a metastore adds."""

_COLUMN_FIELDS = frozenset({"name", "type", "nullable", "comment"})
"""Fields of a column of a release table: it has no default."""

_FIXED_SCHEMA_MODES = (None, "BINDING", "COMPENSATION", "UNSUPPORTED")
"""Modes in which the columns of a view do not follow those of its table."""

_CHECKS_BEFORE_READING = ("view", "tables")
"""Checks that must pass before rows are read."""


def flaws_before_reading(checks: Sequence[Check]) -> list[str]:
    """The flaws of the view or the tables for which rows are not read."""
    return [check.message for check in checks if check.name in _CHECKS_BEFORE_READING and check.passed is False]


def manifest_table(location: ServerLocation, version: int) -> exp.Table:
    return table(f"{location.version_table(version).name}{MANIFEST_SUFFIX}", location.schema)


def table_version(name: str, release: str) -> int | None:
    """The version of a release that a table of rows or a manifest belongs to, by its name; None if to none.

    >>> table_version("r_v3", "r"), table_version("r_v3_manifest", "r"), table_version("r_view", "r")
    (3, 3, None)
    """
    return version_number(name.removesuffix(MANIFEST_SUFFIX), release)


class CatalogClaims(Protocol):
    """The claims about a table that checks of the catalog read."""

    @property
    def columns(self) -> Sequence[ReleasedColumn]: ...
    @property
    def types(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class ReleaseComments:
    """The comments of a release: on its view, on the table of its version, and on the columns of both."""

    view: str
    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, location: ServerLocation, version: int, manifest: Manifest) -> ReleaseComments:
        """The comments of a release of one table."""
        figures = comment_on_release(manifest, manifest_table(location, version).name)
        return cls(comment_on_any_version(manifest.draft), figures, column_comments(manifest))


@dataclass(frozen=True)
class CatalogEntry:
    """Spark's description of a table or view, as JSON."""

    description: Mapping[str, Any]

    @classmethod
    def read(cls, server: SparkEngine, relation: exp.Table) -> CatalogEntry:
        return cls(json.loads(server.rows(describe(relation=relation.copy()))[0][0]))

    @property
    def is_view(self) -> bool:
        return self.description.get("type") == "VIEW"

    @property
    def comment(self) -> str | None:
        return self.description.get("comment")

    @property
    def properties(self) -> frozenset[str]:
        """The names of its properties, without those of a metastore."""
        properties = self.description.get("table_properties") or {}
        return frozenset(
            name for name, value in properties.items() if name not in _HIVE_PROPERTIES or not str(value).isdecimal()
        )

    @property
    def column_comments(self) -> dict[str, str]:
        columns = self.description.get("columns") or ()
        return {column["name"]: column["comment"] for column in columns if column.get("comment") is not None}

    def is_created_for(self, release: str) -> bool:
        """Whether sqlanon created this table for a release."""
        properties = self.description.get("table_properties") or {}
        return not self.is_view and properties.get(RELEASE_PROPERTY) in (release, _REDACTED)

    def shown_version(self, location: ServerLocation) -> int | None:
        """The version whose table this view reads, if it reads nothing else."""
        tables = tables_in_query(self.description.get("view_text") or "") if self.is_view else []
        if len(tables) != 1 or tables[0].db.lower() != location.schema or tables[0].catalog:
            return None
        return version_number(tables[0].name.lower(), location.name)

    def find_view_flaws(
        self, location: ServerLocation, rows: exp.Table, claims: CatalogClaims, comments: ReleaseComments
    ) -> list[str]:
        """Compare with a view that is a plain list of the columns of a table."""
        columns = [column.name for column in claims.columns]
        query = column_list(rows, columns).sql(SparkEngine.dialect)
        queries = {self.description.get("view_text"), self.description.get("view_original_text", query)}
        catalog = (self.description.get("view_catalog_and_namespace") or "").partition(".")[0]
        described_columns = [column.get("name") for column in self.description.get("columns") or ()]
        is_column_list = (
            self.is_view
            and queries == {query}
            and self.description.get("view_query_output_columns") == columns == described_columns
            and catalog.strip("`") == self.description.get("catalog_name")
        )
        expected_comments = (comments.columns, comments.view)
        is_expected = {
            f"{location.name!r} is not a view of {columns_of_table(rows.name)}": is_column_list,
            "its columns follow changes of the table": self.description.get("view_schema_mode") in _FIXED_SCHEMA_MODES,
            "it has foreign properties": not self.properties,
            "its comments do not match the manifest": (self.column_comments, self.comment) == expected_comments,
        }
        return [flaw for flaw, expected in is_expected.items() if not expected]

    def find_table_flaws(self, release: str, comment: str | None, comments: Mapping[str, str]) -> list[str]:
        """Compare with a table that sqlanon created for a release, without its columns.

        Nothing is evaluated when a table without flaws is read: its rows are Parquet files of its own.
        """
        if not self.is_created_for(release):
            return ["not part of the release"]
        description = self.description
        is_parquet = description.get("type") == "MANAGED" and str(description.get("provider")).lower() == "parquet"
        is_divided = description.get("partition_columns") or description.get("bucket_columns")
        storage_properties = (description.get("storage_properties") or {}).keys() - {"serialization.format"}
        has_more_fields = any(column.keys() - _COLUMN_FIELDS for column in description.get("columns") or ())
        has_comments = (self.comment, self.column_comments) == (comment, comments)
        is_expected = {
            "it is not a plain table of Parquet files": is_parquet and not is_divided,
            "it has foreign properties": self.properties == {RELEASE_PROPERTY} and not storage_properties,
            "it has comments or defaults of others": has_comments and not has_more_fields,
        }
        return [flaw for flaw, expected in is_expected.items() if not expected]


@dataclass(frozen=True)
class ReleaseCatalog:
    """The tables and views of a release in Spark's catalog at one moment."""

    server: SparkEngine
    location: ServerLocation
    names: frozenset[str]  # the tables of the schema whose names begin with the name of the release

    @classmethod
    def read(cls, server: SparkEngine, location: ServerLocation) -> ReleaseCatalog:
        schemas = server.rows(show_relations("SCHEMAS", location.schema))
        if location.schema not in {str(name).lower() for (name,) in schemas}:
            raise location.schema_is_missing()
        tables = f"TABLES IN {ident(location.schema).sql('spark')}"  # and views: schema, name, is temporary
        relations = server.rows(show_relations(tables, f"{location.name}*"))
        return cls(server, location, frozenset(name.lower() for _, name, is_temporary in relations if not is_temporary))

    @cached_property
    def view(self) -> CatalogEntry | None:
        if self.location.name not in self.names:
            return None
        return CatalogEntry.read(self.server, self.location.table)

    @property
    def shown_version(self) -> int | None:
        """The version that the view shows; None without a view of a version."""
        return None if self.view is None else self.view.shown_version(self.location)

    @property
    def readable_version(self) -> int:
        """The version that the view shows, or else the newest with a manifest."""
        numbers = [self._version_of(name) for name in self.names if name.endswith(MANIFEST_SUFFIX)]
        with_manifest = [number for number in numbers if number is not None]
        if self.view is None or not with_manifest:
            raise self.location.manifest_is_missing()
        return self.shown_version if self.shown_version in with_manifest else max(with_manifest)

    def _version_of(self, name: str) -> int | None:
        return table_version(name, self.location.name)

    def find_release_tables(self, names: Collection[str] | None = None) -> dict[str, int]:
        """The tables that sqlanon created for versions of the release, with the version of each."""
        tables = {}
        for name in sorted(self.names if names is None else names):
            version = self._version_of(name)
            if version is None:
                continue
            try:
                if CatalogEntry.read(self.server, table(name, self.location.schema)).is_created_for(self.location.name):
                    tables[name] = version
            except Exception as error:
                if error_condition(error).partition(".")[0] != "TABLE_OR_VIEW_NOT_FOUND":  # dropped in the meantime
                    raise
        return tables

    def checks(self, version: int, claims: CatalogClaims, comments: ReleaseComments) -> list[Check]:
        """Check that the catalog has the published release, and nothing more."""
        rows = self.location.version_table(version)
        flaws = ["there is none"]
        if self.view is not None:
            flaws = self.view.find_view_flaws(self.location, rows, claims, comments)
        return [
            check_faults("view", flaws, columns_of_table(rows.name)),
            self.check_tables(version, claims, comments),
            self._check_other_versions(version),
        ]

    def check_tables(self, version: int, claims: CatalogClaims, comments: ReleaseComments) -> Check:
        """Check the tables behind the view, which its readers can often read, too."""
        rows = self.location.version_table(version)
        flaws = self.find_flaws(rows, claims.types, comments.table, comments.columns)
        flaws = [f"{rows.name}: {flaw}" for flaw in flaws]
        manifests = manifest_table(self.location, version)
        flaws += [f"{manifests.name}: {flaw}" for flaw in self.find_manifest_flaws(version)]
        return check_faults("tables", flaws, "exactly the columns of the release")

    def find_manifest_flaws(self, version: int) -> list[str]:
        return self.find_flaws(manifest_table(self.location, version), MANIFEST_TYPES)

    def find_flaws(
        self,
        relation: exp.Table,
        types: Mapping[str, str],
        comment: str | None = None,
        comments: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Compare a table with one that sqlanon created for the release with these columns and comments."""
        if relation.name not in self.names:
            return ["it is not there"]
        entry = CatalogEntry.read(self.server, relation)
        if flaws := entry.find_table_flaws(self.location.name, comment, comments or {}):
            return flaws
        return [] if list(types_of(self.server, relation).items()) == list(types.items()) else ["it has other columns"]

    def _check_other_versions(self, version: int) -> Check:
        names = [name for name in self.names if self._version_of(name) not in (None, version)]
        leftovers = self.find_release_tables(names)
        if leftovers and len(leftovers) == len(names):
            message = f"left by an interrupted publication, and removed by the next one: {', '.join(leftovers)}"
            return Check("versions", None, message)
        return check_versions([name for name in names if name not in leftovers])

    def warn_of_foreign_tables(self, release_tables: Collection[str]) -> list[Check]:
        """Warn about tables that are named like versions but are not part of the release."""
        foreign = sorted(
            name for name in self.names if self._version_of(name) is not None and name not in release_tables
        )
        if not foreign:
            return []
        message = "named like a version, but not created by sqlanon; verify fails until that is removed"
        return [Check("versions", None, f"{', '.join(foreign)}: {message}")]


def check_persistence(server: SparkEngine) -> list[Check]:
    """Warn about a catalog in memory, which ends with Spark."""
    settings = ("spark.sql.catalogImplementation", "spark.sql.catalog.spark_catalog")
    implementation, replacement = (server.rows(exp.Command(this="SET", expression=name))[0][1] for name in settings)
    if implementation != "in-memory" or replacement not in ("builtin", "<undefined>"):
        return []
    message = "Spark's catalog is in memory: the release is gone when Spark ends; it stays with a persistent catalog "
    return [Check("catalog", None, f"{message}(spark.sql.catalogImplementation=hive)")]
