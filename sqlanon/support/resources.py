"""What comes with the code: the version, and the SQL files that live in databases, which are in top-level ``sql/`` in a
checkout and inside the package once installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__version__ = "0.1.0"
"""A test holds it against ``pyproject.toml``."""

RELEASE_MACROS = ("macros.sql",)
REQUIREMENT_MACROS = (*RELEASE_MACROS, "macros_persons.sql", "macros_privacy.sql", "macros_closeness.sql")
_OF_READERS = ("macros_analysis.sql", "macros_levels.sql")
LIBRARY = (*REQUIREMENT_MACROS, "macros_risk.sql", "macros_finding.sql", "macros_attacks.sql", *_OF_READERS)
"""The files of the macro library: what every release is checked by; what all requirements are; what
readers use in their queries; and all of it."""

MEDIAN_LIBRARY = (*LIBRARY, "macros_medians.sql")
"""The same for a release with medians for labels: no label there bounds a value."""

_PACKAGE = Path(__file__).parent.parent

POLICY_SCHEMA = _PACKAGE / "policy" / "schema.json"
"""The JSON Schema of a policy, for editors."""


def sql_file(name: str) -> Path:
    """The path of one of our SQL files.

    >>> sql_file("macros.sql").name
    'macros.sql'
    """
    installed = _PACKAGE / "sql" / name
    return installed if installed.exists() else _PACKAGE.parent / "sql" / name


def read_sql_file(name: str) -> str:
    """The text of one of our SQL files."""
    return sql_file(name).read_text(encoding="utf-8")


def macro_scripts(files: Sequence[str] = LIBRARY) -> list[str]:
    """The scripts that install the macro library, or a part of it, in one transaction."""
    return ["BEGIN;", *map(read_sql_file, files), "COMMIT;"]


def macro_script(files: Sequence[str] = LIBRARY) -> str:
    """The same as one script."""
    return "\n".join(macro_scripts(files))
