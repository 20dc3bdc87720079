"""The output for people: in pipes, on wide and narrow terminals, without colours or UTF-8, with harmful names."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.cli import _exit_with_error
from sqlanon.errors import ReleaseError
from sqlanon.support.terminal import (
    escape_unencodable_output,
    format_percent,
    make_printable,
    print_bars,
    print_lines,
    print_sql,
    print_table,
)

BOXES = re.compile("[\u2500-\u259f]")
"""Lines, corners and blocks."""

PAINT = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|10[0-7]|38|48)[0-9;]*m")
STEERED = re.compile(r"\x1b\[\?25[lh]|\x1b\[\d*[AKJ]|\r")
HOSTILE = [
    "[red]x[/red]",
    "[/]",
    "\x1b[31mred\x1b[0m",
    "two\nlines",
    ":smile:",
    "a\tb",
    "\u202eabc",
    "日本",
    "[link=x]",
]


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


# --- in a pipe


def test_columns_are_aligned_and_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "an attribute with a name that is longer than any terminal is wide " * 3
    print_table(["name", "rows", "share"], [(long, "1,234", "12.5 %"), ("b", "7", "0.1 %")])
    head, first, second = lines_of(capsys)
    assert first == f"{long}  1,234  12.5 %"
    assert second == f"{'b':<{len(long)}}      7   0.1 %"
    assert head == f"{'name':<{len(long)}}   rows   share"


def test_text_is_left_and_numbers_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("1", "x", "-1.5e+06", "5-8", ""), ("12", "1", "", "129-256", "no"), ("3 (optimal)", "", "2", "1", "yes")]
    print_table(["a", "b", "c", "d", "e"], rows)
    assert lines_of(capsys) == [
        "          a  b         c        d  e",
        "          1  x  -1.5e+06      5-8",
        "         12  1            129-256  no",
        "3 (optimal)            2        1  yes",
    ]


def test_a_table_without_rows_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "b"], [])
    print_bars(("rows", "classes"), {})
    assert lines_of(capsys) == ["a  b", "rows  classes"]


def test_names_that_do_harm_are_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name [b]", "n"], [(name, "1") for name in HOSTILE])
    for name in HOSTILE:
        print_lines(name)
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and "\t" not in out
    printed = [
        "[red]x[/red]", "[/]", "\\x1b[31mred\\x1b[0m", "two\\nlines", ":smile:", "a\\tb", "\\u202eabc", "日本",
        "[link=x]",
    ]  # fmt: skip
    lines = out.splitlines()[1:]
    for name, line in zip(printed, lines, strict=False):
        assert line == name + " " * (max(map(len, printed)) + 2 - columns_of(name)) + "1"
    assert lines[len(printed) :] == [
        line for name in printed for line in name.split("\\n")
    ]  # a sentence may have lines


def test_control_characters_are_escaped() -> None:
    steering = [chr(code) for code in (*range(32), *range(127, 160), 0x2028, 0x2029, 0x202E, 0x2066, 0xD800)]
    for character in steering:
        assert make_printable(character).isascii() and make_printable(character).startswith("\\")
    text = "é日🙂 [x] \\n \u00a0"
    assert make_printable(text) == text


def test_bars_are_as_long_as_counts_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_bars(("rows in a class", "classes"), {"1": 3000, "2": 1500, "3-4": 0, "5-8": 1})
    assert lines_of(capsys) == [
        "rows in a class  classes",
        f"              1    3,000  {'#' * 30}",
        f"              2    1,500  {'#' * 15}",
        "            3-4        0",
        "            5-8        1  #",
    ]


def test_a_long_error_is_cut_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"line {i}" for i in range(5000))
    for terminal, lines in ((True, 41), (False, 5000)):
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with pytest.raises(SystemExit):
            _exit_with_error(ReleaseError(text))
        error_lines = sys.stderr.getvalue().splitlines()  # type: ignore[attr-defined]
        assert (len(error_lines), error_lines[0]) == (lines, "error: line 0")
    assert error_lines[-1] == "line 4999"


def test_lines_are_folded_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_lines("  - full-domain recoding, and /a/path/that/is/longer/than/the/line of --memory-limit\nshort")
    print_sql("SELECT 'a text that is longer than a line is left alone'")
    assert sys.stdout.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "  - full-domain recoding, and",
        "    /a/path/that/is/longer/than/the/line",
        "    of --memory-limit",
        "short",
        "SELECT 'a text that is longer than a line is left alone'",
    ]


def test_percentages_keep_significant_digits() -> None:
    assert [format_percent(0, 7), format_percent(7, 7), format_percent(1, 100_000)] == ["0 %", "100 %", "0.001 %"]


def test_a_stream_of_others_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    escape_unencodable_output()
    assert sys.stdout is None


# --- on a terminal

PROGRAM = f"""
from sqlanon.support.terminal import print_bars, print_table
print_table(
    ["an attribute's name", "bits of leakage", "of all", "classes", "unique rows", "what was done"],
    [(name, "14.2823", "99.96 %", "19,946", "19,892", "some words that take more than a line") for name in {HOSTILE}],
)
print_bars(("rows in a class", "classes"), {{"1": 3, "1025-2048": 1234567}})
"""


def shown_at(width: int, *arguments: str | Path, folder: Path | None = None, **environment: str) -> str:
    """Output of a process on a terminal of this width."""
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"TERM": "xterm-256color", "PYTHONUTF8": "1"} | environment
    command = [sys.executable, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env, cwd=folder)
    os.close(follower)
    output = b""
    try:
        while part := os.read(leader, 65536):
            output += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(leader)
    assert process.wait() == 0, output
    return output.decode("utf-8", "backslashreplace").replace("\r\n", "\n")


def columns_of(line: str) -> int:
    return sum(2 if character in "日本" else 1 for character in line)


@pytest.mark.thorough
@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_fits_into_its_terminal(width: int) -> None:
    plain = PAINT.sub("", shown_at(width, "-c", PROGRAM))
    assert "\x1b" not in plain
    assert max(map(columns_of, plain.splitlines())) <= width
    assert BOXES.search(plain)
    # Nothing is cut, at any width; where there is room, all is on one line.
    assert "…" not in plain and "..." not in plain
    letters = re.sub(r"[\s\u2500-\u259f]", "", plain)
    for name in HOSTILE:
        assert width < 200 or make_printable(name) in letters
    assert plain.count("19,892") == plain.count("99.96 %") == len(HOSTILE)
    assert "█" * 30 in plain
    if width == 200:
        assert re.search(
            r"^\\x1b\[31mred\\x1b\[0m +14\.2823 +99\.96 % +19,946 +19,892 +some words that take", plain, re.M
        )


@pytest.mark.thorough
def test_colours_and_paint_can_be_refused() -> None:
    painted = shown_at(80, "-c", PROGRAM)
    assert PAINT.search(painted)
    assert not COLOUR.search(shown_at(80, "-c", PROGRAM, NO_COLOR="1"))
    assert "\x1b" not in shown_at(80, "-c", PROGRAM, TERM="dumb")


@pytest.mark.thorough
def test_output_is_ascii_on_a_terminal_without_utf_8() -> None:
    output = shown_at(
        80,
        "-c",
        "from sqlanon.support.terminal import escape_unencodable_output; escape_unencodable_output()\n" + PROGRAM,
        PYTHONIOENCODING="ascii",
    )
    assert output.isascii()
    assert "#" * 30 in output and "\\u65e5\\u672c" in output


# --- the commands

NAMES = {"zip [red]": "zip", "\x1b[31mage": "age"}
POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
name = { role = "identifying" }
"zip [red]" = { role = "quasi", hierarchy = { mask = "right" } }
"\\u001b[31mage" = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
"état" = { role = "sensitive" }
[privacy]
k = 5
[search]
suppression_limit = 0.1
[release]
database = "release.duckdb"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("terminal")
    with duckdb.connect(home / "hospital.duckdb") as connection:
        connection.execute(
            """CREATE TABLE patients AS SELECT 'p' || i AS name, CAST(10000 + i * i % 97 AS VARCHAR) AS "zip [red]",
            CAST(i * 31 % 90 AS INTEGER) AS "\x1b[31mage", 'illness ' || hash(i) % 5 AS "état" FROM range(400) t(i)"""
        )
    (home / "policy.toml").write_text(POLICY, encoding="utf-8")
    return home


def piped_output(folder: Path, *arguments: str, **environment: str) -> str:
    """Output of a command into a pipe."""
    env = os.environ | {"PYTHONUTF8": "1", "COLUMNS": "20", "FORCE_COLOR": "", "TERM": "xterm-256color"} | environment
    done = subprocess.run(
        [sys.executable, "-m", "sqlanon", *arguments], cwd=folder, env=env, capture_output=True, check=True
    )
    assert done.stderr == b""
    return done.stdout.decode()


COMMANDS = (
    ("anonymize", "policy.toml"),
    ("risk", "policy.toml", "--suda", "--matrix", "zip [red],\x1b[31mage"),
    ("compare", "policy.toml", "--strategies", "optimal,datafly"),
    ("verify", "release.duckdb", "--policy", "policy.toml"),
    ("attack", "release.duckdb", "--policy", "policy.toml"),
    ("live", "policy.toml"),
)


@pytest.mark.thorough
def test_commands_in_a_pipe_are_plain(folder: Path) -> None:
    for command in COMMANDS:
        out = piped_output(folder, *command)
        assert "\x1b" not in out and not BOXES.search(out), command
        assert not any(line != line.rstrip() for line in out.splitlines()), command
    out = piped_output(folder, *COMMANDS[1])
    assert "zip [red], \\x1b[31mage" in out
    assert "unique rows: zip [red] by \\x1b[31mage  level 0" in out


@pytest.mark.thorough
def test_commands_fit_a_narrow_terminal(folder: Path) -> None:
    for command in COMMANDS:
        painted = shown_at(60, "-m", "sqlanon", *command, folder=folder, NO_COLOR="1")
        assert not COLOUR.search(painted), command
        text = STEERED.sub("", PAINT.sub("", painted))
        assert "\x1b" not in text, command
        ruled = [line for line in text.splitlines() if BOXES.search(line) and len(set(line.strip())) <= 2]
        assert ruled and max(map(len, ruled)) <= 60, command


@pytest.mark.thorough
def test_a_dropped_live_view_is_reported(folder: Path) -> None:
    for name in ("\x1b[31mview", "\x1b[31mview"):  # made, and replaced
        painted = shown_at(200, "-m", "sqlanon", "live", "policy.toml", "--name", name, folder=folder, NO_COLOR="1")
        assert not COLOUR.search(painted)
        assert re.search(r"^ *quasi-identifier +what is done *$", PAINT.sub("", painted), re.MULTILINE)
        lines = {re.sub(r" {2,}", "  ", line).strip() for line in PAINT.sub("", painted).splitlines()}
        description = "level 1 of 5: 1 character hidden from the right"
        assert f"zip [red]  {description}" in lines
        assert any(line.startswith("\\x1b[31mage  level ") for line in lines)
    assert "replaced: view \\x1b[31mview (" in painted
    dropped = shown_at(200, "-m", "sqlanon", "live", "policy.toml", "--name", name, "--drop", folder=folder)
    assert dropped.endswith("dropped: view \\x1b[31mview and its tables\n")  # after the lines of the progress


def test_commands_print_by_way_of_the_terminal_alone() -> None:
    cli = Path(sqlanon.__file__).parent / "cli"
    printing = {"echo", "secho", "print"}
    calls = [
        (path.name, ast.unparse(call.func))
        for path in cli.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in printing
    ]
    assert sorted(calls) == [("commands.py", "typer.echo"), ("printing.py", "print")]  # the version, and JSON


@pytest.mark.thorough
def test_commands_print_ascii_without_utf_8(folder: Path) -> None:
    for command in COMMANDS[:2]:
        out = piped_output(folder, *command, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert out.isascii() and out, command
    document = json.loads(
        piped_output(folder, "risk", "policy.toml", "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    )
    assert document == json.loads(piped_output(folder, "risk", "policy.toml", "--json"))


@pytest.mark.thorough
def test_a_pipe_does_not_pay_for_paint(folder: Path) -> None:
    program = """
