"""docs/how-to/analyse.md: its SQL runs on the release of its policy, and its figures are those of the benchmark."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import duckdb
import pytest

from sqlanon.demo.hospital import make_hospital
from support.commands import cli
from support.files import ROOT
from support.pages import blocks

sys.path.insert(0, str(ROOT / "benchmarks"))

import analysis

PAGE = (ROOT / "docs" / "how-to" / "analyse.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_the_queries_run_on_the_release_of_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    (tmp_path / "sqlanon-demo").mkdir()
    make_hospital(tmp_path / "sqlanon-demo" / "hospital.duckdb", rows=2000)
    (tmp_path / "policy.toml").write_text(blocks("toml", PAGE)[0], encoding="utf-8")
    assert cli("anonymize", "policy.toml", cwd=tmp_path).status == 0
    with duckdb.connect(tmp_path / "analysis.duckdb", read_only=True) as connection:
        answers = []
        for block in blocks("sql", PAGE):
            for statement in block.split(";\n"):
                if statement.strip():
                    answers.append(connection.execute(statement).fetchall())
    (sure, expected, at_most, rows), *_ = answers[0]
    assert 0 < sure < expected < at_most < rows == 2000
    assert answers[0] == answers[1]  # mondrian suppresses nothing
    assert sum(count for _, count in answers[2]) == pytest.approx(expected, abs=20)
    sure, expected, at_most, rows = answers[4][0]
    assert sure <= expected <= at_most <= rows == 2000
    lower, middle, upper, _ = answers[6][0]
    assert lower < middle < upper
    assert sum(count for _, count in answers[7]) == 2000
    assert sum(count for decade, count in answers[7] if not re.fullmatch(r"\d{4}s", decade)) > 200  # at no level
    (spread,) = [rows for rows in answers if [row[0] for row in rows] == [f"{year}s" for year in range(1920, 2030, 10)]]
    assert sum(count for _, count in spread) == pytest.approx(2000, abs=11)


@pytest.mark.thorough
@pytest.mark.parametrize("dataset", analysis.AGES)
def test_bounds_hold_on_real_tables_and_errors_are_as_stated(dataset: str, tmp_path: Path, data: Path) -> None:
    answers = [answer for strategy in analysis.STRATEGIES for answer in analysis.answers(dataset, strategy, tmp_path)]
    assert len(answers) == 20
    assert [answer for answer in answers if not answer.holds] == []
    assert analysis.table(answers) in PAGE
    errors = sorted(answer.error for answer in answers if answer.strategy == "mondrian")
    assert errors[len(errors) // 2] < 0.04  # ranges end on the grid of the hierarchy, not at the people's own values
    assert errors[-1] < 0.35


@pytest.mark.thorough
def test_bounds_of_sets_hold_and_errors_are_as_stated(tmp_path: Path, data: Path) -> None:
    answers = [*analysis.set_answers(tmp_path)]
    assert len(answers) == 10
    assert [answer for answer in answers if not answer.holds] == []
    assert analysis.set_table(answers) in PAGE


def test_the_table_of_the_page_has_all_questions() -> None:
    questions = [*analysis.QUESTIONS["adult"], *analysis.SET_QUESTIONS, *analysis.QUESTIONS["fars"]]
    words = [question.words for question in questions]
    assert re.findall(r"^\| (.+?) \| [\d.,]+ \|", PAGE, re.MULTILINE) == words
