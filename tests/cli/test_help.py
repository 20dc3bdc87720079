"""The help of the command line: every command, narrow and wide; the version; completion in shells."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

import sqlanon
from sqlanon.cli import app
from support.commands import cli

GROUP = typer.main.get_command(app)
COMMANDS = GROUP.list_commands(typer.Context(GROUP))  # type: ignore[attr-defined]


def test_version_option_prints_the_package_version() -> None:
    assert cli("--version").out == f"sqlanon {sqlanon.__version__}\n"


def test_without_a_command_the_help_is_shown() -> None:
    ended = cli()
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == cli("-h").out == cli("--help").out
    for name in COMMANDS:
        assert f"\n  {name} " in ended.out
    for status in ("0", "1", "2", "130"):
        assert f"\n  {status:<3}  " in ended.out


@pytest.mark.cases(3)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_fits_and_breaks_no_words(name: str | None, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ended = cli(*([name] if name else []), "-h")
    assert (ended.status, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= width
    command = GROUP if name is None else GROUP.get_command(typer.Context(GROUP), name)  # type: ignore[attr-defined]
    assert command is not None
    texts = [command.help or "", *(str(getattr(parameter, "help", None) or "") for parameter in command.params)]
    assert all(texts), "every command, argument and option has a sentence"
    parts = set(ended.out.split())
    assert not {word for text in texts for word in text.split()} - parts
    for option in (
        opt for parameter in command.params if parameter.param_type_name == "option" for opt in parameter.opts
    ):
        assert option in ended.out
    if name is not None:
        assert f"\n  sqlanon {name} " in ended.out or ended.out.count(f"sqlanon {name}\n")
        assert "\nExample" in ended.out and "\nExit status:\n  0  done\n" in ended.out and "\n  2  " in ended.out


@pytest.mark.thorough
def test_completion_offers_commands_and_options_and_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom sqlanon.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('duckdb', 'sqlglot', 'rich', 'sqlanon.policy') if name in sys.modules])"
    )

    def complete_words(words: str) -> list[str]:
        env = os.environ | {"_SQLANON_COMPLETE": "complete_bash", "COMP_WORDS": words}
        env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        *offered, heavy = done.stdout.splitlines()
        assert heavy == "[]"
        return offered

    assert complete_words("sqlanon an") == ["anonymize"]
    assert "--memory-limit" in complete_words("sqlanon anonymize --")


@pytest.mark.thorough
def test_the_script_of_a_shell_is_shown() -> None:
    env = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # else it is that of the parent process
    done = subprocess.run(
        [sys.executable, "-m", "sqlanon", "--show-completion", "zsh"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("#compdef sqlanon") and "_SQLANON_COMPLETE=complete_zsh" in done.stdout
