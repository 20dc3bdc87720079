"""Columns that two releases show unchanged under different names: a reader recognizes them by their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.ledger.joint.release_links import ComparedRelease, comparable_value
from sqlanon.support.expressions import col, template

FEWEST_VALUES = 2
"""The fewest values in common by which a column is recognized."""

VALUES_IN_COMMON = 0.8
"""The share of the values, and of the rows, of the smaller column that the other has too. Each release may have
suppressed other rows."""

ROWS_OF_A_VALUE = 0.9
"""The share of the rows with values in common that both have of the same value: columns of few values often have all
of them in common."""

_NUMBERS = {ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.FLOATING}

_IN_COMMON = template("""
    SELECT
        least(count(a.v), count(b.v)) AS fewer,
        count(*) FILTER (WHERE a.v = b.v) AS common,
        least(sum(a.n), sum(b.n))::BIGINT AS rows,
        least(sum(a.n) FILTER (WHERE a.v = b.v), sum(b.n) FILTER (WHERE a.v = b.v))::BIGINT AS candidates,
        (sum(least(a.n, b.n)) FILTER (WHERE a.v = b.v))::BIGINT AS both
    FROM (SELECT :first AS v, count(*) AS n FROM :one AS r WHERE NOT :first IS NULL GROUP BY :first) AS a
    FULL JOIN (SELECT :second AS v, count(*) AS n FROM :two AS r WHERE NOT :second IS NULL GROUP BY :second) AS b
        ON a.v = b.v
""")
_NO_VALUE_IN_COMMON = template("""
    SELECT
        (SELECT count(:column) FROM :one AS r) > 0
        AND (SELECT count(:column) FROM :two AS r) > 0
        AND (SELECT count(*) FROM :one AS a SEMI JOIN :two AS b ON :first = :second) = 0
""")


def columns_missing_from(one: ComparedRelease, other: ComparedRelease) -> list[str]:
    """The columns that a release shows unchanged and the other does not have, in any role."""
    theirs = {column.name.lower() for column in other.manifest.columns}
    return [one.column(name) or name for name in one.columns if not one.is_quasi(name) and name not in theirs]


def match_renamed_columns(engine: Engine, first: ComparedRelease, second: ComparedRelease) -> dict[str, str]:
    """The columns of the first release that the second has under another name, with that name."""
    found = []
    for own in columns_missing_from(first, second):
        for other in columns_missing_from(second, first):
            types = first.columns[own.lower()], second.columns[other.lower()]
            if not _can_be_equal(*types):
                continue
            values = comparable_value(col(own, "r"), *types), comparable_value(col(other, "r"), *reversed(types))
            query = _IN_COMMON(first=values[0], second=values[1], one=first.relation, two=second.relation)
            fewer, common, rows, candidates, both = engine.rows(query)[0]
            if (
                common >= max(FEWEST_VALUES, VALUES_IN_COMMON * fewer)
                and both >= VALUES_IN_COMMON * rows
                and both >= ROWS_OF_A_VALUE * candidates
            ):
                found.append((both / rows, common, own, other))
    pairs: dict[str, str] = {}
    for _, _, own, other in sorted(found, key=lambda one: one[:2], reverse=True):
        if own not in pairs and other not in pairs.values():
            pairs[own] = other
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
    return [
        name
        for name in shared
        if engine.rows(
            _NO_VALUE_IN_COMMON(
                column=col(name, "r"), one=first, two=second, first=col(name, "a"), second=col(name, "b")
            )
        )[0][0]
    ]


def describe_renamed_columns(pairs: Mapping[str, str]) -> str:
    """That columns were compared under different names, for people."""
    each = " and ".join(f"its column {own} has the same values as {other} here" for own, other in pairs.items())
    return f"{each}; " if each else ""


def describe_uncompared_columns(own: Sequence[str], others: Sequence[str], different: Sequence[str]) -> str | None:
    """Which columns were not compared, and what to do; None where all were."""
    found = []
    if own and others:
        found.append(
            f"{', '.join(own)} of that release and {', '.join(others)} of this one (shown unchanged under names that "
            "the other does not have)"
        )
    if different:
        found.append(f"{', '.join(different)} (shown unchanged in both, without a value in common)")
    if not found:
        return None
    return (
        f"not compared: {'; '.join(found)}. If they show the same facts in another spelling, a reader can join the two "
        "releases on them: publish them with the same names and values, so that they are compared"
    )
