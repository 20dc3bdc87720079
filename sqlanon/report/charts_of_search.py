"""The charts of a search, for inside only: each a pure function of a small table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from sqlanon.report.facts import GeneralizationFigures
from sqlanon.report.style import AFTER, CHOSEN, STATUSES, WIDTH, Chart, drawn, powers, status_colour, styled


def named(figures: GeneralizationFigures, names: Sequence[str]) -> str:
    """A generalization as text: each column and its level."""
    return ", ".join(f"{name} {level}" for name, level in zip(names, figures.levels, strict=True))


def _record(figures: GeneralizationFigures, names: Sequence[str]) -> dict[str, Any]:
    return {
        "levels": named(figures, names),
        "status": STATUSES[figures.status][0],
        "classes": figures.classes,
        "out": figures.suppressed_rows,
        "score": figures.score,
        "frontier": figures.frontier,
        "chosen": figures.chosen,
    }


def _tooltip(score: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("levels:N", title="levels"),
        alt.Tooltip("status:N", title="policy"),
        alt.Tooltip("score:Q", title=score, format=",.6~g"),
        alt.Tooltip("out:Q", title="rows left out", format=",d"),
        alt.Tooltip("classes:Q", title="groups", format=",d"),
    ]


def frontier(figures: Sequence[GeneralizationFigures], names: Sequence[str], measure: str, allowed: int) -> Chart:
    """Generalizations by the rows that they leave out and by their score; those on the line are beaten by none.

    Where one does not meet the policy, it is shown at its bound: what it would score at best.
    """
    rows = [_record(one, names) for one in figures]
    shapes = alt.Scale(
        domain=[word for word, _ in STATUSES.values()], range=["circle", "cross", "triangle-up", "triangle-up"]
    )
    ticks = powers(max((one.suppressed_rows or 0 for one in figures), default=1))
    better = "more is better" if measure == "distinct" else "less is better"
    x = alt.X(
        "out:Q",
        title="rows left out (logarithmic)",
        scale=alt.Scale(type="symlog"),
        axis=alt.Axis(values=ticks, format=",d"),
    )
    y = alt.Y("score:Q", title=f"{measure} ({better})", scale=alt.Scale(zero=False))
    tooltip = _tooltip("score, or what it is at best")
    points = drawn(rows).mark_point(filled=True, size=45, opacity=0.55).encode(
        x=x, y=y, tooltip=tooltip, color=status_colour(rows),
        shape=alt.Shape("status:N", title=None, scale=shapes, legend=None),
    )  # fmt: skip
    line = drawn([row for row in rows if row["frontier"]]).mark_line(
        interpolate="step-after", color=STATUSES["satisfies"][1], strokeWidth=1.5
    ).encode(x=x, y=y, order=alt.Order("out:Q"))  # fmt: skip
    best = drawn([row for row in rows if row["chosen"]]).encode(x=x, y=y, tooltip=tooltip)
    ring = best.mark_point(filled=False, size=260, strokeWidth=3, color=CHOSEN)
    word = best.mark_text(align="left", dx=14, dy=-10, fontWeight="bold", color=CHOSEN).encode(text=alt.value("chosen"))
    limit = drawn([{"out": allowed, "text": "limit"}]).encode(x=x)
    rule = limit.mark_rule(strokeDash=[5, 4], color="currentColor", opacity=0.6)
    limit_word = limit.mark_text(align="left", dx=4, dy=8, color="currentColor").encode(text="text:N", y=alt.value(0))
    layers = alt.layer(rule, limit_word, line, points, ring, word, title="Score against rows left out")
    return styled(layers.properties(width=WIDTH, height=320))


def lattice(nodes: Sequence[GeneralizationFigures], names: Sequence[str]) -> Chart:
    """A small lattice: a row for each number of steps, a mark for each generalization, a line for each step."""
    spots, widest = _spots(nodes)
    short = all(level < 10 for one in nodes for level in one.levels)
    marks = [
        {
            "x": spots[one.levels][0],
            "y": spots[one.levels][1],
            "text": ("" if short else "·").join(map(str, one.levels)),
            **_record(one, names),
        }
        for one in nodes
    ]
    steps = [
        {"x": spots[low][0], "y": spots[low][1], "x2": spots[high][0], "y2": spots[high][1]}
        for low in spots
        for high in (tuple(level + (i == j) for j, level in enumerate(low)) for i in range(len(low)))
        if high in spots
    ]
    heights = sorted({y for _, y in spots.values()})
    axis = alt.Axis(values=heights, format="d", grid=False)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(nice=False, padding=30))
    y = alt.Y("y:Q", title="steps of generalization", axis=axis, scale=alt.Scale(padding=20))
    lines = drawn(steps).mark_rule(color="currentColor", opacity=0.18).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    base = drawn(marks).encode(x=x, y=y, tooltip=_tooltip("score"))
    ring = drawn([mark for mark in marks if mark["chosen"]]).mark_point(
        filled=False, size=520, strokeWidth=3, color=CHOSEN
    ).encode(x=x, y=y)  # fmt: skip
    dots = base.mark_circle(size=190, opacity=1).encode(color=status_colour(marks))
    texts = base.mark_text(dy=17, fontSize=9, color="currentColor").encode(text="text:N")
    title = alt.TitleParams("The lattice", subtitle=f"levels of {', '.join(names)}", subtitleColor="currentColor")
    layers = alt.layer(lines, ring, dots, texts, title=title)
    return styled(layers.properties(width=max(WIDTH, min(widest * 44, 1200)), height=max(120, 56 * len(heights))))


def _spots(nodes: Sequence[GeneralizationFigures]) -> tuple[dict[tuple[int, ...], tuple[float, int]], int]:
    """Where each generalization stands, and how many stand in the widest row."""
    rows: dict[int, list[tuple[int, ...]]] = {}
    for levels in sorted(one.levels for one in nodes):
        rows.setdefault(sum(levels), []).append(levels)
    spots = {levels: (i - (len(row) - 1) / 2, height) for height, row in rows.items() for i, levels in enumerate(row)}
    return spots, max(map(len, rows.values()), default=1)


def statuses(found: Iterable[tuple[int, str, int]]) -> Chart:
    """A large lattice: how many generalizations of each number of steps have which status."""
    rows = [{"height": height, "status": STATUSES[status][0], "count": n} for height, status, n in found]
    chart = drawn(rows, title="The generalizations that were looked at").mark_bar()
    return styled(
        chart.encode(
            y=alt.Y("height:O", title="steps of generalization", sort="descending"),
            x=alt.X("count:Q", title="generalizations", axis=alt.Axis(format=",d")),
            color=status_colour(rows),
            tooltip=[alt.Tooltip("height:O", title="steps"), alt.Tooltip("status:N", title="policy"),
                     alt.Tooltip("count:Q", title="generalizations", format=",d")],
        ).properties(width=WIDTH, height=min(16 * len({row['height'] for row in rows}), 480))
    )  # fmt: skip


def compared(found: Iterable[Mapping[str, Any]], measure: str) -> Chart:
    rows = [
        {"label": one["strategy"], "place": i, "score": one["score"], "out": one["suppressed_rows"],
         "classes": one["classes"], "seconds": one["seconds"]}
        for i, one in enumerate(found)
        if one["score"] is not None
    ]  # fmt: skip
    chart = drawn(rows, title="Strategies").mark_bar(color=AFTER)
    return styled(
        chart.encode(
            x=alt.X("score:Q", title=measure),
            y=alt.Y("label:N", title=None, sort=alt.SortField("place")),
            tooltip=[
                alt.Tooltip("label:N", title="strategy"),
                alt.Tooltip("score:Q", title="score", format=",.6~g"),
                alt.Tooltip("out:Q", title="rows left out", format=",d"),
                alt.Tooltip("classes:Q", title="classes", format=",d"),
                alt.Tooltip("seconds:Q", title="seconds", format=".2f"),
            ],
        ).properties(width=WIDTH, height=alt.Step(22))
    )
