"""Whether noise can be drawn, told before the search; and what draws it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlanon.noise.columns import columns_for_noise
from sqlanon.noise.drawn import Draw, Told, draws_here, draws_there
from sqlanon.noise.laplace import refuse_without_opendp
from sqlanon.noise.noisy_column import NoisyColumn
from sqlanon.noise.stage import Noised, add_noise
from sqlanon.pipeline import Chosen
from sqlanon.policy import Policy
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.run import Run

Drawer = Callable[[SearchInput, Chosen, Told], Noised]


def drawer(run: Run, policy: Policy) -> Drawer:
    """What draws the noise that a policy asks for, once all is chosen."""
    if run.source.workers is None:
        refuse_without_opendp(policy.noisy[0])
    columns = columns_for_noise(run.engine, policy, run.source)
    draw = _draws(run, columns)
    return lambda prepared, chosen, tell: add_noise(run.engine, prepared, chosen, columns, run.work, draw, tell)


def _draws(run: Run, columns: Sequence[NoisyColumn]) -> Draw:
    """How: where the records are."""
    if (workers := run.source.workers) is None:
        return draws_here(run.engine, columns, run.engine.limits.threads)
    return draws_there(run.engine, workers, columns, run.work)
