"""Ctrl-C, SIGTERM and SIGHUP, heard at once.

The engine, busy on several threads, looks for signals only when it is done.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlanon.engines.duckdb import RunningStatements

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a run as Ctrl-C does."""

_HEARD: list[int] = []
"""The signals that were handled."""


def ended_by() -> int | None:
    """The number of the first signal that ended this process; None where there was none."""
    return _HEARD[0] if _HEARD else None


def hear_interrupts() -> None:
    """Interrupt all engines at Ctrl-C, SIGTERM and SIGHUP; for a process of our own, called in its main thread.

    The statement that is running raises an error, and everything is cleaned up on the way out. What comes after the
    first signal does not break off the cleaning, except Ctrl-C.
    """
    heard, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for one in ENDING:
        if signal.getsignal(one) != signal.SIG_IGN:  # as `nohup` has it
            signal.signal(one, _end)

    def watch() -> None:
        keep = tell  # closed, nothing would be told
        while keep and (received := heard.recv(1)):
            if received[0] in (signal.SIGINT, *ENDING):
                _interrupt_statement(received[0])

    threading.Thread(target=watch, name="sqlanon-interrupts", daemon=True).start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _HEARD.append(number)
    statements = _statements()
    if statements:
        statements.stop()
    else:
        raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    if _HEARD:
        return
    ctrl_c = signal.getsignal(signal.SIGINT)
    if callable(ctrl_c) and ctrl_c is not _interrupt:  # Spark's driver cancels its jobs
        _HEARD.append(number)
        ctrl_c(signal.SIGINT, frame)
    _interrupt(number, frame)


def _interrupt_statement(number: int) -> None:
    """The one that runs when the signal comes, until it ends: what runs after that belongs to the cleaning."""
    time.sleep(0.01)
    statements = _statements()
    if number == signal.SIGINT and signal.getsignal(number) is not _interrupt:  # Spark's driver put its own there
        _HEARD.append(number)
        if statements:
            statements.interrupt()
    while statements and (statements.stopping or not _HEARD):
        statements.interrupt()
        time.sleep(0.01)


def _statements() -> RunningStatements | None:
    engines = sys.modules.get("sqlanon.engines.duckdb")  # not loaded yet: then no statement runs
    return getattr(engines, "STATEMENTS", None)
