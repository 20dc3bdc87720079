"""What is looked at of a release in Spark: its rows stay there, and what is counted of them is checked here.

The rows of a release are public, and there may be very many of them. The content digest is worked out there. Of what
requirements look at, each combination of values comes here once, with its count; a view repeats it as often as that,
so that the checks are those of any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from sqlanon.engines.dialects.spark import SPARK, TEXT, count_invalid_texts, type_here
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.travel import count_column, repeated, travelling
from sqlanon.errors import BrokenReleaseError
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.reader import COPIED, SUBJECT, CachedQueries, OpenRelease
from sqlanon.release.rows_hash import hash_buckets
from sqlanon.release.targets.base import Verification
from sqlanon.release.targets.server import copied, types_in
from sqlanon.release.targets.spark import statements as sr
from sqlanon.release.targets.spark.digest import HashedTexts, bucket_hashes, digest_query, is_digestible
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.support.expressions import (
    col,
    column_definitions,
    create_temporary_view,
    drop_table,
    drop_view,
    fragment,
    select,
    star,
    subquery,
    table,
    template,
)
from sqlanon.support.resources import PLAIN, macro_scripts
from sqlanon.support.workdir import spill_directory

AT_ONCE = 2_000_000
"""So many combinations are fetched at a time."""

_FACTS = template("SELECT :rows, :nulls, :values FROM :relation")
_SUM = fragment("coalesce(sum(:count), 0)")
_HAS_NULL = fragment("count(*) > count(:value)")
_DISTINCT = fragment("count(DISTINCT :value)")


def types_of(server: SparkEngine, relation: exp.Table) -> dict[str, str]:
    """DuckDB's types of a relation's columns; Spark's where there is no equal, or a collation."""
    columns = server.columns(relation)
    return {name: type_ if "collate" in type_ else type_here(type_) or type_ for name, type_ in columns.items()}


def looked_at(privacy: Mapping[str, Any], quasi: Sequence[str], columns: Sequence[ReleasedColumn]) -> dict[str, str]:
    """The columns that the requirements of a release look at, with their types."""
    section, _ = read_part(PrivacySection, privacy, "privacy", {})
    wanted = {name.lower() for name in quasi}
    if section is not None:
        sensitive = [column.name for column in columns if column.role == "sensitive"]
        wanted |= {name.lower() for name in examined_sensitive_attributes(section, sensitive)}
    return {column.name: column.type for column in columns if column.name.lower() in wanted}


@dataclass(frozen=True)
class CountedRelease:
    # has the combinations of what requirements look at, as `SUBJECT` as often as there are rows; remembers answers
    engine: DuckDBEngine
    queries: CachedQueries
    combinations: exp.Table  # their table, its columns with their types, and the column of their counts
    wanted: Mapping[str, str]
    count: str
    types: Mapping[str, str]  # of all columns of the rows
    digest: str  # their content digest; nothing where they do not have the columns that are claimed
    invalid_texts: Mapping[str, int] = field(default_factory=dict)  # values that are not UTF-8, by column

    def verified(self, manifest: Manifest, path: Path) -> Verification:
        if self.invalid_texts:
            return Verification(path, manifest, (Check("texts", False, self.words_on_texts()),), digest="")
        release = OpenRelease(self.engine, self.queries, manifest, is_parquet=True, manifests=(manifest,))
        return verify_rows(path, release, self.types, self.digest, fresh=False)

    def words_on_texts(self) -> str:
        columns = ", ".join(f"{name!r} ({count:,} values)" for name, count in self.invalid_texts.items())
        return f"text that is not UTF-8 in {columns}"

    @contextmanager
    def copied(self, engine: DuckDBEngine) -> Iterator[exp.Table]:
        """What requirements look at, for another engine, for a while."""
        mark = uuid4().hex[:12]
        target, view = (table(f"sqlanon_{what}_{mark}", "main", "temp") for what in ("counted", "released"))
        arriving = {**self.wanted, self.count: "BIGINT"}
        stream = self.engine.stream(travelling(star(self.combinations.copy()), arriving, "VARCHAR"))
        with copied(engine, target, arriving, stream), _each_row(engine, view, target, self.wanted, self.count):
            yield view


