"""What noise would do, before any is drawn: the errors that are to be expected with several ε."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlanon.noise.stage import noise_classes, of_epsilon
from sqlanon.policy import Policy
from sqlanon.queries import noise
from sqlanon.queries.names import Namer
from sqlanon.queries.noise import NoisyColumn
from sqlanon.queries.recode import ByClass
from sqlanon.steps import Steps

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

Forecast = Mapping[str, Sequence[Mapping[str, Any]]]
"""By attribute a list, one for each ε: ``epsilon``, ``expected_relative_error``, ``expected_error``."""


def forecast(
    steps: Steps,
    policy: Policy,
    recoding: ByClass,
    columns: tuple[NoisyColumn, ...],
    epsilons: Sequence[float],
    work: Namer,
) -> Forecast:
    """The errors that are to be expected in the classes of a recoding.

    Makes ``noise_records`` and ``noise_classes`` in the work schema.
    """
    _, classes = noise_classes(steps, recoding, columns, work)
    expected = steps.figures(noise.expected_errors(classes, columns))
    return {
        name: [{"epsilon": epsilon, **of_epsilon(one, j, expected, epsilon)} for epsilon in epsilons]
        for j, (name, one) in enumerate(zip(policy.noisy, columns, strict=True))
    }
