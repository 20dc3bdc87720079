"""DuckDB together with a remote engine that holds the source: each statement runs where the tables it reads are.

Source rows stay in the remote engine. A query that reads a remote table is translated and runs there; small local
tables that it joins are uploaded as temporary ones. Its result is fetched if `egress_guard` allows it and it is small
enough; otherwise the new table stays remote. For each remote table DuckDB has a *shadow*: a view with the same columns
and types, so that queries can be bound. Reading a shadow is an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines import egress_guard as guard
from sqlanon.engines.base import RemoteEngine
from sqlanon.engines.dialects.postgres import POSTGRES
from sqlanon.engines.dialects.remote import DUCKDB, RemoteDialect, has_star, name_columns, shadow_query
from sqlanon.engines.dialects.spark import SPARK
from sqlanon.engines.duckdb import DuckDBEngine, group_by_columns
from sqlanon.engines.table_changes import select_changed_rows
from sqlanon.errors import SourceError
from sqlanon.support.expressions import (
    REPEATABLE,
    col,
    column_names,
    create_table,
    create_temporary_view,
    create_view,
    drop_table,
    drop_view,
    full_name,
    read_parquet,
    select,
    select_star,
    subquery,
    table,
    union_all,
)
from sqlanon.support.workdir import private_directory

FETCH_AT_ONCE = 10_000_000
"""Maximum number of aggregated rows fetched in one piece from an engine without batches; more go through files."""

ROWS_AT_ONCE = 1_000_000
"""The same limit for the rows of a release, which are wider."""

FLAT = 500_000
"""The same limit for both where the engines share a folder: Python's memory does not grow with the rows."""

_FETCHED_NAME, _UPLOADED_NAME = "counted", "answer"
"""Names in rendered statements: the fetched aggregation that local tables are joined to, and uploaded results."""

_REMOTE_DIALECTS = {dialect.name: dialect for dialect in (DUCKDB, POSTGRES, SPARK)}


@dataclass
class RemoteTables:
    """The tables of a remote engine that are known locally, and the limits for fetching from it."""

    server: RemoteEngine
    fetch_limit: int  # results with more rows stay remote
    scratch: Path | None = None  # a folder that the engine and this machine share
    max_rows: int | None = None  # rows of the source: no aggregation has more
    tables: dict[str, exp.Expr] = field(default_factory=dict)  # remote relation by local full name
    materialized: dict[str, str] = field(
        default_factory=dict
    )  # name of the materialized remote table by local full name
    confined: dict[str, frozenset[str]] = field(default_factory=dict)  # columns that never leave, by local full name
    names: int = 0  # temporary names given so far
    name: str = "the source's engine"  # the engine's name in messages

    @property
    def dialect(self) -> RemoteDialect:
        return _REMOTE_DIALECTS[self.server.dialect]

    def needs_files(self, rows: int, rows_at_once: int) -> bool:
        """Whether a result is fetched through Parquet files."""
        if not self.server.WRITES_PARQUET or self.server.STREAMS_BATCHES:
            return False
        is_shared = self.scratch is not None or (rows > FLAT and self.server.is_local)
        return rows > rows_at_once or (rows > FLAT and is_shared)

    def next_name(self) -> str:
        self.names += 1
        return f"sqlanon_{id(self):x}_{self.names}"


