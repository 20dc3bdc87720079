"""The values that sqlanon reads in small files as people have them, compared with answers that a person approved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_files import SMALL_FILES, SUBJECTS, answer, approved_answers

from support.databases import DUCKDB_1
from support.lanes import some

ANSWERS = approved_answers()


def test_each_small_file_has_an_approved_answer() -> None:
    assert list(ANSWERS) == list(SMALL_FILES)
    assert len(ANSWERS) == sum(map(len, SUBJECTS.values())) >= 290


@pytest.mark.slow
@pytest.mark.cases(12)
@pytest.mark.skipif(DUCKDB_1, reason="it takes other texts for numbers and dates")
@pytest.mark.parametrize("title", some(SMALL_FILES, 4))
def test_the_answer_is_the_approved_one(title: str, tmp_path: Path) -> None:
    """`python tests/sources/small_files.py` writes the file anew."""
    assert answer(title, SMALL_FILES[title], tmp_path) == ANSWERS[title]
