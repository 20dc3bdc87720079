"""Distributions: the counts of sensitive values in each combination of quasi-identifiers.

Columns: the codes of the quasi-identifiers and ``known`` as in the frequency set; ``inner_0``, ... (other sensitive
attributes that count as quasi-identifiers); ``value_code`` (the number of the value), ``share`` (of the whole source)
and ``row_count``: rows, or distinct pairs of person and value. With movers, ``mover`` distinguishes their pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency.statements import MOVER, add_upper_codes, class_count, encode_combinations, group_and_sum
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.support.coding import (
    ROW_COUNT,
    CodedAttribute,
    Levels,
    dense_rank,
    inner_column,
    quasi_column,
    sensitive_column,
)
from sqlanon.support.expressions import (
    aliased,
    as_column,
    cast,
    col,
    null_safe_equal,
    number,
    select,
    template,
    total,
    union_all,
)


def row_pairs(rows: exp.Expr, quasi: int, sensitive: int, inner: Sequence[int] = ()) -> exp.Select:
    """The rows of the source with the column names of `count_value_pairs`, without grouping."""
    return select(_rename_columns(quasi, sensitive, inner), rows.copy())


def _rename_columns(quasi: int, sensitive: int, inner: Sequence[int]) -> list[exp.Expr]:
    names = [(quasi_column(i), quasi_column(i)) for i in range(quasi)]
    names += [(sensitive_column(attribute), inner_column(i)) for i, attribute in enumerate(inner)] + [
        (sensitive_column(sensitive), "value")
    ]
    return [as_column(col(name), alias) for name, alias in names]


def count_value_pairs(
    raw: exp.Expr,
    quasi: int,
    sensitive: int,
    inner: Sequence[int] = (),
    persons: bool = False,
    moving: exp.Table | None = None,
) -> exp.Select:
    """Count rows, or distinct pairs of person and value, by combination and value.

    Columns: ``quasi_0``, ..., ``inner_0``, ..., ``value`` and ``row_count``.
    """
    renamed = _rename_columns(quasi, sensitive, inner)
    if not persons:
        pairs_of_rows = template("SELECT :keys, sum(row_count)::BIGINT AS row_count FROM :raw GROUP BY :values")
        return pairs_of_rows(keys=renamed, raw=raw, values=[key.this for key in renamed])
    keys = [col(key.alias, "r") for key in renamed]
    if moving is None:
        return template("""
            SELECT :keys, count(*) AS row_count
            FROM (SELECT DISTINCT :renamed, person FROM :raw) AS r
            GROUP BY :keys
        """)(keys=keys, renamed=renamed, raw=raw)
    return template("""
        SELECT :keys, m.mover, count(*) FILTER (WHERE m.mover IS NULL) AS row_count
        FROM (SELECT DISTINCT :renamed, person FROM :raw) AS r
        LEFT JOIN :movers AS m ON r.person IS NOT DISTINCT FROM m.person
        GROUP BY :keys, m.mover
    """)(keys=keys, renamed=renamed, raw=raw, movers=moving)


def number_sensitive_values(pairs: exp.Expr, moving: bool, is_counted: bool = True) -> exp.Select:
    """Number the values of a sensitive attribute: ``value``, ``value_code`` (NULL first), ``rows``, ``share``."""
    rows = class_count(ROW_COUNT, MOVER if moving else None) if is_counted else exp.Count(this=exp.Star())
    return template("""
        SELECT value, :rank AS value_code, rows, rows::DOUBLE / (sum(rows::DOUBLE) OVER ()) AS share
        FROM (SELECT value, :rows AS rows FROM :pairs GROUP BY value) AS c
    """)(rank=dense_rank([col("value")]), rows=rows, pairs=pairs)


def ordered_domain(values: exp.Table) -> exp.Select:
    """One row with lists over a sensitive attribute's ordered values, for the ordered distance.

    ``cumulated``: cumulative shares; ``sums``: prefix sums of these, beginning with 0; ``widest``: the mean of the
    larger of both sides' shares, over all values but the last.
    """
    return template("""
        WITH
            cumulated_shares AS (
                SELECT value_code, sum(share) OVER (ORDER BY value_code) AS cumulated_share FROM :values
            ),
            prefix_sums AS (
                SELECT value_code, cumulated_share, sum(cumulated_share) OVER (ORDER BY value_code) AS prefix_sum
                FROM cumulated_shares
            )
        SELECT
            array_agg(cumulated_share ORDER BY value_code) AS cumulated,
            list_prepend(0.0, array_agg(prefix_sum ORDER BY value_code)) AS sums,
            (sum(greatest(cumulated_share, 1 - cumulated_share)) - 1) / nullif(count(*) - 1, 0) AS widest
        FROM prefix_sums
    """)(values=values)


_NODES_OF_LEVEL = template("""
    SELECT s.value, s.value_code AS leaf, s.share, :level AS level, :code AS code
    FROM :values AS s
    JOIN :coded AS c ON s.value IS NOT DISTINCT FROM c.value
