"""Columns that two releases show unchanged under different names: readers recognize them by their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.ledger.joint.release_links import ComparedRelease, comparable_value
from sqlanon.support.expressions import col, template

MIN_VALUES = 2
"""The fewest values in common by which a column is recognized."""

VALUES_IN_COMMON = 0.8
"""The least share of the values, and of the rows, of the smaller column that the other column has too: each release may
have suppressed other rows."""

ROWS_OF_A_VALUE = 0.9
"""The least share of the rows with common values that both columns have of the same value: columns with few values
often have all of them in common."""

_NUMBERS = {ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING}


def columns_missing_from(release: ComparedRelease, other_release: ComparedRelease) -> list[str]:
    """The columns that a release shows unchanged and the other does not have, in any role."""
    other_names = {column.name.lower() for column in other_release.manifest.columns}
    return [
        release.column(name) or name
        for name in release.columns
        if not release.is_quasi(name) and name not in other_names
    ]


def match_renamed_columns(engine: Engine, first: ComparedRelease, second: ComparedRelease) -> dict[str, str]:
    """The columns of the first release that the second has under another name, with that name."""
    candidates = []
    for first_column in columns_missing_from(first, second):
        for second_column in columns_missing_from(second, first):
            types = first.columns[first_column.lower()], second.columns[second_column.lower()]
            if not _can_be_equal(*types):
                continue
            values = (
                comparable_value(col(first_column, "r"), *types),
                comparable_value(col(second_column, "r"), *reversed(types)),
            )
            query = template("""
                WITH
                    firsts AS (
                        SELECT :first AS value, count(*) AS row_count
                        FROM :first_rows AS r
                        WHERE NOT :first IS NULL
                        GROUP BY :first
                    ),
                    seconds AS (
                        SELECT :second AS value, count(*) AS row_count
                        FROM :second_rows AS r
                        WHERE NOT :second IS NULL
                        GROUP BY :second
                    )
                SELECT
                    least(count(a.value), count(b.value)) AS fewer_values,
                    count(*) FILTER (WHERE a.value = b.value) AS common_values,
                    least(sum(a.row_count), sum(b.row_count))::BIGINT AS fewer_rows,
                    least(
                        sum(a.row_count) FILTER (WHERE a.value = b.value),
                        sum(b.row_count) FILTER (WHERE a.value = b.value)
                    )::BIGINT AS rows_with_common_values,
                    (sum(least(a.row_count, b.row_count)) FILTER (WHERE a.value = b.value))::BIGINT AS rows_of_both
                FROM firsts AS a
                FULL JOIN seconds AS b ON a.value = b.value
            """)(first=values[0], second=values[1], first_rows=first.relation, second_rows=second.relation)
            fewer_values, common_values, fewer_rows, rows_with_common_values, rows_of_both = engine.rows(query)[0]
            if (
                common_values >= max(MIN_VALUES, VALUES_IN_COMMON * fewer_values)
                and rows_of_both >= VALUES_IN_COMMON * fewer_rows
                and rows_of_both >= ROWS_OF_A_VALUE * rows_with_common_values
            ):
                candidates.append((rows_of_both / fewer_rows, common_values, first_column, second_column))
    pairs: dict[str, str] = {}
    for _, _, first_column, second_column in sorted(candidates, key=lambda candidate: candidate[:2], reverse=True):
        if first_column not in pairs and second_column not in pairs.values():
            pairs[first_column] = second_column
    return pairs


def _can_be_equal(first: str, second: str) -> bool:
    """Whether values of two types can be equal: a file without types reads numbers as wider ones.

    >>> [_can_be_equal("INTEGER", other) for other in ("INTEGER", "BIGINT", "DOUBLE", "VARCHAR")]
    [True, True, True, False]
    """
    kinds = {column_kind(first), column_kind(second)}
    return first == second or kinds <= _NUMBERS or (len(kinds) == 1 and kinds != {ColumnKind.OTHER})


def find_columns_without_common_values(
    engine: Engine, first: exp.Expr, second: exp.Expr, shared: Sequence[str]
) -> list[str]:
    """The shared columns of two releases that have values in both, and none in common."""
    has_none = template("""
        SELECT
            (SELECT count(:column) FROM :first AS r) > 0
            AND (SELECT count(:column) FROM :second AS r) > 0
            AND (SELECT count(*) FROM :first AS a SEMI JOIN :second AS b ON :same_value) = 0
    """)
    queries = {
        name: has_none(column=col(name, "r"), first=first, second=second, same_value=col(name, "a").eq(col(name, "b")))
        for name in shared
    }
    return [name for name, query in queries.items() if engine.rows(query)[0][0]]


def describe_renamed_columns(pairs: Mapping[str, str]) -> str:
    """The sentence about columns that were compared under different names."""
    sentences = " and ".join(
        f"its column {earlier_column} has the same values as {new_column} here"
        for earlier_column, new_column in pairs.items()
    )
    return f"{sentences}; " if sentences else ""


def describe_uncompared_columns(
    earlier_columns: Sequence[str], new_columns: Sequence[str], different: Sequence[str]
) -> str | None:
    """The warning about columns that were not compared; None where all were."""
    columns = []
    if earlier_columns and new_columns:
        columns.append(
            f"{', '.join(earlier_columns)} of that release and {', '.join(new_columns)} of this one (shown unchanged "
            "under names that the other does not have)"
        )
    if different:
        columns.append(f"{', '.join(different)} (shown unchanged in both, without a value in common)")
    if not columns:
        return None
    return (
        f"not compared: {'; '.join(columns)}. If they show the same facts in another spelling, a reader can join the "
        "two releases on them: publish them with the same names and values, so that they are compared"
    )