import sys
from sqlanon.cli import main
sys.argv = ["sqlanon", "anonymize", "policy.toml"]
try:
    main()
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith("rich.")))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["duckdb", "parquet"])
def test_the_histogram_is_of_the_released_classes(ending: str, folder: Path, tmp_path: Path) -> None:
    policy = sqlanon.Policy.load(folder / "policy.toml")
    with sqlanon.connect() as db:
        release = db.anonymize(policy).publish(tmp_path / f"r.{ending}")
    relation: Any = f"read_parquet('{release.path}')" if ending == "parquet" else release.table
    with duckdb.connect(str(release.path) if ending == "duckdb" else ":memory:") as reader:
        rows = reader.execute(f'SELECT "zip [red]", "\x1b[31mage" FROM {relation}').fetchall()
        if ending == "duckdb":
            histogram = reader.execute(release.class_sizes_sql()).fetchall()
    sizes = Counter(Counter(rows).values())
    assert release.class_sizes() == sorted(sizes.items())
    if ending == "duckdb":
        assert histogram == [(size, n, size * n) for size, n in sorted(sizes.items())]
        out = piped_output(folder, "anonymize", "policy.toml")
        bars = dict(re.findall(r"^ *(\d+(?:-\d+)?)  +([\d,]+)(?:  #+)?$", out, re.MULTILINE))
        expected = {(low, 2 * low - 2): 0 for low in (5, 9, 17, 33, 65, 129, 257)}
        for low, high in expected:
            expected[low, high] = sum(n for size, n in sizes.items() if low <= size <= high)
        assert bars == {f"{low}-{high}": f"{n:,}" for (low, high), n in expected.items() if low <= max(sizes)}
        assert "zip [red]" in out and "\\x1b[31mage" in out
