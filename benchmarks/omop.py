"""Tables about the same persons, in the shape of OMOP: suggest, anonymize, verify, and what each `known` costs.

    python benchmarks/omop.py [--persons 100000] [--known 1 2 3 all] [--set search.time_limit=60]

The policy is the suggested one, with hierarchies of concepts: k = 5, at most 5 % of the persons and 5 % of the other
rows suppressed. Each command is a separate process. `omop_tables.py` makes the database.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness import (
    Limits,
    Measured,
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
)
from omop_tables import TABLES, make_omop

KNOWN = ("1", "2", "3", "all")


def suggest(database: Path, folder: Path, limits: Limits) -> tuple[Path, Measured]:
    """The suggested policy, with hierarchy files."""
    policy = folder / "policy.toml"
    command = ("-m", "sqlanon", "suggest", database, "-o", policy, "--hierarchies", folder / "levels")
    return policy, python(*command, *limits.options())


def anonymize(
    policy: Path, known: str, release: Path, settings: list[str], limits: Limits
) -> tuple[Measured, dict[str, Any] | None]:
    """Anonymize for an attacker who knows this number of rows; no figures if nothing meets the policy."""
    value = known if known.isdigit() else json.dumps(known)
    options = [part for setting in (f"privacy.known={value}", *settings) for part in ("--set", setting)]
    command = [sys.executable, "-m", "sqlanon", "anonymize", policy, "--json", "--output", release, *options]
    done = run_measured([*command, *limits.options()])
    if done.status not in (0, 1):
        sys.exit(f"known = {known}: exit status {done.status}\n{done.errors}")
    return done, json.loads(done.output) if done.status == 0 else None


def show_risk(policy: Path) -> None:
    """The lines of the policy on what each table adds to the risk."""
    lines = policy.read_text(encoding="utf-8").splitlines()
    print("Persons whom nobody equals in the quasi-identifiers, as the policy says:\n")
    print("\n".join(line[1:] for line in lines if line.startswith("#   ")) + "\n")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--persons", type=int, default=100_000)
    options.add_argument("--known", nargs="+", choices=KNOWN, default=list(KNOWN))
    options.add_argument("--set", dest="settings", action="append", default=[], help="a setting of the policy")
    add_limits(options, None)
    args = options.parse_args()
    limits = Limits(args.memory_limit, args.threads)
    print(f"{machine()}; {limits}\n")
    with folders(args.data) as (data, folder):
        database = data / f"omop_{args.persons}.duckdb"
        if not database.exists():
            make_omop(database, args.persons)
        policy, suggested = suggest(database, folder, limits)
        print(f"{args.persons:,} persons; suggest: {suggested.seconds:.1f} s, {gigabytes(suggested.peak)}\n")
        show_risk(policy)
        header("known", "persons", "rows", "loss", *TABLES, "seconds", "memory", "verify")
        for known in args.known:
            release = folder / f"release_{known}.duckdb"
            done, figures = anonymize(policy, known, release, args.settings, limits)
            if figures is None:
                empty = ["-"] * (len(TABLES) + 2)
                row(
                    known,
                    "none: nothing meets the policy",
                    *empty,
                    "-",
                    f"{done.seconds:.0f}",
                    gigabytes(done.peak),
                    "-",
                )
                print(done.errors, file=sys.stderr)
                continue
            verified = python("-m", "sqlanon", "verify", release, *limits.options())
            tables = figures["tables"]
            children = [table for name, table in tables.items() if name != "person"]
            released = sum(table["released_rows"] for table in children)
            kept = f"{100 * released / sum(table['rows'] for table in children):.1f} %"
            row(
                known,
                f"{100 * figures['released_persons'] / figures['persons']:.1f} %",
                kept,
                f"{figures['score']:.3f}",
                *(f"{tables[name]['loss']:.2f}" for name in TABLES),
                f"{done.seconds:.0f}",
                gigabytes(done.peak),
                f"{verified.seconds:.0f} s",
            )
            record(
                args.results, "omop", f"known {known}", args.persons, done.seconds,
                loss=figures["score"], peak=done.peak,
            )  # fmt: skip


if __name__ == "__main__":
    main()
