"""The distinction and separation of every set of attributes up to a size, level by level: how well they tell rows
apart.

Source: R. Motwani, Y. Xu, "Efficient algorithms for masking and finding quasi-identifiers" (2007): a set of attributes
is an α-distinct quasi-identifier if its combinations are at least α of the rows, and it separates α of the pairs of
rows if that many of them differ in it.

Names of columns, all ours. In the sets: ``subset`` (a number), ``attributes`` (a list of names), ``size``. In the
figures: ``subset``, ``distinct`` (combinations), ``together`` (ordered pairs of different rows that are equal).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.frequency.packing import pack_combinations, refuse_too_many, subset_groups, subsets_of_size, sum_group_rows
from sqlanon.policy import Policy
from sqlanon.risk.suda import count_uniques_and_pairs
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.support.expressions import Namer, as_column, template, values_query

_SET_FIGURES = template("""
    SELECT subset, count(*) AS "distinct", sum(n * (n - 1))::BIGINT AS together
    FROM :groups AS g
    GROUP BY subset
""")
_KEY_FIGURES = template('SELECT subset, :rows AS "distinct", 0 AS together FROM :sets AS s')
_KEYS_AMONG = template('SELECT subset FROM :figures WHERE "distinct" = :rows')
# An empty table has no groups.
_DISTINCTION = template("""
    SELECT
        s.attributes,
        s.size,
        coalesce(f."distinct", 0) AS "distinct",
        :rows::BIGINT AS rows,
        coalesce(f."distinct", 0)::DOUBLE / nullif(:rows, 0)::DOUBLE AS distinction,
        1 - f.together::DOUBLE / nullif(:pairs, 0)::DOUBLE AS separation
    FROM :sets AS s
    LEFT JOIN :figures AS f ON f.subset = s.subset
    ORDER BY s.subset
""")


_SET_COLUMNS = {"subset": "BIGINT", "attributes": "VARCHAR[]", "size": "INTEGER"}
_LISTED = 1000
"""The most sets in one statement."""


def refuse_size(size: int) -> None:
    if size < 1:
        raise PolicyError([Problem("size", f"must be at least 1, and {size} is not")])


def find_distinction(runner: StatementRunner, run: Run, policy: Policy | None, size: int) -> exp.Select:
    """The query of all figures, over tables of the run. The example of a dry run has attributes of three values, and no
    keys."""
    if policy is None:
        names = columns = [name for name, type_ in run.source.columns.items() if not is_nested(type_)]
    else:
        names = list(policy.quasi_identifiers)
        matched = match_columns(policy, run.source).by_attribute
        columns = [matched[name] for name in names]
    query = figures_of(runner, run.work, run.source.relation, names, columns, size)
    runner.record(query)
    return query


def figures_of(
    steps: StatementRunner, work: Namer, relation: exp.Table, names: Sequence[str], columns: Sequence[str], size: int
) -> exp.Select:
    """The query of the figures of some columns.

    A set with a key in it is a key: its figures are not counted, but known.
    """
    refuse_too_many(len(columns), size, "size")
    packed = pack_combinations(steps, work, relation, columns, singles_apart=False)
    rows = steps.fetch_figures(count_uniques_and_pairs(combinations=packed.combinations))["rows"]
    sets = figures = None
    keys: set[tuple[int, ...]] = set()
    first = 0
    for level in range(1, min(size, len(columns)) + 1):
        numbered = dict(enumerate(subsets_of_size(len(columns), level), first))
        first += len(numbered)
        by_subset = {one: i for i, one in numbered.items()}
        known = {i for i, one in numbered.items() if any(set(key) <= set(one) for key in keys)}
        listed = list(numbered)
        for i in range(0, len(listed), _LISTED):
            rows_of_sets = [(n, [names[j] for j in numbered[n]], level) for n in listed[i : i + _LISTED]]
            query = values_query(_SET_COLUMNS, rows_of_sets)
            sets = _into(steps, work("distinction_sets"), query, sets)
        for batch in packed.batches([one for i, one in numbered.items() if i not in known]):
            subsets = {by_subset[one]: one for one in batch}
            groups = subset_groups(packed.keys, packed.packing, subsets, [as_column(sum_group_rows(), "n")])
            query = _SET_FIGURES(groups=groups)
            figures = _into(steps, work("distinction_figures"), query, figures)
        some = sorted(known)
        for i in range(0, len(some), _LISTED):
            sets_of_keys = values_query({"subset": "BIGINT"}, [(one,) for one in some[i : i + _LISTED]])
            figures = _into(steps, work("distinction_figures"), _KEY_FIGURES(rows=rows, sets=sets_of_keys), figures)
        if level < size and figures is not None and rows:
            keys = {
                numbered[one]
                for (one,) in steps.fetch_rows(_KEYS_AMONG(figures=figures, rows=rows), [])
                if one in numbered
            }
    assert sets is not None
    assert figures is not None
    return _DISTINCTION(rows=rows, pairs=rows * (rows - 1), sets=sets, figures=figures)


def _into(steps: StatementRunner, target: exp.Table, query: exp.Select, table: exp.Table | None) -> exp.Table:
    if table is None:
        return steps.create_table(target, query)
    steps.add(table, query)
    return table
