"""The grid on which the ends of ranges lie. Ends come from levels of a hierarchy or from rounded quantiles, and not
from the values of persons. (An end may equal a value by chance.)

A grid divides the ordered values of an attribute into cells. A range is released from the lower end of its first cell
to the upper end of its last one.

- The cells are the nodes of the lowest level above the values, and not below ``min_level``, whose labels are ranges of
  numbers or dates: months, intervals, masks of integers (``0213*``: 02130 to 02139). Each label must contain all values
  under it, and these values must be consecutive. Levels whose labels are all single values (days of dates, intervals of
  width 1) are not a grid.
- Without such a level (``hierarchy = "suppress"``, groups with names), the borders of the cells are quantiles of the
  source, rounded: to 1, 2 or 5 times a power of ten, at least two units of the column's type and at most the distance
  to the next quantile; for dates to months, years or decades; for times to hours. The first and the last cell are open,
  so that the least and the greatest value are not released.

A grid's table has one row for each lowest node: ``node``; ``cell``, a number; ``cell_low`` and ``cell_high``, the
positions of the cell's first and last value; and texts: its ends ``lower`` and ``upper``, NULL where it is open or not
a range; ``least``, the lower end without padding; ``beyond``, the first value beyond the cell; ``middle``, the value
that stands for a median in it. ``closed`` is whether the upper end is in the cell.
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.labels import calendar_day
from sqlanon.hierarchies.numerals import NUMERAL, expand_exponent, extract_part, trim_zeros
from sqlanon.hierarchies.parts import ColumnKind, column_kind, decimal_size, label_range_kind, try_cast
from sqlanon.policy.rules import MaskRule
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.local.core.nodes import END_COLUMNS, NODE, Grid, Tree
from sqlanon.support.expressions import (
    aliased,
    as_column,
    cast,
    col,
    fragment,
    greatest,
    number,
    select_star,
    subquery,
    template,
    text,
    union_all,
)

QUANTILES = 32
"""Maximum number of cells of a grid made of quantiles."""

_HALF_OPEN = rf"\[({NUMERAL}), ({NUMERAL})\)"
_CLOSED = [f"({NUMERAL})", f"({NUMERAL})-({NUMERAL})", f"({NUMERAL}) to ({NUMERAL})"]

# Whether the labels of a level are ranges that contain their values, which are consecutive.
_USABLE_LEVEL = template("""
    WITH
        labels AS (
            SELECT
                :label AS label,
                level_0 AS value,
                row_number() OVER (ORDER BY :order NULLS FIRST, level_0 NULLS FIRST) AS position
            FROM :hierarchy
            WHERE :label IS NOT NULL AND level_0 IS NOT NULL
        ),
        ranges AS (
            SELECT label, :low AS low, :high AS high, :closed AS closed, :value AS value, position FROM labels
        ),
        checked AS (
            SELECT
                *,
                coalesce(
                    (low IS NOT NULL OR high IS NOT NULL) AND coalesce(low <= value, TRUE)
                    AND coalesce(CASE WHEN closed THEN value <= high ELSE value < high END, TRUE),
                    FALSE
                ) AS contains_value,
                coalesce(CASE WHEN closed THEN low = high ELSE high - low < 1.5 * :unit END, FALSE) AS is_single_value,
                min(position) OVER (PARTITION BY label) AS first,
                max(position) OVER (PARTITION BY label) AS last,
                count(*) OVER (PARTITION BY label) AS size
            FROM ranges
        )
    SELECT
        :level AS level,
        coalesce(
            bool_and(contains_value AND last - first + 1 = size) AND NOT bool_and(is_single_value)
            AND count(DISTINCT closed) FILTER (WHERE low IS NOT NULL AND high IS NOT NULL) = 1,
            FALSE
        ) AS usable
    FROM checked
