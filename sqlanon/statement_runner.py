"""Statements that are run, or only shown; and a plan, the stages of a job that is shown without being run."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.expressions import create_table, drop_table, select


def one_line(text: str) -> str:
    """A text in a comment, which it cannot end.

    >>> one_line("zip\\n; DROP TABLE t")
    'zip ; DROP TABLE t'
    """
    return " ".join("".join(" " if unicodedata.category(one)[0] in "CZ" else one for one in text).split())


@dataclass(frozen=True)
class Stage:
    """A step of the main job: its name, what it reads and makes, and its statements."""

    name: str
    note: str
    sql: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The stages of the main job.

    Attributes
    ----------
    stages:
        In order.
    nodes:
        The size of the lattice; None where it depends on data.
    unknown_heights:
        The quasi-identifiers whose number of levels depends on data.
    """

    stages: tuple[Stage, ...]
    nodes: int | None
    unknown_heights: tuple[str, ...]

    def __str__(self) -> str:
        parts = []
        for number, stage in enumerate(self.stages, 1):
            parts.append(f"-- {number}. {stage.name}: {stage.note}")
            parts += [f"{statement};" for statement in stage.sql]
            parts.append("")
        if self.nodes is not None:
            parts.append(f"-- The lattice has {self.nodes:,} generalizations.")
        else:
            names = one_line(", ".join(self.unknown_heights))
            parts.append(f"-- The size of the lattice depends on the data: on the values of {names}.")
        return "\n".join(parts)


class StatementRunner:
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
