"""How many rows are unique at each level of two hierarchies: what a coarser area or date buys.

Source: the tables of the Hamburg slides (area level × date level). The other quasi-identifiers stay
as they are, at level 0: so a cell is the generalization with these two levels and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.coding import Coded, code_name, coded_values, value_counts
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, PolicyError, Problem
from sqlanon.expressions import aliased, all_of, col, named, same, template, union_all
from sqlanon.frequency.statements import quasi_columns, raw_frequency
from sqlanon.hierarchies import build_hierarchy
from sqlanon.policy import Policy
from sqlanon.records import dataclass
from sqlanon.risk.figures import Table
from sqlanon.risk.leakage import SMALL
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run

_NUMBERED_OTHERS = template("""
    SELECT :quasi, row_number() OVER () AS others
    FROM (SELECT :quasi FROM :raw GROUP BY :quasi) AS d
""")
_LEVELS = template("SELECT :others AS others, :codes, r.n FROM :raw AS r")
_CELL = template("""
    SELECT :i AS i, :j AS j, count(*) AS uniques
    FROM (SELECT 1 AS one FROM :rows GROUP BY :keys HAVING sum(n)::BIGINT = 1) AS g
""")
_CELLS = template("SELECT * FROM :cells AS cells")
_ROW_COUNT = template("SELECT coalesce(sum(n)::BIGINT, 0) FROM :raw")


@dataclass(frozen=True)
class UniquesMatrix:
    """Unique rows by two levels.

    Attributes
    ----------
    attributes:
        The two attributes.
    rows:
        The rows of the source.
    uniques:
        ``uniques[i][j]``: the rows that are alone in their class with the first attribute at level i, the second at j.
    """

    attributes: tuple[str, str]
    rows: int
    uniques: tuple[tuple[int, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"attributes": list(self.attributes), "rows": self.rows, "uniques": [list(row) for row in self.uniques]}

    @property
    def table(self) -> Table:
        """One row a cell: both levels, and the unique rows."""
        columns = {"first_level": "INTEGER", "second_level": "INTEGER", "uniques": "BIGINT"}
        return columns, [(i, j, n) for i, row in enumerate(self.uniques) for j, n in enumerate(row)]


def uniques_matrix(run: Run, policy: Policy, first: str, second: str, shown: list[str] | None = None) -> UniquesMatrix:
    """Count the unique rows at each level of two attributes."""
    first, second = _chosen(policy, first, second)
    steps, work, columns = StatementRunner(run.engine, shown), run.work, match_columns(policy, run.source)
    others = [name for name in (*policy.generalized, *policy.noisy) if name not in (first, second)]
    quasi = [columns.by_attribute[name] for name in (*others, first, second)]
    raw = steps.make(work("raw"), raw_frequency(run.source.relation, quasi))
    two, problems = list[Coded](), list[Problem]()
    for place, name in enumerate((first, second), len(others)):
        spec, type_ = policy.attributes[name], run.source.columns[columns.by_attribute[name]]
        values = steps.make(work(f"values_{place}"), value_counts(raw, f"q{place}", counted=True))
        target, rules = work(f"hierarchy_{place}"), spec.hierarchy or ()
        hierarchy, found = build_hierarchy(steps, name, rules, values, type_, target, spec.on_unknown)
        problems += found
        if hierarchy is not None:
            query = coded_values(values, target, hierarchy.height, hierarchy.top or "", nullable=True)
            two.append(Coded(f"q{place}", hierarchy.height, steps.make(work(f"coded_{place}"), query), nullable=True))
    if problems:
        raise HierarchyError(problems)
    numbers = None
    if others:
        numbered = _NUMBERED_OTHERS(quasi=quasi_columns(len(others)), raw=raw)
        numbers = steps.make(work("others"), numbered)
    rows = steps.make(work("levels"), _with_levels(raw, numbers, len(others), two))
    heights = [one.height for one in two]
    uniques = _count(steps, rows, heights)
    total = int(steps.ask(_ROW_COUNT(raw=raw), [(0,)])[0][0])
    matrix = tuple(tuple(uniques[i, j] for j in range(heights[1] + 1)) for i in range(heights[0] + 1))
    return UniquesMatrix((first, second), total, matrix)


def _with_levels(raw: exp.Table, numbers: exp.Table | None, others: int, attributes: Sequence[Coded]) -> exp.Select:
    """The combinations with the codes of two attributes at all levels, and the number of the others'."""
    codes = [
        named(col(f"code_{level}", f"v{i}"), code_name(i, level))
        for i, attribute in enumerate(attributes)
        for level in range(attribute.height)
    ]
    query = _LEVELS(others=0 if numbers is None else col("others", "o"), codes=codes, raw=raw)
    if numbers is not None:
        on = all_of(same(col(f"q{i}", "r"), col(f"q{i}", "o")) for i in range(others))
        query = query.join(aliased(numbers, "o"), on=on, copy=False)
    for i, attribute in enumerate(attributes):
        on = same(col(f"q{others + i}", "r"), col("value", f"v{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"v{i}"), on=on, copy=False)
    return query


def _chosen(policy: Policy, first: str, second: str) -> tuple[str, str]:
    """The two attributes as the policy spells them, whatever the case."""
    there = {name.lower(): name for name in policy.generalized}
    named = ", ".join(policy.generalized)
    problems = [
        Problem("--matrix", f"{name!r} is not a quasi-identifier with a hierarchy: choose two of {named}")
        for name in dict.fromkeys((first, second))
        if name.lower() not in there
    ]
    if first.lower() == second.lower():
        problems.append(Problem("--matrix", f"needs two attributes, and both are {first!r}"))
    if problems:
        raise PolicyError(problems)
    return there[first.lower()], there[second.lower()]


def _count(steps: StatementRunner, rows: exp.Table, heights: Sequence[int]) -> dict[tuple[int, int], int]:
    """The unique rows of each cell; of a large table cell by cell: together they would take the memory of all."""
    cells = [(i, j) for i in range(heights[0] + 1) for j in range(heights[1] + 1)]
    step = 1 if steps.count(rows) > SMALL else len(cells)
    found = {}
    for start in range(0, len(cells), step):
        some, each = cells[start : start + step], []
        for cell in some:
            below = [(i, level) for i, level in enumerate(cell) if level < heights[i]]
            keys = [col("others"), *(col(code_name(i, level)) for i, level in below)]
            each.append(_CELL(i=cell[0], j=cell[1], rows=rows, keys=keys))
        for i, j, n in steps.ask(_CELLS(cells=union_all(*each)), [(*cell, 0) for cell in some]):
            found[i, j] = n
    return found
