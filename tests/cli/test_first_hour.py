"""Answers of the command line to the mistakes of the first hour: texts that a person has read and approved."""

from pathlib import Path

import pytest
from first_hour import MISTAKES, Mistake, answer, approved_answers, make

ANSWERS = approved_answers()


def test_each_mistake_has_an_approved_answer() -> None:
    assert list(ANSWERS) == [mistake.title for mistake in MISTAKES]
    assert len(ANSWERS) >= 75


@pytest.mark.cases(5)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_the_answer_is_the_approved_one(mistake: Mistake, tmp_path: Path) -> None:
    """`python tests/cli/first_hour.py` writes the file anew."""
    assert answer(mistake, make(mistake, tmp_path), tmp_path) == ANSWERS[mistake.title]
