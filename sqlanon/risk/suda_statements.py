"""Minimal sample uniques, level by level, and their scores.

A set of attributes is a *minimal sample unique* (MSU) of a row if the row is alone with its values of them, and is not
with those of any part of the set. In a set that has an MSU of the row as its part, the row is alone too: so a row that
is found alone at some size has a new MSU, if none of its smaller ones is part of the set.

Sources: A. M. Manning, D. J. Haglin, J. A. Keane, "A recursive search algorithm for statistical disclosure assessment"
(2008); M. J. Elliot et al., "SUDA: A program for detecting special uniques" (2005).

Names of columns as in `frequency.packed`. In the MSUs: ``id``, ``subset``, ``size``. In the scores: ``id``, ``msus``,
``smallest``, ``score``, ``ihsn_score``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    double_total,
    named,
    number,
    select,
    subquery,
    text,
    total,
    union_all,
    where,
)
from sqlanon.frequency.packed import (
    CODE,
    ID,
    SIZE,
    SUBSET,
    VALUE,
    Packing,
    group_rows,
    subset_groups,
    subset_number,
)

MSUS = "msus"
SMALLEST = "smallest"
CONVENTIONS = ("score", "ihsn_score")
"""The two ways to score, by the column: that of Elliot et al., and that of the IHSN's program."""


def product_weights(attributes: int, size: int) -> list[float]:
    """What an MSU of 1, 2, ... attributes adds to a score: Π_{i = its size}^{M} (attributes − i).

    M is the greatest size that is looked for, and less than all attributes: else all would be 0. (Elliot et al. 2005;
    sdcMicro's ``original_scores = TRUE``, which always looks for all sizes: there it is (attributes − size)!)

    >>> product_weights(4, 4), product_weights(4, 2)
    ([6.0, 2.0, 1.0, 1.0], [6.0, 2.0])
    """
    most = min(size, attributes - 1)
    return [float(math.prod(attributes - i for i in range(k, most + 1))) for k in range(1, size + 1)]


def ihsn_weights(attributes: int, size: int) -> list[float]:
    """What an MSU of 1, 2, ... attributes adds to a score: the sets above it, by the sets of its size.

    (2^(attributes − size) − 1) / (attributes over size), as the IHSN's program has it, and sdcMicro with
    ``original_scores = FALSE``.

    >>> ihsn_weights(4, 4)
    [1.75, 0.5, 0.25, 0.0]
    """
    return [(2.0 ** (attributes - k) - 1) / math.comb(attributes, k) for k in range(1, size + 1)]


def single_values(combinations: exp.Table, numbers: Sequence[exp.Table]) -> exp.Query:
    """The MSUs of one attribute: the rows with a value that no other row has."""
    parts = []
    for i, one in enumerate(numbers):
        output: list[exp.Expr] = [col(ID, "r"), named(cast(number(1 << i), "BIGINT"), SUBSET), named(number(1), SIZE)]
        alone = exp.EQ(this=col(CODE, "v"), expression=number(0))
        on = exp.NullSafeEQ(this=col(f"q{i}", "r"), expression=col(VALUE, "v"))
        query = select(output, aliased(combinations, "r"))
        parts.append(query.join(aliased(one, "v"), on=on, copy=False).where(alone, copy=False))
    return union_all(*parts)


def larger_uniques(keys: exp.Table, packing: Packing, subsets: Sequence[Sequence[int]], msus: exp.Table) -> exp.Select:
    """The MSUs among some sets of attributes of one size, given all smaller MSUs.

    Parameters
    ----------
    keys, packing:
        Of `frequency.packed`, with singles apart.
    subsets:
        The sets.
    msus:
        All MSUs of smaller sizes.
    """
    alone = exp.EQ(this=group_rows(), expression=number(1))
    listed = {subset_number(one): one for one in subsets}
    groups = subset_groups(keys, packing, listed, [named(exp.Min(this=col(ID, "k")), ID)])
    groups = groups.having(alone, copy=False)
    within = exp.EQ(
        this=exp.Paren(this=exp.BitwiseAnd(this=col(SUBSET, "m"), expression=col(SUBSET, "u"))),
        expression=col(SUBSET, "m"),
    )
    own = exp.EQ(this=col(ID, "m"), expression=col(ID, "u"))
    known = select([number(1)], aliased(msus, "m")).where(all_of([own, within]), copy=False)
    output: list[exp.Expr] = [col(ID, "u"), col(SUBSET, "u"), named(number(len(subsets[0])), SIZE)]
    query = select(output, subquery(groups, "u"))
    return query.where(exp.Not(this=exp.Exists(this=known)), copy=False)


