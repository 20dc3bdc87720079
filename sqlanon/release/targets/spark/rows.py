"""Counts of the rows of a release that stays in Spark.

Released rows are public, but there may be many of them. Spark computes the content digest. Of the columns that the
requirements read, each distinct combination is fetched once with its count; a view repeats it as often as it was
counted, so that the usual checks can run on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from math import prod
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
from sqlanon.release.targets.spark import statements as sr
from sqlanon.release.targets.spark.digest import HashedTexts, bucket_hashes, digest_query, is_digestible
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.support.expressions import (
    col,
    create_table_with_columns,
    create_temporary_view,
    drop_table,
    drop_view,
    fragment,
    select,
    select_star,
    subquery,
    table,
)
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts
from sqlanon.support.workdir import spill_directory

FETCH_SIZE = 2_000_000
"""Maximum number of combinations that are fetched by one query."""

MAX_HASHED_VALUES = 200_000
"""Maximum number of distinct texts of a column whose texts are hashed once and joined to the rows."""

MAX_JOINED_COMBINATIONS = 10_000
"""Maximum number of combinations of columns that are joined together: the joined table fits the processor's cache."""


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


@dataclass(frozen=True)
class Combinations:
    """The distinct combinations of some columns with their counts: a relation that Spark keeps for a while."""

    server: SparkEngine
    relation: exp.Table
    types: Mapping[str, str]
    count_column: str
    count: int

    @classmethod
    @contextmanager
    def materialized(cls, server: SparkEngine, relation: exp.Table, types: Mapping[str, str]) -> Iterator[Combinations]:
        name, row_count = f"sqlanon_combinations_{uuid4().hex[:12]}", row_count_column(types)
        try:
            count = server.materialize(name, sr.count_combinations(relation, list(types), row_count))
            yield cls(server, table(name), types, row_count, count)
        finally:
            server.forget(name)

    def fetch(self, engine: DuckDBEngine, target: exp.Table) -> FetchedCombinations:
        """Copy the combinations to a temporary table of a local engine."""
        fetched = FetchedCombinations(engine, target, self.types, self.count_column)
        create = create_table_with_columns(target.copy(), fetched.all_types.items())
        create.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
        engine.execute(create)
        parts = -(-self.count // FETCH_SIZE)
        for part in range(parts):
            query = select_star(self.relation)
            if parts > 1:
                query.where(sr.is_in_part(list(fetched.all_types), part, parts), copy=False)
            leaving = SPARK.encode_columns(query, fetched.all_types, TEXT)
            with self.server.stream(leaving) as reader, engine.register_arrow(reader) as arrow_table:
                arriving = SPARK.decode_columns(arrow_table, fetched.all_types)
                engine.execute(exp.Insert(this=target.copy(), expression=arriving))
        return fetched


@dataclass(frozen=True)
class FetchedCombinations:
    """Combinations of columns with their counts, in a table of a local engine."""

    engine: DuckDBEngine
    relation: exp.Table
    types: Mapping[str, str]
    count_column: str

    @property
    def all_types(self) -> dict[str, str]:
        return {**self.types, self.count_column: "BIGINT"}

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

    combinations: FetchedCombinations
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
        empty = FetchedCombinations(engine, target, checked, row_count_column(checked))
        release = CountedRelease(empty, CachedQueries(engine), types)
        if not (has_released_columns and all(map(is_digestible, types.values()))):
            yield release
            return
        try:
            with Combinations.materialized(server, relation, checked) as combinations:
                texts = [name for name, type_ in types.items() if type_ == "VARCHAR"]
                invalid = _count_invalid_texts(
                    server, combinations.relation, [name for name in texts if name in checked]
                )
                invalid |= _count_invalid_texts(server, relation, [name for name in texts if name not in checked])
                if not invalid:
                    fetched = combinations.fetch(engine, target)
                    release = replace(
                        release, combinations=fetched, digest=_digest(relation, types, combinations, fetched)
                    )
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
    target = table(f"{name}_counted", "main", "temp")
    with Combinations.materialized(server, relation, types_in(manifest.columns)) as combinations:
        fetched = combinations.fetch(engine, target)
    try:
        with fetched.each_row(table(name, "main", "temp")) as view:
            yield view
    finally:
        engine.execute(drop_table(target.copy()))


def group_texts(values: Mapping[str, int], combinations: int) -> list[list[str]]:
    """Group text columns, by their numbers of distinct values, so that each group is hashed and joined together.

    Columns with too many values are left out.

    >>> group_texts({"sex": 2, "zip": 30_000, "name": 10**6, "race": 5}, 10**6)
    [['zip'], ['race', 'sex']]
    >>> group_texts({"sex": 2, "zip": 30_000, "race": 5}, 9_000)
    [['sex', 'zip', 'race']]
    """
    if combinations <= MAX_JOINED_COMBINATIONS:
        return [list(values)]
    groups: list[list[str]] = []
    for name in sorted(values, key=lambda name: -values[name]):
        if values[name] > MAX_HASHED_VALUES:
            continue
        for group in groups:
            if prod(values[member] for member in (*group, name)) <= MAX_JOINED_COMBINATIONS:
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


_ROWS = fragment("coalesce(sum(:count), 0)")
_HAS_NULL = fragment("count(*) > count(:value)")
_VALUES = fragment("count(DISTINCT :value)")


def _digest(
    relation: exp.Table, types: Mapping[str, str], combinations: Combinations, fetched: FetchedCombinations
) -> str:
    """Compute the content digest in Spark; texts with few distinct values are hashed once."""
    server, names = combinations.server, [name for name, type_ in combinations.types.items() if type_ == "VARCHAR"]
    if not names:
        return str(server.rows(digest_query(relation, types))[0][1])
    figures = select(
        [
            _ROWS(count=col(fetched.count_column)),
            *(_HAS_NULL(value=col(name)) for name in names),
            *(_VALUES(value=col(name)) for name in names),
        ],
        fetched.relation,
    )
    counted_rows, *flags_and_counts = fetched.engine.rows(figures)[0]
    has_null = dict(zip(names, flags_and_counts[: len(names)], strict=True))
    values = {name: count + has_null[name] for name, count in zip(names, flags_and_counts[len(names) :], strict=True)}
    texts = []
    for group in group_texts(values, combinations.count):
        relation_of_group: exp.Expr = combinations.relation
        if len(group) < len(combinations.types):
            distinct = select([col(name) for name in group], combinations.relation.copy()).distinct(copy=False)
            relation_of_group = subquery(distinct, "texts")
        texts.append(HashedTexts(relation_of_group, {name: has_null[name] for name in group}))
    rows, digest = server.rows(digest_query(relation, types, texts))[0]
    if rows != counted_rows:
        raise BrokenReleaseError("the rows of the release changed while they were read")
    return str(digest)


@contextmanager
def pinned_rows(server: SparkEngine, relation: exp.Table) -> Iterator[exp.Table]:
    """Keep the rows of a relation in Spark, so that all queries read the same rows."""
    name = f"sqlanon_rows_{uuid4().hex[:12]}"
    try:
        server.materialize(name, select_star(relation))
        yield table(name)
    finally:
        server.forget(name)
