"""sqlanon, a SQL-native anonymizer: it generalizes a table about people until it meets a policy, and publishes it.

`pipeline` runs the stages in order; each has a folder with its SQL::

    policy -> source -> hierarchies -> frequency sets -> search -> recode -> noise, decoys -> audit, release, ledger

CONTRIBUTING.md describes the tree. Public names are imported when they are first used, so that the version or a policy
does not wait for an engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlanon.errors import (
    AuditError,
    HierarchyError,
    InfeasibleError,
    PolicyError,
    ReleaseError,
    SourceError,
    SqlanonError,
)
from sqlanon.support.resources import __version__

if TYPE_CHECKING:
    from sqlanon.attacks import attack, attack_sql
    from sqlanon.database import Database, connect
    from sqlanon.policy import Policy
    from sqlanon.publish.published import Release
    from sqlanon.result import Result
else:  # hidden from type checkers: __getattr__ would make every name valid
    _MODULES = {
        "Database": "sqlanon.database",
        "attack": "sqlanon.attacks",
        "attack_sql": "sqlanon.attacks",
        "Policy": "sqlanon.policy",
        "Release": "sqlanon.publish.published",
        "Result": "sqlanon.result",
        "connect": "sqlanon.database",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(globals().keys() | _MODULES.keys())


__all__ = [
    "AuditError",
    "Database",
    "HierarchyError",
    "InfeasibleError",
    "Policy",
    "PolicyError",
    "Release",
    "ReleaseError",
    "Result",
    "SourceError",
    "SqlanonError",
    "__version__",
    "attack",
    "attack_sql",
    "connect",
]
