"""Ctrl-C, heard at once: the engine, busy on several threads, looks for signals only when it is done."""

from __future__ import annotations

import signal
import socket
import sys
import threading


def hear_interrupts() -> None:
    """Have a thread watch for Ctrl-C, which ends what all engines are about; for a process of our own, in its main
    thread.

    What they were asked then raises an error, so that everything is cleaned up on the way out.
    """
    heard, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        keep = tell  # closed, nothing would be told
        while number := heard.recv(1):
            engines = sys.modules.get("sqlanon.engines.duckdb")  # not loaded yet: then none is about anything
            if keep and engines is not None and number[0] == signal.SIGINT:
                engines.interrupt_all()

    threading.Thread(target=watch, name="sqlanon-interrupts", daemon=True).start()
