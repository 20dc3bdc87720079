"""Unique rows, or persons, at each level of two hierarchies: the benefit of a coarser area or date.

Source: the tables of the Hamburg slides (area level × date level). The other quasi-identifiers remain at level 0, so a
cell is the generalization with these two levels and 0 for all others. With a population, its combinations are counted
in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.frequency.scan import population_runner, scan_raw_population
from sqlanon.frequency.statements import PERSON, POPULATION, quasi_columns, raw_frequency
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy
from sqlanon.risk.figures import Table
from sqlanon.risk.leakage import SMALL
from sqlanon.risk.levels import code_levels, resolve_attributes
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.support.coding import ROW_COUNT, CodedAttribute, code_column, combined_values, quasi_column, value_counts
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    as_column,
    cast,
    col,
    fragment,
    null_safe_equal,
    template,
    union_all,
)

_CELL = template("""
    SELECT :i AS i, :j AS j, count(*) AS uniques
    FROM (SELECT 1 AS single FROM :rows GROUP BY :keys HAVING :class_size = 1) AS g
""")
_POPULATION_CELL = template("""
    SELECT
        :i AS i,
        :j AS j,
        count(*) FILTER (WHERE population_size > 0) AS combinations,
        count(*) FILTER (WHERE population_size = 1) AS uniques,
        coalesce(sum(row_count) FILTER (WHERE population_size = 1)::BIGINT, 0) AS rows
    FROM (
        SELECT sum(row_count)::BIGINT AS row_count, :population_size AS population_size
        FROM :rows
        GROUP BY :keys
    ) AS g
""")
# 0, 1 or 2 for more: counting distinct persons takes twice as long. All rows without an id belong to one person.
_POPULATION_PERSONS = fragment("""
    CASE
        WHEN min(person) < max(person) THEN 2
        ELSE max(CASE WHEN person IS NULL THEN 0 ELSE 1 END)
            + max(CASE WHEN population > 0 AND person IS NULL THEN 1 ELSE 0 END)
    END
