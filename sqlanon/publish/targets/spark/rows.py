"""The rows of a release that stays in Spark: their content digest, and their counts.

Released rows are public, but there may be many of them. Spark computes the content digest, which equals that of
``sqlanon.digest`` in DuckDB. Each distinct combination of the columns that the requirements read is fetched once with
its count, and a view repeats it that many times, so that the usual checks can run on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import verify_rows
from sqlanon.engines.dialects.spark import SPARK, TEXT, to_duckdb_type
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.travel import encode_columns, repeat_rows, row_count_column
from sqlanon.errors import BrokenReleaseError
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.publish.targets.server import copy_stream
from sqlanon.release.digests import INTEGER_TYPES, column_multipliers, hash_buckets
from sqlanon.release.manifest import Manifest, ReleasedColumn, types_in
from sqlanon.release.reader import SUBJECT, CachedQueries, OpenRelease, open_audit_engine
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.support.checks import Check
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    create_table_with_columns,
    create_temporary_view,
    drop_table,
    drop_view,
    fragment,
    ident,
    select,
    select_star,
    subquery,
    table,
    template,
    text,
)

_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")

_SPECIAL_NUMBERS = {
    **{"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"},
    # Java writes at least two digits.
    **{"4.9E-324": "5e-324", "-4.9E-324": "-5e-324", "9.9E-324": "1e-323", "-9.9E-324": "-1e-323"},
}
"""DuckDB's text of a number by Java's, where no rule converts it."""

_DATE_PATTERN = r"^-?([0-9]+)(-[0-9][0-9]-[0-9][0-9])(.*)$"

_spark = partial(fragment, dialect="spark")

# Jackson is part of every Spark; Java's own text of a number has superfluous digits before Java 19. The method fails on
# NULL.
_SHORTEST_DOUBLE = _spark("""
    if(
        :value IS NULL,
        NULL,
        reflect(
            'com.fasterxml.jackson.core.io.schubfach.DoubleToDecimal', 'toString', CAST(coalesce(:value, 0) AS DOUBLE)
        )
    )
""")

# The sum of signed products of 62 bits. Each is summed in pieces of 21 bits, so that no BIGINT overflows below 2 ** 42
# rows; the first piece has the sign.
_DIGEST = template(
    """
    SELECT
        count(*) AS rows,
        CAST((
            CAST(coalesce(sum(shiftright(product, 42)), 0) AS DECIMAL(28,0)) * 4398046511104
            + CAST(coalesce(sum((shiftright(product, 21) & CAST(2097151 AS BIGINT))), 0) AS DECIMAL(28,0)) * 2097152
            + CAST(coalesce(sum((product & CAST(2097151 AS BIGINT))), 0) AS DECIMAL(28,0))
        ) AS STRING) AS digest
    FROM (
        SELECT shiftright(line, 32) * (line & CAST(2147483647 AS BIGINT)) AS product
        FROM :lines AS lines
    ) AS products
    """,
    dialect="spark",
)


def bucket_hashes(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """The SHA-256 of the sorted row hashes of each of 4,096 buckets, for `sqlanon.release.digests.hash_buckets`."""
    cells = [(f"c{i}", name, type_) for i, (name, type_) in enumerate(types.items())]
    values = select([as_column(_spark_value(col(name), type_), cell) for cell, name, type_ in cells], relation.copy())
    duckdb_texts = (
        cast(col(cell), "STRING") if type_ in INTEGER_TYPES else _duckdb_text(col(cell), type_)
        for cell, _, type_ in cells
    )
    texts = select(
        [as_column(value, cell) for value, (cell, _, _) in zip(duckdb_texts, cells, strict=True)],
        subquery(values, "raw"),
    )
    return template(
        """
        SELECT left(row_hash, 3) AS bucket, sha2(concat_ws('', :sorted_hashes), 256) AS rows_hash
        FROM (SELECT sha2(concat(:cells), 256) AS row_hash FROM :texts AS texts) AS hashed
        GROUP BY left(row_hash, 3)
        """,
        dialect="spark",
    )(
        sorted_hashes=anonymous("array_sort", _spark("collect_list(row_hash)")()),
        cells=[
            _spark("coalesce(concat(octet_length(:text), ':', :text), '-')")(text=col(cell)) for cell, _, _ in cells
        ],
        texts=texts,
    )


def digest_query(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """Count the rows of a relation and compute their digest: one row, ``rows`` and ``digest``."""
    cells = {f"c{i}": (name, type_) for i, (name, type_) in enumerate(types.items())}
    # One stage each: Spark would evaluate `reflect` again for every use of its result in the same stage.
    raw: list[exp.Expr] = [as_column(_spark_value(col(name), type_), cell) for cell, (name, type_) in cells.items()]
    hashed: list[exp.Expr] = [
        as_column(col(cell) if type_ in INTEGER_TYPES else _hash_text(_duckdb_text(col(cell), type_)), cell)
        for cell, (_, type_) in cells.items()
    ]
    numbers: list[exp.Expr] = [
        exp.Paren(this=_cell_number(col(cell), name, type_)) for cell, (name, type_) in cells.items()
    ]
    line = reduce(lambda left, right: exp.BitwiseXor(this=left, expression=right), numbers)
    rows = subquery(select(hashed, subquery(select(raw, relation.copy()), "raw")), "hashed")
    return _DIGEST(lines=select([as_column(line, "line")], rows))


def _hash_text(text_: exp.Expr) -> exp.Expr:
    return _spark("md5(concat('=', :text))")(text=text_)


def is_digestible(type_: str) -> bool:
    """Whether Spark can write the values of a DuckDB type as DuckDB does.

    Not FLOAT: DuckDB's text of some values has superfluous digits.

    >>> [is_digestible(type_) for type_ in ("VARCHAR", "DECIMAL(8,2)", "DOUBLE", "FLOAT", "INTEGER[]")]
    [True, True, True, False, False]
    """
    return type_ in (*INTEGER_TYPES, "VARCHAR", "DOUBLE", *_TIMES) or _is_decimal(type_)


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL(") and type_.endswith(")")


def _spark_value(value: exp.Expr, type_: str) -> exp.Expr:
    """An integer as BIGINT, any other value as Spark's text of it."""
    if type_ == "DOUBLE":
        return _SHORTEST_DOUBLE(value=value)
    if type_ in INTEGER_TYPES:
        return cast(value, "BIGINT")
    return value if type_ == "VARCHAR" else cast(value, "STRING")


