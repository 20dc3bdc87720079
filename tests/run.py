"""All that must hold of a change, in one command: lint, layers, types, and the tests of the quick lane.

Everything runs, whatever fails before it; the exit status says whether all passed. Arguments go to pytest.
"""

from __future__ import annotations

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
    "types": [BIN / "mypy"],
    "tests": [sys.executable, "-m", "pytest", "-n", "auto", "-m", "not slow", *sys.argv[1:]],
}


def main() -> int:
    failed = []
    for name, command in STEPS.items():
        started = time.perf_counter()
        done = subprocess.run([str(part) for part in command], cwd=ROOT, check=False)
        if done.returncode:
            failed.append(name)
        print(f"-- {name}: {'FAILED' if done.returncode else 'ok'}, {time.perf_counter() - started:.0f} s", flush=True)
    print(f"FAILED: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
