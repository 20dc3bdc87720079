"""PostgreSQL statements for releases: versioned tables, the view that readers use, manifests, and catalog queries.

Parameters are ``$1``, ``$2``, ... Catalog queries identify a relation by its number (oid), because a name can be given
to another relation at any moment. ``$1`` is that number unless the docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects.postgres import from_duckdb_type
from sqlanon.places.addresses import MANIFEST
from sqlanon.release.metadata import is_column_list
from sqlanon.support.expressions import col, create_table_with_columns, fragment, ident, table

MANIFEST_TYPES = {"table_name": "text", "version": "integer", "manifest": "text"}
"""The columns of the table of manifests."""

_query = partial(fragment, dialect="postgres")

advisory_lock = _query("SELECT 1 FROM pg_advisory_xact_lock(hashtext(:name)) AS held")
"""Take a lock on a name until the transaction ends; wait for the transaction that has it."""

create_manifest_table = _query("CREATE TABLE :manifests (table_name text PRIMARY KEY, version integer, manifest text)")
"""An error if the table exists: a table of another user is not trusted."""
select_manifest = _query("SELECT version, manifest FROM :manifests WHERE table_name = $1 ORDER BY version")
"""Version and manifest of the release named ``$1``."""
list_releases = _query("SELECT table_name, version FROM :manifests ORDER BY table_name")
list_manifests = _query("SELECT table_name, manifest FROM :manifests ORDER BY table_name")
delete_manifest = _query("DELETE FROM :manifests WHERE table_name = $1")
insert_manifest = _query("INSERT INTO :manifests (table_name, version, manifest) VALUES ($1, $2::integer, $3)")


def manifests(schema: str) -> exp.Table:
    return table(MANIFEST, schema)


def create_version_table(target: exp.Table, types: Mapping[str, str]) -> exp.Create:
    """Create the table of a version, by DuckDB's types. Text sorts byte by byte, as in DuckDB."""
    postgres_types = {name: from_duckdb_type(type_) or "" for name, type_ in types.items()}
    return create_table_with_columns(
        target, [(name, 'text COLLATE "C"' if type_ == "text" else type_) for name, type_ in postgres_types.items()]
    )


def class_figures(relation: exp.Table, quasi_identifiers: Sequence[str]) -> exp.Expr:
    """Count the rows, the classes, and the rows of the smallest class."""
    return _query("""
        SELECT coalesce(sum(class_rows)::BIGINT, 0), count(*), coalesce(min(class_rows), 0)
        FROM (SELECT count(*) AS class_rows FROM :relation GROUP BY :quasi_identifiers) AS classes
    """)(relation=relation, quasi_identifiers=[col(name) for name in quasi_identifiers])


def is_view_of(query: str, columns: Sequence[str], table_name: str) -> bool:
    """Whether the query of a view, as PostgreSQL writes it, only selects these columns of one table.

    >>> is_view_of('SELECT r_v1.zip FROM shared.r_v1;', ["zip"], "r_v1")
    True
    >>> is_view_of('SELECT r_v1.zip FROM shared.r_v1 WHERE r_v1.zip IS NULL;', ["zip"], "r_v1")
    False
    """
    try:
        parsed = parse_one(query, dialect="postgres")
    except SqlglotError:
        return False
    for column in parsed.find_all(exp.Column):
        if column.table == table_name and not column.db:
            column.set("table", None)
    for relation in parsed.find_all(exp.Table):
        if relation.name == table_name and not relation.catalog:
            relation.set("db", None)
    return is_column_list(parsed, table(table_name), columns)


def grant_select(target: exp.Table, role: str, may_grant: bool = False) -> exp.Grant:
    """Let a role ('' for PUBLIC) read a relation, with the option to grant that to others."""
    return exp.Grant(
        privileges=[exp.GrantPrivilege(this=exp.Var(this="SELECT"))],
        securable=target,
        principals=[_principal(role)],
        grant_option=may_grant,
    )


def revoke_all(target: exp.Table, roles: Sequence[str]) -> exp.Revoke:
    """Revoke all privileges of roles ('' for PUBLIC) on a relation."""
    return exp.Revoke(
        privileges=[exp.GrantPrivilege(this=exp.Var(this="ALL"))],
        kind="TABLE",
        securable=target,
        principals=[_principal(role) for role in roles],
    )


def _principal(role: str) -> exp.GrantPrincipal:
    return exp.GrantPrincipal(this=ident(role) if role else exp.Var(this="PUBLIC"))


READ_LOCK = "ACCESS SHARE"
"""A lock for reading: the relation cannot be dropped, renamed or redefined."""

WRITE_LOCK = "SHARE ROW EXCLUSIVE"
"""A lock for writing: other sessions cannot write to the table, or add a trigger or a child."""

