"""Numbers in place of the labels of released linked tables: of persons' classes, and of what attackers know of rows.

Tables: ``sqlanon_known_rows`` (``person``, ``class``, ``known_row``), as the views ``known_rows`` and ``whole_rows`` of
a release, and ``sqlanon_numbered_rows_N`` for each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.views import first_column
from sqlanon.release.contents import ATTACHED
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    cols,
    create_temporary_table,
    drop_table,
    ident,
    same_values,
    select,
    table,
    template,
    union_all,
)


def released_table(manifest: LinkedManifest, claims: TableClaims) -> exp.Table:
    """The rows of a released table in the engine that has the release open."""
    return table(manifest.rows_table(claims), "main", ATTACHED)


@contextmanager
def number_rows(engine: Engine, manifest: LinkedManifest) -> Iterator[exp.Table]:
    """Number what attackers know of the rows of an open release: the same number for equal rows.

    Where attackers know all rows of a person, a row includes the rows that belong to it. A person without rows has one
    in which ``known_row`` is NULL.
    """
    query = (_number_whole_rows if manifest.known == "all" else _number_known_rows)(engine, manifest)
    known_rows = table("sqlanon_known_rows", "main", "temp")
    engine.execute(create_temporary_table(known_rows, query))
    try:
        yield known_rows
    finally:
        for target in (known_rows, *(_numbers_table(position) for position in range(len(manifest.tables)))):
            engine.execute(drop_table(target.copy(), exists=True))


def sensitive_values(manifest: LinkedManifest, claims: TableClaims, column: str) -> exp.Select:
    """The values of a column of a released table with their persons: ``person`` and ``value``."""
    rows = _persons_of_rows(manifest, claims, [as_column(col(column, "r"), "value")])
    return template("SELECT person, value FROM :rows AS sensitive")(rows=rows)


def _persons_of_rows(manifest: LinkedManifest, claims: TableClaims, output: Sequence[exp.Expr]) -> exp.Select:
    """The rows of a released table with ``row_key``, ``person`` and further columns."""
    key, rows = first_column(claims.key, "r"), released_table(manifest, claims)
    parent = manifest.parent_of(claims)
    if parent is None:
        query = template("SELECT :key AS row_key, :key AS person, :output FROM :rows AS r")
        return query(key=key, output=output, rows=rows)
    reference = first_column(claims.references, "r")
    if parent is manifest.persons_table:
        query = template("SELECT :key AS row_key, :reference AS person, :output FROM :rows AS r")
        return query(key=key, reference=reference, output=output, rows=rows)
    return template("""
        SELECT :key AS row_key, parents.person, :output
        FROM :rows AS r
        JOIN :parents AS parents ON :reference = parents.row_key
    """)(key=key, output=output, rows=rows, parents=_persons_of_rows(manifest, parent, []), reference=reference)


def _numbers_table(position: int) -> exp.Table:
    return table(f"sqlanon_numbered_rows_{position}", "main", "temp")


def _compared_values(claims: TableClaims) -> list[exp.Alias]:
    """The quasi-identifiers of a released table as ``value_0``, ...: equal where readers see the same."""
    values = list[exp.Alias]()
    for i, column in enumerate(column for column in claims.columns if column.role == "quasi"):
        is_exact = column.type.split("(")[0] in _EXACT_TYPES
        values.append(as_column(col(column.name) if is_exact else cast(col(column.name), "VARCHAR"), f"value_{i}"))
    return values


def _quasi_identifier_rows(manifest: LinkedManifest, claims: TableClaims) -> exp.Select:
    """The rows of a released table: ``row_key``, ``parent_key`` and the values that readers compare."""
    keys = [
        as_column(first_column(claims.key), "row_key"),
        as_column(first_column(claims.references), "parent_key"),
    ]
    return select([*keys, *_compared_values(claims)], released_table(manifest, claims))


_EXACT_TYPES = frozenset(
    ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "DATE", "TIMESTAMP")
)
"""The types whose equal values are written alike."""


def _store_numbers(
    engine: Engine, target: exp.Table, rows: exp.Query, keys: Sequence[str], names: Sequence[str]
) -> None:
    """Store the ``keys`` of rows with ``number``: the same for rows that are equal in the columns ``names``."""
    if not names:
        query = template("SELECT :keys, 1::BIGINT AS number FROM :rows AS rows")(keys=cols(keys), rows=rows)
    else:
        query = template("""
            WITH rows AS (:rows),
            numbers AS (
                SELECT *, row_number() OVER () AS number FROM (SELECT DISTINCT :names FROM rows AS r) AS distinct_rows
            )
            SELECT :keys, numbers.number FROM rows JOIN numbers ON :same
        """)(rows=rows, names=cols(names), keys=cols(keys, "rows"), same=same_values(names, "rows", "numbers"))
    engine.execute(create_temporary_table(target, query))


def _number_persons(engine: Engine, manifest: LinkedManifest) -> exp.Table:
    """Store the persons of a release with a number for each class: ``row_key`` and ``number``."""
    persons, target = manifest.persons_table, _numbers_table(0)
    values = _compared_values(persons)
    rows = select([as_column(first_column(persons.key), "row_key"), *values], released_table(manifest, persons))
    _store_numbers(engine, target, rows, ["row_key"], [value.alias for value in values])
    return target


def _number_known_rows(engine: Engine, manifest: LinkedManifest) -> exp.Query:
    """Number the known rows: the rows of `known_rows_query`, with numbers for class and row."""
    persons = _number_persons(engine, manifest)
    parts: list[exp.Query] = [_PERSONS(persons=persons)]
    positions = {claims.name: position for position, claims in enumerate(manifest.tables)}
    for position, claims in enumerate(manifest.tables[1:], 1):
        parent, values = positions[claims.parent or ""], _compared_values(claims)
        names, keys = [value.alias for value in values], ["row_key", "person", "class"]
        table_rows = _quasi_identifier_rows(manifest, claims)
        if parent:
            rows = template("""
                SELECT rows.*, parents.person, parents.class, parents.number AS parent_number
                FROM :rows AS rows
                JOIN :parents AS parents ON rows.parent_key = parents.row_key
            """)(rows=table_rows, parents=_numbers_table(parent))
            names.append("parent_number")
        else:
            rows = template("""
                SELECT rows.*, persons.row_key AS person, persons.number AS class
                FROM :rows AS rows
                JOIN :persons AS persons ON rows.parent_key = persons.row_key
            """)(rows=table_rows, persons=persons)
        _store_numbers(engine, _numbers_table(position), rows, keys, names)
        known_rows = template("SELECT person, class, number * :tables + :position AS known_row FROM :rows AS rows")
        parts.append(known_rows(tables=len(manifest.tables), position=position, rows=_numbers_table(position)))
    return union_all(*parts)


def _number_whole_rows(engine: Engine, manifest: LinkedManifest) -> exp.Query:
    """Number the whole rows: the rows of `whole_rows_query`, with numbers for class and row."""
    persons = _number_persons(engine, manifest)
    parts: list[exp.Query] = [_PERSONS(persons=persons)]
    for position, claims in reversed(list(enumerate(manifest.tables))[1:]):
        values = _compared_values(claims)
        table_rows = _quasi_identifier_rows(manifest, claims)
        names = [value.alias for value in values]
        for child, child_claims in enumerate(manifest.tables):
            if child_claims.parent == claims.name:
                table_rows = template("""
                    SELECT rows.*, nested.numbers AS :name
                    FROM :rows AS rows
                    LEFT JOIN (
                        SELECT parent_key, list_sort(list(number)) AS numbers FROM :children AS c GROUP BY parent_key
                    ) AS nested ON rows.row_key = nested.parent_key
                """)(rows=table_rows, children=_numbers_table(child), name=ident(f"rows_{child}"))
                names.append(f"rows_{child}")
        _store_numbers(engine, _numbers_table(position), table_rows, ["parent_key"], names)
        if claims.parent == manifest.persons_table.name:
            select_whole_rows = template("""
                SELECT
                    persons.row_key AS person,
                    persons.number AS class,
                    rows.number * :tables + :position AS known_row
                FROM :rows AS rows
                JOIN :persons AS persons ON rows.parent_key = persons.row_key
            """)
            rows = _numbers_table(position)
            parts.append(select_whole_rows(tables=len(manifest.tables), position=position, rows=rows, persons=persons))
    return union_all(*parts)


_PERSONS = template("""
    SELECT row_key AS person, number AS class, NULL::BIGINT AS known_row FROM :persons AS persons
""")
