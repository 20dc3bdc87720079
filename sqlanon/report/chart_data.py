"""What a report draws: small tables, counted where the rows are."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import (
    all_of,
    anonymous,
    cast,
    col,
    greatest,
    is_null,
    is_there,
    least,
    named,
    number,
    or_zero,
    select,
    subquery,
    text,
    total,
    where,
)

LABEL, ROWS = "label", "rows"

_FIGURES = ("levels", "status", "classes", "suppressed_rows", "score")

# Of generalizations: those on the frontier and the chosen one first, of the others a sample that is always the same.
_FRONTIER, _CHOSEN, _PLACE = "frontier", "chosen", "place"


def label_counts(relation: exp.Expr, column: str) -> exp.Subquery:
    """The values of a column as text, NULL for itself, and in how many rows each is: ``label``, ``rows``."""
    value = select([named(col(column), "value"), named(_count(), ROWS)], relation.copy(), [col(column)])
    return subquery(select([named(cast(col("value"), "VARCHAR"), LABEL), col(ROWS)], subquery(value, "v")), "labels")


def common_labels(counts: exp.Subquery, few: int, limit: int) -> exp.Select:
    """The labels that are in at least ``few`` rows, ``limit`` of them, the most frequent first."""
    query = select([col(LABEL), col(ROWS)], counts.copy()).where(_many(few), copy=False)
    query = query.order_by(exp.Ordered(this=col(ROWS), desc=True), copy=False)
    return query.order_by(exp.Ordered(this=col(LABEL), nulls_first=False), copy=False).limit(limit, copy=False)


def label_figures(counts: exp.Subquery, few: int) -> exp.Select:
    """One row: labels, their rows; and those that are in fewer than ``few`` rows: labels, rows."""
    rare = exp.LT(this=col(ROWS), expression=number(few))
    found = [_count(), or_zero(total(col(ROWS))), where(_count(), rare.copy()), or_zero(total(col(ROWS), rare))]
    return select(found, counts.copy())


def spread(relation: exp.Expr, value: exp.Expr) -> exp.Select:
    """One row: about where a twentieth of the numbers lie below and above; NULL where there is none."""
    number_ = cast(value, "DOUBLE")
    low, high = (anonymous("QUANTILE_CONT", number_.copy(), number(share)) for share in (0.05, 0.95))
    return select([low, high], relation.copy()).where(_is_number(value), copy=False)


def bins(relation: exp.Expr, value: exp.Expr, width: float, lowest: int, highest: int) -> exp.Select:
    """How many rows have a number in ``[bin × width, (bin + 1) × width)``.

    What is below the lowest bin is in the lowest, what is above the highest in the highest. Bin NULL: no number.
    """
    number_ = anonymous("FLOOR", exp.Div(this=cast(value, "DOUBLE"), expression=number(width)))
    number_ = greatest(least(number_, number(highest)), number(lowest))
    bin_ = exp.Case(ifs=[exp.If(this=_is_number(value), true=cast(number_, "BIGINT"))])
    query = select([named(bin_, "bin")], relation.copy())
    query = select([col("bin"), named(_count(), ROWS)], subquery(query, "b"), [col("bin")])
    return query.order_by(exp.Ordered(this=col("bin"), nulls_first=False), copy=False)


def statuses(lattice: exp.Table) -> exp.Select:
    """How many generalizations of each height have which status: ``height``, ``status``, count."""
    query = select([col("height"), col("status"), _count()], lattice.copy(), [col("height"), col("status")])
    return query.order_by(exp.Ordered(this=col("height")), exp.Ordered(this=col("status")), copy=False)


def every(lattice: exp.Table) -> exp.Select:
    """All generalizations of a small lattice: ``levels``, ``status``, ``classes``, ``suppressed_rows``, ``score``."""
    return select([col(name) for name in _FIGURES], lattice.copy())


def looked_at(lattice: exp.Table, chosen: Sequence[int], limit: int, maximised: bool = False) -> exp.Select:
    """Generalizations that were counted, for a picture of score against suppression.

    The frontier are those that satisfy the policy and suppress fewer rows than all that score as well. Of the others,
    those with the least MD5 of their levels are kept: a sample that is the same on every run.

    Parameters
    ----------
    lattice:
        The table that `search.lattice_rows` makes.
    chosen:
        The levels of the chosen one.
    limit:
        So many rows at most.
    maximised:
        Whether the best score is the greatest.

    Returns
    -------
    query
        ``levels``, ``status``, ``classes``, ``suppressed_rows``, ``score`` (its bound, where it has none),
        ``frontier``, ``chosen``; ordered by suppressed rows and score.
    """
    levels = exp.Array(expressions=[number(level) for level in chosen])
    is_chosen = exp.EQ(this=col("levels"), expression=cast(levels, "INTEGER[]"))
    cost: exp.Expr = exp.Neg(this=col("score")) if maximised else col("score")
    order = [col("suppressed_rows"), cost, col("levels")]
    before = exp.Window(
        this=exp.Min(this=cost.copy()),
        partition_by=[exp.EQ(this=col("status"), expression=text("satisfies"))],
        order=exp.Order(expressions=[exp.Ordered(this=one.copy()) for one in order]),
        spec=exp.WindowSpec(
            kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end=number(1), end_side="PRECEDING"
        ),
    )
    best = exp.Or(this=is_null(col("before")), expression=exp.LT(this=cost.copy(), expression=col("before")))
    satisfies = exp.EQ(this=col("status"), expression=text("satisfies"))
    shown: list[exp.Expr] = [col(name) for name in _FIGURES[:-1]]
    counted = select([*shown, col("score"), col("bound"), named(before, "before")], lattice.copy())
    counted = counted.where(is_there(col("suppressed_rows")), copy=False)
    score = exp.Coalesce(this=col("score"), expressions=[col("bound")])
    marked = select(
        [
            *(one.copy() for one in shown),
            named(score, "score"),
            named(all_of([satisfies, exp.Paren(this=best)]), _FRONTIER),
            named(is_chosen, _CHOSEN),
        ],
        subquery(counted, "c"),
    )
    mark = anonymous("MD5", cast(col("levels"), "VARCHAR"))
    place = exp.Window(
        this=exp.RowNumber(),
        order=exp.Order(
            expressions=[
                exp.Ordered(this=col(_CHOSEN), desc=True),
                exp.Ordered(this=col(_FRONTIER), desc=True),
                exp.Ordered(this=mark),
            ]
        ),
    )
    placed = select([exp.Star(), named(place, _PLACE)], subquery(marked, "m"))
    query = select([col(name) for name in (*_FIGURES, _FRONTIER, _CHOSEN)], subquery(placed, "p"))
    within = exp.LTE(this=col(_PLACE), expression=number(limit))
    ordered = [exp.Ordered(this=col(name)) for name in ("suppressed_rows", "score", "levels")]
    return query.where(within, copy=False).order_by(*ordered, copy=False)


def _count() -> exp.Count:
    return exp.Count(this=exp.Star())


def _many(few: int) -> exp.GTE:
    return exp.GTE(this=col(ROWS), expression=number(few))


def _is_number(value: exp.Expr) -> exp.Expr:
    """Whether it is a number that has a place: not NULL, no NaN, not infinite."""
    return anonymous("ISFINITE", cast(value.copy(), "DOUBLE"))
