"""Releases in PostgreSQL: versioned tables, the views that readers know, and their manifests.

Parameters of statements are ``$1``, ``$2``, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

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


_BEHIND = """
    SELECT DISTINCT n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind
    FROM pg_catalog.pg_rewrite AS r
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
    JOIN pg_catalog.pg_class AS c ON d.refclassid = 'pg_catalog.pg_class'::regclass AND c.oid = d.refobjid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE r.ev_class = to_regclass($1) AND c.oid <> r.ev_class
"""


def behind() -> exp.Expr:
    """The relations that the view which parameter 1 names reads: schema, name, kind as of `relations_of`."""
    return parse_one(_BEHIND, dialect="postgres")


_UPON = """
    SELECT DISTINCT
        coalesce(n.nspname || '.' || c.relname, pg_describe_object(d.classid, d.objid, d.objsubid))::text AS name
    FROM pg_catalog.pg_depend AS d
    LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = to_regclass($1) AND d.deptype = 'n'
        AND c.oid IS DISTINCT FROM d.refobjid AND c.oid IS DISTINCT FROM to_regclass($2)
    ORDER BY 1
"""


def upon() -> exp.Expr:
    """What depends on the relation that parameter 1 names, by name; but for the one that parameter 2 names."""
    return parse_one(_UPON, dialect="postgres")


_SHAPE = """
    SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attcollation::text AS collation
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""


def shape_of() -> exp.Expr:
    """Of the relation that parameter 1 names, what must stay the same for a view to be replaced."""
    return parse_one(_SHAPE, dialect="postgres")


def definition() -> exp.Expr:
    """The query of the view that parameter 1 names."""
    return parse_one("SELECT pg_get_viewdef(to_regclass($1)) AS query", dialect="postgres")


def is_column_list(query: str, columns: Sequence[str], source: str) -> bool:
    """Whether a view's query, as PostgreSQL writes it, is a list of plain columns of one table, and nothing more.

    Parameters
    ----------
    query:
        It. Older servers write the table's name before each column.
    columns, source:
        What it should list, and the name of the table without its schema.

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
