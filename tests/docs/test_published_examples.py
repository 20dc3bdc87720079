"""docs/reference/published_examples.md: each test that it names is there, and each line names one."""

from __future__ import annotations

import re

from support.files import ROOT

PAGE = (ROOT / "docs" / "reference" / "published_examples.md").read_text(encoding="utf-8")
SHOWN, _, _ = PAGE.partition("## Examples that cannot be reproduced")


def test_each_test_of_the_page_exists() -> None:
    matches = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in matches}
    assert [match for match in matches if f"\ndef {match[1]}(" not in texts[match[0]]] == []


def test_each_line_names_a_test_and_its_differences() -> None:
    rows = [
        line for line in SHOWN.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| document"))
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    assert len(cells) > 30
    assert [row for row in cells if len(row) != 4 or not all(row[1:]) or "::" not in row[2]] == []
