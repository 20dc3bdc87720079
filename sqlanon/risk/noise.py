"""The errors that noise would make, for several ε, so that one can be chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlanon.anonymization import anonymize
from sqlanon.errors import InfeasibleError, PolicyError, Problem
from sqlanon.noise.columns import columns_for_noise, noisy_columns
from sqlanon.noise.forecast import EPSILONS, Forecast, forecast
from sqlanon.policy import Policy
from sqlanon.preparation import prepare
from sqlanon.queries import noise
from sqlanon.steps import Steps
from sqlanon.workspace import Run


def assess_noise(run: Run, policy: Policy, epsilons: Sequence[float]) -> Forecast | None:
    """The errors in the classes of the version that the policy's search finds; None where it finds none.

    Raises
    ------
    PolicyError
        An ε is none.
    SourceError, HierarchyError
        The source does not fit the policy, or a hierarchy is no tree over its values.
    """
    wrong = [epsilon for epsilon in epsilons if not (math.isfinite(epsilon) and epsilon > 0)]
    if wrong:
        raise PolicyError([Problem("epsilon", f"must be more than 0, and {one:g} is not") for one in wrong])
    columns = columns_for_noise(run.engine, policy, run.source)
    try:
        prepared = prepare(run.engine, policy, run.source, run.work, run.population)
        found = anonymize(run.engine, prepared, run.work, lambda open_, checked, best: None)
    except InfeasibleError:
        return None
    return forecast(Steps(run.engine), policy, found.chosen.recoding, columns, epsilons or EPSILONS, run.work)


def noise_risk_statement(run: Run, policy: Policy, shown: list[str]) -> None:
    """Show the statement behind the errors, over the classes with noise that `plan` makes."""
    steps, columns = Steps(run.engine, shown), noisy_columns(policy, run.source)
    steps.figures(noise.expected_errors(run.work("noise_classes"), columns))
