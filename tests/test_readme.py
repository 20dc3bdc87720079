"""What the README shows is true: its policy, commands, Python and SQL run as they stand."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from sqlanon.demo.hospital import make_hospital

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDER = "sqlanon-demo"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def sqlanon(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sqlanon", *arguments], cwd=cwd, check=False, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo's hospital and the README's policy are."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / FOLDER).mkdir()
    make_hospital(folder / FOLDER / "hospital.duckdb")
    (policy,) = blocks("toml")
    (folder / FOLDER / "first.toml").write_text(policy, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def transcript(workshop: Path) -> dict[str, str]:
    """What the README's commands print, by command."""
    _, _, commands = blocks("sh")
    printed = {}
    for line in commands.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "sqlanon"
        done = sqlanon(*arguments, cwd=workshop)
        assert (done.returncode, done.stderr) == (0, ""), line
        printed[" ".join(arguments)] = done.stdout
    return printed


def test_the_commands(transcript: dict[str, str]) -> None:
    risk, plan, anonymize, *verifications = transcript.values()
    assert risk.startswith("100,000 rows in ")
    assert "CREATE TABLE" in plan
    assert "optimal" in anonymize
    assert [text.splitlines()[-1] for text in verifications] == ["verified", "verified"]


@pytest.mark.usefixtures("transcript")
def test_the_sql(workshop: Path) -> None:
    (script,) = blocks("sql")
    statements = [text for line in script.splitlines() if (text := line.partition("--")[0].strip())]
    with duckdb.connect(workshop / FOLDER / "first.duckdb", read_only=True) as connection:
        patients, k_anonymity, classes, manifest = (
            connection.execute(statement).fetchall() for statement in statements
        )
    assert len(patients) == 5
    assert k_anonymity[0][0] >= 5
    assert k_anonymity[0][3] == 0
    assert len(classes) == 5
    assert len(manifest) == 1


@pytest.mark.usefixtures("transcript")
def test_the_catalog_is_what_the_readme_says(workshop: Path) -> None:
    catalog = workshop / FOLDER / "first.catalog.duckdb"
    if os.name == "posix":
        assert catalog.stat().st_mode & 0o777 == 0o600
    with duckdb.connect(catalog, read_only=True) as connection:
        for table in ("runs", "lattice", "hierarchies", "releases"):
            assert f"`sqlanon.{table}`" in README
            (found,) = connection.execute(f"SELECT count(*) FROM sqlanon.{table}").fetchall()
            assert found[0] > 0, table


def test_the_python(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = blocks("python")
    monkeypatch.chdir(workshop)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    (shown,) = re.findall(r"print\(result.generalization\)\s*# (.*)", program)
    assert lines[0] == shown
    assert lines[1].endswith(" True")


def test_ci_calls_the_commands_of_the_readme() -> None:
    demo, test, _ = (block.strip() for block in blocks("sh"))
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert test in ci
    assert demo in ci
