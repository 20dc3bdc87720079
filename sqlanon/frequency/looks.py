"""What the columns of a table look like, in figures: no value leaves the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.expressions import anonymous, cast, col, is_there, named, number, select, subquery, text, where

PLACE = "sqlanon place"


def some_rows(source: exp.Table, columns: Sequence[str], step: int) -> exp.Select:
    """Some columns of about every n-th row: a sample that does not depend on chance, nor on an order in the rows.

    >>> from sqlanon.expressions import table
    >>> some_rows(table("t"), ["a"], 1).sql("duckdb")
    'SELECT "a" FROM "t"'
    """
    output: list[exp.Expr] = [col(name) for name in columns]
    if step <= 1:
        return select(output, source.copy())
    placed = select([*output, named(exp.Window(this=exp.RowNumber()), PLACE)], source.copy())
    query = select([one.copy() for one in output], subquery(placed, "s"))
    nth = exp.Mod(this=anonymous("HASH", col(PLACE)), expression=number(step)).eq(0)
    return query.where(nth, copy=False)


def exact_counts(source: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: for each column exactly how many distinct values it has."""
    return select([exp.Count(this=exp.Distinct(expressions=[col(name)])) for name in columns], source.copy())


def column_figures(
    rows: exp.Table, texts: Mapping[int, str], numbers: Mapping[int, str], others: Mapping[int, str]
) -> exp.Select:
    """One row of figures of columns, which have numbers.

    Columns: of each column i ``values_i`` (that are not NULL) and ``distinct_i``; of texts ``longest_i`` and ``mean_i``
    (of their lengths); of numbers ``spread_i``, the greatest less the least (NULL where there is none).
    """
    output: list[exp.Expr] = []
    for i, name in sorted([*texts.items(), *numbers.items(), *others.items()]):
        output.append(named(exp.Count(this=col(name)), f"values_{i}"))
        output.append(named(exp.Count(this=exp.Distinct(expressions=[col(name)])), f"distinct_{i}"))
    for i, name in texts.items():
        length = exp.Length(this=col(name))
        output.append(named(exp.Max(this=length), f"longest_{i}"))
        output.append(named(exp.Avg(this=length.copy()), f"mean_{i}"))
    for i, name in numbers.items():
        value = cast(col(name), "DOUBLE")
        finite = where(exp.Max(this=value), _finite(name))
        least = where(exp.Min(this=value.copy()), _finite(name))
        output.append(named(finite - least, f"spread_{i}"))
    return select(output, rows.copy())


def content_figures(rows: exp.Select, texts: Mapping[int, str], patterns: Mapping[int, str]) -> exp.Select:
    """One row: of each column i of texts ``seen_i``, and by pattern j ``like_i_j``, those that match."""
    output: list[exp.Expr] = []
    for i, name in texts.items():
        output.append(named(exp.Count(this=col(name)), f"seen_{i}"))
        for j, pattern in patterns.items():
            matches = anonymous("REGEXP_FULL_MATCH", col(name), text(pattern))
            output.append(named(where(exp.Count(this=exp.Star()), matches), f"like_{i}_{j}"))
    return select(output, subquery(rows, "r"))


def _finite(name: str) -> exp.Expr:
    return is_there(col(name)) & anonymous("ISFINITE", cast(col(name), "DOUBLE"))
