"""An attribute's values, coded: small integers for its labels, level by level, and the leaves under them.

Names of columns, all ours: ``q0_l2`` is the code of attribute 0 at level 2. The top level has one value and needs no
column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    named,
    native_type,
    number,
    same,
    select,
    subquery,
    template,
    total,
    union_all,
    where,
)
from sqlanon.records import dataclass

Levels: TypeAlias = tuple[int, ...]
"""A generalization: a level for each quasi-identifier, in the policy's order."""

SOURCE = "s"
"""What the private table is called in the statement that makes the release."""

ROWS = "n"
KNOWN = "known"


@dataclass(frozen=True)
class Column:
    """A column of the release by its name, which is that of the source, and its number among the quasi-identifiers."""

    name: str
    quasi: int | None = None


@dataclass(frozen=True)
class Coded:
    """A quasi-identifier as the queries need it: its ``column`` in the source, the top level of its hierarchy, and the
    ``table`` of its coded values, from `coded_values`. ``nullable`` and ``unknown``: the source has NULLs, and values
    that the hierarchy lacks. ``texts``: the column of the table with its values as text; None: they are cast."""

    column: str
    height: int
    table: exp.Table
    nullable: bool = False
    unknown: bool = False
    texts: str | None = None


def code_name(attribute: int, level: int) -> str:
    return f"q{attribute}_l{level}"


def below_top(levels: Levels, heights: Sequence[int]) -> list[tuple[int, int]]:
    return [(i, level) for i, (level, height) in enumerate(zip(levels, heights, strict=True)) if level < height]


_FACTS = template("""
    SELECT :number AS i, count(*), count(*) FILTER (WHERE value IS NULL) > 0, coalesce(sum(rows)::BIGINT, 0)
    FROM :values
""")
_VALUES_WITH_ROWS = template("SELECT :column AS value, :count AS rows FROM :rows GROUP BY :column")
_VALUES_OF_BOTH = template("""
    SELECT value, sum(rows)::BIGINT AS rows
    FROM (SELECT value, rows FROM :values UNION ALL SELECT :theirs AS value, 0 AS rows FROM :population) AS b
    GROUP BY value
""")
_LOST_BY_CAST = template("SELECT count(*) FROM :raw WHERE NOT (:back IS NOT DISTINCT FROM :value)")
_LABELS_AMONG = template("SELECT label FROM :every AS e WHERE label IN (:labels) GROUP BY label")


def facts(values: Sequence[exp.Table]) -> exp.Query:
    """One row for each of some attributes' values: its number, how many there are, whether NULL is among them, rows."""
    query: exp.Query = union_all(*(_FACTS(number=i, values=one) for i, one in enumerate(values)))
    return query.order_by(col("i"), copy=False)


def value_counts(rows: exp.Expr, column: str, counted: bool) -> exp.Select:
    """An attribute's values with their rows: columns ``value`` and ``rows``."""
    count: exp.Expr = total(col(ROWS)) if counted else exp.Count(this=exp.Star())
    return _VALUES_WITH_ROWS(column=col(column), count=count, rows=rows)


def values_of_both(values: exp.Table, population: exp.Expr, attribute: int, type_: str) -> exp.Select:
    """An attribute's values in the source, and those that only the population has, with 0 rows there."""
    return _VALUES_OF_BOTH(values=values, theirs=cast(col(f"q{attribute}"), type_), population=population)


def lost_by_cast(raw: exp.Expr, attribute: int, type_: str, own: str) -> exp.Select:
    """How many of an attribute's values another type does not hold."""
    value = col(f"q{attribute}")
    back = cast(exp.TryCast(this=value, to=native_type(type_)), own)
    return _LOST_BY_CAST(raw=raw, back=back, value=value)


TEXTS = "text"
"""The column of an attribute's values as text, where it has one."""


def coded_values(
    values: exp.Table,
    hierarchy: exp.Table,
    height: int,
    top: str,
    nullable: bool,
    count: int | None = None,
    texts: bool = False,
) -> exp.Select:
    """The values of a column with their labels, codes and leaves, level by level.

    A value that is missing from the hierarchy (``known`` is false) stays itself below the top. With ``count``, the
    number of values, codes are as small integers as hold them: they are what every check groups by. With ``texts``, the
    values are there as text, too.

    Makes the columns ``value``, ``rows``, ``known``, ``label_1`` .. ``label_h``, ``code_0`` .. ``code_{h-1}``,
    ``leaves_1`` .. ``leaves_{h-1}``.
    """
    labels = [col(f"level_{level}", "h") for level in range(height + 1)]
    counted: list[exp.Expr] = [named(label.copy(), f"level_{i}") for i, label in enumerate(labels)]
    counted += [
        named(
            exp.Window(this=exp.Count(this=exp.Star()), partition_by=[labels[level].copy()]) - 1,
            f"leaves_{level}",
        )
        for level in range(1, height)
    ]
    with_leaves = select([*counted, named(exp.true(), KNOWN)], aliased(hierarchy, "h"))
    known = exp.Coalesce(this=col(KNOWN, "l"), expressions=[exp.false()])
    # The value itself keeps two unknown values apart; where they are known, the label alone decides.
    own = exp.If(this=col(KNOWN, "l"), true=exp.null(), false=cast(col("value", "v"), "VARCHAR"))
    type_ = _code_type(count)
    output: list[exp.Expr] = [
        col("value", "v"),
        col("rows", "v"),
        *([named(cast(col("value", "v"), "VARCHAR"), TEXTS)] if texts else []),
        named(known, KNOWN),
        *(named(col(f"level_{level}", "l"), f"label_{level}") for level in range(1, height)),
        *([named(exp.Literal.string(top), f"label_{height}")] if height else []),
        *(named(rank_of([col(f"level_{i}", "l"), own.copy()], type_), f"code_{i}") for i in range(1, height)),
        *([named(rank_of([col("value", "v")], type_), "code_0")] if height else []),
        *(
            named(exp.Coalesce(this=col(f"leaves_{i}", "l"), expressions=[number(0)]), f"leaves_{i}")
            for i in range(1, height)
        ),
    ]
    on = same(col("value", "v"), col("level_0", "l"), nullable)
    # To read a `join_type` takes half a millisecond, for each attribute of each run.
    joined = exp.Join(this=subquery(with_leaves, "l"), side="LEFT")
    return select(output, aliased(values, "v")).join(joined, on=on, copy=False)