@contextmanager
def _each_row(
    engine: DuckDBEngine, view: exp.Table, combinations: exp.Table, columns: Iterable[str], count: str
) -> Iterator[None]:
    """A view of as many rows of combinations as were counted, for a while."""
    engine.execute(create_temporary_view(view.copy(), repeated(combinations, list(columns) or [count], count)))
    try:
        yield
    finally:
        engine.execute(drop_view(view.copy()))


@contextmanager
def counted(
    server: SparkEngine,
    relation: exp.Table,
    columns: Sequence[ReleasedColumn],
    wanted: Mapping[str, str],
    limits: Limits,
) -> Iterator[CountedRelease]:
    """Count rows that are in Spark."""
    types = types_of(server, relation)
    as_claimed = list(types.items()) == list(types_in(columns).items())
    with spill_directory() as spill, closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.script(*macro_scripts(PLAIN))
        count, target = count_column(wanted), table("combinations", "main", "temp")
        found = CountedRelease(engine, CachedQueries(engine), target, wanted, count, types, "")
        if not (as_claimed and all(map(is_digestible, types.values()))):
            yield found
            return
        try:
            with _kept(server, relation, wanted, count) as (combinations, combined):
                texts = [name for name, type_ in types.items() if type_ == "VARCHAR"]
                invalid = _invalid_texts(server, combinations, [name for name in texts if name in wanted])
                invalid |= _invalid_texts(server, relation, [name for name in texts if name not in wanted])
                if not invalid:
                    _fetch(engine, server, target, combinations, {**wanted, count: "BIGINT"}, combined)
                    digest = _digest(engine, server, relation, types, target, wanted, count, combinations, combined)
        except duckdb.Error as error:
            raise BrokenReleaseError("a value of the release does not fit its type in DuckDB") from error
        if invalid:
            yield replace(found, invalid_texts=invalid)
            return
        with _each_row(engine, SUBJECT, target, wanted, count):
            yield replace(found, digest=digest)


def _invalid_texts(server: SparkEngine, relation: exp.Table, texts: Sequence[str]) -> dict[str, int]:
    """The columns with texts that are not UTF-8, and how many each has."""
    if not texts:
        return {}
    counts = server.rows(select([count_invalid_texts(name) for name in texts], relation.copy()))[0]
    return {name: count for name, count in zip(texts, counts, strict=True) if count}


def hash_rows_in_spark(server: SparkEngine, relation: exp.Table, columns: Sequence[ReleasedColumn]) -> str:
    """The SHA-256 of rows in Spark, hashed there."""
    return hash_buckets(server, bucket_hashes(relation, types_in(columns)))


@contextmanager
def copy_all_rows(
    engine: DuckDBEngine, server: SparkEngine, relation: exp.Table, manifest: Manifest
) -> Iterator[exp.Table]:
    """All columns of rows that are in Spark: brought here once for each combination, and repeated by a view."""
    types = types_in(manifest.columns)
    count, target, view = count_column(types), table(f"{COPIED}_counted", "main", "temp"), table(COPIED, "main", "temp")
    with _kept(server, relation, types, count) as (combinations, combined):
        _fetch(engine, server, target, combinations, {**types, count: "BIGINT"}, combined)
    try:
        with _each_row(engine, view, target, types, count):
            yield view
    finally:
        engine.execute(drop_table(target.copy()))


HASHED_ONCE = 200_000
"""The texts of a column with this many values are hashed once, and joined to the rows."""

TOGETHER = 10_000
"""Columns with this many combinations are joined as one: what is joined stays in the processor's cache."""