class FederatedEngine(DuckDBEngine):
    """A DuckDB engine that sends statements over remote tables to the remote engine."""

    def __init__(self, local: DuckDBEngine, remote: RemoteTables) -> None:
        super().__init__(local.connection)
        self.remote = remote

    @property
    def place(self) -> str:
        return self.remote.server.place

    def register_remote(
        self, name: exp.Table, types: Mapping[str, str], relation: exp.Expr, confined: Collection[str] = ()
    ) -> None:
        """Make a remote relation known under a local name; its confined columns never leave the remote engine."""
        create = create_temporary_view if name.catalog == "temp" else create_view
        super().execute(create(name.copy(), shadow_query(types)))
        self.remote.tables[full_name(name)] = relation
        if confined:
            self.remote.confined[full_name(name)] = frozenset(column.lower() for column in confined)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        if isinstance(statement, exp.Create) and statement.kind == "TABLE" and self._reads_remote(statement.expression):
            self._create_table(statement.this, statement.expression)
        elif isinstance(statement, exp.Drop) and any(self.is_remote(target) for target in statement.args["tables"]):
            for target in statement.args["tables"]:
                self._drop_remote(target)
        elif isinstance(statement, (exp.Delete, exp.Insert, exp.Update)) and self.is_remote(statement.this):
            self._change_remote(statement)
        else:
            super().execute(statement, parameters)

    def interrupt(self) -> None:
        super().interrupt()
        self.remote.server.interrupt()

    def set_savepoint(self) -> None:
        with self.remote.server.translate_errors():
            self.remote.server.set_savepoint()

    def undo_interrupted(self, targets: Iterable[exp.Table]) -> bool:
        with self.remote.server.translate_errors():
            is_undone = self.remote.server.undo_to_savepoint()
        for target in targets if is_undone else ():
            if self.is_remote(target):  # the transaction has lost it
                self.remote.materialized.pop(full_name(target), None)
                self._drop_remote(target)
            else:
                super().execute(drop_table(target.copy(), exists=True))
        return is_undone

    def prepare_grouping(self, query: exp.Select) -> Callable[[Iterable[str]], tuple[Any, ...]]:
        if not self._reads_remote(query):
            return super().prepare_grouping(query)
        return lambda columns: self.rows(group_by_columns(query, columns))[0]

    def rows(self, query: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        if not self._reads_remote(query):
            return super().rows(query, parameters)
        assert isinstance(query, exp.Query)
        guard.refuse_rows(query, self.remote.tables, {}, self.remote.name)
        guard.refuse_confined(query, self.remote.confined, self.remote.name)
        query = name_columns(query)
        types = self._column_types(query)
        guard.refuse_rows(query, self.remote.tables, types, self.remote.name)
        with self.fetch_remote(query, types) as relation:
            return super().rows(relation)

    @contextmanager
    def fetch_remote(
        self, query: exp.Query, types: Mapping[str, str], at_most: int | None = None
    ) -> Iterator[exp.Select]:
        """Run a query over remote tables and yield its result as a local relation that can be read once.

        It may fetch rows, but no confined columns. ``at_most`` is the number of rows to expect.
        """
        guard.refuse_confined(query, self.remote.confined, self.remote.name)
        if at_most is None:
            at_most = 0 if guard.is_aggregated(query, self.remote.tables) else self.remote.max_rows or 0
        through_files = self.remote.needs_files(at_most, ROWS_AT_ONCE)
        with self.translate(query) as remote_query, self._fetch(remote_query, types, through_files) as relation:
            yield relation

    def map_remotely(
        self, target: exp.Table, query: exp.Query, function: Callable[..., Any], types: Mapping[str, str]
    ) -> None:
        """Apply a Python function to the rows of a query, and store the result in a remote table."""
        name, server = self.remote.next_name(), self.remote.server
        remote_types = {column: self.remote.dialect.from_duckdb_type(type_) or "" for column, type_ in types.items()}
        with self.translate(query) as remote_query, server.translate_errors():
            server.materialize_mapped(name, remote_query, function, remote_types)
        self._register_materialized(target, types, name)

    @contextmanager
    def translate(self, query: exp.Query) -> Iterator[exp.Query]:
        """Translate a query for the remote engine; the local tables that it reads are uploaded within the context."""
        uploads: list[str] = []
        try:
            query = self._unroll_recursion(query, uploads)
            relations = dict(self.remote.tables)
            query, local_queries = guard.extract_local_queries(
                query, self.remote.tables, self.remote.next_name(), self._has_equal_types
            )
            for name, local_query in local_queries.items():
                relations[name] = self._upload(local_query, self._column_types(local_query), uploads)
            used = frozenset[str]() if has_star(query) else column_names(query)
            for name, local_table in self._local_tables(query).items():
                all_types = self.columns(local_table)
                types = {column: type_ for column, type_ in all_types.items() if not used or column in used}
                types = types or dict([next(iter(all_types.items()))])  # only its rows are counted
                relations[name] = self._upload(select([*map(col, types)], local_table.copy()), types, uploads)
            yield self.remote.dialect.translate(query, relations)
        finally:
            for upload in uploads:
                with suppress(SourceError):  # the session may be gone
                    self.remote.server.forget(upload)

    def _unroll_recursion(self, query: exp.Query, uploads: list[str]) -> exp.Query:
        """Replace WITH RECURSIVE by materialized steps if the remote engine cannot run it."""
        while not self.remote.server.RUNS_RECURSIVE_WINDOWS and (recursion := find_recursion(query)) is not None:
            tables = {name: self._materialize(cte, uploads)[0] for name, cte in recursion.plain_ctes.items()}
            steps, step = list[exp.Table](), recursion.first_step(tables)
            while True:
                last, rows = self._materialize(step, uploads)
                steps.append(last)
                if not rows:
                    break
                step = recursion.next_step({**tables, recursion.name: last})
            query = recursion.final_query(tables, steps)
        return query

    def _materialize(self, query: exp.Query, uploads: list[str]) -> tuple[exp.Table, int]:
        """Store the rows of a query in a temporary remote table; return it with the number of rows."""
        name = self.remote.next_name()
        with self.translate(query) as remote_query, self.remote.server.translate_errors():
            rows = self.remote.server.materialize(name, remote_query)
        uploads.append(name)
        return table(name), rows

    def render(self, statement: exp.Expr) -> str:
        """The statement as it would run, with local names for local tables.

        A table that would stay remote is known from then on: the next statement may read it.
        """
        query = statement.expression if isinstance(statement, exp.Create) else statement
        if not isinstance(query, exp.Query) or not self._reads_remote(query):
            return super().render(statement)
        if not isinstance(statement, exp.Create):
            return self._render_remote(query)
        target = statement.this
        # A rendered table was never created, so its types are unknown.
        confined = guard.confined_columns(query, self.remote.confined)
        if confined or not guard.is_aggregated(query, self.remote.tables):
            self.remote.tables[full_name(target)] = table(target.name)
            self.remote.confined |= {full_name(target): confined} if confined else {}
            return self._render_remote(query, target.name)
        aggregation, embed = guard.split_aggregation(query, self.remote.tables)
        if aggregation is query:
            return self._render_remote(query, target.name)
        local = super().render(create_table(target, embed(select_star(table(_FETCHED_NAME)))))
        return f"{self._render_remote(aggregation, _FETCHED_NAME)};\n\n{local}"

    def _render_remote(self, query: exp.Query, makes: str = "") -> str:
        """The text of a remote statement, after the local queries whose results are uploaded for it."""
        query, local_queries = guard.extract_local_queries(query, self.remote.tables, _UPLOADED_NAME)
        render_locally = super().render
        local = [
            f"-- here, shipped to {self.remote.name} as {name}\n{render_locally(local_query)}"
            for name, local_query in local_queries.items()
        ]
        relations = dict(self.remote.tables)
        relations |= {name: table(local_table.name) for name, local_table in self._local_tables(query).items()}
        heading = f"-- in {self.remote.name}{f', makes {makes}' if makes else ''}"
        return ";\n\n".join([*local, f"{heading}\n{self.remote.dialect.render(query, relations)}"])

    def drop_remote_tables(self) -> None:
        for name in self.remote.materialized.values():
            with suppress(SourceError):
                self.remote.server.forget(name)
        self.remote.materialized.clear()
        self.remote.tables.clear()
        self.remote.confined.clear()

    def _reads_remote(self, query: exp.Expr | None) -> bool:
        return query is not None and any(self.is_remote(relation) for relation in query.find_all(exp.Table))

    def is_remote(self, relation: exp.Expr) -> bool:
        return isinstance(relation, exp.Table) and full_name(relation) in self.remote.tables

    def _column_types(self, query: exp.Query) -> dict[str, str]:
        return self.columns(exp.Subquery(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier("q"))))

    def _has_equal_types(self, query: exp.Query) -> bool:
        """Whether the columns of a query have the same types in both engines; sums are wider in DuckDB."""
        to_remote = self.remote.dialect.from_duckdb_type
        return all(to_remote(type_) and type_ != "HUGEINT" for type_ in self._column_types(query).values())

    def _local_tables(self, query: exp.Query) -> dict[str, exp.Table]:
        """The local tables that a query reads, by full name. (Names of its CTEs have no catalog.)"""
        tables = {full_name(relation): relation for relation in query.find_all(exp.Table) if relation.catalog}
        return {
            name: table(relation.name, relation.db, relation.catalog)
            for name, relation in tables.items()
            if name not in self.remote.tables
        }

    def _upload(self, query: exp.Query, types: Mapping[str, str], uploads: list[str]) -> exp.Expr:
        name, dialect = self.remote.next_name(), self.remote.dialect
        with self.remote.server.translate_errors(), super().stream(dialect.encode_columns(query, types)) as reader:
            relation = self.remote.server.upload(name, reader)
        uploads.append(name)
        return subquery(dialect.decode_uploaded(relation, types), "shipped")

    def _create_table(self, target: exp.Table, query: exp.Query) -> None:
        """Create a table from remote ones: locally if the result is an aggregation and not too large, else remotely."""
        types = self._column_types(query)
        if not self._may_leave(query, types):
            self._create_remote_table(target, types, query)
            return
        aggregation, embed = self._split_aggregation(query)
        fetched_types = types if aggregation is query else self._column_types(aggregation)
        # Hierarchies are built locally: the values of a single column are fetched, however many they are.
        is_of_one_column = guard.is_of_one_column(query)
        limit = None if is_of_one_column else self.remote.fetch_limit
        max_rows = self.remote.max_rows
        fits_at_once = max_rows is not None and (max_rows <= FETCH_AT_ONCE or self.remote.server.STREAMS_BATCHES)
        if max_rows is not None and fits_at_once and (limit is None or max_rows <= limit):
            with self.fetch_remote(aggregation, fetched_types, 0 if is_of_one_column else max_rows) as relation:
                super().execute(create_table(target, embed(relation)))
            return
        with self._materialize_within(aggregation) as (name, rows):
            if limit is None or rows <= limit:
                through_files = self.remote.needs_files(rows, FETCH_AT_ONCE)
                with self._fetch(select_star(table(name)), fetched_types, through_files) as relation:
                    super().execute(create_table(target, embed(relation)))
            elif aggregation is query:
                self._register_materialized(target, types, name)
            else:
                rows_query = select([*map(col, fetched_types)], table(name))
                self._create_remote_table(target, types, embed(rows_query))

    def _may_leave(self, query: exp.Query, types: Mapping[str, str]) -> bool:
        if guard.confined_columns(query, self.remote.confined):
            return False
        return guard.may_leave(query, self.remote.tables, types)

    def _split_aggregation(self, query: exp.Query) -> tuple[exp.Query, Callable[[exp.Query], exp.Query]]:
        """The remote aggregation in a query, and the function that embeds its result; both may be fetched."""
        aggregation, embed = guard.split_aggregation(query, self.remote.tables)
        if aggregation is not query and self._may_leave(aggregation, self._column_types(aggregation)):
            return aggregation, embed
        return query, lambda rows: rows

    @contextmanager
    def _materialize_within(self, query: exp.Query) -> Iterator[tuple[str, int]]:
        """Materialize a query remotely, until the context ends unless it is registered; yield its name and rows."""
        name, server = self.remote.next_name(), self.remote.server
        is_cached = query.meta.get(REPEATABLE) and server.CACHES_ROWS
        materialize = server.cache if is_cached else server.materialize
        with self.translate(query) as remote_query, server.translate_errors():
            rows = materialize(name, remote_query)
        self.remote.tables[full_name(table(name))] = table(name)
        try:
            yield name, rows
        finally:
            self.remote.tables.pop(full_name(table(name)), None)
            if name not in self.remote.materialized.values():
                with suppress(SourceError):  # the session may be gone
                    server.forget(name)

    def _create_remote_table(self, target: exp.Table, types: Mapping[str, str], query: exp.Query) -> None:
        confined = guard.confined_columns(query, self.remote.confined)
        with self._materialize_within(query) as (name, _):
            self._register_materialized(target, types, name)
        if confined:
            self.remote.confined[full_name(target)] = confined

    @contextmanager
    def _fetch(self, remote_query: exp.Query, types: Mapping[str, str], through_files: bool) -> Iterator[exp.Select]:
        dialect, server = self.remote.dialect, self.remote.server
        query = dialect.encode_columns(remote_query, types, dialect.text)
        if not through_files:
            with server.translate_errors(), server.stream(query) as reader, self.register_arrow(reader) as relation:
                yield dialect.decode_columns(relation, types)
            return
        with self._write_files(query) as files:
            yield dialect.decode_columns(read_parquet(files), types)

    @contextmanager
    def _write_files(self, query: exp.Expr) -> Iterator[list[str]]:
        """Have the remote engine write the rows of a query as Parquet files, which are deleted at the end."""
        server, scratch = self.remote.server, self.remote.scratch
        if scratch is None and not server.is_local:
            # Each executor would write to a folder on its own machine, where nothing deletes the files.
            raise SourceError(
                f"{server.place}: the result is fetched through files: give a folder that {self.remote.name} and this "
                "machine share, as [source] scratch"
            )
        with private_directory(scratch or Path(tempfile.gettempdir()), "sqlanon-fetch-") as folder:
            with server.translate_errors():
                server.write_parquet(query, str(folder / "rows"))
            files = sorted(str(file) for file in (folder / "rows").glob("*.parquet"))
            if not files:
                raise SourceError(
                    f"{server.place}: the result is fetched through files, but the files that {self.remote.name} wrote "
                    f"to {folder} are not on this machine: give a folder that both share, as [source] scratch"
                )
            yield files

    def _change_remote(self, statement: exp.Expr) -> None:
        """Change rows of a remote table that was created here; the statement reads remote tables only."""
        server, name = self.remote.server, full_name(statement.this)
        assert name in self.remote.materialized
        if not server.CHANGES_TABLES:
            self._replace_rows(name, select_changed_rows(statement, [*self.columns(statement.this)]))
            return
        with server.translate_errors():
            server.execute(self.remote.dialect.translate(statement, self.remote.tables))

    def _replace_rows(self, name: str, query: exp.Query) -> None:
        """Store the rows of a query as a remote table, in place of its rows."""
        rows, _ = self._materialize(query, [])
        replaced, self.remote.materialized[name] = self.remote.materialized[name], rows.name
        self.remote.tables[name] = rows
        with suppress(SourceError):  # the session may be gone
            self.remote.server.forget(replaced)

    def _register_materialized(self, target: exp.Table, types: Mapping[str, str], name: str) -> None:
        self.register_remote(target, types, table(name))
        self.remote.materialized[full_name(target)] = name

    def _drop_remote(self, target: exp.Table) -> None:
        name = full_name(target)
        super().execute(drop_view(target.copy()))
        del self.remote.tables[name]
        self.remote.confined.pop(name, None)
        if (materialized := self.remote.materialized.pop(name, None)) is not None:
            with suppress(SourceError):  # a failed transaction drops it, and its own error is reported
                self.remote.server.forget(materialized)


