"""Everything that the pages of benchmarks/ show, one after the other, as Markdown; then the plots. It takes hours.

    python benchmarks/all.py --peers peers/bin/python --data DIR [--small]

The folder keeps the tables that are made and results.jsonl, which has the figures of every run. ``--small`` is for
trying it: tables of at most a million rows, in minutes, and the plots in the folder. Else the run with 100 million
people needs some 20 GB of disk there. A script that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from harness import HERE

SMALL = ("--rows", "1000000")
TITLES = {
    "floor.py": "The floor",
    "sizes.py": "Adult at size",
    "reading.py": "Reading CSV files",
    "search.py": "The search alone",
    "whole.py": "The whole process",
    "peers.py": "Peers",
    "requirements.py": "What a requirement costs",
    "strategies.py": "All strategies",
    "samarati_misses.py": "What distance vectors alone miss",
    "k_epsilon.py": "Noise inside classes",
    "noise_cost.py": "What noise costs",
    "suda.py": "Special uniques",
    "risk.py": "What risk costs",
    "live.py": "Live views",
    "spark.py": "Spark",
    "imports.py": "How long the package takes to load",
    "small.py": "The processor time of a small run",
    "plot.py": "The plot",
    "k_epsilon_plot.py": "The plot of noise",
}


def steps(peers: Path, data: Path, small: bool) -> list[list[str | Path]]:
    """The scripts, with their arguments."""
    common: list[str | Path] = ["--data", data, "--results", data]
    rows = SMALL if small else ()
    ratio = ["floor.py", *common, "--runs", "3", *rows]
    capped = ["floor.py", *common, "--rows", "1000000" if small else "100000000", "--memory-limit", "2GB"]
    rival = ["peers.py", *common, "--peers", peers, *(("--rows", "30162", "--timeout", "30") if small else ())]
    searches = ["search.py", "--results", data, *(("--runs", "1", "--k", "5") if small else ())]
    return [
        ratio,
        capped,
        ["sizes.py", *common, *rows],
        ["reading.py", *common, *rows],
        searches,
        ["whole.py", "--results", data, *(("--runs", "3") if small else ())],
        rival,
        ["requirements.py", *(("--nodes", "5") if small else ())],
        ["strategies.py", "--results", data],
        ["samarati_misses.py", *(("--tables", "100") if small else ())],
        ["k_epsilon.py", "--results", data, *(("--runs", "1", "--searches", "1") if small else ())],
        ["noise_cost.py", *common, *rows],
        ["suda.py", *(("--runs", "1") if small else ())],
        ["risk.py", *common, *rows],
        ["live.py", *common, *rows],
        ["spark.py", *common, *rows],
        ["imports.py"],
        ["small.py", *(("--runs", "3") if small else ())],
        ["plot.py", data, *(("--out", data / "scale.svg") if small else ())],
        ["k_epsilon_plot.py", data, *(("--out", data / "k_epsilon.svg") if small else ())],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="the Python of the peers' environment, see peers.txt")
    parser.add_argument("--data", type=Path, required=True, help="the folder for tables and results")
    parser.add_argument("--small", action="store_true", help="small tables only")
    args = parser.parse_args()
    failed = []
    for script, *arguments in steps(args.peers, args.data, args.small):
        print(f"\n## {TITLES[str(script)]}: `{' '.join(map(str, (script, *arguments)))}`\n", flush=True)
        done = subprocess.run([sys.executable, HERE / script, *map(str, arguments)], check=False)
        failed += [str(script)] if done.returncode else []
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
