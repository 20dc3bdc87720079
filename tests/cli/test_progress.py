"""Progress of a running job on terminals, and only on terminals."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from sqlglot import parse_one

from sqlanon.cli import interrupts
from sqlanon.cli.progress import ComparisonLine, ProgressLine, show_comparison, show_line, show_progress
from sqlanon.engines.duckdb import RUNNING_STATEMENTS, DuckDBEngine
from support.commands import cli


class Clock:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def line(
    clock: Clock, statement: tuple[float, float | None] | None = None, time_limit: float | None = None
) -> ProgressLine:
    return ProgressLine("measuring the risk", time_limit, lambda: statement, clock)


def test_a_short_statement_has_no_bar_and_a_short_job_no_time() -> None:
    assert line(Clock()).text() == "measuring the risk"
    assert line(Clock(), (0.9, 0.5)).text() == "measuring the risk"


def test_a_long_statement_has_a_bar_and_the_time_left_for_it() -> None:
    clock = Clock()
    progress_line = line(clock, (30.0, 0.75))
    clock.now += 65
    bar = "━" * 15 + "─" * 5
    assert (
        progress_line.text() == f"measuring the risk, this statement: {bar} 75 %, about 10 s left for it, 2 min so far"
    )


@pytest.mark.parametrize("share", [None, 0.001])
def test_where_the_engine_knows_no_share_no_time_left_is_made_up(share: float | None) -> None:
    assert "left" not in line(Clock(), (600.0, share)).text()


def test_the_end_of_a_search_is_only_known_with_a_time_limit() -> None:
    clock = Clock()
    progress_line = line(clock, (600.0, None), time_limit=20)
    progress_line.update("scan", 0, 0, None)
    clock.now += 50
    assert "left" not in progress_line.text()  # the limit is that of the search alone
    progress_line.update("search", 1234, 56, 0.25)
    clock.now += 5
    progress_line.update("search", 1200, 90, 0.25)
    assert progress_line.text() == (
        "searching: 1,200 open, 90 checked, best score 0.25, at most 15 s left, 55 s so far"
    )
    clock.now += 16
    assert "left" not in progress_line.text()
    progress_line.update("write", 0, 90, 0.25)
    assert progress_line.text() == "writing and auditing the release, 2 min so far"
    unlimited = line(clock)
    unlimited.update("search", 5, 2, None)
    assert unlimited.text() == "searching: 5 open, 2 checked, best score none yet"


def test_a_comparison_ends_when_all_strategies_have_had_their_time() -> None:
    clock = Clock()
    comparison_line = ComparisonLine(4, 30.0, lambda: None, clock)
    assert comparison_line.text() == "starting"
    comparison_line.update("optimal", 0, 0, None)
    clock.now += 10
    comparison_line.update("mondrian", 8, 3, None)
    clock.now += 5
    text = comparison_line.text()
    assert "1/4 mondrian: 8 open, 3 checked" in text
    assert "at most 2 min left" in text  # 25 s of this one, and 60 s
    endless = ComparisonLine(4, None, lambda: None, clock)
    endless.update("optimal", 0, 0, None)
    assert "left" not in endless.text()


def test_a_console_shows_the_line_and_is_left_empty() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=200, color_system=None)
    with show_line(console, line(Clock(), (30.0, 0.75))):
        assert "measuring the risk, this statement: " in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")  # the line is erased
    assert not RUNNING_STATEMENTS._watched


def test_a_narrow_console_has_one_line() -> None:
    file = io.StringIO()
    with show_line(Console(file=file, force_terminal=True, width=30, color_system=None), line(Clock(), (30.0, 0.7))):
        assert "\n" not in file.getvalue()
        assert "…" in file.getvalue()


def test_a_terminal_without_unicode_has_a_bar_of_its_own_letters() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict", write_through=True)
    with show_line(Console(file=file, force_terminal=True, width=200, color_system=None), line(Clock(), (30.0, 0.7))):
        pass
    assert b"this statement: ##############------ 70 %" in file.buffer.getvalue()  # type: ignore[attr-defined]


@pytest.mark.thorough
def test_engine_reports_progress_without_printing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = DuckDBEngine.open_private(tmp_path)
    engine.connection.execute("CREATE TABLE numbers AS SELECT range AS i FROM range(3000000)")
    query = parse_one("SELECT count(DISTINCT hash(i, j)) FROM numbers, range(4) AS r(j)", read="duckdb")
    shares: list[float] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.002):
            progress_ = RUNNING_STATEMENTS.progress()
            if progress_ is not None and progress_[1] is not None:
                shares.append(progress_[1])

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        with RUNNING_STATEMENTS.watch_progress():
            deadline = time.monotonic() + 20
            while not shares and time.monotonic() < deadline:
                engine.rows(query)
    finally:
        ended.set()
        watcher.join()
        engine.close()
    assert shares
    assert all(0 < share < 1 for share in shares)
    assert RUNNING_STATEMENTS.progress() is None
    assert capfd.readouterr() == ("", "")


def test_a_database_with_locked_settings_is_read_while_it_is_watched(tmp_path: Path) -> None:
    with RUNNING_STATEMENTS.watch_progress():
        engine = DuckDBEngine.open_private(tmp_path)
        engine.connection.execute("SET lock_configuration = true")
        with engine.transaction():
            assert engine.rows(parse_one("SELECT 1")) == [(1,)]
        engine.close()


def test_a_pipe_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with show_progress() as progress:
        progress("search", 1, 1, None)
    with show_comparison(2) as progress:
        progress("optimal", 1, 1, None)
    assert stream.getvalue() == ""


# --- the commands

POLICY = """
[source]
database = "none.duckdb"
table = "patients"
[attributes]
zip = { role = "quasi", hierarchy = "suppress" }
[privacy]
k = 2
[release]
database = "release.duckdb"
"""
COMMANDS = {
    "anonymize policy.toml": "opening the source",
    "extend policy.toml": "extending the release",
    "risk policy.toml": "measuring the risk",
    "compare policy.toml": "starting",
    "live policy.toml": "opening the source",
    "suggest none.csv": "reading the source and trying strategies on a sample",
    "verify none.duckdb": "verifying the release",
    "attack none.duckdb": "attacking the releases",
    "report none.duckdb -o page.html": "verifying the release",
    "report policy.toml -o page.html": "opening the source",
}


@pytest.mark.cases(6)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_long_command_shows_progress_with_json_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    lines: list[str] = []

    @contextmanager
    def record_line(console: Console, line: ProgressLine) -> Iterator[ProgressLine]:
        lines.append(line.text())
        yield line

    monkeypatch.setattr("sqlanon.cli.progress.show_line", record_line)
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("sqlanon.cli.progress.sys", terminal)
    assert cli(*command.split(), cwd=tmp_path).status != 0  # without a source
    assert lines == [COMMANDS[command]]
    lines.clear()
    if command.split(maxsplit=1)[0] not in ("suggest", "report"):  # they print no JSON
        cli(*command.split(), "--json", cwd=tmp_path)
        assert lines == [COMMANDS[command]]


def test_interrupts_reach_the_running_statements() -> None:
    assert interrupts._running_statements() is RUNNING_STATEMENTS
