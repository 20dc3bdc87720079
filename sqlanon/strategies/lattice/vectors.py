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
from sqlanon.strategies.lattice.classes import KEPT, evaluated_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import KNOWN, Levels, code_column, group_counts
from sqlanon.support.expressions import as_column, col, create_table, drop_table, fragment, number, template

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
    engine.execute(create_table(table.copy(), combinations(frequency_sets.class_space(bottom), bottom)))
    try:
        yield {
            (*bottom[:i], level, *bottom[i + 1 :])
            for i, (low, top) in enumerate(zip(bottom, lattice.top, strict=True))
            for level in range(low + 1, top + 1)
            if engine.rows(neighbours(table, bottom, heights, i, level))[0][0]
        }
        combination_count, outlier_count = engine.rows(sizes(combinations=table))[0]
        # In a large lattice there may be as many vectors as pairs, and all of them are fetched.
        max_pairs = PAIRS if lattice.size <= PAIRS else PAIRS // 10 // len(heights)
        step = max_pairs // max(combination_count, 1) + 1
        for first in range(0, outlier_count, step):
            rows = engine.rows(vectors(table, bottom, heights, first, min(first + step, outlier_count)))
            unpacked_vectors = (unpack_vector(row, bottom, heights) for row in rows)
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
    needs_rows = space.requirements.covering_condition is None
    return template("""
        WITH
            evaluated_classes AS (:evaluated_classes),
            known_classes AS (SELECT *, (:is_outlier) AS outlier FROM evaluated_classes WHERE :is_known)
        SELECT (row_number() OVER (ORDER BY outlier DESC, :lowest_codes) - 1)::BIGINT AS id, outlier, :codes
        FROM known_classes
    """)(
        evaluated_classes=evaluated_classes(space, bottom, code_columns),
        is_outlier=fragment("NOT kept AND class_size > 0")() if needs_rows else ~col(KEPT),
        is_known=col(KNOWN) if space.unknown else exp.true(),
        lowest_codes=[col(f"of {code_column(i, low)}") for i, low in space.below_top(bottom)],
        codes=[as_column(col(f"of {code}"), code) for code in codes],
    )


sizes = template("SELECT count(*) AS combinations, count(*) FILTER (WHERE outlier) AS outliers FROM :combinations")
"""One row: the numbers of combinations and of outliers."""


def neighbours(combinations: exp.Table, bottom: Levels, heights: Levels, attribute: int, level: int) -> exp.Select:
    """One number: the groups in which an outlier and another combination differ in one attribute alone, at this
    distance.

    A group has equal values in the other attributes, and in this one at the level. One pass over the combinations finds
    them, where `vectors` compares pairs.
    """
    keys = [code_column(i, low) for i, (low, height) in enumerate(zip(bottom, heights, strict=True)) if low < height]
    keys.remove(code_column(attribute, bottom[attribute]))
    keys += [code_column(attribute, level)] if level < heights[attribute] else []
    return template("""
        WITH neighbour_groups AS (
            SELECT count(*) AS combinations
            FROM :combinations
            GROUP BY :keys
            HAVING count(*) FILTER (WHERE outlier) > 0 AND min(:lower_code) < max(:lower_code)
        )
        SELECT count(*)
        FROM neighbour_groups
    """)(combinations=combinations, keys=[col(key) for key in keys], lower_code=col(code_column(attribute, level - 1)))


def vectors(combinations: exp.Table, bottom: Levels, heights: Levels, first: int, end: int) -> exp.Select:
    """The distinct vectors, packed for `unpack_vector`, between the outliers with ids from ``first`` to before ``end``
    and all combinations with ids from ``first``; earlier ones have been compared already."""
    words = [as_column(_pack(word, bottom, heights), f"word_{i}") for i, word in enumerate(_words(bottom, heights))]
    return template("""
        SELECT DISTINCT :words
        FROM (SELECT * FROM :combinations WHERE id >= :first AND id < :end) AS x
        CROSS JOIN (SELECT * FROM :combinations WHERE id >= :first) AS y
    """)(words=words or [as_column(number(0), "word_0")], combinations=combinations, first=first, end=end)


def unpack_vector(row: Sequence[int], bottom: Levels, heights: Levels) -> Levels:
    """The vector in a row of `vectors`.

    >>> unpack_vector([7], (0, 1, 0), (2, 3, 0))
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
    """The number of distinct values of the rows, without unknown ones, by attribute and level."""
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
