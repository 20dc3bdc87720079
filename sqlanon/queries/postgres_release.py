"""Releases in PostgreSQL: versioned tables, the views that readers know, and their manifests.

Parameters of statements are ``$1``, ``$2``, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one

from sqlanon.policy.postgres import MANIFEST
from sqlanon.queries.coding import ROWS
from sqlanon.queries.names import (
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
from sqlanon.queries.postgres import type_there


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
    columns = [
        exp.ColumnDef(this=ident("table_name"), kind=native_type("text"), constraints=[key]),
        exp.ColumnDef(this=ident("version"), kind=native_type("integer")),
        exp.ColumnDef(this=ident("manifest"), kind=native_type("text")),
    ]
    return exp.Create(this=exp.Schema(this=table(MANIFEST, schema), expressions=columns), kind="TABLE", exists=True)


def manifest_of(schema: str) -> exp.Select:
    """Version and manifest of the release that parameter 1 names."""
    query = select([col("version"), col("manifest")], table(MANIFEST, schema))
    return query.where(exp.EQ(this=col("table_name"), expression=parameter(1)), copy=False)


def forget_manifest(schema: str) -> exp.Delete:
    """Delete the manifest of the release that parameter 1 names."""
    of_release = exp.EQ(this=col("table_name"), expression=parameter(1))
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


_READERS = """
    SELECT DISTINCT coalesce(r.rolname::text, '') AS role
    FROM pg_catalog.pg_class AS c
    CROSS JOIN LATERAL aclexplode(c.relacl) AS g
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
    WHERE c.oid = to_regclass($1) AND g.privilege_type = 'SELECT' AND g.grantee <> c.relowner
    ORDER BY 1
"""


def readers_of() -> exp.Expr:
    """The roles that may read the relation that parameter 1 names, but for its owner; '' for everybody."""
    return parse_one(_READERS, dialect="postgres")


_RELATIONS = """
    SELECT c.relname::text AS name, c.relkind::text AS kind
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1
"""


def relations_of() -> exp.Expr:
    """The relations of the schema that parameter 1 names: name, and ``r`` for a table, ``v`` for a view, ..."""
    return parse_one(_RELATIONS, dialect="postgres")


def schema_exists() -> exp.Select:
    """One row: how many schemas have the name that parameter 1 gives."""
    schemas = table("pg_namespace", "pg_catalog")
    query = select([exp.Count(this=exp.Star())], schemas)
    return query.where(exp.EQ(this=col("nspname"), expression=cast(parameter(1), "name")), copy=False)


def grant_select(target: exp.Table, role: str) -> exp.Grant:
    """Let a role read a relation; '' for everybody."""
    principal = ident(role) if role else exp.Var(this="PUBLIC")
    return exp.Grant(
        privileges=[exp.GrantPrivilege(this=exp.Var(this="SELECT"))],
        securable=target,
        principals=[exp.GrantPrincipal(this=principal)],
    )
