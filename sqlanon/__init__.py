"""sqlanon, a SQL-native anonymizer: it generalizes a table about people until it meets a policy, and publishes it.

The stages, and the folder of each::

    policy -> source -> hierarchies -> frequency set -> search  -> recode  -> noise, decoys -> release, ledger
    policy/   sources/  hierarchies/   frequency/       search/    recode/    noise/ decoys/   release/ ledger/

Each folder has the SQL of its stage. `pipeline` runs the stages in order; `database` has the verbs, and `result`
what they return. `requirements/` and `measures/` judge equivalence classes. `engines/` run statements and know
nothing of privacy; `engines/dialects/` translate for each. `risk/` and `suggest/` examine a source, `attacks/` attack
a release, `ledger/` records what was published, `live/` creates views in the source's database, `warehouse/` writes
statements for others to run, and `report/` writes the report page.

Public names are imported when they are first used, so that the version or a policy does not wait for an engine.
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
    from sqlanon.release.published import Release
    from sqlanon.result import Result
else:  # hidden from type checkers: __getattr__ would make every name valid
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
