"""A round of cuts: the parts of a table, each cut once, as one query."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.cuts.base import Cuts
from sqlanon.strategies.local.cuts.dimensions import CUT_OFF, CUTS, ITEMS, SPREADS, Dimension, Kind
from sqlanon.strategies.local.cuts.frequencies import FrequencyCuts
from sqlanon.strategies.local.cuts.hierarchies import HierarchyCuts
from sqlanon.strategies.local.cuts.orders import OrderCuts
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    fragment,
    number,
    prepend_ctes,
    select_star,
    subquery,
    table,
    template,
    union_all,
)


class Rounds:
    """Cuts each part once. There is at least one dimension."""

    def __init__(self, task: LocalTask, dimensions: Sequence[Dimension]) -> None:
        self._task = task
        self._dimensions = dimensions
        orders, by_frequency, by_hierarchy = (
            [dimension for dimension in dimensions if dimension.kind is kind]
            for kind in (Kind.ORDER, Kind.FREQUENCY, Kind.HIERARCHY)
        )
        self._orders = OrderCuts(task, orders) if orders else None
        self._counted = [*by_frequency, *by_hierarchy]
        self._kinds: list[Cuts] = [self._orders] if self._orders else []
        if by_frequency:
            self._kinds.append(FrequencyCuts(task, by_frequency))
        if by_hierarchy:
            self._kinds.append(HierarchyCuts(task, by_hierarchy))

    def add_items(self, combinations: exp.Table, parts: exp.Table) -> exp.Select:
        """Parts with the items of their combinations."""
        query = template("""
            SELECT
                0 AS round,
                c.combination,
                c.row_count,
                p.part,
                (SELECT coalesce(max(part), 0)::INTEGER FROM :parts AS last) AS last_part,
                :several
            FROM :combinations AS c
            JOIN :parts AS p ON c.combination = p.combination
        """)(
            combinations=combinations,
            parts=parts,
            several=[as_column(fragment("-1::BIGINT")(), name) for name in self._masks],
        )
        kinds = {dimension.number: kind for kind in self._kinds for dimension in kind.dimensions}
        for dimension in self._dimensions:  # in the order of the columns of the next rounds
            item, query = kinds[dimension.number].join_item(query, dimension)
            query = query.select(as_column(cast(item, dimension.item_type), dimension.item_column), copy=False)
        return query

    def cut(self, parts: exp.Table) -> exp.Select:
        """The parts that could be cut, in two: the inside keeps the number of its part, the outside gets a new one."""
        ctes: dict[str, exp.Expr] = {}
        if self._orders:
            ctes[SPREADS] = self._orders.spread(parts)
        if self._counted:
            ctes[ITEMS] = union_all(*(_items(dimension, parts) for dimension in self._counted))
        ctes["simple_cuts"] = union_all(*(query for kind in self._kinds for query in kind.find(parts)))
        special = [query for kind in self._kinds for query in kind.find_special(parts)]
        ctes[CUTS] = union_all(select_star(table("simple_cuts")), *special)
        cut_off = [query for kind in self._kinds for query in kind.find_items_inside()]
        if cut_off:
            ctes[CUT_OFF] = union_all(*cut_off)
        ctes["feasible"] = self._feasible_cuts(parts)
        ctes["chosen"] = _CHOSEN(several=[self._several(name) for name in self._masks])
        columns = [col(name, "p") for name in ("part", "round", "last_part")]
        columns += [col(name, "h") for name in ("place", "rows_inside", "rows_outside", *self._masks)]
        columns += [col(dimension.item_column, "p") for dimension in self._dimensions]
        masks = (
            as_column(fragment("CASE WHEN is_open THEN :mask ELSE 0 END")(mask=col(name)), name) for name in self._masks
        )
        query = _PARTS(
            several=list(masks),
            items=[col(dimension.item_column) for dimension in self._dimensions],
            sides=self._sides(columns, parts, table("chosen")),
            least_class=self._task.evaluator.requirements.min_class_rows,
        )
        return prepend_ctes(query, ctes, materialized=True)

    @property
    def _masks(self) -> list[str]:
        """The columns with bits of dimensions."""
        return sorted({dimension.mask_column for dimension in self._dimensions})

    def _several(self, mask: str) -> exp.Alias:
        """The bits of the dimensions along which a part has several items. Below cells, a part of several cells has."""
        dimensions = [dimension for dimension in self._dimensions if dimension.mask_column == mask]
        bits = exp.Case(this=col("dimension"))
        for cut_dimension in self._dimensions:
            several = sum(
                dimension.bit
                for dimension in dimensions
                if cut_dimension.number in (dimension.number, dimension.of_cells)
            )
            bits = bits.when(number(cut_dimension.number), cast(number(several), "BIGINT"), copy=False)
        return as_column(fragment("bit_or(:bits)")(bits=bits), mask)

    def _feasible_cuts(self, parts: exp.Table) -> exp.Select:
        """The cuts whose sides both meet the requirements."""
        with_gain = template("SELECT * FROM cuts WHERE gain IS NOT NULL")()
        if self._task.evaluator.needs_only_rows:
            return with_gain
        sides = self._sides([col("part", "p")], parts, subquery(with_gain))
        evaluated = self._task.evaluate(subquery(sides, "s"), ["part", "dimension", "inside"])
        return template("""
            SELECT c.*
            FROM cuts AS c
            SEMI JOIN (
                SELECT part, dimension FROM :evaluated AS j GROUP BY part, dimension HAVING bool_and(kept)
            ) AS f ON c.part = f.part AND c.dimension = f.dimension
            WHERE c.gain IS NOT NULL
        """)(evaluated=evaluated)

    def _sides(self, columns: Sequence[exp.Expr], parts: exp.Table, cuts: exp.Expr) -> exp.Select:
        """The combinations of the parts ``p`` for each of their cuts ``h``, and whether they are ``inside``."""
        item = exp.Case(this=col("dimension", "h"))
        for dimension in self._dimensions:
            item = item.when(number(dimension.number), col(dimension.item_column, "p"), copy=False)
        query = _CUT_ITEMS(columns=columns, item=item, parts=parts, cuts=cuts)
        return (_SIDES if self._counted else _SIDES_OF_RUNS)(rows=subquery(query, "r"))


def _items(dimension: Dimension, parts: exp.Table) -> exp.Select:
    """The ``row_count`` of each ``item`` of a ``part`` along a ``dimension``; below cells, of parts in one cell."""
    query = template("""
        SELECT :dimension::SMALLINT AS dimension, p.part, :item AS item, sum(p.row_count)::BIGINT AS row_count
        FROM :parts AS p
        WHERE :has_several
        GROUP BY p.part, :item
    """)(
        dimension=dimension.number,
        item=col(dimension.item_column, "p"),
        has_several=dimension.has_several,
        parts=parts,
    )
    if dimension.of_cells is None:
        return query
    several_cells = template("SELECT part FROM spreads WHERE dimension = :dimension")(dimension=dimension.of_cells)
    on = fragment("p.part = s.part")()
    return query.join(subquery(several_cells, "s"), on=on, join_type="anti", copy=False)


_CUT_ITEMS = template("""
    SELECT p.combination, p.row_count, h.dimension, h.low, h.high, :item AS item, :columns
    FROM :parts AS p
    JOIN :cuts AS h ON p.part = h.part
