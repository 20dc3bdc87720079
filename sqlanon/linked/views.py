"""The views of a release of linked tables: each table under its name, and what attackers may know of persons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from sqlanon.linked.manifest import LinkedManifest, TableClaims
from sqlanon.release.metadata import stable_view
from sqlanon.support.expressions import cast, col, create_view, fragment, table, template, text, union_all

KNOWN_ROWS, WHOLE_ROWS = "known_rows", "whole_rows"
"""Views of a release: the rows of each person as an attacker may know them, alone, and with the rows that belong to
them."""


def _quote_value(column: str) -> exp.Expr:
    return fragment("coalesce('\"' || replace(:value, '\"', '\"\"') || '\"', 'NULL')")(
        value=cast(col(column), "VARCHAR")
    )


def quoted_values(columns: Sequence[str]) -> exp.Expr:
    """The values of columns as one text, which differs wherever a value differs: ``"2026-01","A",NULL``."""
    values: exp.Expr = text("")
    for i, column in enumerate(columns):
        separator = fragment("concat(:values, ',', :value)") if i else fragment("concat(:values, :value)")
        values = separator(values=values, value=_quote_value(column))
    return values


def _row_query(manifest: LinkedManifest, claims: TableClaims, database: str | None = None) -> exp.Select:
    """The rows of a table with ``row_key``, ``person``, ``class`` and ``known_row``: the quasi-identifiers of the row
    and of its ancestors below the person."""
    values, key = quoted_values(claims.quasi_identifiers), first_column(claims.key)
    rows = _rows_table(manifest, claims, database)
    parent = manifest.parent_of(claims)
    if parent is None:
        persons = template(
            "SELECT :key AS row_key, :key AS person, :values AS class, '' AS known_row FROM :rows AS rows"
        )
        return persons(key=key, values=values, rows=rows)
    describe_rows = template("""
        SELECT :key AS row_key, :reference AS parent_key, concat(:name, '(', :values, ')') AS own
        FROM :rows AS rows
    """)
    child_rows = describe_rows(
        key=key, reference=first_column(claims.references), name=claims.name, values=values, rows=rows
    )
    return template("""
        SELECT child.row_key, parent.person, parent.class, concat(parent.known_row, child.own) AS known_row
        FROM :child_rows AS child
        JOIN :parents AS parent ON child.parent_key = parent.row_key
    """)(child_rows=child_rows, parents=_row_query(manifest, parent, database))


def first_column(columns: Sequence[str], alias: str | None = None) -> exp.Expr:
    """A column with the new key: all columns of a key have the same number."""
    return col(columns[0], alias) if columns else cast(exp.null(), "BIGINT")


def _rows_table(manifest: LinkedManifest, claims: TableClaims, database: str | None) -> exp.Table:
    name = manifest.rows_table(claims)
    return table(name) if database is None else table(name, "main", database)


def known_rows_query(manifest: LinkedManifest, database: str | None = None) -> exp.Query:
    """One row for each child row: ``person``, ``class`` and ``known_row``. A person without child rows has one row, in
    which ``known_row`` is NULL."""
    persons, *children = manifest.tables
    alone = template("SELECT person, class, NULL::VARCHAR AS known_row FROM :persons AS persons")
    select_known = template("SELECT person, class, known_row FROM :rows AS rows")
    parts = [select_known(rows=_row_query(manifest, claims, database)) for claims in children]
    return union_all(alone(persons=_row_query(manifest, persons, database)), *parts)


def whole_rows_query(manifest: LinkedManifest, database: str | None = None) -> exp.Query:
    """Like `known_rows_query`, for the rows that belong to persons directly, with the rows that belong to them."""
    persons, *children = manifest.tables
    alone = template("SELECT person, class, NULL::VARCHAR AS known_row FROM :persons AS persons")
    parts: list[exp.Query] = [alone(persons=_row_query(manifest, persons, database))]
    for claims in children:
        if claims.parent == persons.name:
            whole = template("""
                SELECT persons.person, persons.class, children.whole_row AS known_row
                FROM :children AS children
                JOIN :persons AS persons ON children.parent_key = persons.row_key
            """)
            parts.append(
                whole(children=_whole_rows(manifest, claims, database), persons=_row_query(manifest, persons, database))
            )
    return union_all(*parts)


def _whole_rows(manifest: LinkedManifest, claims: TableClaims, database: str | None) -> exp.Select:
    """The rows of a table with ``parent_key`` and ``whole_row``: its quasi-identifiers and its nested child rows."""
    return nest_rows(
        manifest, claims, lambda table: _rows_table(manifest, table, database), lambda table: table.quasi_identifiers
    )


def nest_rows(
    manifest: LinkedManifest,
    claims: TableClaims,
    rows_of: Callable[[TableClaims], exp.Table],
    columns_of: Callable[[TableClaims], Sequence[str]],
) -> exp.Select:
    """``row_key``, ``parent_key`` and ``whole_row``: columns of each row as a text, with the sorted texts of the rows
    that belong to it."""
    described = template("""
        SELECT :key AS row_key, :reference AS parent_key, concat(:name, '(', :values, ')') AS whole_row
        FROM :rows AS rows
    """)(
        key=first_column(claims.key),
        reference=first_column(claims.references),
        name=claims.name,
        values=quoted_values(columns_of(claims)),
        rows=rows_of(claims),
    )
    for child in manifest.children_of(claims):
        described = template("""
            SELECT own.row_key, own.parent_key, concat(own.whole_row, '[', nested.child_rows, ']') AS whole_row
            FROM :own AS own
            LEFT JOIN (
                SELECT parent_key, string_agg(whole_row, ';' ORDER BY whole_row) AS child_rows
                FROM :children AS children
                GROUP BY parent_key
            ) AS nested ON own.row_key = nested.parent_key
        """)(own=described, children=nest_rows(manifest, child, rows_of, columns_of))
    return described


def release_views(manifest: LinkedManifest, catalog: str) -> list[exp.Create]:
    """The views of a release file: a stable one for each table, and those for the macros."""
    views = []
    for claims in manifest.tables:
        rows, columns = table(manifest.rows_table(claims)), [column.name for column in claims.columns]
        views.append(stable_view(table(claims.name, "main", catalog), rows, columns))
    views.append(create_view(table(KNOWN_ROWS, "main", catalog), known_rows_query(manifest)))
    views.append(create_view(table(WHOLE_ROWS, "main", catalog), whole_rows_query(manifest)))
    return views
