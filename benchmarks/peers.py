"""sqlanon compared with its peers on PyPI: time, memory, loss and classes, on Adult and on its seeded bootstraps.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers.txt
    python benchmarks/peers.py --peers peers/bin/python [--rows 30162 100000 1000000 10000000] [--timeout 300]

Anonymizing (k = 5, at most 5 % suppressed, eight quasi-identifiers, the same hierarchies): anjana (k-anonymity by
full-domain generalization, a heuristic), anonypy (Mondrian; it recodes locally and suppresses nothing, and it takes no
hierarchies), sqlanon (the proven optimum of all full-domain generalizations, audited). Checking (the table as it
stands): pycanon's k, pycanon's report with the occupation as the sensitive attribute, and ``sqlanon risk``.

Each is a whole process, CSV file in, file out, whose output is scored afterwards by `score.py`: one definition of loss
for all. A peer that did not end in time, or failed, is not asked for more rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap import bootstrap
from harness import (
    ADULT,
    DATA,
    HERE,
    Limits,
    Measured,
    add_limits,
    case_policy,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    python,
    record,
    require_tables,
    row,
    run_measured,
    sqlanon_command,
    warm,
)

ADULTS = 30_162
SENSITIVE = "occupation"


@dataclass(frozen=True)
class Tool:
    """One of those that are compared.

    Attributes
    ----------
    run:
        Measures it, on a table, in a folder, for at most so many seconds.
    out:
        The name of the file that it writes; None: it only checks.
    sets:
        Whether that has sets and ranges, as `score.py` asks.
    """

    name: str
    run: Callable[[Path, Path, float], Measured]
    out: str | None = None
    sets: bool = False


def peer(interpreter: Path, name: str, out: str | None = None, sets: bool = False) -> Tool:
    """A peer, in its own environment."""

    def run(table: Path, folder: Path, timeout: float) -> Measured:
        output_file = folder / (out or "nothing.csv")
        return run_measured(
            [interpreter, HERE / "peer.py", name, table, output_file, "--sensitive", SENSITIVE,
             "--hierarchies", DATA / "adult", "--quasi", *ADULT],
            timeout,
        )  # fmt: skip

    return Tool(name, run, out, sets)


def sqlanon(command: str, limits: Limits, out: str | None = None) -> Tool:
    """A command of sqlanon, on the same CSV file."""

    def run(table: Path, folder: Path, timeout: float) -> Measured:
        policy = case_policy("Adult-8", 5, 0.05, folder / (out or "nothing.duckdb"), {"files": str(table)})
        attributes = {**policy["attributes"], SENSITIVE: {"role": "sensitive"}}
        document: Mapping[str, Any] = {**policy, "attributes": attributes}
        arguments, environment = sqlanon_command(command, document, folder / "job", limits)
        return run_measured(arguments, timeout, environment)

    return Tool(f"sqlanon {command}", run, out)


def describe_end(done: Measured) -> str:
    """The end of a process that failed."""
    if done.timed_out:
        return f"stopped after {done.seconds:.0f} s"
    return f"failed: {(done.errors.strip().splitlines() or [str(done.status)])[-1][:80]}"


def compare(tool: Tool, table: Path, rows: int, folder: Path, arguments: argparse.Namespace) -> bool:
    """One row of the table; whether the tool did what it should."""
    for old in folder.glob("out*"):
        old.unlink()
    done = tool.run(table, folder, arguments.timeout)
    figures: dict[str, float] = {}
    if done.status == 0 and tool.out is not None:
        scored = python(HERE / "score.py", folder / tool.out, "--rows", str(rows), *(["--sets"] if tool.sets else []))
        figures = json.loads(scored.output)
    row(
        f"{rows:,}",
        tool.name,
        f"{done.seconds:.1f}" if done.status == 0 else describe_end(done),
        gigabytes(done.peak),
        *(f"{figures[name]:,.{digits}f}" if figures else "-"
          for name, digits in (("loss", 3), ("classes", 0), ("smallest", 0), ("missing", 0))),
    )  # fmt: skip
    if done.status == 0:
        record(arguments.results, "peers", tool.name, rows, done.seconds, peak=done.peak, **figures)
    return done.status == 0


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--peers", type=Path, required=True, help="the Python of the peers' environment")
    options.add_argument("--rows", type=int, nargs="+", default=[ADULTS, 100_000, 1_000_000, 10_000_000],
                         help=f"{ADULTS}: Adult itself")  # fmt: skip
    options.add_argument("--timeout", type=float, default=300, help="seconds for each process")
    add_limits(options, "2GB")
    args = options.parse_args()
    require_tables()
    names = ", ".join(f"{name!r}, m.version({name!r})" for name in ("anjana", "anonypy", "pycanon", "pandas"))
    versions = run_measured([args.peers, "-c", f"import importlib.metadata as m; print({names})"])
    if versions.status:
        raise SystemExit(f"the peers are not in {args.peers}:\n{versions.errors}")
    limits = Limits(args.memory_limit, args.threads)
    print(f"{machine()}; sqlanon with {limits}; the peers: {versions.output.strip()}\n")
    tools = [
        sqlanon("anonymize", limits, "out.duckdb"),
        peer(args.peers, "anjana", "out.csv"),
        peer(args.peers, "anonypy", "out.csv", sets=True),
        sqlanon("risk", limits),
        peer(args.peers, "pycanon k"),
        peer(args.peers, "pycanon report"),
    ]
    header("rows", "", "s", "peak", "loss", "classes", "smallest class", "suppressed rows")
    with folders(args.data) as (data, folder):
        for rows in sorted(args.rows):
            table = DATA / "adult" / "adult.csv" if rows == ADULTS else bootstrap(data, rows, "csv", sensitive=True)
            warm(table)
            tools = [tool for tool in tools if compare(tool, table, rows, folder, args)]


if __name__ == "__main__":
    main()
