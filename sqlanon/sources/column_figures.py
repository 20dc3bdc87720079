"""Queries for figures of columns, which return no value of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.support.expressions import as_column, col, fragment, template

NEARLY_UNIQUE_SHARE = 0.9
"""A column with this many distinct values per row is nearly unique."""

KEY_SHARE = 0.5
"""A column with this many distinct values per row may be a key of many rows, even if other rows share values."""

_MANY, _MANY_VALUES = 0.2, 20
_COLUMNS = template("SELECT :columns FROM :rows")
_DISTINCT = fragment("count(DISTINCT :value)")


def has_many_values(distinct: int, values: int) -> bool:
    """Whether a column has too many distinct values for categories.

    >>> has_many_values(20, 100), has_many_values(19, 20), has_many_values(60, 1000)
    (True, False, False)
    """
    return distinct >= max(_MANY_VALUES, _MANY * values)


def sample_query(source: exp.Table, columns: Sequence[str], step: int) -> exp.Select:
    """A query of columns in about every n-th row, independent of chance and of the order of rows.

    >>> from sqlanon.support.expressions import table
    >>> sample_query(table("t"), ["a"], 1).sql("duckdb")
    'SELECT "a" FROM "t"'
    """
    output = [col(name) for name in columns]
    if step <= 1:
        return _COLUMNS(columns=output, rows=source)
    return template("""
        SELECT :columns
        FROM (SELECT :columns, row_number() OVER () AS "sqlanon place" FROM :rows) AS s
        WHERE hash("sqlanon place") % :step = 0
    """)(columns=output, rows=source, step=step)


def exact_counts_query(source: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: the exact number of distinct values of each column."""
    return _COLUMNS(columns=[_DISTINCT(value=col(name)) for name in columns], rows=source)


def column_figures_query(
    rows: exp.Table,
    texts: Mapping[int, str],
    numbers: Mapping[int, str],
    dates: Mapping[int, str],
    other_columns: Mapping[int, str],
) -> exp.Select:
    """One row of figures of numbered columns.

    Each column i has ``values_i`` (not NULL) and ``distinct_i``; texts have ``longest_i`` and ``mean_i`` (lengths);
    numbers and dates (in seconds) have ``quantiles_i``: minimum, 1, 5, 95 and 99 %, and maximum (NULL without values).
    """
    longest, mean = fragment("max(length(:value))"), fragment("avg(length(:value))")
    quantiles = fragment("quantile_cont(CASE WHEN :is_finite THEN :number END, [0.0, 0.01, 0.05, 0.95, 0.99, 1.0])")
    output: dict[str, exp.Expr] = {}
    for i, name in sorted([*texts.items(), *numbers.items(), *dates.items(), *other_columns.items()]):
        value = col(name)
        output |= {f"values_{i}": exp.Count(this=col(name)), f"distinct_{i}": _DISTINCT(value=value)}
        if i in texts:
            output |= {f"longest_{i}": longest(value=value), f"mean_{i}": mean(value=value)}
        elif i in numbers:
            number = fragment(":value::DOUBLE")(value=value)
            output[f"quantiles_{i}"] = quantiles(is_finite=fragment("isfinite(:n)")(n=number), number=number)
        elif i in dates:
            seconds, is_finite = fragment("epoch(:value)")(value=value), fragment("isfinite(:value)")(value=value)
            output[f"quantiles_{i}"] = quantiles(is_finite=is_finite, number=seconds)
    return _COLUMNS(columns=[as_column(figure, name) for name, figure in output.items()], rows=rows)


def content_figures_query(rows: exp.Select, texts: Mapping[int, str], patterns: Mapping[int, str]) -> exp.Select:
    """One row: for each column i of texts ``seen_i``, its values, and for each pattern j ``like_i_j``, its matches."""
    count_matches = fragment("count(*) FILTER (WHERE regexp_full_match(:value, :pattern))")
    figures: list[exp.Expr] = []
    for i, name in texts.items():
        figures.append(as_column(exp.Count(this=col(name)), f"seen_{i}"))
        figures += [
            as_column(count_matches(value=col(name), pattern=pattern), f"like_{i}_{j}")
            for j, pattern in patterns.items()
        ]
    return template("SELECT :figures FROM :rows AS r")(figures=figures, rows=rows)


def approximate_counts_query(source: exp.Expr, columns: Sequence[str], count_column: str | None = None) -> exp.Select:
    """One row: for each column the approximate number of distinct values, and the number of values; in one scan with
    constant memory."""
    # NULL has a hash, too: it is excluded from both.
    count_distinct = fragment("approx_count_distinct(hash(:value)) FILTER (WHERE :value IS NOT NULL)")
    sum_counts = fragment("coalesce((sum(:counts) FILTER (WHERE :value IS NOT NULL))::BIGINT, 0)")
    figures: list[exp.Expr] = []
    for name in columns:
        values = (
            exp.Count(this=col(name)) if count_column is None else sum_counts(counts=col(count_column), value=col(name))
        )
        figures += [count_distinct(value=col(name)), values]
    return _COLUMNS(columns=figures, rows=source)
