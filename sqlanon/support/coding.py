"""Coded values of attributes: small integers for labels at each level, and the number of leaves under each label.

The column ``quasi_0_level_2`` is the code of attribute 0 at level 2. The top level has one value and needs no column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from sqlanon.support.expressions import (
    aliased,
    as_column,
    cast,
    col,
    fragment,
    native_type,
    null_safe_equal,
    number,
    select,
    subquery,
    table,
    template,
    total,
    union_all,
)

Levels: TypeAlias = tuple[int, ...]
"""A generalization: a level for each quasi-identifier, in the policy's order."""

SOURCE_ALIAS = "s"
"""The alias of the source table in the statement that creates the release."""

ROW_COUNT = "row_count"
KNOWN = "known"


@dataclass(frozen=True)
class Column:
    """A column of the release with its name in the source, and its index among the quasi-identifiers."""

    name: str
    quasi: int | None = None


@dataclass(frozen=True)
class CodedAttribute:
    """A quasi-identifier with the table of its coded values."""

    column: str  # the name in the source
    height: int  # the top level of its hierarchy
    table: exp.Table  # from `coded_values`
    nullable: bool = False  # the source has NULLs
    unknown: bool = False  # the source has values that the hierarchy lacks
    texts: str | None = None  # the column of the table with its values as texts; None: values are cast
    open_ends: bool = False  # the table has labels and leaves at level 0: values beyond an open end share one

    @property
    def lowest_labelled(self) -> int:
        """The lowest level with labels; below it, a release shows values."""
        return 0 if self.open_ends else 1

    def has_inner_labels(self, level: int) -> bool:
        """Whether a release shows labels below the top at a level."""
        return self.lowest_labelled <= level < self.height


def quasi_column(attribute: int) -> str:
    """The column with the values of a quasi-identifier."""
    return f"quasi_{attribute}"


def code_column(attribute: int, level: int) -> str:
    """The column with the codes of a quasi-identifier at a level."""
    return f"quasi_{attribute}_level_{level}"


def sensitive_column(attribute: int) -> str:
    """The column with the values of a sensitive attribute, or their codes."""
    return f"sensitive_{attribute}"


def inner_column(number: int) -> str:
    """The column with the values of another sensitive attribute within which a requirement counts."""
    return f"inner_{number}"


def pack_column(number: int) -> str:
    """The column with the codes of a pack: some attributes in one integer."""
    return f"pack_{number}"


def levels_below_top(levels: Levels, heights: Sequence[int]) -> list[tuple[int, int]]:
    return [(i, level) for i, (level, height) in enumerate(zip(levels, heights, strict=True)) if level < height]


def value_summaries(values: Sequence[exp.Table]) -> exp.Query:
    """One row per attribute: its number, its number of values, whether NULL is one of them, and its rows."""
    summary = template("""
        SELECT :number AS i, count(*), count(*) FILTER (WHERE value IS NULL) > 0, coalesce(sum(rows)::BIGINT, 0)
        FROM :values
    """)
    query: exp.Query = union_all(*(summary(number=i, values=table_) for i, table_ in enumerate(values)))
    return query.order_by(col("i"), copy=False)


def value_counts(rows: exp.Expr, column: str, is_counted: bool) -> exp.Select:
    """The values of an attribute with their rows: columns ``value`` and ``rows``."""
    count: exp.Expr = total(col(ROW_COUNT)) if is_counted else exp.Count(this=exp.Star())
    values = template("SELECT :column AS value, :count AS rows FROM :rows GROUP BY :column")
    return values(column=col(column), count=count, rows=rows)


def combined_values(values: exp.Table, population: exp.Expr, attribute: int, type_: str) -> exp.Select:
    """The values of an attribute in the source, and those that only the population has, with 0 rows."""
    combined = template("""
        SELECT value, sum(rows)::BIGINT AS rows
        FROM (
            SELECT value, rows FROM :values UNION ALL SELECT :population_value AS value, 0 AS rows FROM :population
        ) AS all_values
        GROUP BY value
    """)
    return combined(values=values, population_value=cast(col(quasi_column(attribute)), type_), population=population)


def count_lost_by_cast(raw: exp.Expr, attribute: int, type_: str, own_type: str) -> exp.Select:
    """Count the values of an attribute that a cast to another type would change."""
    value = col(quasi_column(attribute))
    back = cast(exp.TryCast(this=value, to=native_type(type_)), own_type)
    lost = template("SELECT count(*) FROM :raw WHERE NOT (:back IS NOT DISTINCT FROM :value)")
    return lost(raw=raw, back=back, value=value)


TEXT_COLUMN = "text"
"""The column with an attribute's values as texts, if there is one."""


TALL_HIERARCHY = 40
"""The height from which levels are coded as rows instead of columns, since windows over many columns are slow."""

