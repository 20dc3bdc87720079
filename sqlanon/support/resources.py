"""Resources of the package: the version, and the SQL files, which are in top-level ``sql/`` of a checkout and inside
the installed package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__version__ = "0.1.0"
"""A test compares it with ``pyproject.toml``."""

RELEASE_MACROS = ("macros.sql",)
REQUIREMENT_MACROS = (*RELEASE_MACROS, "macros_persons.sql", "macros_privacy.sql", "macros_closeness.sql")
_READER_MACROS = ("macros_analysis.sql", "macros_levels.sql")
LIBRARY = (*REQUIREMENT_MACROS, "macros_risk.sql", "macros_finding.sql", "macros_attacks.sql", *_READER_MACROS)
"""The files of the macro library: the checks of every release, the checks of all requirements, and all files."""

LINKED_MACROS = (*RELEASE_MACROS, "macros_linked.sql")
"""The files of the macro library of a release of linked tables."""

MEDIAN_LIBRARY = (*LIBRARY, "macros_medians.sql")
"""The files for a release with medians as labels, which do not bound values."""

_PACKAGE = Path(__file__).parent.parent

POLICY_SCHEMA = _PACKAGE / "policy" / "schema.json"
"""The JSON Schema of a policy, for editors."""


def sql_file(name: str) -> Path:
    """The path of a SQL file of sqlanon.

    >>> sql_file("macros.sql").name
    'macros.sql'
    """
    installed = _PACKAGE / "sql" / name
    return installed if installed.exists() else _PACKAGE.parent / "sql" / name


def read_sql_file(name: str) -> str:
    """The text of a SQL file of sqlanon."""
    return sql_file(name).read_text(encoding="utf-8")


def macro_scripts(files: Sequence[str] = LIBRARY) -> list[str]:
    """The scripts that install the macro library, or a part of it, in one transaction."""
    return ["BEGIN;", *map(read_sql_file, files), "COMMIT;"]


def macro_script(files: Sequence[str] = LIBRARY) -> str:
    """The macro library, or a part of it, as one script."""
    return "\n".join(macro_scripts(files))
