"""Programs that read releases, in environments of their own: they need other libraries than sqlanon, or other versions.

``pins/NAME.txt`` pins what pip installs for one, ``pins/node.json`` what npm does. An environment is made
when a test first asks for it, under ``~/.cache/sqlanon-tests`` (or ``XDG_CACHE_HOME``), and stays there until its pins
change. Where it cannot be made, the test is skipped with the reason; in CI, where the registries are, it fails.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PINS = Path(__file__).resolve().parents[1] / "pins"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sqlanon-tests"
PATIENCE = 500
"""Seconds that an installation may take."""


def python_of(name: str, with_sqlanon: bool = False) -> Path:
    """The interpreter of an environment; it is made if it is not there.

    Parameters
    ----------
    name:
        Of its file of pins.
    with_sqlanon:
        Whether it has the libraries that sqlanon needs, so that sqlanon can be imported from the checkout: `run` with
        ``path=ROOT``.
    """
    pins = PINS / f"{name}.txt"
    more = _libraries() if with_sqlanon else []

    def make(folder: Path) -> None:
        # Without a pip of its own, and compiled as it is used: it takes half the time.
        _install([sys.executable, "-m", "venv", "--without-pip", folder], folder)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]
        _install([*pip, "install", "--quiet", "--no-compile", "-r", pins, *more], folder)

    key = f"{sys.version}\n{pins.read_text(encoding='utf-8')}\n{more}"
    return _make_folder(name, key, make) / "bin" / "python"


def node_modules() -> Path:
    """A folder in which node finds its driver of DuckDB."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        missing("node and npm are not on this machine")
    pins = PINS / "node.json"

    def make(folder: Path) -> None:
        folder.mkdir()
        shutil.copy(pins, folder / "package.json")
        _install(["npm", "install", "--no-fund", "--no-audit", "--loglevel=error"], folder, folder)

    return _make_folder("node", pins.read_text(encoding="utf-8"), make)


def run(
    command: Sequence[str | Path], cwd: Path, path: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of an environment. It sees no other Python than its own, and sqlanon only by ``path``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    seen = {} if path is None else {"PYTHONPATH": str(path)}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **seen, **environment},
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )


def missing(reason: str) -> NoReturn:
    """Skip the test that needs what is not there; in CI, all of it can be had, and the test fails."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _libraries() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [str(requirement) for requirement in project["dependencies"]]


def _make_folder(name: str, key: str, make: Callable[[Path], None]) -> Path:
    folder = CACHE / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    complete = folder / "complete"
    if not complete.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with _alone(CACHE / f"{folder.name}.lock"):
            if not complete.exists():  # no other test has made it meanwhile
                shutil.rmtree(folder, ignore_errors=True)  # half made, by one that was stopped
                make(folder)
                complete.touch()
    return folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Among the processes of this and other runs."""
    try:
        import fcntl  # noqa: PLC0415  (not on every system)
    except ImportError:  # not on Windows
        missing("environments of their own are made on POSIX systems only")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(command: Sequence[str | Path], folder: Path, cwd: Path | None = None) -> None:
    try:
        done = run(command, cwd or CACHE)
    except subprocess.TimeoutExpired:
        missing(f"{folder.name} was not installed in {PATIENCE} s")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "WARNING" not in line]
        missing(f"{folder.name} cannot be installed: {' '.join(lines[-3:])}")
