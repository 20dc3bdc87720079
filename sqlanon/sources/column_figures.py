"""Queries for figures of columns, which return no value of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.support.expressions import anonymous, as_column, col, fragment, template, text

NEARLY_UNIQUE_SHARE = 0.9
"""A column with this many distinct values per row is nearly unique."""

KEY_SHARE = 0.5
"""A column with this many distinct values per row may be a key of many rows, even if other rows share values."""

_MANY, _MANY_VALUES = 0.2, 20

_COLUMNS = template("SELECT :columns FROM :rows")
_SOME_ROWS = template("""
    SELECT :columns
    FROM (SELECT :columns, row_number() OVER () AS "sqlanon place" FROM :rows) AS s
    WHERE :place_hash % :step = 0
""")


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
    place_hash = anonymous("HASH", col("sqlanon place"))
    return _SOME_ROWS(columns=output, rows=source, place_hash=place_hash, step=step)


_DISTINCT = fragment("count(DISTINCT :value)")


def exact_counts_query(source: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: the exact number of distinct values of each column."""
    return _COLUMNS(columns=[_DISTINCT(value=col(name)) for name in columns], rows=source)


def column_figures_query(
    rows: exp.Table,
    texts: Mapping[int, str],
    numbers: Mapping[int, str],
    dates: Mapping[int, str],
    others: Mapping[int, str],
) -> exp.Select:
    """One row of figures of numbered columns.

    Each column i has ``values_i`` (not NULL) and ``distinct_i``; texts have ``longest_i`` and ``mean_i`` (lengths);
    numbers and dates (in seconds) have ``quantiles_i``: minimum, 1, 5, 95 and 99 %, and maximum (NULL without values).
    """
    output: list[exp.Expr] = []
    for i, name in sorted([*texts.items(), *numbers.items(), *dates.items(), *others.items()]):
        output.append(as_column(exp.Count(this=col(name)), f"values_{i}"))
        output.append(as_column(_DISTINCT(value=col(name)), f"distinct_{i}"))
    for i, name in texts.items():
        output.append(as_column(exp.Max(this=exp.Length(this=col(name))), f"longest_{i}"))
        output.append(as_column(exp.Avg(this=exp.Length(this=col(name))), f"mean_{i}"))
    for i, name in [*numbers.items(), *dates.items()]:
        is_number = i in numbers
        value = (fragment(":value::DOUBLE") if is_number else fragment("epoch(:value)"))(value=col(name))
        is_finite = anonymous("ISFINITE", value.copy() if is_number else col(name))
        output.append(
            as_column(
                fragment("quantile_cont(CASE WHEN :is_finite THEN :number END, [0.0, 0.01, 0.05, 0.95, 0.99, 1.0])")(
                    number=value, is_finite=is_finite
                ),
                f"quantiles_{i}",
            )
        )
    return _COLUMNS(columns=output, rows=rows)


def content_figures_query(rows: exp.Select, texts: Mapping[int, str], patterns: Mapping[int, str]) -> exp.Select:
    """One row: for each column i of texts ``seen_i``, its values, and for each pattern j ``like_i_j``, its matches."""
    output: list[exp.Expr] = []
    for i, name in texts.items():
        output.append(as_column(exp.Count(this=col(name)), f"seen_{i}"))
        for j, pattern in patterns.items():
            matches = anonymous("REGEXP_FULL_MATCH", col(name), text(pattern))
            output.append(as_column(fragment("count(*) FILTER (WHERE :matches)")(matches=matches), f"like_{i}_{j}"))
    return template("SELECT :figures FROM :rows AS r")(figures=output, rows=rows)


# NULL has a hash, too: it is excluded from both.


def approximate_counts_query(source: exp.Expr, columns: Sequence[str], counted: str | None = None) -> exp.Select:
    """One row: for each column the approximate number of distinct values, and the number of values; in one scan with
    constant memory."""
    figures: list[exp.Expr] = []
    for name in columns:
        value = col(name)
        values = (
            exp.Count(this=value)
            if counted is None
            else fragment("coalesce((sum(:counted) FILTER (WHERE :value IS NOT NULL))::BIGINT, 0)")(
                counted=col(counted), value=value
            )
        )
        figures += [
            fragment("approx_count_distinct(:hash) FILTER (WHERE :value IS NOT NULL)")(
                hash=anonymous("HASH", value), value=value
            ),
            values,
        ]
    return _COLUMNS(columns=figures, rows=source)
