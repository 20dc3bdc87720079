"""`source_samples` for PostgreSQL: the server hashes rows, and returns few hashes, and counts.

From earlier samples, the server gets hashes of whole combinations, never of a single value. The text form of a value,
and its hash, are those of `source_samples`. The key of the hashes is the first parameter of each statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from sqlanon.engines.dialects.canonical_text import HEX_FROM
from sqlanon.engines.dialects.postgres import catalog_function, collate_bytewise
from sqlanon.ledger.source_samples import HASHES, Counts, SampledRows, parse_hash, sampled_hash
from sqlanon.sources import source_errors
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    cols,
    drop_table,
    number,
    select,
    subquery,
    template,
    text,
)

_IS_NUMBER = "^[+-]?([0-9]{1,100}([.][0-9]{0,100})?|[.][0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"
"""The number of digits is limited, because a number out of range would be an error."""

# DuckDB writes numbers from 1e15 to 1e16 with all digits, and whole numbers with a digit after the point.
_NUMBER = template(
    """
    SELECT CASE
        WHEN digits ~ '^-?[0-9]+$' THEN digits || '.0'
        ELSE pg_catalog.lower(digits)
    END
    FROM (
        SELECT CASE WHEN spelling ~ 'e[+]15$' THEN spelling::numeric::text ELSE spelling END AS digits
        FROM (SELECT (:value)::double precision::text AS spelling) AS s
    ) AS d
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

_MATCHES = template(
    """
    WITH counted AS MATERIALIZED (
        SELECT :columns, pg_catalog.count(*) AS row_count
        FROM :texts
        GROUP BY :columns
    ),
    sampled AS (
        SELECT hash, pg_catalog.count(*) AS sampled_rows
        FROM pg_catalog.unnest(pg_catalog.string_to_array($2::text, ',')) AS u(hash)
        GROUP BY hash
    ),
    matched AS MATERIALIZED (
        SELECT s.sampled_rows, c.row_count
        FROM sampled AS s
        LEFT JOIN (SELECT :combination AS hash, row_count FROM counted) AS c ON c.hash = s.hash
    )
    SELECT
        (SELECT COALESCE(pg_catalog.sum(row_count), 0)::bigint FROM counted) AS all_rows,
        (SELECT pg_catalog.count(*) FROM counted WHERE row_count = 1) AS once,
        (SELECT pg_catalog.count(*) FROM counted WHERE row_count = 2) AS twice,
        COALESCE(pg_catalog.sum(sampled_rows), 0)::bigint AS taken,
        COALESCE(pg_catalog.sum(sampled_rows) FILTER (WHERE row_count = 1), 0)::bigint AS alone,
        pg_catalog.count(*) FILTER (WHERE row_count IS NULL) AS in_none,
        pg_catalog.count(*) FILTER (WHERE row_count = 1) AS in_one,
        pg_catalog.count(*) FILTER (WHERE row_count = 2) AS in_two
    FROM matched
    """,
    "postgres",
)

MIN_HASHES = 10_000
"""Number of the smallest hashes of a column's values that are fetched from PostgreSQL: for a million values, one in a
hundred, and so about twenty of 2,000 sampled values."""

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


def _text_of(value: exp.Expr, type_: str) -> exp.Expr:
    """A value of one of DuckDB's types, in the text form of `source_samples`."""
    if type_.startswith(_NUMBERS):
        return _number(cast(value, "TEXT"))
    if type_ == "DATE" or type_.startswith("TIMESTAMP"):
        return collate_bytewise(cast(cast(value, "TIMESTAMP"), "TEXT"))
    if type_ == "VARCHAR":
        as_number = _number(col("word", "w"))
        return subquery(_WORD(value=collate_bytewise(value), number=text(_IS_NUMBER), as_number=as_number))
    return collate_bytewise(catalog_function("lower", cast(value, "TEXT")))


def _number(digits: exp.Expr) -> exp.Expr:
    return collate_bytewise(subquery(_NUMBER(value=digits)))


def _hash(value: exp.Expr) -> exp.Expr:
    present = exp.DPipe(this=text(":"), expression=value)
    return _digits(exp.Coalesce(this=present, expressions=[text("NULL")]))


