"""The grid on which the ends of ranges lie: they come from levels of a hierarchy or rounded quantiles, and not from the
values of persons. (An end may meet a value by chance.)

A grid divides the values of an ordered attribute into cells, each from one place in their order to another. A range is
released from the lower end of its first cell to the upper end of its last one.

- The cells are the nodes of the lowest level above the values, and not below ``min_level``, whose labels are ranges of
  numbers or dates: months, intervals, masks of integers (``0213*``: 02130 to 02139). Each label must hold all values
  under it, and the values under it must follow one another. Levels at which each label is a single value (days of
  dates, intervals of width 1) are no grid.
- Where no level serves (``hierarchy = "suppress"``, groups with names), the borders of the cells are quantiles of the
  source, rounded: to 1, 2 or 5 times a power of ten, no less than two units of the column's type and no more than the
  distance to the next quantile; of dates to months, years or decades; of times to hours. The first and the last cell
  are open: least and greatest values are not shown.

A grid's table has one row for each node of the lowest level: ``node``; ``cell``, a number; ``cell_low`` and
``cell_high``, the positions of the cell's first and last value; and texts: its ends ``lower`` and ``upper``, NULL where
it is open or no range; ``least``, the lower end without padding; ``beyond``, the first value beyond it; ``middle``, a
value for its median. ``closed`` is whether the upper end is in the cell.
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.bounds import RangeKind, bounds
from sqlanon.hierarchies.labels import calendar_day
from sqlanon.hierarchies.numerals import NUMERAL, expand_exponent, extract_part, trim_zeros
from sqlanon.hierarchies.parts import ColumnKind, column_kind, decimal_size, label_range_kind, try_cast
from sqlanon.policy.rules import MaskRule
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.local.nodes import ENDS, NODE, Grid, Tree
from sqlanon.support.expressions import aliased, cast, col, fragment, named, template, union_all

QUANTILES = 32
"""The most cells of a grid that is made of quantiles."""

_MASKED = r"([0-9]+)\*+"
_HALF_OPEN = rf"\[({NUMERAL}), ({NUMERAL})\)"
_CLOSED = [f"({NUMERAL})", f"({NUMERAL})-({NUMERAL})", f"({NUMERAL}) to ({NUMERAL})"]

# One row for each level: whether its labels are ranges that hold their values, which follow one another.
_USABLE = template("""
    SELECT
        :level AS level,
        coalesce(
            bool_and(holds AND last - first + 1 = size) AND NOT bool_and(is_point)
            AND count(DISTINCT closed) FILTER (WHERE low IS NOT NULL AND high IS NOT NULL) = 1,
            FALSE
        ) AS usable
    FROM (
        SELECT
            *,
            coalesce(
                (low IS NOT NULL OR high IS NOT NULL) AND coalesce(low <= value, TRUE)
                AND coalesce(CASE WHEN closed THEN value <= high ELSE value < high END, TRUE),
                FALSE
            ) AS holds,
            coalesce(CASE WHEN closed THEN low = high ELSE high - low <= :unit END, FALSE) AS is_point,
            min(place) OVER (PARTITION BY label) AS first,
            max(place) OVER (PARTITION BY label) AS last,
            count(*) OVER (PARTITION BY label) AS size
        FROM (
            SELECT label, :low AS low, :high AS high, :closed AS closed, :value AS value, place
            FROM (
                SELECT
                    :label AS label,
                    level_0 AS value,
                    row_number() OVER (ORDER BY :order NULLS FIRST, level_0 NULLS FIRST) AS place
                FROM :hierarchy
                WHERE :label IS NOT NULL AND level_0 IS NOT NULL
            ) AS l
        ) AS p
    ) AS c
""")
_OF_LEVEL = template("""
    SELECT f.node, c.node AS cell, c.low AS cell_low, c.high AS cell_high, :texts
    FROM :nodes AS f
    JOIN (SELECT node, low, high, :ends FROM :nodes WHERE level = :level) AS c ON :ancestor = c.node
    WHERE f.level = :floor
