"""The figures of a check are those of the oracle, by whichever statement the engine counts them.

Small tables take the paths of large ones: counts of half of the classes, and of codes in packs. In one, persons are
counted, and several generalizations suppress as many rows as may be.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from oracles import oracle
from oracles.oracle import Levels
from oracles.score_bounds import at_most
from properties.prepared_tables import Prepared, prepared_table
from properties.small_tables import SmallTable, small_table
from sqlanon.measures import Figures
from sqlanon.strategies.lattice.checker import Checker, policy_measure, verdict_rules
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET

MANY_ROWS = {SMALL_SET: 5, COARSE_SET: 2, "sqlanon.frequency.sets.FIRST_SET_SHARE": 10, ROWS_PER_CODE: 1_000}
THRESHOLDS = {"rows": MANY_ROWS, "packs": MANY_ROWS | {ROWS_PER_CODE: 1}}


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("number", "size"), [(80, "packs"), (39, "rows"), pytest.param(64, "rows", marks=pytest.mark.slow)]
)
def test_figures_are_those_of_the_oracle(number: int, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, threshold in THRESHOLDS[size].items():
        monkeypatch.setattr(name, threshold)
    table = small_table(number)
    with prepared_table(table, remembers=False) as prepared:
        search_input = prepared._prepared
        measure = policy_measure(search_input)
        engine: Any = prepared._steps.engine
        halving = Checker(engine, search_input, measure, lambda _: math.inf, lambda: True)
        several = [*table.generalizations][::2]
        shares = set()
        for levels in several:
            figures = halving(levels)
            shares.add(figures.counted_share)
            check(table, prepared, levels, figures)
        assert shares == ({1.0} if table.source.person else {0.5, 1.0})


def check(table: SmallTable, prepared: Prepared, levels: Levels, figures: Figures) -> None:
    release, search_input = table.generalizations[levels], prepared._prepared
    limit = search_input.limit
    satisfying = {figures.levels for figures in table.satisfying}
    verdict = verdict_rules(search_input).draw_verdict(figures, limit.rows)
    assert not verdict.infeasible_below or not any(at_most(low, levels) for low in satisfying), levels
    assert not verdict.feasible_above or all(
        high in satisfying for high in table.generalizations if at_most(levels, high)
    )
    if figures.counted_share < 1:
        assert limit.rows < figures.suppressed_rows <= release.suppressed and verdict.infeasible_below
        return
    assert (figures.classes, figures.suppressed_rows) == (len(release.kept), release.suppressed), levels
    assert verdict.is_feasible == (levels in satisfying)
    if table.source.person is not None and release.suppressed <= limit.rows:
        assert figures.suppressed_persons == release.suppressed_persons
    if verdict.is_feasible:
        sign = -1 if table.case.measure in oracle.MAXIMISED else 1
        assert policy_measure(search_input).score(levels, figures) == pytest.approx(sign * table.score(levels))
