"""A folder with files for the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.hospital import HOSPITAL_POLICY, small_hospital


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_hospital(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def folder(prepared_folder: Path, tmp_path: Path) -> Path:
    """A folder with a source and a policy."""
    shutil.copy(prepared_folder, tmp_path)
    (tmp_path / "policy.toml").write_text(HOSPITAL_POLICY)
    return tmp_path


def rewrite(folder: Path, old: str, new: str) -> Path:
    """The policy with a change."""
    text = (folder / "policy.toml").read_text()
    assert old in text
    (folder / "policy.toml").write_text(text.replace(old, new))
    return folder / "policy.toml"


@contextmanager
def sqlanon_process(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """The command line as a process, which does not outlive the test, however that ends."""
    with subprocess.Popen([sys.executable, "-m", "sqlanon", *arguments], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def on_a_terminal(*arguments: str | Path) -> tuple[int, bytes, bytes]:
    """The exit status of a process whose stderr is a terminal, its output, and the text on the terminal."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    with sqlanon_process(*arguments, stdout=subprocess.PIPE, stderr=follower, env=environment) as process:
        os.close(follower)
        terminal_output = b""
        try:
            while part := os.read(leader, 65536):
                terminal_output += part
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(leader)
        out, _ = process.communicate()
    return process.returncode, out, terminal_output
