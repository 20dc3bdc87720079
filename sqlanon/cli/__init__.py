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
from sqlanon.cli.interrupts import ending_signal
from sqlanon.errors import SqlanonError
from sqlanon.support.terminal import escape_unencodable_output, print_lines
from sqlanon.support.workdir import describe_disk_error

__all__ = ["app", "main"]

_MAX_LINES = 40
"""Maximum number of lines of an error on a terminal."""


def main() -> None:
    """Run the command line; errors are reported as a sentence and an exit status, without a traceback."""
    escape_unencodable_output()
    try:
        _app_with_command(sys.argv[1] if len(sys.argv) > 1 else "")(prog_name="sqlanon")
    except BaseException as error:
        number = ending_signal()
        if number is not None and not (isinstance(error, SystemExit) and not error.code):
            sys.exit(128 + number)  # the interruption caused the error
        if not isinstance(error, Exception):
            raise
        _exit_with_error(error)


def _app_with_command(name: str) -> Typer:
    """The application with this command alone: building all commands takes longer than running some."""
    commands = {
        get_command_name(command.callback.__name__): command for command in app.registered_commands if command.callback
    }
    if name not in commands:
        return app
    small_app = copy(app)
    small_app.registered_commands = [commands[name]]
    return small_app


def _exit_with_error(error: Exception) -> None:
    """Print the sentence of an error and exit with its status."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if isinstance(error, RuntimeError) and "interrupted" in str(error).lower():  # DuckDB's error after Ctrl-C
        sys.exit(130)
    is_internal = not isinstance(error, SqlanonError | OSError)
    if is_internal and os.environ.get("SQLANON_DEBUG"):
        raise error
    if isinstance(error, SqlanonError):
        message = _shorten(str(error))
    elif (disk_message := describe_disk_error(error)) is not None:
        message = disk_message
    elif isinstance(error, OSError):
        message = f"{error.filename}: " if error.filename else ""
        message += error.strerror or type(error).__name__
    elif type(error).__name__ == "OutOfMemoryException":  # DuckDB's
        message = "out of memory: raise --memory-limit or lower --threads"
    else:  # the message of an engine may quote private values
        message = f"internal error ({type(error).__name__}). Set SQLANON_DEBUG=1 for the traceback, which may quote "
        message += "values of the source"
    print_lines(f"error: {message}", err=True)
    sys.exit(error.exit_status if isinstance(error, SqlanonError) else SqlanonError.exit_status)


def _shorten(text: str) -> str:
    """The first lines of an error on a terminal: some errors have a long statement that shows their rows."""
    lines = text.split("\n")
    if len(lines) <= _MAX_LINES or not (sys.stderr and sys.stderr.isatty()):
        return text
    more = f"... {len(lines) - _MAX_LINES:,} more lines: to read them, add 2> error.txt to the command"
    return "\n".join([*lines[:_MAX_LINES], more])
