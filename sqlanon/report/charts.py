"""The charts of a report: each is a pure function of a small table.

Untrusted texts (labels, column names) are in the data and in chart titles only, never in field names or expressions.
Texts and lines have the colour of the page (``currentColor``), so that a chart fits light pages, dark pages and paper.
The charts of a search are for internal use only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import altair as alt
from altair.utils.mimebundle import spec_to_mimebundle

from sqlanon.disclosure.residual_risk import format_percent
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.measures import find_measure
from sqlanon.report.distributions import Distribution
from sqlanon.report.facts import GeneralizationFigures
from sqlanon.support.markup import escape_chart_text, make_distinct

Chart: TypeAlias = "alt.Chart | alt.LayerChart | alt.HConcatChart"

_WIDTH = 760
_SOURCE, _RELEASE = "the source", "the release"
_COLOURS = {_SOURCE: "#8a93a6", _RELEASE: "#3a7bd5"}
_CHOSEN_COLOUR = "#e39a0b"
STATUSES: Mapping[str, tuple[str, str]] = {
    "satisfies": ("meets the policy", "#2a9d6f"),
    "violates": ("breaks the policy", "#d1495b"),
    "open": ("undecided", "#c9a227"),
    "unseen": ("not evaluated", "#a9b0bd"),
}
"""The words and the colour for the status of a generalization."""


def _new_chart(rows: Sequence[Mapping[str, Any]], title: str | alt.TitleParams | None = None) -> alt.Chart:
    """A chart of records without marks."""
    data: Any = alt.Data(values=rows)  # type: ignore[no-untyped-call]  # altair has no type there
    return alt.Chart(data) if title is None else alt.Chart(data, title=title)


def _tooltips(*fields: tuple[str, str] | tuple[str, str, str]) -> list[alt.Tooltip]:
    """Tooltips from fields, titles and formats."""
    return [
        alt.Tooltip(field[0], title=field[1], format=field[2] if len(field) > 2 else alt.Undefined) for field in fields
    ]


def _finish(chart: Chart) -> Chart:
    """Apply the colours of the page, escape all texts, and keep Altair from loading scripts from a network."""
    axis = {f"{part}Color": "currentColor" for part in ("grid", "domain", "tick", "label", "title")}
    faint = {"gridOpacity": 0.12, "domainOpacity": 0.4, "tickOpacity": 0.4}
    plain: dict[str, Any] = {**axis, **faint, "titleFontWeight": "normal", "labelLimit": 220}
    escaped: Chart = _escape_texts(
        chart.configure(
            background="transparent",
            font="system-ui, sans-serif",
            axis=alt.AxisConfig(**plain),
            legend=alt.LegendConfig(labelColor="currentColor", titleColor="currentColor", orient="top"),
            title=alt.TitleConfig(color="currentColor", anchor="start", fontSize=14, fontWeight="normal", offset=10),
            view=alt.ViewConfig(stroke=None),
        )
    )
    # Altair takes the attributes of a chart for keys of its specification.
    object.__setattr__(escaped, "_repr_mimebundle_", partial(_show_offline, escaped))
    object.__setattr__(escaped, "save", partial(_save_offline, escaped))
    return escaped


def _save_offline(chart: Chart, fp: Any, format: str | None = None, **options: Any) -> None:
    """Save a chart as Altair does, but pages with their scripts inside."""
    is_page = format == "html" or (format is None and str(fp).lower().endswith(".html"))
    type(chart).save(chart, fp, format, **({"inline": True} if is_page else {}) | options)  # type: ignore[arg-type]


def _show_offline(chart: Chart, *_: object, **__: object) -> dict[str, Any]:
    """The specification and an SVG for notebooks; Altair's own result loads scripts from a network."""
    specification = chart.to_dict()
    picture = spec_to_mimebundle(specification, format="svg", mode="vega-lite")
    assert isinstance(picture, dict)
    major = alt.SCHEMA_VERSION.lstrip("v").split(".", maxsplit=1)[0]
    return {f"application/vnd.vegalite.v{major}+json": specification, **picture}