_LEAVES = fragment("count(*) OVER (PARTITION BY :label) - 1")
_LEAVES_OF_COLUMN = fragment("greatest(count(CASE WHEN w.rows > 0 THEN 1 END) OVER (PARTITION BY :label), 1) - 1")

_AT_LEVEL = fragment("max(CASE WHEN c.level = :level THEN :figure END)")


def coded_values(
    values: exp.Table,
    hierarchy: exp.Table,
    height: int,
    top: str,
    nullable: bool,
    count: int | None = None,
    texts: bool = False,
    open_ends: bool = False,
    has_population_values: bool = False,
) -> exp.Select:
    """The values of a column with their labels, codes and leaves at each level.

    An unknown value (``known`` is false) keeps its own code below the top. ``count``, the number of values, determines
    the type of the codes, which every check groups by. With ``texts``, a column has the values as texts. With
    ``open_ends``, the hierarchy has labels at level 0. With ``has_population_values``, values that only the population
    has do not count as leaves.

    Columns: ``value``, ``rows``, ``known``, ``label_1`` .. ``label_h``, ``code_0`` .. ``code_{h-1}``,
    ``leaves_1`` .. ``leaves_{h-1}``; with ``open_ends`` also ``label_0`` and ``leaves_0``.
    """
    between = range(0 if open_ends else 1, height)
    names = {level: f"level_{level}" if level else "label_0" for level in between}
    is_tall, type_ = height >= TALL_HIERARCHY, _code_type(count)
    columns: list[exp.Expr] = [
        as_column(col(name, "h"), name) for name in dict.fromkeys(["level_0", *names.values(), f"level_{height}"])
    ]
    leaves = _LEAVES_OF_COLUMN if has_population_values else _LEAVES
    if not is_tall:
        columns += [as_column(leaves(label=col(name, "h")), f"leaves_{level}") for level, name in names.items()]
    with_leaves = select([*columns, as_column(exp.true(), KNOWN)], aliased(hierarchy, "h"))
    if has_population_values and not is_tall:
        on_value = null_safe_equal(col("value", "w"), col("level_0", "h"), nullable)
        with_leaves = with_leaves.join(aliased(values, "w"), on=on_value, copy=False)
    is_known = exp.Coalesce(this=col(KNOWN, "l"), expressions=[exp.false()])
    if is_tall:
        codes: list[exp.Expr] = [as_column(cast(col(f"code_{i}", "c"), type_), f"code_{i}") for i in names]
        leaves_of_levels: list[exp.Expr] = [col(f"leaves_{i}", "c") for i in names]
    else:
        codes = [as_column(_rank_of_label(col(name, "l"), type_), f"code_{i}") for i, name in names.items()]
        leaves_of_levels = [
            as_column(exp.Coalesce(this=col(f"leaves_{i}", "l"), expressions=[number(0)]), f"leaves_{i}") for i in names
        ]
    output: list[exp.Expr] = [
        col("value", "v"),
        col("rows", "v"),
        *([as_column(cast(col("value", "v"), "VARCHAR"), TEXT_COLUMN)] if texts else []),
        as_column(is_known, KNOWN),
        *(as_column(col(name, "l"), f"label_{level}") for level, name in names.items()),
        *([as_column(exp.Literal.string(top), f"label_{height}")] if height else []),
        *codes,
        *([as_column(dense_rank([col("value", "v")], type_), "code_0")] if height and not open_ends else []),
        *leaves_of_levels,
    ]
    on = null_safe_equal(col("value", "v"), col("level_0", "l"), nullable)
    # Parsing a `join_type` would take half a millisecond for each attribute of each run.
    joined = exp.Join(this=subquery(with_leaves, "l"), side="LEFT")
    query = select(output, aliased(values, "v")).join(joined, on=on, copy=False)
    if is_tall:
        by_value = _codes_by_value(values, hierarchy, names, has_population_values)
        on = null_safe_equal(col("value", "c"), col("value", "v"), nullable)
        query = query.join(subquery(by_value, "c"), on=on, copy=False)
    return query


def _rank_of_label(label: exp.Expr, type_: str = "INTEGER", within: exp.Expr | None = None) -> exp.Expr:
    """The code of a label. Unknown values have no label and are distinguished by their text."""
    unknown_value = exp.If(this=col(KNOWN, "l"), true=exp.null(), false=cast(col("value", "v"), "VARCHAR"))
    return dense_rank([label, unknown_value], type_, within)


