"""Counts of the rows of a release that stays in Spark.

Released rows are public, but there may be many of them. Spark computes the content digest. Of the columns that the
requirements read, each distinct combination is fetched once with its count; a view repeats it as often as it was
counted, so that the usual checks can run on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.audit.verify import verify_rows
from sqlanon.engines.dialects.spark import SPARK, TEXT, count_invalid_texts, to_duckdb_type
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.travel import encode_columns, repeat_rows, row_count_column
from sqlanon.errors import BrokenReleaseError
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.digests import hash_buckets
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.reader import SUBJECT, CachedQueries, OpenRelease
from sqlanon.release.targets.base import Verification
from sqlanon.release.targets.server import copy_stream, types_in
from sqlanon.release.targets.spark.digest import bucket_hashes, digest_query, is_digestible
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.support.expressions import (
    col,
    create_table_with_columns,
    create_temporary_view,
    drop_table,
    drop_view,
    fragment,
    ident,
    select,
    select_star,
    table,
    template,
)
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts
from sqlanon.support.workdir import spill_directory

FETCH_SIZE = 2_000_000
"""Maximum number of combinations that are fetched by one query."""

MAX_HASHED_VALUES = 200_000
"""Maximum number of distinct texts of a column whose texts are hashed once and joined to the rows."""

MAX_JOINED_COMBINATIONS = 10_000
"""Maximum number of combinations of texts that are joined in one step: the joined table fits the processor's cache."""


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
    types: Mapping[str, str]  # of all columns in Spark
    digest: str = ""  # empty if the columns are not those of the manifest
    invalid_texts: Mapping[str, int] = field(default_factory=dict)  # the number of values that are not UTF-8, by column

    def verify(self, manifest: Manifest, path: Path) -> Verification:
        if self.invalid_texts:
            return Verification(path, manifest, (Check("texts", False, self.invalid_texts_message()),), digest="")
        engine = self.combinations.engine
        release = OpenRelease(engine, self.queries, manifest, is_parquet=True, manifests=(manifest,))
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
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill, limits)) as engine:
        engine.script(*macro_scripts(RELEASE_MACROS))
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
                    digest = _digest(server, relation, types, combinations, count, fetched)
                    release = replace(release, digest=digest)
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
    counts = server.rows(select([count_invalid_texts(name) for name in columns], relation.copy()))[0]
    return {name: count for name, count in zip(columns, counts, strict=True) if count}


def hash_rows_in_spark(server: SparkEngine, relation: exp.Table, columns: Sequence[ReleasedColumn]) -> str:
    return hash_buckets(server, bucket_hashes(relation, types_in(columns)))


@contextmanager
def copy_all_rows(
    engine: DuckDBEngine, server: SparkEngine, relation: exp.Table, manifest: Manifest, name: str
) -> Iterator[exp.Table]:
    """Open all columns of a relation in Spark in a local engine; each combination is fetched once."""
    fetched = Combinations(engine, table(f"{name}_counted", "main", "temp"), types_in(manifest.columns))
    with _count_combinations(server, relation, fetched.types) as (combinations, count):
        fetched.fetch(server, combinations, count)
    try:
        with fetched.each_row(table(name, "main", "temp")) as view:
            yield view
    finally:
        engine.execute(drop_table(fetched.relation.copy()))


def _digest(
    server: SparkEngine,
    relation: exp.Table,
    types: Mapping[str, str],
    combinations: exp.Table,
    count: int,
    fetched: Combinations,
) -> str:
    """Compute the content digest in Spark; texts with few distinct values are hashed once."""
    names = [name for name, type_ in fetched.types.items() if type_ == "VARCHAR"]
    figures = template("SELECT coalesce(sum(:row_count), 0), :distinct_values FROM :fetched")(
        row_count=col(fetched.count_column),
        distinct_values=[fragment("count(DISTINCT :value)")(value=col(name)) for name in names],
        fetched=fetched.relation,
    )
    counted_rows, *distinct_values = fetched.engine.rows(figures)[0]
    groups = [[name] for name, values in zip(names, distinct_values, strict=True) if values <= MAX_HASHED_VALUES]
    if count <= MAX_JOINED_COMBINATIONS:
        groups = [names] if names else []
    rows, digest = server.rows(digest_query(relation, types, groups, combinations))[0]
    if rows != counted_rows:
        raise BrokenReleaseError("the rows of the release changed while they were read")
    return str(digest)
