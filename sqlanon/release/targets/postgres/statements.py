"""Statements for releases in PostgreSQL: versioned tables, the views that readers know, their manifests, and what the
catalog has of them: by the number (oid) of a relation, which a name may not find twice.

Parameters are ``$1``, ``$2``, ...: in queries of the catalog ``$1`` is the number of the relation, unless it is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.dialects.postgres import type_there
from sqlanon.places.addresses import MANIFEST
from sqlanon.support.expressions import col, column_definitions, fragment, ident, select, table

MANIFEST_TYPES = {"table_name": "text", "version": "integer", "manifest": "text"}
"""The columns of the table of manifests."""

_query = partial(fragment, dialect="postgres")

lock = _query("SELECT 1 FROM pg_advisory_xact_lock(hashtext(:name)) AS held")
"""Wait until no other transaction has locked the same name, and have the next one wait for this."""

manifest_table = _query("CREATE TABLE :manifests (table_name text PRIMARY KEY, version integer, manifest text)")
"""An error if somebody else has made one: what is there is not trusted."""
manifest_of = _query("SELECT version, manifest FROM :manifests WHERE table_name = $1 ORDER BY version")
"""Version and manifest of the release that parameter 1 names."""
releases_of = _query("SELECT table_name, version FROM :manifests ORDER BY table_name")
forget_manifest = _query("DELETE FROM :manifests WHERE table_name = $1")
insert_manifest = _query("INSERT INTO :manifests (table_name, version, manifest) VALUES ($1, $2::integer, $3)")

_CLASS_FIGURES = _query("""
    SELECT coalesce(sum(class_rows)::BIGINT, 0), count(*), coalesce(min(class_rows), 0)
    FROM (SELECT count(*) AS class_rows FROM :relation GROUP BY :quasi) AS classes
""")


def manifests(schema: str) -> exp.Table:
    return table(MANIFEST, schema)


def released_table(target: exp.Table, types: Mapping[str, str]) -> exp.Create:
    """The table of a release: DuckDB's types, by PostgreSQL's names; text sorts byte by byte, as in DuckDB."""
    own = {name: type_there(type_) or "" for name, type_ in types.items()}
    return column_definitions(
        target, [(name, 'text COLLATE "C"' if type_ == "text" else type_) for name, type_ in own.items()]
    )


def class_figures(relation: exp.Table, quasi: Sequence[str]) -> exp.Expr:
    """One row: the rows of a release, its classes, and the rows of the smallest."""
    return _CLASS_FIGURES(relation=relation, quasi=[col(name) for name in quasi])


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


READING = "ACCESS SHARE"
"""Locks a relation so that it can be read, and neither dropped, renamed nor redefined."""

WRITING = "SHARE ROW EXCLUSIVE"
"""Locks a table so that nobody else writes to it, or adds a trigger or a child."""

REPLACING = "ACCESS EXCLUSIVE"
"""Locks a relation so that nobody else uses it."""


LOCKABLE = ("r", "v", "p")
"""The kinds of relations that can be locked by name: tables, views, partitioned tables."""


def locked(target: exp.Table, mode: str) -> exp.Command:
    """Lock a relation until the transaction ends; of a view, what it reads, too. Nothing of it is evaluated."""
    return exp.Command(this="LOCK", expression=f"TABLE {target.sql('postgres')} IN {mode} MODE")


relation = _query("""
    SELECT
        c.relkind::text AS kind,
        c.relpersistence::text AS persistence,
        pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
        c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user) AS is_own
    FROM pg_catalog.pg_class AS c
    WHERE c.oid = $1::oid
