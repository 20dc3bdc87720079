"""Arrow: tables, streams and data frames that were given, copied once."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.bind import bind_relation, source_errors
from sqlanon.sources.bound import Source
from sqlanon.sources.kinds import Binding, SourceKind
from sqlanon.sources.plain import refuse_ambiguous, refuse_query


class _Arrow(SourceKind):
    name = "arrow"

    def bind(self, binding: Binding) -> tuple[DuckDBEngine, Source]:
        refuse_query(binding.section)
        assert binding.copied is not None
        with source_errors():
            return binding.engine, bind_relation(binding.engine, binding.copied, binding.place, True, home="arrow")


KIND = _Arrow()


def copy_arrow(engine: DuckDBEngine, arrow: Any, target: exp.Table) -> exp.Table:
    """Copy an Arrow table or stream into a private table: a stream can be read only once."""
    if not hasattr(arrow, "schema"):
        raise SourceError(
            f"a {type(arrow).__name__} is no source: give a path, a duckdb connection, an Arrow table or stream"
        )
    refuse_ambiguous(arrow.schema.names, "the Arrow source")
    with source_errors():
        engine.copy_arrow(target, arrow)
    return target
