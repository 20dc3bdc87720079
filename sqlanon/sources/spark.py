"""Bind tables, queries and Parquet files in Spark, whose rows stay there."""

from __future__ import annotations

import glob
import re
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot import exp, parse_one

from sqlanon.engines.dialects.spark import draw_with_secret
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.federation import FederatedEngine, RemoteTables
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.statement_runner import Stage
from sqlanon.errors import SourceError
from sqlanon.places.addresses import SESSION, resolve_spark_address
from sqlanon.places.databases import file_name
from sqlanon.policy import SourceSection
from sqlanon.policy.compatibility import SOURCE_SCHEMA_MESSAGE
from sqlanon.sources.columns import refuse_different_columns
from sqlanon.sources.kinds import Binding, Linking, SourceKind
from sqlanon.sources.queries import refuse_unless_select, verbatim_query
from sqlanon.sources.remote import RemoteSource, bind_remote
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    col,
    fragment,
    select,
    select_star,
    subquery,
    table,
    text,
    union_all,
)
from sqlanon.support.names import table_parts


@dataclass(frozen=True, kw_only=True)
class LinkedSparkSource(RemoteSource):
    """One of several tables in Spark about the same persons.

    Its rows are copied once inside Spark, which has no transactions: all statements see the same rows. Only counts
    leave it, and the rows of a release.
    """

    schemas: frozenset[str] = frozenset()
    """The schemas of the tables that it reads, in lower case."""

    can_be_linked = True

    def refuse_release(self, postgres: str | None, schema: str, key: str = "release.table") -> None:
        if postgres is None and schema.lower() in self.schemas:
            raise SourceError(f"{key}: {SOURCE_SCHEMA_MESSAGE.format(schema=repr(schema))}")

    def plan(self) -> Iterator[Stage]:
        note = "the rows, copied inside Spark for all statements; only counts and released rows leave it"
        yield Stage("read in Spark", note, (self.engine.render(select_star(self.relation)),))

    @contextmanager
    def read_released(self, query: exp.Select, types: Mapping[str, str]) -> Iterator[exp.Select]:
        unordered = query.copy()
        unordered.set("order", None)  # Spark skips a sort that is not the last step
        with self.engine.fetch_remote(unordered, types) as relation:
            yield relation.order_by(anonymous("RANDOM"), copy=False)


class _SecretDraws(FederatedEngine):
    """Draws random numbers in Spark with a secret: their seeds are in its logs."""

    secret: exp.Table | None = None

    @contextmanager
    def translate(self, query: exp.Query) -> Iterator[exp.Query]:
        with super().translate(query) as remote_query:
            yield draw_with_secret(remote_query, self._send_secret)

    def _send_secret(self) -> exp.Table:
        """The table with the secret in Spark. Statements are logged, so none has the secret."""
        if self.secret is None:
            secret = as_column(text(secrets.token_hex(32)), "secret")
            with self.stream(exp.Select(expressions=[secret])) as reader, self.remote.server.translate_errors():
                self.secret = self.remote.server.upload(self.remote.next_name(), reader)
        return self.secret


class SharedSparkEngine:
    """One engine for all linked tables of a session; `close` drops the copies and search tables."""

    def __init__(self, work: DuckDBEngine, server: SparkEngine, scratch: Path | None) -> None:
        self.engine = _SecretDraws(work, RemoteTables(server, sys.maxsize, scratch, max_rows=0, name="Spark"))

    def close(self) -> None:
        """Drop the copies and search tables."""
        self.engine.drop_remote_tables()
        if self.engine.secret is not None:
            with suppress(SourceError):  # the session may be gone
                self.engine.remote.server.forget(self.engine.secret.name)


class _Spark(SourceKind):
    name = "spark"
    without_rows = "in Spark, and its rows never leave it; this command reads rows"
    dialect, schema = "spark", "default"

    def bind(self, binding: Binding) -> tuple[FederatedEngine, RemoteSource]:
        section = binding.section
        server = binding.servers.open(section.spark or SESSION, lambda: _open_session(binding))
        if binding.linking is not None:
            return _bind_linked(binding, server, binding.linking)
        engine = FederatedEngine(
            binding.engine, RemoteTables(server, section.fetch_limit, section.scratch, name="Spark")
        )
        with server.translate_errors():
            relation = _read_parquet_files(server, section.files) if section.files else _find_relation(section, server)
        home = None if section.files else server.catalog  # files have the same identity for every reader
        person = section.person_column
        source = bind_remote(
            engine, relation, binding.work_names, binding.released_attributes, _local_files(section.files), home, person
        )
        return engine, source


