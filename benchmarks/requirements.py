"""What a check costs, by requirement: the same generalizations of Adult, with each requirement compared with k alone.

    python benchmarks/requirements.py [--nodes N]

The sensitive attributes are Adult's occupation (14 values) and a made one of 100 values, seeded. Each figure is the
median over generalizations drawn once, with a seed; the ratio is to k alone, in the same run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import duckdb
from harness import ADULT, DATA
from sqlglot import exp

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.pipeline import prepare
from sqlanon.sources import WorkNames, bind_source
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.support.expressions import table

FOLDER = DATA / "adult"


def requirements(attribute: str, tree: bool) -> dict[str, Mapping[str, Any]]:
    """The requirements on one sensitive attribute, by what they are called here."""
    cases: dict[str, Mapping[str, Any]] = {
        "distinct": {"l_diversity": [{"attribute": attribute, "kind": "distinct", "l": 3}]},
        "entropy": {"l_diversity": [{"attribute": attribute, "kind": "entropy", "l": 3}]},
        "recursive": {"l_diversity": [{"attribute": attribute, "kind": "recursive", "l": 3, "c": 4}]},
        "equal": {"t_closeness": [{"attribute": attribute, "distance": "equal", "t": 0.2}]},
        "ordered": {"t_closeness": [{"attribute": attribute, "distance": "ordered", "t": 0.2}]},
        "delta": {"delta_disclosure": [{"attribute": attribute, "delta": 1.0}]},
        "beta": {"beta_likeness": [{"attribute": attribute, "beta": 1.0}]},
        "alpha": {"alpha_k": [{"attribute": attribute, "alpha": 0.5}]},
    }
    if tree:
        cases["hierarchical"] = {"t_closeness": [{"attribute": attribute, "distance": "hierarchical", "t": 0.2}]}
    return cases


def policy(privacy: Mapping[str, Any]) -> sqlanon.Policy:
    """Adult with eight quasi-identifiers, 5 %, `loss`."""
    attributes: dict[str, Any] = {
        name: {"role": "quasi", "hierarchy": {"file": str(FOLDER / f"hierarchy_{name}.csv")}} for name in ADULT
    }
    tree = {"file": str(FOLDER / "hierarchy_occupation.csv")}
    attributes |= {"occupation": {"role": "sensitive", "hierarchy": tree}, "many": {"role": "sensitive"}}
    return sqlanon.Policy(
        source={"table": "people"},
        attributes=attributes,
        privacy={"k": 5, **privacy},
        search={"suppression_limit": 0.05},
    )


def work(number: int, part: str) -> exp.Table:
    """The table in which a run keeps a part of its work."""
    return table(f"run_{number}_{part}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=80)
    nodes = parser.parse_args().nodes
    connection = duckdb.connect()
    connection.execute(
        f"CREATE TABLE people AS SELECT *, hash(row_number() OVER ()) % 100 AS many "
        f"FROM read_csv('{FOLDER / 'adult.csv'}', delim = ';', all_varchar = true)"
    )
    cases: dict[str, tuple[Mapping[str, Any], str]] = {"k alone": ({}, "")}
    for attribute, values, tree in (("occupation", "14", True), ("many", "100", False)):
        cases |= {
            f"{name}, {values} values": (privacy, attribute) for name, privacy in requirements(attribute, tree).items()
        }
    checks = {}
    for number, (name, (privacy, _)) in enumerate(cases.items()):
        engine, asks = DuckDBEngine(connection), policy(privacy)
        source = bind_source(engine, asks.source, WorkNames(f"run_{number}", None))
        prepared = prepare(StatementRunner(engine), asks, source, partial(work, number))
        checks[name] = Checker(engine, prepared, policy_measure(prepared))
    drawn = random.Random(1)
    heights = prepared.marginals.heights
    chosen = [tuple(drawn.randint(0, height) for height in heights) for _ in range(nodes)]
    times: dict[str, list[float]] = {name: [] for name in checks}
    for levels in chosen:
        for name, check in checks.items():
            started = time.perf_counter()
            check(levels)
            times[name].append(time.perf_counter() - started)
    alone = statistics.median(times["k alone"])
    print(f"{nodes} generalizations of Adult, 8 quasi-identifiers, k = 5, 5 %, loss; DuckDB {duckdb.__version__}")
    print(f"{'':24} {'median ms':>10} {'x k alone':>10}")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:24} {median * 1000:10.2f} {median / alone:10.2f}")


if __name__ == "__main__":
    main()
