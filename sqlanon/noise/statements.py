"""Noise inside classes: what each class needs of it, and the rows with what was drawn.

Names of columns, all ours. Of a record: ``record`` (its number), the columns of the recoding's rows, and for each
attribute ``j`` with noise ``x_j`` (its value as a number; of a date the days since 1970-01-01). Of a class: ``class``
(its number), the keys of the recoding, ``key_i`` for each attribute ``i`` that tells classes apart (a rank in place of
the key: never NULL), ``size``, and for each ``j`` ``low_j``, ``delta_j`` (the range), ``grid_j``, ``step_j``,
``inverses_j`` (the sum of 1 / |x|) and ``zeros_j`` (rows without one). Of what was drawn: ``record`` and ``n_j``. With
noise: ``v_j``; ``y_j``, as it is released, rounded and within the limits; and ``still_j``, whether there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.coding import rank_of
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    anonymous,
    any_number,
    cast,
    col,
    greatest,
    is_null,
    least,
    named,
    number,
    same,
    select,
    subquery,
    total,
    where,
)
from sqlanon.noise.noisy_column import NoisyColumn, as_number, is_zero, typed, usable

STEPS = 1024
"""The range of a class has so many steps of its grid."""

_TINIEST = 1e-290
"""No range is less: the grid is to be of numbers that can be divided by."""


def unusable_counts(source: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row: for each column the rows whose value no noise can be added to."""
    missing = [(~exp.Paren(this=usable(col(one.name), one))) for one in columns]
    return select([where(exp.Count(this=exp.Star()), one) for one in missing], source.copy())


def records(rows: exp.Select, columns: Sequence[NoisyColumn]) -> exp.Select:
    """The rows of a recoding that noise can be added to, each with its number."""
    values = [(col(f"value_{one.place}", "r"), one) for one in columns]
    numbers = [named(as_number(value, one.type), f"x_{j}") for j, (value, one) in enumerate(values)]
    query = select([all_columns("r"), *numbers], subquery(rows, "r"))
    query = query.where(all_of(usable(value.copy(), one) for value, one in values), copy=False)
    return select([named(any_number(), "record"), all_columns("u")], subquery(query, "u"))


