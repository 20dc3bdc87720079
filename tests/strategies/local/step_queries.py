"""Run single steps of local strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plain_similar import common
from sqlglot import exp

from oracles.oracle import Row
from properties.local_tasks import Plain
from sqlanon.strategies.local.core.groups import UNIT
from support.databases import insert, shared_database


def query(sql: exp.Expr, **tables: tuple[str, Sequence[Row]]) -> list[Any]:
    """The sorted answer to a query, on tables: their columns with types, and rows."""
    with shared_database() as connection:
        for name, (columns, rows) in tables.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
            if rows:
                insert(connection, name, rows)
        answer = connection.execute(sql.sql("duckdb")).fetchall()
        return sorted(answer, key=lambda row: [(value is not None, value) for value in row])


def price_of(plain: Plain, members: Sequence[int]) -> int | None:
    """The price of a row of a group, as its lowest common nodes."""
    nodes = common(plain, [*members])
    if nodes is None:
        return None
    trees = plain.task.trees
    weights = sum(tree.weight for tree in trees)
    shares = [tree.weight / weights * UNIT / max(tree.leaves - 1, 1) for tree in trees]
    return sum(round(by[node].leaves * share) for by, node, share in zip(plain.nodes, nodes, shares, strict=True))
