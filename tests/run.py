"""All that must hold of a change, in one command: lint, layers, types, and the tests of the quick lane.

Everything runs, whatever fails before it; the exit status says whether all passed. Arguments go to pytest. Types are
checked beside the tests, and told of after them. Random searches draw a tenth of their examples, unless
``SQLANON_EXAMPLES`` says how many.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STEPS = {
    "lint": [BIN / "ruff", "check", "."],
    "format": [BIN / "ruff", "format", "--check", "."],
    "layers": [BIN / "lint-imports", "--no-cache", "--no-logo"],
}
TYPES = [BIN / "mypy"]
TESTS = [sys.executable, "-m", "pytest", "-n", "auto", "-m", "not slow", "--durations=20", *sys.argv[1:]]


def main() -> int:
    os.environ.setdefault("SQLANON_EXAMPLES", "0.1")
    passed = {name: told(name, *run(command)) for name, command in STEPS.items()}
    with ThreadPoolExecutor(1) as beside:
        types = beside.submit(run, TYPES, quietly=True)
        passed["tests"] = told("tests", *run(TESTS))
        passed["types"] = told("types", *types.result())
    failed = [name for name, ok in passed.items() if not ok]
    print(f"FAILED: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def run(command: list[str | Path], quietly: bool = False) -> tuple[int, float, str]:
    """A command's exit status, its time, and, where it is not printed at once, what it says."""
    started, to = time.perf_counter(), {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quietly else {}
    done = subprocess.run([str(part) for part in command], cwd=ROOT, check=False, text=True, **to)
    return done.returncode, time.perf_counter() - started, done.stdout or ""


def told(name: str, status: int, seconds: float, output: str) -> bool:
    """Whether a step passed, once that is printed."""
    print(f"{output}-- {name}: {'FAILED' if status else 'ok'}, {seconds:.0f} s", flush=True)
    return not status


if __name__ == "__main__":
    sys.exit(main())
