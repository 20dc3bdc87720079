"""The same query in DuckDB and in Spark, over the same rows, and whether the answers are the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.support.expressions import aliased


def put(query: exp.Expr, relations: Mapping[str, exp.Expr]) -> exp.Expr:
    """A query over other relations, by the names of its tables in full."""
    query = query.copy()
    for node in list(query.find_all(exp.Table)):
        name = ".".join(part for part in (node.catalog, node.db, node.name) if part)
        if name in relations:
            node.replace(aliased(relations[name], node.alias or node.name))
    return query


def in_spark(engine: SparkEngine, query: exp.Expr, relations: Mapping[str, exp.Expr]) -> pa.Table:
    """The answer of Spark to a query that was built for DuckDB."""
    with engine.stream(translate_query(put(query, relations), "spark")) as reader:
        return reader.read_all()


def rows(table: pa.Table, without: Collection[str] = ()) -> list[tuple[Any, ...]]:
    """The rows of an answer as plain values, in a fixed order. (Columns may have the same name.)"""
    chosen = [i for i, name in enumerate(table.schema.names) if name not in without]
    columns = [[_plain(value) for value in table.column(i).to_pylist()] for i in chosen]
    return sorted(zip(*columns, strict=True), key=lambda row: [_key(value) for value in row])


def differences(
    ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], tolerance: float = 1e-13
) -> list[tuple[Any, Any]]:
    """The rows in which two answers differ, side by side."""
    if len(ours) != len(theirs):
        return [(f"{len(ours)} rows", f"{len(theirs)} rows")]
    pairs = zip(ours, theirs, strict=True)
    return [(left, right) for left, right in pairs if not _same(list(left), list(right), tolerance)]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return [_plain(element) for element in value.values()]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, (int, float)):
        return 2, math.inf if math.isnan(value) else float(f"{value:.9g}")
    return 3, str(value)


def _same(left: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(left, bool) or isinstance(theirs, bool):
        return left is theirs
    if isinstance(left, (int, float)) and isinstance(theirs, (int, float)):
        if isinstance(left, int) and isinstance(theirs, int):
            return left == theirs
        return (math.isnan(left) and math.isnan(theirs)) or math.isclose(left, theirs, rel_tol=tolerance)
    if isinstance(left, list) and isinstance(theirs, list):
        return len(left) == len(theirs) and all(_same(*pair, tolerance) for pair in zip(left, theirs, strict=True))
    return bool(left == theirs)
