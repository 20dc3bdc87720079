"""Distance vectors: how far two combinations of values have to be generalized until they read the same.

The distance of two values is the level of their closest common ancestor, the lowest at which they are equal; that of
two combinations is the vector of their attributes' distances. A generalization puts two combinations into one class
where it is at or above their vector.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), definition of distance vector;
an *outlier* is there a combination with fewer than k rows, here any whose rows are suppressed at the lowest levels.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.strategies.lattice.classes import KEPT, judged_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import KNOWN, Coded, Levels, code_name, group_counts
from sqlanon.support.expressions import (
    all_of,
    cast,
    col,
    create_table,
    drop_table,
    filter_where,
    named,
    number,
    select,
    subquery,
)

ID = "id"
OUTLIER = "outlier"

PAIRS = 10_000_000
"""At most this many pairs of combinations are compared by one statement, which takes some tenths of a second."""

_WORD = 2**31
"""So many vectors are told apart by one INTEGER; where more are possible, by several."""


def distance_vectors(prepared: SearchInput) -> Iterator[set[Levels]]:
    """The distance vectors within the lattice: first those of combinations that differ in one attribute alone, then all
    others, as many outliers at a time as make `PAIRS`.

    Makes ``vector_combinations``, and drops it.
    """
    sets, lattice, heights = prepared.frequency_sets, prepared.lattice, prepared.marginals.heights
    engine, target, bottom = sets.steps.engine, sets.work("vector_combinations"), lattice.bottom
    engine.execute(create_table(target.copy(), combinations(sets.at(bottom), bottom)))
    try:
        yield {
            (*bottom[:i], level, *bottom[i + 1 :])
            for i, (low, top) in enumerate(zip(bottom, lattice.top, strict=True))
            for level in range(low + 1, top + 1)
            if engine.rows(neighbours(target, bottom, heights, i, level))[0][0]
        }
        together, outliers = engine.rows(class_sizes(target))[0]
        # Of a large lattice there may be as many vectors as pairs: then each comes here.
        pairs = PAIRS if lattice.size <= PAIRS else PAIRS // 10 // len(heights)
        step = pairs // max(together, 1) + 1
        for first in range(0, outliers, step):
            last = min(first + step, outliers)
            found = engine.rows(vectors(target, bottom, heights, first, last))
            every = (unpacked(row, bottom, heights) for row in found)
            yield {one for one in every if all(map(operator.le, one, lattice.top))}
    finally:
        engine.execute(drop_table(target))


def combinations(space: ClassSpace, bottom: Levels) -> exp.Select:
    """The combinations of known values at the lowest levels: their codes there and above, ``id`` and ``outlier``.

    Outliers come first, in the order of their codes: their ids are 0, 1, ... Where each class of the population has
    to be kept, what only it has is an outlier too, as long as it is not covered.
    """
    codes = [code_name(i, level) for i, low in enumerate(bottom) for level in range(low, space.heights[i])]
    every = [named(exp.Min(this=col(code)), f"of {code}") for code in codes]
    classes = subquery(judged_classes(space, bottom, every), "j")
    outlier: exp.Expr = exp.Not(this=col(KEPT))
    if space.requirements.covering_condition is None:
        outlier = all_of([outlier, exp.GT(this=col(CLASS_SIZE), expression=number(0))])
    order: list[exp.Expr] = [exp.Ordered(this=exp.Paren(this=outlier.copy()), desc=True)]
    order += [exp.Ordered(this=col(f"of {code_name(i, low)}")) for i, low in space.below_top(bottom)]
    position = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=order))
    output = [named(cast(exp.Sub(this=position, expression=number(1)), "BIGINT"), ID)]
    output += [named(exp.Paren(this=outlier), OUTLIER), *(named(col(f"of {code}"), code) for code in codes)]
    query = select([*output], classes)
    return query.where(col(KNOWN), copy=False) if space.unknown else query


def class_sizes(of: exp.Table) -> exp.Select:
    """One row: how many combinations there are, and how many of them are outliers."""
    count = exp.Count(this=exp.Star())
    return select([count, filter_where(count.copy(), col(OUTLIER))], of.copy())


def neighbours(of: exp.Table, bottom: Levels, heights: Levels, attribute: int, level: int) -> exp.Select:
    """One number: in how many groups an outlier and another combination differ in one attribute alone, by a distance.

    Groups of all that are equal in the other attributes, and at the level in this one: it takes one pass over the
    combinations, where `vectors` compares pairs of them.
    """
    keys = [code_name(i, low) for i, (low, height) in enumerate(zip(bottom, heights, strict=True)) if low < height]
    keys.remove(code_name(attribute, bottom[attribute]))
    keys += [code_name(attribute, level)] if level < heights[attribute] else []
    below = col(code_name(attribute, level - 1))
    differ = exp.LT(this=exp.Min(this=below), expression=exp.Max(this=below.copy()))
    somebody = exp.GT(this=filter_where(exp.Count(this=exp.Star()), col(OUTLIER)), expression=number(0))
    groups = select([named(number(1), "one")], of.copy(), [col(key) for key in keys])
    groups = groups.having(all_of([somebody, differ]), copy=False)
    return select([exp.Count(this=exp.Star())], subquery(groups, "g"))


def vectors(of: exp.Table, bottom: Levels, heights: Levels, first: int, last: int) -> exp.Select:
    """The distinct vectors of some outliers, those with ids from ``first`` to before ``last``, packed; see `unpacked`.

    The other one of a pair has no id before ``first``: what is before has had its turn.
    """
    outliers = select([exp.Star()], of.copy())
    outliers = outliers.where(_at_least(first), exp.LT(this=col(ID), expression=number(last)), copy=False)
    others = select([exp.Star()], of.copy()).where(_at_least(first), copy=False)
    words = [named(_word(word, bottom, heights), f"word_{i}") for i, word in enumerate(_words(bottom, heights))]
    query = exp.Select(expressions=words or [named(number(0), "word_0")], distinct=exp.Distinct())
    query = query.from_(subquery(outliers, "x"), copy=False)
    return query.join(subquery(others, "y"), join_type="cross", copy=False)


def unpacked(row: Sequence[int], bottom: Levels, heights: Levels) -> Levels:
    """The vector in a row of `vectors`.

    >>> unpacked([7], (0, 1, 0), (2, 3, 0))
    (1, 3, 0)
    """
    levels = list(bottom)
    for packed, word in zip(row, _words(bottom, heights), strict=False):
        left = packed
        for i in word:
            left, step = divmod(left, heights[i] - bottom[i] + 1)
            levels[i] += step
    return tuple(levels)


def distinct_values(prepared: SearchInput) -> list[tuple[int, ...]]:
    """By attribute and level: how many values the rows have; those that no hierarchy knows left out."""
    rows = prepared.frequency_sets.steps.engine.rows
    return [(*(rows(_values_below_top(one))[0] if one.height else ()), 1) for one in prepared.attributes]


def _values_below_top(attribute: Coded) -> exp.Select:
    there = exp.GT(this=col("rows"), expression=number(0))
    return group_counts(attribute).where(there, col(KNOWN), copy=False)


def _at_least(first: int) -> exp.GTE:
    return exp.GTE(this=col(ID), expression=number(first))


def _words(bottom: Levels, heights: Levels) -> Iterator[list[int]]:
    """The attributes that can differ, in parts of which each fits an INTEGER."""
    word: list[int] = []
    size = 1
    for i, (low, height) in enumerate(zip(bottom, heights, strict=True)):
        choices = height - low + 1
        if size * choices > _WORD:
            yield word
            word, size = [], 1
        if choices > 1:
            word.append(i)
            size *= choices
    if word:
        yield word


def _word(word: list[int], bottom: Levels, heights: Levels) -> exp.Expr:
    """The distances of some attributes as the digits of one number."""
    parts: list[exp.Expr] = []
    unit = 1
    for i in word:
        steps = heights[i] - bottom[i]
        agree = exp.Case(default=number(steps * unit))
        for step in range(steps):
            code = code_name(i, bottom[i] + step)
            agree = agree.when(exp.EQ(this=col(code, "x"), expression=col(code, "y")), number(step * unit), copy=False)
        parts.append(agree)
        unit *= steps + 1
    total = parts[0]
    for part in parts[1:]:
        total = exp.Add(this=total, expression=part)
    return total
