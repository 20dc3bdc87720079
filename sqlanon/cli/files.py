"""Files that commands write for their user alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from sqlanon.errors import PolicyError, Problem
from sqlanon.support.resources import POLICY_SCHEMA


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse a file that is there, before any work is done for it."""
    if path.is_dir():
        raise PolicyError([Problem(str(path), "this is a folder: name a file in it")], "the command")
    if not path.absolute().parent.is_dir():
        raise PolicyError(
            [Problem(str(path), f"its folder {path.absolute().parent} does not exist: create it")], "the command"
        )
    if path.exists() and not force:
        raise PolicyError(
            [Problem(str(path), "exists already: name another file, or replace it with --force")], "the command"
        )


SCHEMA = "sqlanon.schema.json"
"""The file beside policies by which editors complete them."""


def write_schema(path: Path, force: bool) -> Iterator[str]:
    """Write the schema of policies, and say so; one that differs, of another version or edited, is kept."""
    text = POLICY_SCHEMA.read_text(encoding="utf-8")
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    if os.path.lexists(path) and not force:
        yield f"{path.name}: differs from this version's schema, and is kept; --force replaces it"
        return
    write_private(path, text, 0o644)
    yield f"{path.name}: with it, editors complete and check policies"


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that only its owner can read, in one moment: the whole text or nothing of it."""
    hidden = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(file, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        hidden.replace(path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise PolicyError(
            [Problem(str(path), f"cannot be written: {error.strerror or error}")], "the command"
        ) from None
