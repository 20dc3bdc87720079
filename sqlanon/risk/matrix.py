"""How many rows are unique at each level of two hierarchies: what a coarser area or date buys.

Source: the tables of the Hamburg slides (area level × date level). The other quasi-identifiers stay
as they are, at level 0: so a cell is the generalization with these two levels and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.coding import Coded, code_name, coded_values, value_counts
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, PolicyError, Problem
from sqlanon.expressions import aliased, all_of, col, named, same, template, union_all
from sqlanon.frequency.statements import quasi_columns, raw_frequency
from sqlanon.hierarchies import build_hierarchy
from sqlanon.policy import Policy
from sqlanon.risk.figures import Table
from sqlanon.risk.leakage import SMALL
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run

_NUMBERED_OTHERS = template("""
    SELECT :quasi, row_number() OVER () AS others
    FROM (SELECT :quasi FROM :raw GROUP BY :quasi) AS d
""")
_LEVELS = template("""
    SELECT o.others, :codes, r.n
    FROM :raw AS r
    JOIN :numbers AS o ON :same
""")
_LEVELS_ALONE = template("SELECT 0 AS others, :codes, r.n FROM :raw AS r")
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


def numbered_others(raw: exp.Table, others: int) -> exp.Select:
    """The distinct combinations of the first quasi-identifiers, ``q0, q1, ...``, with the number ``others``."""
    return _NUMBERED_OTHERS(quasi=quasi_columns(others), raw=raw)


def with_levels(raw: exp.Table, numbers: exp.Table | None, others: int, attributes: Sequence[Coded]) -> exp.Select:
    """The combinations with the codes of two attributes at all levels, and the number of the others'."""
    codes = [
        named(col(f"code_{level}", f"v{i}"), code_name(i, level))
        for i, attribute in enumerate(attributes)
        for level in range(attribute.height)
    ]
    if numbers is None:
        query = _LEVELS_ALONE(codes=codes, raw=raw)
    else:
        on = all_of(same(col(f"q{i}", "r"), col(f"q{i}", "o")) for i in range(others))
        query = _LEVELS(codes=codes, raw=raw, numbers=numbers, same=on)
    for i, attribute in enumerate(attributes):
        on = same(col(f"q{others + i}", "r"), col("value", f"v{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"v{i}"), on=on, copy=False)
    return query


def uniques(rows: exp.Table, heights: Sequence[int], cells: Sequence[tuple[int, int]]) -> exp.Select:
    """For each cell ``i``, ``j``, the rows that are ``uniques`` at these levels."""
    each = []
    for cell in cells:
        below = [(i, level) for i, level in enumerate(cell) if level < heights[i]]
        keys = [col("others"), *(col(code_name(i, level)) for i, level in below)]
        each.append(_CELL(i=cell[0], j=cell[1], rows=rows, keys=keys))
    return _CELLS(cells=union_all(*each))


def row_count(raw: exp.Table) -> exp.Select:
    """One number: the rows of the source."""
    return _ROW_COUNT(raw=raw)


def uniques_matrix(run: Run, policy: Policy, first: str, second: str, shown: list[str] | None = None) -> UniquesMatrix:
    """Count the unique rows at each level of two attributes."""
    first, second = _chosen(policy, first, second)
    steps, work, columns = StatementRunner(run.engine, shown), run.work, match_columns(policy, run.source)
    others = [name for name in (*policy.generalized, *policy.noisy) if name not in (first, second)]
    quasi = [columns.by_attribute[name] for name in (*others, first, second)]
    raw = steps.make(work("raw"), raw_frequency(run.source.relation, quasi))
    problems: list[Problem] = []
    attributes = [_coded(steps, run, policy, name, len(others) + i, problems) for i, name in enumerate((first, second))]
    if problems:
        raise HierarchyError(problems)
    two = [one for one in attributes if one is not None]
    numbers = steps.make(work("others"), numbered_others(raw, len(others))) if others else None
    rows = steps.make(work("levels"), with_levels(raw, numbers, len(others), two))
    heights = [one.height for one in two]
    cells = [(i, j) for i in range(heights[0] + 1) for j in range(heights[1] + 1)]
    found = _count(steps, rows, heights, cells)
    total = int(steps.ask(row_count(raw), [(0,)])[0][0])
    matrix = tuple(tuple(found[i, j] for j in range(heights[1] + 1)) for i in range(heights[0] + 1))
    return UniquesMatrix((first, second), total, matrix)


def _chosen(policy: Policy, first: str, second: str) -> tuple[str, str]:
    """The two attributes as the policy spells them, whatever the case."""
    there = {name.lower(): name for name in policy.generalized}
    named = ", ".join(policy.generalized)
    problems = [
        Problem("--matrix", f"{name!r} is no quasi-identifier with a hierarchy: choose two of {named}")
        for name in dict.fromkeys((first, second))
        if name.lower() not in there
    ]
    if first.lower() == second.lower():
        problems.append(Problem("--matrix", f"needs two attributes, and both are {first!r}"))
    if problems:
        raise PolicyError(problems)
    return there[first.lower()], there[second.lower()]


def _coded(
    steps: StatementRunner, run: Run, policy: Policy, name: str, place: int, problems: list[Problem]
) -> Coded | None:
    """Make an attribute's hierarchy and its coded values."""
    spec, work, column = policy.attributes[name], run.work, f"q{place}"
    values = steps.make(work(f"values_{place}"), value_counts(work("raw"), column, counted=True))
    rules, target = spec.hierarchy or (), work(f"hierarchy_{place}")
    type_ = run.source.columns[match_columns(policy, run.source).by_attribute[name]]
    hierarchy, found = build_hierarchy(steps, name, rules, values, type_, target, spec.on_unknown)
    problems += found
    if hierarchy is None:
        return None
    height, top = hierarchy.height, hierarchy.top or ""
    coded = steps.make(work(f"coded_{place}"), coded_values(values, target, height, top, nullable=True))
    return Coded(column, height, coded, nullable=True)


def _count(
    steps: StatementRunner, rows: exp.Table, heights: Sequence[int], cells: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """The unique rows of each cell; of a large table cell by cell: together they would take the memory of all."""
    step = 1 if steps.count(rows) > SMALL else len(cells)
    found = {}
    for start in range(0, len(cells), step):
        some = cells[start : start + step]
        for i, j, n in steps.ask(uniques(rows, heights, some), [(*cell, 0) for cell in some]):
            found[i, j] = n
    return found