def _codes_by_value(
    values: exp.Table, hierarchy: exp.Table, names: Mapping[int, str], has_population_values: bool
) -> exp.Select:
    """The codes and leaves of each value (``code_1`` .., ``leaves_1`` ..), computed in a narrow table of levels."""
    labels = template("SELECT level_0, :level AS level, :label AS label FROM :hierarchy")
    labels_with_rows = template("""
        SELECT x.level, x.label, w.rows
        FROM "sqlanon labels" AS x
        LEFT JOIN :values AS w ON w.value IS NOT DISTINCT FROM x.level_0
    """)
    leaves_in_source = "greatest(count(CASE WHEN x.rows > 0 THEN 1 END), 1) - 1"
    codes = template("""
        WITH
            "sqlanon labels" AS (:labels),
            "sqlanon leaves" AS (
                SELECT x.level, x.label, :leaves AS leaves
                FROM :counted AS x
                GROUP BY x.level, x.label
            )
        SELECT
            v.value,
            e.level,
            :rank AS code,
            coalesce(n.leaves, 0) AS leaves
        FROM :values AS v
        CROSS JOIN (:levels) AS e
        LEFT JOIN (SELECT *, true AS known FROM "sqlanon labels" AS x) AS l
            ON l.level = e.level AND l.level_0 IS NOT DISTINCT FROM v.value
        LEFT JOIN "sqlanon leaves" AS n ON l.known AND n.level = l.level AND n.label IS NOT DISTINCT FROM l.label
    """)(
        labels=union_all(*(labels(level=i, label=col(name), hierarchy=hierarchy) for i, name in names.items())),
        levels=union_all(*(template("SELECT :level AS level")(level=i) for i in names)),
        counted=subquery(labels_with_rows(values=values)) if has_population_values else table("sqlanon labels"),
        leaves=fragment(leaves_in_source if has_population_values else "count(*) - 1")(),
        values=values,
        rank=_rank_of_label(col("label", "l"), within=col("level", "e")),
    )
    figures = [
        as_column(_AT_LEVEL(level=number(i), figure=col(figure, "c")), f"{figure}_{i}")
        for figure in ("code", "leaves")
        for i in names
    ]
    by_value = template("SELECT c.value, :figures FROM (:codes) AS c GROUP BY c.value")
    return by_value(figures=figures, codes=codes)


def _code_type(count: int | None) -> str:
    if count is None or count > 2**15:
        return "INTEGER"
    return "SMALLINT" if count > 2**7 else "TINYINT"


def dense_rank(order: list[exp.Expr], type_: str = "INTEGER", within: exp.Expr | None = None) -> exp.Cast:
    """The rank, from 0, among the distinct values, or among those with the same value of ``within``; NULL first."""
    window = exp.Window(
        this=exp.DenseRank(),
        partition_by=[] if within is None else [within],
        order=exp.Order(expressions=[exp.Ordered(this=term, nulls_first=True) for term in order]),
    )
    return cast(window - 1, type_)


def level_codes(coded: CodedAttribute, level: int) -> exp.Select:
    """The distinct codes of an attribute at a level and above: ``code_l`` .. ``code_{h-1}``."""
    codes: list[exp.Expr] = [col(f"code_{upper}") for upper in range(level, coded.height)]
    return exp.Select(expressions=codes, distinct=exp.Distinct()).from_(coded.table.copy(), copy=False)


def distinct_codes(coded: CodedAttribute) -> exp.Table | exp.Subquery:
    """A relation with each code of level 0 once, with the codes above and ``known``."""
    if not coded.open_ends:
        return coded.table
    codes: list[exp.Expr] = [col(f"code_{level}") for level in range(coded.height)]
    query = exp.Select(expressions=[*codes, col(KNOWN)], distinct=exp.Distinct()).from_(coded.table.copy(), copy=False)
    return subquery(query)


def group_counts(coded: CodedAttribute) -> exp.Select:
    """One row: the number of groups of values at each level below the top."""
    codes = [exp.Count(this=exp.Distinct(expressions=[col(f"code_{level}")])) for level in range(coded.height)]
    return select([*codes], coded.table.copy())


def levels_showing(coded: CodedAttribute, labels: Sequence[str]) -> exp.Select:
    """One row: for each level, whether a known value of the source has one of the labels."""
    ground = col("label_0") if coded.open_ends else cast(col("value"), "VARCHAR")
    released = [ground, *(col(f"label_{level}") for level in range(1, coded.height + 1))]
    literals = [exp.Literal.string(label) for label in labels]
    has_label = fragment("count(*) FILTER (WHERE known AND rows > 0 AND :label IN (:labels)) > 0")
    return select([has_label(label=label, labels=literals) for label in released], coded.table.copy())


