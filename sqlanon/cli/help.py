"""The help of the command line: usage, options, an example and the exit statuses of each command."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

WIDEST = 100
"""The longest lines, in characters, however wide the terminal is."""

START, BEFORE, RELEASES, AFTER, MORE = "Start", "Before a release", "Make releases", "Check releases", "Set up"
"""The groups of commands, in their order."""

REFUSED = "the request is wrong: the policy, a hierarchy, the input or an option"

_GAP, _NAMES = 2, 26


def ending(examples: Sequence[str], refusal: str | None = None, interrupted: bool = False) -> str:
    """The end of a command's help: examples, and the exit statuses; a refusal is what exit status 1 means."""
    meanings = {"0": "done", "1": refusal, "2": REFUSED, "130": "interrupted (128 + the number of the signal)"}
    if not interrupted:
        meanings.pop("130")
    statuses = [f"  {status:<{max(map(len, meanings))}}  {meaning}" for status, meaning in meanings.items() if meaning]
    shown = [f"  {example}" for example in examples]
    return "\n".join([f"Example{'s' if shown[1:] else ''}:", *shown, "", "Exit status:", *statuses])


class Command(TyperCommand):
    """A command whose help breaks no words and ends with an example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(_page(self, ctx, []))


class Group(TyperGroup):
    """The commands, in groups of those that are used together."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in (START, BEFORE, RELEASES, AFTER, MORE)}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                first = (command.help or "").split("\n\n")[0]
                panels.setdefault(str(getattr(command, "rich_help_panel", MORE)), []).append((name, first))
        formatter.write(_page(self, ctx, list(panels.items())))


def _page(command: Any, ctx: Any, panels: Sequence[tuple[str, list[tuple[str, str]]]]) -> str:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    params = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [one for one in params if one.param_type_name == "argument"]
    options = [one for one in params if one.param_type_name == "option"]
    needed = [_name(one, short=True) for one in options if one.required]
    usage = ["[OPTIONS]", *needed, *map(_usage, arguments), *(["COMMAND"] if panels else [])]
    lines = _wrapped(" ".join(usage), width, f"Usage: {ctx.command_path} ", " " * 7)
    for paragraph in (command.help or "").split("\n\n"):
        lines += ["", *_wrapped(" ".join(paragraph.split()), width, "  ", "  ")]
    sections = [*panels, ("Arguments", [(_usage(one).strip("[]"), one.help or "") for one in arguments])]
    sections.append(("Options", [(_name(one), one.help or "") for one in options]))
    for heading, rows in sections:
        if rows:
            lines += ["", f"{heading}:", *_columns(rows, width)]
    for line in ["", *(command.epilog or "").split("\n")]:
        text = re.sub(r"^ *(\d+ +)?", "", line)
        first = line[: len(line) - len(text)]
        lines += _wrapped(text, width, first, " " * len(first)) if line else [""]
    return "\n".join(lines).rstrip() + "\n"


def _name(option: Any, short: bool = False) -> str:
    names = [*option.opts[:1]] if short else sorted(option.opts, key=len)
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return ", ".join(names) + value


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _columns(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    rows = list(rows)
    left = min(max(len(name) for name, _ in rows), _NAMES) + 2 + _GAP
    lines = []
    for name, text in rows:
        first = f"  {name}".ljust(left)
        if len(name) > left - 2 - _GAP:
            lines.append(first.rstrip())
            first = " " * left
        lines += _wrapped(" ".join(text.split()), width, first, " " * left)
    return lines


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