KIND = _Spark()


def _bind_linked(binding: Binding, server: SparkEngine, linking: Linking) -> tuple[FederatedEngine, RemoteSource]:
    section = binding.section
    if section.files:
        raise SourceError("the tables are in Spark, which is given no files: make a view of them in Spark")
    spark = linking.shared_engines.open(SESSION, lambda: SharedSparkEngine(binding.engine, server, section.scratch))
    with server.translate_errors():
        relation = _find_relation(section, server)
    source = bind_remote(
        spark.engine,
        relation,
        binding.work_names,
        binding.released_attributes,
        database_id=server.catalog,
        keys=linking.keys,
        kind=LinkedSparkSource,
    )
    assert isinstance(source, LinkedSparkSource)
    return spark.engine, replace(source, schemas=_find_schemas(server, relation))


def _find_schemas(server: SparkEngine, relation: exp.Expr) -> frozenset[str]:
    """The schemas of the tables that a relation reads, in lower case."""
    tables = list(relation.find_all(exp.Table))
    for query in relation.find_all(exp.Subquery):
        tables += parse_one(query.this.sql(), dialect=server.dialect).find_all(exp.Table)
    schemas = {part.db.lower() for part in tables}
    if "" in schemas:
        schemas.add(server.rows(fragment("SELECT current_schema() AS name", server.dialect)())[0][0].lower())
    return frozenset(schemas - {""})


def _open_session(binding: Binding) -> SparkEngine:
    address = binding.section.spark
    if address in (None, SESSION):
        return SparkEngine(binding.connect_argument, "source.spark")
    return SparkEngine.open(resolve_spark_address(address), "source.spark")


def _refuse_functions(query: str, replaced: Collection[str]) -> None:
    """Refuse functions of the user that replace functions of Spark in the session."""
    called = {name.lower() for name in re.findall(r"(\w+)`?\s*\(", query)}
    if calls := sorted(called & set(replaced)):
        raise SourceError(
            f"source.query: {', '.join(calls)}: the session has a function with the name of one of Spark's own; make a "
            "temporary view of the query, or rename the function"
        )


def _find_relation(section: SourceSection, server: SparkEngine) -> exp.Expr:
    if section.query is not None:
        refuse_unless_select(section.query, SparkEngine.dialect, "Spark")
        _refuse_functions(section.query, server.replaced_functions)
        return verbatim_query(section.query)
    parts = table_parts(section.table or "")
    if not parts:
        raise SourceError(f"source.table: {section.table!r} is not the name of a table; write it as schema.name")
    if any(part.startswith("`") and part.endswith("`") for part in parts):
        raise SourceError("source.table: write schema.name without backticks, or in double quotes")
    return table(*reversed(parts))


def _read_parquet_files(server: SparkEngine, patterns: tuple[str, ...]) -> exp.Expr:
    """Read Parquet files by the names of their columns: Spark itself would apply the columns of one file to all."""
    relations = {pattern: table(pattern, "parquet") for pattern in patterns}
    columns = {pattern: server.columns(relation) for pattern, relation in relations.items()}
    files: dict[str, dict[str, str]] = {}
    for pattern in patterns:
        matching_files = server.parquet_files(pattern)
        if repeated := files.keys() & matching_files.keys():
            raise SourceError(f"source.files: two patterns match {file_name(min(repeated))}: name each file once")
        files |= matching_files
    refuse_different_columns([(file, file_columns) for file, file_columns in files.items() if file_columns])
    refuse_different_columns([*columns.items()])  # also columns of folders, such as year=2026
    if len(patterns) == 1:
        return relations[patterns[0]]
    names = [col(name) for name in columns[patterns[0]]]
    parts = [select([name.copy() for name in names], relation) for relation in relations.values()]
    return subquery(union_all(*parts), "files")


def _local_files(patterns: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(Path(path) for pattern in patterns if "://" not in pattern for path in glob.glob(pattern))  # noqa: PTH207  (any part of the path may be a pattern)
