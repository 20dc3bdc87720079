"""Progress on stderr, and only to a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlanon.pipeline import StageProgress

_WORDS = {
    "scan": "reading the source",
    "search": "searching",
    "noise": "drawing noise",
    "write": "writing and auditing the release",
    "trials": "trying other strategies on a sample",
}


@contextmanager
def shown_progress() -> Iterator[StageProgress]:
    """A function that reports progress: the stage, generalizations open and checked, and the best score so far."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda stage, open_, checked, best: None
        return
    from rich.console import Console

    with Console(stderr=True).status("opening the source") as status:

        def show(stage: str, open_: int, checked: int, best: float | None) -> None:
            more = {"search": _searched(open_, checked, best), "noise": f": {checked:,} of {open_ + checked:,} records"}
            status.update(_WORDS[stage] + more.get(stage, ""))

        yield show


@contextmanager
def shown_comparison(strategies: int) -> Iterator[StageProgress]:
    """A function that reports a comparison of strategies: the one at work in place of the stage. Shows a bar."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda strategy, open_, checked, best: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, begun = bar.add_task("starting", total=strategies), dict[str, None]()

        def show(strategy: str, open_: int, checked: int, best: float | None) -> None:
            is_next = strategy not in begun  # each is shown, however quick it is
            begun[strategy] = None
            line = strategy + (_searched(open_, checked, best) if checked else "")
            bar.update(task, completed=len(begun) - 1, description=line, refresh=is_next)

        yield show


def _searched(open_: int, checked: int, best: float | None) -> str:
    score = "none yet" if best is None else f"{best:.6g}"
    return f": {open_:,} open, {checked:,} checked, best score {score}"