""")
"""Kind (``r`` for a table, ``v`` for a view, ...), persistence (``p`` for a lasting one), owner, and whether that
is this user."""

attached = _query("""
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS what
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
    SELECT w.what || ' of column ' || a.attname
    FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
    CROSS JOIN LATERAL (VALUES
        ('identity', a.attidentity <> ''),
        ('options', NOT a.attoptions IS NULL OR NOT a.attfdwoptions IS NULL),
        ('statistics target', coalesce(a.attstattarget, -1) <> -1),
        ('storage', a.attstorage <> t.typstorage),
        ('compression', a.attcompression <> ''),
        ('NOT NULL', a.attnotnull AND NOT a.attnum IN (
            SELECT unnest(i.indkey) FROM pg_catalog.pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisprimary))
    ) AS w(what, is_there)
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND w.is_there
    UNION
    SELECT 'option ' || split_part(o.one, '=', 1)
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_class AS t ON t.oid IN (c.oid, c.reltoastrelid)
    CROSS JOIN LATERAL unnest(t.reloptions) AS o(one)
    WHERE c.oid = $1::oid AND NOT (c.relkind = 'v' AND split_part(o.one, '=', 1) = 'security_barrier')
    ORDER BY 1
""")
"""What belongs to a relation beside its columns and indexes, for people: triggers, rules, policies, children,
defaults, statistics objects, publications, options, ...

A primary key under PostgreSQL's own name for it is not.
"""

indexes = _query("""
    SELECT
        c.relname::text AS name,
        i.indisprimary AS is_primary,
        array_to_string(k.names, '_')::text AS columns,
        i.indexprs IS NULL AND i.indpred IS NULL AND c.reloptions IS NULL AND k.names = k.shown
        AND NOT EXISTS (
            SELECT 1 AS one FROM unnest(i.indcollation) AS o(number)
            JOIN pg_catalog.pg_collation AS l ON l.oid = o.number
            WHERE l.collnamespace <> 'pg_catalog'::regnamespace
        )
        AND NOT EXISTS (
            SELECT 1 AS one FROM unnest(i.indclass) AS o(number)
            JOIN pg_catalog.pg_opclass AS l ON l.oid = o.number
            WHERE l.opcnamespace <> 'pg_catalog'::regnamespace
        ) AS is_plain
    FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
    CROSS JOIN LATERAL (
        SELECT
            array_agg(a.attname::text ORDER BY s.attnum) AS names,
            array_agg(s.attname::text ORDER BY s.attnum) AS shown
        FROM pg_catalog.pg_attribute AS s
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[s.attnum - 1]
        WHERE s.attrelid = i.indexrelid AND s.attnum > 0
    ) AS k
    WHERE i.indrelid = $1::oid AND NOT EXISTS (
        SELECT 1 AS one FROM pg_catalog.pg_constraint AS u WHERE u.conindid = c.oid AND u.contype IN ('u', 'x')
    )
    ORDER BY 1
""")
"""The indexes of a relation that no other constraint than its primary key has made: name, whether it is of that
key, its columns with ``_`` between them, and whether it has nothing but columns of the relation."""

notes = _query("""
    WITH RECURSIVE hanging AS (
        SELECT 'pg_catalog.pg_class'::regclass::oid AS class, $1::oid AS number
        UNION
        SELECT d.classid, d.objid FROM pg_catalog.pg_depend AS d
        JOIN hanging AS h ON d.refclassid = h.class AND d.refobjid = h.number
        WHERE d.deptype IN ('a', 'i')
    )
    SELECT 'a comment of ' || pg_describe_object(n.classoid, n.objoid, n.objsubid) AS what
    FROM pg_catalog.pg_description AS n JOIN hanging AS h ON n.classoid = h.class AND n.objoid = h.number
    WHERE NOT (n.classoid = 'pg_catalog.pg_class'::regclass AND n.objoid = $1::oid)
    UNION
    SELECT 'a security label of ' || pg_describe_object(n.classoid, n.objoid, n.objsubid)
    FROM pg_catalog.pg_seclabel AS n JOIN hanging AS h ON n.classoid = h.class AND n.objoid = h.number
    ORDER BY 1
""")
"""Comments of what belongs to a relation (its row type, its rules, indexes, constraints, ...), and security labels
of that and of itself, for people."""

rights = _query("""
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
""")
"""What others than its owner may do with a relation: role ('' for everybody), privilege, whether they may grant it,
and the column ('' for all)."""

shape = _query("""
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
"""The columns of a relation: name, type, and collation with its schema ('' without one)."""

