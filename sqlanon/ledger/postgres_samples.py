"""`source_samples` for PostgreSQL: the server hashes rows, and returns few hashes, and counts.

From earlier samples, the server gets hashes of whole combinations, never of a single value. The text form of a value,
and its hash, are those of `source_samples`. The key of the hashes is the first parameter of each statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.dialects.postgres import catalog_function, collate_bytewise
from sqlanon.ledger.source_samples import HASHES, HEX_FROM, Counts, SampledRows, count_known_values, sampled_hash
from sqlanon.sources import source_errors
from sqlanon.support.coding import ROWS
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    drop_table,
    fragment,
    number,
    select,
    subquery,
    template,
    text,
)

_KEY = 1

_IS_NUMBER = "^[+-]?([0-9]{1,100}([.][0-9]{0,100})?|[.][0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"
"""The number of digits is limited, because a number out of range would be an error."""

# DuckDB writes numbers from 1e15 to 1e16 with all digits, and whole numbers with a digit after the point.
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

_MATCHES = template(
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

# --- Fetched hashes, in DuckDB

_FETCHED_VALUES = template("SELECT ('0x' || h)::UBIGINT AS h, d FROM :arrow")
_ALL_VALUES = template("SELECT max(d) FROM :values")
_SAMPLED_COMBINATIONS = template("SELECT string_agg(substr(md5(:message), :hex_from), ',') FROM :sampled")

LEAST_HASHES = 10_000
"""The most hashes of a column's values that are fetched from PostgreSQL, the least ones: of a million values one in a
hundred, and so twenty of 2,000 sampled ones."""

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
    key = cast(exp.Parameter(this=exp.Literal.number(_KEY)), "TEXT")
    whole = catalog_function("md5", exp.DPipe(this=key, expression=message))
    return collate_bytewise(catalog_function("substr", whole, number(HEX_FROM)))


def _sample(relation: exp.Expr, types: Sequence[tuple[str, str]], rows: int) -> exp.Select:
    """Random rows, each value as the digits of its hash: ``h0`` .."""
    names = [name for name, _ in types]
    taken = select(list(map(col, names)), relation.copy())
    taken = taken.order_by(catalog_function("random"), copy=False).limit(rows, copy=False)
    hashes: list[exp.Expr] = [as_column(_hash(col(f"c{i}")), f"h{i}") for i in range(len(types))]
    return select(hashes, subquery(_texts(subquery(taken, "taken"), types), "t"))


def _texts(relation: exp.Expr, types: Sequence[tuple[str, str]]) -> exp.Select:
    return select([as_column(_text_of(col(name), type_), f"c{i}") for i, (name, type_) in enumerate(types)], relation)


def values_of(relation: exp.Expr, column: str, type_: str, most: int) -> exp.Select:
    """The least hashes of the values of a column, as digits, ``h``, and the number of its values, ``d``."""
    return _DISTINCT(hash=_hash(col("v")), value=_text_of(col(column), type_), relation=relation, most=number(most))


def _matches_query(relation: exp.Expr, types: Sequence[tuple[str, str]]) -> exp.Select:
    """One row: the `Counts` of a sample in the source."""
    by = [col(f"c{i}") for i in range(len(types))]
    texts = subquery(_texts(relation.copy(), types), "t")
    combinations = select(
        [*by, as_column(catalog_function("count", exp.Star()), ROWS)], texts, [hashed.copy() for hashed in by]
    )
    hashes = [_hash(hashed.copy()) for hashed in by]
    message = hashes[0]
    for hashed in hashes[1:]:
        message = exp.DPipe(this=message, expression=hashed)
    return _MATCHES(counted=subquery(combinations), combination=_digits(message))


@dataclass
class PostgresRows(SampledRows):
    """The rows of a source in PostgreSQL."""

    _all_rows: int | None = None

    def sample(self, rows: int) -> exp.Query:
        """Random rows, fetched at once."""
        target = self.run.work("source_sample_there")
        self.run.engine.execute(drop_table(target.copy(), exists=True))  # a result can be published twice
        hashes = exp.array(
            *(fragment("('0x' || :digits)::UBIGINT")(digits=col(f"h{i}")) for i in range(len(self.columns)))
        )
        query = _sample(self.sampled.relation, self._types(self.columns), rows)
        self._fetch(target, query, lambda arrow: select([as_column(hashes, HASHES)], arrow))
        return select([col(HASHES)], target.copy())

    def match_values(self, sampled: exp.Table, place: int, column: str) -> tuple[float, int]:
        values, value_count = self.values_of(column)
        query = count_known_values(value=sampled_hash(place), sampled=sampled, values=values)
        if value_count > LEAST_HASHES:  # only the least hashes were fetched: greater sampled hashes do not count
            query = query.where(fragment("s.h <= (SELECT max(h) FROM :values)")(values=values), copy=False)
        hashes, known_hashes = self.run.engine.rows(query)[0]
        return (known_hashes / hashes if hashes else 0.0), value_count

    def count_rows(self, columns: Sequence[str]) -> int:
        if self._all_rows is None:
            with self.sampled.engine.read_only():
                self._all_rows = int(
                    self.sampled.engine.rows(
                        template("SELECT pg_catalog.count(*) FROM :relation", "postgres")(
                            relation=self.sampled.relation
                        )
                    )[0][0]
                )
        return self._all_rows

    def count_matches(self, sampled: exp.Table, pairs: Mapping[int, str]) -> Counts:
        # Hashes of whole combinations, as digits with commas: a single value cannot be guessed from them.
        digits = [anonymous("format", text("{:016x}"), sampled_hash(place)) for place in pairs]
        message = anonymous("concat", text(self.key), *digits)
        query = _SAMPLED_COMBINATIONS(message=message, hex_from=HEX_FROM, sampled=sampled)
        looked_up = self.run.engine.rows(query)[0][0]
        query = _matches_query(self.sampled.relation, self._types([*pairs.values()]))
        with self.sampled.engine.read_only():
            rows, once, twice, taken, alone, *by_rows = self.sampled.engine.rows(query, [self.key, looked_up])[0]
        in_none, in_one, in_two = by_rows
        return rows or 0, once, twice, taken or 0, alone, in_none, in_one, in_two

    def hash_values(self, target: exp.Table, column: str) -> int:
        query = values_of(self.sampled.relation, *self._types([column])[0], LEAST_HASHES)
        self._fetch(target, query, lambda arrow: _FETCHED_VALUES(arrow=arrow))
        return self.run.engine.rows(_ALL_VALUES(values=target))[0][0] or 0

    def _types(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, self.run.source.columns[name]) for name in columns]

    def _fetch(self, target: exp.Table, query: exp.Select, convert: Callable[[exp.Expr], exp.Select]) -> None:
        server = self.sampled.engine
        with source_errors(), server.read_only(), server.stream(query, [self.key]) as reader:
            self.run.engine.copy_arrow(target, reader, convert)
