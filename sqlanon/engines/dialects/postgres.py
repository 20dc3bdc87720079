"""What is asked of PostgreSQL, and how queries that are built for the engine beside us are put to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from sqlglot import exp, parse_one

from sqlanon.engines.dialects.remote import RemoteDialect
from sqlanon.engines.travel import encode_columns
from sqlanon.engines.values import FLOATING_TYPES, canonical_float, person_id
from sqlanon.support.expressions import (
    aliased,
    anonymous,
    cast,
    col,
    full_name,
    ident,
    named,
    native_type,
    select,
    subquery,
    template,
    text,
)

_SAME_IN_BOTH: Mapping[str, str] = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "VARCHAR",
    "date": "DATE",
    "time without time zone": "TIME",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
    "uuid": "UUID",
}
"""PostgreSQL's name of a type, and DuckDB's."""

_TEXT = ("character varying", "character", "name", '"char"', "citext")
"""Types whose values are text."""

_NAMED_DIFFERENTLY = {"TINYINT": "smallint", "FLOAT": "real", "DOUBLE": "double precision", "VARCHAR": "text"}
"""Where a type of DuckDB has another name in PostgreSQL."""

_DECIMAL = re.compile(r"(?:numeric|DECIMAL)\((\d+),(\d+)\)")
_PRECISION = re.compile(r"\((\d+)\)")


def to_duckdb_type(type_: str) -> str | None:
    """DuckDB's name of a type, by PostgreSQL's; None where it has no equal.

    >>> to_duckdb_type("numeric(8,2)"), to_duckdb_type("timestamp(3) without time zone"), to_duckdb_type("character(5)")
    ('DECIMAL(8,2)', 'TIMESTAMP', 'VARCHAR')
    >>> to_duckdb_type("jsonb"), to_duckdb_type("numeric")
    (None, None)
    """
    if match := _DECIMAL.fullmatch(type_):
        width, scale = int(match[1]), int(match[2])
        return f"DECIMAL({width},{scale})" if scale <= width <= 38 else None
    plain = _PRECISION.sub("", type_)
    return "VARCHAR" if plain in _TEXT else _SAME_IN_BOTH.get(plain)


def from_duckdb_type(type_: str) -> str | None:
    """PostgreSQL's name of a type, by DuckDB's; None where the value would come back as of another type.

    >>> from_duckdb_type("DECIMAL(8,2)"), from_duckdb_type("VARCHAR"), from_duckdb_type("UTINYINT")
    ('numeric(8,2)', 'text', None)
    """
    if _DECIMAL.fullmatch(type_):
        return type_.replace("DECIMAL", "numeric")
    return next((theirs for theirs, ours in _SAME_IN_BOTH.items() if ours == type_), None)


_query = partial(template, dialect="postgres")


def decode_columns_there(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """What has travelled, with the types that it had: for PostgreSQL; `arrived` is for DuckDB."""
    return select([named(_landed(name, type_), name) for name, type_ in types.items()], relation)


def _landed(name: str, type_: str) -> exp.Expr:
    own = _NAMED_DIFFERENTLY.get(type_) or from_duckdb_type(type_)
    if own is None:
        raise ValueError(f"{type_} has no equal in PostgreSQL")
    return collate_bytewise(col(name)) if own == "text" else cast(col(name), own)


def collate_bytewise(value: exp.Expr) -> exp.Collate:
    """Text that is equal, and sorted, byte by byte: a collation may take what a reader tells apart for the same."""
    return exp.Collate(this=value, expression=ident("C"))


def canonical_column(name: str, own: str, type_: str, own_is_enum: bool = False) -> exp.Expr:
    """A column of PostgreSQL whose equality is what a reader sees."""
    if own_is_enum:
        # A cast may be one of its owner's own functions.
        return collate_bytewise(catalog_function("textin", catalog_function("enum_out", col(name))))
    if type_ == "VARCHAR":
        return collate_bytewise(cast(col(name), "TEXT"))
    if type_ in FLOATING_TYPES:
        is_nan = exp.EQ(this=col(name), expression=cast(text("NaN"), own))
        return canonical_float(col(name), own, is_nan)
    return cast(col(name), own)


def person_id_column(name: str, own: str, own_is_enum: bool = False) -> exp.Expr:
    """The ids of a column of persons, who are told apart by PostgreSQL's own equality.

    A collation that takes texts for equal counts them as one person, and so does citext.
    """
    if own_is_enum:
        return person_id(canonical_column(name, own, "VARCHAR", own_is_enum))
    if to_duckdb_type(own) != "VARCHAR":
        return col(name)
    value = person_id(cast(col(name), "TEXT"))
    return catalog_function("lower", value) if own == "citext" else value


def catalog_function(function: str, *arguments: exp.Expr) -> exp.Dot:
    """A call of a function of PostgreSQL's own, wherever names are looked up.

    >>> catalog_function("random").sql("postgres")
    'pg_catalog.random()'
    """
    return exp.Dot(this=exp.Var(this="pg_catalog"), expression=anonymous(function, *arguments))


relation_columns = _query("""
    SELECT
        a.attname::text AS name,
        CASE
            WHEN t.typname = 'citext' AND EXISTS (
                SELECT 1 FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
                WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
                    AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'citext'
            ) THEN 'citext'
            ELSE format_type(
                CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.oid END,
                CASE WHEN t.typbasetype <> 0 THEN t.typtypmod ELSE a.atttypmod END
            )
        END AS type,
        t.typtype = 'e' AS is_enum
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
""")
"""The columns of the relation whose number is parameter 1: name, PostgreSQL's type (of a domain its own), is it an
enum."""
relation_name = _query("""
    SELECT n.nspname::text AS schema, c.relname::text AS name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = $1::oid
