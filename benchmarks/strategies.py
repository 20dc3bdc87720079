"""All strategies on one table: what each loses, and how long it takes.

    python benchmarks/strategies.py [--cases Adult-8 FARS-8] [--k 2 5 10 50 100] [--limit 0.05] [--results DIR]

One process a strategy, one after the other: seconds are of reading and searching, as `sqlanon compare` tells them.
``loss`` is over cells, as everywhere: a released value counts the ground values that it may stand for, a suppressed row
counts 1. The Java reference's iterative local recoding, and anonypy's Mondrian (k = 5, Adult), were measured elsewhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness import CASES, DATA, case_policy, header, machine, parser, python, record, require_tables, row

import sqlanon
from sqlanon.policy.strategies import STRATEGIES

SETS = "mondrian, sets"
NAMES = (*(name for name in STRATEGIES if name != "iab"), SETS)
"""(``iab`` ends by a limit only.)"""

REFERENCE = {("Adult-8", 2): 0.021, ("Adult-8", 5): 0.038, ("Adult-8", 10): 0.056, ("Adult-8", 50): 0.116,
             ("Adult-8", 100): 0.152}  # fmt: skip
"""The loss of the Java reference's local recoding, by case and k; it took 1 to 5.5 s."""

ANONYPY = "anonypy's Mondrian: loss 0.0178, 2,896 classes, nothing suppressed, 26 to 32 s"


def with_row_keys(case: str) -> dict[str, str]:
    """The table of a case with the number of each row as its key, for what divides equal rows."""
    name = CASES[case][0]
    file = str(DATA / name / f"{name}.csv").replace("'", "''")
    return {"query": f"SELECT *, row_number() OVER () AS row FROM read_csv('{file}')", "key": "row"}


def run_strategy(case: str, k: int, limit: float, name: str) -> dict[str, object]:
    """The result of a strategy, in this process."""
    strategy = name.partition(",")[0]
    source = with_row_keys(case) if STRATEGIES[strategy].traits.may_split_equal_rows else None
    tree = case_policy(case, k, limit, Path("unused.duckdb"), source)
    del tree["release"]
    tree["search"] |= {"strategy": strategy, **({"summary": "set"} if name == SETS else {})}
    with sqlanon.connect() as db:
        comparison = db.compare(sqlanon.Policy(**tree), [strategy])
        return dict(zip(comparison.columns, comparison.fetchall()[0], strict=True))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        case_argument, classes, share, strategy = sys.argv[2:]
        print(json.dumps(run_strategy(case_argument, int(classes), float(share), strategy)))
        return
    options = parser(__doc__, makes_tables=False)
    options.add_argument("--cases", nargs="+", choices=CASES, default=["Adult-8", "FARS-8"])
    options.add_argument("--k", type=int, nargs="+", default=[5])
    options.add_argument("--limit", type=float, default=0.05)
    options.add_argument("--strategies", nargs="+", choices=NAMES, default=list(NAMES))
    args = options.parse_args()
    require_tables()
    print(f"{machine()}; at most {args.limit:.0%} suppressed\n")
    header("table", "k", "strategy", "loss", "classes", "suppressed rows", "checks", "seconds", "proven")
    for case in args.cases:
        for k in args.k:
            for name in args.strategies:
                document = json.loads(python(__file__, "--one", case, str(k), str(args.limit), name).output)
                if document["error"]:
                    row(case, k, name, document["error"], "-", "-", "-", "-", "-")
                    continue
                figures = [f"{document['loss']:.4f}", f"{document['classes']:,}", f"{document['suppressed_rows']:,}"]
                proven = "yes" if document["optimal"] else "no"
                row(case, k, name, *figures, f"{document['checked']:,}", f"{document['seconds']:.2f}", proven)
                record(args.results, "strategies", name, 0, document["seconds"], case=case, k=k, limit=args.limit,
                       loss=document["loss"], classes=document["classes"])  # fmt: skip
            if (reference := REFERENCE.get((case, k))) is not None:
                row(case, k, "the reference's local recoding", reference, "-", "0", "-", "1 to 5.5", "no")
    print(f"\n{ANONYPY}")


if __name__ == "__main__":
    main()
