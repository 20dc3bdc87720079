"""A peer at work on Adult, for `peers.py`, which measures it; runs in the environment of the peers, see peers.txt.

    peers/bin/python benchmarks/peer.py anjana adult.csv out.csv --quasi sex age ... --hierarchies FOLDER

Reads the CSV file, asks the peer, writes what it gives to a CSV file. Prints what it found.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

import pandas as pd

SEPARATOR = ";"


def anjana(arguments: argparse.Namespace) -> None:
    """k-anonymity by full-domain generalization, with the policy's hierarchies: the first that its heuristic finds."""
    table = read(arguments)
    hierarchies = {}
    for name in arguments.quasi:
        levels = pd.read_csv(arguments.hierarchies / f"hierarchy_{name}.csv", sep=SEPARATOR, header=None, dtype=str)
        hierarchies[name] = {level: levels[level].to_numpy() for level in levels}
    k_anonymity = importlib.import_module("anjana.anonymity").k_anonymity
    anonymized = k_anonymity(table, [], arguments.quasi, arguments.k, arguments.limit * 100, hierarchies)
    anonymized.to_csv(arguments.out, sep=SEPARATOR, index=False)
    print(f"{len(anonymized)} rows")


def anonypy(arguments: argparse.Namespace) -> None:
    """Mondrian: ages as numbers, all else as categories."""
    table = read(arguments)
    for name in [*arguments.quasi, arguments.sensitive]:
        table[name] = pd.to_numeric(table[name]) if name == "age" else table[name].astype("category")
    preserver = importlib.import_module("anonypy").Preserver(table, arguments.quasi, arguments.sensitive)
    data_frame = pd.DataFrame(preserver.anonymize_k_anonymity(k=arguments.k))
    for name in arguments.quasi:
        data_frame[name] = data_frame[name].str[0]  # a list of one text
    data_frame.to_csv(arguments.out, sep=SEPARATOR, index=False)
    print(f"{len(data_frame)} rows, with counts")


def pycanon_k(arguments: argparse.Namespace) -> None:
    """Which k the table has as it stands."""
    print(importlib.import_module("pycanon.anonymity").k_anonymity(read(arguments), arguments.quasi))


def pycanon_report(arguments: argparse.Namespace) -> None:
    """All figures that pycanon knows of the table as it stands."""
    print(
        importlib.import_module("pycanon.report").get_report_values(
            read(arguments), arguments.quasi, [arguments.sensitive]
        )
    )


def read(arguments: argparse.Namespace) -> pd.DataFrame:
    """The columns that count, as text."""
    return pd.read_csv(arguments.table, sep=SEPARATOR, dtype=str, usecols=[*arguments.quasi, arguments.sensitive])


TASKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "anjana": anjana,
    "anonypy": anonypy,
    "pycanon k": pycanon_k,
    "pycanon report": pycanon_report,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quasi", nargs="+", required=True)
    parser.add_argument("--sensitive", required=True)
    parser.add_argument("--hierarchies", type=Path, required=True)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.05)
    args = parser.parse_args()
    TASKS[args.task](args)


if __name__ == "__main__":
    main()
