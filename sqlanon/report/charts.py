"""The charts of a report: each a pure function of a small table.

What comes from strangers (labels, names of columns) stands in the data and in titles of charts, never in a field's name
or an expression. Colours of texts and lines are those of the page around (``currentColor``), so that a chart fits a
light page, a dark one and paper. The charts of a search are for internal use only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import altair as alt
from altair.utils.mimebundle import spec_to_mimebundle

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.disclosure.residual_risk import format_percent
from sqlanon.report.distributions import Distribution
from sqlanon.report.facts import GeneralizationFigures
from sqlanon.support.markup import escape_chart_text, make_distinct

Chart: TypeAlias = "alt.Chart | alt.LayerChart | alt.HConcatChart"

WIDTH = 760
BEFORE, AFTER, CHOSEN = "#8a93a6", "#3a7bd5", "#e39a0b"
BEFORE_WORD, AFTER_WORD = "the source", "the release"
STATUSES: Mapping[str, tuple[str, str]] = {
    "satisfies": ("meets the policy", "#2a9d6f"),
    "violates": ("breaks the policy", "#d1495b"),
    "open": ("undecided", "#c9a227"),
    "unseen": ("not looked at", "#a9b0bd"),
}
"""What the status of a generalization is called, and its colour."""


def drawn(rows: Sequence[Mapping[str, Any]], title: str | alt.TitleParams | None = None) -> alt.Chart:
    """A chart of records, with nothing in it yet."""
    data: Any = alt.Data(values=rows)  # type: ignore[no-untyped-call]  # altair has no type there
    return alt.Chart(data) if title is None else alt.Chart(data, title=title)


def styled(chart: Chart) -> Chart:
    """A chart in the colours of the page around it; all its texts are harmless, whatever they are of."""
    axis = {f"{part}Color": "currentColor" for part in ("grid", "domain", "tick", "label", "title")}
    faint = {"gridOpacity": 0.12, "domainOpacity": 0.4, "tickOpacity": 0.4}
    plain: dict[str, Any] = {**axis, **faint, "titleFontWeight": "normal", "labelLimit": 220}
    found: Chart = chart.configure(
        background="transparent",
        font="system-ui, sans-serif",
        axis=alt.AxisConfig(**plain),
        legend=alt.LegendConfig(labelColor="currentColor", titleColor="currentColor", orient="top"),
        title=alt.TitleConfig(color="currentColor", anchor="start", fontSize=14, fontWeight="normal", offset=10),
        view=alt.ViewConfig(stroke=None),
    )
    harmless_: Chart = _harmless(found)
    object.__setattr__(harmless_, "_repr_mimebundle_", partial(_show_offline, harmless_))  # Altair's would be a key
    object.__setattr__(harmless_, "save", partial(_save_offline, harmless_))
    return harmless_


def _save_offline(chart: Chart, fp: Any, format: str | None = None, **options: Any) -> None:
    """Save a chart as Altair does; a page brings its scripts, which Altair's own would load from a network."""
    is_page = format == "html" or (format is None and str(fp).lower().endswith(".html"))
    type(chart).save(chart, fp, format, **({"inline": True} if is_page else {}) | options)  # type: ignore[arg-type]


def _show_offline(chart: Chart, *_: object, **__: object) -> dict[str, Any]:
    """What a notebook shows of a chart: its specification, where the notebook draws it, else a picture. Altair's own
    answer loads scripts from a network."""
    specification = chart.to_dict()
    picture = spec_to_mimebundle(specification, format="svg", mode="vega-lite")
    assert isinstance(picture, dict)
    major = alt.SCHEMA_VERSION.lstrip("v").split(".", maxsplit=1)[0]
    return {f"application/vnd.vegalite.v{major}+json": specification, **picture}


def _harmless(part: Any) -> Any:
    if isinstance(part, str):
        return escape_chart_text(part)
    if isinstance(part, Mapping):
        return {
            escape_chart_text(name) if isinstance(name, str) else name: _harmless(one) for name, one in part.items()
        }
    if isinstance(part, (list, tuple)):
        return [_harmless(one) for one in part]
    if isinstance(part, alt.SchemaBase):
        for name, one in part._kwds.items():  # (its own way to ask for them knows set ones only by name)
            part._kwds[name] = _harmless(one)
    return part