def _duckdb_text(spark_text: exp.Expr, type_: str) -> exp.Expr:
    """DuckDB's text of a value by Spark's."""
    if type_ == "DOUBLE":
        # DuckDB writes an exponent only below -4 or above 15.
        number_text = _spark("""
            CASE
                WHEN NOT contains(:java_text, 'E') THEN :java_text
                WHEN CAST(substring_index(:java_text, 'E', -1) AS INT) BETWEEN -4 AND 15 THEN
                    regexp_replace(
                        regexp_replace(CAST(CAST(:java_text AS DECIMAL(38,21)) AS STRING), '0+$', ''), '[.]$', '.0'
                    )
                ELSE concat(
                    regexp_replace(substring_index(:java_text, 'E', 1), '[.]0$', ''),
                    'e',
                    format_string('%+03d', CAST(substring_index(:java_text, 'E', -1) AS INT))
                )
            END
        """)(java_text=spark_text)
        special = [
            exp.If(this=spark_text.eq(text(java_text)), true=text(duckdb_text))
            for java_text, duckdb_text in _SPECIAL_NUMBERS.items()
        ]
        number_text.set("ifs", [*special, *number_text.args["ifs"]])
        return number_text
    if _is_decimal(type_):
        width, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        if int(width) > int(scale):
            return spark_text
        return _spark("regexp_replace(:spark_text, '^(-?)0[.]', '$1.')")(spark_text=spark_text)
    if type_ not in _TIMES:
        return spark_text
    # The year of a date or time may have more than four digits, or be before Christ.
    time_text = _spark("""
        CASE
            WHEN startswith(:spark_text, '-') OR startswith(:spark_text, '0000') THEN concat(
                format_string('%04d', CAST(regexp_extract(:spark_text, :date, 1) AS INT) + 1),
                regexp_extract(:spark_text, :date, 2),
                ' (BC)',
                regexp_extract(:spark_text, :date, 3)
            )
            WHEN startswith(:spark_text, '+') THEN substring(:spark_text, 2)
            ELSE :spark_text
        END
    """)(spark_text=spark_text, date=_DATE_PATTERN)
    return _spark("(:time_text || '+00')")(time_text=time_text) if type_ == "TIMESTAMP WITH TIME ZONE" else time_text


def _cell_number(integer_or_hash: exp.Expr, name: str, type_: str) -> exp.Expr:
    high, low = column_multipliers(name)
    if type_ in INTEGER_TYPES:
        return _spark("""
            coalesce(
                (((:value & CAST(2147483647 AS BIGINT)) + CAST(1431655765 AS BIGINT)) * CAST(:high AS BIGINT))
                ^ (shiftright(:value, 31) * CAST(:low AS BIGINT)),
                CAST(0 AS BIGINT)
            )
        """)(value=integer_or_hash, high=high, low=low)
    # The upper 31 bits of an MD5 whose bytes are read from the last to the first, times N.
    return _spark("""
        coalesce(
            shiftright(
                (
                    shiftleft((:last & CAST(255 AS BIGINT)), 24)
                    + shiftleft((:last & CAST(65280 AS BIGINT)), 8)
                    + (shiftright(:last, 8) & CAST(65280 AS BIGINT))
                    + shiftright(:last, 24)
                ),
                1
            ) * CAST(:high AS BIGINT),
            CAST(0 AS BIGINT)
        )
    """)(last=_spark("CAST(conv(substring(:hash, 25, 8), 16, 10) AS BIGINT)")(hash=integer_or_hash), high=high)