EXCLUSIVE_LOCK = "ACCESS EXCLUSIVE"
"""A lock for replacing: other sessions cannot use the relation."""

LOCKABLE_KINDS = ("r", "v", "p")
"""The kinds of relations that can be locked by name: tables, views, partitioned tables."""


def lock_relation(target: exp.Table, mode: str) -> exp.Command:
    """Lock a relation, and the relations that a view reads, until the transaction ends. Evaluates nothing of it."""
    return exp.Command(this="LOCK", expression=f"TABLE {target.sql('postgres')} IN {mode} MODE")


relation_properties = _query("""
    SELECT
        c.relkind::text AS kind,
        c.relpersistence::text AS persistence,
        pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
        c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user) AS is_own
    FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid
""")
"""Kind (``r`` is a table, ``v`` a view), persistence (``p`` is permanent), owner, and whether this user owns it."""

attachments = _query("""
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS description
    FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid
    WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND c.oid = $1::oid AND d.deptype IN ('a', 'i')
        AND d.classid <> 'pg_catalog.pg_type'::regclass
        AND NOT (d.classid = 'pg_catalog.pg_class'::regclass AND (d.objid IN (c.oid, c.reltoastrelid)
            OR d.objid IN (SELECT i.indexrelid FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid)))
        AND NOT (d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid IN (
            SELECT r.oid FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = c.oid AND r.rulename = '_RETURN'))
        AND NOT (d.classid = 'pg_catalog.pg_constraint'::regclass AND d.objid IN (
            SELECT k.oid FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = c.oid AND k.contype = 'p' AND k.conname = c.relname || '_pkey'))
    UNION
    SELECT 'row security' FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid AND (c.relrowsecurity OR c.relforcerowsecurity)
    UNION
    SELECT 'child table ' || n.nspname || '.' || c.relname
    FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE i.inhparent = $1::oid
    UNION
    SELECT 'parent table ' || n.nspname || '.' || c.relname
    FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhparent
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE i.inhrelid = $1::oid
    UNION
    SELECT 'the type ' || format_type(c.reloftype, NULL)
    FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid AND c.reloftype <> 0
    UNION
    SELECT 'replica identity' FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid AND c.relkind = 'r' AND c.relreplident <> 'd'
    UNION
    SELECT 'dropped column' FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND a.attisdropped
    UNION
    SELECT p.property || ' of column ' || a.attname
    FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
    CROSS JOIN LATERAL (VALUES
        ('identity', a.attidentity <> ''),
        ('options', NOT a.attoptions IS NULL OR NOT a.attfdwoptions IS NULL),
        ('statistics target', coalesce(a.attstattarget, -1) <> -1),
        ('storage', a.attstorage <> t.typstorage),
        ('compression', a.attcompression <> ''),
        ('NOT NULL', a.attnotnull AND NOT a.attnum IN (
            SELECT unnest(i.indkey) FROM pg_catalog.pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisprimary))
    ) AS p(property, is_set)
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND p.is_set
    UNION
    SELECT 'option ' || split_part(o.option, '=', 1)
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_class AS t ON t.oid IN (c.oid, c.reltoastrelid)
    CROSS JOIN LATERAL unnest(t.reloptions) AS o(option)
    WHERE c.oid = $1::oid AND NOT (c.relkind = 'v' AND split_part(o.option, '=', 1) = 'security_barrier')
    ORDER BY 1
""")
"""Descriptions of the objects and options of a relation other than columns and indexes: triggers, rules, policies,
children, defaults, statistics, publications, options, ...

A primary key with PostgreSQL's default name is left out.
"""

indexes = _query("""
    SELECT
        c.relname::text AS name,
        i.indisprimary AS is_primary,
        array_to_string(k.names, '_')::text AS columns,
        i.indexprs IS NULL AND i.indpred IS NULL AND c.reloptions IS NULL AND k.names = k.index_names
        AND NOT EXISTS (
            SELECT 1 AS found FROM unnest(i.indcollation) AS o(number)
            JOIN pg_catalog.pg_collation AS l ON l.oid = o.number
            WHERE l.collnamespace <> 'pg_catalog'::regnamespace
        )
        AND NOT EXISTS (
            SELECT 1 AS found FROM unnest(i.indclass) AS o(number)
            JOIN pg_catalog.pg_opclass AS l ON l.oid = o.number
            WHERE l.opcnamespace <> 'pg_catalog'::regnamespace
        ) AS is_plain
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    CROSS JOIN LATERAL (
        SELECT
            array_agg(a.attname::text ORDER BY s.attnum) AS names,
            array_agg(s.attname::text ORDER BY s.attnum) AS index_names
        FROM pg_catalog.pg_attribute AS s
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[s.attnum - 1]
        WHERE s.attrelid = i.indexrelid AND s.attnum > 0
    ) AS k
    WHERE i.indrelid = $1::oid AND NOT EXISTS (
        SELECT 1 AS found FROM pg_catalog.pg_constraint AS u WHERE u.conindid = c.oid AND u.contype IN ('u', 'x')
    )
    ORDER BY 1
""")
"""The indexes of a relation, without those of UNIQUE and EXCLUDE constraints: name, is primary key, columns joined by
``_``, and whether the index consists of plain columns of the relation."""

