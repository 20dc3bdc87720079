"""Several releases of the same people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
from hypothesis import strategies as st
from sqlglot import exp

from oracles.oracle_attacks import Attribute, Row, Tree
from sqlanon.ledger.joint.label_pairs import LinkedAttribute
from sqlanon.ledger.joint.row_matching import ReleaseLink
from sqlanon.support.expressions import create_table_with_columns, table
from support.databases import insert

NAMES = ['my "col"', "n", "l0", "Größe", "sensitive_0", "k1"]
"""Names of columns: some are the builders' own."""


def make(connection: duckdb.DuckDBPyConnection, name: str, columns: list[str], rows: list[Row]) -> exp.Table:
    target = table(name)
    connection.execute(create_table_with_columns(target, [(column, "VARCHAR") for column in columns]).sql("duckdb"))
    insert(connection, target.sql("duckdb"), rows)
    return target


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A hierarchy of height 0 to 2 over a few values, NULL among them; a label may stay from level to level."""
    height, paths = draw(st.integers(0, 2)), []
    groups = draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))
    for value, group in enumerate(groups):
        ground = str(value)
        middle = ground if groups.count(group) == 1 and group else f"g{group}"
        paths.append((ground, *([middle] if height == 2 else []), *(["*"] if height else [])))
    return Tree([*paths, (*(None,) * height, "*" if height else None)])


@st.composite
def releases(draw: st.DrawFn, shared: int | None = None, only_shared: bool = False) -> dict[str, Any]:
    """Two releases: their rows, their shared columns, their attributes."""
    count = draw(st.integers(1, 2))
    shared = draw(st.integers(0, 1)) if shared is None else shared
    local = draw(st.booleans())
    attributes: list[Attribute] = []
    firsts, seconds = 0, 0
    for _ in range(count):
        tree = draw(trees())
        levels = range(tree.height + 1)
        where = "both" if only_shared else draw(st.sampled_from(["both", "both", "both", "first", "second"]))
        first_levels, second_levels = ([draw(st.sampled_from(levels))] for _ in range(2))
        if local and draw(st.booleans()):
            first_levels = draw(st.lists(st.sampled_from(levels), min_size=1, unique=True).map(sorted))
            second_levels = list(levels)
        plain = draw(st.integers(0, 3)) == 0
        if plain:
            first_levels = second_levels = [0]
        first = second = None
        if where != "second":
            first, firsts = firsts, firsts + 1
        if where != "first":
            second, seconds = seconds, seconds + 1
        attributes.append(Attribute(first, second, first_levels, second_levels, tree))
    pairs = [(firsts + j, seconds + j) for j in range(shared)]
    rows = []
    for which in ("first", "second"):
        drawn = []
        for _ in range(draw(st.integers(0, 7))):
            row = []
            for attribute in attributes:
                if getattr(attribute, which) is None:
                    continue
                path = draw(st.sampled_from(attribute.tree.paths if attribute.tree else []))
                row.append(path[draw(st.sampled_from(list(getattr(attribute, f"{which}_levels"))))])
            drawn.append((*row, *(draw(st.sampled_from([None, "x", "y"])) for _ in range(shared))))
        rows.append(drawn)
    return {
        "first": rows[0],
        "second": rows[1],
        "shared": pairs,
        "attributes": attributes,
        "k": draw(st.integers(1, 4)),
    }


def link(first: Any, second: Any, attributes: Sequence[LinkedAttribute], *shared: str) -> ReleaseLink:
    """Two relations, or tables by name, as the builders take them."""
    relations = [table(relation) if isinstance(relation, str) else relation for relation in (first, second)]
    return ReleaseLink(*relations, shared, tuple(attributes))


def built(connection: duckdb.DuckDBPyConnection, case: dict[str, Any]) -> tuple[ReleaseLink, int]:
    """The same for the builders, and k."""
    attributes = []
    for i, attribute in enumerate(case["attributes"]):
        columns = [f"level_{level}" for level in range(attribute.tree.height + 1)]
        hierarchy = make(connection, f"h{i}", columns, list(attribute.tree.paths))
        name = NAMES[i]
        attributes.append(
            LinkedAttribute(
                name,
                None if attribute.first is None else name,
                None if attribute.second is None else name,
                tuple(attribute.first_levels),
                tuple(attribute.second_levels),
                hierarchy,
                attribute.tree.height,
            )
        )
    shared = [NAMES[2 + j] for j in range(len(case["shared"]))]
    relations = []
    for which in ("first", "second"):
        names = [attribute.name for attribute in attributes if getattr(attribute, which) is not None] + shared
        filler = [] if names else ["nothing"]
        rows = [(*row, *("-" for _ in filler)) for row in case[which]]
        relations.append(make(connection, which, names + filler, rows))
    return link(*relations, attributes, *shared), case["k"]