FETCH_SIZE = 2_000_000
"""Maximum number of combinations that are fetched by one query."""


def types_of(server: SparkEngine, relation: exp.Table) -> dict[str, str]:
    """DuckDB's types of a relation's columns; Spark's for a type without equivalent, or with a collation."""
    types = server.columns(relation)
    return {name: type_ if "collate" in type_ else to_duckdb_type(type_) or type_ for name, type_ in types.items()}


def checked_columns(
    privacy: Mapping[str, Any], quasi_identifiers: Sequence[str], columns: Sequence[ReleasedColumn]
) -> dict[str, str]:
    """The types of the columns that the requirements read, by name."""
    section, _ = read_part(PrivacySection, privacy, "privacy", {})
    names = {name.lower() for name in quasi_identifiers}
    if section is not None:
        sensitive = [column.name for column in columns if column.role == "sensitive"]
        names |= {name.lower() for name in examined_sensitive_attributes(section, sensitive)}
    return types_in(column for column in columns if column.name.lower() in names)


def columns_checked_by(manifest: Manifest) -> dict[str, str]:
    """The types of the columns that the requirements of a manifest read, by name."""
    return checked_columns(manifest.policy["privacy"], manifest.quasi_identifiers, manifest.columns)


@contextmanager
def pin_rows(server: SparkEngine, query: exp.Expr) -> Iterator[tuple[exp.Table, int]]:
    """Keep the rows of a query in Spark, so that all queries read the same rows; yield them and their number."""
    name = f"sqlanon_rows_{uuid4().hex[:12]}"
    try:
        yield table(name), server.materialize(name, query)
    finally:
        server.forget(name)


def combinations_query(relation: exp.Table, columns: Iterable[str], row_count: str) -> exp.Expr:
    """Count the rows of each distinct combination of columns."""
    return fragment("SELECT :columns, count(*) AS :row_count FROM :relation GROUP BY :columns", "spark")(
        columns=[col(name) for name in columns], row_count=ident(row_count), relation=relation
    )


def _count_combinations(
    server: SparkEngine, relation: exp.Table, types: Mapping[str, str]
) -> AbstractContextManager[tuple[exp.Table, int]]:
    return pin_rows(server, combinations_query(relation, types, row_count_column(types)))


