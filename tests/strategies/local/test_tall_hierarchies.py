"""Statements over the hierarchy of one attribute grow with its height, and no faster: masks of long texts are tall."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlglot import exp

from sqlanon.strategies.local.core.nodes import Tree, hierarchy_nodes
from sqlanon.strategies.local.subtree import paths, raises, splits
from sqlanon.support.coding import CodedAttribute
from sqlanon.support.expressions import col, table

pytestmark = pytest.mark.thorough


def tree_of_height(height: int) -> Tree:
    return Tree("id", height, 0, height, tuple(range(height + 1)), 10, 1.0, table("nodes"), is_ordered=False)


def nodes_of_height(height: int) -> exp.Query:
    coded = CodedAttribute("id", height, table("coded"), nullable=False)
    hierarchy: Any = SimpleNamespace(table=table("hierarchy"), top="*")
    return hierarchy_nodes(coded, hierarchy, tree_of_height(height), col("level_0"))


@pytest.mark.parametrize(
    "query_of_height",
    [
        nodes_of_height,
        lambda height: paths(table("combinations"), tree_of_height(height), 0, table("costs")),
        lambda height: splits(table("paths")),
        lambda height: raises(table("paths")),
    ],
    ids=["nodes", "paths", "splits", "raises"],
)
def test_statements_grow_linearly_with_the_height_of_a_hierarchy(query_of_height: Callable[[int], exp.Expr]) -> None:
    low, high = (len(query_of_height(height).sql("duckdb")) for height in (20, 80))
    assert high <= 4.5 * low