""")


def make_grid(
    runner: StatementRunner, search_input: SearchInput, i: int, tree: Tree, order: exp.Expr, least_class: int
) -> Grid | None:
    """Make the grid of an ordered attribute, ``local_grid_i``; None if it has none, and so no ranges."""
    reader, hierarchy = LabelReader(search_input, i), search_input.hierarchies[i]
    level = _lowest_usable_level(runner, reader, tree, hierarchy, order)
    target = search_input.work(f"local_grid_{i}")
    if level is not None:
        return Grid(runner.create_table(target, _grid_of_level(reader, tree, level)), level, reader.kind == "date")
    if tree.floor or tree.open_ends or reader.type == "TIME WITH TIME ZONE":
        return None
    grid = runner.create_table(target, quantile_grid(reader, tree, hierarchy, order, least_class))
    query = template("SELECT count(DISTINCT cell) FROM :grid WHERE least IS NOT NULL OR beyond IS NOT NULL")(grid=grid)
    cells = runner.fetch_rows(query, [(2,)], in_plan=False)[0][0]
    return Grid(grid, None, reader.kind == "date") if cells > 1 else None


def _lowest_usable_level(
    runner: StatementRunner, reader: LabelReader, tree: Tree, hierarchy: Hierarchy, order: exp.Expr
) -> int | None:
    levels = range(max(1, tree.floor), tree.height)
    if reader.kind is None or not levels:
        return None
    queries = []
    for level in levels:
        low, high, closed = reader.bounds(col("label"))
        query = _USABLE_LEVEL(
            level=level,
            label=col(f"level_{level}"),
            low=low,
            high=high,
            closed=closed,
            value=reader.value(),
            unit=reader.unit,
            order=order,
            hierarchy=hierarchy.table,
        )
        queries.append(select_star(subquery(query, "u")))
    usable = runner.fetch_rows(union_all(*queries), [(level, True) for level in levels], in_plan=False)
    return min((level for level, is_usable in usable if is_usable), default=None)


def _grid_of_level(reader: LabelReader, tree: Tree, level: int) -> exp.Select:
    below = range(tree.floor, level)
    query = template("""
        SELECT f.node, c.node AS cell, c.low AS cell_low, c.high AS cell_high, :texts
        FROM :nodes AS f
        JOIN (SELECT node, low, high, :ends FROM :nodes WHERE level = :level) AS c ON :ancestor = c.node
        WHERE f.level = :floor
    """)(
        texts=[col(name, "c") for name in END_COLUMNS],
        ends=[as_column(end, name) for name, end in zip(END_COLUMNS, reader.texts(col("label")), strict=True)],
        nodes=tree.nodes,
        level=level,
        floor=tree.floor,
        ancestor=col("parent", f"n{level - 1}") if below else col(NODE, "f"),
    )
    # Join the nodes between the floor and the cell, each by its child's parent.
    for step in below:
        on = col(NODE, f"n{step}").eq(col(NODE, "f") if step == tree.floor else col("parent", f"n{step - 1}"))
        join = exp.Join(this=aliased(tree.nodes, f"n{step}"), on=on)
        query.args["joins"].insert(step - tree.floor, join)
    return query


_FIRST_NOT_NULL = fragment("coalesce(:values)")
_MIDDLE_DAY = fragment("(:low + (date_diff('day', :low, :high) // 2)::INTEGER)")
_MIDDLE_INTEGER = fragment("(:low::HUGEINT + (:high::HUGEINT - :low::HUGEINT) // 2)")
# Rounded: without the digits that floating point adds.
_MIDDLE = fragment("""
    CASE WHEN :high - :low < 1e-6 THEN (:low + :high) / 2 ELSE round((:low + :high) / 2, 9) END