""")
"""Schema and name of the relation whose number is parameter 1."""
has_temporary_privilege = _query("""
    SELECT has_database_privilege(current_database(), 'TEMPORARY') AND NOT pg_is_in_recovery() AS may
""")
"""One row: whether this user may make temporary relations here."""
server_capabilities = _query("""
    SELECT pg_is_in_recovery() AS is_replica, current_setting('server_encoding') AS encoding
""")
"""One row: whether the server is a read replica, and how the database encodes texts."""
server_identity = _query("SELECT current_database()::text AS name, pg_postmaster_start_time()::text AS started")
"""One row, which is the same for two connections to one database: its name, and when the server was started."""
_TYPES_OF_NUMBERS = _query("""
    SELECT
        CASE WHEN t.typbasetype <> 0 THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(t.oid, -1) END,
        t.typtype = 'e' AS is_enum
    FROM :numbers AS numbers CROSS JOIN LATERAL unnest(numbers.kinds) WITH ORDINALITY AS k(oid, place)
    JOIN pg_type AS t ON t.oid = k.oid
    ORDER BY k.place
""")


def relation_oid() -> exp.Select:
    """One row: the number (oid) of the relation that parameter 1 names, on whatever path; NULL where there is none."""
    name = exp.Cast(this=exp.Parameter(this=exp.Literal.number(1)), to=native_type("pg_catalog.text"))
    found = exp.Cast(this=catalog_function("to_regclass", name), to=native_type("pg_catalog.oid"))
    return exp.Select(expressions=[named(found, "number")])


def query_column_types(query: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """What `relation_columns` has, of the columns of a query; but of a type no more than its name: precisions are not
    there.

    There is a row for each, whether the query has any or not.
    """
    nobody = subquery(exp.Select(expressions=[named(exp.null(), "nothing")]), "one")
    kinds = [cast(catalog_function("pg_typeof", col(name, "query")), "oid") for name in names]
    numbers = select([named(exp.Array(expressions=kinds), "kinds")], nobody)
    numbers.append("joins", exp.Join(this=query.copy(), side="LEFT", on=exp.false()))
    return _TYPES_OF_NUMBERS(numbers=numbers)


def has_values_unknown_to_duckdb(relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """One row: for each column whether it has a value that has no equal here: a number that is none, a date before
    Christ, a timestamp in the year 294247 or later."""
    texts = (cast(col(name), "TEXT") for name in columns)
    unlike = "( BC$)|(^NaN$)|(^-?Infinity$)|(^2942(4[7-9]|[5-9][0-9])-.* )"
    found = [exp.RegexpLike(this=one, expression=text(unlike)) for one in texts]
    return select([exp.LogicalOr(this=one) for one in found], relation.copy())


def unqualified_table_spans(statement: str) -> list[tuple[int, int]]:
    """Where in the holder's own SQL tables are named without a schema: first and last character of each, ascending.

    A name that a WITH gives is none of these, wherever it stands: the table of that name has to be written with its
    schema.

    >>> query = "WITH w AS (SELECT 1) SELECT 'ill' FROM Ill, w JOIN clinic.wards USING (id)"
    >>> [query[first : last + 1] for first, last in unqualified_table_spans(query)]
    ['Ill']
    """
    parsed = parse_one(statement, dialect="postgres")
    given = {one.alias.lower() for one in parsed.find_all(exp.CTE)}
    found = [one.this for one in parsed.find_all(exp.Table) if isinstance(one.this, exp.Identifier) and not one.db]
    places = (one.meta for one in found if one.name.lower() not in given)
    return sorted((place["start"], place["end"]) for place in places if "start" in place)


def count_combinations(relation: exp.Expr, columns: Mapping[str, str], count: str) -> exp.Select:
    """The distinct combinations of columns, with how many rows have each: all that leaves PostgreSQL of a source.

    >>> from sqlanon.support.expressions import table
    >>> count_combinations(table("patients"), {"zip": "VARCHAR"}, "n").sql("postgres")
    'SELECT "zip" AS "zip", "n" AS "n" FROM (SELECT "zip", COUNT(*) AS "n" FROM "patients" GROUP BY "zip") AS "rows"'
    """
    counted = named(exp.Count(this=exp.Star()), count)
    query = select([*map(col, columns), counted], relation.copy(), [col(name) for name in columns])
    return encode_columns(query, {**columns, count: "BIGINT"})


def count_distinct_values(relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """One row: for each column how many distinct values it has, and its values that are not NULL."""
    figures: list[exp.Expr] = []
    for name in columns:
        figures += [exp.Count(this=exp.Distinct(expressions=[col(name)])), exp.Count(this=col(name))]
    return select(figures, relation.copy())


sample_rows = _query("SELECT * FROM :rows AS rows WHERE pg_catalog.random() < :share")
"""About this share of the rows of a query, at random."""

_Statement = TypeVar("_Statement", bound=exp.Expr)


def translate_to_postgres(query: _Statement, tables: Mapping[str, exp.Expr]) -> _Statement:
    """A query as PostgreSQL runs it, over other relations.

    NULL is a value of its own in joins, and ``IS NOT DISTINCT FROM`` would compare all rows with all: arrays of one
    element say the same, and can be hashed.
    """
    query = query.copy()
    for found in list(query.find_all(exp.Table)):
        if (other := tables.get(full_name(found))) is not None:
            found.replace(aliased(other, found.alias or found.name))
    for equal in list(query.find_all(exp.NullSafeEQ)):
        sides = (exp.Array(expressions=[side]) for side in (equal.this, equal.expression))
        equal.replace(exp.EQ(this=next(sides), expression=next(sides)))
    for one in list(query.find_all(exp.Cast)):
        kind = one.to.args.get("kind")
        if isinstance(kind, str) and kind in _NAMED_DIFFERENTLY:
            one.set("to", native_type(_NAMED_DIFFERENTLY[kind]))
    return query


def allow_nested_loops(allowed: bool) -> exp.Command:
    """Have joins be hashed or merged, wherever that can be done, until it is allowed again or the transaction ends."""
    return exp.Command(this="SET", expression=f"LOCAL enable_nestloop TO {'DEFAULT' if allowed else 'off'}")


def analyze_table(target: exp.Table) -> exp.Analyze:
    """``ANALYZE target``: what the planner knows of a new table."""
    return exp.Analyze(tables=[target])


class _PostgresDialect(RemoteDialect):
    def landed(self, relation: exp.Expr, types: Mapping[str, str]) -> exp.Subquery:
        return subquery(decode_columns_there(relation, types), "shipped")

    def put_there(self, query: exp.Query, relations: Mapping[str, exp.Expr]) -> exp.Query:
        return translate_to_postgres(query, relations)


POSTGRES = _PostgresDialect("postgres", text="TEXT", type_here=to_duckdb_type, type_there=from_duckdb_type)
"""For statements over tables of both engines; `sources.postgres` counts persons by them."""
