"""The main job on real tables: the whole process, from CSV to release file, and the search alone.

    python benchmarks/adult.py [--runs N] [--search-runs N] [--skip-search]

The tables are found through ``SQLANON_DATA``, else in ``../shared/data`` beside the project; see README.md here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb

import sqlanon

DATA = Path(os.environ.get("SQLANON_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")

ADULT = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")
CASES = {
    "Adult-8": ("adult", ADULT),
    "Adult-9": ("adult", (*ADULT[:7], "occupation", ADULT[7])),
    "FARS-8": (
        "fars",
        ("iage", "irace", "ideathmon", "ideathday", "isex", "ihispanic", "istatenum", "iinjury"),
    ),
}

# What `sqlanon anonymize` loads; asked for by a process of its own, and taken off the whole.
IMPORTS = "import sqlanon.cli, sqlanon.database, sqlanon.progress"


def policy_text(case: str, k: int, limit: float, release: str) -> str:
    """A policy in TOML: hierarchies from files, `loss`, one release file."""
    name, quasi = CASES[case]
    folder = DATA / name
    attributes = "\n".join(
        f'"{attribute}" = {{ role = "quasi", hierarchy = {{ file = {json.dumps(str(path))} }} }}'
        for attribute in quasi
        for path in [folder / f"hierarchy_{attribute}.csv"]
    )
    return f"""
[source]
files = {json.dumps(str(folder / f"{name}.csv"))}
undeclared = "drop"

[attributes]
{attributes}

[privacy]
k = {k}

[search]
suppression_limit = {limit}
measure = "loss"

[release]
database = {json.dumps(release)}
table = "{name}"
"""


def process(*arguments: str) -> tuple[float, str]:
    """The seconds that a Python process took, and what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, check=False, capture_output=True, text=True)
    taken = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"python {' '.join(arguments)}: exit status {done.returncode}\n{done.stderr}")
    return taken, done.stdout


def whole(folder: Path, runs: int) -> None:
    """`sqlanon anonymize` on Adult-8, k = 5, 5 %: from CSV to release file, with the split."""
    policy = folder / "policy.toml"
    policy.write_text(policy_text("Adult-8", 5, 0.05, "release.duckdb"), encoding="utf-8")
    rows = []
    for run in range(runs + 1):
        (folder / "release.duckdb").unlink(missing_ok=True)
        (folder / "policy.catalog.duckdb").unlink(missing_ok=True)
        start, _ = process("-c", "pass")
        start_and_import, _ = process("-c", IMPORTS)
        wall, printed = process("-m", "sqlanon", "anonymize", str(policy), "--json")
        figures = json.loads(printed)
        seconds = figures["seconds"]
        inside = seconds["load"] + seconds["search"] + seconds["publish"]
        split = {
            "whole process": wall,
            "python start": start,
            "import": start_and_import - start,
            "load": seconds["load"],
            "search": seconds["search"],
            "publish": seconds["publish"],
            "policy and catalog": seconds["total"] - inside,
            "rest (end of the process)": wall - start_and_import - seconds["total"],
        }
        if run:  # the first one makes the bytecode and warms the disk's cache
            rows.append(split)
    print(f"sqlanon anonymize, Adult-8, k = 5, 5 %, loss: {runs} runs, medians")
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(f"  {name:30} {statistics.median(values) * 1000:6.0f} ms  ({min(values) * 1000:.0f} to "
              f"{max(values) * 1000:.0f})")  # fmt: skip
    print(f"  score {figures['score']:.6f}, {figures['suppressed_rows']:,} rows suppressed, "
          f"{figures['lattice']['checked']:,} of {figures['lattice']['nodes']:,} generalizations checked")  # fmt: skip


def searches(folder: Path, runs: int) -> Iterator[str]:
    """The search alone, its checks and its answer, as rows of a Markdown table."""
    yield "| table | k | limit | generalizations | checks | search, ms | loss |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for case in CASES:
        for k in (2, 5, 10):
            for limit in (0.0, 0.02, 0.05):
                policy = folder / "search.toml"
                policy.write_text(policy_text(case, k, limit, "unused.duckdb"), encoding="utf-8")
                asked, seconds = sqlanon.Policy.load(policy).model_copy(update={"catalog": None}), []
                for _ in range(runs):
                    with sqlanon.connect() as db:
                        result = db.anonymize(asked)
                    seconds.append(result.seconds["search"])
                yield (
                    f"| {case} | {k} | {limit:.0%} | {result.nodes:,} | {result.checked:,} | "
                    f"{statistics.median(seconds) * 1000:.0f} | {result.score:.6f} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="of the whole process")
    parser.add_argument("--search-runs", type=int, default=3, help="of each search")
    parser.add_argument("--skip-search", action="store_true", help="the whole process only")
    arguments = parser.parse_args()
    if not (DATA / "adult" / "adult.csv").is_file():
        sys.exit(f"no tables in {DATA}: set SQLANON_DATA")
    print(f"python {platform.python_version()}, duckdb {duckdb.__version__}, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        whole(Path(folder), arguments.runs)
        if not arguments.skip_search:
            print()
            for line in searches(Path(folder), arguments.search_runs):
                print(line, flush=True)


if __name__ == "__main__":
    main()
