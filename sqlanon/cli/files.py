"""Files that commands write for their user alone."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from sqlanon.errors import PolicyError, Problem
from sqlanon.support.resources import POLICY_SCHEMA
from sqlanon.support.terminal import print_lines

SCHEMA = "sqlanon.schema.json"
"""The file next to policies with which editors complete them."""


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse a path that cannot be written, before any work is done for it."""
    folder = path.absolute().parent
    if path.is_dir():
        raise _path_error(path, "this is a folder: name a file in it")
    if not folder.is_dir():
        raise _path_error(path, f"its folder {folder} does not exist: create it")
    if path.exists() and not force:
        raise _path_error(path, "exists already: name another file, or replace it with --force")


def _path_error(path: Path, message: str) -> PolicyError:
    return PolicyError([Problem(str(path), message)], "the command")


def write_schema(path: Path, force: bool) -> None:
    """Write the schema of policies; keep a file that differs, because it may be edited."""
    text = POLICY_SCHEMA.read_text(encoding="utf-8")
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    if os.path.lexists(path) and not force:
        print_lines(f"{path.name}: differs from this version's schema, and is kept; --force replaces it")
        return
    write_private(path, text, 0o644)
    print_lines(f"{path.name}: with it, editors complete and check policies")


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that only its owner can read, in one step."""
    hidden = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(file, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        hidden.replace(path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise _path_error(path, f"cannot be written: {error.strerror or error}") from None
