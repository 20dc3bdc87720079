"""How often the algorithm of Samarati and Sweeney (1998), which looks among distance vectors only, is wrong.

    python benchmarks/samarati_misses.py [--tables N] [--seed S]

On small random tables, seeded: 2 to 4 attributes with trees of 1 to 3 levels, 2 to 8 combinations of which some repeat,
at most 30 rows. Tables that satisfy as they are, or not at all, are left out of the shares. What is true is found by
exhaustive search in plain Python; the last column is what the strategy `samarati`, with joins of vectors, misses.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from harness import header, row

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from oracles import oracle
from oracles.plain_samarati import data_of, misses, random_case
from properties.plain_search import search_of
from properties.random_cases import Case
from sqlanon.strategies.full_domain.samarati import samarati


def joins_miss(case: Case) -> bool:
    """Whether the strategy misses a k-minimal generalization."""
    search = search_of(case)
    search.source_facts = data_of(case, search.lattice)
    solution = oracle.k_minimal(**case.arguments)
    true = [] if solution is None else sorted(figures.levels for figures in solution.satisfying)
    return list(samarati(search).minimal or ()) != true


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tables", type=int, default=2000, help="of each k and limit")
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    header("k", "limit", "tables", "misses some", "misses all", "takes a wrong one", "with joins: misses some")
    for k in (2, 3, 5):
        for limit in ("0", "0.1"):
            drawn = random.Random(f"{args.seed} {k} {limit}")
            cases = [random_case(drawn, k, limit) for _ in range(args.tables)]
            wrong = [miss for miss in map(misses, cases) if miss is not None]
            shares = [f"{sum(column) / len(wrong):.1%}" for column in zip(*wrong, strict=True)]
            row(k, limit, len(wrong), *shares, f"{sum(map(joins_miss, cases)) / len(cases):.1%}")


if __name__ == "__main__":
    main()
