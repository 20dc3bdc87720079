"""How long it takes until something can happen: whole processes, medians over several runs.

python benchmarks/imports.py [--runs N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "python -c pass": ["-c", "pass"],
    "import sqlanon": ["-c", "import sqlanon"],
    "from sqlanon import Policy": ["-c", "from sqlanon import Policy"],
    "from sqlanon import connect": ["-c", "from sqlanon import connect"],
    "sqlanon --help": ["-m", "sqlanon", "--help"],
}


def seconds(arguments: list[str]) -> float:
    """The time of one process. Bytecode is kept, as in an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    for arguments in PROGRAMS.values():
        seconds(arguments)  # makes the bytecode
    taken: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(runs):
        for name, arguments in PROGRAMS.items():
            taken[name].append(seconds(arguments))
    for name, values in taken.items():
        print(f"{name:28} {statistics.median(values) * 1000:5.0f} ms (at least {min(values) * 1000:.0f})")


if __name__ == "__main__":
    main()
