"""A new release compared with earlier ones: the cost of the joint audit, relative to making the release.

    python benchmarks/ledger.py [--rows 0 1000000] [--strategies optimal mondrian ...] [--new optimal k-similar]

Adult as it is (``--rows 0``), or resampled by `bootstrap.py`; seven quasi-identifiers and a sensitive attribute, k = 5
with at most 5 % suppressed. All strategies are published by force to one catalog; then a new release of each strategy,
with k = 6, is compared with all of them. Seconds of the processor, of one process: making (reading, searching, writing,
the audit of the release alone) and each check (opening the earlier release, and comparing the two).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from bootstrap import bootstrap
from harness import case_policy, folders, header, machine, parser, record, require_tables, row

import sqlanon
import sqlanon.ledger.publication
from sqlanon.ledger import JointAudit
from sqlanon.support.checks import Check

STRATEGIES: dict[str, dict[str, str]] = {
    "optimal": {"strategy": "optimal"},
    "subtree": {"strategy": "subtree"},
    "cells": {"strategy": "optimal", "suppression": "cells"},
    "mondrian": {"strategy": "mondrian"},
    "mondrian, sets": {"strategy": "mondrian", "summary": "set"},
    "mondrian, medians": {"strategy": "mondrian", "summary": "median"},
    "k-similar": {"strategy": "k-similar"},
    "local": {"strategy": "local"},
}


class Timed(JointAudit):
    """Measures each check."""

    seconds: dict[str, tuple[float, str]] = {}  # noqa: RUF012  (one process, one measurement)

    def _check(self, publication: Any, new: Any) -> Check:
        started = time.process_time()
        check = super()._check(publication, new)
        status = "not compared" if "not compared" in check.message else "compared"
        Timed.seconds[publication.path.stem] = (time.process_time() - started, status)
        return check


def publish_timed(table: Path | None, name: str, k: int, folder: Path) -> float:
    """Publish a release by force; the seconds of all, without those of the checks."""
    source = None if table is None else {"database": str(table), "table": "adult"}
    policy = case_policy("Adult-8", k, 0.05, folder / f"{name} {k}.duckdb", source)
    policy["attributes"]["salary-class"] = {"role": "sensitive"}  # what releases are joined on
    policy["search"] |= STRATEGIES[name]
    policy["catalog"] = {"database": str(folder / "catalog.duckdb")}
    Timed.seconds.clear()
    started = time.process_time()
    with sqlanon.connect() as db:
        db.anonymize(sqlanon.Policy(**policy)).publish(force=True)
    return time.process_time() - started - sum(seconds for seconds, _ in Timed.seconds.values())


def measure(rows: int, data: Path, folder: Path, arguments: argparse.Namespace) -> None:
    """The rows of a table for one size."""
    table = bootstrap(data, rows, "duckdb") if rows else None
    for name in arguments.strategies:
        publish_timed(table, name, 5, folder)
    for name in arguments.new:
        seconds_publishing = publish_timed(table, name, 6, folder)
        checks = {stem: timing for stem, timing in Timed.seconds.items() if stem.endswith(" 5")}
        assert len(checks) == len(arguments.strategies), "the checks are not measured"
        for stem, (seconds, status) in checks.items():
            row(
                f"{rows or 30162:,}",
                name,
                stem.removesuffix(" 5"),
                f"{seconds_publishing:.2f}",
                f"{seconds:.2f}",
                status,
            )
            record(arguments.results, "ledger", f"{name} with {stem}", rows, seconds, made=seconds_publishing)
        row(
            f"{rows or 30162:,}",
            name,
            "all",
            f"{seconds_publishing:.2f}",
            f"{sum(seconds for seconds, _ in checks.values()):.2f}",
            "",
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[0, 1_000_000], help="0: Adult as it is")
    options.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    options.add_argument("--new", nargs="+", choices=STRATEGIES, default=["optimal", "mondrian", "k-similar"])
    args = options.parse_args()
    require_tables()
    sqlanon.ledger.publication.JointAudit = Timed  # type: ignore[misc]
    print(f"{machine()}\n")
    header("rows", "new release", "earlier release", "making, s", "check, s", "")
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            (place := folder / str(rows)).mkdir()
            measure(rows, data, place, args)


if __name__ == "__main__":
    main()
