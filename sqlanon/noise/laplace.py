"""Noise that can be trusted: whole numbers of the discrete Laplace distribution, drawn by OpenDP.

Floating-point formulas for Laplace noise leave gaps that tell values apart (I. Mironov, "On significance of the least
significant bits for differential privacy", CCS 2012). OpenDP draws exactly, from the operating system's generator; it
has no seed, and neither have we. What is drawn is noise alone: no private value is needed, and none gets here.
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
"""So many records at a time: a tenth of a second, and less than a megabyte."""


def refuse_without_opendp(attribute: str) -> None:
    """Say at once that the library is missing."""
    try:
        import_module("opendp.prelude")
    except ImportError:
        message = "noise needs opendp, which is not installed; in the checkout of sqlanon, run: pip install '.[dp]'"
        raise PolicyError([Problem(f"attributes.{attribute}.noise", message)]) from None


def laplace_mechanism(epsilon: float) -> Callable[[list[int]], list[int]]:
    """The mechanism: adds noise to whole numbers, so that any two that are `STEPS` apart are ε-indistinguishable.

    The scale is that of OpenDP's own accounting: ``laplace(epsilon).map(STEPS)`` is at most ε.
    """
    dp: Any = import_module("opendp.prelude")
    dp.enable_features("contrib")  # its name for what was not proven by a second party; the discrete sampler is exact
    domain = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    scale = STEPS / epsilon
    while True:
        mechanism = dp.m.make_laplace(*domain, scale=scale)
        if mechanism.map(STEPS) <= epsilon:
            return mechanism  # type: ignore[no-any-return]  # what OpenDP gives has no type
        scale = math.nextafter(scale, math.inf)


def batch_noise_drawer(
    epsilons: Sequence[float],
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """What draws noise elsewhere: makes of batches of ``record`` others, with ``n_j`` for each ε.

    It is sent there by its text: it needs pyarrow and OpenDP, and nothing else of ours than this module. Where there is
    no OpenDP, ``n_j`` is NULL.
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
    """Noise for records, as it is drawn. A context manager: what ends the drawing is raised when it is left.

    (The engine that reads the batches would make an error of its own of it, of Ctrl-C too.)
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
        """``record`` (from 1) and ``n_j`` for each ε, a batch at a time."""
        return pyarrow.RecordBatchReader.from_batches(self._schema, self._watched())

    def __enter__(self) -> NoiseDrawing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._error is not None:
            raise self._error from None

    def _watched(self) -> Iterator[pyarrow.RecordBatch]:
        try:
            yield from self._batches()
        except GeneratorExit:
            raise
        except BaseException as error:
            self._error = error
            raise

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        with ThreadPoolExecutor(self._threads) as pool:  # OpenDP lets go of the interpreter while it draws
            ahead: deque[Future[pyarrow.RecordBatch]] = deque()
            for start in range(1, self._records + 1, BATCH):
                ahead.append(pool.submit(self._draw, start))
                if len(ahead) > self._threads:
                    yield from self._next(ahead)
            while ahead:
                yield from self._next(ahead)

    def _next(self, ahead: deque[Future[pyarrow.RecordBatch]]) -> Iterator[pyarrow.RecordBatch]:
        batch = ahead.popleft().result()
        self._progress(batch.num_rows)
        yield batch

    def _draw(self, start: int) -> pyarrow.RecordBatch:
        count = min(BATCH, self._records + 1 - start)
        noise = [mechanism([0] * count) for mechanism in self._mechanisms]
        return pyarrow.record_batch([range(start, start + count), *noise], schema=self._schema)