""")
_CELLS = template("SELECT * FROM :cells AS cells")


Cells: TypeAlias = tuple[tuple[int, ...], ...]
"""A figure by two levels: ``[i][j]`` has the first attribute at level i and the second at level j."""


@dataclass(frozen=True)
class PopulationUniques:
    """Combinations of quasi-identifiers that a single row, or person, of a population has, by two levels.

    Attributes
    ----------
    combinations:
        The combinations in the population.
    uniques:
        Those of a single row, or person.
    rows:
        The rows of the source with one of these.
    """

    combinations: Cells
    uniques: Cells
    rows: Cells

    @property
    def share(self) -> tuple[tuple[float, ...], ...]:
        """The share of the population's combinations that are unique in it, by the same levels."""
        pairs = zip(self.uniques, self.combinations, strict=True)
        return tuple(
            tuple(uniques / total if total else 0.0 for uniques, total in zip(*pair, strict=True)) for pair in pairs
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON."""
        figures = {name: getattr(self, name) for name in ("combinations", "uniques", "share", "rows")}
        return {name: [list(row) for row in cells] for name, cells in figures.items()}


@dataclass(frozen=True)
class UniquesMatrix:
    """Unique rows, or persons, by two levels.

    Attributes
    ----------
    attributes:
        The two attributes.
    rows:
        The rows of the source.
    uniques:
        ``uniques[i][j]``: the classes of one row, or of one person if the policy counts persons, with the first
        attribute at level i and the second at j.
    population:
        The same for a population: its ``combinations``, the ``uniques`` among them (those of a single row or person),
        their ``share``, and the ``rows`` of the source with one of the uniques.
    counts:
        The unit of class sizes of the source.
    """

    attributes: tuple[str, str]
    rows: int
    uniques: Cells
    population: PopulationUniques | None = None
    counts: Literal["rows", "persons"] = "rows"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for JSON."""
        uniques = [list(row) for row in self.uniques]
        figures = {"attributes": list(self.attributes), "rows": self.rows, "counts": self.counts, "uniques": uniques}
        return figures if self.population is None else {**figures, "population": self.population.to_dict()}

    @property
    def table(self) -> Table:
        """One row for each cell: both levels, and the classes of one row, or person; with a population its
        combinations, the unique ones among them, and the rows of the source with one of these."""
        columns = {"first_level": "INTEGER", "second_level": "INTEGER", "uniques": "BIGINT"}
        figures = [self.uniques]
        if (population := self.population) is not None:
            columns |= dict.fromkeys(("population_combinations", "population_uniques", "rows_unique_there"), "BIGINT")
            figures += [population.combinations, population.uniques, population.rows]
        cells = [(i, j) for i, row in enumerate(self.uniques) for j in range(len(row))]
        return columns, [(i, j, *(figure[i][j] for figure in figures)) for i, j in cells]


def count_uniques_by_level(runner: StatementRunner, run: Run, policy: Policy, first: str, second: str) -> UniquesMatrix:
    """Count the unique rows, or persons, at each level of two attributes."""
    if first.lower() == second.lower():
        raise PolicyError([Problem("--matrix", f"needs two attributes, and both are {first!r}")])
    first, second = resolve_attributes(policy, "--matrix", first, second)
    work, columns = run.work, match_columns(policy, run.source)
    names = [columns.by_attribute[name] for name in (*policy.generalized_attributes, *policy.noisy_attributes)]
    types = [run.source.columns[column] for column in columns.generalized]
    counts_persons = columns.person is not None
    raw = runner.create_table(work("raw"), raw_frequency(run.source.relation, names, person=columns.person))
    population = None
    if run.population is not None:
        population = scan_raw_population(population_runner(runner, run.population), policy, run.population, types, work)
    numbers = {name: policy.generalized_attributes.index(name) for name in (first, second)}
    values = dict[str, AttributeValues]()
    for name, i in numbers.items():
        table = runner.create_table(work(f"values_{i}"), value_counts(raw, quasi_column(i), is_counted=True))
        if population is not None:
            table = runner.create_table(work(f"values_of_both_{i}"), combined_values(table, population, i, types[i]))
        values[name] = AttributeValues(table, types[i])
    attributes = [
        CodedAttribute(quasi_column(numbers[name]), height, table, nullable=True)
        for name, (table, height) in code_levels(runner, work, policy, values).items()
    ]
    count_columns = [ROW_COUNT, *([PERSON] if counts_persons else [])]
    rows = _make_coded_levels(runner, work, raw, len(names), attributes, count_columns)
    class_size = (
        fragment("count(DISTINCT person) + max(CASE WHEN person IS NULL THEN 1 ELSE 0 END)")()
        if counts_persons
        else fragment("sum(row_count)::BIGINT")()
    )
    (uniques,) = _count_cells(runner, rows, attributes, _CELL, 1, class_size=class_size)
    population_uniques = None
    if population is not None:
        has_person = policy.population is not None and policy.population.person is not None
        # A row of the source counts no person of the population.
        query = fragment("""
            SELECT :source_keys, row_count, 0 AS population, NULL AS person FROM :raw
            UNION ALL
            SELECT :population_keys, 0 AS row_count, row_count AS population, :person AS person FROM :population
        """)(
            source_keys=quasi_columns(len(types)),
            raw=raw,
            population_keys=[
                as_column(cast(col(quasi_column(i)), type_), quasi_column(i)) for i, type_ in enumerate(types)
            ],
            person=col(PERSON) if has_person else exp.null(),
            population=population,
        )
        assert isinstance(query, exp.Query)
        combined = runner.create_table(work("source_and_population"), query)
        rows = _make_coded_levels(runner, work, combined, len(types), attributes, [ROW_COUNT, POPULATION, PERSON])
        size = _POPULATION_PERSONS() if has_person else fragment("sum(population)::BIGINT")()
        figures = _count_cells(runner, rows, attributes, _POPULATION_CELL, 3, population_size=size)
        population_uniques = PopulationUniques(*figures)
    total = int(
        runner.fetch_rows(template("SELECT coalesce(sum(row_count)::BIGINT, 0) FROM :raw")(raw=raw), [(0,)])[0][0]
    )
    return UniquesMatrix((first, second), total, uniques, population_uniques, "persons" if counts_persons else "rows")


def _make_coded_levels(
    runner: StatementRunner,
    work: Namer,
    raw: exp.Table,
    quasi: int,
    attributes: Sequence[CodedAttribute],
    counts: Sequence[str],
) -> exp.Table:
    """Create the combinations with the codes of two attributes at all levels, and a number for all other attributes."""
    codes = [
        as_column(col(f"code_{level}", f"v{i}"), code_column(i, level))
        for i, attribute in enumerate(attributes)
        for level in range(attribute.height)
    ]
    coded = [attribute.column for attribute in attributes]
    unchanged = [quasi_column(i) for i in range(quasi) if quasi_column(i) not in coded]
    query = template("SELECT :remaining AS remaining, :codes, :counts FROM :raw AS r")(
        remaining=col("remaining", "o") if unchanged else 0,
        codes=codes,
        counts=[col(name, "r") for name in counts],
        raw=raw,
    )
    if unchanged:
        combinations = template("""
            SELECT :quasi, row_number() OVER () AS remaining
            FROM (SELECT :quasi FROM :raw GROUP BY :quasi) AS d
        """)(quasi=[col(name) for name in unchanged], raw=raw)
        numbers = runner.create_table(work(f"remaining_of_{raw.name}"), combinations)
        on = all_of(null_safe_equal(col(name, "r"), col(name, "o")) for name in unchanged)
        query = query.join(aliased(numbers, "o"), on=on, copy=False)
    for i, attribute in enumerate(attributes):
        on = null_safe_equal(col(attribute.column, "r"), col("value", f"v{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"v{i}"), on=on, copy=False)
    return runner.create_table(work(f"levels_of_{raw.name}"), query)


def _count_cells(
    runner: StatementRunner,
    rows: exp.Table,
    attributes: Sequence[CodedAttribute],
    cell_query: Callable[..., exp.Select],
    figures: int,
    **expressions: exp.Expr,
) -> list[Cells]:
    """Count the figures of each cell; cell by cell for a large table, to save memory."""
    first, second = (range(attribute.height + 1) for attribute in attributes)
    cells = [(i, j) for i in first for j in second]
    step = 1 if runner.count(rows) > SMALL else len(cells)
    counts = {}
    for start in range(0, len(cells), step):
        batch = cells[start : start + step]
        queries = []
        for levels in batch:
            codes = [
                col(code_column(number, level))
                for number, level in enumerate(levels)
                if level < attributes[number].height
            ]
            i, j = levels
            queries.append(cell_query(i=i, j=j, rows=rows, keys=[col("remaining"), *codes], **expressions))
        example = [(*levels, *[0] * figures) for levels in batch]
        for i, j, *cell_counts in runner.fetch_rows(_CELLS(cells=union_all(*queries)), example):
            counts[i, j] = cell_counts
    return [tuple(tuple(counts[i, j][figure] for j in second) for i in first) for figure in range(figures)]
