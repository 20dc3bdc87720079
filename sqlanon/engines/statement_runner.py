"""Statements that are executed, or in a dry run recorded; and a plan, the stages of a dry run."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import WorkEngine
from sqlanon.support.expressions import create_table, drop_table, select
from sqlanon.support.markup import escape_html


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
    """The stages of the main job."""

    stages: tuple[Stage, ...]
    nodes: int | None  # the size of the lattice; None where it depends on data
    unknown_heights: tuple[str, ...]  # the quasi-identifiers whose number of levels depends on data
    local: bool = False  # the strategy works below the full domain: not on the lattice
    warnings: tuple[str, ...] = ()  # of what is left out of the files of the source

    def __str__(self) -> str:
        parts = []
        for number, stage in enumerate(self.stages, 1):
            parts.append(f"-- {number}. {stage.name}: {stage.note}")
            parts += [f"{statement};" for statement in stage.sql]
            parts.append("")
        if self.local:
            parts.append("-- The strategy works below the full domain, in rounds whose number depends on the data.")
        elif self.nodes is not None:
            parts.append(f"-- The lattice has {self.nodes:,} generalizations.")
        else:
            names = one_line(", ".join(self.unknown_heights))
            parts.append(f"-- The size of the lattice depends on the data: on the values of {names}.")
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"Plan(stages={[stage.name for stage in self.stages]}, nodes={self.nodes})"

    def _repr_html_(self) -> str:
        """For notebooks: the stages, which unfold to their statements."""
        return "\n".join(
            f"<details><summary>{number}. {escape_html(stage.name)}: {escape_html(stage.note)}</summary>"
            f"<pre>{escape_html(''.join(f'{statement};' + chr(10) for statement in stage.sql))}</pre></details>"
            for number, stage in enumerate(self.stages, 1)
        )


class StatementRunner:
    """Runs the statements of a job; in a dry run it records them, and examples stand for their answers."""

    def __init__(self, engine: WorkEngine, shown: list[str] | None = None) -> None:
        self.engine = engine
        self.shown = shown
        self.stages: list[Stage] = []
        self.made: list[exp.Table] = []

    @property
    def dry(self) -> bool:
        return self.shown is not None

    def on(self, engine: WorkEngine) -> StatementRunner:
        """A runner of another engine, or of tables with a life of their own; in a dry run it records here."""
        return StatementRunner(engine, self.shown)

    def finish(self, stage: str, note: str) -> None:
        """In a dry run, what was recorded since the last stage is this one."""
        if self.shown is not None:
            self.stages.append(Stage(stage, note, tuple(self.shown)))
            self.shown.clear()

    def make(self, target: exp.Table, query: exp.Query, engine: WorkEngine | None = None) -> exp.Table:
        statement = create_table(target, query)
        self.made.append(target.copy())
        if self.shown is None:
            (engine or self.engine).execute(statement)
        else:
            self.shown.append(self.engine.shown(statement))
        return target.copy()

    def add(self, target: exp.Table, query: exp.Query) -> None:
        statement = exp.Insert(this=target.copy(), expression=query)
        if self.shown is None:
            self.engine.execute(statement)
        else:
            self.show(statement)

    def show(self, statement: exp.Expr) -> None:
        """Record a statement for what is not done by one; where statements are executed, there is nothing to do."""
        if self.shown is not None:
            self.shown.append(self.engine.shown(statement))

    def show_text(self, *statements: str) -> None:
        """Record the texts of statements that another engine would execute."""
        if self.shown is not None:
            self.shown += statements

    def drop_all_but(self, kept: Collection[exp.Expr]) -> None:
        """Drop what was made, but for some: memory is for what is still needed."""
        self.drop(*(target for target in self.made if target not in kept))
        self.made = [target for target in self.made if target in kept]

    def drop(self, *tables: exp.Table) -> None:
        if self.shown is None:
            for one in tables:
                self.engine.execute(drop_table(one.copy()))

    def ask(self, query: exp.Query, example: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """The answer to a query; in a dry run the query is recorded, and the example is the answer."""
        self.show(query)
        return self.look_up(query, example)

    def look_up(self, query: exp.Query, example: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """The answer to a small query about what was made, which a plan leaves out; in a dry run, the example."""
        return self.engine.rows(query) if self.shown is None else example

    def count(self, relation: exp.Table, example: int = 0) -> int:
        return int(self.ask(select([exp.Count(this=exp.Star())], relation.copy()), [(example,)])[0][0])

    def figures(self, query: exp.Select) -> Mapping[str, Any]:
        names = query.named_selects
        return dict(zip(names, self.ask(query, [(0,) * len(names)])[0], strict=True))
