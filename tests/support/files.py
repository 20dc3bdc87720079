"""Folders of the project, of test data, and of tests that restore files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def data_folder() -> Path | None:
    """The folder of real tables, hierarchies and proven optima: ``SQLANON_DATA``, else next to the project."""
    default_folder = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("SQLANON_DATA") or default_folder)
    return folder if (folder / "known_optima.json").is_file() else None


ROOT = Path(__file__).resolve().parents[2]


DOCS = ROOT / "docs"


def folder_again(folder: Path, original: Path) -> Path:
    """A folder with what was kept of it, at the path and in the files that a ledger knows."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif not (original / path.relative_to(folder)).exists() or path.is_symlink():
            path.unlink()
    for path in original.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
        (folder / path.name).chmod(path.stat().st_mode)
    return folder


def folder_and_copy(folder: Path) -> tuple[Path, Path]:
    """A folder of files, and a copy of it, for `folder_again`."""
    return folder, Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-kept")))
