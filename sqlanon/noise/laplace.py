"""Integer noise of the discrete Laplace distribution, sampled by OpenDP.

Floating-point formulas for Laplace noise leave gaps that reveal values (I. Mironov, "On significance of the least
significant bits for differential privacy", CCS 2012). OpenDP samples exactly, from the operating system's generator.
Neither OpenDP nor sqlanon has a seed. The sampler never receives private values.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from types import TracebackType
from typing import Any

import pyarrow

from sqlanon.errors import PolicyError, Problem
from sqlanon.noise.statements import STEPS

BATCH = 10_000
"""Records of a batch: a tenth of a second, and less than a megabyte."""


def refuse_without_opendp(attribute: str) -> None:
    """Refuse noise if OpenDP is not installed."""
    try:
        import_module("opendp.prelude")
    except ImportError:
        message = "noise needs opendp, which is not installed; in the checkout of sqlanon, run: pip install '.[dp]'"
        raise PolicyError([Problem(f"attributes.{attribute}.noise", message)]) from None


def laplace_mechanism(epsilon: float) -> Callable[[list[int]], list[int]]:
    """The mechanism that adds noise to integers, so that any two that are `STEPS` apart are ε-indistinguishable.

    Its scale is the least for which OpenDP's accounting, ``mechanism.map(STEPS)``, is at most ε.
    """
    dp: Any = import_module("opendp.prelude")
    dp.enable_features("contrib")  # unproven by a second party; the discrete sampler is exact
    domain = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    scale = STEPS / epsilon
    while True:
        mechanism = dp.m.make_laplace(*domain, scale=scale)
        if mechanism.map(STEPS) <= epsilon:
            return mechanism  # type: ignore[no-any-return]  # OpenDP has no types
        scale = math.nextafter(scale, math.inf)


def batch_noise_drawer(
    epsilons: Sequence[float],
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Return a function that maps batches of `record` to batches with noise columns; it runs on Spark workers.

    The columns are ``n_j`` for each ε, NULL if OpenDP is not installed. The function is pickled with this module, so
    workers need pyarrow and OpenDP, but not sqlanon.
    """

    def draw(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        mechanisms: Sequence[Callable[[list[int]], Sequence[int | None]]]
        try:
            mechanisms = [laplace_mechanism(epsilon) for epsilon in epsilons]
        except ImportError:
            mechanisms = [lambda zeros: [None] * len(zeros) for _ in epsilons]
        names = ["record", *(f"n_{j}" for j in range(len(epsilons)))]
        for batch in batches:
            zeros = [0] * batch.num_rows
            drawn = [pyarrow.array(mechanism(zeros) if zeros else [], pyarrow.int64()) for mechanism in mechanisms]
            yield pyarrow.RecordBatch.from_arrays([batch.column(0), *drawn], names)

    return draw


class NoiseDrawing:
    """Noise for records, drawn while an engine reads it.

    A context manager, which raises an error of the sampler (or Ctrl-C) on exit: the engine that reads the batches would
    raise its own error instead.
    """

    def __init__(
        self, records: int, epsilons: Sequence[float], progress: Callable[[int], None], threads: int | None = None
    ) -> None:
        self._records, self._progress = records, progress
        self._threads = threads or os.cpu_count() or 1
        self._mechanisms = [laplace_mechanism(epsilon) for epsilon in epsilons]
        self._schema = pyarrow.schema(
            [("record", pyarrow.int64()), *((f"n_{j}", pyarrow.int64()) for j in range(len(epsilons)))]
        )
        self._error: BaseException | None = None

    @property
    def reader(self) -> pyarrow.RecordBatchReader:
        """Batches of ``record`` (from 1) and ``n_j`` for each ε."""
        return pyarrow.RecordBatchReader.from_batches(self._schema, self._read_batches())

    def __enter__(self) -> NoiseDrawing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._error is not None:
            raise self._error from None

    def _read_batches(self) -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from self._draw_batches()
        except GeneratorExit:
            raise
        except BaseException as error:
            self._error = error
            raise

    def _draw_batches(self) -> Iterator[pyarrow.RecordBatch]:
        with ThreadPoolExecutor(self._threads) as pool:  # OpenDP releases the GIL while it samples
            pending: deque[Future[pyarrow.RecordBatch]] = deque()
            for start in range(1, self._records + 1, BATCH):
                pending.append(pool.submit(self._draw_batch, start))
                if len(pending) > self._threads:
                    yield from self._finish_next(pending)
            while pending:
                yield from self._finish_next(pending)

    def _finish_next(self, pending: deque[Future[pyarrow.RecordBatch]]) -> Iterator[pyarrow.RecordBatch]:
        batch = pending.popleft().result()
        self._progress(batch.num_rows)
        yield batch

    def _draw_batch(self, start: int) -> pyarrow.RecordBatch:
        count = min(BATCH, self._records + 1 - start)
        noise = [mechanism([0] * count) for mechanism in self._mechanisms]
        return pyarrow.record_batch([range(start, start + count), *noise], schema=self._schema)
