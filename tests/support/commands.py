"""Run the command line in this process."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import typer.main

from sqlanon.cli import main


@dataclass(frozen=True)
class Ended:
    """Outcome of a command."""

    status: int
    out: str
    err: str


def cli(*arguments: str | Path, cwd: Path | None = None) -> Ended:
    """Run the command line in this process, as the console script does. No traceback is ever shown."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    status = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(typer.main, "get_command", _commands)
        patch.delenv("SQLANON_DEBUG", raising=False)
        patch.setattr(sys, "argv", ["sqlanon", *map(str, arguments)])
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main()
        except SystemExit as done:
            assert done.code is None or isinstance(done.code, int)
            status = done.code or 0
    ended = Ended(status, *(_text(stream) for stream in (out, err)))
    sys.stdout.write(ended.out)  # pytest shows it with a failure
    sys.stderr.write(ended.err)
    assert "Traceback" not in ended.out + ended.err
    return ended


_commands = cache(typer.main.get_command)
"""The commands of the application, made once: to make them takes longer than most of them."""


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
