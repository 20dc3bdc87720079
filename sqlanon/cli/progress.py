"""Progress on stderr, and only to a terminal: what is being done, how far it is, and the time left if it is known."""

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

SHOWN_AFTER = 1.0
"""Seconds that a statement runs before it has a bar."""

_SPINNER, _REFRESHES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 8
_ASCII = str.maketrans({**dict.fromkeys(_SPINNER, "*"), "━": "#", "─": "-"})
_WIDTH = 20  # of a bar
_LEAST_SHARE = 0.02  # a share below it says too little about the time left
_LONGEST = 24 * 3600.0  # an estimate beyond it is none

Statement: TypeAlias = "Callable[[], tuple[float, float | None] | None]"
"""The seconds that a statement runs, and its share done if that is known."""


@contextmanager
def shown_progress(doing: str = "opening the source", *, time_limit: float | None = None) -> Iterator[StageProgress]:
    """A function that reports progress: the stage, generalizations open and checked, and the best score so far.

    The ``time_limit`` is that of the search, in seconds.
    """
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda stage, open_, checked, best: None
        return
    from rich.console import Console

    with shown_line(Console(stderr=True), Line(doing, time_limit)) as line:
        yield line.show


@contextmanager
def shown_comparison(strategies: int, seconds: float | None = None) -> Iterator[StageProgress]:
    """A function that reports a comparison of strategies, for these seconds each: the one at work in place of the
    stage."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda strategy, open_, checked, best: None
        return
    from rich.console import Console

    with shown_line(Console(stderr=True), ComparisonLine(strategies, seconds)) as line:
        yield line.show


class Line:
    """What the terminal shows of a job, made anew several times a second."""

    def __init__(
        self,
        doing: str,
        time_limit: float | None = None,
        statement: Statement | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if statement is None:
            from sqlanon.engines.duckdb import RUNNING_STATEMENTS

            statement = RUNNING_STATEMENTS.progress
        self._statement, self._clock, self._time_limit = statement, clock, time_limit
        self._doing, self._more, self._stage = doing, "", ""
        self._began = self._stage_began = clock()

    def show(self, stage: str, open_: int, checked: int, best: float | None) -> None:
        if stage != self._stage:
            self._stage, self._stage_began = stage, self._clock()
        self._doing = _STAGES[stage]
        more = {"search": _searched(open_, checked, best), "noise": f": {checked:,} of {open_ + checked:,} records"}
        self._more = more.get(stage, "")

    def text(self) -> str:
        """The line without its spinner."""
        parts = [self._doing + self._more, *self._known_end()]
        if (passed := self._clock() - self._began) >= 2:
            parts.append(f"{duration(passed)} so far")
        return ", ".join(parts)

    def _known_end(self) -> list[str]:
        if self._stage == "search" and self._time_limit is not None:
            left = self._time_limit - (self._clock() - self._stage_began)
            return [f"at most {duration(left)} left"] if left > 0 else []
        return _of_a_statement(self._statement())


class ComparisonLine(Line):
    """The line of a comparison of so many strategies, for these seconds each."""

    def __init__(
        self,
        strategies: int,
        seconds: float | None = None,
        statement: Statement | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__("starting", None, statement, clock)
        self._strategies, self._seconds, self._begun = strategies, seconds, dict[str, None]()

    def show(self, stage: str, open_: int, checked: int, best: float | None) -> None:
        if stage != self._stage:
            self._stage, self._stage_began = stage, self._clock()
        self._begun[stage] = None
        done = len(self._begun) - 1
        self._doing = f"{bar(done / self._strategies)} {done}/{self._strategies} {stage}"
        self._more = _searched(open_, checked, best) if checked else ""

    def _known_end(self) -> list[str]:
        if self._seconds is None or not self._begun:
            return _of_a_statement(self._statement())
        current = max(0.0, self._seconds - (self._clock() - self._stage_began))
        left = (self._strategies - len(self._begun)) * self._seconds + current
        return [f"at most {duration(left)} left"] if left > 0 else []


@contextmanager
def shown_line(console: Console, line: Line) -> Iterator[Line]:
    """Show a line with a spinner until the job is done; nothing of it stays."""
    from rich.live import Live
    from rich.text import Text

    from sqlanon.engines.duckdb import RUNNING_STATEMENTS

    def rendered() -> RenderableType:
        shown = f"{_SPINNER[int(_REFRESHES * monotonic()) % len(_SPINNER)]} {line.text()}"
        if console.options.ascii_only:
            shown = shown.translate(_ASCII)
        return Text(shown, no_wrap=True, overflow="ellipsis")

    live = Live(console=console, transient=True, refresh_per_second=_REFRESHES, get_renderable=rendered)
    with RUNNING_STATEMENTS.watched(), live:
        live.refresh()
        yield line


def bar(share: float) -> str:
    """A share as a bar.

    >>> bar(0.45)
    '━━━━━━━━━───────────'
    """
    done = int(_WIDTH * min(max(share, 0.0), 1.0))
    return "━" * done + "─" * (_WIDTH - done)


def duration(seconds: float) -> str:
    """A time for people, rounded up.

    >>> duration(0.2), duration(59.5), duration(61), duration(3600), duration(7265)
    ('1 s', '1 min', '2 min', '1 h', '2 h 2 min')
    """
    whole = math.ceil(max(seconds, 0.0))
    if whole < 60:
        return f"{max(whole, 1)} s"
    minutes = math.ceil(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def _of_a_statement(found: tuple[float, float | None] | None) -> list[str]:
    """How far a long statement is, and when it will be done if the rest of it is as quick."""
    if found is None or found[0] < SHOWN_AFTER:
        return []
    seconds, share = found
    if share is None or share < _LEAST_SHARE:
        return []
    left = seconds * (1 - share) / share
    done = f"this statement: {bar(share)} {100 * share:.0f} %"
    return [done, f"about {duration(left)} left for it"] if left < _LONGEST else [done]


def _searched(open_: int, checked: int, best: float | None) -> str:
    score = "none yet" if best is None else f"{best:.6g}"
    return f": {open_:,} open, {checked:,} checked, best score {score}"