""")


def make_grid(
    steps: StatementRunner, prepared: SearchInput, i: int, tree: Tree, order: exp.Expr, least: int
) -> Grid | None:
    """Make the grid of an ordered attribute, ``local_grid_i``; None where it has none, and so no ranges.

    ``least`` is the number of rows in the smallest class that the policy allows.
    """
    labels, hierarchy = Labels(prepared, i), prepared.hierarchies[i]
    level = _lowest_usable(steps, labels, tree, hierarchy, order)
    target = prepared.work(f"local_grid_{i}")
    if level is not None:
        return Grid(steps.make(target, _grid_of_level(labels, tree, level)), level, labels.kind == "date")
    if tree.floor or tree.open_ends or labels.type == "TIME WITH TIME ZONE":
        return None
    query = quantile_grid(labels, tree, hierarchy, order, least)
    made = steps.make(target, query)
    cells = steps.look_up(_CELLS(grid=made), [(2,)])[0][0]
    return Grid(made, None, labels.kind == "date") if cells > 1 else None


_CELLS = template("SELECT count(DISTINCT cell) FROM :grid WHERE least IS NOT NULL OR beyond IS NOT NULL")


def _lowest_usable(
    steps: StatementRunner, labels: Labels, tree: Tree, hierarchy: Hierarchy, order: exp.Expr
) -> int | None:
    levels = range(max(1, tree.floor), tree.height)
    if labels.kind is None or not levels:
        return None
    queries = []
    for level in levels:
        low, high, closed = labels.bounds(col("label"))
        queries.append(
            _USABLE(
                level=level,
                label=col(f"level_{level}"),
                low=low,
                high=high,
                closed=closed,
                value=labels.value(),
                unit=labels.unit,
                order=order,
                hierarchy=hierarchy.table,
            )
        )
    usable = steps.look_up(union_all(*queries), [(level, True) for level in levels])
    return min((level for level, is_usable in usable if is_usable), default=None)


def _grid_of_level(labels: Labels, tree: Tree, level: int) -> exp.Select:
    below = range(tree.floor, level)
    ancestor = col("parent", f"n{level - 1}") if below else col(NODE, "f")
    query = _OF_LEVEL(
        texts=[col(name, "c") for name in ENDS],
        ends=[named(end, name) for name, end in zip(ENDS, labels.texts(col("label")), strict=True)],
        nodes=tree.nodes,
        level=level,
        floor=tree.floor,
        ancestor=ancestor,
    )
    # The nodes between the floor and the cell, each found by its parent's number.
    for step in below:
        on = col(NODE, f"n{step}").eq(col(NODE, "f") if step == tree.floor else col("parent", f"n{step - 1}"))
        join = exp.Join(this=aliased(tree.nodes, f"n{step}"), on=on)
        query.args["joins"].insert(step - tree.floor, join)
    return query


_DAY_TEXT = fragment(":day::VARCHAR")
_NEXT = fragment(":end + 1")
_MIDDLE_DAY = fragment("(:low + (date_diff('day', :low, :high) // 2)::INTEGER)")
_MIDDLE_INTEGER = fragment("(:low::HUGEINT + (:high::HUGEINT - :low::HUGEINT) // 2)")
# Without the digits that floating point adds.
_MIDDLE = fragment("""
    CASE WHEN :high - :low < 1e-6 THEN (:low + :high) / 2 ELSE round((:low + :high) / 2, 9) END
