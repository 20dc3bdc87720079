"""PostgreSQL: queries over its catalog, its types, and the translation of queries built for DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from sqlglot import exp, parse_one

from sqlanon.engines.dialects.remote import RemoteDialect, Statement
from sqlanon.engines.dialects.semi_joins import join_by_condition
from sqlanon.engines.travel import DIRECT_TYPES, encode_columns
from sqlanon.engines.values import FLOATING_TYPES, canonical_float, person_id
from sqlanon.support.expressions import (
    aliased,
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    full_name,
    ident,
    native_type,
    select,
    subquery,
    template,
    text,
)

_STORED_TYPES = {"TINYINT": "smallint", "FLOAT": "real", "DOUBLE": "double precision", "VARCHAR": "text"}
"""PostgreSQL types by DuckDB types of another name."""


class PostgresDialect(RemoteDialect):
    """PostgreSQL's dialect.

    >>> to_duckdb_type("numeric(8,2)"), to_duckdb_type("timestamp(3) without time zone"), to_duckdb_type("character(5)")
    ('DECIMAL(8,2)', 'TIMESTAMP', 'VARCHAR')
    >>> to_duckdb_type("jsonb"), to_duckdb_type("numeric")
    (None, None)
    >>> from_duckdb_type("DECIMAL(8,2)"), from_duckdb_type("VARCHAR"), from_duckdb_type("UTINYINT")
    ('numeric(8,2)', 'text', None)
    """

    name = "postgres"
    text = "TEXT"
    types: ClassVar[Mapping[str, str]] = {
        **{"smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT"},
        **{"real": "FLOAT", "double precision": "DOUBLE", "boolean": "BOOLEAN", "text": "VARCHAR", "uuid": "UUID"},
        **{"date": "DATE", "time without time zone": "TIME", "timestamp without time zone": "TIMESTAMP"},
        **{"timestamp with time zone": "TIMESTAMP WITH TIME ZONE"},
    }
    decimal = "numeric"
    text_types = r'(?:text|character varying|character|name|"char"|citext)(?:\(\d+\))?'
    direct_types = DIRECT_TYPES

    def _decode_column(self, name: str, duckdb_type: str) -> exp.Expr:
        type_ = _STORED_TYPES.get(duckdb_type) or self._stored_type(duckdb_type)
        return collate_bytewise(col(name)) if type_ == "text" else cast(col(name), type_)

    def translate(self, query: Statement, relations: Mapping[str, exp.Expr]) -> Statement:
        return translate_to_postgres(query, relations)


POSTGRES = PostgresDialect()
to_duckdb_type, from_duckdb_type = POSTGRES.to_duckdb_type, POSTGRES.from_duckdb_type


_query = partial(template, dialect="postgres")


def collate_bytewise(value: exp.Expr) -> exp.Collate:
    """Compare and sort texts by bytes: a collation may equate texts that readers see as different."""
    return exp.Collate(this=value, expression=ident("C"))


def canonical_column(name: str, type_: str, duckdb_type: str, is_enum: bool = False) -> exp.Expr:
    """A column of PostgreSQL in canonical form: values are equal if readers see them as equal."""
    if is_enum:
        # A cast may call a function that the type's owner defined.
        return collate_bytewise(catalog_function("textin", catalog_function("enum_out", col(name))))
    if duckdb_type == "VARCHAR":
        return collate_bytewise(cast(col(name), "TEXT"))
    if duckdb_type in FLOATING_TYPES:
        is_nan = exp.EQ(this=col(name), expression=cast(text("NaN"), type_))
        return canonical_float(col(name), type_, is_nan)
    return cast(col(name), type_)


def person_id_column(name: str, type_: str, is_enum: bool = False) -> exp.Expr:
    """The person ids in a column, compared with PostgreSQL's own equality.

    Ids that a collation, or citext, treats as equal belong to one person.
    """
    if is_enum:
        return person_id(canonical_column(name, type_, "VARCHAR", is_enum))
    if to_duckdb_type(type_) != "VARCHAR":
        return col(name)
    value = person_id(cast(col(name), "TEXT"))
    return catalog_function("lower", value) if type_ == "citext" else value


def catalog_function(function: str, *arguments: exp.Expr) -> exp.Dot:
    """A call of a function of pg_catalog, whatever the search path is.

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
"""The columns of the relation with the oid in parameter 1: name, PostgreSQL type (of a domain its base type), whether
it is an enum."""
relation_name = _query("""
    SELECT n.nspname::text AS schema, c.relname::text AS name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = $1::oid
""")
"""Schema and name of the relation with the oid in parameter 1."""
has_temporary_privilege = _query("""
    SELECT has_database_privilege(current_database(), 'TEMPORARY') AND NOT pg_is_in_recovery() AS may
""")
"""One row: whether this user may create temporary tables in this database."""
server_capabilities = _query("""
    SELECT pg_is_in_recovery() AS is_replica, current_setting('server_encoding') AS encoding
""")
"""One row: whether the server is a read replica, and the encoding of the database."""
server_identity = _query("SELECT current_database()::text AS name, pg_postmaster_start_time()::text AS started")
"""One row that identifies the database: its name and the start time of the server."""
_TYPES_BY_OID = _query("""
    SELECT
        CASE WHEN t.typbasetype <> 0 THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(t.oid, -1) END,
        t.typtype = 'e' AS is_enum
    FROM :oids AS oids CROSS JOIN LATERAL unnest(oids.type_oids) WITH ORDINALITY AS k(oid, position)
    JOIN pg_type AS t ON t.oid = k.oid
    ORDER BY k.position
""")


