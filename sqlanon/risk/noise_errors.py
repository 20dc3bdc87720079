"""Estimates of the errors of noise for several ε, to choose one. No noise is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.noise.columns import noisy_columns
from sqlanon.noise.stage import create_noise_classes, expected_errors_for
from sqlanon.noise.statements import NoisyColumn, expected_errors
from sqlanon.policy import Policy
from sqlanon.recode.stage import Recoding
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

NoiseRisk = Mapping[str, Sequence[Mapping[str, Any]]]
"""By attribute a list, one for each ε: ``epsilon``, ``expected_relative_error``, ``expected_error``."""


def refuse_epsilons(policy: Policy, epsilons: Sequence[float]) -> None:
    """Refuse an invalid ε, and any ε if no attribute gets noise."""
    problems = [
        Problem("epsilon", f"must be more than 0, and {epsilon:g} is not")
        for epsilon in epsilons
        if not (math.isfinite(epsilon) and epsilon > 0)
    ]
    if epsilons and not policy.noisy_attributes:
        problems.append(Problem("epsilon", "is for attributes with noise, and the policy has none"))
    if problems:
        raise PolicyError(problems, "the arguments")


def estimate_noise_errors(
    runner: StatementRunner,
    search_input: SearchInput,
    recoding: Recoding,
    columns: tuple[NoisyColumn, ...],
    epsilons: Sequence[float],
) -> NoiseRisk:
    """Estimate the errors of noise in the classes of a generalization."""
    _, classes = create_noise_classes(runner, recoding.statement, columns, search_input.work)
    expected = runner.fetch_figures(expected_errors(classes, columns))
    return {
        name: [
            {"epsilon": epsilon, **expected_errors_for(epsilon, column, j, expected)}
            for epsilon in epsilons or EPSILONS
        ]
        for j, (name, column) in enumerate(zip(search_input.policy.noisy_attributes, columns, strict=True))
    }


def show_noise_errors(runner: StatementRunner, run: Run, policy: Policy) -> None:
    """Record the statement of the estimates, over the classes with noise that `plan` creates."""
    runner.fetch_figures(expected_errors(run.work("noise_classes"), noisy_columns(policy, run.source)))
