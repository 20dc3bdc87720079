"""Statements that are run, or only shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.expressions import create_table, drop_table, select


class Steps:
    """Runs statements; or with a list to fill, writes them there and runs none."""

    def __init__(self, engine: Engine, shown: list[str] | None = None) -> None:
        self.engine = engine
        self.shown = shown
        self.made: list[exp.Table] = []

    def make(self, target: exp.Table, query: exp.Query, engine: Engine | None = None) -> exp.Table:
        """Make a table."""
        statement = create_table(target, query)
        self.made.append(target.copy())
        if self.shown is None:
            (engine or self.engine).execute(statement)
        else:
            self.shown.append(self.engine.shown(statement))
        return target.copy()

    def add(self, target: exp.Table, query: exp.Query) -> None:
        """Add the rows of a query to a table."""
        statement = exp.Insert(this=target.copy(), expression=query)
        if self.shown is None:
            self.engine.execute(statement)
        else:
            self.show(statement)

    def show(self, statement: exp.Expr) -> None:
        """Show a statement for what is not done by one; where statements are run, there is nothing to do."""
        if self.shown is not None:
            self.shown.append(self.engine.shown(statement))

    def drop_all_but(self, kept: Collection[exp.Expr]) -> None:
        """Drop what was made, but for some: memory is for what is still needed."""
        for target in self.made:
            if target not in kept and self.shown is None:
                self.engine.execute(drop_table(target.copy()))
        self.made = [target for target in self.made if target in kept]

    def ask(self, query: exp.Select, example: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """The answer to a query; the example where it is only shown."""
        if self.shown is None:
            return self.engine.rows(query)
        self.shown.append(self.engine.shown(query))
        return example

    def count(self, relation: exp.Table, example: int = 0) -> int:
        """The rows of a table."""
        return int(self.ask(select([exp.Count(this=exp.Star())], relation.copy()), [(example,)])[0][0])

    def figures(self, query: exp.Select) -> Mapping[str, Any]:
        """The one row of a query, by name."""
        names = query.named_selects
        return dict(zip(names, self.ask(query, [(0,) * len(names)])[0], strict=True))
