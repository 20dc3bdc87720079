"""Distance vectors: how far two combinations of values must be generalized until they are equal.

The distance of two values is the level of their closest common ancestor, the lowest at which they are equal; the vector
of two combinations holds the distances of all attributes. A generalization puts two combinations into one class if it
is at or above their vector.

Source: P. Samarati, L. Sweeney, "Protecting privacy when disclosing information" (1998), definition of distance vector.
An *outlier* is a combination with fewer than k rows in the paper, and here one whose rows are suppressed at the lowest
levels.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import reduce

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.strategies.lattice.classes import KEPT, evaluated_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import KNOWN, Levels, code_column, group_counts
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    create_table,
    drop_table,
    filter_where,
    number,
    select,
    subquery,
)

ID = "id"
OUTLIER = "outlier"

PAIRS = 10_000_000
"""Maximum number of pairs of combinations that one statement compares, which takes some tenths of a second."""

_MAX_WORD = 2**31
"""Number of vectors that one INTEGER distinguishes; where more are possible, a vector is packed into several."""


def distance_vectors(search_input: SearchInput) -> Iterator[set[Levels]]:
    """The distance vectors within the lattice: first those of combinations that differ in one attribute, then all
    others, for as many outliers at a time as make `PAIRS` pairs.

    Makes ``vector_combinations``, and drops it.
    """
    frequency_sets, lattice, heights = search_input.frequency_sets, search_input.lattice, search_input.marginals.heights
    engine, table, bottom = frequency_sets.runner.engine, frequency_sets.work("vector_combinations"), lattice.bottom
    engine.execute(create_table(table.copy(), combinations(frequency_sets.at(bottom), bottom)))
    try:
        yield {
            (*bottom[:i], level, *bottom[i + 1 :])
            for i, (low, top) in enumerate(zip(bottom, lattice.top, strict=True))
            for level in range(low + 1, top + 1)
            if engine.rows(neighbours(table, bottom, heights, i, level))[0][0]
        }
        combination_count, outlier_count = engine.rows(sizes(table))[0]
        # In a large lattice there may be as many vectors as pairs, and all of them are fetched.
        max_pairs = PAIRS if lattice.size <= PAIRS else PAIRS // 10 // len(heights)
        step = max_pairs // max(combination_count, 1) + 1
        for first in range(0, outlier_count, step):
            rows = engine.rows(vectors(table, bottom, heights, first, min(first + step, outlier_count)))
            unpacked_vectors = (unpacked(row, bottom, heights) for row in rows)
            yield {vector for vector in unpacked_vectors if all(map(operator.le, vector, lattice.top))}
    finally:
        engine.execute(drop_table(table))


def combinations(space: ClassSpace, bottom: Levels) -> exp.Select:
    """The combinations of known values at the lowest levels: their codes there and above, ``id`` and ``outlier``.

    Ids count from 0, outliers first, in the order of their codes. If all classes of the population must be kept, a
    combination that only the population has is an outlier too, as long as it is not covered.
    """
    codes = [code_column(i, level) for i, low in enumerate(bottom) for level in range(low, space.heights[i])]
    code_columns = [as_column(exp.Min(this=col(code)), f"of {code}") for code in codes]
    outlier: exp.Expr = ~col(KEPT)
    if space.requirements.covering_condition is None:
        outlier = all_of([outlier, col(CLASS_SIZE) > 0])
    order: list[exp.Expr] = [exp.Ordered(this=exp.Paren(this=outlier.copy()), desc=True)]
    order += [exp.Ordered(this=col(f"of {code_column(i, low)}")) for i, low in space.below_top(bottom)]
    position = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=order))
    output = [as_column(cast(exp.Sub(this=position, expression=number(1)), "BIGINT"), ID)]
    output += [as_column(exp.Paren(this=outlier), OUTLIER), *(as_column(col(f"of {code}"), code) for code in codes)]
    query = select([*output], subquery(evaluated_classes(space, bottom, code_columns), "j"))
    return query.where(col(KNOWN), copy=False) if space.unknown else query


def sizes(combinations: exp.Table) -> exp.Select:
    """One row: the numbers of combinations and of outliers."""
    count = exp.Count(this=exp.Star())
    return select([count, filter_where(count.copy(), col(OUTLIER))], combinations.copy())


def neighbours(combinations: exp.Table, bottom: Levels, heights: Levels, attribute: int, level: int) -> exp.Select:
    """One number: the groups in which an outlier and another combination differ in one attribute alone, at this
    distance.

    A group has equal values in the other attributes, and in this one at the level. One pass over the combinations finds
    them, where `vectors` compares pairs.
    """
    keys = [code_column(i, low) for i, (low, height) in enumerate(zip(bottom, heights, strict=True)) if low < height]
    keys.remove(code_column(attribute, bottom[attribute]))
    keys += [code_column(attribute, level)] if level < heights[attribute] else []
    lower_code = col(code_column(attribute, level - 1))
    differ = exp.Min(this=lower_code) < exp.Max(this=lower_code.copy())
    has_outlier = filter_where(exp.Count(this=exp.Star()), col(OUTLIER)) > 0
    groups = select([as_column(number(1), "one")], combinations.copy(), [col(key) for key in keys])
    groups = groups.having(all_of([has_outlier, differ]), copy=False)
    return select([exp.Count(this=exp.Star())], subquery(groups, "g"))


def vectors(combinations: exp.Table, bottom: Levels, heights: Levels, first: int, end: int) -> exp.Select:
    """The distinct vectors, packed for `unpacked`, between the outliers with ids from ``first`` to before ``end`` and
    all combinations with ids from ``first``; earlier ones have been compared already."""
    from_first = exp.GTE(this=col(ID), expression=number(first))
    outliers = select([exp.Star()], combinations.copy()).where(from_first, col(ID) < number(end), copy=False)
    compared = select([exp.Star()], combinations.copy()).where(from_first.copy(), copy=False)
    words = [as_column(_pack(word, bottom, heights), f"word_{i}") for i, word in enumerate(_words(bottom, heights))]
    query = exp.Select(expressions=words or [as_column(number(0), "word_0")], distinct=exp.Distinct())
    query = query.from_(subquery(outliers, "x"), copy=False)
    return query.join(subquery(compared, "y"), join_type="cross", copy=False)


def unpacked(row: Sequence[int], bottom: Levels, heights: Levels) -> Levels:
    """The vector in a row of `vectors`.

    >>> unpacked([7], (0, 1, 0), (2, 3, 0))
    (1, 3, 0)
    """
    levels = list(bottom)
    for packed, word in zip(row, _words(bottom, heights), strict=False):
        digits = packed
        for i in word:
            digits, distance = divmod(digits, heights[i] - bottom[i] + 1)
            levels[i] += distance
    return tuple(levels)


def distinct_values(search_input: SearchInput) -> list[tuple[int, ...]]:
    """By attribute and level, the number of distinct values of the rows, without unknown ones."""
    rows = search_input.frequency_sets.runner.engine.rows
    counts = []
    for attribute in search_input.attributes:
        below_top = group_counts(attribute).where(col("rows") > 0, col(KNOWN), copy=False)
        counts.append((*(rows(below_top)[0] if attribute.height else ()), 1))
    return counts


def _words(bottom: Levels, heights: Levels) -> Iterator[list[int]]:
    """The attributes with more than one level, in parts that each fit an INTEGER."""
    word: list[int] = []
    size = 1
    for i, (low, height) in enumerate(zip(bottom, heights, strict=True)):
        choices = height - low + 1
        if size * choices > _MAX_WORD:
            yield word
            word, size = [], 1
        if choices > 1:
            word.append(i)
            size *= choices
    if word:
        yield word


def _pack(word: list[int], bottom: Levels, heights: Levels) -> exp.Expr:
    """The distances of some attributes as the digits of one number."""
    digits: list[exp.Expr] = []
    unit = 1
    for i in word:
        steps = heights[i] - bottom[i]
        distance = exp.Case(default=number(steps * unit))
        for step in range(steps):
            code = code_column(i, bottom[i] + step)
            distance = distance.when(col(code, "x").eq(col(code, "y")), number(step * unit), copy=False)
        digits.append(distance)
        unit *= steps + 1
    return reduce(lambda left, right: exp.Add(this=left, expression=right), digits)