def _escape_texts(part: Any) -> Any:
    if isinstance(part, str):
        return escape_chart_text(part)
    if isinstance(part, Mapping):
        return {_escape_texts(name): _escape_texts(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_escape_texts(value) for value in part]
    if isinstance(part, alt.SchemaBase):
        for name, value in part._kwds.items():  # Altair's own access finds only keys that are set
            part._kwds[name] = _escape_texts(value)
    return part


def _powers_of_ten(largest: float) -> list[int]:
    """0, 1, 10, 100, ... up to a number or beyond."""
    powers = [0, 1]
    while powers[-1] < largest:
        powers.append(powers[-1] * 10)
    return powers


def _status_colour(rows: Sequence[Mapping[str, Any]]) -> alt.Color:
    present = {row["status"] for row in rows}
    colours = {word: colour for word, colour in STATUSES.values() if word in present}
    return alt.Color("status:N", title=None, scale=alt.Scale(domain=list(colours), range=list(colours.values())))


def classes(release: ClassSizes, few: int, source: ClassSizes | None = None) -> Chart:
    """The number of equivalence classes by ranges of sizes, on a logarithmic scale."""
    rows = _rows_by_range(release, source, few)
    largest = max((row["count"] for row in rows), default=1)
    axis = alt.Axis(values=_powers_of_ten(largest), format=",d")
    y = alt.Y("count:Q", title="groups (logarithmic)", scale=alt.Scale(type="symlog"), axis=axis)
    return _bars_by_range(rows, y, "rows in a group", "Group sizes", ("count:Q", "groups", ",d"))


def risk(release: ClassSizes, few: int, source: ClassSizes | None = None) -> Chart:
    """The share of the rows by re-identification risk: 1 / the size of the row's class."""
    y = alt.Y("count:Q", title="share of the rows", axis=alt.Axis(format="%"))
    rows = _rows_by_range(release, source, few, by_risk=True)
    return _bars_by_range(rows, y, "risk of being found", "Risk", ("count:Q", "share of the rows", ".2%"))


def _rows_by_range(
    release: ClassSizes, source: ClassSizes | None, few: int, by_risk: bool = False
) -> list[dict[str, Any]]:
    """The classes of each range of sizes, or with ``by_risk`` the share of the rows in them."""
    private = source is not None
    tables = ({} if source is None else {_SOURCE: source}) | {_RELEASE: release}
    bins = {table: sizes.bins(few, private) for table, sizes in tables.items()}
    ranges = [(low, high) for low, high, *_ in max(bins.values(), key=len)]
    records = []
    for table, sizes in tables.items():
        counts = {low: rows / max(sizes.rows, 1) if by_risk else classes for low, _, classes, rows in bins[table]}
        for place, (low, high) in enumerate(ranges):
            label = format_size_range(low, high, few, private, by_risk)
            records.append({"label": label, "place": place, "of": table, "count": counts.get(low, 0)})
    return records


def format_size_range(low: int, high: int, few: int, private: bool, as_risk: bool = False) -> str:
    """A range of class sizes, or the risk in these classes; small sizes are exact on private pages only."""
    if low < few and not private:
        return f"more than 1 in {few}" if as_risk else f"fewer than {few}"
    if as_risk:
        return f"1 in {low:,}" if low == high else f"1 in {low:,} to {high:,}"
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _bars_by_range(
    rows: list[dict[str, Any]], y: alt.Y, x_title: str, title: str, tooltip: tuple[str, str, str]
) -> Chart:
    tables = list(dict.fromkeys(row["of"] for row in rows))
    colour = alt.Color(
        "of:N",
        title=None,
        scale=alt.Scale(domain=tables, range=[_COLOURS[table] for table in tables]),
        legend=alt.Legend() if len(tables) > 1 else None,
    )
    x = alt.X("label:N", title=x_title, sort=alt.SortField("place"), axis=alt.Axis(labelAngle=-35))
    tooltips = _tooltips(("label:N", x_title), ("of:N", "in"), tooltip)
    chart = _new_chart(rows, title=title).mark_bar(clip=True).encode(x=x, y=y, color=colour, tooltip=tooltips)
    if len(tables) > 1:
        chart = chart.encode(xOffset=alt.XOffset("of:N", sort=tables))
    return _finish(chart.properties(width=min(_WIDTH, 110 * len({row["place"] for row in rows})), height=220))


def distribution(name: str, release: Distribution, source: Distribution | None = None) -> Chart:
    """The rows of each value or range of values of a column, in the release and on private pages in the source; both
    have the same axes."""
    parts = {_RELEASE: release} if source is None else {_SOURCE: source, _RELEASE: release}
    filled = {table: part for table, part in parts.items() if part.bars}
    width = _WIDTH if len(filled) < 2 else _WIDTH // 2 - 60
    if filled and all(part.spans for part in filled.values()):
        unit = min(_narrowest(part) for part in filled.values())
        spans = {table: _span_records(part, unit) for table, part in filled.items()}
        records = [record for table in spans for record in spans[table]]
        x = (min(record["low"] for record in records), max(record["high"] for record in records))
        top = max(record["per"] for record in records)
        charts = [_histogram(spans[table], _COLOURS[table], f"{name}: {table}", width, x, top, unit) for table in spans]
    else:
        top = max((rows for part in filled.values() for _, rows in part.bars), default=1)
        charts = [_bars(part, _COLOURS[table], f"{name}: {table}", width, top) for table, part in parts.items()]
    return _finish(charts[0] if len(charts) == 1 else alt.hconcat(*charts))


def _bars(part: Distribution, colour: str, title: str, width: int, top: float) -> Any:
    labels = make_distinct(escape_chart_text(label) for label, _ in part.bars)
    records = [
        {"label": label, "place": place, "rows": rows}
        for place, (label, (_, rows)) in enumerate(zip(labels, part.bars, strict=True))
    ]
    axis, scale = alt.Axis(format=",d", tickCount=5), alt.Scale(domain=[0, top])
    return _new_chart(records, title=alt.TitleParams(title)).mark_bar(color=colour).encode(
        x=alt.X("rows:Q", title="rows", axis=axis, scale=scale),
        y=alt.Y("label:N", title=None, sort=alt.SortField("place")),
        tooltip=_tooltips(("label:N", "value"), ("rows:Q", "rows", ",d")),
    ).properties(width=width, height=alt.Step(18))  # fmt: skip


def _narrowest(part: Distribution) -> float:
    """The width of the narrowest range; open ends have no width."""
    return min((high - low for low, high in part.spans if low is not None and high is not None), default=1.0)


def _span_records(part: Distribution, unit: float) -> list[dict[str, Any]]:
    """Records of a histogram: the ends of ranges, and their rows per unit. An open end is as wide as the narrowest
    range."""
    width, records = _narrowest(part), []
    for place, ((low, high), (label, rows)) in enumerate(zip(part.spans, part.bars, strict=False)):
        begin = low if low is not None else (high or 0.0) - width
        end = high if high is not None else begin + width
        per = rows * unit / max(end - begin, unit * 1e-9)
        label = escape_chart_text(label)  # noqa: PLW2901
        records.append({"label": label, "place": place, "rows": rows, "low": begin, "high": end, "per": per})
    return records


def _histogram(
    records: list[dict[str, Any]], colour: str, title: str, width: int, x: tuple[float, float], top: float, unit: float
) -> Any:
    is_year = unit >= 1 and x[1] < 3000  # or another small number: without a comma
    axis = alt.Axis(tickCount=8, grid=False, format="d" if is_year else ",~g")
    rows_per = "rows" if unit == 1 else f"rows per {unit:,.6g}"
    chart = _new_chart(records, title=alt.TitleParams(title))
    return chart.mark_rect(color=colour, stroke="white", strokeWidth=0.5).encode(
        x=alt.X("low:Q", title=None, axis=axis, scale=alt.Scale(domain=list(x), nice=False, zero=False)),
        x2="high:Q",
        y2=alt.datum(0),
        y=alt.Y("per:Q", title=rows_per, axis=alt.Axis(format=",d", tickCount=5), scale=alt.Scale(domain=[0, top])),
        tooltip=_tooltips(("label:N", "range"), ("rows:Q", "rows", ",d")),
    ).properties(width=width, height=200)  # fmt: skip


def attributes(
    heights: Mapping[str, int], generalization: Mapping[str, int | None], losses: Mapping[str, float]
) -> Chart:
    """The loss of each quasi-identifier, from 0 to 1, and its level in words."""
    rows = []
    for place, (name, height) in enumerate(heights.items()):
        level, loss = generalization.get(name), losses.get(name, 0.0)
        text = f"{format_percent(loss)}, {'several levels' if level is None else f'level {level} of {height}'}"
        rows.append({"label": name, "place": place, "loss": loss, "whole": 1, "caption": text})
    base = _new_chart(rows, title="How far each column is generalized").encode(
        y=alt.Y("label:N", title=None, sort=None),
        tooltip=_tooltips(("label:N", "column"), ("caption:N", "generalized")),
    )
    axis = alt.Axis(format="%", tickCount=5)
    background = base.mark_bar(color=_COLOURS[_SOURCE], opacity=0.25)
    whole = background.encode(x=alt.X("whole:Q", title="loss", axis=axis))
    loss_bars = base.mark_bar(color=_COLOURS[_RELEASE]).encode(x=alt.X("loss:Q"))
    words = base.mark_text(align="left", dx=6, color="currentColor").encode(x=alt.X("whole:Q"), text="caption:N")
    return _finish((whole + loss_bars + words).properties(width=_WIDTH - 120, height=alt.Step(24)))


def format_levels(figures: GeneralizationFigures, names: Sequence[str]) -> str:
    """Each column and its level, as text."""
    return ", ".join(f"{name} {level}" for name, level in zip(names, figures.levels, strict=True))


def _record(figures: GeneralizationFigures, names: Sequence[str]) -> dict[str, Any]:
    return {
        "levels": format_levels(figures, names),
        "status": STATUSES[figures.status][0],
        "classes": figures.classes,
        "out": figures.suppressed_rows,
        "score": figures.score,
        "frontier": figures.frontier,
        "chosen": figures.chosen,
    }


def _generalization_tooltips(score: str) -> list[alt.Tooltip]:
    return _tooltips(
        ("levels:N", "levels"),
        ("status:N", "policy"),
        ("score:Q", score, ",.6~g"),
        ("out:Q", "suppressed rows", ",d"),
        ("classes:Q", "groups", ",d"),
    )


def frontier(
    checked: Sequence[GeneralizationFigures], names: Sequence[str], measure: str, allowed_rows: int | None
) -> Chart:
    """Generalizations by their suppressed rows and their score, with the frontier as a line.

    A generalization that does not meet the policy is drawn at its bound. Without ``allowed_rows``, no limit is drawn.
    """
    rows = [_record(figures, names) for figures in checked]
    words = [word for word, _ in STATUSES.values()]
    shapes = alt.Scale(domain=words, range=["circle", "cross", "triangle-up", "triangle-up"])
    ticks = _powers_of_ten(max((figures.suppressed_rows or 0 for figures in checked), default=1))
    measure_class = find_measure(measure)
    better = "more is better" if measure_class is not None and measure_class.is_maximized else "less is better"
    axis, title = alt.Axis(values=ticks, format=",d"), "suppressed rows (logarithmic)"
    x = alt.X("out:Q", title=title, scale=alt.Scale(type="symlog"), axis=axis)
    y = alt.Y("score:Q", title=f"{measure} ({better})", scale=alt.Scale(zero=False))
    tooltip = _generalization_tooltips("score or bound")
    points = _new_chart(rows).mark_point(filled=True, size=45, opacity=0.55).encode(
        x=x, y=y, tooltip=tooltip, color=_status_colour(rows),
        shape=alt.Shape("status:N", title=None, scale=shapes, legend=None),
    )  # fmt: skip
    line = _new_chart([row for row in rows if row["frontier"]]).mark_line(
        interpolate="step-after", color=STATUSES["satisfies"][1], strokeWidth=1.5
    ).encode(x=x, y=y, order=alt.Order("out:Q"))  # fmt: skip
    chosen = _new_chart([row for row in rows if row["chosen"]]).encode(x=x, y=y, tooltip=tooltip)
    ring = chosen.mark_point(filled=False, size=260, strokeWidth=3, color=_CHOSEN_COLOUR)
    word = chosen.mark_text(align="left", dx=14, dy=-10, fontWeight="bold", color=_CHOSEN_COLOUR)
    layers: list[Any] = [line, points, ring, word.encode(text=alt.value("chosen"))]
    if allowed_rows is not None:
        limit = _new_chart([{"out": allowed_rows, "text": "limit"}]).encode(x=x)
        limit_word = limit.mark_text(align="left", dx=4, dy=8, color="currentColor")
        rule = limit.mark_rule(strokeDash=[5, 4], color="currentColor", opacity=0.6)
        layers = [rule, limit_word.encode(text="text:N", y=alt.value(0)), *layers]
    chart = alt.layer(*layers, title="Score against suppressed rows")
    return _finish(chart.properties(width=_WIDTH, height=320))


def lattice(nodes: Sequence[GeneralizationFigures], names: Sequence[str]) -> Chart:
    """A small lattice: a row for each number of steps, a mark for each generalization, a line for each step."""
    positions, widest_row = _place_nodes(nodes)
    separator = "" if all(level < 10 for node in nodes for level in node.levels) else "·"
    marks = []
    for node in nodes:
        x_position, height = positions[node.levels]
        text = separator.join(map(str, node.levels))
        marks.append({"x": x_position, "y": height, "text": text, **_record(node, names)})
    steps = [
        {"x": positions[low][0], "y": positions[low][1], "x2": positions[high][0], "y2": positions[high][1]}
        for low in positions
        for high in (tuple(level + (i == j) for j, level in enumerate(low)) for i in range(len(low)))
        if high in positions
    ]
    heights = sorted({height for _, height in positions.values()})
    axis = alt.Axis(values=heights, format="d", grid=False)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(nice=False, padding=30))
    y = alt.Y("y:Q", title="steps of generalization", axis=axis, scale=alt.Scale(padding=20))
    lines = _new_chart(steps).mark_rule(color="currentColor", opacity=0.18).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    base = _new_chart(marks).encode(x=x, y=y, tooltip=_generalization_tooltips("score"))
    chosen = _new_chart([mark for mark in marks if mark["chosen"]]).encode(x=x, y=y)
    ring = chosen.mark_point(filled=False, size=520, strokeWidth=3, color=_CHOSEN_COLOUR)
    dots = base.mark_circle(size=190, opacity=1).encode(color=_status_colour(marks))
    texts = base.mark_text(dy=17, fontSize=9, color="currentColor").encode(text="text:N")
    title = alt.TitleParams("The lattice", subtitle=f"levels of {', '.join(names)}", subtitleColor="currentColor")
    width, height = max(_WIDTH, min(widest_row * 44, 1200)), max(120, 56 * len(heights))
    return _finish(alt.layer(lines, ring, dots, texts, title=title).properties(width=width, height=height))


