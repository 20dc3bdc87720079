"""The search alone: checks and seconds per configuration, cold and warm, compared with the Java reference.

    python benchmarks/search.py [--runs N] [--cases Adult-8 Adult-9 FARS-8] [--k 2 5 10 50 100] [--limits 0 0.02 0.05]
    python benchmarks/search.py --one Adult-8 5 0.05 loss       # what a run does; prints JSON

Each run is a separate process that anonymizes the table twice (and publishes nothing): the first search is the cold
one, as a user runs it, the second the warm one. `loss` at every limit, `entropy` at 5 %. Seconds are
``Result.seconds["search"]``: from the frequency set to the best generalization, its suppressed classes and the lattice
table. Checks are the generalizations that were counted by a query; they do not depend on the machine. A figure is the
median of the runs, with the fastest behind it. The reference was measured elsewhere, on a quiet machine of the same
kind: ratios to it are only as good as the machine is quiet.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from harness import CASES, case_policy, header, machine, parser, python, record, require_tables, row

import sqlanon

# Milliseconds of the Java reference, cold and warm, by case, k, limit and measure: measured elsewhere.
REFERENCE = {
    ("Adult-8", 5, 0.0, "loss"): (122, 26),
    ("Adult-8", 5, 0.05, "loss"): (431, 200),
    ("Adult-9", 5, 0.05, "loss"): (1002, 672),
    ("FARS-8", 5, 0.0, "loss"): (224, 67),
    ("FARS-8", 5, 0.05, "loss"): (2345, 2004),
    ("Adult-8", 5, 0.05, "entropy"): (595, 309),
    ("Adult-9", 5, 0.05, "entropy"): (1178, 772),
    ("FARS-8", 5, 0.05, "entropy"): (4079, 3184),
}


def twice(case: str, k: int, limit: float, measure: str) -> dict[str, object]:
    """Anonymize twice in this process: its figures, and the seconds of both searches."""
    tree = case_policy(case, k, limit, Path("unused.duckdb"), measure=measure)
    policy = sqlanon.Policy(**{name: section for name, section in tree.items() if name != "release"})
    seconds = []
    for _ in range(2):
        with sqlanon.connect() as db:
            result = db.anonymize(policy)
        seconds.append(result.seconds["search"])
    return {"seconds": seconds, **result.to_dict()}


def print_search(case: str, k: int, limit: float, measure: str, runs: int, results: Path | None) -> None:
    """One row of the table."""
    measurements = [
        json.loads(python(__file__, "--one", case, str(k), str(limit), measure).output) for _ in range(runs)
    ]
    cells: list[str] = []
    for number, name in enumerate(("cold", "warm")):
        taken = [run["seconds"][number] * 1000 for run in measurements]
        reference = REFERENCE.get((case, k, limit, measure), (None, None))[number]
        median = statistics.median(taken)
        ratio = f"{median / reference:.2f} of {reference:,}" if reference else "-"
        cells += [f"{median:,.0f} ({min(taken):,.0f})", ratio]
        record(results, "search", name, measurements[0]["rows"], median / 1000, case=case, k=k, limit=limit,
               measure=measure, checked=measurements[0]["lattice"]["checked"])  # fmt: skip
    lattice = measurements[0]["lattice"]
    optimal = "" if measurements[0]["optimal"] else " (not proven)"
    score = f"{measurements[0]['score']:.6g}{optimal}"
    row(case, k, f"{limit:.0%}", measure, f"{lattice['nodes']:,}", f"{lattice['checked']:,}", *cells, score)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        name, classes, share, score = sys.argv[2:]
        print(json.dumps(twice(name, int(classes), float(share), score)))
        return
    options = parser(__doc__, makes_tables=False)
    options.add_argument("--runs", type=int, default=3, help="of each configuration")
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options.add_argument("--k", type=int, nargs="+", default=[2, 5, 10, 50, 100])
    options.add_argument("--limits", type=float, nargs="+", default=[0.0, 0.02, 0.05])
    args = options.parse_args()
    require_tables()
    print(f"{machine()}; {args.runs} runs of each\n")
    header("table", "k", "limit", "measure", "generalizations", "checks", "cold, ms", "of the reference's",
           "warm, ms", "of the reference's", "score")  # fmt: skip
    for measure, limits in (("loss", args.limits), ("entropy", [0.05])):
        for case in args.cases:
            for k in args.k:
                for limit in limits:
                    print_search(case, k, limit, measure, args.runs, args.results)


if __name__ == "__main__":
    main()
