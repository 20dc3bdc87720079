"""The command line: one thin function per command.

Results go to stdout, progress and errors to stderr. Exit status: 0 done; 1 the job ran and the answer is no;
2 the request is wrong.
"""

from __future__ import annotations

import os
import sys
from copy import copy

from typer import Typer
from typer.main import get_command_name

from sqlanon.cli.commands import app
from sqlanon.cli.interrupts import ended_by
from sqlanon.errors import ReleaseError, SqlanonError
from sqlanon.support.terminal import escape_unencodable_output, print_lines
from sqlanon.support.workdir import describe_disk_error

__all__ = ["app", "main"]


_MOST_LINES = 40
"""The most lines of an error on a terminal."""


def main() -> None:
    """Run the command line; errors become a sentence and an exit status, never a traceback."""
    escape_unencodable_output()
    try:
        _asked(sys.argv[1] if len(sys.argv) > 1 else "")(prog_name="sqlanon")
    except BaseException as error:
        if (number := ended_by()) is not None and not (isinstance(error, SystemExit) and not error.code):
            sys.exit(128 + number)  # errors come of what was broken off
        if not isinstance(error, Exception):
            raise
        _say(error)


def _asked(name: str) -> Typer:
    """The application with the one command that is asked for: to build them all takes longer than to run some."""
    commands = {get_command_name(one.callback.__name__): one for one in app.registered_commands if one.callback}
    if name not in commands:
        return app
    only = copy(app)
    only.registered_commands = [commands[name]]
    return only


def _say(error: Exception) -> None:
    if isinstance(error, SqlanonError):
        print_lines(_cut(f"error: {error}"), err=True)
        sys.exit(error.exit_status)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        print_lines(
            f"error: {describe_disk_error(error) or f'{named}{error.strerror or type(error).__name__}'}", err=True
        )
        sys.exit(SqlanonError.exit_status)
    # An engine's message may quote private values: only its kind is shown.
    if isinstance(error, RuntimeError) and "interrupted" in str(error).lower():  # the engine's word for Ctrl-C
        sys.exit(130)
    if os.environ.get("SQLANON_DEBUG"):
        raise error
    if (message := describe_disk_error(error)) is not None:
        print_lines(f"error: {message}", err=True)
        sys.exit(SqlanonError.exit_status)
    if type(error).__name__ == "OutOfMemoryException":  # the engine's
        print_lines("error: out of memory: raise --memory-limit or lower --threads", err=True)
        sys.exit(SqlanonError.exit_status)
    print_lines(
        f"error: internal error ({type(error).__name__}). Set SQLANON_DEBUG=1 for the traceback, which may quote "
        "values of the source",
        err=True,
    )
    sys.exit(ReleaseError.exit_status)


def _cut(text: str) -> str:
    """The first lines of an error on a terminal: some have a long statement that shows their rows."""
    lines = text.split("\n")
    if len(lines) <= _MOST_LINES or not (sys.stderr and sys.stderr.isatty()):
        return text
    rest = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], f"... {rest:,} more lines: to read them, add 2> error.txt to the command"])
