"""The views of a release of linked tables: each table under its name, and what attackers may know of persons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.row_texts import TextTable, describe_known_rows, describe_whole_rows, quote_values
from sqlanon.release.metadata import stable_view
from sqlanon.support.expressions import cast, col, create_view, table, template, union_all

KNOWN_ROWS, WHOLE_ROWS = "known_rows", "whole_rows"
"""Views of a release: the rows of each person as an attacker may know them, alone, and with the rows that belong to
them."""

_PERSONS = template("SELECT person, class, NULL::VARCHAR AS known_row FROM :persons AS persons")

_KNOWN_ROWS = template("SELECT person, class, known_row FROM :rows AS rows")

_WHOLE_ROWS = template("""
    SELECT persons.person, persons.class, children.whole_row AS known_row
    FROM :children AS children
    JOIN :persons AS persons ON children.parent_key = persons.row_key
""")


def first_column(columns: Sequence[str], alias: str | None = None) -> exp.Expr:
    """A column with the new key: all columns of a key have the same number."""
    return col(columns[0], alias) if columns else cast(exp.null(), "BIGINT")


def text_tables(
    manifest: LinkedManifest,
    rows_of: Callable[[TableClaims], exp.Table],
    columns_of: Callable[[TableClaims], Sequence[str]],
) -> list[TextTable]:
    """The tables of a manifest, to write columns of their rows as texts."""
    positions = {claims.name: position for position, claims in enumerate(manifest.tables)}
    return [
        TextTable(
            claims.name,
            None if claims.parent is None else positions[claims.parent],
            rows_of(claims),
            first_column(claims.key),
            first_column(claims.references),
            quote_values(columns_of(claims)),
        )
        for claims in manifest.tables
    ]


def _visible_tables(manifest: LinkedManifest, database: str | None) -> list[TextTable]:
    """The tables with their quasi-identifiers, in the database of the views or in the named one."""

    def rows_of(claims: TableClaims) -> exp.Table:
        name = manifest.rows_table(claims)
        return table(name) if database is None else table(name, "main", database)

    return text_tables(manifest, rows_of, lambda claims: claims.quasi_identifiers)


def known_rows_query(manifest: LinkedManifest, database: str | None = None) -> exp.Query:
    """One row for each child row: ``person``, ``class`` and ``known_row``. A person without child rows has one row, in
    which ``known_row`` is NULL."""
    tables = _visible_tables(manifest, database)
    parts: list[exp.Query] = [_PERSONS(persons=describe_known_rows(tables, 0))]
    parts += [_KNOWN_ROWS(rows=describe_known_rows(tables, position)) for position in range(1, len(tables))]
    return union_all(*parts)


def whole_rows_query(manifest: LinkedManifest, database: str | None = None) -> exp.Query:
    """Like `known_rows_query`, for the rows that belong to persons directly, with the rows that belong to them."""
    tables = _visible_tables(manifest, database)
    persons = describe_known_rows(tables, 0)
    parts: list[exp.Query] = [_PERSONS(persons=persons)]
    for position, described in enumerate(tables):
        if described.parent == 0:
            parts.append(_WHOLE_ROWS(children=describe_whole_rows(tables, position), persons=persons))
    return union_all(*parts)


def release_views(manifest: LinkedManifest, catalog: str) -> list[exp.Create]:
    """The views of a release file: a stable one for each table, and those for the macros."""
    views = []
    for claims in manifest.tables:
        rows, columns = table(manifest.rows_table(claims)), [column.name for column in claims.columns]
        views.append(stable_view(table(claims.name, "main", catalog), rows, columns))
    views.append(create_view(table(KNOWN_ROWS, "main", catalog), known_rows_query(manifest)))
    views.append(create_view(table(WHOLE_ROWS, "main", catalog), whole_rows_query(manifest)))
    return views
