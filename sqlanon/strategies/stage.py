"""The stage search: the best version of a source."""

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


def run_search(steps: StatementRunner, prepared: SearchInput, progress: Progress) -> SearchResult:
    """Find the best version of a prepared source with the policy's strategy; in a dry run one check stands for all."""
    asked, task = prepared.policy.search, SearchTask(steps, prepared, progress)
    result = (
        _example(steps, prepared) if steps.dry and not asked.is_local else run_strategy(task, requested_strategy(asked))
    )
    note = "a check like this for every generalization that bounds leave open"
    if asked.is_local:
        note = f"rounds over the combinations and the nodes of the hierarchies (here: {EXAMPLE_LEAVES} a level)"
    cells = ", then cells are blanked" if asked.suppression == "cells" else ""
    steps.finish("search", f"strategy {asked.strategy}{cells}: {note}")
    return result


def _example(steps: StatementRunner, prepared: SearchInput) -> SearchResult:
    """The check, and the version that a plan shows."""
    levels = example_levels(prepared.policy, prepared.marginals.heights)
    steps.show(candidate_query(prepared.frequency_sets.at(levels), levels))
    return SearchResult(Figures(1, 1), 0.0, 0.0, optimal=False, levels=levels)
