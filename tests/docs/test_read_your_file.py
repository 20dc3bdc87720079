"""docs/how-to/read-your-file.md: its commands print what it shows, of the files that it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sqlanon.policy.sections import CsvSection
from support.commands import cli
from support.environments import ROOT

PAGE = (ROOT / "docs" / "how-to" / "read-your-file.md").read_text(encoding="utf-8")
ENCODINGS = {"towns.csv": "windows-1252"}
BLOCKS = re.findall(r"^`(\S+?)`[^\n]*:\n\n```csv\n(.*?)^```$|^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_commands_print_the_documented_output(tmp_path: Path) -> None:
    commands = 0
    for name, content, console in BLOCKS:
        if name:
            (tmp_path / name).write_bytes(content.encode(ENCODINGS.get(name, "utf-8")))
            continue
        for command in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            line, _, output = command.partition("\n")
            done = cli(*shlex.split(line)[1:], cwd=tmp_path)
            printed = [text.rstrip() for text in (done.out + done.err).splitlines()]
            assert printed == output.splitlines(), line
            commands += 1
    assert commands == 10


def test_messages_quoted_in_the_table_are_printed_below_it() -> None:
    quoted = re.findall(r"^\| `([^`]+)`[^|]*\| \[", PAGE, re.MULTILINE)
    assert len(quoted) == 7
    below = PAGE.partition("\n## ")[2]
    for text in quoted:
        assert text in below


def test_the_keys_of_the_page_are_keys_of_the_policy() -> None:
    keys = set(re.findall(r"`(\w+) = ", PAGE)) - {"hierarchy", "table"}
    assert keys <= CsvSection.model_fields.keys()
    assert {"encoding", "delimiter", "skip", "footer", "missing", "on_bad_line"} <= keys
