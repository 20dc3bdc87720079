"""The SQL files that live in the database: top-level ``sql/`` in a checkout, inside the package once installed."""

from __future__ import annotations

from pathlib import Path

MORE_MACROS = (
    "macros_persons.sql",
    "macros_privacy.sql",
    "macros_closeness.sql",
    "macros_risk.sql",
    "macros_finding.sql",
    "macros_attacks.sql",
)
"""The files of the macro library beside the first one."""


def sql_file(name: str) -> Path:
    """The path of one of our SQL files.

    >>> sql_file("macros.sql").name
    'macros.sql'
    """
    package = Path(__file__).parent
    installed = package / "sql" / name
    return installed if installed.exists() else package.parent / "sql" / name


def sql_text(name: str) -> str:
    """The text of one of our SQL files."""
    return sql_file(name).read_text(encoding="utf-8")


def macros(*, all_of_them: bool = True) -> str:
    """The macro library, in one transaction: each macro for itself would be written to a file for itself.

    Parameters
    ----------
    all_of_them:
        Whether requirements other than k-anonymity are to be checked with it.
    """
    more = MORE_MACROS if all_of_them else ()
    return "\n".join(["BEGIN;", *(sql_text(name) for name in ("macros.sql", *more)), "COMMIT;"])
