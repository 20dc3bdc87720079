"""Noise drawn where the records are: here, or by the workers of Spark.

Only the numbers of records get to what draws: no private value does. What was drawn is kept, and never drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from sqlglot import exp

from sqlanon.engines.base import Engine, WorkEngine, Workers
from sqlanon.errors import SourceError
from sqlanon.expressions import Namer, col, drop_table, select
from sqlanon.noise.laplace import Drawing, drawing
from sqlanon.noise.noisy_column import NoisyColumn
from sqlanon.noise.statements import drawn_columns, one_record, undrawn

Told = Callable[[int, int], None]
"""Told the records that wait for noise, and those that have it."""

Draw: TypeAlias = Callable[[exp.Table, exp.Table, int, Told], None]
"""Makes a table of noise, by its name, for the records of a table, which are so many."""


def draws_here(engine: WorkEngine, columns: Sequence[NoisyColumn], threads: int | None = None) -> Draw:
    """How noise is drawn beside us, on so many threads at most (default: as many as there are processors)."""

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Told) -> None:
        done = 0

        def tell(more: int) -> None:
            nonlocal done
            done += more
            progress(count - done, done)

        progress(count, 0)
        with Drawing(count, [one.epsilon for one in columns], tell, threads) as found:
            engine.copy_arrow(target.copy(), found.reader)

    return draw


def draws_there(engine: Engine, workers: Workers, columns: Sequence[NoisyColumn], work: Namer) -> Draw:
    """How noise is drawn by workers, once it has drawn some for a record that there is not."""
    put = partial(_put, engine, workers, columns)
    probe = work("noise_probe")
    put(probe, one_record())
    engine.execute(drop_table(probe))

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Told) -> None:
        progress(count, 0)
        put(target, select([col("record")], records.copy()))
        progress(0, count)

    return draw


def _put(
    engine: Engine, workers: Workers, columns: Sequence[NoisyColumn], target: exp.Table, records: exp.Select
) -> None:
    function = drawing([one.epsilon for one in columns])
    workers.map_there(target.copy(), records, function, dict(drawn_columns(columns)))
    if engine.rows(undrawn(target))[0][0]:
        raise SourceError(
            f"{workers.place}: noise is drawn by OpenDP in the workers of Spark, and there it is not "
            "installed: pip install opendp for the Python that they use (spark.pyspark.python)"
        )