def _digits(message: exp.Expr) -> exp.Expr:
    key = cast(exp.Parameter(this=exp.Literal.number(1)), "TEXT")
    whole = catalog_function("md5", exp.DPipe(this=key, expression=message))
    return collate_bytewise(catalog_function("substr", whole, number(HEX_FROM)))


def values_of(relation: exp.Expr, column: str, type_: str, most: int) -> exp.Select:
    """The least hashes of the values of a column, as digits, ``hash``, and the number of values, ``value_count``."""
    return template(
        """
        SELECT :hash AS hash, pg_catalog.count(*) OVER () AS value_count
        FROM (SELECT DISTINCT :value AS value FROM :relation) AS v
        ORDER BY 1
        LIMIT :most
        """,
        "postgres",
    )(hash=_hash(col("value")), value=_text_of(col(column), type_), relation=relation, most=number(most))


@dataclass
class PostgresRows(SampledRows):
    """The rows of a source in PostgreSQL."""

    def sample(self, rows: int) -> exp.Query:
        """Random rows, fetched at once: each value as the digits of its hash, ``h0`` .."""
        target = self.run.work("source_sample_there")
        self.run.engine.execute(drop_table(target.copy(), exists=True))  # a result can be published twice
        taken = select(cols(self.columns), self.sampled.relation.copy())
        taken = taken.order_by(catalog_function("random"), copy=False).limit(rows, copy=False)
        places = range(len(self.columns))
        hashed = [as_column(_hash(col(f"c{i}")), f"h{i}") for i in places]
        query = select([*hashed], subquery(self._texts(subquery(taken, "taken"), self.columns), "t"))
        hashes = exp.array(*(parse_hash(digits=col(f"h{i}")) for i in places))
        self._fetch(target, query, lambda arrow: select([as_column(hashes, HASHES)], arrow))
        return select([col(HASHES)], target.copy())

    def count_matches(self, sampled: exp.Table, pairs: Mapping[int, str]) -> Counts:
        # Hashes of whole combinations, as digits with commas: a single value cannot be guessed from them.
        digits = [anonymous("format", text("{:016x}"), sampled_hash(place)) for place in pairs]
        message = anonymous("concat", text(self.key), *digits)
        sampled_digits = template("SELECT string_agg(substr(md5(:message), :hex_from), ',') FROM :sampled")(
            message=message, hex_from=HEX_FROM, sampled=sampled
        )
        looked_up = self.run.engine.rows(sampled_digits)[0][0]
        columns = cols(f"c{i}" for i in range(len(pairs)))
        hashes = [_hash(column.copy()) for column in columns]
        combination = _digits(reduce(lambda left, right: exp.DPipe(this=left, expression=right), hashes))
        texts = subquery(self._texts(self.sampled.relation.copy(), [*pairs.values()]), "t")
        query = _MATCHES(columns=columns, texts=texts, combination=combination)
        with self.sampled.engine.read_only():
            rows, once, twice, taken, alone, *by_rows = self.sampled.engine.rows(query, [self.key, looked_up])[0]
        in_none, in_one, in_two = by_rows
        return rows, once, twice, taken, alone, in_none, in_one, in_two

    def hash_values(self, target: exp.Table, column: str) -> tuple[int, bool]:
        query = values_of(self.sampled.relation, column, self.run.source.columns[column], MIN_HASHES)
        convert = template("SELECT ('0x' || hash)::UBIGINT AS hash, value_count FROM :arrow")
        self._fetch(target, query, lambda arrow: convert(arrow=arrow))
        value_count = self.run.engine.rows(template("SELECT max(value_count) FROM :values")(values=target))[0][0] or 0
        return value_count, value_count <= MIN_HASHES

    def _texts(self, relation: exp.Expr, columns: Sequence[str]) -> exp.Select:
        """The values of some columns as texts: ``c0`` .."""
        types = self.run.source.columns
        texts = [as_column(_text_of(col(name), types[name]), f"c{i}") for i, name in enumerate(columns)]
        return select([*texts], relation)

    def _fetch(self, target: exp.Table, query: exp.Select, convert: Callable[[exp.Expr], exp.Select]) -> None:
        server = self.sampled.engine
        with source_errors(), server.read_only(), server.stream(query, [self.key]) as reader:
            self.run.engine.copy_arrow(target, reader, convert)
