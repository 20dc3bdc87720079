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
from typing import Any

import pyarrow

from sqlanon.errors import PolicyError, Problem
from sqlanon.queries.noise import STEPS

BATCH = 50_000
"""So many records at a time: some tenths of a second, and a few megabytes."""


def refuse_without_opendp(attribute: str) -> None:
    """Say at once that the library is missing.

    Raises
    ------
    PolicyError
        At the first attribute that asks for noise.
    """
    try:
        import_module("opendp.prelude")
    except ImportError:
        message = "noise is drawn by OpenDP, which is not installed: pip install 'sqlanon[dp]'"
        raise PolicyError([Problem(f"attributes.{attribute}.noise", message)]) from None


def laplace(epsilon: float) -> Callable[[list[int]], list[int]]:
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
            return mechanism  # type: ignore[no-any-return]
        scale = math.nextafter(scale, math.inf)


def drawn(records: int, epsilons: Sequence[float], progress: Callable[[int], None]) -> pyarrow.RecordBatchReader:
    """Noise for so many records: ``record`` (from 1) and ``n_j`` for each ε, as it is drawn, a batch at a time.

    Parameters
    ----------
    records, epsilons:
        For how many, and of which ε.
    progress:
        Told how many are done.
    """
    schema = pyarrow.schema([("record", pyarrow.int64()), *((f"n_{j}", pyarrow.int64()) for j in range(len(epsilons)))])
    return pyarrow.RecordBatchReader.from_batches(schema, _batches(schema, records, epsilons, progress))


def _batches(
    schema: pyarrow.Schema, records: int, epsilons: Sequence[float], progress: Callable[[int], None]
) -> Iterator[pyarrow.RecordBatch]:
    mechanisms = [laplace(epsilon) for epsilon in epsilons]
    starts = range(1, records + 1, BATCH)
    workers = os.cpu_count() or 1

    def draw(start: int) -> pyarrow.RecordBatch:
        count = min(BATCH, records + 1 - start)
        noise = [mechanism([0] * count) for mechanism in mechanisms]
        return pyarrow.record_batch([range(start, start + count), *noise], schema=schema)

    with ThreadPoolExecutor(workers) as pool:  # OpenDP lets go of the interpreter while it draws
        ahead: deque[Future[pyarrow.RecordBatch]] = deque()
        for start in starts:
            ahead.append(pool.submit(draw, start))
            if len(ahead) > workers:
                yield from _next(ahead, progress)
        while ahead:
            yield from _next(ahead, progress)


def _next(ahead: deque[Future[pyarrow.RecordBatch]], progress: Callable[[int], None]) -> Iterator[pyarrow.RecordBatch]:
    batch = ahead.popleft().result()
    progress(batch.num_rows)
    yield batch
