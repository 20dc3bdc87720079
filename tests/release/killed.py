"""A run that is killed at a step of its own: a process for tests of what it leaves.

``python killed.py POLICY STEP [START]`` makes the release of a policy, and kills itself before step STEP: a call that
changes files or a database. Steps are counted from the function START on. Without that many steps it ends, and prints
their names.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import sqlanon

FILES = {"rename", "replace", "unlink", "rmdir", "mkdir", "chmod", "chown", "fsync", "flock"}
ENGINES = ("engines/duckdb.py", "engines/postgres.py")
STATEMENTS = {"execute", "rows", "types", "script", "ingest"}
ENDS = {"transaction", "commit", "rollback"}
"""What ends a transaction is a step, and so is what comes after it."""


class Counting:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, at: int, start: str) -> None:
        self._at, self._start, self.names = at, start, list[str]()
        self._counts = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == self._start:
            self._counts = True
        if not self._counts:
            return
        if event == "c_call":
            if argument.__name__ in FILES and argument.__module__ in ("posix", "fcntl"):
                self._step(argument.__name__)
        elif code.co_filename.endswith(ENGINES) and (
            code.co_name in ENDS or (event == "call" and code.co_name in STATEMENTS)
        ):
            self._step(f"{event} {Path(code.co_filename).stem}.{code.co_name}")

    def _step(self, name: str) -> None:
        if len(self.names) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)


def main() -> None:
    policy, at, start = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or ["_publish_once"])[0]
    counting = Counting(at, start)
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(policy))
        sys.setprofile(counting)
        result.publish()
        sys.setprofile(None)
    print(*counting.names, sep="\n")


if __name__ == "__main__":
    main()