def powers(largest: float) -> list[int]:
    """0, 1, 10, 100, ... up to a number."""
    found = [0, 1]
    while found[-1] < largest:
        found.append(found[-1] * 10)
    return found


def status_colour(rows: Sequence[Mapping[str, Any]]) -> alt.Color:
    there = {row["status"] for row in rows}
    found = {word: colour for word, colour in STATUSES.values() if word in there}
    return alt.Color("status:N", title=None, scale=alt.Scale(domain=list(found), range=list(found.values())))


def classes(after: ClassSizes, few: int, before: ClassSizes | None = None) -> Chart:
    """How many equivalence classes there are of each range of sizes, on a logarithmic scale."""
    rows = _by_range(after, before, few, lambda one: one[2])
    y = alt.Y("count:Q", title="groups (logarithmic)", scale=alt.Scale(type="symlog"), axis=_log_axis(rows))
    return styled(
        _beside(rows, y, "rows in a group", "Group sizes", [alt.Tooltip("count:Q", title="groups", format=",d")])
    )


def risk(after: ClassSizes, few: int, before: ClassSizes | None = None) -> Chart:
    """The share of the rows by the risk of being found, 1 / the rows that look alike; and before, on private pages."""
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
    """The rows of each value, or range of values, of a column: in the release; on private pages also in the
    source. The two have the same axes."""
    parts = {AFTER_WORD: after} if before is None else {BEFORE_WORD: before, AFTER_WORD: after}
    shown = {word: found for word, found in parts.items() if found.bars}
    width = WIDTH if len(shown) < 2 else WIDTH // 2 - 60
    colours = {BEFORE_WORD: BEFORE, AFTER_WORD: AFTER}
    if shown and all(found.spans for found in shown.values()):
        unit = min(_widths(found)[0] for found in shown.values())
        rows = {word: _of_spans(found, unit) for word, found in shown.items()}
        every = [row for some in rows.values() for row in some]
        x = (min(row["low"] for row in every), max(row["high"] for row in every))
        top = max(row["per"] for row in every)
        charts = [
            _histogram(some, colours[word], f"{name}: {word}", width, x, top, unit) for word, some in rows.items()
        ]
    else:
        top = max((n for found in shown.values() for _, n in found.bars), default=1)
        charts = [_bars(found, colours[word], f"{name}: {word}", width, top) for word, found in parts.items()]
    return styled(charts[0] if len(charts) == 1 else alt.hconcat(*charts))


def _bars(found: Distribution, colour: str, title: str, width: int, most: float) -> Any:
    labels = make_distinct(escape_chart_text(label) for label, _ in found.bars)
    rows = [
        {"label": label, "place": i, "rows": n}
        for i, (label, (_, n)) in enumerate(zip(labels, found.bars, strict=True))
    ]
    chart = drawn(rows, title=alt.TitleParams(title)).mark_bar(color=colour)
    scale = alt.Scale(domain=[0, most])
    return chart.encode(
        x=alt.X("rows:Q", title="rows", axis=alt.Axis(format=",d", tickCount=5), scale=scale),
        y=alt.Y("label:N", title=None, sort=alt.SortField("place")),
        tooltip=[alt.Tooltip("label:N", title="value"), alt.Tooltip("rows:Q", title="rows", format=",d")],
    ).properties(width=width, height=alt.Step(18))


def _widths(found: Distribution) -> list[float]:
    """The widths of ranges, the least first; open ends have none."""
    widths = (high - low for low, high in found.spans if low is not None and high is not None)
    return sorted(widths) or [1.0]