def hashed_together(values: Mapping[str, int], combined: int) -> list[list[str]]:
    """Columns, by how many values each has, in groups that are joined as one; those of too many values are left out.

    >>> hashed_together({"sex": 2, "zip": 30_000, "name": 10**6, "race": 5}, 10**6)
    [['zip'], ['race', 'sex']]
    >>> hashed_together({"sex": 2, "zip": 30_000, "race": 5}, 9_000)
    [['sex', 'zip', 'race']]
    """
    if combined <= TOGETHER:
        return [list(values)]
    groups: list[list[str]] = []
    for name in sorted(values, key=lambda one: -values[one]):
        if values[name] <= HASHED_ONCE:
            fitting = (one for one in groups if prod(values[each] for each in (*one, name)) <= TOGETHER)
            group = next(fitting, None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
    return groups


def _digest(
    engine: DuckDBEngine,
    server: SparkEngine,
    relation: exp.Table,
    types: Mapping[str, str],
    fetched: exp.Table,
    wanted: Mapping[str, str],
    count: str,
    combinations: exp.Table,
    combined: int,
) -> str:
    """The content digest, as Spark works it out: the texts of columns with up to `HASHED_ONCE` values are hashed once,
    in groups of columns that are joined as one."""
    names = [name for name, type_ in wanted.items() if type_ == "VARCHAR"]
    if not names:
        return str(server.rows(digest_query(relation, types))[0][1])
    has_nulls, distinct = ([one(value=col(name)) for name in names] for one in (_HAS_NULL, _DISTINCT))
    facts = _FACTS(rows=_SUM(count=col(count)), nulls=has_nulls, values=distinct, relation=fetched)
    counted, *found = engine.rows(facts)[0]
    nulls = dict(zip(names, found[: len(names)], strict=True))
    values = {name: known + nulls[name] for name, known in zip(names, found[len(names) :], strict=True)}
    texts = []
    for group in hashed_together(values, combined):
        each = select([col(name) for name in group], combinations.copy())
        once = subquery(each.distinct(copy=False), "texts") if len(group) < len(wanted) else combinations
        texts.append(HashedTexts(once, {name: nulls[name] for name in group}))
    rows, digest = server.rows(digest_query(relation, types, texts))[0]
    if rows != counted:
        raise BrokenReleaseError("the rows of the release changed while they were read")
    return str(digest)


@contextmanager
def pinned_rows(server: SparkEngine, relation: exp.Table) -> Iterator[exp.Table]:
    """The rows of a relation, which Spark keeps for a while: all that is read of them is read of the same rows."""
    name = f"sqlanon_rows_{uuid4().hex[:12]}"
    try:
        server.materialize(name, star(relation))
        yield table(name)
    finally:
        server.forget(name)


@contextmanager
def _kept(
    server: SparkEngine, relation: exp.Table, types: Mapping[str, str], count: str
) -> Iterator[tuple[exp.Table, int]]:
    """The combinations of some columns, which Spark keeps for a while; and how many they are."""
    name = f"sqlanon_combinations_{uuid4().hex[:12]}"
    try:
        combined = server.materialize(name, sr.combinations(relation, types, count))
        yield table(name), combined
    finally:
        server.forget(name)


def _fetch(
    engine: DuckDBEngine,
    server: SparkEngine,
    target: exp.Table,
    combinations: exp.Table,
    types: Mapping[str, str],
    combined: int,
) -> None:
    made = column_definitions(target.copy(), types.items())
    made.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
    engine.execute(made)
    parts = -(-combined // AT_ONCE)
    for number in range(parts):
        part = star(combinations)
        if parts > 1:
            part.where(sr.in_part(list(types), number, parts), copy=False)
        with server.stream(SPARK.leaving(part, types, TEXT)) as reader, engine.registered(reader) as here:
            engine.execute(exp.Insert(this=target.copy(), expression=SPARK.arriving(here, types)))