""")


def hierarchy_nodes(values: exp.Table, coded: exp.Table, height: int) -> exp.Select:
    """Each value of a sensitive attribute with its ancestors in the hierarchy, from itself up, without the root.

    Columns: ``value``, ``leaf`` (the number of the value), ``value_code`` and ``share`` (number and share of the node).
    """
    levels = []
    for level in range(max(height, 1)):  # without levels, all values are one node
        code = col(f"code_{level}", "c") if height else number(0)
        levels.append(_NODES_OF_LEVEL(level=level, code=code, values=values, coded=coded))
    return template("""
        SELECT value, leaf, :rank AS value_code, sum(share) OVER (PARTITION BY level, code) AS share
        FROM :nodes_by_level AS nodes
    """)(rank=dense_rank([col("level"), col("code")]), nodes_by_level=union_all(*levels))


@dataclass(frozen=True)
class ValuePairs:
    """The tables that a distribution is counted from."""

    rows: exp.Expr  # from `count_value_pairs`, or the source with the same columns
    values: exp.Table  # from `number_sensitive_values` or `hierarchy_nodes`
    inner: int = 0  # number of other sensitive attributes that count as quasi-identifiers
    has_counts: bool = True  # whether ``row_count`` counts rows
    moving: bool = False  # whether there are movers
    # For `hierarchy_nodes`, the number of values: a mover with two under one node counts twice there.
    leaves: int | None = None
    domain: exp.Table | None = None  # made by `ordered_domain`; None for `hierarchy_nodes` and joint ones


def count_distribution(pairs: ValuePairs, attributes: Sequence[CodedAttribute], levels: Levels) -> exp.Select:
    """Count values by combination of codes; rows have the codes of all levels above, too."""
    query, keys = encode_combinations(pairs.rows, attributes, levels)
    query = query.join(aliased(pairs.values, "s"), on=null_safe_equal(col("value", "r"), col("value", "s")), copy=False)
    keys |= {inner_column(i): col(inner_column(i), "r") for i in range(pairs.inner)}
    keys |= {VALUE: col(VALUE, "s"), SHARE: col(SHARE, "s")}
    if pairs.moving:
        mover: exp.Expr = col(MOVER, "r")
        if pairs.leaves is not None:
            first_leaf = cast(mover, "BIGINT") * number(pairs.leaves)
            mover = first_leaf + col("leaf", "s")
        keys[MOVER] = mover
    count: exp.Expr = total(col(ROW_COUNT, "r")) if pairs.has_counts else exp.Count(this=exp.Star())
    return add_upper_codes(group_and_sum(query, keys, {ROW_COUNT: count}), attributes, levels)


def count_by_class_and_value(table: exp.Expr, keys: Sequence[str], moving: bool) -> exp.Select:
    """Count the values in each class: ``keys``, ``value_code``, ``share`` and ``row_count``."""
    columns: list[exp.Expr] = [*(col(key) for key in keys), col(VALUE)]
    share = as_column(exp.AnyValue(this=col(SHARE)), SHARE)
    count = as_column(class_count(ROW_COUNT, MOVER if moving else None), ROW_COUNT)
    return select([*columns, share, count], table.copy(), [column.copy() for column in columns])