def _of_spans(found: Distribution, unit: float) -> list[dict[str, Any]]:
    """Records of a histogram: where ranges begin and end, and their rows per unit. An open end is as wide as the
    narrowest range."""
    least = _widths(found)[0]
    rows = []
    for i, ((low, high), (label, n)) in enumerate(zip(found.spans, found.bars, strict=False)):
        begin = low if low is not None else (high or 0.0) - least
        end = high if high is not None else begin + least
        per = n * unit / max(end - begin, unit * 1e-9)
        rows.append({"label": escape_chart_text(label), "place": i, "rows": n, "low": begin, "high": end, "per": per})
    return rows


def _histogram(
    rows: list[dict[str, Any]], colour: str, title: str, width: int, x: tuple[float, float], top: float, unit: float
) -> Any:
    years = unit >= 1 and x[1] < 3000  # and other small numbers: without a comma
    axis = alt.Axis(tickCount=8, grid=False, format="d" if years else ",~g")
    per = "rows" if unit == 1 else f"rows per {unit:,.6g}"
    return drawn(rows, title=alt.TitleParams(title)).mark_rect(color=colour, stroke="white", strokeWidth=0.5).encode(
        x=alt.X("low:Q", title=None, axis=axis, scale=alt.Scale(domain=list(x), nice=False, zero=False)),
        x2="high:Q",
        y2=alt.datum(0),
        y=alt.Y("per:Q", title=per, axis=alt.Axis(format=",d", tickCount=5), scale=alt.Scale(domain=[0, top])),
        tooltip=[alt.Tooltip("label:N", title="range"), alt.Tooltip("rows:Q", title="rows", format=",d")],
    ).properties(width=width, height=200)  # fmt: skip


def attributes(
    heights: Mapping[str, int], generalization: Mapping[str, int | None], losses: Mapping[str, float]
) -> Chart:
    """How far each quasi-identifier is generalized: its loss, from 0 to 1, and its level in words."""
    rows = []
    for place, (name, height) in enumerate(heights.items()):
        level = generalization.get(name)
        loss = losses.get(name, 0.0)
        generalized = f"{format_percent(loss)}, {'several levels' if level is None else f'level {level} of {height}'}"
        rows.append({"label": name, "place": place, "loss": loss, "whole": 1, "told": generalized})
    base = drawn(rows, title="How far each column is generalized").encode(
        y=alt.Y("label:N", title=None, sort=None),  # as the records are
        tooltip=[alt.Tooltip("label:N", title="column"), alt.Tooltip("told:N", title="generalized")],
    )
    axis = alt.Axis(format="%", tickCount=5)
    whole = base.mark_bar(color=BEFORE, opacity=0.25).encode(x=alt.X("whole:Q", title="loss", axis=axis))
    done = base.mark_bar(color=AFTER).encode(x=alt.X("loss:Q"))
    words = base.mark_text(align="left", dx=6, color="currentColor").encode(x=alt.X("whole:Q"), text="told:N")
    return styled((whole + done + words).properties(width=WIDTH - 120, height=alt.Step(24)))


def levels_of(figures: GeneralizationFigures, names: Sequence[str]) -> str:
    """A generalization as text: each column and its level."""
    return ", ".join(f"{name} {level}" for name, level in zip(names, figures.levels, strict=True))


def _record(figures: GeneralizationFigures, names: Sequence[str]) -> dict[str, Any]:
    return {
        "levels": levels_of(figures, names),
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


def frontier(
    figures: Sequence[GeneralizationFigures], names: Sequence[str], measure: str, allowed: int | None
) -> Chart:
    """Generalizations by the rows that they leave out and by their score; those on the line are beaten by none.

    Where one does not meet the policy, it is shown at its bound: what it would score at best. A limit on persons is no
    number of rows: then ``allowed`` is None, and no limit is shown.
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
    rules = []
    if allowed is not None:
        limit = drawn([{"out": allowed, "text": "limit"}]).encode(x=x)
        rules.append(limit.mark_rule(strokeDash=[5, 4], color="currentColor", opacity=0.6))
        limit_word = limit.mark_text(align="left", dx=4, dy=8, color="currentColor")
        rules.append(limit_word.encode(text="text:N", y=alt.value(0)))
    layers = alt.layer(*rules, line, points, ring, word, title="Score against rows left out")
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
