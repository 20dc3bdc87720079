"""Bind sources of an engine that keeps their rows: only counts are fetched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.federation import FederatedEngine, RemoteTables
from sqlanon.errors import SourceError
from sqlanon.sources.relation import find_local_types
from sqlanon.sources.source import REMOTE_ROWS, AllColumns, RecodingStatement, RemotePersons, Source, WorkNames
from sqlanon.support.expressions import (
    as_column,
    create_table,
    drop_view,
    full_name,
    release_order,
    select,
    select_star,
    subquery,
    table,
    template,
)
from sqlanon.support.notices import count_noun

_Server = TypeVar("_Server")


MAX_FETCHED_ROWS = 2_000_000
"""Combinations of a source with at most this number of rows are fetched: local passes over them are faster."""


@dataclass(frozen=True, kw_only=True)
class RemoteSource(Source):
    """A source whose rows stay remote: the engine of the run executes statements on it remotely."""

    engine: FederatedEngine
    every: exp.Subquery  # all of its columns, remote
    types: Mapping[str, str]  # the types of all columns

    access = "remote"
    can_measure = False
    can_be_linked = False

    @property
    def location(self) -> str:
        return self.engine.remote.name

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The engine of the source, whatever the address: a release on the same server goes to the same engine."""
        server = self.engine.remote.server
        return server if isinstance(server, kind) else None

    @property
    def workers(self) -> FederatedEngine | None:
        return self.engine if self.engine.remote.server.RUNS_PYTHON else None

    def release_query(self, recoding: RecodingStatement) -> exp.Select:
        """Unsorted for engines that skip a sort that is not their last step."""
        return recoding.select(shuffled=self.engine.remote.server.KEEPS_SUBQUERY_ORDER)

    def release_note(self, to: str, note: str) -> str:
        return f"in {self.location}, over temporary tables with local values, to {to} ({note})"

    def render_statement(self, engine: Engine, query: exp.Expr) -> str:
        return self.engine.render(query)

    @contextmanager
    def release_rows(
        self, engine: WorkEngine, recoding: RecodingStatement, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        with self.engine.fetch_remote(self.release_query(recoding), types) as relation:
            quasi = [column.name for column in recoding.columns if column.quasi is not None]
            yield relation.order_by(*release_order(quasi), copy=False) if shuffled else relation

    @contextmanager
    def remote_release_query(self, engine: WorkEngine, recoding: RecodingStatement) -> Iterator[exp.Query]:
        with self.engine.translate(self.release_query(recoding)) as query:
            yield query

    def holds_table(self, relation: exp.Expr) -> bool:
        return self.engine.is_remote(relation)

    def sampling_relation(self, engine: Engine) -> None:
        """Return None: hashes of rows may not leave the engine."""

    def all_columns(self, engine: Engine) -> AllColumns:
        return AllColumns(self.engine.remote.server, self.every, self.types)

    def query_remote_rows(self, query: exp.Query, relation: exp.Expr) -> list[tuple[Any, ...]]:
        query, remote = query.copy(), self.engine.remote
        for part in query.find_all(exp.CTE):
            part.set("materialized", None)
        with remote.server.translate_errors():
            return remote.server.rows(remote.dialect.translate(query, {full_name(REMOTE_ROWS): relation}))

    def query_remote_release(
        self, engine: WorkEngine, query_of: Callable[[exp.Table], exp.Select], every: AllColumns
    ) -> list[tuple[Any, ...]]:
        rows = table("sqlanon_rows_there", "main", "temp")
        self.engine.register_remote(rows, every.types, every.relation, confined=every.types)
        try:
            return self.engine.rows(query_of(rows))
        finally:
            self.engine.execute(drop_view(rows.copy()))

    def drop(self) -> None:
        self.engine.drop_remote_tables()


def _count_rows(remote: RemoteTables, relation: exp.Expr, texts: Sequence[str]) -> int:
    """Count the rows of a source; refuse texts that are not UTF-8."""
    counts = [count for name in texts if (count := remote.dialect.count_invalid_texts(name)) is not None]
    with remote.server.translate_errors():
        query = template("SELECT count(*), :invalid FROM :rows")(invalid=counts, rows=relation)
        rows, *invalid = remote.server.rows(query)[0]
    flaws = zip(texts, invalid, strict=False)
    broken = [f"{name!r} ({count_noun(count, 'value')})" for name, count in flaws if count]
    if broken:
        raise SourceError(
            f"{remote.server.place}: text that is not UTF-8 in {', '.join(broken)}: mend it with query = ... under "
            "[source]; in Spark, make_valid_utf8(column) replaces the broken bytes"
        )
    return int(rows)


def bind_remote(
    engine: FederatedEngine,
    source: exp.Expr,
    work_names: WorkNames,
    wanted: Collection[str],
    files: tuple[Path, ...] = (),
    database_id: str | None = None,
    person: str | None = None,
    keys: Collection[str] = (),
    kind: type[RemoteSource] = RemoteSource,
) -> RemoteSource:
    """Bind a relation of an engine that keeps its rows. The equality of that engine distinguishes persons.

    ``keys`` link the rows with those of other tables, and never leave the engine. Then the rows are copied inside it,
    so that all statements see the same ones.
    """
    remote, dialect = engine.remote, engine.remote.dialect
    with remote.server.translate_errors():
        remote_columns = remote.server.columns(source)
    persons = [name for name in remote_columns if person is not None and name.lower() == person.lower()]
    wanted = {*wanted, *(name.lower() for name in persons)}
    columns = find_local_types(
        [(name, kind, dialect.to_duckdb_type(kind)) for name, kind in remote_columns.items()], wanted
    )
    plain: list[exp.Expr] = [
        as_column((dialect.person_id_column if name in persons else dialect.canonical_column)(name, kind), name)
        for name, kind in remote_columns.items()
        if name.lower() in wanted
    ]
    if not plain:
        raise SourceError("source: none of its columns is in the policy; check the names under [attributes]")
    relation: exp.Expr = subquery(select(plain, source), "source")
    view = work_names.view("source")
    types = {name: type_ for name, type_ in columns.items() if name.lower() in wanted}
    engine.register_remote(view, types, relation, confined=[*persons, *keys])
    if work_names.reads_rows and keys:
        engine.execute(create_table(work_names.table, select_star(view)))
        view = work_names.table
        relation = engine.remote.tables[full_name(view)]
    if work_names.reads_rows:
        texts = [name for name, type_ in columns.items() if type_ == "VARCHAR" and name.lower() in wanted]
        remote.max_rows = max(remote.max_rows or 0, _count_rows(remote, relation, texts))
    # Fetched combinations are scanned once; later steps are local.
    is_fetched = (remote.max_rows or 0) <= min(MAX_FETCHED_ROWS, remote.fetch_limit)
    all_types = {name: dialect.to_duckdb_type(kind) for name, kind in remote_columns.items()}
    types_by_name = {name: type_ for name, type_ in all_types.items() if type_ is not None}
    all_plain: list[exp.Expr] = [
        as_column(dialect.canonical_column(name, remote_columns[name]), name) for name in types_by_name
    ]
    return kind(
        view,
        columns,
        files,
        not is_fetched,
        database_id=database_id,
        persons=RemotePersons(engine, view) if persons else None,
        engine=engine,
        every=subquery(select(all_plain, source.copy()), "source"),
        types=types_by_name,
    )
