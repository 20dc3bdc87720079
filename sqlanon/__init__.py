"""sqlanon: a SQL-native anonymizer. It finds the version of a table that protects everybody and loses the least.

The way of the data, and where each arrow lives::

    policy -> source -> hierarchies -> frequency set -> search  -> recode  -> noise, decoys -> release, ledger
    policy/   sources/  hierarchies/   frequency/       search/    recode/    noise/ decoys/   release/ ledger/

Each folder has the SQL of its stage. `pipeline` has the stages in their order; `database` has the verbs, and `result`
what they give back. Classes are judged by `requirements/` and scored by `measures/`. `engines/` run statements and know
nothing of privacy; `engines/dialects/` are the words of each. `risk/` and `suggest/` look at a source as it stands,
`attacks/` try what outsiders would, `ledger/` knows what was published, `live/` leaves a view in the source's own
database, `warehouse/` writes what others run by themselves, and `report/` draws a page for people.

The public names are loaded when they are first used: who asks for the version, or reads a policy, does not wait
for an engine.
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
from sqlanon.resources import __version__

if TYPE_CHECKING:
    from sqlanon.attacks import attack, attack_sql
    from sqlanon.database import Database, connect
    from sqlanon.policy import Policy
    from sqlanon.release.published import Release
    from sqlanon.result import Result
else:  # a type checker must not see this: with it, every name would be there
    _HOMES = {
        "Database": "sqlanon.database",
        "attack": "sqlanon.attacks",
        "attack_sql": "sqlanon.attacks",
        "Policy": "sqlanon.policy",
        "Release": "sqlanon.release.published",
        "Result": "sqlanon.result",
        "connect": "sqlanon.database",
    }

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(globals().keys() | _HOMES.keys())


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
