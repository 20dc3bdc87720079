"""Rows against seconds, both logarithmic: the floor, sqlanon and its peers, from the results that were kept.

    python benchmarks/plot.py results [--out benchmarks/scale.svg]

Reads results.jsonl in the folder; of several runs of the same, the last counts. Needs altair and vl-convert-python:
``pip install '.[benchmarks]'``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
from harness import HERE

# What is shown, by benchmark and tool, and what it is called there.
SERIES = {
    ("floor", "floor"): ("people: floor (plain DuckDB)", "people"),
    ("floor", "sqlanon"): ("people: sqlanon", "people"),
    ("sizes", "sqlanon, duckdb"): ("Adult: sqlanon, from DuckDB", "adult"),
    ("sizes", "sqlanon, csv"): ("Adult: sqlanon, from CSV", "adult"),
    ("peers", "sqlanon anonymize"): ("Adult: sqlanon, from CSV", "adult"),
    ("peers", "anjana"): ("Adult: anjana", "adult"),
    ("peers", "anonypy"): ("Adult: anonypy", "adult"),
    ("peers", "pycanon report"): ("Adult: pycanon, report", "adult"),
}


def points(results: Path) -> Iterator[dict[str, Any]]:
    """The last figure of each series for each number of rows."""
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for line in (results / "results.jsonl").read_text(encoding="utf-8").splitlines():
        figure = json.loads(line)
        key = figure["benchmark"], figure["tool"]
        if key not in SERIES or (figure["benchmark"] == "sizes" and figure["k"] != 5):
            continue
        name, table = SERIES[key]
        point = {"what": name, "table": table, "rows": figure["rows"], "seconds": figure["seconds"]}
        last[name, figure["rows"]] = point
    yield from last.values()


def chart(figures: list[dict[str, Any]]) -> alt.Chart:
    """The plot."""
    series = {figure["what"] for figure in figures}
    names = [name for name in dict.fromkeys(name for name, _ in SERIES.values()) if name in series]
    return (
        alt.Chart(alt.Data(values=figures), title="Rows against seconds", width=620, height=420)
        .mark_line(point=True)
        .encode(
            x=alt.X("rows:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", title="rows")),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g", title="seconds")),
            color=alt.Color("what:N", sort=names, legend=alt.Legend(title=None)),
            strokeDash=alt.StrokeDash("table:N", legend=None),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder that the other scripts were given as --results")
    parser.add_argument("--out", type=Path, default=HERE / "scale.svg", help="an SVG or PNG file")
    args = parser.parse_args()
    figures = list(points(args.results))
    if not figures:
        raise SystemExit(f"nothing to show in {args.results / 'results.jsonl'}")
    chart(figures).save(str(args.out))
    print(f"{len(figures)} points: {args.out}")


if __name__ == "__main__":
    main()
