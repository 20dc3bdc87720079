"""The distinction and separation of all sets of attributes up to a size: how well they distinguish rows.

Source: R. Motwani, Y. Xu, "Efficient algorithms for masking and finding quasi-identifiers" (2007): a set of attributes
is an α-distinct quasi-identifier if its combinations are at least α of the rows, and it separates α of the pairs of
rows if that many of them differ in it.

The table of sets has ``subset`` (a number), ``attributes`` (a list of names) and ``size``; the table of figures
``subset``, ``distinct`` (combinations) and ``together`` (ordered pairs of different rows that are equal).
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

_FIGURES = template("""
    SELECT subset, count(*) AS "distinct", sum(row_count * (row_count - 1))::BIGINT AS together
    FROM :groups AS g
    GROUP BY subset
""")
_KEYS = template('SELECT subset FROM :figures WHERE "distinct" = :rows')
_SET_COLUMNS = {"subset": "BIGINT", "attributes": "VARCHAR[]", "size": "INTEGER"}
_SETS_PER_STATEMENT = 1000


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
        columns = [match_columns(policy, run.source).by_attribute[name] for name in names]
    query = count_sets(runner, run.work, run.source.relation, names, columns, size)
    runner.record(query)
    return query


def count_sets(
    steps: StatementRunner, work: Namer, relation: exp.Table, names: Sequence[str], columns: Sequence[str], size: int
) -> exp.Select:
    """The query of the figures of all sets of columns up to a size.

    A set that contains a key is a key: its figures are known without counting.
    """
    refuse_too_many(len(columns), size, "size")
    packed = pack_combinations(steps, work, relation, columns, singles_apart=False)
    rows = steps.fetch_figures(count_uniques_and_pairs(combinations=packed.combinations))["rows"]
    sets, figures = work("distinction_sets"), work("distinction_figures")
    created = set[str]()

    def add(target: exp.Table, query: exp.Select) -> None:
        if target.name in created:
            steps.add(target, query)
        else:
            steps.create_table(target, query)
            created.add(target.name)

    keys: set[tuple[int, ...]] = set()
    first = 0
    for level in range(1, min(size, len(columns)) + 1):
        subsets = dict(enumerate(subsets_of_size(len(columns), level), first))
        numbers = {subset: i for i, subset in subsets.items()}
        first += len(subsets)
        for batch in _batches([*subsets]):
            records = [(i, [names[j] for j in subsets[i]], level) for i in batch]
            add(sets, values_query(_SET_COLUMNS, records))
        key_sets = [i for i, subset in subsets.items() if any(set(key) <= set(subset) for key in keys)]
        counted_subsets = [subset for i, subset in subsets.items() if i not in {*key_sets}]
        for packed_batch in packed.batches(counted_subsets):
            batch_numbers = {numbers[subset]: subset for subset in packed_batch}
            counts = [as_column(sum_group_rows(), "row_count")]
            add(figures, _FIGURES(groups=subset_groups(packed.keys, packed.packing, batch_numbers, counts)))
        for batch in _batches(key_sets):
            key_figures = template('SELECT subset, :rows AS "distinct", 0 AS together FROM :sets AS s')
            add(figures, key_figures(rows=rows, sets=values_query({"subset": "BIGINT"}, [(i,) for i in batch])))
        if level < size and rows:
            found_keys = steps.fetch_rows(_KEYS(figures=figures, rows=rows), [])
            keys = {subsets[i] for (i,) in found_keys if i in subsets}
    # An empty table has no groups.
    return template("""
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
    """)(rows=rows, pairs=rows * (rows - 1), sets=sets, figures=figures)


def _batches(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers[i : i + _SETS_PER_STATEMENT] for i in range(0, len(numbers), _SETS_PER_STATEMENT)]
