"""Checks ask some things twice: of a file that stays as it is, once is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Queries


class Once:
    """An engine that remembers its answers, as long as nothing that it is asked about changes."""

    def __init__(self, engine: Queries) -> None:
        self._engine = engine
        self._answers: dict[str, list[tuple[Any, ...]]] = {}

    @property
    def dialect(self) -> str:
        """The sqlglot name of the engine's dialect."""
        return self._engine.dialect

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""
        self._answers.clear()
        self._engine.execute(statement, parameters)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query, unless the answer is known."""
        key = f"{query.sql(self.dialect)} {parameters!r}"
        if key not in self._answers:
            self._answers[key] = self._engine.rows(query, parameters)
        return self._answers[key]

    def shown(self, statement: exp.Expr) -> str:
        """The text of a statement, for people."""
        return self._engine.shown(statement)

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        """Name and type text of a relation's columns."""
        return self._engine.columns(relation)
