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
from sqlanon.expressions import Namer, drop_table, template
from sqlanon.noise.laplace import Drawing, drawing
from sqlanon.noise.statements import NoisyColumn, drawn_columns, one_record, undrawn

Progress = Callable[[int, int], None]
"""Reports the records that wait for noise, and those that have it."""

Draw: TypeAlias = Callable[[exp.Table, exp.Table, int, Progress], None]
"""Makes a table of noise, by its name, for the records of a table, which are so many."""


def draws_here(engine: WorkEngine, columns: Sequence[NoisyColumn], threads: int | None = None) -> Draw:
    """How noise is drawn beside us, on so many threads at most (default: as many as there are processors)."""

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Progress) -> None:
        done = 0

        def add(more: int) -> None:
            nonlocal done
            done += more
            progress(count - done, done)

        progress(count, 0)
        with Drawing(count, [one.epsilon for one in columns], add, threads) as found:
            engine.copy_arrow(target, found.reader)

    return draw


_RECORD = template("SELECT record FROM :records")


def draws_there(engine: Engine, workers: Workers, columns: Sequence[NoisyColumn], work: Namer) -> Draw:
    """How noise is drawn by workers, once it has drawn some for a record that there is not."""
    put = partial(_put, engine, workers, columns)
    probe = work("noise_probe")
    put(probe, one_record())
    engine.execute(drop_table(probe))

    def draw(target: exp.Table, records: exp.Table, count: int, progress: Progress) -> None:
        progress(count, 0)
        put(target, _RECORD(records=records))
        progress(0, count)

    return draw


def _put(
    engine: Engine, workers: Workers, columns: Sequence[NoisyColumn], target: exp.Table, records: exp.Select
) -> None:
    function = drawing([one.epsilon for one in columns])
    workers.map_there(target, records, function, dict(drawn_columns(columns)))
    if engine.rows(undrawn(target))[0][0]:
        raise SourceError(
            f"{workers.place}: noise is drawn by OpenDP in the workers of Spark, and there it is not "
            "installed: pip install opendp for the Python that they use (spark.pyspark.python)"
        )
