"""The statements of `source_samples` for PostgreSQL: values leave it as hashes only, and few of them.

The text form of a value, and its hash, are those of `source_samples`. The key of the hashes is the first parameter of
each statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.engines.dialects.postgres import bytewise, in_catalog
from sqlanon.expressions import cast, col, named, number, select, subquery, template, text
from sqlanon.ledger.source_samples import HEX_FROM

_KEY = 1

_IS_NUMBER = "^[+-]?([0-9]{1,100}([.][0-9]{0,100})?|[.][0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"
"""Of no more digits: what is too large for a number would be an error."""

# DuckDB writes numbers from 1e15 to 1e16 with all their digits, and whole ones with a digit after the point.
_NUMBER = template(
    """
    SELECT CASE
        WHEN digits ~ '^-?[0-9]+$' THEN digits || '.0'
        ELSE pg_catalog.lower(digits)
    END
    FROM (SELECT CASE WHEN own ~ 'e[+]15$' THEN own::numeric::text ELSE own END AS digits
          FROM (SELECT (:value)::double precision::text AS own) AS o) AS d
    """,
    "postgres",
)

_WORD = template(
    """
    SELECT CASE
        WHEN word ~ :number THEN :as_number
        WHEN word ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}$' THEN word || ' 00:00:00'
        WHEN word ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}$'
            THEN pg_catalog.replace(word, 'T', ' ')
        ELSE pg_catalog.lower(word)
    END
    FROM (SELECT pg_catalog.btrim(:value) AS word) AS w
    """,
    "postgres",
)

_DISTINCT = template(
    """
    SELECT :hash AS h, pg_catalog.count(*) OVER () AS d
    FROM (SELECT DISTINCT :value AS v FROM :relation) AS v
    ORDER BY 1
    LIMIT :most
    """,
    "postgres",
)

_FOUND = template(
    """
    WITH counted AS MATERIALIZED (:counted),
    sampled AS (
        SELECT h, pg_catalog.count(*) AS m
        FROM pg_catalog.unnest(pg_catalog.string_to_array($2::text, ',')) AS u(h)
        GROUP BY h
    ),
    found AS MATERIALIZED (
        SELECT s.m, c.n FROM sampled AS s LEFT JOIN (SELECT :combination AS h, n FROM counted) AS c ON c.h = s.h
    )
    SELECT
        (SELECT pg_catalog.sum(n)::bigint FROM counted) AS all_rows,
        (SELECT pg_catalog.count(*) FROM counted WHERE n = 1) AS once,
        (SELECT pg_catalog.count(*) FROM counted WHERE n = 2) AS twice,
        pg_catalog.sum(m)::bigint AS taken,
        COALESCE(pg_catalog.sum(m) FILTER (WHERE n = 1), 0)::bigint AS alone,
        pg_catalog.count(*) FILTER (WHERE n IS NULL) AS in_none,
        pg_catalog.count(*) FILTER (WHERE n = 1) AS in_one,
        pg_catalog.count(*) FILTER (WHERE n = 2) AS in_two
    FROM found
    """,
    "postgres",
)

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


def _text_of(value: exp.Expr, type_: str) -> exp.Expr:
    """A value of one of DuckDB's types, in the text form of `source_samples`."""
    if type_.startswith(_NUMBERS):
        return _number(cast(value, "TEXT"))
    if type_ == "DATE" or type_.startswith("TIMESTAMP"):
        return bytewise(cast(cast(value, "TIMESTAMP"), "TEXT"))
    if type_ == "VARCHAR":
        as_number = _number(col("word", "w"))
        return subquery(_WORD(value=bytewise(value), number=text(_IS_NUMBER), as_number=as_number))
    return bytewise(in_catalog("lower", cast(value, "TEXT")))


def _number(digits: exp.Expr) -> exp.Expr:
    return bytewise(subquery(_NUMBER(value=digits)))


def _hash(value: exp.Expr) -> exp.Expr:
    present = exp.DPipe(this=text(":"), expression=value)
    return _digits(exp.Coalesce(this=present, expressions=[text("NULL")]))


def _digits(message: exp.Expr) -> exp.Expr:
    key = cast(exp.Parameter(this=exp.Literal.number(_KEY)), "TEXT")
    whole = in_catalog("md5", exp.DPipe(this=key, expression=message))
    return bytewise(in_catalog("substr", whole, number(HEX_FROM)))


def sample(relation: exp.Expr, types: Sequence[tuple[str, str]], rows: int) -> exp.Select:
    """Rows taken at random, each value as the digits of its hash: ``h0`` .."""
    names = [name for name, _ in types]
    taken = select(list(map(col, names)), relation.copy())
    taken = taken.order_by(in_catalog("random"), copy=False).limit(rows, copy=False)
    hashes: list[exp.Expr] = [named(_hash(col(f"c{i}")), f"h{i}") for i in range(len(types))]
    return select(hashes, subquery(_texts(subquery(taken, "taken"), types), "t"))


def _texts(relation: exp.Expr, types: Sequence[tuple[str, str]]) -> exp.Select:
    return select([named(_text_of(col(name), type_), f"c{i}") for i, (name, type_) in enumerate(types)], relation)


def values_of(relation: exp.Expr, column: str, type_: str, most: int) -> exp.Select:
    """The least hashes of the values of a column, as digits, ``h``; and how many values it has, ``d``."""
    return _DISTINCT(hash=_hash(col("v")), value=_text_of(col(column), type_), relation=relation, most=number(most))


def row_count(relation: exp.Expr) -> exp.Select:
    """One row: how many rows there are."""
    return select([in_catalog("count", exp.Star())], relation.copy())


def found(relation: exp.Expr, types: Sequence[tuple[str, str]]) -> exp.Select:
    """One row: the rows of a source, its combinations of one row, and of two; the rows of a sample, and those whose
    combination exactly one row of the source has; of the sample's combinations those that no row has, one, and two.
    """
    by = [col(f"c{i}") for i in range(len(types))]
    texts = subquery(_texts(relation.copy(), types), "t")
    counted = select([*by, named(in_catalog("count", exp.Star()), ROWS)], texts, [one.copy() for one in by])
    hashes = [_hash(one.copy()) for one in by]
    message = hashes[0]
    for one in hashes[1:]:
        message = exp.DPipe(this=message, expression=one)
    return _FOUND(counted=subquery(counted), combination=_digits(message))
