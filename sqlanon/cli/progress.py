"""Show progress on a terminal's stderr: the stage, its figures, and the time left if it is known."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from sqlanon.pipeline import StageProgress

_STAGES = {
    "scan": "reading the source",
    "search": "searching",
    "noise": "drawing noise",
    "write": "writing and auditing the release",
    "trials": "trying other strategies on a sample",
}

_BAR_DELAY = 1.0
"""Seconds that a statement runs before it has a bar."""

_SPINNER, _REFRESHES_PER_SECOND = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 8
_ASCII = str.maketrans({**dict.fromkeys(_SPINNER, "*"), "━": "#", "─": "-"})
_BAR_WIDTH = 20
_MIN_SHARE = 0.02  # a smaller share gives no useful estimate of the time left
_MAX_ESTIMATE = 24 * 3600.0  # seconds; longer estimates are not shown

StatementProgress: TypeAlias = "Callable[[], tuple[float, float | None] | None]"
"""The seconds that the statement has run, and its finished share if that is known; None between statements."""


def _running_statement() -> tuple[float, float | None] | None:
    from sqlanon.engines.duckdb import RUNNING_STATEMENTS

    return RUNNING_STATEMENTS.progress()


@contextmanager
def show_progress(job: str = "opening the source", *, time_limit: float | None = None) -> Iterator[StageProgress]:
    """A callback for the progress of a job; ``time_limit`` is that of its search, in seconds."""
    with _show_on_terminal(lambda: ProgressLine(job, time_limit)) as progress:
        yield progress


@contextmanager
def show_comparison(strategies: int, seconds: float | None = None) -> Iterator[StageProgress]:
    """A callback for a comparison of strategies, with these seconds for each; it takes the strategy as the stage."""
    with _show_on_terminal(lambda: ComparisonLine(strategies, seconds)) as progress:
        yield progress


@contextmanager
def _show_on_terminal(make_line: Callable[[], ProgressLine]) -> Iterator[StageProgress]:
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda stage, waiting, finished, best: None
        return
    from rich.console import Console

    with show_line(Console(stderr=True), make_line()) as line:
        yield line.update


class ProgressLine:
    """The line that the terminal shows, rendered several times a second."""

    def __init__(
        self,
        job: str,
        time_limit: float | None = None,
        statement: StatementProgress = _running_statement,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._statement, self._clock, self._time_limit = statement, clock, time_limit
        self._text, self._stage = job, ""
        self._started = self._stage_started = clock()

    def update(self, stage: str, waiting: int, finished: int, best: float | None) -> None:
        self._begin_stage(stage)
        figures = {
            "search": _format_search(waiting, finished, best),
            "noise": f": {finished:,} of {waiting + finished:,} records",
        }
        self._text = _STAGES[stage] + figures.get(stage, "")

    def _begin_stage(self, stage: str) -> None:
        if stage != self._stage:
            self._stage, self._stage_started = stage, self._clock()

    def text(self) -> str:
        """The line without its spinner."""
        parts = [self._text, *self._time_left()]
        if (elapsed := self._clock() - self._started) >= 2:
            parts.append(f"{format_duration(elapsed)} so far")
        return ", ".join(parts)

    def _time_left(self) -> list[str]:
        if self._stage == "search" and self._time_limit is not None:
            return self._at_most(self._time_limit, 0.0)
        return _format_statement(self._statement())

    def _at_most(self, stage_seconds: float, later_seconds: float) -> list[str]:
        stage_left = stage_seconds - (self._clock() - self._stage_started)
        left = max(0.0, stage_left) + later_seconds
        return [f"at most {format_duration(left)} left"] if left > 0 else []


class ComparisonLine(ProgressLine):
    """The line of a comparison of strategies, with these seconds for each."""

    def __init__(
        self,
        strategies: int,
        seconds: float | None = None,
        statement: StatementProgress = _running_statement,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__("starting", None, statement, clock)
        self._strategies, self._seconds, self._finished = strategies, seconds, -1

    def update(self, stage: str, waiting: int, finished: int, best: float | None) -> None:
        self._finished += stage != self._stage
        self._begin_stage(stage)
        self._text = f"{format_bar(self._finished / self._strategies)} {self._finished}/{self._strategies} {stage}"
        self._text += _format_search(waiting, finished, best) if finished else ""

    def _time_left(self) -> list[str]:
        if self._seconds is None or self._finished < 0:
            return _format_statement(self._statement())
        return self._at_most(self._seconds, (self._strategies - self._finished - 1) * self._seconds)


@contextmanager
def show_line(console: Console, line: ProgressLine) -> Iterator[ProgressLine]:
    """Show a line with a spinner until the job is done, then erase it."""
    from rich.live import Live
    from rich.text import Text

    from sqlanon.engines.duckdb import RUNNING_STATEMENTS

    def render() -> RenderableType:
        text = f"{_SPINNER[int(_REFRESHES_PER_SECOND * monotonic()) % len(_SPINNER)]} {line.text()}"
        if console.options.ascii_only:
            text = text.translate(_ASCII)
        return Text(text, no_wrap=True, overflow="ellipsis")

    live = Live(console=console, transient=True, refresh_per_second=_REFRESHES_PER_SECOND, get_renderable=render)
    with RUNNING_STATEMENTS.watch_progress(), live:
        live.refresh()
        yield line


def format_bar(share: float) -> str:
    """A share as a bar.

    >>> format_bar(0.45)
    '━━━━━━━━━───────────'
    """
    filled = int(_BAR_WIDTH * min(max(share, 0.0), 1.0))
    return "━" * filled + "─" * (_BAR_WIDTH - filled)


def format_duration(seconds: float) -> str:
    """A time for people, rounded up.

    >>> [format_duration(seconds) for seconds in (0.2, 59.5, 61, 3600, 7265)]
    ['1 s', '1 min', '2 min', '1 h', '2 h 2 min']
    """
    whole = math.ceil(max(seconds, 0.0))
    if whole < 60:
        return f"{max(whole, 1)} s"
    hours, minutes = divmod(math.ceil(whole / 60), 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{minutes} min"] if minutes else [])])


def _format_statement(progress: tuple[float, float | None] | None) -> list[str]:
    """The share of a long statement that is finished, and the time left at the same speed."""
    if progress is None or progress[0] < _BAR_DELAY:
        return []
    seconds, share = progress
    if share is None or share < _MIN_SHARE:
        return []
    left = seconds * (1 - share) / share
    finished = f"this statement: {format_bar(share)} {100 * share:.0f} %"
    return [finished, f"about {format_duration(left)} left for it"] if left < _MAX_ESTIMATE else [finished]


def _format_search(waiting: int, finished: int, best: float | None) -> str:
    score = "none yet" if best is None else f"{best:.6g}"
    return f": {waiting:,} open, {finished:,} checked, best score {score}"
