"""A release with noise against its source: is each value one that noise can make, and is the noise of its size?

Over the released rows and the source recoded without noise, which name columns alike; and the classes of the latter,
made by `noise.statements.classes` with the released labels as keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import aliased, all_of, cast, col, is_null, named, number, same, select, subquery, where
from sqlanon.noise.noisy_column import NoisyColumn, as_number, typed
from sqlanon.noise.statements import on_steps


def counted(relation: exp.Expr, names: Sequence[str], count: str) -> exp.Select:
    """Each combination of the columns that have no noise, and how often it is there."""
    columns: list[exp.Expr] = [col(name) for name in names]
    output = [*columns, named(exp.Count(this=exp.Star()), count)]
    return select(output, relation.copy(), [column.copy() for column in columns])


def as_records(recoded: exp.Expr, quasi: Sequence[str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """The recoded source under the names of `noise.statements.records`; with labels in ``code_i``."""
    output: list[exp.Expr] = [named(col(name), f"code_{i}") for i, name in enumerate(quasi)]
    for j, one in enumerate(columns):
        value = col(one.name)
        output += [named(value, f"value_{one.place}"), named(as_number(value.copy(), one.type), f"x_{j}")]
    return select(output, recoded.copy())


def as_noisy(released: exp.Expr, quasi: Sequence[str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """The release under the names of `noise.statements.noisy`; with labels in ``code_i``."""
    output: list[exp.Expr] = [named(col(name), f"code_{i}") for i, name in enumerate(quasi)]
    output += [named(as_number(col(one.name), one.type), f"y_{j}") for j, one in enumerate(columns)]
    return select(output, released.copy())


def _in_classes(rows: exp.Expr, classes: exp.Table, quasi: int, output: list[exp.Expr], kind: str) -> exp.Select:
    on = all_of(same(col(f"code_{i}", "r"), col(f"code_{i}", "c")) for i in range(quasi))
    return select(output, aliased(rows, "r")).join(aliased(classes, "c"), on=on, join_type=kind, copy=False)


def impossible(released: exp.Expr, classes: exp.Table, quasi: int, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row: the released rows that are in no class; and for each column the values that noise makes in no class.

    Parameters
    ----------
    released, quasi:
        Made by `as_noisy`, with so many labels.
    """
    output: list[exp.Expr] = [where(exp.Count(this=exp.Star()), is_null(col("class", "c")))]
    for j, one in enumerate(columns):
        y, low, step = col(f"y_{j}", "r"), col(f"low_{j}", "c"), col(f"step_{j}", "c")
        still = is_null(step)
        meant = exp.If(this=still, true=low, false=y)
        shown = as_number(typed(on_steps(exp.Paren(this=meant), step.copy(), one), one), one.type)
        # What is cut off at a bound need not be on a step.
        meant_or_cut = [shown, *(number(limit) for limit in one.limits)]
        as_made = exp.Paren(
            this=exp.or_(*(exp.EQ(this=y.copy(), expression=value) for value in meant_or_cut), copy=False)
        )
        right = exp.Coalesce(this=as_made, expressions=[exp.false()])  # NaN is none of them, for it would be cut off
        output.append(where(exp.Count(this=exp.Star()), exp.Not(this=right)))
    return _in_classes(released, classes, quasi, output, "left")


def _within(end: exp.Expr, least: exp.Expr, most: exp.Expr) -> exp.Expr:
    """Whether values on both sides of an end may be released: else what is cut off tells nothing of it."""
    above = exp.GT(this=end.copy(), expression=least.copy())
    return exp.Paren(this=all_of([above, exp.LT(this=end.copy(), expression=most.copy())]))


def beyond(
    released: exp.Expr, records: exp.Table, classes: exp.Table, quasi: int, j: int, column: NoisyColumn
) -> tuple[exp.Select, exp.Select]:
    """How many values are beyond the range of their class, and how many are to be: each one row, the second with the
    variance of that number at most, and the records that were looked at.

    The ends are midway between two multiples of the step, so that rounding moves no value across; an end that is not
    within the limits is left out. Noise of scale b takes x beyond an end that is d away with a probability of
    exp(−d/b) / 2.
    """
    delta, step = col(f"delta_{j}", "c"), col(f"step_{j}", "c")
    high = exp.Paren(this=exp.Add(this=col(f"low_{j}", "c"), expression=delta))
    half = number(0.5)

    def midway(value: exp.Expr, rounding: type[exp.Expr], step_out: type[exp.Expr]) -> exp.Expr:
        steps = rounding(this=exp.Div(this=value, expression=step.copy()))
        return exp.Mul(this=exp.Paren(this=step_out(this=steps, expression=half.copy())), expression=step.copy())

    lower = exp.Paren(this=midway(col(f"low_{j}", "c"), exp.Floor, exp.Sub))
    upper = exp.Paren(this=midway(high, exp.Ceil, exp.Add))
    noisy = exp.GT(this=delta.copy(), expression=number(0.0))
    least, most = (number(limit) for limit in column.limits)
    open_lower: list[exp.Expr] = [noisy, _within(lower, least, most)]
    open_upper: list[exp.Expr] = [noisy.copy(), _within(upper, least, most)]
    is_out = exp.or_(
        all_of([*open_lower, exp.LT(this=col(f"y_{j}", "r"), expression=lower.copy())]),
        all_of([*open_upper, exp.GT(this=col(f"y_{j}", "r"), expression=upper.copy())]),
        copy=False,
    )
    found = _in_classes(released, classes, quasi, [where(exp.Count(this=exp.Star()), is_out)], "inner")
    scale = exp.Paren(this=exp.Div(this=delta.copy(), expression=number(column.epsilon)))

    def chance(distance: exp.Expr, open_: list[exp.Expr]) -> exp.Expr:
        size = exp.Exp(this=exp.Neg(this=exp.Div(this=exp.Paren(this=distance), expression=scale.copy())))
        there = exp.Div(this=size, expression=number(2.0))
        return exp.If(this=all_of(one.copy() for one in open_), true=there, false=number(0.0))

    x = col(f"x_{j}", "r")
    p = exp.Add(
        this=chance(exp.Sub(this=x, expression=lower.copy()), open_lower),
        expression=chance(exp.Sub(this=upper.copy(), expression=x.copy()), open_upper),
    )
    each = _in_classes(records, classes, quasi, [named(p, "p"), named(noisy.copy(), "noisy")], "inner")
    rest = exp.Paren(this=exp.Sub(this=number(1.0), expression=col("p")))
    sums: list[exp.Expr] = [
        exp.Sum(this=col("p")),
        exp.Sum(this=exp.Mul(this=col("p"), expression=rest)),
        cast(where(exp.Count(this=exp.Star()), col("noisy")), "BIGINT"),
    ]
    return found, select(sums, subquery(each, "p"))