""")
_IS_CLOSED = fragment("NOT regexp_matches(:label, '^\\[.*\\)$')")
_UNMASKED = fragment("CASE WHEN regexp_matches(:label, '^[0-9]+[*]+$') THEN replace(:label, '*', :digit) END")


class LabelReader:
    """Reads the labels of an attribute: their ends as values and as texts."""

    def __init__(self, search_input: SearchInput, i: int) -> None:
        self.type = search_input.types[i]
        self.column = column_kind(self.type)
        rules = search_input.policy.attributes[search_input.hierarchies[i].attribute].hierarchy or ()
        # Text that holds numbers is compared by number.
        self.kind: RangeKind | None = "number" if self.column is ColumnKind.TEXT else label_range_kind(self.type)
        self.masked = any(isinstance(rule, MaskRule) and rule.mask == "right" for rule in rules)

    @property
    def is_time(self) -> bool:
        return self.type in ("TIME", "TIME_NS")

    @property
    def unit(self) -> float:
        """The least distance of two values; 0 if there is none."""
        match self.column:
            case ColumnKind.INTEGER:
                return 1.0
            case ColumnKind.DECIMAL:
                return float(10.0 ** -decimal_size(self.type)[1])
        return 0.0

    def value(self) -> exp.Expr:
        """The column ``value`` in the type of the bounds."""
        if self.kind == "date":
            return calendar_day(self.type)
        return try_cast(col("value"), "BIGINT" if self.kind == "integer" else "DOUBLE")

    def bounds(self, label: exp.Expr) -> tuple[exp.Expr, exp.Expr, exp.Expr]:
        """The least and the greatest value of a label, and whether the latter is in it."""
        assert self.kind is not None
        low, high = label_bounds(label, self.kind)
        closed = _IS_CLOSED(label=label) if self.kind == "number" else exp.true()
        if self.masked and self.kind != "date":
            type_ = "BIGINT" if self.kind == "integer" else "DOUBLE"
            zeros, nines = (_UNMASKED(label=label, digit=text(digit)) for digit in "09")
            least = _FIRST_NOT_NULL(values=[low, try_cast(zeros, type_)])
            return least, _FIRST_NOT_NULL(values=[high, try_cast(nines, type_)]), closed
        if self.kind == "date" and self.column is ColumnKind.DATE and self.type != "DATE":
            # The days of timestamps are ranges.
            return low, high + 1, exp.false()
        return low, high, closed

    def texts(self, label: exp.Expr) -> tuple[exp.Expr, ...]:
        """``lower``, ``upper``, ``least``, ``beyond``, ``middle`` and ``closed`` of a cell with this label."""
        assert self.kind is not None
        low, high = label_bounds(label, self.kind)
        if self.kind == "date":
            first, last, following = (cast(day, "VARCHAR") for day in (low, high, high + 1))
            middle = _FIRST_NOT_NULL(values=[_MIDDLE_DAY(low=low, high=high), low, high])
            return first, last, first.copy(), following, cast(middle, "VARCHAR"), exp.true()
        half_open = extract_part(label, _HALF_OPEN, 2)
        lowers = [extract_part(label, form) for form in [*_CLOSED, _HALF_OPEN, f"≥({NUMERAL})"]]
        uppers = [extract_part(label, form, form.count(f"({NUMERAL})")) for form in _CLOSED]
        uppers += [half_open]
        if self.masked:
            lowers.append(_UNMASKED(label=label, digit=text("0")))
            uppers.append(_UNMASKED(label=label, digit=text("9")))
        lower, upper = _FIRST_NOT_NULL(values=lowers), _FIRST_NOT_NULL(values=uppers)
        below = extract_part(label, f"<({NUMERAL})")
        beyond_values = [trim_zeros(expand_exponent(end)) for end in (half_open, below)]
        if self.column is ColumnKind.INTEGER:
            beyond_values.append(fragment("(TRY_CAST(:text AS HUGEINT) + 1)::VARCHAR")(text=upper))
        beyond = _FIRST_NOT_NULL(values=beyond_values)
        least = trim_zeros(expand_exponent(lower))
        return lower, upper, least, beyond, self._middle(lower, upper, below), _IS_CLOSED(label=label)

    def _middle(self, lower: exp.Expr, upper: exp.Expr, below: exp.Expr) -> exp.Expr:
        """A value in the middle of a cell that fits the column; in open cells their only end."""
        if self.column is ColumnKind.INTEGER or (self.masked and self.column is ColumnKind.TEXT):
            low, high = try_cast(lower, "HUGEINT"), try_cast(upper, "HUGEINT")
            middle = _MIDDLE_INTEGER(low=low, high=high)
        else:
            middle = _MIDDLE(low=try_cast(lower, "DOUBLE"), high=try_cast(upper, "DOUBLE"))
        if self.column is ColumnKind.TEXT:
            middle_text = (
                fragment("lpad(:middle::VARCHAR, length(:lower)::INTEGER, '0')")(middle=middle, lower=lower)
                if self.masked
                else trim_zeros(expand_exponent(cast(middle, "VARCHAR")))
            )
            return _FIRST_NOT_NULL(values=[middle_text, lower, upper, below])
        values = [try_cast(value, self.type) for value in (middle, lower, upper, below)]
        return cast(_FIRST_NOT_NULL(values=values), "VARCHAR")


# Each value at which a quantile is reached gives a border, rounded.
_QUANTILE_GRID = template("""
    WITH
        ground_values AS (
            SELECT
                level_0 AS value,
                row_number() OVER (ORDER BY :order NULLS FIRST, level_0 NULLS FIRST) - 1 AS position
            FROM :hierarchy
        ),
        positions AS MATERIALIZED (
            SELECT :value AS value, position FROM ground_values
        ),
        counts AS (
            SELECT p.value, sum(node.rows)::BIGINT AS row_count
            FROM positions AS p
            JOIN :nodes AS node ON node.low = p.position AND node.level = 0
            WHERE p.value IS NOT NULL
            GROUP BY p.value
        ),
        cumulated AS MATERIALIZED (
            SELECT
                value,
                row_count,
                (sum(row_count) OVER (ORDER BY value))::HUGEINT AS rows_up_to,
                (sum(row_count) OVER ())::HUGEINT AS all_rows
            FROM counts
        ),
        cell_counts AS (
            SELECT *, greatest(least(:max_cells, all_rows // :least_class), 2) AS cells FROM cumulated
        ),
        quantiles AS (
            SELECT value
            FROM cell_counts
            WHERE least(rows_up_to * cells // all_rows, cells - 1) > (rows_up_to - row_count) * cells // all_rows
        ),
        gaps AS (
            SELECT
                value,
                coalesce(
                    least(value - lag(value) OVER (ORDER BY value), lead(value) OVER (ORDER BY value) - value),
                    (SELECT max(value) - min(value) FROM cumulated)
                ) AS gap
            FROM quantiles
        ),
        borders AS MATERIALIZED (
            SELECT border, row_number() OVER (ORDER BY border) AS border_number
            FROM (SELECT DISTINCT :border AS border FROM gaps WHERE gap > 0) AS rounded
            WHERE border IS NOT NULL
        ),
        cells AS MATERIALIZED (
            SELECT
                position,
                CASE
                    WHEN value IS NOT NULL THEN (SELECT count(*) FROM borders AS b WHERE b.border <= p.value)
                END AS borders_below
            FROM positions AS p
        ),
        cell_ends AS (
            SELECT
                *,
                (:first_cell + coalesce(borders_below, -1 - position))::INTEGER AS cell,
                CASE
                    WHEN borders_below IS NULL THEN position
                    ELSE min(position) OVER (PARTITION BY borders_below)
                END AS cell_low,
                CASE
                    WHEN borders_below IS NULL THEN position
                    ELSE max(position) OVER (PARTITION BY borders_below)
                END AS cell_high
            FROM cells
        )
    SELECT node.node, cell_ends.cell, cell_ends.cell_low, cell_ends.cell_high, :texts
    FROM cell_ends
    JOIN :nodes AS node ON node.low = cell_ends.position AND node.level = 0
    LEFT JOIN borders AS lower_border ON lower_border.border_number = cell_ends.borders_below
    LEFT JOIN borders AS upper_border ON upper_border.border_number = cell_ends.borders_below + 1
""")
_POWER_OF_TEN = fragment("pow(10, floor(log10(gap::DOUBLE)))")
_ROUND_STEP = fragment(
    "CASE WHEN gap >= 5 * :power THEN 5 * :power WHEN gap >= 2 * :power THEN 2 * :power ELSE :power END"
)
_ROUNDED = fragment("""
    CASE WHEN :step BETWEEN 1e-12 AND 1 THEN round(:multiple, ceil(-log10(:step))::INTEGER) ELSE :multiple END
""")
_CALENDAR_START = fragment("""
    CASE
        WHEN gap >= 3653 THEN greatest(make_date(year(value) // 10 * 10, 1, 1), '0001-01-01'::DATE)
        WHEN gap >= 366 THEN make_date(year(value), 1, 1)
        ELSE make_date(year(value), month(value), 1)
    END
""")
_HOUR_TEXT = fragment("lpad(:hour::VARCHAR, 2, '0') || ':00:00'")


def quantile_grid(
    reader: LabelReader, tree: Tree, hierarchy: Hierarchy, order: exp.Expr, least_class: int
) -> exp.Select:
    """A grid of rounded quantiles. Before rounding, each cell has as many rows as the smallest class or more."""
    value, border = _value_and_border(reader)
    texts = _quantile_texts(reader, col("border", "lower_border"), col("border", "upper_border"))
    return _QUANTILE_GRID(
        value=value,
        border=border,
        texts=[as_column(end, name) for name, end in zip(END_COLUMNS, texts, strict=True)],
        order=order,
        hierarchy=hierarchy.table,
        nodes=tree.nodes,
        max_cells=QUANTILES,
        least_class=max(least_class, 1),
        first_cell=tree.root + 1 + tree.leaves,
    )


def _value_and_border(reader: LabelReader) -> tuple[exp.Expr, exp.Expr]:
    """The values that quantiles are made of, and the border for one of them."""
    if reader.kind == "date":
        return calendar_day(reader.type), _CALENDAR_START()
    if reader.is_time:
        return fragment("hour(value)::BIGINT")(), col("value")
    step: exp.Expr = exp.Paren(this=_ROUND_STEP(power=_POWER_OF_TEN()))
    if reader.unit:
        step = greatest(step, number(2 * reader.unit))
    multiple = fragment("round(value::DOUBLE / :step) * :step")(step=step)
    match reader.column:
        case ColumnKind.INTEGER:
            return try_cast(col("value"), "HUGEINT"), try_cast(multiple, "HUGEINT")
        case ColumnKind.DECIMAL:
            rounded = _ROUNDED(step=step, multiple=multiple)
            return col("value"), try_cast(rounded, f"DECIMAL(38, {decimal_size(reader.type)[1]})")
    return fragment("CASE WHEN isfinite(:number) THEN :number END")(number=try_cast(col("value"), "DOUBLE")), _ROUNDED(
        step=step, multiple=multiple
    )


def _quantile_texts(reader: LabelReader, low: exp.Expr, high: exp.Expr) -> tuple[exp.Expr, ...]:
    """``lower``, ``upper``, ``least``, ``beyond``, ``middle`` and ``closed`` of a cell between two borders."""
    last = high - 1
    if reader.kind == "date":
        middle = _FIRST_NOT_NULL(values=[_MIDDLE_DAY(low=low, high=last), low, last])
        texts = [cast(end, "VARCHAR") for end in (low, last, low.copy(), high, middle)]
        return *texts, exp.true()
    if reader.is_time:
        lower, upper = _HOUR_TEXT(hour=low), _HOUR_TEXT(hour=high)
        middle = _FIRST_NOT_NULL(
            values=[_HOUR_TEXT(hour=fragment("((:low + :high) // 2)")(low=low, high=high)), lower, upper]
        )
        return lower, upper, lower.copy(), upper.copy(), middle, exp.false()
    lower, beyond = _number_text(low), _number_text(high)
    if reader.column is ColumnKind.INTEGER:
        values = [try_cast(end, reader.type) for end in (_MIDDLE_INTEGER(low=low, high=last), low, last)]
        middle = cast(_FIRST_NOT_NULL(values=values), "VARCHAR")
        return lower, _number_text(last), lower.copy(), beyond, middle, exp.true()
    middle = _MIDDLE(low=cast(low, "DOUBLE"), high=cast(high, "DOUBLE"))
    if reader.column is ColumnKind.TEXT:
        middle = _FIRST_NOT_NULL(values=[_number_text(middle), lower.copy(), beyond.copy()])
    else:
        values = [try_cast(end, reader.type) for end in (middle, low, high)]
        middle = cast(_FIRST_NOT_NULL(values=values), "VARCHAR")
    return lower, beyond, lower.copy(), beyond.copy(), middle, exp.false()


def _number_text(value: exp.Expr) -> exp.Expr:
    """A number as text without redundant zeros."""
    text_ = cast(value, "VARCHAR")
    return fragment("CASE WHEN contains(:text, 'e') THEN :text ELSE :plain END")(text=text_, plain=trim_zeros(text_))