comments = _query("""
    SELECT coalesce(a.attname::text, '') AS name, d.description AS comment
    FROM pg_catalog.pg_description AS d
    LEFT JOIN pg_catalog.pg_attribute AS a ON d.objsubid <> 0 AND a.attrelid = d.objoid AND a.attnum = d.objsubid
    WHERE d.classoid = 'pg_catalog.pg_class'::regclass AND d.objoid = $1::oid
""")
"""The comments of a relation ('') and of its columns, by name."""

behind = _query("""
    SELECT DISTINCT c.oid::bigint AS number
    FROM pg_catalog.pg_rewrite AS r
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
    JOIN pg_catalog.pg_class AS c ON d.refclassid = 'pg_catalog.pg_class'::regclass AND c.oid = d.refobjid
    WHERE r.ev_class = $1::oid AND c.oid <> r.ev_class
""")
"""The numbers of the relations that a view reads."""

upon = _query("""
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
"""What depends on a relation or its row type, by name; but for the one whose number is parameter 2, and for temporary
relations of this session."""

beside_relation = _query("""
    SELECT b.oid::bigint AS number
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_class AS b ON b.relnamespace = c.relnamespace
    WHERE c.oid = $1::oid AND b.relname = $2::name
""")
"""The number of the relation that parameter 2 names, in the schema of a relation."""

definition = _query("SELECT pg_get_viewdef($1::oid) AS query")
"""The query of a view."""

more_behind = _query("""
    SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)::text AS what
    FROM pg_catalog.pg_rewrite AS r
    JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
    WHERE r.ev_class = $1::oid AND d.refclassid <> 'pg_catalog.pg_class'::regclass
    ORDER BY 1
""")
"""What a view uses beside relations, for people: functions, operators, types, casts and collations of others."""

evaluated = _query("""
    SELECT 'row security' AS what FROM pg_catalog.pg_class AS c
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
"""What a relation has that PostgreSQL may evaluate where only its columns are read, for people: the planner computes
the constant parts of the expressions of indexes, statistics and constraints, with the rights of the reader."""

schema_of = _query("SELECT c.relnamespace::bigint AS number FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid")
"""The number of the schema of a relation: its owner may rename it at any moment."""

relations_of = _query("""
    SELECT c.relname::text AS name, c.relkind::text AS kind
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = $1::oid AND NOT c.relkind IN ('i', 'I', 't')
""")
"""The relations of the schema with the number in parameter 1: name and kind, but for indexes."""

schema = _query("""
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
"""The schema that parameter 1 names, if there is one: its number, whether this user may use it, its owner, and whether
that is this user or a superuser: any other owner can rename it, and put another in its place, at any moment."""

beside = _query("""
    SELECT
        pg_describe_object(d.classid, d.objid, 0)::text AS what,
        CASE WHEN d.classid = 'pg_catalog.pg_class'::regclass THEN c.relname END::text AS name,
        c.relkind::text AS kind
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_depend AS d ON d.refclassid = 'pg_catalog.pg_namespace'::regclass AND d.refobjid = n.oid
    LEFT JOIN pg_catalog.pg_class AS c ON d.classid = 'pg_catalog.pg_class'::regclass AND c.oid = d.objid
    WHERE n.oid = $1::oid AND d.classid <> 'pg_catalog.pg_default_acl'::regclass
        AND NOT EXISTS (
            SELECT 1 AS one FROM pg_catalog.pg_depend AS e
            WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e'
        )
    ORDER BY 1
""")
"""What is in the schema with the number in parameter 1, but for members of extensions: its description, and the name
and kind of a relation."""

schema_comment = _query("""
    SELECT d.description AS comment
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_description AS d ON d.classoid = 'pg_catalog.pg_namespace'::regclass AND d.objoid = n.oid
    WHERE n.oid = $1::oid AND NOT (n.nspname = 'public' AND d.description = 'standard public schema')
""")
"""The comment of the schema with the number in parameter 1, if somebody gave it one."""

may_read = _query("SELECT has_table_privilege($1::oid, 'SELECT') AS may")
"""One row: whether this user may read all of a relation."""
