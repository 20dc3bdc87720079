"""Progress on stderr, and only to a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Shown = Callable[[str, int, int, "float | None"], None]

_WORDS = {"scan": "reading the source", "search": "searching", "write": "writing and auditing the release"}


@contextmanager
def shown_progress() -> Iterator[Shown]:
    """A function to tell of progress: the stage, generalizations open and checked, and the best score so far."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda stage, open_, checked, best: None
        return
    from rich.console import Console  # noqa: PLC0415  (only a terminal pays for it)

    with Console(stderr=True).status("starting") as status:

        def show(stage: str, open_: int, checked: int, best: float | None) -> None:
            line = _WORDS[stage]
            if stage == "search":
                score = "none yet" if best is None else f"{best:.6g}"
                line += f": {open_:,} open, {checked:,} checked, best score {score}"
            status.update(line)

        yield show
