"""How many rows, or persons, are unique at each level of two hierarchies: what a coarser area or date buys.

Source: the tables of the Hamburg slides (area level × date level). The other quasi-identifiers stay
as they are, at level 0: so a cell is the generalization with these two levels and 0 elsewhere. With a population, the
same of its combinations.
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
from sqlanon.support.coding import ROWS, Coded, code_name, combined_values, value_counts
from sqlanon.support.expressions import Namer, aliased, all_of, cast, col, fragment, named, same, template, union_all

_NUMBERED_OTHERS = template("""
    SELECT :quasi, row_number() OVER () AS others
    FROM (SELECT :quasi FROM :raw GROUP BY :quasi) AS d
""")
_LEVELS = template("SELECT :others AS others, :codes, :counts FROM :raw AS r")
_CELL = template("""
    SELECT :i AS i, :j AS j, count(*) AS uniques
    FROM (SELECT 1 AS one FROM :rows GROUP BY :keys HAVING :own = 1) AS g
""")
# A row of the source is nobody of the population, and counts no person there.
_BESIDE_POPULATION = fragment("""
    SELECT :own, n, 0 AS population, NULL AS person FROM :raw
    UNION ALL
    SELECT :theirs, 0 AS n, n AS population, :person AS person FROM :population
""")
_POPULATION_CELL = template("""
    SELECT
        :i AS i,
        :j AS j,
        count(*) FILTER (WHERE theirs > 0) AS combinations,
        count(*) FILTER (WHERE theirs = 1) AS uniques,
        coalesce(sum(n) FILTER (WHERE theirs = 1)::BIGINT, 0) AS rows
    FROM (SELECT sum(n)::BIGINT AS n, :theirs AS theirs FROM :rows GROUP BY :keys) AS g
""")
_OWN_ROWS = fragment("sum(n)::BIGINT")
_OWN_PERSONS = fragment("count(DISTINCT person) + max(CASE WHEN person IS NULL THEN 1 ELSE 0 END)")
_THEIR_ROWS = fragment("sum(population)::BIGINT")
# 0, 1 or more: to count distinct persons takes twice as long. All without an id are one person.
_THEIR_PERSONS = fragment("""
    CASE
        WHEN min(person) < max(person) THEN 2
        ELSE max(CASE WHEN person IS NULL THEN 0 ELSE 1 END)
            + max(CASE WHEN population > 0 AND person IS NULL THEN 1 ELSE 0 END)
    END
