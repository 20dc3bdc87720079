"""The interface of the kinds of cuts, as `rounds` uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlglot import exp

from sqlanon.strategies.local.cuts.dimensions import Dimension


class Cuts(Protocol):
    """Finds the cuts of parts along dimensions of one kind.

    Queries that cut read the named steps of a round before them: ``spreads``, ``items``, ``simple_cuts`` and ``cuts``.
    """

    dimensions: Sequence[Dimension]

    def join_item(self, query: exp.Select, dimension: Dimension) -> tuple[exp.Expr, exp.Select]:
        """The item of the combinations ``c`` along a dimension, and the query joined with the table that has it."""
        ...

    def find(self, parts: exp.Table) -> list[exp.Query]:
        """The simple cuts of all parts with several items along a dimension: ``simple_cuts``."""
        ...

    def find_special(self, parts: exp.Table) -> list[exp.Query]:
        """Other cuts, where a simple cut leaves too few rows on a side."""
        ...

    def find_items_inside(self) -> list[exp.Query]:
        """The items inside cuts without a run of items: ``dimension``, ``part`` and ``item``."""
        ...
