"""sqlanon: a SQL-native anonymizer. It finds the version of a table that protects everybody and loses the least.

The way of the data, and where each arrow lives::

    policy -> source -> values, hierarchies -> search, recode  <-> frequency sets -> noise  -> audit, publish
    policy/   sources/  preparation,           search/, local/     frequency_sets    noise/    release/
                        hierarchies/           anonymization                         (if asked)

`database` has the verbs, `workspace` the engines, `run` the tables that one run makes, `preparation` and
`anonymization` the steps (`counting` says what is counted from what, `steps` runs it), `result` what comes out;
`queries/` builds all SQL and knows no engine; `engines/` run it. Before a release, `risk/`, `suda/` and `finding/`
look at a source as it stands (`looking` has their verbs). After it, `attacks/` try what outsiders would;
`against_source` and `source_audit` hold it against its source. Between releases, `ledger/` knows what was published,
what a new one may be based on, and what it would break; `extend/` lets one grow. In place of a release, `live/` leaves
a view in the source's own database (`viewing` has its verbs). `made` says how a release is made of what was found;
`report/` tells and draws it for people. A source in PostgreSQL is counted by `sources.postgres`, recoded there by
`remote`, and published there by `release.postgres`. A source in Spark stays behind `engines.federated`: DuckDB, and
beside it tables that Spark has; each statement runs where what it reads is, in the words that `queries.dialects` knows
to mean the same. `warehouse/` writes what others run by themselves. What people see on a terminal is said by
`printing` and painted by `terminal`; `markup` makes HTML of strangers' texts, and `histogram` puts class sizes into
few ranges, for a terminal and a page alike.
Beyond the house of the design there are these: sources were a part of their own (each kind leaks in its own way), the
steps were too much for one file, and what a run leaves in the engine needed an owner.

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
from sqlanon.version import __version__

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