def _code_type(count: int | None) -> str:
    if count is None or count > 2**15:
        return "INTEGER"
    return "SMALLINT" if count > 2**7 else "TINYINT"


def rank_of(order: list[exp.Expr], type_: str = "INTEGER") -> exp.Cast:
    """Small integers from 0: the rank among the distinct values, NULL first."""
    window = exp.Window(
        this=exp.DenseRank(),
        order=exp.Order(expressions=[exp.Ordered(this=term, nulls_first=True) for term in order]),
    )
    return cast(window - 1, type_)


def level_codes(coded: Coded, level: int) -> exp.Select:
    """The codes of an attribute at a level with those above it: ``code_l`` .. ``code_{h-1}``, each once."""
    codes: list[exp.Expr] = [col(f"code_{upper}") for upper in range(level, coded.height)]
    return exp.Select(expressions=codes, distinct=exp.Distinct()).from_(coded.table.copy(), copy=False)


def group_counts(coded: Coded) -> exp.Select:
    """One row: how many groups of values an attribute has at each level below its top."""
    codes = [exp.Count(this=exp.Distinct(expressions=[col(f"code_{level}")])) for level in range(coded.height)]
    return select([*codes], coded.table.copy())


def levels_with(coded: Coded, labels: Sequence[str]) -> exp.Select:
    """One row: for each level of an attribute, whether a known value of the source has one of some labels there."""
    there = all_of([col(KNOWN), col("rows") > 0])
    released = [cast(col("value"), "VARCHAR"), *(col(f"label_{level}") for level in range(1, coded.height + 1))]
    counts = [where(exp.Count(this=exp.Star()), all_of([there.copy(), _is_one(one, labels)])) for one in released]
    return select([(count > 0) for count in counts], coded.table.copy())


def labels_among(hierarchy: exp.Table, height: int, labels: Sequence[str]) -> exp.Select:
    """Those of some labels that a hierarchy has, at any level; its ground values by their text."""
    released = [named(cast(col(f"level_{level}"), "VARCHAR"), "label") for level in range(height + 1)]
    every = union_all(*(select([one], hierarchy.copy()) for one in released))
    return _LABELS_AMONG(every=every, labels=[exp.Literal.string(one) for one in labels])


def _is_one(label: exp.Expr, labels: Sequence[str]) -> exp.In:
    return exp.In(this=label, expressions=[exp.Literal.string(one) for one in labels])


def group_sizes(coded: Coded, level: int) -> exp.Select:
    """The rows in the source of each group of an attribute's values, at a level below the top."""
    return select([total(col("rows"))], coded.table.copy(), [col(f"code_{level}")])


def level_leaves(coded: Coded, level: int) -> exp.Select:
    """The codes of an attribute at a level between bottom and top, with ``leaves``: those under them, less one."""
    output: list[exp.Expr] = [named(col(f"code_{level}"), "code"), named(col(f"leaves_{level}"), "leaves")]
    return exp.Select(expressions=output, distinct=exp.Distinct()).from_(coded.table.copy(), copy=False)


def marginals(attributes: Sequence[Coded], entropy: bool) -> exp.Query:
    """For each attribute its number and a list of figures, which give every generalization a bound without a GROUP BY.

    The figures: the rows of unknown values; then for each level below the top the sum over rows of the leaves
    less one; then, with ``entropy``, for each level the sum over rows of log2(count of the generalized value /
    count of the value).
    """
    return union_all(*(_marginals(i, one, entropy) for i, one in enumerate(attributes)))


def _marginals(attribute: int, coded: Coded, entropy: bool) -> exp.Select:
    rows = cast(col("rows"), "DOUBLE")
    unknown = total(col("rows"), ~col(KNOWN))
    figures: list[exp.Expr] = [cast(exp.Coalesce(this=unknown, expressions=[number(0)]), "DOUBLE")]
    source: exp.Expr = coded.table.copy()
    below = range(1, coded.height)
    figures += [exp.Sum(this=rows * col(f"leaves_{level}")) for level in below]
    if entropy:
        groups = [
            named(exp.Window(this=exp.Sum(this=rows.copy()), partition_by=partition), f"group_{level}")
            for level, partition in [(i, [col(f"code_{i}")]) for i in below] + [(coded.height, [])]
        ]
        source = subquery(exp.Select(expressions=[exp.Star(), *groups]).from_(coded.table.copy()), "g")
        figures += [
            exp.Sum(this=rows * _log2(group / rows))
            for group in (col(f"group_{level}") for level in range(1, coded.height + 1))
        ]
    # A value that only the population has is nobody's here.
    there = col("rows") > 0
    output = [named(number(attribute), "i"), named(exp.Array(expressions=figures), "figures")]
    return select([*output], source).where(there, copy=False)


def _log2(value: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="LOG2", expressions=[value])
