"""Releases in PostgreSQL: versioned tables, the views that readers know, and their manifests.

Parameters of statements are ``$1``, ``$2``, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.coding import ROWS
from sqlanon.engines.dialects.postgres import type_there
from sqlanon.expressions import (
    anonymous,
    cast,
    col,
    ident,
    named,
    native_type,
    number,
    select,
    subquery,
    table,
    text,
    total,
)
from sqlanon.policy.addresses import MANIFEST

MANIFEST_TYPES = {"table_name": "text", "version": "integer", "manifest": "text"}
"""The columns of the table of manifests."""


def alone(name: str) -> exp.Select:
    """Wait until no other transaction has asked for the same, and have the next one wait for this."""
    lock = exp.Table(this=anonymous("pg_advisory_xact_lock", anonymous("hashtext", text(name))))
    return select([number(1)], lock)


def released_table(target: exp.Table, types: Mapping[str, str]) -> exp.Create:
    """The table of a release: DuckDB's types, by PostgreSQL's names; text sorts byte by byte, as in DuckDB."""
    columns = []
    for name, type_ in types.items():
        own = type_there(type_) or ""
        constraints = [exp.ColumnConstraint(kind=exp.CollateColumnConstraint(this=ident("C")))] if own == "text" else []
        columns.append(exp.ColumnDef(this=ident(name), kind=native_type(own), constraints=constraints))
    return exp.Create(this=exp.Schema(this=target, expressions=columns), kind="TABLE")


def class_figures(relation: exp.Table, quasi: Sequence[str]) -> exp.Select:
    """One row: the rows of a release, its classes, and the rows of the smallest."""
    keys: list[exp.Expr] = [col(name) for name in quasi]
    classes = select([named(exp.Count(this=exp.Star()), ROWS)], relation.copy(), keys)
    figures: list[exp.Expr] = [
        exp.Coalesce(this=total(col(ROWS)), expressions=[number(0)]),
        exp.Count(this=exp.Star()),
        exp.Coalesce(this=exp.Min(this=col(ROWS)), expressions=[number(0)]),
    ]
    return select(figures, subquery(classes, "classes"))


def manifest_table(schema: str) -> exp.Create:
    """The table of manifests, if there is none yet."""
    key = exp.ColumnConstraint(kind=exp.PrimaryKeyColumnConstraint())
    columns = [exp.ColumnDef(this=ident(name), kind=native_type(type_)) for name, type_ in MANIFEST_TYPES.items()]
    columns[0].set("constraints", [key])
    return exp.Create(this=exp.Schema(this=table(MANIFEST, schema), expressions=columns), kind="TABLE", exists=True)


def manifest_of(schema: str) -> exp.Select:
    """Version and manifest of the release that parameter 1 names."""
    query = select([col("version"), col("manifest")], table(MANIFEST, schema))
    return query.where(col("table_name").eq(parameter(1)), copy=False).order_by(col("version"), copy=False)


def releases_of(schema: str) -> exp.Select:
    """Names and versions of the releases that a schema has manifests of."""
    query = select([col("table_name"), col("version")], table(MANIFEST, schema))
    return query.order_by(col("table_name"), copy=False)


def forget_manifest(schema: str) -> exp.Delete:
    """Delete the manifest of the release that parameter 1 names."""
    of_release = col("table_name").eq(parameter(1))
    return exp.Delete(this=table(MANIFEST, schema), where=exp.Where(this=of_release))


def insert_manifest(schema: str) -> exp.Insert:
    """Insert a manifest: name, version and text are the parameters."""
    names = [ident(name) for name in ("table_name", "version", "manifest")]
    values = exp.Tuple(expressions=[parameter(1), cast(parameter(2), "integer"), parameter(3)])
    target = exp.Schema(this=table(MANIFEST, schema), expressions=names)
    return exp.Insert(this=target, expression=exp.Values(expressions=[values]))


def parameter(place: int) -> exp.Parameter:
    """``$1``, ``$2``, ..."""
    return exp.Parameter(this=exp.Literal.number(place))


def is_column_list(query: str, columns: Sequence[str], source: str) -> bool:
    """Whether a view's query, as PostgreSQL writes it, is a list of plain columns of one table, and nothing more.

    >>> is_column_list('SELECT r_v1.zip FROM shared.r_v1;', ["zip"], "r_v1")
    True
    >>> is_column_list('SELECT r_v1.zip FROM shared.r_v1 WHERE r_v1.zip IS NULL;', ["zip"], "r_v1")
    False
    """
    try:
        made = parse_one(query, dialect="postgres")
    except SqlglotError:
        return False
    return bool(_plain(made, source) == _plain(select([col(one) for one in columns], table(source)), source))


def _plain(query: exp.Expr, source: str) -> exp.Expr:
    """The same with all names in quotes, without the schema, and without the table of each column."""

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table == source and not node.db:
            return col(node.name)
        if isinstance(node, exp.Table) and node.name == source and not node.catalog:
            node.set("db", None)
        return exp.Identifier(this=node.name, quoted=True) if isinstance(node, exp.Identifier) else node

    return query.copy().transform(plain)


def grant_select(target: exp.Table, role: str, may_grant: bool = False) -> exp.Grant:
    """Let a role read a relation, and maybe let others do so; '' for everybody."""
    return exp.Grant(
        privileges=[exp.GrantPrivilege(this=exp.Var(this="SELECT"))],
        securable=target,
        principals=[_principal(role)],
        grant_option=may_grant,
    )


def revoke_all(target: exp.Table, roles: Sequence[str]) -> exp.Revoke:
    """Take all that roles may do with a relation; '' for everybody."""
    return exp.Revoke(
        privileges=[exp.GrantPrivilege(this=exp.Var(this="ALL"))],
        kind="TABLE",
        securable=target,
        principals=[_principal(role) for role in roles],
    )


def _principal(role: str) -> exp.GrantPrincipal:
    return exp.GrantPrincipal(this=ident(role) if role else exp.Var(this="PUBLIC"))


def locked_for_rows(target: exp.Table) -> exp.Command:
    """Let nobody change what a table is, its triggers included, until the transaction ends."""
    return exp.Command(this="LOCK", expression=f"TABLE {target.sql('postgres')} IN ROW EXCLUSIVE MODE")
