"""A release with noise against its source: is each value where noise may have put it, and is the noise of its size?

Over the released rows and the source recoded without noise, which name columns alike; and the classes of the latter,
made by `queries.noise.classes` with the released labels as keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.names import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    greatest,
    is_null,
    named,
    number,
    same,
    select,
    subquery,
    where,
)
from sqlanon.queries.noise import NoisyColumn, as_number

_NEARLY = 1e-6


def without(relation: exp.Expr, names: Sequence[str]) -> exp.Select:
    """The columns of a relation that have no noise."""
    return select([col(name) for name in names], relation.copy())


def rows_too_many(released: exp.Expr, recoded: exp.Expr, names: Sequence[str]) -> exp.Select:
    """One row: how many released rows, without noise, the recoded source does not have so often."""
    extra = exp.Except(this=without(released, names), expression=without(recoded, names), distinct=False)
    return select([exp.Count(this=exp.Star())], subquery(extra, "e"))


def as_records(recoded: exp.Expr, quasi: Sequence[str], columns: Sequence[NoisyColumn]) -> exp.Select:
    """The recoded source under the names of `queries.noise.records`; with labels in ``code_i``."""
    output: list[exp.Expr] = [named(col(name), f"code_{i}") for i, name in enumerate(quasi)]
    for j, one in enumerate(columns):
        value = col(one.name)
        output += [named(value, f"value_{one.place}"), named(as_number(value.copy(), one.type), f"x_{j}")]
    return select(output, recoded.copy())


def compared(
    released: exp.Expr, records: exp.Table, classes: exp.Table, quasi: Sequence[str], columns: Sequence[NoisyColumn]
) -> exp.Select:
    """One row a class of the release: ``class``, ``size`` (of the source's), ``rows``, and for each attribute ``j``
    ``off_j`` (values that no noise makes), ``cut_j`` (values at the bounds), ``sum_j`` (of what is released, less what
    is the source's), ``delta_j`` and ``step_j``."""
    theirs: list[exp.Expr] = [col("class", "c"), named(exp.Count(this=exp.Star()), "rows")]
    ours: list[exp.Expr] = [col("class", "c")]
    output: list[exp.Expr] = [col("class", "t"), col("size", "c"), col("rows", "t")]
    for j, one in enumerate(columns):
        low, step = col(f"low_{j}", "c"), col(f"step_{j}", "c")
        y = as_number(col(one.name, "r"), one.type)
        steps = exp.Div(this=y, expression=step)
        off_grid = exp.Abs(this=exp.Sub(this=steps, expression=exp.Round(this=steps.copy())))
        stays = is_null(step.copy())
        unlike = exp.NEQ(this=y.copy(), expression=low.copy())
        wrong: exp.Expr = exp.If(this=stays, true=unlike, false=exp.GT(this=off_grid, expression=_tolerance(steps)))
        cut: exp.Expr = exp.false()
        if one.limits is not None:
            least, most = (number(limit) for limit in one.limits)
            at_ends = [exp.EQ(this=y.copy(), expression=end.copy()) for end in (least, most)]
            cut = exp.Paren(this=exp.or_(*at_ends, copy=False))
            beyond = [exp.LT(this=y.copy(), expression=least), exp.GT(this=y.copy(), expression=most)]
            wrong = exp.or_(*beyond, all_of([exp.Not(this=cut.copy()), wrong]), copy=False)
        missing = is_null(y.copy())
        wrong = exp.or_(missing, wrong, copy=False)
        theirs += [
            named(where(exp.Count(this=exp.Star()), wrong), f"off_{j}"),
            named(where(exp.Count(this=exp.Star()), cut), f"cut_{j}"),
            named(exp.Sum(this=exp.Paren(this=exp.Sub(this=y.copy(), expression=low.copy()))), f"sum_{j}"),
        ]
        own = exp.Sub(this=col(f"x_{j}", "r"), expression=low.copy())
        ours.append(named(exp.Sum(this=exp.Paren(this=own)), f"sum_{j}"))
        difference = exp.Sub(this=col(f"sum_{j}", "t"), expression=col(f"sum_{j}", "o"))
        output += [col(f"off_{j}", "t"), col(f"cut_{j}", "t"), named(difference, f"sum_{j}")]
        output += [col(f"delta_{j}", "c"), col(f"step_{j}", "c")]

    def by_class(expressions: list[exp.Expr], relation: exp.Expr, names: Sequence[str]) -> exp.Subquery:
        on = all_of(same(col(name, "r"), col(f"code_{i}", "c")) for i, name in enumerate(names))
        query = select(expressions, aliased(relation, "r")).join(aliased(classes, "c"), on=on, copy=False)
        return subquery(query.group_by(col("class", "c"), copy=False))

    codes = [f"code_{i}" for i in range(len(quasi))]
    query = select(output, aliased(by_class(theirs, released, quasi), "t"))
    for alias, relation in (("o", by_class(ours, records, codes)), ("c", classes)):
        on = exp.EQ(this=col("class", "t"), expression=col("class", alias))
        query = query.join(aliased(relation, alias), on=on, copy=False)
    return query


def _tolerance(steps: exp.Expr) -> exp.Expr:
    """How far a multiple may be from a whole number: what a DOUBLE of its size leaves."""
    return greatest(number(_NEARLY), exp.Mul(this=exp.Abs(this=steps.copy()), expression=number(1e-14)))


def sizes(compared: exp.Table, j: int, epsilon: float) -> exp.Select:
    """One row: ``classes`` that tell of the size of noise, ``small`` and ``large``: −Σ ln of bounds for the chance that
    the sum of a class's noise is as small, and as large, as it is.

    The sum D of the noise of n records, of scale b and deviation σ = b √(2n), is within d of 0 with a chance of at most
    √2 d / σ, for no sum of Laplace noise is denser at 0 than a single one. It is beyond t b with a chance of at most
    2 exp(−θt) (1 − θ²)^−n, for any 0 < θ < 1; least at θ = (√(n² + t²) − n) / t (Chernoff).
    """
    n, delta = cast(col("size"), "DOUBLE"), col(f"delta_{j}")
    scale = exp.Paren(this=exp.Div(this=delta, expression=number(epsilon)))
    off = exp.Abs(this=col(f"sum_{j}"))
    wide = exp.Paren(this=exp.Add(this=off, expression=exp.Coalesce(this=col(f"step_{j}"), expressions=[number(0.0)])))
    # √2 d / (b √(2n)) = d / (b √n)
    within = exp.Div(this=wide, expression=exp.Paren(this=exp.Mul(this=scale, expression=exp.Sqrt(this=n))))
    t = greatest(exp.Div(this=exp.Abs(this=col(f"sum_{j}")), expression=scale.copy()), number(1e-9))
    given = select(
        [named(within, "within"), named(t, "t"), named(n.copy(), "n")],
        compared.copy(),
    ).where(
        exp.GT(this=delta.copy(), expression=number(0.0)),
        exp.EQ(this=col("rows"), expression=col("size")),
        copy=False,
    )
    squared = exp.Add(
        this=exp.Mul(this=col("n"), expression=col("n")), expression=exp.Mul(this=col("t"), expression=col("t"))
    )
    # (√(n² + t²) − n) / t, without the cancellation
    theta = exp.Div(this=col("t"), expression=exp.Paren(this=exp.Add(this=exp.Sqrt(this=squared), expression=col("n"))))
    with_theta = select([col("within"), col("t"), col("n"), named(theta, "theta")], subquery(given, "g"))
    exponent = exp.Add(
        this=exp.Mul(this=col("theta"), expression=col("t")),
        expression=exp.Mul(
            this=col("n"),
            expression=exp.Ln(
                this=exp.Sub(this=number(1.0), expression=exp.Mul(this=col("theta"), expression=col("theta")))
            ),
        ),
    )
    beyond = greatest(exp.Sub(this=exp.Paren(this=exponent), expression=exp.Ln(this=number(2.0))), number(0.0))
    return select(
        [
            named(exp.Count(this=exp.Star()), "classes"),
            named(exp.Sum(this=exp.Neg(this=exp.Ln(this=anonymous("LEAST", col("within"), number(1.0))))), "small"),
            named(exp.Sum(this=beyond), "large"),
        ],
        subquery(with_theta, "w"),
    )
