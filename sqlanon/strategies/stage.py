"""The search stage: find the best generalization or local recoding of a source."""

from __future__ import annotations

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies.build import EXAMPLE_LEAVES
from sqlanon.measures import Figures
from sqlanon.strategies.examples import example_levels
from sqlanon.strategies.lattice.candidate import candidate_query
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.task import SearchTask
from sqlanon.strategies.registry import requested_strategy, run_strategy


def run_search(runner: StatementRunner, search_input: SearchInput, progress: Progress) -> SearchResult:
    """Search with the policy's strategy. A dry run shows one check as an example of all."""
    search = search_input.policy.search
    if runner.dry and not search.is_local:
        levels = example_levels(search_input.policy, search_input.marginals.heights)
        runner.record(candidate_query(search_input.frequency_sets.class_space(levels), levels))
        result = SearchResult(Figures(1, 1), 0.0, 0.0, optimal=False, levels=levels)
    else:
        result = run_strategy(SearchTask(runner, search_input, progress), requested_strategy(search))
    note = "a check like this for every generalization that bounds leave open"
    if search.is_local:
        note = f"rounds over the combinations and the nodes of the hierarchies (here: {EXAMPLE_LEAVES} a level)"
    cells = ", then cells are blanked" if search.suppression == "cells" else ""
    runner.finish_stage("search", f"strategy {search.strategy}{cells}: {note}")
    return result