foreign_comments = _query("""
    WITH RECURSIVE owned AS (
        SELECT 'pg_catalog.pg_class'::regclass::oid AS class, $1::oid AS number
        UNION
        SELECT d.classid, d.objid FROM pg_catalog.pg_depend AS d
        JOIN owned AS h ON d.refclassid = h.class AND d.refobjid = h.number
        WHERE d.deptype IN ('a', 'i')
    )
    SELECT 'a comment of ' || pg_describe_object(n.classoid, n.objoid, n.objsubid) AS description
    FROM pg_catalog.pg_description AS n JOIN owned AS h ON n.classoid = h.class AND n.objoid = h.number
    WHERE NOT (n.classoid = 'pg_catalog.pg_class'::regclass AND n.objoid = $1::oid)
    UNION
    SELECT 'a security label of ' || pg_describe_object(n.classoid, n.objoid, n.objsubid)
    FROM pg_catalog.pg_seclabel AS n JOIN owned AS h ON n.classoid = h.class AND n.objoid = h.number
    ORDER BY 1
""")
"""Descriptions of comments on the objects of a relation (row type, rules, indexes, constraints, ...), and of security
labels on these objects and the relation."""

privileges = _query("""
    SELECT
        coalesce(r.rolname::text, '') AS role, g.privilege_type AS privilege,
        g.is_grantable AS may_grant, '' AS column_name
    FROM pg_catalog.pg_class AS c
    CROSS JOIN LATERAL aclexplode(c.relacl) AS g
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
    WHERE c.oid = $1::oid AND g.grantee <> c.relowner
    UNION ALL
    SELECT coalesce(r.rolname::text, ''), g.privilege_type, g.is_grantable, a.attname::text
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND NOT a.attisdropped
    CROSS JOIN LATERAL aclexplode(a.attacl) AS g
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
    WHERE c.oid = $1::oid AND g.grantee <> c.relowner
    ORDER BY 1, 2, 4
""")
"""The privileges of roles other than the owner: role ('' for PUBLIC), privilege, may grant, column ('' for all)."""

relation_columns = _query("""
    SELECT
        a.attname::text AS name,
        format_type(a.atttypid, a.atttypmod) AS type,
        coalesce(n.nspname || '.' || k.collname, '')::text AS collation
    FROM pg_catalog.pg_attribute AS a
    LEFT JOIN pg_catalog.pg_collation AS k ON k.oid = a.attcollation
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = k.collnamespace
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
""")
"""The columns of a relation: name, type, and qualified collation ('' without one)."""

relation_comments = _query("""
    SELECT coalesce(a.attname::text, '') AS name, d.description AS comment
    FROM pg_catalog.pg_description AS d
    LEFT JOIN pg_catalog.pg_attribute AS a ON d.objsubid <> 0 AND a.attrelid = d.objoid AND a.attnum = d.objsubid
    WHERE d.classoid = 'pg_catalog.pg_class'::regclass AND d.objoid = $1::oid
""")
"""The comments on a relation (name '') and its columns."""

relations_read = _query("""
    SELECT DISTINCT c.oid::bigint AS number
    FROM pg_catalog.pg_rewrite AS r
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
    JOIN pg_catalog.pg_class AS c ON d.refclassid = 'pg_catalog.pg_class'::regclass AND c.oid = d.refobjid
    WHERE r.ev_class = $1::oid AND c.oid <> r.ev_class
""")
"""The numbers of the relations that a view reads."""

dependents = _query("""
    SELECT DISTINCT
        coalesce(n.nspname || '.' || c.relname, pg_describe_object(d.classid, d.objid, d.objsubid))::text AS name
    FROM pg_catalog.pg_depend AS d
    LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE d.deptype = 'n' AND c.oid IS DISTINCT FROM $1::oid AND c.oid IS DISTINCT FROM $2::oid
        AND c.relnamespace IS DISTINCT FROM pg_catalog.pg_my_temp_schema()
        AND (d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1::oid
            OR d.refclassid = 'pg_catalog.pg_type'::regclass
            AND d.refobjid = (SELECT t.reltype FROM pg_catalog.pg_class AS t WHERE t.oid = $1::oid))
    ORDER BY 1
""")
"""The names of the objects that depend on a relation or its row type, without relation ``$2`` and the temporary
relations of this session."""

