"""What every engine can do. Engines execute; they hold no domain knowledge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlglot import exp


class Engine(Protocol):
    """A database that runs sqlglot expressions."""

    @property
    def dialect(self) -> str:
        """The sqlglot name of the engine's dialect."""
        ...

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement that returns nothing of interest."""
        ...

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and bring its rows to Python: tables of at most lattice size, or of an attribute's groups."""
        ...

    def shown(self, statement: exp.Expr) -> str:
        """The text of a statement, for people, as it would run."""
        ...

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        """Name and type text (in the engine's own spelling) of the columns, in order; reads no rows."""
        ...


class Workers(Protocol):
    """Processes that run Python beside tables whose rows do not come here."""

    @property
    def place(self) -> str:
        """Where they are, for messages."""
        ...

    def map_there(
        self, target: exp.Table, query: exp.Query, function: Callable[..., Any], types: Mapping[str, str]
    ) -> None:
        """Have them make a table of a query's rows; it stays there."""
        ...


class ArrowEngine(Engine, Protocol):
    """A database that takes in Arrow, and gives it."""

    def copy_arrow(self, target: exp.Table, arrow: Any, query: Callable[[exp.Table], exp.Query] = ...) -> None:
        """Make a table of an Arrow table or stream; of a stream, as it comes. By default of all of it as it is."""
        ...

    def registered(self, arrow: Any) -> AbstractContextManager[exp.Table]:
        """An Arrow table or stream as a relation, for a while; a stream can be read once."""
        ...

    def stream(self, query: exp.Query) -> AbstractContextManager[Any]:
        """The rows of a query as an Arrow stream; as long as it is open, the engine does nothing else."""
        ...