@dataclass(frozen=True)
class Combinations:
    """Distinct combinations of columns with their counts, in a temporary table of a local engine."""

    engine: DuckDBEngine
    relation: exp.Table
    types: Mapping[str, str]

    @property
    def count_column(self) -> str:
        return row_count_column(self.types)

    @property
    def all_types(self) -> dict[str, str]:
        return {**self.types, self.count_column: "BIGINT"}

    def fetch(self, server: SparkEngine, combinations: exp.Table, count: int) -> None:
        """Create the table, and copy the combinations from Spark in parts that their values decide."""
        create = create_table_with_columns(self.relation.copy(), self.all_types.items())
        create.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
        self.engine.execute(create)
        parts = -(-count // FETCH_SIZE)
        for part in range(parts):
            query = select_star(combinations.copy())
            if parts > 1:
                is_in_part = fragment("pmod(xxhash64(:columns), :parts) = :part", "spark")
                query.where(is_in_part(columns=[*map(col, self.all_types)], parts=parts, part=part), copy=False)
            encoded = SPARK.encode_columns(query, self.all_types, TEXT)
            with server.stream(encoded) as reader, self.engine.register_arrow(reader) as arrow_table:
                decoded = SPARK.decode_columns(arrow_table, self.all_types)
                self.engine.execute(exp.Insert(this=self.relation.copy(), expression=decoded))

    def count_rows(self) -> int:
        count_query = template("SELECT coalesce(sum(:count), 0)::BIGINT FROM :combinations")
        query = count_query(count=col(self.count_column), combinations=self.relation)
        return int(self.engine.rows(query)[0][0])

    @contextmanager
    def each_row(self, view: exp.Table) -> Iterator[exp.Table]:
        """Make a temporary view of as many rows as were counted."""
        columns = list(self.types) or [self.count_column]
        rows = repeat_rows(self.relation, columns, self.count_column)
        self.engine.execute(create_temporary_view(view.copy(), rows))
        try:
            yield view
        finally:
            self.engine.execute(drop_view(view.copy()))


@dataclass(frozen=True)
class CountedRelease:
    """The checked columns of a release in a local engine, as `SUBJECT`, and the figures that Spark computed."""

    combinations: Combinations
    queries: CachedQueries
    types: Mapping[str, str]  # the types of all columns in Spark
    digest: str = ""  # empty if the columns are not those of the manifest
    invalid_texts: Mapping[str, int] = field(default_factory=dict)  # the number of values that are not UTF-8, by column

    def verify(self, manifest: Manifest, path: Path) -> Verification:
        if self.invalid_texts:
            return Verification(path, manifest, (Check("texts", False, self.invalid_texts_message()),), digest="")
        engine = self.combinations.engine
        release = OpenRelease(engine, self.queries, manifest)
        return verify_rows(path, release, self.types, self.digest, fresh=False)

    def invalid_texts_message(self) -> str:
        columns = ", ".join(f"{name!r} ({count:,} values)" for name, count in self.invalid_texts.items())
        return f"text that is not UTF-8 in {columns}"

    @contextmanager
    def copied_rows(self, engine: DuckDBEngine) -> Iterator[exp.Table]:
        """Open the checked columns in another engine."""
        suffix, combinations = uuid4().hex[:12], self.combinations
        name = f"sqlanon_counted_{suffix}"
        query = encode_columns(select_star(combinations.relation.copy()), combinations.all_types, "VARCHAR")
        copied = replace(combinations, engine=engine, relation=table(name, "main", "temp"))
        with (
            copy_stream(engine, name, combinations.all_types, combinations.engine.stream(query)),
            copied.each_row(table(f"sqlanon_released_{suffix}", "main", "temp")) as view,
        ):
            yield view


@contextmanager
def count_release(
    server: SparkEngine,
    relation: exp.Table,
    columns: Sequence[ReleasedColumn],
    checked: Mapping[str, str],
    limits: Limits,
) -> Iterator[CountedRelease]:
    """Count the rows of a relation in Spark, by the columns that the requirements read."""
    types = types_of(server, relation)
    has_released_columns = list(types.items()) == list(types_in(columns).items())
    with open_audit_engine(limits) as (engine, _):
        target = table("combinations", "main", "temp")
        fetched = Combinations(engine, target, checked)
        release = CountedRelease(fetched, CachedQueries(engine), types)
        if not (has_released_columns and all(map(is_digestible, types.values()))):
            yield release
            return
        try:
            with _count_combinations(server, relation, checked) as (combinations, count):
                texts = [name for name, type_ in types.items() if type_ == "VARCHAR"]
                invalid = _count_invalid_texts(server, combinations, [name for name in texts if name in checked])
                invalid |= _count_invalid_texts(server, relation, [name for name in texts if name not in checked])
                if not invalid:
                    fetched.fetch(server, combinations, count)
                    rows, digest = server.rows(digest_query(relation, types))[0]
                    if rows != fetched.count_rows():
                        raise BrokenReleaseError("the rows of the release changed while they were read")
                    release = replace(release, digest=str(digest))
        except duckdb.Error as error:
            raise BrokenReleaseError("a value of the release does not fit its type in DuckDB") from error
        if invalid:
            yield replace(release, invalid_texts=invalid)
            return
        with release.combinations.each_row(SUBJECT):
            yield release


def _count_invalid_texts(server: SparkEngine, relation: exp.Table, columns: Sequence[str]) -> dict[str, int]:
    """Count the texts that are not UTF-8, by column; columns without any are left out."""
    if not columns:
        return {}
    counts = server.rows(select([SPARK.count_invalid_texts(name) for name in columns], relation.copy()))[0]
    return {name: count for name, count in zip(columns, counts, strict=True) if count}


def hash_rows_in_spark(server: SparkEngine, relation: exp.Table, columns: Sequence[ReleasedColumn]) -> str:
    return hash_buckets(server, bucket_hashes(relation, types_in(columns)))


@contextmanager
def copy_all_rows(
    engine: DuckDBEngine, server: SparkEngine, relation: exp.Table, types: Mapping[str, str], name: str
) -> Iterator[exp.Table]:
    """Open all columns of a relation in Spark in a local engine; each combination is fetched once."""
    fetched = Combinations(engine, table(f"{name}_counted", "main", "temp"), types)
    with _count_combinations(server, relation, fetched.types) as (combinations, count):
        fetched.fetch(server, combinations, count)
    try:
        with fetched.each_row(table(name, "main", "temp")) as view:
            yield view
    finally:
        engine.execute(drop_table(fetched.relation.copy()))