def matching_labels(hierarchy: exp.Table, columns: Sequence[str], labels: Sequence[str]) -> exp.Select:
    """The labels that occur in the columns of a hierarchy; its ground values are compared as texts."""
    released = [as_column(cast(col(name), "VARCHAR"), "label") for name in columns]
    all_labels = union_all(*(select([label], hierarchy.copy()) for label in released))
    matching = template("SELECT label FROM :all_labels AS e WHERE label IN (:labels) GROUP BY label")
    return matching(all_labels=all_labels, labels=[exp.Literal.string(label) for label in labels])


def group_sizes(coded: CodedAttribute, level: int) -> exp.Select:
    """The rows of each group of values of an attribute at a level below the top."""
    return select([total(col("rows"))], coded.table.copy(), [col(f"code_{level}")])


def level_leaves(coded: CodedAttribute, level: int) -> exp.Select:
    """The codes of an attribute at a level between bottom and top, with ``leaves``: the leaves under them minus one."""
    output: list[exp.Expr] = [as_column(col(f"code_{level}"), "code"), as_column(col(f"leaves_{level}"), "leaves")]
    return exp.Select(expressions=output, distinct=exp.Distinct()).from_(coded.table.copy(), copy=False)


def marginals(attributes: Sequence[CodedAttribute], entropy: bool) -> exp.Query:
    """The number of each attribute with a list of figures, which bound the score of any generalization.

    The figures are: the rows with unknown values; for each level below the top, from level 0, the sum over rows of the
    leaves minus one; with ``entropy``, for each level the sum over rows of log2(count of the generalized value / count
    of the value).
    """
    return union_all(*(_marginals(i, attribute, entropy) for i, attribute in enumerate(attributes)))


def _marginals(attribute: int, coded: CodedAttribute, entropy: bool) -> exp.Select:
    rows = cast(col("rows"), "DOUBLE")
    unknown = total(col("rows"), ~col(KNOWN))
    figures: list[exp.Expr] = [cast(exp.Coalesce(this=unknown, expressions=[number(0)]), "DOUBLE")]
    source: exp.Expr = coded.table.copy()
    below = range(coded.lowest_labelled, coded.height)
    values: list[exp.Expr] = [number(0.0) for _ in range(min(coded.lowest_labelled, coded.height))]
    figures += values + [exp.Sum(this=rows * col(f"leaves_{level}")) for level in below]
    if entropy and coded.height >= TALL_HIERARCHY:
        levels = range(coded.lowest_labelled, coded.height + 1)
        source = _add_entropies(coded, levels)
        figures += [number(0.0) for _ in range(coded.lowest_labelled)]
        figures += [exp.Max(this=col(f"entropy_{level}")) for level in levels]
    elif entropy:
        groups = [
            as_column(exp.Window(this=exp.Sum(this=rows.copy()), partition_by=partition), f"group_{level}")
            for level, partition in [(i, [col(f"code_{i}")]) for i in below] + [(coded.height, [])]
        ]
        source = subquery(exp.Select(expressions=[exp.Star(), *groups]).from_(coded.table.copy()), "g")
        figures += [
            exp.Sum(this=rows * _log2(col(f"group_{level}") / rows)) if level >= coded.lowest_labelled else number(0.0)
            for level in range(coded.height + 1)
        ]
    # Values that only the population has do not count.
    is_in_source = col("rows") > 0
    output = [as_column(number(attribute), "i"), as_column(exp.Array(expressions=figures), "figures")]
    return select([*output], source).where(is_in_source, copy=False)


def _add_entropies(coded: CodedAttribute, levels: Sequence[int]) -> exp.Subquery:
    """The coded values with the entropies of all levels, ``entropy_1`` .., computed in a narrow table of levels."""
    codes = [col(f"code_{level}") if level < coded.height else number(0) for level in levels]
    at_level = template("SELECT :level AS level, rows, :code AS code FROM :coded WHERE rows > 0")
    pairs = zip(levels, codes, strict=True)
    rows = union_all(*(at_level(level=level, code=code, coded=coded.table) for level, code in pairs))
    figures = [
        as_column(_AT_LEVEL(level=number(level), figure=col("entropy", "c")), f"entropy_{level}") for level in levels
    ]
    log2 = _log2(cast(col("group_rows"), "DOUBLE") / col("rows"))
    entropies = template("""
        WITH
            groups AS (
                SELECT level, rows, sum(rows) OVER (PARTITION BY level, code) AS group_rows FROM (:rows) AS leaves
            ),
            entropies AS (
                SELECT level, sum(rows::DOUBLE * :log2) AS entropy FROM groups GROUP BY level
            )
        SELECT :figures FROM entropies AS c
    """)(figures=figures, log2=log2, rows=rows)
    query = exp.Select(expressions=[exp.Star()]).from_(aliased(coded.table.copy(), "g"), copy=False)
    return subquery(query.join(subquery(entropies, "c"), join_type="cross", copy=False), "g")


def _log2(value: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="LOG2", expressions=[value])
