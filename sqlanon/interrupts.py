"""Ctrl-C, SIGTERM and SIGHUP, heard at once.

The engine, busy on several threads, looks for signals only when it is done.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a run as Ctrl-C does."""

_HEARD: list[int] = []


def ended_by() -> int | None:
    """The number of the first signal that asked this process to end; None where there was none."""
    return _HEARD[0] if _HEARD else None


def hear_interrupts() -> None:
    """Have a thread watch for Ctrl-C, which ends what all engines are about; for a process of our own, in its main
    thread.

    What they were asked then raises an error, so that everything is cleaned up on the way out. The other signals become
    a Ctrl-C, which all drivers know; the first one alone, as another would break off the cleaning.
    """
    heard, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    for one in ENDING:
        if signal.getsignal(one) != signal.SIG_IGN:  # as `nohup` has it
            signal.signal(one, lambda *_: None)
    main = threading.get_ident()

    def watch() -> None:
        keep = tell  # closed, nothing would be told
        while number := heard.recv(1):
            first = not _HEARD
            if number[0] in (signal.SIGINT, *ENDING):
                _HEARD.append(number[0])
            if first and number[0] in ENDING:
                signal.pthread_kill(main, signal.SIGINT)
            engines = sys.modules.get("sqlanon.engines.duckdb")  # not loaded yet: then none is about anything
            if keep and engines is not None and number[0] == signal.SIGINT:
                engines.interrupt_all()

    threading.Thread(target=watch, name="sqlanon-interrupts", daemon=True).start()
