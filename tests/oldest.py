"""Prints pins of the oldest libraries that ``pyproject.toml`` allows, for pip's ``--constraint``."""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def oldest(requirement: Requirement) -> str:
    """The pin of a requirement's lower bound.

    >>> oldest(Requirement("duckdb>=1.5.5,<2.1"))
    'duckdb==1.5.5'
    """
    (lowest,) = (bound.version for bound in requirement.specifier if bound.operator == ">=")
    return f"{requirement.name}=={lowest}"


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = ("dp", "pandas", "polars", "postgres", "report", "stats")
    for text in (*project["dependencies"], *(text for name in names for text in extras[name])):
        print(oldest(Requirement(text)))
