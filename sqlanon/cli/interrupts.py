"""Handle Ctrl-C, SIGTERM and SIGHUP at once: DuckDB runs Python's signal handlers only between statements."""

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

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a run as Ctrl-C does."""

_HANDLED: list[int] = []


def ending_signal() -> int | None:
    """The number of the first signal that ended this process; None without one."""
    return _HANDLED[0] if _HANDLED else None


def handle_interrupts() -> None:
    """Interrupt all engines at Ctrl-C, SIGTERM and SIGHUP. Call it in the main thread of a process that sqlanon owns.

    The running statement raises an error, which cleans up on its way. Later signals, except Ctrl-C, do not interrupt
    the cleanup.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _end)

    def watch() -> None:
        open_sender = sender  # a closed socket would receive no signals
        while open_sender and (received := receiver.recv(1)):
            if received[0] in (signal.SIGINT, *_ENDING):
                _interrupt_statement(received[0])

    threading.Thread(target=watch, name="sqlanon-interrupts", daemon=True).start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _HANDLED.append(number)
    statements = _running_statements()
    if statements:
        statements.stop()
    else:
        raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    if _HANDLED:
        return
    ctrl_c = signal.getsignal(signal.SIGINT)
    if callable(ctrl_c) and ctrl_c is not _interrupt:  # the handler of Spark's driver cancels its jobs
        _HANDLED.append(number)
        ctrl_c(signal.SIGINT, frame)
    _interrupt(number, frame)


def _interrupt_statement(number: int) -> None:
    """Interrupt the statement that runs when the signal arrives, until it ends; later statements clean up."""
    time.sleep(0.01)
    statements = _running_statements()
    if number == signal.SIGINT and signal.getsignal(number) is not _interrupt:  # Spark's driver replaced the handler
        _HANDLED.append(number)
        if statements:
            statements.interrupt()
    while statements and (statements.stopping or not _HANDLED):
        statements.interrupt()
        time.sleep(0.01)


def _running_statements() -> RunningStatements | None:
    engines = sys.modules.get("sqlanon.engines.duckdb")  # no statement runs before it is loaded
    return None if engines is None else engines.RUNNING_STATEMENTS