@dataclass(frozen=True)
class Recursion:
    """A query with a recursive CTE, taken apart into its steps."""

    query: exp.Query
    plain_ctes: Mapping[str, exp.Query]
    name: str
    steps: exp.Union

    def first_step(self, tables: Mapping[str, exp.Table]) -> exp.Query:
        return _replace_tables(self.steps.left, tables)

    def next_step(self, tables: Mapping[str, exp.Table]) -> exp.Query:
        """The step after the last one, which is among the tables under the name of the recursion."""
        return _replace_tables(self.steps.right, tables)

    def final_query(self, tables: Mapping[str, exp.Table], steps: Sequence[exp.Table]) -> exp.Query:
        """The query over the rows of all steps."""
        query = self.query.copy()
        recursive = _find_recursive_select(query)
        assert recursive is not None
        recursive.set("with_", None)
        all_steps = subquery(union_all(*(select_star(step) for step in steps)))
        plain = _replace_tables(recursive, {**tables, self.name: all_steps})
        if recursive is query:
            return plain
        recursive.replace(plain)
        return query


def find_recursion(query: exp.Query) -> Recursion | None:
    """The recursion in a query, or None.

    >>> from sqlglot import parse_one
    >>> query = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT SUM(n) FROM r"
    >>> recursion = find_recursion(parse_one(query))
    >>> recursion.next_step({"r": exp.to_table("last")}).sql()
    'SELECT n + 1 FROM last AS r WHERE n < 3'
    >>> recursion.final_query({}, [exp.to_table("a"), exp.to_table("b")]).sql()
    'SELECT SUM(n) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS r'
    """
    if (recursive := _find_recursive_select(query)) is None:
        return None
    *ctes, recursion = recursive.args["with_"].expressions
    return Recursion(query, {cte.alias: cte.this for cte in ctes}, recursion.alias, recursion.this)


def _find_recursive_select(query: exp.Query) -> exp.Select | None:
    withs = (with_ for with_ in query.find_all(exp.With) if with_.args.get("recursive"))
    return next((with_.parent for with_ in withs if isinstance(with_.parent, exp.Select)), None)


def _replace_tables(query: exp.Query, relations: Mapping[str, exp.Expr]) -> exp.Query:
    """The query with relations in place of the tables of these names."""
    root = subquery(query.copy())
    for old in list(root.find_all(exp.Table)):
        relation = relations.get(old.name)
        if relation is not None and not old.db:
            new = relation.copy()
            new.set("alias", exp.TableAlias(this=exp.to_identifier(old.alias or old.name)))
            old.replace(new)
    result: exp.Query = root.this.pop()
    return result
