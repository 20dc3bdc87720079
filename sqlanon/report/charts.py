"""The charts of classes, risks and columns: each a pure function of a small table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from sqlanon.release.class_sizes import ClassSizes
from sqlanon.release.markup import distinct, harmless
from sqlanon.report.facts import Distribution
from sqlanon.report.style import AFTER, AFTER_WORD, BEFORE, BEFORE_WORD, WIDTH, Chart, drawn, powers, styled


def classes(after: ClassSizes, few: int, before: ClassSizes | None = None) -> Chart:
    """How many equivalence classes there are of each range of sizes, on a logarithmic scale."""
    rows = _by_range(after, before, few, lambda one: one[2])
    y = alt.Y("count:Q", title="classes (logarithmic)", scale=alt.Scale(type="symlog"), axis=_log_axis(rows))
    return styled(
        _beside(rows, y, "rows in a class", "Class sizes", [alt.Tooltip("count:Q", title="classes", format=",d")])
    )


def risk(after: ClassSizes, few: int, before: ClassSizes | None = None) -> Chart:
    """The share of the rows by the risk of being found, 1 / the rows that look alike; and before, for inside only."""
    sizes = {AFTER_WORD: after, **({} if before is None else {BEFORE_WORD: before})}
    rows = _by_range(after, before, few, lambda one: one[3], of_risk=True)
    for row in rows:
        row["count"] = row["count"] / max(sizes[row["of"]].rows, 1)
    y = alt.Y("count:Q", title="share of the rows", axis=alt.Axis(format="%"))
    tooltip = [alt.Tooltip("count:Q", title="share of the rows", format=".2%")]
    return styled(_beside(rows, y, "risk of being found", "Risk", tooltip))


def _by_range(
    after: ClassSizes, before: ClassSizes | None, few: int, figure: Any, of_risk: bool = False
) -> list[dict[str, Any]]:
    """One record a range of sizes: its label, its place, which table, a figure."""
    apart = before is not None
    bins = {AFTER_WORD: after.bins(few, apart)}
    if before is not None:
        bins = {BEFORE_WORD: before.bins(few, apart)} | bins
    longest = max((list(found) for found in bins.values()), key=len)
    ranges = [(low, high) for low, high, *_ in longest]
    rows = []
    for of, found in bins.items():
        figures = {one[0]: figure(one) for one in found}
        for place, (low, high) in enumerate(ranges):
            label = range_label(low, high, few, apart, of_risk)
            rows.append({"label": label, "place": place, "of": of, "count": figures.get(low, 0)})
    return rows


def range_label(low: int, high: int, few: int, apart: bool, of_risk: bool = False) -> str:
    """A range of sizes, or the risk in classes of these sizes, as text."""
    if low < few and not apart:
        return f"more than 1 in {few}" if of_risk else f"fewer than {few}"
    if of_risk:
        return f"1 in {low:,}" if low == high else f"1 in {low:,} to {high:,}"
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _beside(rows: list[dict[str, Any]], y: Any, x_title: str, title: str, tooltip: list[Any]) -> Any:
    words = list(dict.fromkeys(row["of"] for row in rows))
    colour = alt.Color(
        "of:N",
        title=None,
        scale=alt.Scale(domain=words, range=[{BEFORE_WORD: BEFORE, AFTER_WORD: AFTER}[word] for word in words]),
        legend=alt.Legend() if len(words) > 1 else None,
    )
    chart = drawn(rows, title=title).mark_bar(clip=True)
    found = chart.encode(
        x=alt.X("label:N", title=x_title, sort=alt.SortField("place"), axis=alt.Axis(labelAngle=-35)),
        y=y,
        color=colour,
        tooltip=[alt.Tooltip("label:N", title=x_title), alt.Tooltip("of:N", title="in"), *tooltip],
    )
    if len(words) > 1:
        found = found.encode(xOffset=alt.XOffset("of:N", sort=words))
    return found.properties(width=min(WIDTH, 110 * len({row["place"] for row in rows})), height=220)


def _log_axis(rows: Sequence[Mapping[str, Any]]) -> alt.Axis:
    return alt.Axis(values=powers(max((row["count"] for row in rows), default=1)), format=",d")


def distribution(name: str, after: Distribution, before: Distribution | None = None) -> Chart:
    """The rows of each value, or range of values, of a column: in the release; and in the source, for inside only."""
    chart = _bars(after, AFTER, f"{name}: {AFTER_WORD}", WIDTH if before is None else WIDTH // 2 - 60)
    if before is not None:
        chart = _bars(before, BEFORE, f"{name}: {BEFORE_WORD}", WIDTH // 2 - 60) | chart
    return styled(chart)


def _bars(found: Distribution, colour: str, title: str, width: int) -> Any:
    labels = distinct(harmless(label) for label, _ in found.bars)
    rows = [
        {"label": label, "place": i, "rows": n}
        for i, (label, (_, n)) in enumerate(zip(labels, found.bars, strict=True))
    ]
    chart = drawn(rows, title=alt.TitleParams(title)).mark_bar(color=colour)
    return chart.encode(
        x=alt.X("rows:Q", title="rows", axis=alt.Axis(format=",d", tickCount=5)),
        y=alt.Y("label:N", title=None, sort=alt.SortField("place")),
        tooltip=[alt.Tooltip("label:N", title="value"), alt.Tooltip("rows:Q", title="rows", format=",d")],
    ).properties(width=width, height=alt.Step(18))


def attributes(heights: Mapping[str, int], generalization: Mapping[str, int | None]) -> Chart:
    """How far each quasi-identifier is generalized: its level, beside the levels that its hierarchy has."""
    rows = []
    for place, (name, height) in enumerate(heights.items()):
        level = generalization.get(name)
        generalized = "several levels" if level is None else f"level {level} of {height}"
        rows.append({"label": name, "place": place, "level": level or 0, "height": height, "told": generalized})
    base = drawn(rows, title="How far each column is generalized").encode(
        y=alt.Y("label:N", title=None, sort=None),  # as the records are
        tooltip=[alt.Tooltip("label:N", title="column"), alt.Tooltip("told:N", title="generalized")],
    )
    axis = alt.Axis(tickMinStep=1, format="d")
    whole = base.mark_bar(color=BEFORE, opacity=0.25).encode(x=alt.X("height:Q", title="level", axis=axis))
    done = base.mark_bar(color=AFTER).encode(x=alt.X("level:Q"))
    words = base.mark_text(align="left", dx=6, color="currentColor").encode(x=alt.X("height:Q"), text="told:N")
    return styled((whole + done + words).properties(width=WIDTH - 120, height=alt.Step(24)))
