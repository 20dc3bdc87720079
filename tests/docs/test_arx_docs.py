"""docs/how-to/arx.md: its commands run as they stand, on ARX's own example."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from support.commands import cli
from support.environments import ROOT
from support.pages import blocks

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs" / "how-to" / "arx.md").read_text(encoding="utf-8")


def test_arx_commands_run(data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "arx" / "example.deid", tmp_path)
    (commands,) = blocks("sh", PAGE)
    for line in commands.splitlines():
        done = cli(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.status == 0, done.err
    assert "optimal among full-domain generalizations" in done.out
    assert (tmp_path / "example" / "example.csv").is_file()
