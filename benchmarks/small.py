"""Where the processor time of a small run goes: ``sqlanon anonymize`` on Adult with eight quasi-identifiers.

    python benchmarks/small.py [--runs 20]       # whole processes: the least and the median processor time
    python benchmarks/small.py --statements      # one run: its imports, and the statements of each part of it

Processor time is that of all threads, user and system, and with one thread it repeats best. The statements are counted
in a separate process, where each call of an engine is timed; what one statement calls is not counted twice.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import ADULT, Limits, case_policy, folders, header, machine, parser, require_tables, row, sqlanon_command


def processor_seconds(command: list[str | Path], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, env={**inherited, **environment}, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def policy(folder: Path) -> dict[str, Any]:
    return case_policy("Adult-8", 5, 0.05, folder / "release.duckdb")


def processes(folder: Path, runs: int) -> None:
    def run(job: Path) -> float:
        job.mkdir(exist_ok=True)
        command, environment = sqlanon_command("anonymize", policy(job), job, Limits(None, 1))
        return processor_seconds(command, environment)

    programs: dict[str, Callable[[], float]] = {
        "python -c pass": lambda: processor_seconds([sys.executable, "-c", "pass"], {}),
        "import duckdb": lambda: processor_seconds([sys.executable, "-c", "import duckdb; duckdb.connect()"], {}),
        "sqlanon --version": lambda: processor_seconds([sys.executable, "-m", "sqlanon", "--version"], {}),
        f"sqlanon anonymize (Adult, {len(ADULT)} quasi-identifiers)": lambda: run(folder / "job"),
    }
    taken: dict[str, list[float]] = defaultdict(list)
    for turn in range(runs + 1):
        for name, program in programs.items():
            seconds = program()
            if turn:  # the first one makes the bytecode
                taken[name].append(seconds)
    header("program", "least", "median")
    for name, seconds_of in taken.items():
        row(name, *(f"{duration * 1000:.0f} ms" for duration in (min(seconds_of), statistics.median(seconds_of))))


def statements(folder: Path) -> None:
    started = time.process_time()
    import sqlanon  # noqa: PLC0415  (timed)
    import sqlanon.database  # noqa: PLC0415
    import sqlanon.pipeline  # noqa: PLC0415
    from sqlanon.engines.duckdb import DuckDBEngine  # noqa: PLC0415

    imported = time.process_time()
    calls: list[tuple[str, str, float]] = []
    within = 0

    def time_method(name: str) -> None:
        original = getattr(DuckDBEngine, name)

        def call(self: Any, *arguments: Any, **more: Any) -> Any:
            nonlocal within
            within += 1
            began = time.process_time()
            try:
                return original(self, *arguments, **more)
            finally:
                within -= 1
                if not within:
                    statement = arguments[0].sql("duckdb") if hasattr(arguments[0], "sql") else str(arguments[0])
                    calls.append((name, statement, time.process_time() - began))

        setattr(DuckDBEngine, name, call)

    for name in ("execute", "rows", "_fetched", "columns", "types", "script", "attach", "detach", "copy_arrow"):
        time_method(name)
    folder.mkdir(exist_ok=True)
    marks = {"start": (0, time.process_time())}
    with sqlanon.connect(threads=1) as db:
        tree = policy(folder) | {"catalog": {"database": str(folder / "catalog.duckdb")}}
        result = db.anonymize(sqlanon.Policy.model_validate(tree))
        marks["anonymize"] = len(calls), time.process_time()
        result.publish()
        marks["publish"] = len(calls), time.process_time()
    header("part", "statements", "in statements", "in all")
    row("imports", 0, "0 ms", f"{(imported - started) * 1000:.0f} ms")
    (at, since), *ends = marks.values()
    for part, (end, then) in zip(list(marks)[1:], ends, strict=True):
        inside = sum(seconds for _, _, seconds in calls[at:end])
        row(part, end - at, f"{inside * 1000:.0f} ms", f"{(then - since) * 1000:.0f} ms")
        at, since = end, then
    print()
    for i, (name, statement, seconds) in enumerate(calls):
        print(f"{i:4} {seconds * 1000:7.2f} ms  {name:10} {' '.join(statement.split())[:150]}")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--statements", action="store_true", help="list the statements of one run")
    args = arguments.parse_args()
    require_tables()
    print(machine(), end="\n\n")
    with folders(args.data) as (_, folder):
        if args.statements:
            statements(folder / "job")
        else:
            processes(folder, args.runs)


if __name__ == "__main__":
    main()
