"""Check a change by lint, layers and the quick lane, in about two minutes.

Everything runs, whatever fails before it; the exit status says whether all passed. Arguments go to pytest. Random
searches draw a tenth of their examples, unless ``SQLANON_EXAMPLES`` says how many. Types take another minute:
``pip install -e '.[types]'`` and ``mypy``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STEPS = {
    "lint": [BIN / "ruff", "check", "."],
    "format": [BIN / "ruff", "format", "--check", "."],
    "layers": [BIN / "lint-imports", "--no-cache", "--no-logo"],
}
TESTS = [sys.executable, "-m", "pytest", "-n", "auto", "-m", "not slow and not extras", "--durations=20", *sys.argv[1:]]


def main() -> int:
    os.environ.setdefault("SQLANON_EXAMPLES", "0.1")
    passed = {name: run(name, command) for name, command in {**STEPS, "tests": TESTS}.items()}
    failed = [name for name, ok in passed.items() if not ok]
    print(f"FAILED: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def run(name: str, command: list[str | Path]) -> bool:
    """Whether a step passed, once that is printed."""
    started = time.perf_counter()
    status = subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode
    print(f"-- {name}: {'FAILED' if status else 'ok'}, {time.perf_counter() - started:.0f} s", flush=True)
    return not status


if __name__ == "__main__":
    sys.exit(main())
