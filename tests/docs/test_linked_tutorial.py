"""The lesson on linked tables: its commands run, and its figures are those that they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from support.commands import Ended, cli
from support.files import ROOT
from support.pages import blocks

PAGE = (ROOT / "docs" / "tutorial" / "linked-tables.md").read_text(encoding="utf-8")
COMMANDS = [line for block in blocks("sh", PAGE) for line in block.splitlines()]
QUERIES = [query for block in blocks("sql", PAGE) for query in block.split(";") if query.strip()]
TEXTS = blocks("text", PAGE)
TRIALS = re.findall(r'^\| (?:`")?(1|2|3|all)(?:"`)? \| [^|]+ \| ([\d,]+) \| ([\d.]+) \|', PAGE, re.MULTILINE)


def run(command: str, folder: Path) -> Ended:
    """Run a command of sqlanon as the page writes it."""
    name, *arguments = shlex.split(command)
    assert name == "sqlanon"
    ended = cli(*arguments, cwd=folder)
    assert (ended.status, ended.err) == (0, "")
    return ended


def answer(database: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def table_row(values: Sequence[Any]) -> str:
    """A row of a table of the page."""
    return "| " + " | ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values) + " |"


def loss_of(text: str) -> float:
    """The loss that a command prints. A better search may find less than the lesson shows."""
    found = re.search(r"^loss ([\d.]+)", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after the first two commands."""
    folder = tmp_path_factory.mktemp("lesson")
    make, suggest, *_ = COMMANDS
    script, *arguments = shlex.split(make)[1:]
    subprocess.run([sys.executable, ROOT / script, *arguments], cwd=folder, check=True, capture_output=True)
    run(suggest, folder)
    return folder


@pytest.mark.slow
def test_the_suggested_policy_is_the_one_that_the_lesson_shows(folder: Path) -> None:
    policy = (folder / "policy.toml").read_text(encoding="utf-8")
    for text in TEXTS[:3]:
        assert text in policy
    assert (folder / "levels" / "condition_occurrence" / "hierarchy_condition_concept_id.csv").is_file()


def test_the_months_of_visits_recognize_as_many_as_the_lesson_says(folder: Path) -> None:
    (row,) = answer(folder / "omop.duckdb", QUERIES[0])
    assert table_row([int(value) for value in row]) in PAGE
    query = "SELECT count(*) FROM concept WHERE domain_id = 'Condition' AND concept_id >= 1100000"
    ((concepts,),) = answer(folder / "omop.duckdb", query)
    assert f"there are {concepts} of them" in PAGE.replace("\n", " ")


@pytest.mark.thorough
def test_the_release_is_the_one_that_the_lesson_shows(folder: Path) -> None:
    anonymize, verify, trial = COMMANDS[2:]
    ended = run(anonymize, folder)
    assert [line.split(" ")[0] for line in ended.out.splitlines()[5:9]] == [
        line.split(" ")[0] for line in TEXTS[3].splitlines()[5:9]
    ]
    assert loss_of(ended.out) <= loss_of(TEXTS[3]) + 0.01
    assert run(verify, folder).out.rstrip().endswith("verified")
    release = folder / "omop_release.duckdb"
    assert answer(release, QUERIES[1])[0][0] == 5
    assert answer(release, QUERIES[2])
    assert "known=1" in trial


@pytest.mark.thorough
@pytest.mark.parametrize(("known", "_", "loss"), TRIALS)
def test_each_attacker_costs_what_the_lesson_says(known: str, _: str, loss: str, folder: Path) -> None:
    assert len(TRIALS) == 4
    value = known if known.isdigit() else f'"{known}"'
    ended = run(f"sqlanon anonymize policy.toml --set 'privacy.known={value}' --dry-run", folder)
    assert loss_of(ended.out) <= float(loss) + 0.01
