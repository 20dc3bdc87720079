"""Spark and DuckDB on the same Parquet files of people, on one machine; and Spark's own floor.

    python benchmarks/spark.py [--rows 1000000 10000000] [--executor-memory 4096] [--data DIR]

For each number of rows of `people.py`, as separate processes, one after the other:

- the floor of Spark (`spark_plain.py`, in ``local-cluster[2,1,MEMORY]``): ``GROUP BY`` of the 8 quasi-identifiers, of
  which the groups are counted, and ``CREATE TABLE AS SELECT <released columns>``;
- ``sqlanon anonymize`` of the same files in the same kind of session, released as a table there: k = 5, at most 5 %
  suppressed, `loss`;
- ``sqlanon anonymize`` of the same files in DuckDB, released as a file.

Times are of the whole process, its start (of Spark some 10 s) included. Memory is the greatest resident set that was
seen of each part, looked at four times a second: this process's Python, the driver's JVM, the executors together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from floor import people
from harness import HERE, folders, gigabytes, header, machine, parser, record, row, toml
from people import people_policy

PARTS = 16
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Watched:
    """A process that has ended: wall seconds, what it printed, and the greatest memory of each of its parts."""

    seconds: float
    output: str
    peaks: dict[str, int]


def run_watched(command: Sequence[str | Path], environment: Mapping[str, str]) -> Watched:
    """Run a command to success, and look at the memory of it and of its children."""
    peaks = {"python": 0, "driver": 0, "executors": 0}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], stdout=output, stderr=errors, env={**os.environ, **environment}
        )
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, done))
        watcher.start()
        status = process.wait()
        seconds = time.perf_counter() - started
        done.set()
        watcher.join()
        for stream in (output, errors):
            stream.seek(0)
        if status:
            sys.exit(f"{command}: exit status {status}\n{errors.read()[-3000:]}")
        return Watched(seconds, output.read(), peaks)


def _watch(pid: int, peaks: dict[str, int], done: threading.Event) -> None:
    while not done.wait(0.25):
        now = dict.fromkeys(peaks, 0)
        for process in _family(pid):
            try:
                resident = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
                line = Path(f"/proc/{process}/cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            part = "python"
            if b"java" in line.split(b"\0")[0]:
                part = "executors" if b"CoarseGrainedExecutorBackend" in line else "driver"
            now[part] += resident
        for part, size in now.items():
            peaks[part] = max(peaks[part], size)


def _family(pid: int) -> list[int]:
    """A process and all that it started."""
    processes, waiting = [], [pid]
    while waiting:
        process = waiting.pop()
        processes.append(process)
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                waiting += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return processes


def parquet(folder: Path, rows: int) -> Path:
    """The table with this number of people as Parquet files, and the hierarchy of countries, made once."""
    target = folder / f"people_{rows}"
    if not target.exists():
        database, unfinished = people(folder, rows), folder / f"unfinished_{rows}"
        unfinished.mkdir(exist_ok=True)
        with duckdb.connect(str(database), read_only=True) as connection:
            for part in range(PARTS):
                connection.execute(
                    f"COPY (SELECT * FROM people WHERE rowid % {PARTS} = {part}) TO '{unfinished}/{part:02d}.parquet'"
                )
            connection.execute(f"COPY countries TO '{unfinished}/countries.csv' (HEADER false)")
        unfinished.rename(target)
        database.unlink()
    return target


def policy(files: Path, source: Mapping[str, Any], release: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of `people.py` over the Parquet files."""
    tree = people_policy(None, None)
    attributes = tree["attributes"] | {
        "country": {"role": "quasi", "hierarchy": {"file": str(files / "countries.csv")}}
    }
    return {
        **tree,
        "source": {"files": str(files / "*.parquet"), **source},
        "attributes": attributes,
        "release": dict(release),
        "catalog": {"database": "runs.duckdb"},
    }


def job(folder: Path, tree: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[Watched, dict[str, Any]]:
    """``sqlanon anonymize``, in a separate folder."""
    folder.mkdir()
    file = folder / "policy.toml"
    file.write_text(toml(tree), encoding="utf-8")
    outcome = run_watched([sys.executable, "-m", "sqlanon", "anonymize", file, "--json"], environment)
    return outcome, json.loads(outcome.output)


def show(rows: int, name: str, run: Watched, of_it: str, against: float) -> None:
    peaks = [gigabytes(run.peaks[part]) if run.peaks[part] else "" for part in ("python", "driver", "executors")]
    row(f"{rows:,}", name, f"{run.seconds:.1f}", of_it, f"{run.seconds / against:.2f}", *peaks)


def stages(figures: Mapping[str, Any]) -> str:
    """The seconds of a job by stage."""
    return ", ".join(f"{stage} {taken:.1f}" for stage, taken in figures["seconds"].items() if stage != "total")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options.add_argument("--executor-memory", type=int, default=4096, help="megabytes of each of the two")
    args = options.parse_args()
    master = f"local-cluster[2,1,{args.executor_memory}]"
    print(f"{machine()}; {master}\n")
    header("rows", "what", "s", "split", "to the floor", "Python's peak", "driver's peak", "executors' peak")
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            files = parquet(data, rows)
            run = folder / str(rows)
            run.mkdir()
            configuration = run / "conf"
            configuration.mkdir()
            (configuration / "spark-defaults.conf").write_text(
                f"spark.sql.warehouse.dir {run / 'warehouse'}\nspark.local.dir {run / 'local'}\n"
                f"spark.executor.memory {args.executor_memory - 512}m\nspark.driver.memory 2g\n"
                f"spark.sql.shuffle.partitions {PARTS}\n"
            )
            environment = {"SPARK_CONF_DIR": str(configuration), "TMPDIR": str(run)}
            plain = run_watched([sys.executable, HERE / "spark_plain.py", master, files / "*.parquet"], environment)
            figures = json.loads(plain.output.splitlines()[-1])
            floor = figures["group"] + figures["copy"]
            description = f"GROUP BY {figures['group']:.1f}, CREATE TABLE AS {figures['copy']:.1f}"
            show(rows, "Spark's floor", plain, description, floor)
            release = {"spark": True, "table": "default.people_released"}
            spark, document = job(run / "spark", policy(files, {"spark": master}, release), environment)
            show(rows, "sqlanon in Spark", spark, stages(document), floor)
            local_release = {"database": str(run / "release.duckdb"), "table": "people"}
            duck, same = job(run / "duckdb", policy(files, {}, local_release), environment)
            show(rows, "sqlanon in DuckDB", duck, stages(same), floor)
            alike = all(document[name] == same[name] for name in ("generalization", "score", "suppressed_rows"))
            print(f"\nThe same result: {alike}\n", flush=True)
            record(args.results, "spark", "floor", rows, floor)
            record(args.results, "spark", "spark", rows, spark.seconds, **spark.peaks)
            record(args.results, "spark", "duckdb", rows, duck.seconds, **duck.peaks)


if __name__ == "__main__":
    main()
