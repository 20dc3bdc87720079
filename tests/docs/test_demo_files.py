"""Each file of the demo that a command of docs/ reads is left by the demo, or made by an earlier line of its page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

import pytest

from sqlanon.demo.story import FIRST_POLICY, HOSPITAL, POLICY, RELEASE
from support.pages import FOLDER, ROOT, blocks

pytestmark = pytest.mark.slow

PAGES = sorted((ROOT / "docs").rglob("*.md"))
ENDINGS = {".toml", ".duckdb", ".parquet"}


def missing_files(page: str) -> list[str]:
    """The files of the demo's folder, and all `first` and `other`, that no earlier line of a page makes."""
    created = {f"{FOLDER}/{name}" for name in (HOSPITAL, POLICY, RELEASE, FIRST_POLICY)}
    missing = []
    folder = PurePosixPath()
    for line in "".join(blocks("sh", page)).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["cd"]:
            folder = PurePosixPath(words[1])
        output = words[words.index("-o") + 1] if "-o" in words else None
        for word in words[1:]:
            path = folder / word
            is_of_demo = path.suffix in ENDINGS and (
                str(folder / word).startswith(FOLDER) or path.stem in ("first", "other")
            )
            if (
                is_of_demo
                and word != output
                and "/" not in word.removeprefix(f"{FOLDER}/")
                and str(path) not in created
            ):
                missing.append(f"{word} in: {line}")
        if output is not None:
            created.add(str(folder / output))
        elif words[:2] == ["sqlanon", "anonymize"] and "--dry-run" not in words:
            created.add(str(folder / PurePosixPath(words[2]).with_suffix(".duckdb")))  # as first.toml says
    for program in blocks("python", page):
        published = "publish()" in program
        names = re.findall(rf'"({FOLDER}/\w+\.(?:toml|duckdb))"', program)
        missing += [f"{name} in Python" for name in names if name not in created and not published]
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_files_of_the_demo_are_made_before_they_are_read(page: Path) -> None:
    assert missing_files(page.read_text(encoding="utf-8")) == []