""")
_CELLS = template("SELECT * FROM :cells AS cells")
_ROW_COUNT = template("SELECT coalesce(sum(n)::BIGINT, 0) FROM :raw")


Cells: TypeAlias = tuple[tuple[int, ...], ...]
"""A figure by two levels: ``[i][j]`` is that of the first attribute at level i and the second at level j."""


@dataclass(frozen=True)
class PopulationUniques:
    """Combinations of quasi-identifiers that one row of a population has, or one person, by two levels.

    Attributes
    ----------
    combinations:
        The combinations that there are in the population.
    uniques:
        Those that one row, or person, has.
    rows:
        The rows of the source that have one of them.
    """

    combinations: Cells
    uniques: Cells
    rows: Cells

    @property
    def share(self) -> tuple[tuple[float, ...], ...]:
        """The share of the population's combinations that are unique in it, by the same levels."""
        pairs = zip(self.uniques, self.combinations, strict=True)
        return tuple(tuple(n / every if every else 0.0 for n, every in zip(*pair, strict=True)) for pair in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
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
        ``uniques[i][j]``: the classes of one row, or of one person where the policy counts persons, with the first
        attribute at level i and the second at j.
    population:
        With a population, likewise: its ``combinations``, the ``uniques`` among them (those that one row of it has, or
        one person), their ``share``, and the ``rows`` of the source that have one of the uniques.
    counts:
        What the size of a class of the source counts.
    """

    attributes: tuple[str, str]
    rows: int
    uniques: Cells
    population: PopulationUniques | None = None
    counts: Literal["rows", "persons"] = "rows"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        uniques = [list(row) for row in self.uniques]
        own = {"attributes": list(self.attributes), "rows": self.rows, "counts": self.counts, "uniques": uniques}
        return own if self.population is None else {**own, "population": self.population.to_dict()}

    @property
    def table(self) -> Table:
        """One row a cell: both levels, and the classes of one row, or person; with a population its combinations, those
        that are unique in it, and the rows of the source that have one of these."""
        columns = {"first_level": "INTEGER", "second_level": "INTEGER", "uniques": "BIGINT"}
        figures = [self.uniques]
        if (theirs := self.population) is not None:
            columns |= dict.fromkeys(("population_combinations", "population_uniques", "rows_unique_there"), "BIGINT")
            figures += [theirs.combinations, theirs.uniques, theirs.rows]
        cells = [(i, j) for i, row in enumerate(self.uniques) for j in range(len(row))]
        return columns, [(i, j, *(figure[i][j] for figure in figures)) for i, j in cells]


def count_uniques_by_level(
    run: Run, policy: Policy, first: str, second: str, shown: list[str] | None = None
) -> UniquesMatrix:
    """Count the unique rows, or persons, at each level of two attributes."""
    if first.lower() == second.lower():
        raise PolicyError([Problem("--matrix", f"needs two attributes, and both are {first!r}")])
    first, second = resolve_attributes(policy, "--matrix", first, second)
    steps, work, columns = StatementRunner(run.engine, shown), run.work, match_columns(policy, run.source)
    names = [columns.by_attribute[name] for name in (*policy.generalized_attributes, *policy.noisy_attributes)]
    types = [run.source.columns[column] for column in columns.generalized]
    persons = columns.person is not None
    raw = steps.make(work("raw"), raw_frequency(run.source.relation, names, person=columns.person))
    population = None
    if run.population is not None:
        population = scan_raw_population(population_runner(steps, run.population), policy, run.population, types, work)
    chosen = {name: policy.generalized_attributes.index(name) for name in (first, second)}
    values = dict[str, AttributeValues]()
    for name, i in chosen.items():
        table = steps.make(work(f"values_{i}"), value_counts(raw, f"q{i}", counted=True))
        if population is not None:
            table = steps.make(work(f"values_of_both_{i}"), combined_values(table, population, i, types[i]))
        values[name] = AttributeValues(table, types[i])
    levels = code_levels(steps, work, policy, values)
    two = [Coded(f"q{chosen[name]}", height, table, nullable=True) for name, (table, height) in levels.items()]
    rows = _with_levels(steps, work, raw, len(names), two, [ROWS, *([PERSON] if persons else [])])
    (uniques,) = _count(steps, rows, two, _CELL, 1, own=_OWN_PERSONS() if persons else _OWN_ROWS())
    there = None
    if population is not None:
        who = policy.population is not None and policy.population.person is not None
        both = steps.make(work("both"), _beside_population(raw, population, types, who))
        rows = _with_levels(steps, work, both, len(types), two, [ROWS, POPULATION, PERSON])
        theirs = _THEIR_PERSONS() if who else _THEIR_ROWS()
        there = PopulationUniques(*_count(steps, rows, two, _POPULATION_CELL, 3, theirs=theirs))
    total = int(steps.ask(_ROW_COUNT(raw=raw), [(0,)])[0][0])
    return UniquesMatrix((first, second), total, uniques, there, "persons" if persons else "rows")


def _beside_population(raw: exp.Table, population: exp.Table, types: Sequence[str], persons: bool) -> exp.Query:
    """The combinations of the source, and below them those of the population, with one row per person."""
    theirs = [named(cast(col(f"q{i}"), type_), f"q{i}") for i, type_ in enumerate(types)]
    person = col(PERSON) if persons else exp.null()
    query = _BESIDE_POPULATION(
        own=quasi_columns(len(types)), raw=raw, theirs=theirs, person=person, population=population
    )
    assert isinstance(query, exp.Query)
    return query


def _with_levels(
    steps: StatementRunner, work: Namer, raw: exp.Table, quasi: int, two: Sequence[Coded], counts: Sequence[str]
) -> exp.Table:
    """Make the combinations with the codes of two attributes at all levels, and the number of the others'."""
    codes = [
        named(col(f"code_{level}", f"v{i}"), code_name(i, level))
        for i, attribute in enumerate(two)
        for level in range(attribute.height)
    ]
    columns = [attribute.column for attribute in two]
    others = [f"q{i}" for i in range(quasi) if f"q{i}" not in columns]
    counted = [col(name, "r") for name in counts]
    query = _LEVELS(others=col("others", "o") if others else 0, codes=codes, counts=counted, raw=raw)
    if others:
        numbered = _NUMBERED_OTHERS(quasi=[col(name) for name in others], raw=raw)
        numbers = steps.make(work(f"others_of_{raw.name}"), numbered)
        on = all_of(same(col(name, "r"), col(name, "o")) for name in others)
        query = query.join(aliased(numbers, "o"), on=on, copy=False)
    for i, attribute in enumerate(two):
        on = same(col(attribute.column, "r"), col("value", f"v{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"v{i}"), on=on, copy=False)
    return steps.make(work(f"levels_of_{raw.name}"), query)


def _count(
    steps: StatementRunner,
    rows: exp.Table,
    two: Sequence[Coded],
    cell: Callable[..., exp.Select],
    figures: int,
    **filled: exp.Expr,
) -> list[Cells]:
    """The figures of each cell; of a large table cell by cell: together they would take the memory of all."""
    first, second = (range(one.height + 1) for one in two)
    cells = [(i, j) for i in first for j in second]
    step = 1 if steps.count(rows) > SMALL else len(cells)
    found = {}
    for start in range(0, len(cells), step):
        some, each = cells[start : start + step], []
        for i, j in some:
            below = [(place, level) for place, level in enumerate((i, j)) if level < two[place].height]
            keys = [col("others"), *(col(code_name(place, level)) for place, level in below)]
            each.append(cell(i=i, j=j, rows=rows, keys=keys, **filled))
        for i, j, *counted in steps.ask(_CELLS(cells=union_all(*each)), [(*one, *[0] * figures) for one in some]):
            found[i, j] = counted
    return [tuple(tuple(found[i, j][number] for j in second) for i in first) for number in range(figures)]
