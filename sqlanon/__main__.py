"""``python -m sqlanon``, and the command ``sqlanon``: the command line in a separate process."""

import gc
import os
import signal
import sys
from contextlib import suppress


def run() -> None:
    """Run the command line, and end the process with its exit status.

    The process ends at once: everything is written and closed by then, and shutting down the interpreter takes longer
    than searching a small table.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to clean up
    gc.set_threshold(200_000)  # imports create more than 100,000 objects, almost none of them garbage
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # searching for plugins reads all installed packages
    from sqlanon.cli import main  # noqa: PLC0415  (after these settings)
    from sqlanon.cli.interrupts import handle_interrupts  # noqa: PLC0415

    status = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    handle_interrupts()
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        status = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed before the process began
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