""")
_FIRST_KNOWN = fragment("coalesce(:values)")
_IS_CLOSED = fragment("NOT regexp_matches(:label, '^\\[.*\\)$')")
_WITH_ZEROS = fragment("CASE WHEN regexp_matches(:label, '^[0-9]+[*]+$') THEN replace(:label, '*', '0') END")
_WITH_NINES = fragment("CASE WHEN regexp_matches(:label, '^[0-9]+[*]+$') THEN replace(:label, '*', '9') END")
_NEXT_INTEGER = fragment("(TRY_CAST(:text AS HUGEINT) + 1)::VARCHAR")
_LIKE_IT = fragment("lpad(:middle::VARCHAR, length(:lower)::INTEGER, '0')")


class Labels:
    """How the labels of an attribute are read: their ends as values and as texts."""

    def __init__(self, prepared: SearchInput, i: int) -> None:
        self.type = prepared.types[i]
        self.column = column_kind(self.type)
        rules = prepared.policy.attributes[prepared.hierarchies[i].attribute].hierarchy or ()
        # The numbers of a text are compared as numbers.
        self.kind: RangeKind | None = "number" if self.column is ColumnKind.TEXT else label_range_kind(self.type)
        self.masked = any(isinstance(rule, MaskRule) and rule.mask == "right" for rule in rules)

    @property
    def is_time(self) -> bool:
        return self.type in ("TIME", "TIME_NS")

    @property
    def unit(self) -> float:
        """The least distance of two values; 0 where there is none."""
        match self.column:
            case ColumnKind.INTEGER:
                return 1.0
            case ColumnKind.DECIMAL:
                return float(10.0 ** -decimal_size(self.type)[1])
        return 0.0

    def value(self) -> exp.Expr:
        """The column ``value``, to be compared with bounds."""
        if self.kind == "date":
            return calendar_day(self.type)
        return try_cast(col("value"), "BIGINT" if self.kind == "integer" else "DOUBLE")

    def bounds(self, label: exp.Expr) -> tuple[exp.Expr, exp.Expr, exp.Expr]:
        """The least and the greatest value of a label, and whether the latter is in it. The days of timestamps are
        ranges."""
        assert self.kind is not None
        low, high = bounds(label, self.kind)
        closed = _IS_CLOSED(label=label) if self.kind == "number" else exp.true()
        if self.masked and self.kind != "date":
            number = "BIGINT" if self.kind == "integer" else "DOUBLE"
            low = _FIRST_KNOWN(values=[low, try_cast(_WITH_ZEROS(label=label), number)])
            high = _FIRST_KNOWN(values=[high, try_cast(_WITH_NINES(label=label), number)])
        if self.kind == "date" and self.column is ColumnKind.DATE and self.type != "DATE":
            # A day has many moments.
            return low, _NEXT(end=high), exp.false()
        return low, high, closed

    def texts(self, label: exp.Expr) -> tuple[exp.Expr, ...]:
        """``lower``, ``upper``, ``least``, ``beyond``, ``middle`` and ``closed`` of a cell with this label."""
        assert self.kind is not None
        low, high = bounds(label, self.kind)
        if self.kind == "date":
            lower, upper, beyond = (_DAY_TEXT(day=end) for end in (low, high, _NEXT(end=high)))
            middle = _FIRST_KNOWN(values=[_MIDDLE_DAY(low=low, high=high), low, high])
            return lower, upper, lower.copy(), beyond, cast(middle, "VARCHAR"), exp.true()
        zeros, nines = _WITH_ZEROS(label=label), _WITH_NINES(label=label)
        half_open = extract_part(label, _HALF_OPEN, 2)
        lowers = [extract_part(label, form) for form in [*_CLOSED, _HALF_OPEN, f"≥({NUMERAL})"]]
        uppers = [extract_part(label, form, form.count(f"({NUMERAL})")) for form in _CLOSED]
        uppers += [half_open]
        if self.masked:
            lowers.append(zeros)
            uppers.append(nines)
        lower, upper = _FIRST_KNOWN(values=lowers), _FIRST_KNOWN(values=uppers)
        below = extract_part(label, f"<({NUMERAL})")
        is_integer = self.column is ColumnKind.INTEGER
        next_ = [_NEXT_INTEGER(text=_FIRST_KNOWN(values=uppers))] if is_integer else []
        beyond = _FIRST_KNOWN(values=[trim_zeros(expand_exponent(one)) for one in (half_open, below)] + next_)
        least = trim_zeros(expand_exponent(lower))
        return lower, upper, least, beyond, self._middle(lower, upper, below), _IS_CLOSED(label=label)

    def _middle(self, lower: exp.Expr, upper: exp.Expr, below: exp.Expr) -> exp.Expr:
        """A value in the middle of a cell that fits the column; at an open end, the other."""
        if self.column is ColumnKind.INTEGER or (self.masked and self.column is ColumnKind.TEXT):
            low, high = try_cast(lower, "HUGEINT"), try_cast(upper, "HUGEINT")
            middle = _MIDDLE_INTEGER(low=low, high=high)
        else:
            middle = _MIDDLE(low=try_cast(lower, "DOUBLE"), high=try_cast(upper, "DOUBLE"))
        if self.column is ColumnKind.TEXT:
            shown = (
                _LIKE_IT(middle=middle, lower=lower)
                if self.masked
                else trim_zeros(expand_exponent(cast(middle, "VARCHAR")))
            )
            return _FIRST_KNOWN(values=[shown, lower, upper, below])
        values = [try_cast(one, self.type) for one in (middle, lower, upper, below)]
        return cast(_FIRST_KNOWN(values=values), "VARCHAR")


# A border for each value in whose rows a quantile lies, rounded.
_QUANTILES = template("""
    WITH
        placed AS MATERIALIZED (
            SELECT :value AS value, position
            FROM (
                SELECT
                    level_0 AS value,
                    row_number() OVER (ORDER BY :order NULLS FIRST, level_0 NULLS FIRST) - 1 AS position
                FROM :hierarchy
            ) AS p
        ),
        counted AS MATERIALIZED (
            SELECT value, n, (sum(n) OVER (ORDER BY value))::HUGEINT AS so_far, (sum(n) OVER ())::HUGEINT AS whole
            FROM (
                SELECT p.value, sum(v.rows)::BIGINT AS n
                FROM placed AS p
                JOIN :nodes AS v ON v.low = p.position AND v.level = 0
                WHERE p.value IS NOT NULL
                GROUP BY p.value
            ) AS c
        ),
        borders AS MATERIALIZED (
            SELECT border, row_number() OVER (ORDER BY border) AS i
            FROM (
                SELECT DISTINCT :border AS border
                FROM (
                    SELECT
                        value,
                        coalesce(
                            least(value - lag(value) OVER (ORDER BY value), lead(value) OVER (ORDER BY value) - value),
                            (SELECT max(value) - min(value) FROM counted)
                        ) AS gap
                    FROM (
                        SELECT *, greatest(least(:most, whole // :least), 2) AS cells FROM counted
                    ) AS c
                    WHERE least(so_far * cells // whole, cells - 1) > (so_far - n) * cells // whole
                ) AS q
                WHERE gap > 0
            ) AS b
            WHERE border IS NOT NULL
        ),
        celled AS MATERIALIZED (
            SELECT
                position,
                CASE WHEN value IS NOT NULL THEN (SELECT count(*) FROM borders AS b WHERE b.border <= p.value) END AS i
            FROM placed AS p
        )
    SELECT v.node, c.cell, c.cell_low, c.cell_high, :texts
    FROM (
        SELECT
            *,
            (:first + CASE WHEN i IS NULL THEN -1 - position ELSE i END)::INTEGER AS cell,
            CASE WHEN i IS NULL THEN position ELSE min(position) OVER (PARTITION BY i) END AS cell_low,
            CASE WHEN i IS NULL THEN position ELSE max(position) OVER (PARTITION BY i) END AS cell_high
        FROM celled
    ) AS c
    JOIN :nodes AS v ON v.low = c.position AND v.level = 0
    LEFT JOIN borders AS a ON a.i = c.i
    LEFT JOIN borders AS z ON z.i = c.i + 1
""")
_FINITE = fragment("CASE WHEN isfinite(:number) THEN :number END")
_HOUR = fragment("hour(value)::BIGINT")
_POWER = fragment("pow(10, floor(log10(gap::DOUBLE)))")
_NICE = fragment("CASE WHEN gap >= 5 * :power THEN 5 * :power WHEN gap >= 2 * :power THEN 2 * :power ELSE :power END")
_AT_LEAST = fragment("greatest(:step, :least)")
_MULTIPLE = fragment("round(value::DOUBLE / :step) * :step")
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
_VALUE = fragment("value")
_HOUR_TEXT = fragment("lpad(:border::VARCHAR, 2, '0') || ':00:00'")
_HALF_PAST_TEXT = fragment("lpad(((:low + :high) // 2)::VARCHAR, 2, '0') || ':00:00'")
_NUMBER_TEXT = fragment("CASE WHEN contains(:text, 'e') THEN :text ELSE :plain END")
_LAST_BEFORE = fragment(":border - 1")


def quantile_grid(labels: Labels, tree: Tree, hierarchy: Hierarchy, order: exp.Expr, least: int) -> exp.Select:
    """A grid of rounded quantiles: cells with ``least`` rows or more, before their borders are rounded."""
    low, high = col("border", "a"), col("border", "z")
    value, border = _scale(labels)
    return _QUANTILES(
        value=value,
        border=border,
        texts=[named(end, name) for name, end in zip(ENDS, _quantile_texts(labels, low, high), strict=True)],
        order=order,
        hierarchy=hierarchy.table,
        nodes=tree.nodes,
        most=QUANTILES,
        least=max(least, 1),
        first=tree.root + 1 + tree.leaves,
    )


def _scale(labels: Labels) -> tuple[exp.Expr, exp.Expr]:
    """The values that quantiles are made of, and the border for one of them."""
    if labels.kind == "date":
        return calendar_day(labels.type), _CALENDAR_START()
    if labels.is_time:
        return _HOUR(), _VALUE()
    step: exp.Expr = exp.Paren(this=_NICE(power=_POWER()))
    if labels.unit:
        step = _AT_LEAST(step=step, least=2 * labels.unit)
    multiple = _MULTIPLE(step=step)
    match labels.column:
        case ColumnKind.INTEGER:
            return try_cast(col("value"), "HUGEINT"), try_cast(multiple, "HUGEINT")
        case ColumnKind.DECIMAL:
            rounded = _ROUNDED(step=step, multiple=multiple)
            return col("value"), try_cast(rounded, f"DECIMAL(38, {decimal_size(labels.type)[1]})")
    number = try_cast(col("value"), "DOUBLE")
    return _FINITE(number=number), _ROUNDED(step=step, multiple=multiple)


def _quantile_texts(labels: Labels, low: exp.Expr, high: exp.Expr) -> tuple[exp.Expr, ...]:
    """``lower``, ``upper``, ``least``, ``beyond``, ``middle`` and ``closed`` of a cell between two borders."""
    last = _LAST_BEFORE(border=high)
    if labels.kind == "date":
        middle = _FIRST_KNOWN(values=[_MIDDLE_DAY(low=low, high=last), low, last])
        texts = [cast(one, "VARCHAR") for one in (low, last, low.copy(), high, middle)]
        return *texts, exp.true()
    if labels.is_time:
        lower, upper = _HOUR_TEXT(border=low), _HOUR_TEXT(border=high)
        middle = _FIRST_KNOWN(values=[_HALF_PAST_TEXT(low=low, high=high), lower, upper])
        return lower, upper, lower.copy(), upper.copy(), middle, exp.false()
    lower, beyond = (_shown(one) for one in (low, high))
    if labels.column is ColumnKind.INTEGER:
        values = [try_cast(one, labels.type) for one in (_MIDDLE_INTEGER(low=low, high=last), low, last)]
        middle = cast(_FIRST_KNOWN(values=values), "VARCHAR")
        return lower, _shown(last), lower.copy(), beyond, middle, exp.true()
    middle = _MIDDLE(low=cast(low, "DOUBLE"), high=cast(high, "DOUBLE"))
    if labels.column is ColumnKind.TEXT:
        middle = _FIRST_KNOWN(values=[_shown(middle), lower.copy(), beyond.copy()])
    else:
        middle = cast(_FIRST_KNOWN(values=[try_cast(one, labels.type) for one in (middle, low, high)]), "VARCHAR")
    return lower, beyond, lower.copy(), beyond.copy(), middle, exp.false()


def _shown(number: exp.Expr) -> exp.Expr:
    """A number as text, without zeros that say nothing."""
    value = cast(number, "VARCHAR")
    return _NUMBER_TEXT(text=value, plain=trim_zeros(value))
