"""Sensitive values beside the frequency set: how often each occurs in each combination of quasi-identifiers.

Names of columns: the codes of the quasi-identifiers and ``known`` as in the frequency set; ``o0, o1, ...`` (other
sensitive attributes that count as quasi-identifiers); ``v`` (a small integer for the value), ``share`` (of the whole
source) and ``n``: rows, or distinct pairs of person and value; with movers, ``mover`` tells their pairs apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency.statements import (
    MOVER,
    add_upper_codes,
    class_count,
    encode_combinations,
    group_and_sum,
)
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.support.coding import ROWS, Coded, Levels, dense_rank
from sqlanon.support.expressions import (
    aliased,
    cast,
    col,
    named,
    number,
    same,
    select,
    template,
    total,
    union_all,
)


def row_pairs(rows: exp.Expr, quasi: int, sensitive: int, inner: Sequence[int] = ()) -> exp.Select:
    """The source's rows under the names of `count_value_pairs`, each by itself."""
    return select(_renamed(quasi, sensitive, inner), rows.copy())


def _renamed(quasi: int, sensitive: int, inner: Sequence[int]) -> list[exp.Expr]:
    names = [(f"q{i}", f"q{i}") for i in range(quasi)]
    names += [(f"s{other}", f"o{i}") for i, other in enumerate(inner)] + [(f"s{sensitive}", "value")]
    return [named(col(name), alias) for name, alias in names]


_PAIRS_OF_ROWS = template("SELECT :keys, sum(n)::BIGINT AS n FROM :raw GROUP BY :values")
_PAIRS_OF_PERSONS = template("""
    SELECT :keys, count(*) AS n
    FROM (SELECT DISTINCT :renamed, person FROM :raw) AS r
    GROUP BY :keys
""")
_PAIRS_OF_MOVERS = template("""
    SELECT :keys, m.mover, count(*) FILTER (WHERE m.mover IS NULL) AS n
    FROM (SELECT DISTINCT :renamed, person FROM :raw) AS r
    LEFT JOIN :movers AS m ON r.person IS NOT DISTINCT FROM m.person
    GROUP BY :keys, m.mover
""")


def count_value_pairs(
    raw: exp.Expr,
    quasi: int,
    sensitive: int,
    inner: Sequence[int] = (),
    persons: bool = False,
    moving: exp.Table | None = None,
) -> exp.Select:
    """The rows, or the distinct pairs of person and value, by combination and value: ``q0`` .., ``o0`` ..,
    ``value``.
    """
    renamed = _renamed(quasi, sensitive, inner)
    if not persons:
        return _PAIRS_OF_ROWS(keys=renamed, raw=raw, values=[key.this for key in renamed])
    keys = [col(key.alias, "r") for key in renamed]
    if moving is None:
        return _PAIRS_OF_PERSONS(keys=keys, renamed=renamed, raw=raw)
    return _PAIRS_OF_MOVERS(keys=keys, renamed=renamed, raw=raw, movers=moving)


_SENSITIVE_VALUES = template("""
    SELECT value, :rank AS v, rows, rows::DOUBLE / (sum(rows::DOUBLE) OVER ()) AS share
    FROM (SELECT value, :rows AS rows FROM :pairs GROUP BY value) AS c
""")
_DOMAIN = template("""
    SELECT
        array_agg(so_far ORDER BY v) AS cumulated,
        list_prepend(0.0, array_agg(sum_so_far ORDER BY v)) AS sums,
        (sum(greatest(so_far, 1 - so_far)) - 1) / nullif(count(*) - 1, 0) AS widest
    FROM (
        SELECT v, so_far, sum(so_far) OVER (ORDER BY v) AS sum_so_far
        FROM (SELECT v, sum(share) OVER (ORDER BY v) AS so_far FROM :values) AS e
    ) AS b
""")


