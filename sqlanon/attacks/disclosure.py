"""What the classes of one release give away of a sensitive attribute to who finds somebody's class.

Sources: A. Machanavajjhala, D. Kifer, J. Gehrke, M. Venkitasubramaniam, l-Diversity: Privacy beyond k-anonymity, ACM
TKDD 1(1), 2007, section 2 (homogeneity, background knowledge); N. Li, T. Li, S. Venkatasubramanian, t-Closeness:
Privacy beyond k-anonymity and l-diversity, ICDE 2007, section 3 (skewness, similarity).

Each query gives the classes by their labels, ``v0`` .., figures, and ``n``, the rows of the victims. NULL is a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    cast,
    col,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
)
from sqlanon.ledger.linked import ROWS
from sqlanon.requirements.base import TOLERANCE

RATIO, LIKELY = 2.0, 0.5
"""A skewed class: a value that is so many times as frequent as in the whole table, and has so great a share there."""


def homogeneity(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """Classes with one sensitive value, which is known of all their rows: ``v0`` .., ``value``, ``n``.

    Examples
    --------
    >>> from sqlanon.expressions import table
    >>> homogeneity(table("patients"), ["zip"], "diagnosis").named_selects
    ['v0', 'value', 'n']
    """
    value = named(exp.AnyValue(this=col("value")), "value")
    one = exp.Count(this=exp.Star()).eq(1)
    # Any value that is not NULL: of a class of NULLs there is none.
    return _classes(release, quasi, sensitive, [value, named(total(col(ROWS)), ROWS)], one)


def background_knowledge(release: exp.Expr, quasi: Sequence[str], sensitive: str, known: int = 1) -> exp.Select:
    """Classes in which one value is left for who can rule out some: ``v0`` .., ``values``, ``n``.

    They have at most ``known`` + 1 distinct values; those with one are there, too.
    """
    values = exp.Count(this=exp.Star())
    few = values <= number(known + 1)
    return _classes(release, quasi, sensitive, [named(values, "values"), named(total(col(ROWS)), ROWS)], few)


def skewness(
    release: exp.Expr, quasi: Sequence[str], sensitive: str, ratio: float = RATIO, likely: float = LIKELY
) -> exp.Select:
    """Values that a class makes much more likely than they are in the whole release: ``v0`` .., ``value``, ``p``,
    ``ratio`` (p/q), and ``n``, the rows of the class with that value.
    """
    query = _shares(release, quasi, sensitive)
    grown = all_of(
        [
            col("ratio") >= number(ratio - TOLERANCE),
            col("p") >= number(likely - TOLERANCE),
        ]
    )
    output = [*_labels(quasi), col("value"), col("p"), col("ratio"), col(ROWS)]
    return select(output, subquery(query, "s")).where(grown, copy=False)


def greatest_skew(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """One number: the greatest p/q of any value in any class; NULL of no rows."""
    return select([exp.Max(this=col("ratio"))], subquery(_shares(release, quasi, sensitive), "s"))


def similarity(release: exp.Expr, quasi: Sequence[str], sensitive: str, hierarchy: exp.Expr, height: int) -> exp.Select:
    """Classes whose sensitive values are all of one kind: ``v0`` .., ``level``, ``label``, ``n``.

    They agree at a level of the attribute's hierarchy below its top: ``level`` is the lowest (0: they are one value,
    see `homogeneity`), and ``label`` what they are there. A value that the hierarchy does not have is of its own kind.
    """
    levels = range(max(height, 1))
    own = cast(col("value", "c"), "VARCHAR")
    labels: list[exp.Expr] = []
    for level in levels:
        label = cast(col(f"level_{level}", "h"), "VARCHAR")
        known = exp.If(this=is_there(col("level_0", "h")), true=label, false=own.copy())
        labels.append(named(known, f"label_{level}"))
    on = own.eq(cast(col("level_0", "h"), "VARCHAR"))
    placed = select([all_columns("c"), *labels], subquery(_counts(release, quasi, sensitive), "c"))
    placed = placed.join(aliased(hierarchy, "h"), on=on, join_type="left", copy=False)
    agreed = [_is_one(col(f"label_{level}")) for level in levels]
    level_ = exp.Case(ifs=[exp.If(this=one, true=number(i)) for i, one in enumerate(agreed)])
    label_ = exp.Case(
        ifs=[exp.If(this=one.copy(), true=exp.Min(this=col(f"label_{i}"))) for i, one in enumerate(agreed)]
    )
    output = [*_labels(quasi), named(level_, "level"), named(label_, "label"), named(total(col(ROWS)), ROWS)]
    query = select(output, subquery(placed, "p"), _labels(quasi))
    return query.having(agreed[-1].copy(), copy=False)


def _is_one(label: exp.Expr) -> exp.Expr:
    """Whether a group has one value only, NULL among them."""
    distinct = exp.Count(this=exp.Distinct(expressions=[label]))
    nulls = exp.Cast(
        this=exp.Count(this=label.copy()).neq(exp.Count(this=exp.Star())),
        to=exp.DataType.build("INT"),
    )
    return (distinct + nulls).eq(1)


def _labels(quasi: Sequence[str]) -> list[exp.Expr]:
    return [col(f"v{i}") for i in range(len(quasi))]


def _counts(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """The rows by class and value: ``v0`` .., ``value``, ``n``."""
    output: list[exp.Expr] = [named(col(name, "r"), f"v{i}") for i, name in enumerate(quasi)]
    output += [named(col(sensitive, "r"), "value"), named(exp.Count(this=exp.Star()), ROWS)]
    by: list[exp.Expr] = [col(name, "r") for name in (*quasi, sensitive)]
    return select(output, aliased(release, "r"), by)


def _classes(
    release: exp.Expr, quasi: Sequence[str], sensitive: str, figures: list[exp.Expr], condition: exp.Expr
) -> exp.Select:
    """The classes that meet a condition on their distinct values."""
    query = select([*_labels(quasi), *figures], subquery(_counts(release, quasi, sensitive), "c"))
    if quasi:
        query.set("group", exp.Group(expressions=_labels(quasi)))
    some = exp.Count(this=exp.Star()) > 0  # without quasi-identifiers and rows
    return query.having(all_of([condition, some]), copy=False)


def _shares(release: exp.Expr, quasi: Sequence[str], sensitive: str) -> exp.Select:
    """By class and value: ``p``, ``ratio`` (p by q, its share of the whole release), and ``n``."""
    rows = cast(col(ROWS), "DOUBLE")

    def within(by: list[exp.Expr]) -> exp.Window:
        return exp.Window(this=exp.Sum(this=rows.copy()), partition_by=by)

    p = rows / within(_labels(quasi))
    q = within([col("value")]) / within([])
    output = [
        *_labels(quasi),
        col("value"),
        col(ROWS),
        named(p, "p"),
        named(p / exp.Paren(this=q), "ratio"),
    ]
    return select(output, subquery(_counts(release, quasi, sensitive), "c"))