def _place_nodes(nodes: Sequence[GeneralizationFigures]) -> tuple[dict[tuple[int, ...], tuple[float, int]], int]:
    """The position of each generalization, and the number of generalizations in the widest row."""
    rows: dict[int, list[tuple[int, ...]]] = {}
    for levels in sorted(node.levels for node in nodes):
        rows.setdefault(sum(levels), []).append(levels)
    spots = {levels: (i - (len(row) - 1) / 2, height) for height, row in rows.items() for i, levels in enumerate(row)}
    return spots, max(map(len, rows.values()), default=1)


def statuses(counts: Iterable[tuple[int, str, int]]) -> Chart:
    """A large lattice: the generalizations of each status by their number of steps."""
    rows = [{"height": height, "status": STATUSES[status][0], "count": count} for height, status, count in counts]
    chart = _new_chart(rows, title="The evaluated generalizations").mark_bar().encode(
        y=alt.Y("height:O", title="steps of generalization", sort="descending"),
        x=alt.X("count:Q", title="generalizations", axis=alt.Axis(format=",d")),
        color=_status_colour(rows),
        tooltip=_tooltips(("height:O", "steps"), ("status:N", "policy"), ("count:Q", "generalizations", ",d")),
    )  # fmt: skip
    return _finish(chart.properties(width=_WIDTH, height=min(16 * len({row["height"] for row in rows}), 480)))


def comparison(results: Iterable[Mapping[str, Any]], measure: str) -> Chart:
    rows = [
        {"label": row["strategy"], "place": place, "score": row["score"], "out": row["suppressed_rows"],
         "classes": row["classes"], "seconds": row["seconds"]}
        for place, row in enumerate(results)
        if row["score"] is not None
    ]  # fmt: skip
    chart = _new_chart(rows, title="Strategies").mark_bar(color=_COLOURS[_RELEASE]).encode(
        x=alt.X("score:Q", title=measure),
        y=alt.Y("label:N", title=None, sort=alt.SortField("place")),
        tooltip=_tooltips(
            ("label:N", "strategy"), ("score:Q", "score", ",.6~g"), ("out:Q", "suppressed rows", ",d"),
            ("classes:Q", "groups", ",d"), ("seconds:Q", "seconds", ".2f"),
        ),
    )  # fmt: skip
    return _finish(chart.properties(width=_WIDTH, height=alt.Step(22)))
