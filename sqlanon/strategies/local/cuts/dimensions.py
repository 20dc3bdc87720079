"""Dimensions, and the items of combinations along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from sqlanon.strategies.local.core.nodes import Tree
from sqlanon.support.expressions import cast, col, fragment, number, template

MAX_CUT_OFF = 8
"""A cut takes off at least 1 / `MAX_CUT_OFF` of the rows: thousands of values do not take thousands of rounds."""

SPREADS, ITEMS, CUTS, CUT_OFF = "spreads", "items", "cuts", "cut_off"
"""The names of the steps of a round."""

_BITS = 62
"""Maximum number of dimensions whose bits share a column."""


class Kind(Enum):
    """The ways to cut a dimension."""

    ORDER = "order"  # numbers and times: an item is the position of a value, or of the first value of a cell
    FREQUENCY = "frequency"  # values that are released as sets: an item is a lowest node
    # An item is a lowest node, numbered so that the lowest nodes under each node are a run of numbers.
    HIERARCHY = "hierarchy"


@dataclass(frozen=True)
class Dimension:
    """A way to cut an attribute."""

    number: int
    attribute: int
    tree: Tree
    kind: Kind
    is_relaxed: bool = False  # along an order: the rows of one value may be on both sides
    of_cells: int | None = None  # for parts within one cell of this dimension: the hierarchy below the cell

    @property
    def item_column(self) -> str:
        return f"item_{self.number}"

    @property
    def item_type(self) -> str:
        """The narrowest type that holds all items."""
        if self.is_relaxed:
            return "BIGINT"
        # A value that stands alone is far from the others: positions may be a few times the number of leaves.
        largest = 8 * self.tree.leaves if self.kind is Kind.ORDER else self.tree.root
        return "SMALLINT" if largest < 2**15 else "INTEGER" if largest < 2**31 else "BIGINT"

    @property
    def mask_column(self) -> str:
        """The column of a part with one bit for this dimension: whether the part has several items along it."""
        return f"several_{self.number // _BITS}"

    @property
    def bit(self) -> int:
        return 1 << self.number % _BITS

    @property
    def has_several(self) -> exp.Expr:
        """Whether the part ``p`` had several items along this dimension before its last cut."""
        return fragment("(:mask & :bit) <> 0")(mask=col(self.mask_column, "p"), bit=cast(number(self.bit), "BIGINT"))

    @property
    def scale(self) -> float:
        """The loss of a row for each other value that its label has."""
        return self.tree.weight / max(self.tree.leaves - 1, 1)


def list_dimensions(trees: Sequence[Tree], as_sets: bool, relaxed: bool) -> list[Dimension]:
    """The dimensions of attributes that may be released at several levels: the first of each attribute, then those
    within the cells of grids."""
    dimensions: list[Dimension] = []
    divisible = [(i, tree) for i, tree in enumerate(trees) if tree.floor < tree.height]
    for i, tree in divisible:
        kind = Kind.ORDER if tree.is_ordered else Kind.FREQUENCY if as_sets else Kind.HIERARCHY
        dimensions.append(Dimension(len(dimensions), i, tree, kind, relaxed and tree.is_ordered))
    for i, tree in divisible:
        if tree.grid is not None and (tree.grid.level is None or tree.floor < tree.grid.level):
            cells = next(dimension.number for dimension in dimensions if dimension.attribute == i)
            dimensions.append(Dimension(len(dimensions), i, tree, Kind.HIERARCHY, of_cells=cells))
    return dimensions


items_of_special_cuts = template("""
    SELECT i.*
    FROM items AS i
    SEMI JOIN (SELECT dimension, part FROM simple_cuts WHERE is_special) AS c
        ON i.dimension = c.dimension AND i.part = c.part
    WHERE i.dimension IN (:dimensions)
""")

items_of_cuts_without_run = template("""
    SELECT i.*
    FROM items AS i
    SEMI JOIN (SELECT dimension, part FROM cuts WHERE low IS NULL AND gain IS NOT NULL) AS c
        ON i.dimension = c.dimension AND i.part = c.part
    WHERE i.dimension IN (:dimensions)
""")
