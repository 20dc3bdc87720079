"""What PostgreSQL's catalog has on a relation: by its number, which a name may not find twice.

Parameters of statements are ``$1``, ``$2``, ...: ``$1`` is the number (oid) of the relation.
"""

from __future__ import annotations

from sqlglot import exp, parse_one

_RELATION = """
    SELECT
        c.relkind::text AS kind,
        c.relpersistence::text AS persistence,
        pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
        c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user) AS is_own
    FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid
"""


def relation() -> exp.Expr:
    """Kind (``r`` for a table, ``v`` for a view, ...), persistence (``p`` for a lasting one), owner, and whether that
    is this user."""
    return parse_one(_RELATION, dialect="postgres")


_ATTACHED = """
    SELECT 'trigger ' || t.tgname AS what
    FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = $1::oid AND NOT t.tgisinternal
    UNION ALL
    SELECT 'rule ' || r.rulename
    FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = $1::oid AND r.rulename <> '_RETURN'
    UNION ALL
    SELECT 'row security' FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid AND (c.relrowsecurity OR c.relforcerowsecurity)
    UNION ALL
    SELECT 'policy ' || p.polname FROM pg_catalog.pg_policy AS p WHERE p.polrelid = $1::oid
    UNION ALL
    SELECT 'child table ' || n.nspname || '.' || c.relname
    FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE i.inhparent = $1::oid
    UNION ALL
    SELECT 'parent table ' || n.nspname || '.' || c.relname
    FROM pg_catalog.pg_inherits AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.inhparent
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE i.inhrelid = $1::oid
    UNION ALL
    SELECT 'constraint ' || k.conname
    FROM pg_catalog.pg_constraint AS k WHERE k.conrelid = $1::oid AND NOT k.contype IN ('p', 'n')
    UNION ALL
    SELECT 'default of column ' || a.attname
    FROM pg_catalog.pg_attrdef AS d
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = $1::oid
    UNION ALL
    SELECT 'identity of column ' || a.attname
    FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = $1::oid AND a.attidentity <> ''
    UNION ALL
    SELECT 'dropped column' FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND a.attisdropped
    UNION ALL
    SELECT 'index ' || c.relname
    FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = $1::oid AND (NOT i.indexprs IS NULL OR NOT i.indpred IS NULL)
    UNION ALL
    SELECT 'option ' || split_part(o.one, '=', 1)
    FROM pg_catalog.pg_class AS c CROSS JOIN LATERAL unnest(c.reloptions) AS o(one)
    WHERE c.oid = $1::oid AND c.relkind = 'v' AND split_part(o.one, '=', 1) <> 'security_barrier'
    UNION ALL
    SELECT 'security label ' || s.provider FROM pg_catalog.pg_seclabel AS s
    WHERE s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = $1::oid
    ORDER BY 1
"""


def attached() -> exp.Expr:
    """What is attached to a relation beside its columns, for people: triggers, rules, policies, children, defaults, ...

    A primary key, NOT NULL, and plain indexes are not.
    """
    return parse_one(_ATTACHED, dialect="postgres")


_RIGHTS = """
    SELECT
        coalesce(r.rolname::text, '') AS role, g.privilege_type AS privilege,
        g.is_grantable AS may_grant, '' AS of_column
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
"""


def rights() -> exp.Expr:
    """What others than its owner may do with a relation: role ('' for everybody), privilege, whether they may grant it,
    and the column ('' for all)."""
    return parse_one(_RIGHTS, dialect="postgres")


_SHAPE = """
    SELECT
        a.attname::text AS name,
        format_type(a.atttypid, a.atttypmod) AS type,
        coalesce(n.nspname || '.' || k.collname, '')::text AS collation
    FROM pg_catalog.pg_attribute AS a
    LEFT JOIN pg_catalog.pg_collation AS k ON k.oid = a.attcollation
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = k.collnamespace
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""


def shape() -> exp.Expr:
    """The columns of a relation: name, type, and collation with its schema ('' without one)."""
    return parse_one(_SHAPE, dialect="postgres")


_COMMENTS = """
    SELECT coalesce(a.attname::text, '') AS name, d.description AS comment
    FROM pg_catalog.pg_description AS d
    LEFT JOIN pg_catalog.pg_attribute AS a ON d.objsubid <> 0 AND a.attrelid = d.objoid AND a.attnum = d.objsubid
    WHERE d.classoid = 'pg_catalog.pg_class'::regclass AND d.objoid = $1::oid
"""


def comments() -> exp.Expr:
    """The comments of a relation ('') and of its columns, by name."""
    return parse_one(_COMMENTS, dialect="postgres")


_BEHIND = """
    SELECT DISTINCT c.oid::bigint AS number
    FROM pg_catalog.pg_rewrite AS r
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
    JOIN pg_catalog.pg_class AS c ON d.refclassid = 'pg_catalog.pg_class'::regclass AND c.oid = d.refobjid
    WHERE r.ev_class = $1::oid AND c.oid <> r.ev_class
"""


def behind() -> exp.Expr:
    """The numbers of the relations that a view reads."""
    return parse_one(_BEHIND, dialect="postgres")


_UPON = """
    SELECT DISTINCT
        coalesce(n.nspname || '.' || c.relname, pg_describe_object(d.classid, d.objid, d.objsubid))::text AS name
    FROM pg_catalog.pg_depend AS d
    LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1::oid AND d.deptype = 'n'
        AND c.oid IS DISTINCT FROM d.refobjid AND c.oid IS DISTINCT FROM $2::oid
    ORDER BY 1
"""


def upon() -> exp.Expr:
    """What depends on a relation, by name; but for the one whose number is parameter 2."""
    return parse_one(_UPON, dialect="postgres")


def definition() -> exp.Expr:
    """The query of a view."""
    return parse_one("SELECT pg_get_viewdef($1::oid) AS query", dialect="postgres")


_RELATIONS = """
    SELECT c.relname::text AS name, c.relkind::text AS kind
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::name AND NOT c.relkind IN ('i', 'I', 't')
"""


def relations_of() -> exp.Expr:
    """The relations of the schema that parameter 1 names: name and kind, but for indexes."""
    return parse_one(_RELATIONS, dialect="postgres")


_SCHEMA = """
    SELECT n.nspname::text AS name, has_schema_privilege(n.oid, 'USAGE') AS may_use
    FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::name
"""


def schema() -> exp.Expr:
    """The schema that parameter 1 names, if there is one: its name, and whether this user may use it."""
    return parse_one(_SCHEMA, dialect="postgres")


def may_read() -> exp.Expr:
    """One row: whether this user may read all of a relation."""
    return parse_one("SELECT has_table_privilege($1::oid, 'SELECT') AS may", dialect="postgres")
