"""What all charts share: their colours, and how they fit the page around them.

What comes from strangers (labels, names of columns) stands in the data and in titles of charts, never in a field's name
or an expression. Colours of texts and lines are those of the page around (``currentColor``), so that a chart fits a
light page, a dark one and paper. altair is needed: who imports the charts has asked for it first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt

from sqlanon.release.markup import harmless

Chart: TypeAlias = "alt.Chart | alt.LayerChart | alt.HConcatChart"

WIDTH = 760
BEFORE, AFTER, CHOSEN = "#8a93a6", "#3a7bd5", "#e39a0b"
BEFORE_WORD, AFTER_WORD = "the source", "the release"
STATUSES: Mapping[str, tuple[str, str]] = {
    "satisfies": ("meets the policy", "#2a9d6f"),
    "violates": ("does not", "#d1495b"),
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
    return harmless_


def _harmless(part: Any) -> Any:
    """A part of a chart, changed where it stands, and all that is in it."""
    if isinstance(part, str):
        return harmless(part)
    if isinstance(part, Mapping):
        return {harmless(name) if isinstance(name, str) else name: _harmless(one) for name, one in part.items()}
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
    """The colour of the status that generalizations have."""
    there = {row["status"] for row in rows}
    found = {word: colour for word, colour in STATUSES.values() if word in there}
    return alt.Color("status:N", title=None, scale=alt.Scale(domain=list(found), range=list(found.values())))