def number_sensitive_values(pairs: exp.Expr, moving: bool, is_counted: bool = True) -> exp.Select:
    """A sensitive attribute's values in the source: ``value``, ``v`` (in order, NULL first), ``rows``, ``share``."""
    rows = class_count(ROWS, MOVER if moving else None) if is_counted else exp.Count(this=exp.Star())
    return _SENSITIVE_VALUES(rank=dense_rank([col("value")]), rows=rows, pairs=pairs)


def ordered_domain(values: exp.Table) -> exp.Select:
    """One row of lists over a sensitive attribute's values in their order, for the ordered distance.

    ``cumulated``: the share of a value and of all before it; ``sums``: the sums of these, from 0; ``widest``: the mean
    over all values but the last of the share of what is on that side of it which is the larger.
    """
    return _DOMAIN(values=values)


_NODES_OF_LEVEL = template("""
    SELECT s.value, s.v AS leaf, s.share, :level AS level, :code AS code
    FROM :values AS s
    JOIN :coded AS c ON s.value IS NOT DISTINCT FROM c.value
""")
_NODES = template("""
    SELECT value, leaf, :rank AS v, sum(share) OVER (PARTITION BY level, code) AS share
    FROM :every AS n
""")


def hierarchy_nodes(values: exp.Table, coded: exp.Table, height: int) -> exp.Select:
    """Every value of a sensitive attribute beside the nodes above it in its hierarchy, itself first, without the root.

    Makes ``value``, ``leaf`` (the value's own small integer), ``v`` (the node's) and ``share`` (the node's).
    """
    levels = []
    for level in range(max(height, 1)):  # one level alone: all values are one node
        code = col(f"code_{level}", "c") if height else number(0)
        levels.append(_NODES_OF_LEVEL(level=level, code=code, values=values, coded=coded))
    return _NODES(rank=dense_rank([col("level"), col("code")]), every=union_all(*levels))


@dataclass(frozen=True)
class ValuePairs:
    """What the counts of a sensitive attribute's values are made from."""

    rows: exp.Expr  # made by `count_value_pairs`; or the source itself, with the columns of that
    values: exp.Table  # made by `number_sensitive_values` or `hierarchy_nodes`
    inner: int = 0  # how many other sensitive attributes count as quasi-identifiers
    counted: bool = True  # whether ``n`` counts the rows
    moving: bool = False  # whether there are movers
    leaves: int | None = (
        None  # for `hierarchy_nodes`, the number of values: a mover with two under one node counts twice there
    )
    domain: exp.Table | None = None  # made by `ordered_domain`; None for `hierarchy_nodes` and joint ones


def count_distribution(pairs: ValuePairs, attributes: Sequence[Coded], levels: Levels) -> exp.Select:
    """The counts by combination of codes and value, with the codes above them."""
    query, keys = encode_combinations(pairs.rows, attributes, levels)
    query = query.join(aliased(pairs.values, "s"), on=same(col("value", "r"), col("value", "s")), copy=False)
    keys |= {f"o{i}": col(f"o{i}", "r") for i in range(pairs.inner)}
    keys |= {VALUE: col(VALUE, "s"), SHARE: col(SHARE, "s")}
    if pairs.moving:
        mover: exp.Expr = col(MOVER, "r")
        if pairs.leaves is not None:
            each = cast(mover, "BIGINT") * number(pairs.leaves)
            mover = each + col("leaf", "s")
        keys[MOVER] = mover
    count: exp.Expr = total(col(ROWS, "r")) if pairs.counted else exp.Count(this=exp.Star())
    return add_upper_codes(group_and_sum(query, keys, {ROWS: count}), attributes, levels)


def count_by_class_and_value(table: exp.Expr, keys: Sequence[str], moving: bool) -> exp.Select:
    """The values within each class: ``keys``, ``v``, ``share`` and ``n``."""
    own: list[exp.Expr] = [*(col(key) for key in keys), col(VALUE)]
    share = named(exp.AnyValue(this=col(SHARE)), SHARE)
    count = named(class_count(ROWS, MOVER if moving else None), ROWS)
    return select([*own, share, count], table.copy(), [key.copy() for key in own])
