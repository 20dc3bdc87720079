"""The help of the command line: usage, options, examples and exit statuses of each command; no word is broken."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

MAX_WIDTH = 100
"""Maximum length of a line, however wide the terminal is."""

START, BEFORE, RELEASES, AFTER, MORE = PANELS = (
    "Start",
    "Before a release",
    "Make releases",
    "Check releases",
    "Set up",
)
"""The groups of commands, in order."""

_USAGE_ERROR = "the request is wrong: the policy, a hierarchy, the input or an option"
_MAX_NAME = 26
"""Maximum length of a name on the line of its description; a longer one has a separate line."""


def format_epilog(examples: Sequence[str], refusal: str | None = None, interruption: str | None = None) -> str:
    """The end of a command's help: examples, and the exit statuses; ``refusal`` is the meaning of exit status 1."""
    meanings = {"0": "done", "1": refusal, "2": _USAGE_ERROR, "130": interruption}
    width = 1 if interruption is None else 3
    statuses = [f"  {status:<{width}}  {meaning}" for status, meaning in meanings.items() if meaning]
    heading = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join([heading, *(f"  {example}" for example in examples), "", "Exit status:", *statuses])


class Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_format_page(self, ctx, {}))


class Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            panels[command.rich_help_panel].append((name, command.help.split("\n\n")[0]))
        formatter.write(_format_page(self, ctx, panels))


def _format_page(command: Any, ctx: Any, panels: dict[str, list[tuple[str, str]]]) -> str:
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    required = [f"{option.opts[0]} {option.metavar}" for option in options if option.required]
    names = [argument.metavar if argument.required else f"[{argument.metavar}]" for argument in arguments]
    usage = " ".join(["[OPTIONS]", *required, *names, *(["COMMAND"] if panels else [])])
    lines = _wrap(usage, width, f"Usage: {ctx.command_path} ", " " * 7)
    for paragraph in command.help.split("\n\n"):
        lines += ["", *_wrap(paragraph, width, "  ", "  ")]
    sections = panels | {
        "Arguments": [(argument.metavar, argument.help) for argument in arguments],
        "Options": [(_format_names(option), option.help) for option in options],
    }
    for heading, rows in sections.items():
        if rows:
            lines += ["", f"{heading}:", *_format_columns(rows, width)]
    for line in ["", *command.epilog.split("\n")]:
        text = re.sub(r"^ *(\d+ +)?", "", line)
        start = line[: len(line) - len(text)]
        lines += _wrap(text, width, start, " " * len(start))
    return "\n".join(lines).rstrip() + "\n"


def _format_names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return ", ".join(sorted(option.opts, key=len)) + value


def _format_columns(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    indent = " " * (min(max(len(name) for name, _ in rows), _MAX_NAME) + 4)
    lines = []
    for name, text in rows:
        start = f"  {name}".ljust(len(indent))
        if len(name) > len(indent) - 4:
            lines.append(start.rstrip())
            start = indent
        lines += _wrap(text, width, start, indent)
    return lines


def _wrap(text: str, width: int, start: str, indent: str) -> list[str]:
    wrapped = textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return wrapped or [start.rstrip()]
