"""Time limits for jobs: statements are interrupted when the time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import TIMEOUT_MAX, Event, Thread

import duckdb

from sqlanon.engines.base import Queryable
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import InfeasibleError, OvertimeError

InterruptedStatementError = duckdb.InterruptException
"""The error that an interrupted statement raises."""


@contextmanager
def interrupt_after(
    seconds: float | None, engines: Sequence[Queryable], may_stop: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Interrupt the statements of DuckDB engines, and those that they send to a server, when the time is over.

    They are interrupted repeatedly while ``may_stop`` is true.

    Raises `OvertimeError` for the job that was interrupted.
    """
    if seconds is None:
        yield
        return
    interruptible = {id(engine): engine for engine in engines if isinstance(engine, DuckDBEngine)}
    done, late = Event(), Event()

    def watch() -> None:
        if done.wait(min(seconds, TIMEOUT_MAX)):
            return
        late.set()
        while not done.wait(0.05):
            for engine in interruptible.values() if may_stop() else ():
                with suppress(duckdb.Error):
                    engine.interrupt()

    watcher = Thread(target=watch, name="sqlanon-deadline", daemon=True)
    watcher.start()
    try:
        yield
    except InfeasibleError:  # its message reports what the time was too short for
        raise
    except Exception as error:
        if late.is_set():
            raise OvertimeError(seconds) from error
        raise
    finally:
        done.set()
        watcher.join()
