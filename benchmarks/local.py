"""Local strategies at size: the whole job of each against reading the table once and writing it once, in one run.

    python benchmarks/local.py [--rows 100000 1000000] [--k 5 50] [--strategies "mondrian, sets" local]
    python benchmarks/local.py --rows 10000000 --strategies mondrian "mondrian, sets" --memory-limit 2GB

For each number of rows of `people.py`, one process after the other: the floor (`plain.py`), and ``sqlanon anonymize``
with each strategy, at most 5 % suppressed, `loss`. The ratio is the processor time of the whole process to that of the
floor's two statements, which are measured once for each size: it says more than seconds on a machine that has other
work. A run that takes longer than ``--time-limit`` is stopped.
"""

from __future__ import annotations

import json

from floor import people
from harness import (
    HERE,
    Limits,
    add_limits,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    python,
    record,
    row,
    run_measured,
    sqlanon_command,
    warm,
)
from people import people_policy

SETS = ", sets"
STRATEGIES = ("optimal", "mondrian", "mondrian, sets", "local", "k-similar, sets", "subtree", "cells")


def search_options(name: str) -> dict[str, str]:
    """The keys of ``[search]`` for a name in the table."""
    strategy = name.removesuffix(SETS)
    options = {"strategy": strategy} | ({"summary": "set"} if name.endswith(SETS) else {})
    return {"strategy": "optimal", "suppression": "cells"} if strategy == "cells" else options


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--k", type=int, nargs="+", default=[5])
    options.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    options.add_argument("--time-limit", type=float, default=1800, help="seconds of one process")
    add_limits(options, "2GB")
    args = options.parse_args()
    limits = Limits(args.memory_limit, args.threads)
    print(f"{machine()}; {limits}\n")
    header("rows", "k", "strategy", "loss", "classes", "seconds", "processor, s", "floor's", "ratio", "peak")
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            database = people(data, rows)
            warm(database)
            fresh = folder / "fresh.duckdb"
            fresh.unlink(missing_ok=True)
            plain = python(HERE / "plain.py", database, fresh, *limits.options(), environment={"TMPDIR": str(folder)})
            floor = json.loads(plain.output)["processor"]
            for k in args.k:
                for name in args.strategies:
                    policy = people_policy(database, folder / "release.duckdb", k)
                    policy["search"] |= search_options(name)
                    command, environment = sqlanon_command("anonymize", policy, folder / "job", limits)
                    done = run_measured(command, environment=environment, timeout=args.time_limit)
                    taken = (f"{done.seconds:.1f}", f"{done.processor:.1f}", f"{floor:.1f}")
                    ratio = f"**{done.processor / floor:.1f}**"
                    if done.status:
                        row(f"{rows:,}", k, name, "not done", "-", *taken, ratio, gigabytes(done.peak))
                        continue
                    figures = json.loads(done.output)
                    loss, classes = figures["score"], figures["classes"]
                    row(f"{rows:,}", k, name, f"{loss:.4f}", f"{classes:,}", *taken, ratio, gigabytes(done.peak))
                    record(args.results, "local", name, rows, done.seconds, k=k, loss=loss, peak=done.peak,
                           processor=done.processor, processor_ratio=round(done.processor / floor, 2))  # fmt: skip


if __name__ == "__main__":
    main()