def uniques_and_pairs(combinations: exp.Table) -> exp.Select:
    """One row: ``rows``, ``uniques`` (rows that are alone), ``in_pairs`` (rows that are two and two)."""

    def of(size: int) -> exp.Expr:
        condition = exp.EQ(this=col(ROWS), expression=number(size))
        return exp.Coalesce(this=total(col(ROWS), condition), expressions=[number(0)])

    rows = exp.Coalesce(this=total(col(ROWS)), expressions=[number(0)])
    return select([named(rows, "rows"), named(of(1), "uniques"), named(of(2), "in_pairs")], combinations.copy())


def _weight(weights: Sequence[float]) -> exp.Expr:
    cases = [
        exp.If(this=exp.EQ(this=col(SIZE), expression=number(k)), true=cast(text(repr(weight)), "DOUBLE"))
        for k, weight in enumerate(weights, 1)
    ]
    return exp.Case(ifs=cases)


def scores(msus: exp.Table, weights: Sequence[Sequence[float]]) -> exp.Select:
    """The scores of the rows that have MSUs.

    Parameters
    ----------
    msus:
        The MSUs.
    weights:
        For each of `CONVENTIONS` what an MSU of 1, 2, ... attributes adds.
    """
    sums = [named(double_total(_weight(one)), convention) for convention, one in zip(CONVENTIONS, weights, strict=True)]
    output: list[exp.Expr] = [
        col(ID),
        named(exp.Count(this=exp.Star()), MSUS),
        named(exp.Min(this=col(SIZE)), SMALLEST),
        *sums,
    ]
    return select(output, msus.copy(), [col(ID)])


def by_size(msus: exp.Table) -> exp.Select:
    """How many MSUs there are of each size, and how many rows have such."""
    rows = exp.Count(this=exp.Distinct(expressions=[col(ID)]))
    return select([col(SIZE), exp.Count(this=exp.Star()), rows], msus.copy(), [col(SIZE)])


def by_smallest(scored: exp.Table) -> exp.Select:
    """How many rows there are by the size of their smallest MSU."""
    return select([col(SMALLEST), exp.Count(this=exp.Star())], scored.copy(), [col(SMALLEST)])


def score_figures(scored: exp.Table, exponent: float) -> exp.Select:
    """One row: ``rows``, and by convention ``highest_i``, ``total_i``, and ``adjustment_i``: Σ score^−exponent."""
    output: list[exp.Expr] = [named(exp.Count(this=exp.Star()), "rows")]
    for i, name in enumerate(CONVENTIONS):
        positive = exp.GT(this=col(name), expression=number(0))
        power = exp.Pow(this=col(name), expression=cast(text(repr(-exponent)), "DOUBLE"))
        output += [
            named(exp.Coalesce(this=exp.Max(this=col(name)), expressions=[number(0)]), f"highest_{i}"),
            named(exp.Coalesce(this=double_total(col(name)), expressions=[number(0)]), f"total_{i}"),
            named(exp.Coalesce(this=where(exp.Sum(this=power), positive), expressions=[number(0)]), f"adjustment_{i}"),
        ]
    return select(output, scored.copy())


def attribute_totals(msus: exp.Table, attributes: int, weights: Sequence[Sequence[float]]) -> exp.Select:
    """One row: for each convention i and attribute j ``c_i_j``, the weights of the MSUs that have it."""
    output = []
    for i, one in enumerate(weights):
        for j in range(attributes):
            found = cast(where(exp.Sum(this=_weight(one)), _has(j)), "DOUBLE")
            output.append(named(exp.Coalesce(this=found, expressions=[number(0)]), f"c_{i}_{j}"))
    return select(list(output), msus.copy())


