"""An end for jobs that may take days: the statements of an engine are interrupted once their time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import TIMEOUT_MAX, Event, Thread

import duckdb

from sqlanon.engines.base import Queries
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import InfeasibleError, OvertimeError

InterruptedStatementError = duckdb.InterruptException
"""What an interrupted statement raises."""

_AGAIN = 0.05  # seconds between two interrupts


@contextmanager
def interrupt_after(
    seconds: float | None, engines: Sequence[Queries], may_stop: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Interrupt what engines are about once the time is over, again and again while it may stop: an `OvertimeError`."""
    if seconds is None:
        yield
        return
    connections = [engine.connection for engine in engines if isinstance(engine, DuckDBEngine)]
    done, late = Event(), Event()

    def watch() -> None:
        if done.wait(min(seconds, TIMEOUT_MAX)):
            return
        late.set()
        while not done.wait(_AGAIN):
            for connection in connections if may_stop() else ():
                with suppress(duckdb.Error):
                    connection.interrupt()

    watcher = Thread(target=watch, name="sqlanon-deadline", daemon=True)
    watcher.start()
    try:
        yield
    except InfeasibleError:  # it says what there was no time for
        raise
    except Exception as error:
        if late.is_set():
            raise OvertimeError(seconds) from error
        raise
    finally:
        done.set()
        watcher.join()