sibling_relation = _query("""
    SELECT b.oid::bigint AS number
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_class AS b ON b.relnamespace = c.relnamespace
    WHERE c.oid = $1::oid AND b.relname = $2::name
""")
"""The number of the relation named ``$2`` in the schema of relation ``$1``."""

view_query = _query("SELECT pg_get_viewdef($1::oid) AS query")
"""The query of a view."""

objects_used = _query("""
    SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)::text AS description
    FROM pg_catalog.pg_rewrite AS r
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
    WHERE r.ev_class = $1::oid AND d.refclassid <> 'pg_catalog.pg_class'::regclass
    ORDER BY 1
""")
"""Descriptions of the objects other than relations that a view uses: functions, operators, types, casts, collations."""

evaluated_objects = _query("""
    SELECT 'row security' AS description FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid AND (c.relrowsecurity OR c.relforcerowsecurity)
    UNION
    SELECT 'child or parent tables' FROM pg_catalog.pg_inherits AS i WHERE $1::oid IN (i.inhparent, i.inhrelid)
    UNION
    SELECT 'index ' || c.relname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = $1::oid AND (NOT i.indexprs IS NULL OR NOT i.indpred IS NULL)
    UNION
    SELECT 'statistics ' || s.stxname FROM pg_catalog.pg_statistic_ext AS s
    WHERE s.stxrelid = $1::oid AND NOT s.stxexprs IS NULL
    UNION
    SELECT 'constraint ' || k.conname FROM pg_catalog.pg_constraint AS k
    WHERE k.conrelid = $1::oid AND k.contype = 'c'
    UNION
    SELECT 'rule ' || r.rulename FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = $1::oid
    ORDER BY 1
""")
"""Descriptions of the expressions that PostgreSQL may evaluate when the columns of a relation are read.

The planner computes constant parts of the expressions of indexes, statistics and constraints with the privileges of
the reader.
"""

schema_of_relation = _query(
    "SELECT c.relnamespace::bigint AS number FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid"
)
"""The number of the schema of a relation."""

relations_in_schema = _query("""
    SELECT c.relname::text AS name, c.relkind::text AS kind
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = $1::oid AND NOT c.relkind IN ('i', 'I', 't')
""")
"""The relations in schema number ``$1``, without indexes: name and kind."""

schema_properties = _query("""
    SELECT
        n.oid::bigint AS number,
        has_schema_privilege(n.oid, 'USAGE') AS may_use,
        o.rolname::text AS owner,
        o.rolsuper OR o.rolname = current_user AS is_trusted
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_roles AS s ON s.oid = n.nspowner
    JOIN pg_catalog.pg_roles AS o ON o.oid = CASE
        WHEN s.rolname = 'pg_database_owner'
        THEN (SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
        ELSE s.oid
    END
    WHERE n.nspname = $1::name
""")
"""The schema named ``$1``: its number, may this user use it, its owner, and whether that is this user or a superuser.

Any other owner can rename the schema, and create another under its name, at any moment.
"""

schema_contents = _query("""
    SELECT
        pg_describe_object(d.classid, d.objid, 0)::text AS description,
        CASE WHEN d.classid = 'pg_catalog.pg_class'::regclass THEN c.relname END::text AS name,
        c.relkind::text AS kind
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_depend AS d ON d.refclassid = 'pg_catalog.pg_namespace'::regclass AND d.refobjid = n.oid
    LEFT JOIN pg_catalog.pg_class AS c ON d.classid = 'pg_catalog.pg_class'::regclass AND c.oid = d.objid
    WHERE n.oid = $1::oid AND d.classid <> 'pg_catalog.pg_default_acl'::regclass
        AND NOT EXISTS (
            SELECT 1 AS found FROM pg_catalog.pg_depend AS e
            WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e'
        )
    ORDER BY 1
""")
"""The objects in schema number ``$1``, without members of extensions: description, and name and kind of a relation."""

schema_comment = _query("""
    SELECT d.description AS comment
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_description AS d ON d.classoid = 'pg_catalog.pg_namespace'::regclass AND d.objoid = n.oid
    WHERE n.oid = $1::oid AND NOT (n.nspname = 'public' AND d.description = 'standard public schema')
""")
"""The comment on schema number ``$1``, unless it is PostgreSQL's own."""

may_read = _query("SELECT has_table_privilege($1::oid, 'SELECT') AS may_read")
"""Whether this user may read all columns of a relation."""
