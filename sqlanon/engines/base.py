"""What every engine can do, and what only some can. Engines execute; they hold no domain knowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol

from sqlglot import exp

from sqlanon.errors import SourceError, SqlanonError


class Feature(Enum):
    BATCHES = "gives the rows of a query in batches, as they come: memory stays flat"
    CACHE = "keeps rows by columns, compressed, and makes again what is lost of them"
    FILES = "hands large results over as Parquet files"
    INNER_ORDER = "keeps the order of a query in FROM, with small tables joined to it"
    MACROS = "has table macros over the name of a table"
    RECURSION = "runs WITH RECURSIVE with windows in its rounds"
    WORKERS = "runs Python where the rows are"


FEATURES: Mapping[str, frozenset[Feature]] = {
    "duckdb": frozenset({Feature.BATCHES, Feature.INNER_ORDER, Feature.MACROS, Feature.RECURSION}),
    "postgres": frozenset({Feature.BATCHES, Feature.INNER_ORDER, Feature.RECURSION}),
    "spark": frozenset({Feature.CACHE, Feature.FILES, Feature.WORKERS}),
}
"""The capability table: by engine."""


class Queries(Protocol):
    """What answers queries that are sqlglot expressions."""

    @property
    def dialect(self) -> str: ...

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None: ...

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and bring its rows to Python: tables of at most lattice size, or of an attribute's groups."""
        ...

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        """Name and type text (in its own spelling) of the columns, in order; reads no rows."""
        ...

    def shown(self, statement: exp.Expr) -> str:
        """The text of a statement, for people, as it would run."""
        ...


class Engine(Queries, Protocol):
    """A database: what every engine satisfies."""

    @property
    def features(self) -> frozenset[Feature]:
        """What it can do beside what all can."""
        ...

    def materialize(self, name: str, query: exp.Query) -> int:
        """Compute a query once, and keep its rows under a name that this connection alone knows; how many they are."""
        ...

    def upload(self, name: str, arrow: Any) -> exp.Table:
        """Make a table of an Arrow table or stream that this connection alone knows."""
        ...

    def stream(self, query: exp.Query) -> AbstractContextManager[Any]:
        """The rows of a query as an Arrow stream; as long as it is open, the engine does nothing else."""
        ...


class RemoteEngine(Engine, Protocol):
    """An engine whose tables stay where they are: `engines.federated` puts to it what reads them."""

    @property
    def place(self) -> str: ...

    def translated_errors(self, kind: type[SqlanonError] = SourceError) -> AbstractContextManager[None]:
        """Its errors become ours meanwhile, and quote neither values nor its address."""
        ...

    def forget(self, name: str) -> None:
        """Drop what `materialize` or `upload` made; nothing where there is none."""
        ...


class WritesFiles(RemoteEngine, Protocol):
    @property
    def is_here(self) -> bool:
        """Whether all of it is known to be on this machine: it sees its folders."""
        ...

    def write_parquet(self, query: exp.Expr, directory: str) -> int:
        """Write the rows of a query as Parquet files, in a new directory that it and this machine see."""
        ...


class CachesRows(RemoteEngine, Protocol):
    def cache(self, name: str, query: exp.Query) -> int:
        """Do as `materialize` does, in less memory, for a query that has the same rows each time."""
        ...


class RunsPython(RemoteEngine, Protocol):
    def materialize_mapped(
        self, name: str, query: exp.Expr, function: Callable[..., Any], types: Mapping[str, str]
    ) -> int:
        """Have Python make other rows of those of a query, and keep them as `materialize` does."""
        ...


class Workers(Protocol):
    """Processes that run Python beside tables whose rows do not come here."""

    @property
    def place(self) -> str: ...

    def map_there(
        self, target: exp.Table, query: exp.Query, function: Callable[..., Any], types: Mapping[str, str]
    ) -> None:
        """Have them make a table of a query's rows; it stays there."""
        ...


class WorkEngine(Engine, Protocol):
    """The engine of a run: what the run makes is here."""

    def copy_arrow(self, target: exp.Table, arrow: Any, query: Callable[[exp.Table], exp.Query] = ...) -> None:
        """Make a table of an Arrow table or stream; of a stream, as it comes. By default of all of it as it is."""
        ...

    def registered(self, arrow: Any) -> AbstractContextManager[exp.Table]:
        """An Arrow table or stream as a relation, for a while; a stream can be read once."""
        ...

    def regrouped(self, query: exp.Select) -> Callable[[Iterable[str]], tuple[Any, ...]]:
        """The one row of a query that is asked again and again, by the columns that it groups by."""
        ...
