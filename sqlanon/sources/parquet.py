"""Parquet files: their own schema, as they have it."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.expressions import col, literal_path, select


def parquet_columns(engine: DuckDBEngine, path: str) -> list[str]:
    """The top-level names in a Parquet file's own schema: a scan would rename the ones that differ in case only."""
    schema = exp.Table(this=exp.Anonymous(this="parquet_schema", expressions=[literal_path(path)]))
    nodes = engine.rows(select([col("name"), col("num_children")], schema))
    names: list[str] = []
    position = 1
    for _ in range(nodes[0][1] or 0):
        names.append(nodes[position][0])
        position = _after(nodes, position)
    return names


def _after(nodes: list[tuple[Any, ...]], position: int) -> int:
    """The position behind a node and all of its children, in depth-first order."""
    children, position = nodes[position][1] or 0, position + 1
    for _ in range(children):
        position = _after(nodes, position)
    return position
