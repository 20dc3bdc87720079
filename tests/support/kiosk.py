"""An engine of another name, in one file outside the package: a DuckDB that keeps its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from sqlanon.engines.federation import FederatedEngine, RemoteTables
from sqlanon.errors import SourceError, SqlanonError
from sqlanon.sources import Binding, SourceKind, register_source
from sqlanon.sources.remote import RemoteSource, bind_remote
from sqlanon.support.expressions import table


class KioskEngine:
    """The methods of every engine, and those of an engine with separate tables."""

    dialect = "duckdb"
    STREAMS_BATCHES = KEEPS_SUBQUERY_ORDER = RUNS_RECURSIVE_WINDOWS = APPROXIMATES_COUNTS = True
    BINDS_STREAM_PARAMETERS = OPENS_READ_ONLY = WRITES_PARQUET = CACHES_ROWS = RUNS_PYTHON = CHANGES_TABLES = False
    place = "the kiosk"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.left: list[exp.Expr] = []
        """The queries whose rows were fetched."""

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        self.connection.execute(statement.sql(self.dialect), parameters or None)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.left.append(query)
        return self.connection.execute(query.sql(self.dialect), parameters or None).fetchall()

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        description = self.connection.execute(exp.select("*").from_(relation.copy()).limit(0).sql(self.dialect))
        return {name: str(type_) for name, type_, *_ in description.description or []}

    def render(self, statement: exp.Expr) -> str:
        return statement.sql(self.dialect, pretty=True)

    def materialize(self, name: str, query: exp.Query) -> int:
        text = query.sql(self.dialect)
        return int(self.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS {text}').fetchall()[0][0])

    def upload(self, name: str, arrow: Any) -> exp.Table:
        self.connection.register("uploaded", arrow)
        self.connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS FROM uploaded')
        self.connection.unregister("uploaded")
        return table(name)

    @contextmanager
    def stream(self, query: exp.Query) -> Iterator[pa.RecordBatchReader]:
        self.left.append(query)
        yield self.connection.sql(query.sql(self.dialect)).to_arrow_reader()

    @contextmanager
    def translate_errors(self, kind: type[SqlanonError] = SourceError) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise kind(f"{self.place}: {type(error).__name__}") from None

    def forget(self, name: str) -> None:
        self.connection.execute(f'DROP TABLE IF EXISTS "{name}"')

    def close(self) -> None:
        pass


class KioskKind(SourceKind):
    name = "the kiosk"
    without_rows = "at the kiosk, and its rows never leave it; this command reads rows"

    def takes(self, candidate: object) -> bool:
        return isinstance(candidate, KioskEngine)

    def bind(self, binding: Binding) -> tuple[FederatedEngine, RemoteSource]:
        server = binding.servers.open(self.name, lambda: binding.connect_argument)
        engine = FederatedEngine(binding.engine, RemoteTables(server, binding.section.fetch_limit, name="the kiosk"))
        relation = table(binding.section.table or "")
        return engine, bind_remote(
            engine, relation, binding.work_names, binding.released_attributes, database_id="kiosk"
        )


register_source(KioskKind())
