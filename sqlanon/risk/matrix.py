"""How many rows are unique at each level of two hierarchies: what a coarser area or date buys.

Source: the tables of the Hamburg slides (area level × date level). The other quasi-identifiers stay
as they are, at level 0: so a cell is the generalization with these two levels and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon import coding as cd
from sqlanon.coding import Coded
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, PolicyError, Problem
from sqlanon.frequency import statements as fq
from sqlanon.hierarchies import build_hierarchy
from sqlanon.policy import Policy
from sqlanon.risk import levels_matrix as lm
from sqlanon.risk.found import Table
from sqlanon.risk.sets import SMALL
from sqlanon.search.examples import example_height, show_hierarchy
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run


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
    raw = steps.make(work("raw"), fq.raw_frequency(run.source.relation, quasi))
    problems: list[Problem] = []
    attributes = [_coded(steps, run, policy, name, len(others) + i, problems) for i, name in enumerate((first, second))]
    if problems:
        raise HierarchyError(problems)
    two = [one for one in attributes if one is not None]
    numbers = steps.make(work("others"), lm.numbered_others(raw, len(others))) if others else None
    rows = steps.make(work("levels"), lm.with_levels(raw, numbers, len(others), two))
    heights = [one.height for one in two]
    cells = [(i, j) for i in range(heights[0] + 1) for j in range(heights[1] + 1)]
    found = _count(steps, rows, heights, cells)
    total = int(steps.ask(lm.row_count(raw), [(0,)])[0][0])
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
    values = steps.make(work(f"values_{place}"), cd.value_counts(work("raw"), column, counted=True))
    rules, target = spec.hierarchy or (), work(f"hierarchy_{place}")
    type_ = run.source.columns[match_columns(policy, run.source).by_attribute[name]]
    if steps.shown is None:
        hierarchy, found = build_hierarchy(steps.engine, name, rules, values, type_, target, spec.on_unknown)
        problems += found
        if hierarchy is None:
            return None
        height, top = hierarchy.height, hierarchy.top or ""
    else:
        show_hierarchy(steps, name, rules, values, type_, target)
        height, top = example_height(steps, rules), "*"
    coded = steps.make(work(f"coded_{place}"), cd.coded_values(values, target, height, top, nullable=True))
    return Coded(column, height, coded, nullable=True)


def _count(
    steps: StatementRunner, rows: exp.Table, heights: Sequence[int], cells: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """The unique rows of each cell; of a large table cell by cell: together they would take the memory of all."""
    step = 1 if steps.count(rows) > SMALL else len(cells)
    found = {}
    for start in range(0, len(cells), step):
        some = cells[start : start + step]
        for i, j, n in steps.ask(lm.uniques(rows, heights, some), [(*cell, 0) for cell in some]):
            found[i, j] = n
    return found
