"""sqlanon: a SQL-native anonymizer. It finds the version of a table that protects everybody and loses the least."""

from sqlanon.database import Database, connect
from sqlanon.errors import (
    AuditError,
    HierarchyError,
    InfeasibleError,
    PolicyError,
    ReleaseError,
    SourceError,
    SqlanonError,
)
from sqlanon.policy import Policy
from sqlanon.result import Release, Result
from sqlanon.version import __version__

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
    "connect",
]