def _has(attribute: int, table: str | None = None) -> exp.Expr:
    bit = exp.BitwiseAnd(this=col(SUBSET, table), expression=cast(number(1 << attribute), "BIGINT"))
    return exp.NEQ(this=exp.Paren(this=bit), expression=number(0))


def a_class(names: Sequence[str], table: str) -> exp.Expr:
    """A row's quasi-identifiers as a STRUCT, so that their names meet none of ours."""
    fields = [exp.PropertyEQ(this=col(name).this, expression=col(f"q{i}", table)) for i, name in enumerate(names)]
    return named(exp.Struct(expressions=fields), "class")


def records(
    combinations: exp.Table, scored: exp.Table, names: Sequence[str], exponent: float, spread: Sequence[float]
) -> exp.Select:
    """The rows that have MSUs, with their scores and DIS-SUDA scores.

    Parameters
    ----------
    spread:
        For each convention what the DIS-SUDA score divides by score^exponent.
    """
    output: list[exp.Expr] = [a_class(names, "r"), col(MSUS, "s"), col(SMALLEST, "s")]
    for name, divided in zip(CONVENTIONS, spread, strict=True):
        power = exp.Pow(this=col(name, "s"), expression=cast(text(repr(exponent)), "DOUBLE"))
        odds = exp.Div(this=cast(text(repr(divided)), "DOUBLE"), expression=power)
        risk = exp.Div(
            this=cast(number(1), "DOUBLE"),
            expression=exp.Paren(this=exp.Add(this=number(1), expression=odds)),
        )
        positive = exp.GT(this=col(name, "s"), expression=number(0))
        dis = exp.Case(ifs=[exp.If(this=positive, true=risk)], default=cast(number(0), "DOUBLE"))
        output += [col(name, "s"), named(dis, f"dis_{name}")]
    on = exp.EQ(this=col(ID, "s"), expression=col(ID, "r"))
    return select(output, aliased(scored, "s")).join(aliased(combinations, "r"), on=on, copy=False)


def minimal_uniques(combinations: exp.Table, msus: exp.Table, names: Sequence[str]) -> exp.Select:
    """Each MSU: its row's quasi-identifiers, the names of its attributes, and how many they are."""
    listed: exp.Expr | None = None
    for i, name in enumerate(names):
        one = exp.Case(
            ifs=[exp.If(this=_has(i, "m"), true=exp.Array(expressions=[text(name)]))],
            default=cast(exp.Array(expressions=[]), "VARCHAR[]"),
        )
        listed = one if listed is None else anonymous("LIST_CONCAT", listed, one)
    assert listed is not None
    on = exp.EQ(this=col(ID, "m"), expression=col(ID, "r"))
    output = [a_class(names, "r"), named(listed, "attributes"), col(SIZE, "m")]
    return select(output, aliased(msus, "m")).join(aliased(combinations, "r"), on=on, copy=False)


def value_contributions(
    combinations: exp.Table, msus: exp.Table, names: Sequence[str], weights: Sequence[float]
) -> exp.Query:
    """What each value contributes to the scores of its attribute's MSUs, in percent: 100 by attribute."""
    parts = []
    on = exp.EQ(this=col(ID, "m"), expression=col(ID, "r"))
    for i, name in enumerate(names):
        value = col(f"q{i}", "r")
        weighed = double_total(_weight(weights))
        whole = exp.Window(this=exp.Sum(this=weighed.copy()))
        share = exp.Div(
            this=exp.Mul(this=number(100), expression=weighed),
            expression=exp.Nullif(this=whole, expression=number(0)),
        )
        output: list[exp.Expr] = [
            named(text(name), "attribute"),
            named(cast(value, "VARCHAR"), VALUE),
            named(share, "contribution"),
        ]
        query = select(output, aliased(msus, "m")).join(aliased(combinations, "r"), on=on.copy(), copy=False)
        parts.append(query.where(_has(i, "m"), copy=False).group_by(value.copy(), copy=False))
    return union_all(*parts)