""")

_SIDES_OF_RUNS = template("SELECT r.*, r.item BETWEEN r.low AND r.high AS inside FROM :rows")

_SIDES = template("""
    SELECT r.*, CASE WHEN r.low IS NULL THEN o.item IS NOT NULL ELSE r.item BETWEEN r.low AND r.high END AS inside
    FROM :rows
    LEFT JOIN cut_off AS o
        ON r.part = o.part AND r.dimension = o.dimension AND CASE WHEN r.low IS NULL THEN r.item END = o.item
""")

# The cut of each part: the greatest gain with feasible sides, then the first dimension. ``place`` numbers the cuts.
_CHOSEN = template("""
    WITH
        ranked AS (
            SELECT *, row_number() OVER (PARTITION BY part ORDER BY gain DESC, dimension) AS rank
            FROM feasible
        ),
        several AS (
            SELECT part, :several FROM cuts GROUP BY part
        )
    SELECT r.*, s.* EXCLUDE (part), row_number() OVER (ORDER BY r.part) AS place
    FROM ranked AS r
    JOIN several AS s ON r.part = s.part
    WHERE r.rank = 1
""")

_PARTS = template("""
    SELECT
        round + 1 AS round,
        combination,
        row_count,
        CASE WHEN inside THEN part ELSE (last_part + place)::INTEGER END AS part,
        (last_part + (SELECT count(*) FROM chosen))::INTEGER AS last_part,
        :several,
        :items
    FROM (
        SELECT
            *, CASE WHEN inside THEN rows_inside ELSE rows_outside END >= 2 * :least_class AS is_open
        FROM (:sides) AS sides
    ) AS s
""")
