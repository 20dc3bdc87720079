"""The pages of docs/ name only tests and modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.files import DOCS, ROOT

PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_named_files_exist(page: Path) -> None:
    """A path is relative to the repository or to tests/; `*` matches several files."""
    paths = re.findall(r"`((?:\w+/)+[\w*]+\.py)", page.read_text(encoding="utf-8"))
    assert [path for path in paths if not any([*ROOT.glob(path), *(ROOT / "tests").glob(path)])] == []


def test_the_threat_model_names_tests_for_each_guarantee() -> None:
    page = (DOCS / "explanation" / "threat-model.md").read_text(encoding="utf-8")
    guarantees = page.partition("## The guarantees")[2].split("\n### ")[1:]
    assert len(guarantees) > 5
    assert [text.partition("\n")[0] for text in guarantees if not re.search(r"^Tests: `\w+/\w", text, re.M)] == []
