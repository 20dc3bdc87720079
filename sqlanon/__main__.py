"""``python -m sqlanon``, and the command ``sqlanon``: the command line as a process of its own."""

import gc
import os
import signal
import sys
from contextlib import suppress


def run() -> None:
    """Run the command line, and end the process with its exit status.

    It ends at once: everything is written and closed by then, and to take the interpreter apart takes longer than
    to search a small table.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as long as there is nothing to clean up
    gc.set_threshold(200_000)  # next to nothing of what is loaded is garbage, and that is more than 100,000 objects
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # to look for them, all installed packages are searched
    from sqlanon.cli import main  # noqa: PLC0415  (what it loads, too)
    from sqlanon.cli.interrupts import hear_interrupts  # noqa: PLC0415  (likewise)

    status = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hear_interrupts()
    try:
        main()
    except SystemExit as done:
        if isinstance(done.code, str):
            raise
        status = done.code or 0
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as it is where it was closed before we began
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
