"""Whether noise can be drawn, told before the search; and what draws it afterwards."""

from __future__ import annotations

from collections.abc import Callable

from sqlanon.anonymization import Chosen
from sqlanon.noise.columns import columns_for_noise
from sqlanon.noise.laplace import refuse_without_opendp
from sqlanon.noise.stage import Noised, Told, add_noise
from sqlanon.policy import Policy
from sqlanon.preparation import Prepared
from sqlanon.workspace import Run

Drawer = Callable[[Prepared, Chosen, Told], Noised]


def drawer(run: Run, policy: Policy) -> Drawer:
    """What draws the noise that a policy asks for, once all is chosen.

    Raises
    ------
    PolicyError
        The library that draws it is missing.
    SourceError
        No noise can be added to a column.
    """
    refuse_without_opendp(policy.noisy[0])
    columns, threads = columns_for_noise(run.engine, policy, run.source), run.engine.limits.threads
    return lambda prepared, chosen, tell: add_noise(run.engine, prepared, chosen, columns, run.work, tell, threads)