def classes(records: exp.Table, keys: Mapping[int, str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """What noise needs of each class; the grid is `STEPS` parts of the range."""
    own: list[exp.Expr] = [col(key) for key in keys.values()]
    figures: list[exp.Expr] = [named(exp.Count(this=exp.Star()), "size")]
    for j, one in enumerate(columns):
        x, value = col(f"x_{j}"), col(f"value_{one.place}")
        lowest, highest = exp.Min(this=x), exp.Max(this=x.copy())
        # Values may differ where as DOUBLE they are equal: no range is 0 for that.
        ulp = exp.Abs(this=highest.copy()) * number(2.0**-52)
        wide = greatest(highest - lowest, ulp, number(_TINIEST))
        differ = exp.Max(this=value) > exp.Min(this=value.copy())
        inverse = number(1.0) / exp.Abs(this=x.copy())
        zero, other = is_zero(x.copy()), ~is_zero(x.copy())
        figures += [
            named(lowest, f"low_{j}"),
            named(exp.If(this=differ, true=wide, false=number(0.0)), f"delta_{j}"),
            named(where(exp.Sum(this=inverse), other), f"inverses_{j}"),
            named(where(exp.Count(this=exp.Star()), zero), f"zeros_{j}"),
        ]
    grouped = select([*own, *figures], records.copy(), [key.copy() for key in own])
    with_grid: list[exp.Expr] = [all_columns("g")]
    for j, one in enumerate(columns):
        grid = col(f"delta_{j}", "g") / number(float(STEPS))
        with_grid += [named(grid, f"grid_{j}"), named(_step(one, j), f"step_{j}")]
    # The number of a class is its place among them by their keys, so that it is the same on every run.
    ranks = [named(rank_of([col(key, "g")]), f"key_{i}") for i, key in keys.items()]
    order = exp.Order(expressions=[exp.Ordered(this=col(key, "g")) for key in keys.values()])
    number_ = exp.Window(this=exp.RowNumber(), order=order if keys else None)
    return select([named(number_, "class"), *ranks, *with_grid], subquery(grouped, "g"))


def _step(column: NoisyColumn, j: int) -> exp.Expr:
    """What released values of a class are multiples of: a power of two times the unit, at least a step of the grid.

    The grid shows the range of the class; coarser multiples of a unit that all classes share show its magnitude alone.
    Where there is no noise it is the policy's granularity, if any (else NULL: values stay).
    """
    unit = float(column.unit or 1)
    ratio = col(f"delta_{j}", "g") / number(STEPS * unit)
    # Of logarithms the last digits differ among engines; of powers of two none do.
    near = exp.Pow(this=number(2.0), expression=exp.Round(this=anonymous("LOG2", ratio)))
    twice = near * 2.0
    power: exp.Expr = exp.If(this=near >= ratio, true=near.copy(), false=twice)
    if column.unit is not None:
        power = greatest(power, number(1.0))
    step = number(unit) * power
    still = number(unit) if column.round is not None else exp.null()
    none = col(f"delta_{j}", "g").eq(0.0)
    return exp.If(this=none, true=still, false=step)


def noisy(
    records: exp.Table, classes: exp.Table, keys: Mapping[int, str], drawn: exp.Table, columns: Sequence[NoisyColumn]
) -> exp.Select:
    """The records with the number of their class, and what was drawn added to their values."""
    own: list[exp.Expr] = [all_columns("r"), col("class", "c")]
    for j, _ in enumerate(columns):
        still = col(f"delta_{j}", "c").eq(0.0)
        own += [named(_with_noise(j), f"v_{j}"), named(col(f"step_{j}", "c"), f"step_{j}"), named(still, f"still_{j}")]
    query = select(own, aliased(records, "r"))
    on = all_of(same(col(key, "r"), col(key, "c")) for key in keys.values())
    query = query.join(aliased(classes, "c"), on=on, copy=False)
    on_record = col("record", "r").eq(col("record", "d"))
    query = query.join(aliased(drawn, "d"), on=on_record, copy=False)
    shown = [named(on_steps(col(f"v_{j}", "w"), col(f"step_{j}", "w"), one), f"y_{j}") for j, one in enumerate(columns)]
    return select([all_columns("w"), *shown], subquery(query, "w"))


def drawn_columns(columns: Sequence[NoisyColumn]) -> list[tuple[str, str]]:
    """Name and type of the columns of what is drawn."""
    return [("record", "BIGINT"), *((f"n_{j}", "BIGINT") for j in range(len(columns)))]


def one_record() -> exp.Select:
    """One row, of a record that there is not: to draw for."""
    return exp.Select(expressions=[named(cast(number(0), "BIGINT"), "record")])


def undrawn(drawn: exp.Table) -> exp.Select:
    """One row: the records that got no noise."""
    return select([where(exp.Count(this=exp.Star()), is_null(col("n_0")))], drawn.copy())


def _with_noise(j: int) -> exp.Expr:
    """``low + (z + n) grid``; z = 0 .. `STEPS` is where on the grid of its class a value is."""
    low, grid = col(f"low_{j}", "c"), col(f"grid_{j}", "c")
    offset = exp.Paren(this=col(f"x_{j}", "r") - low)
    place = exp.Round(this=offset / grid)
    # Whatever rounding does, no two values of a class are more than its range apart: that is what ε is of.
    on_grid = least(greatest(place, number(0.0)), number(float(STEPS)))
    moved = exp.Paren(this=on_grid + cast(col(f"n_{j}", "d"), "DOUBLE"))
    value: exp.Expr = low + (moved * grid)
    none = grid.eq(0.0)
    return exp.If(this=none, true=low.copy(), false=value)


def on_steps(value: exp.Expr, step: exp.Expr, column: NoisyColumn) -> exp.Expr:
    """A value as it may be released: a multiple of the step of its class (NULL: as it is), within the limits."""
    rounded: exp.Expr = exp.Round(this=value / step) * step
    if column.unit is not None and (places := -int(column.unit.as_tuple().exponent)) > 0:
        rounded = exp.Round(this=rounded, decimals=number(places))  # 0.1 times a whole number is not always as written
    shown: exp.Expr = exp.Coalesce(this=rounded, expressions=[value.copy()])
    low_limit, high_limit = (number(limit) for limit in column.limits)
    shown = least(greatest(shown, low_limit), high_limit)
    return exp.Paren(this=shown + 0.0)  # no -0.0


def released(
    noisy: exp.Table, kept: exp.Table | None, columns: Sequence[NoisyColumn], rows: Sequence[str]
) -> exp.Select:
    """The rows of a recoding again, with noise."""
    by_name = {f"value_{one.place}": (j, one) for j, one in enumerate(columns)}
    output: list[exp.Expr] = []
    for name in rows:
        if name not in by_name:
            output.append(named(col(name, "n"), name))
            continue
        j, one = by_name[name]
        value = typed(col(f"y_{j}", "n"), one)
        if one.round is None and one.bounds is None:  # as it is, to the last digit
            value = exp.If(this=col(f"still_{j}", "n"), true=cast(col(name, "n"), one.released_type), false=value)
        output.append(named(value, name))
    query = select(output, aliased(noisy, "n"))
    if kept is not None:
        on = col("record", "n").eq(col("record", "k"))
        query = query.join(aliased(kept, "k"), on=on, join_type="semi", copy=False)
    return query


def expected_errors(classes: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row, before anything is drawn: for each attribute with ε = 1 ``expected_j`` (the mean over rows of the range
    of their class), ``expected_relative_j`` (of the range over the magnitude of the value; rows of 0 have none) and
    ``zeros_j``, the rows of 0; and ``still_j``, the rows of classes whose values are all equal.

    Source: (k,ε)-Anonymity, the expected relative error of a class: (Δ/ε) / H, H the harmonic mean of its values.
    """
    figures: list[exp.Expr] = []
    size = col("size")
    for j, _ in enumerate(columns):
        delta, zeros = col(f"delta_{j}"), col(f"zeros_{j}")
        others = exp.Paren(this=exp.Sum(this=size.copy()) - exp.Sum(this=zeros))
        relative = exp.Sum(this=delta * col(f"inverses_{j}"))
        figures += [
            named(
                _mean(exp.Sum(this=size * delta), exp.Sum(this=size.copy())),
                f"expected_{j}",
            ),
            named(_mean(relative, others), f"expected_relative_{j}"),
            named(cast(exp.Sum(this=zeros.copy()), "BIGINT"), f"zeros_{j}"),
            named(total(size.copy(), delta.eq(0.0)), f"still_{j}"),
        ]
    return select(figures, classes.copy())


def observed_errors(noisy: exp.Table, columns: Sequence[NoisyColumn]) -> exp.Select:
    """One row, of the noise that was drawn: ``observed_j`` and ``observed_relative_j``."""
    figures: list[exp.Expr] = []
    for j, _ in enumerate(columns):
        x = col(f"x_{j}")
        off = exp.Abs(this=col(f"y_{j}") - x)
        magnitude = exp.If(this=is_zero(x.copy()), true=exp.null(), false=exp.Abs(this=x.copy()))
        figures += [
            named(exp.Avg(this=off), f"observed_{j}"),
            named(exp.Avg(this=off / magnitude), f"observed_relative_{j}"),
        ]
    return select(figures, noisy.copy())


def _mean(total: exp.Expr, count: exp.Expr) -> exp.Expr:
    return total / exp.Nullif(this=count, expression=number(0))
