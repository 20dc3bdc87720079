"""Error and linking risk by k and ε, and noise per class compared with other noise, from the results that were kept.

    python benchmarks/k_epsilon_plot.py results [--out benchmarks/k_epsilon.svg]

Reads results.jsonl in the folder that `k_epsilon.py` was given as --results; of several runs of the same, the last
counts. Needs altair and vl-convert-python: ``pip install '.[benchmarks]'``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt
from harness import HERE

SHOWN = {"expected": "relative error", "linked": "linking risk", "confidence": "rows that 99 %-confidence suppresses"}
NOISES = {"observed": "per class", "whole_error": "whole table", "uniform_error": "uniform"}
RISKS = {"observed": "linked", "whole_error": "whole_linked", "uniform_error": "uniform_linked"}

LEGEND = alt.Legend(symbolType="stroke", symbolStrokeColor="gray")
STRATEGY = alt.StrokeDash("strategy:N", sort=["optimal"], legend=LEGEND)


def figures(results: Path) -> list[dict[str, Any]]:
    """The last of each set-up."""
    last = {}
    for line in (results / "results.jsonl").read_text(encoding="utf-8").splitlines():
        figure = json.loads(line)
        if figure["benchmark"] == "k_epsilon":
            last[figure["tool"], figure["k"], figure["epsilon"]] = figure
    return list(last.values())


def by_epsilon(results: Sequence[dict[str, Any]], figure: str) -> alt.Chart:
    """One figure against ε, a line for each k, a style for each strategy."""
    points = [
        {"strategy": entry["tool"], "k": entry["k"], "ε": entry["epsilon"], "share": entry[figure]}
        for entry in results
        if entry[figure] > 0  # the axis is logarithmic
    ]
    return (
        alt.Chart(alt.Data(values=points), title=SHOWN[figure], width=300, height=240)
        .mark_line(point=True)
        .encode(
            x=alt.X("ε:Q", scale=alt.Scale(type="log")),
            y=alt.Y("share:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~%", title=None)),
            color=alt.Color("k:O", scale=alt.Scale(scheme="viridis")),
            strokeDash=STRATEGY,
        )
    )


def noises(results: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Error and risk of each noise, where they were compared."""
    for entry in results:
        if "whole_error" in entry:
            for error, name in NOISES.items():
                shared = {"noise": name, "strategy": entry["tool"]}
                yield {**shared, "error": entry[error], "risk": entry[RISKS[error]], "ε": entry["epsilon"]}


def by_noise(results: Sequence[dict[str, Any]]) -> alt.Chart:
    """Risk against error, for each noise."""
    return (
        alt.Chart(alt.Data(values=list(noises(results))), title="k = 20: risk against error", width=300, height=240)
        .mark_line(point=True)
        .encode(
            x=alt.X("error:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~%", title="relative error")),
            y=alt.Y("risk:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~%", title="linking risk")),
            color=alt.Color("noise:N", sort=list(NOISES.values())),
            strokeDash=STRATEGY,
        )
    )


def chart(results: Sequence[dict[str, Any]]) -> alt.VConcatChart:
    """The plots, two by two."""
    error, risk, confidence = (by_epsilon(results, figure) for figure in SHOWN)
    return (error | risk) & (confidence | by_noise(results)).resolve_scale(color="independent", strokeDash="shared")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder that k_epsilon.py was given as --results")
    parser.add_argument("--out", type=Path, default=HERE / "k_epsilon.svg", help="an SVG or PNG file")
    args = parser.parse_args()
    results = figures(args.results)
    if not results:
        raise SystemExit(f"nothing to show in {args.results / 'results.jsonl'}")
    chart(results).save(str(args.out))
    print(f"{len(results)} set-ups: {args.out}")


if __name__ == "__main__":
    main()