def relation_oid() -> exp.Select:
    """One row: the oid of the relation that parameter 1 names, or NULL; independent of the search path."""
    name = exp.Cast(this=exp.Parameter(this=exp.Literal.number(1)), to=native_type("pg_catalog.text"))
    oid = exp.Cast(this=catalog_function("to_regclass", name), to=native_type("pg_catalog.oid"))
    return exp.Select(expressions=[as_column(oid, "number")])


def query_column_types(query: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """Like `relation_columns` for the columns of a query, with a row for each column; types have no precision."""
    one_row = subquery(exp.Select(expressions=[as_column(exp.null(), "nothing")]), "one")
    type_oids = [cast(catalog_function("pg_typeof", col(name, "query")), "oid") for name in names]
    oids = select([as_column(exp.Array(expressions=type_oids), "type_oids")], one_row)
    oids.append("joins", exp.Join(this=query.copy(), side="LEFT", on=exp.false()))
    return _TYPES_BY_OID(oids=oids)


def has_values_unknown_to_duckdb(relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """One row: for each column, whether it has values outside the range of DuckDB's types.

    These are NaN and infinity, dates before Christ, and timestamps in the year 294247 or later.
    """
    pattern = "( BC$)|(^NaN$)|(^-?Infinity$)|(^2942(4[7-9]|[5-9][0-9])-.* )"
    matches = [exp.RegexpLike(this=cast(col(name), "TEXT"), expression=text(pattern)) for name in columns]
    return select([exp.LogicalOr(this=match) for match in matches], relation.copy())


def unqualified_table_spans(statement: str) -> list[tuple[int, int]]:
    """The positions of table names without a schema in the data holder's SQL: first and last character, ascending.

    A name that any WITH defines is not listed: a table of that name must be written with its schema.

    >>> query = "WITH w AS (SELECT 1) SELECT 'ill' FROM Ill, w JOIN clinic.wards USING (id)"
    >>> [query[first : last + 1] for first, last in unqualified_table_spans(query)]
    ['Ill']
    """
    parsed = parse_one(statement, dialect="postgres")
    cte_names = {cte.alias.lower() for cte in parsed.find_all(exp.CTE)}
    spans = []
    for relation in parsed.find_all(exp.Table):
        name = relation.this
        if isinstance(name, exp.Identifier) and not relation.db and name.name.lower() not in cte_names:
            spans += [(name.meta["start"], name.meta["end"])] if "start" in name.meta else []
    return sorted(spans)


def table_schemas(statement: str) -> frozenset[str]:
    """The schemas of the tables in the data holder's SQL, as far as they are named.

    >>> sorted(table_schemas('SELECT * FROM Clinic.ill AS i, (SELECT 1 FROM "Ward".beds) AS b, patients'))
    ['Ward', 'clinic']
    """
    schemas = (relation.args.get("db") for relation in parse_one(statement, dialect="postgres").find_all(exp.Table))
    return frozenset(
        schema.name if schema.quoted else schema.name.lower()
        for schema in schemas
        if isinstance(schema, exp.Identifier)
    )


def count_combinations(relation: exp.Expr, columns: Mapping[str, str], count: str) -> exp.Select:
    """The distinct combinations of columns with their number of rows: all that leaves PostgreSQL of a source.

    >>> from sqlanon.support.expressions import table
    >>> count_combinations(table("patients"), {"zip": "VARCHAR"}, "n").sql("postgres")
    'SELECT "zip" AS "zip", "n" AS "n" FROM (SELECT "zip", COUNT(*) AS "n" FROM "patients" GROUP BY "zip") AS "rows"'
    """
    rows = as_column(exp.Count(this=exp.Star()), count)
    query = select([*map(col, columns), rows], relation.copy(), [col(name) for name in columns])
    return encode_columns(query, {**columns, count: "BIGINT"})


def count_distinct_values(relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """One row: for each column the number of distinct values, and of values that are not NULL."""
    figures: list[exp.Expr] = []
    for name in columns:
        figures += [exp.Count(this=exp.Distinct(expressions=[col(name)])), exp.Count(this=col(name))]
    return select(figures, relation.copy())


sample_rows = _query("SELECT * FROM :rows AS rows WHERE pg_catalog.random() < :share")
"""About this share of the rows of a query, at random."""


def translate_to_postgres(query: Statement, tables: Mapping[str, exp.Expr]) -> Statement:
    """Translate a statement built for DuckDB, with relations in place of the tables of these full names.

    >>> query = template("SELECT n + unnest(range(1, c)), list_sort(list(v)) FROM t SEMI JOIN u USING (n)")()
    >>> translate_to_postgres(query, {}).sql("postgres").partition(" WHERE ")[0]
    'SELECT "n" + GENERATE_SERIES(1, "c" - 1), ARRAY_AGG("v" ORDER BY "v" NULLS FIRST) FROM "t"'
    """
    query = query.copy()
    for old in list(query.find_all(exp.Table)):
        if (relation := tables.get(full_name(old))) is not None:
            old.replace(aliased(relation, old.alias or old.name))
    for node in reversed(list(query.walk())):  # innermost nodes first
        if (rewrite := _REWRITES.get(type(node))) is not None and (new := rewrite(node)) is not node:
            node.replace(new)
    return query


def _compare_null_as_equal(node: exp.Expr) -> exp.Expr:
    """PostgreSQL runs joins on ``IS NOT DISTINCT FROM`` as nested loops. Arrays of one element compare NULL as equal,
    too, and can be hashed."""
    left, right = (exp.Array(expressions=[side]) for side in (node.this, node.expression))
    return exp.EQ(this=left, expression=right)


def _name_stored_type(node: exp.Expr) -> exp.Expr:
    type_ = node.args["to"].args.get("kind")
    if isinstance(type_, str) and type_ in _STORED_TYPES:
        node.set("to", native_type(_STORED_TYPES[type_]))
    return node


def _name_subquery(node: exp.Expr) -> exp.Expr:
    """Before version 16, PostgreSQL requires an alias."""
    parent = node.parent
    if isinstance(parent, (exp.From, exp.Join)) and not node.alias:
        position = 0 if isinstance(parent, exp.From) else 1 + (parent.index or 0)
        node.set("alias", exp.TableAlias(this=ident(f"sqlanon_subquery_{position}")))
    return node


def _join_by_condition(node: exp.Expr) -> exp.Expr:
    """A semi or anti join with a condition becomes EXISTS."""
    assert isinstance(node, exp.Join)
    return join_by_condition(node, "postgres")


def _expand_range(node: exp.Expr) -> exp.Expr:
    series: exp.Expr = node.this
    return series if isinstance(series, exp.GenerateSeries) else node


def _rewrite_list_function(node: exp.Expr) -> exp.Expr:
    """``list_sort(list(x))``, and ``list_sum(list_slice(l, i, len(l)))``: the sum from a position on."""
    name = node.name.upper()
    if name == "LIST_SORT" and isinstance(list_ := node.expressions[0], exp.ArrayAgg):
        order = exp.Ordered(this=list_.this.copy(), nulls_first=True)
        return exp.ArrayAgg(this=exp.Order(this=list_.this, expressions=[order]))
    if name == "LIST_SUM" and (part := node.expressions[0]).name.upper() == "LIST_SLICE":
        values, first, last = part.expressions
        if last.name.upper() == "LEN" and last.expressions == [values]:
            return exp.Subquery(this=_SUM_FROM_POSITION(values=values, first=first))
    return node


_SUM_FROM_POSITION = _query("""
    SELECT sum(parts.value) FROM unnest(:values) WITH ORDINALITY AS parts(value, place) WHERE parts.place >= :first
""")


def _list_numbers(node: exp.Expr) -> exp.Expr:
    """A structure of whole numbers is a list, which is compared in the same way."""
    return exp.Array(expressions=[cast(field.expression, "BIGINT") for field in node.expressions])


def _find_first(node: exp.Expr) -> exp.Expr:
    """``arg_min(x, y)``: the first value in the order of others."""
    return _FIRST_VALUE(value=node.this, order=node.expression)


_FIRST_VALUE = fragment("(array_agg(:value ORDER BY :order))[1]", "postgres")


def _divide_whole_numbers(node: exp.Expr) -> exp.Expr:
    return exp.Div(this=node.this, expression=node.expression, typed=True)


def _multiply_days(node: exp.Expr) -> exp.Expr:
    return exp.Mul(this=node.this, expression=cast(text("1 day"), "INTERVAL"))


_REWRITES: Mapping[type[exp.Expr], Callable[[exp.Expr], exp.Expr]] = {
    exp.NullSafeEQ: _compare_null_as_equal,
    exp.Cast: _name_stored_type,
    exp.Subquery: _name_subquery,
    exp.Join: _join_by_condition,
    exp.Explode: _expand_range,
    exp.Anonymous: _rewrite_list_function,
    exp.ToDays: _multiply_days,
    exp.Struct: _list_numbers,
    exp.ArgMin: _find_first,
    exp.IntDiv: _divide_whole_numbers,
}
"""Changes of nodes that PostgreSQL lacks or runs slowly, with translated parts."""


def allow_nested_loops(allowed: bool) -> exp.Expr:
    """Allow nested-loop joins, or prefer hash and merge joins until the transaction ends."""
    statement = "SET LOCAL enable_nestloop = DEFAULT" if allowed else "SET LOCAL enable_nestloop = off"
    return fragment(statement, "postgres")()


def forbid_compilation() -> exp.Expr:
    """Do not compile queries until the transaction ends: for small tables without statistics it takes far longer than
    they do."""
    return fragment("SET LOCAL jit = off", "postgres")()


def analyze_table(target: exp.Table) -> exp.Analyze:
    """``ANALYZE target``: collect planner statistics of a new table."""
    return exp.Analyze(tables=[target])
