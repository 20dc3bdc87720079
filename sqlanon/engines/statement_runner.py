"""Run the statements of a job, or record them in a dry run; a plan is the recorded stages."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import WorkEngine
from sqlanon.support.expressions import create_table as create_table_as
from sqlanon.support.expressions import drop_table, select
from sqlanon.support.markup import escape_html


def one_line(text: str) -> str:
    """Put a text on one line, so that it cannot end a SQL comment.

    >>> one_line("zip\\n; DROP TABLE t")
    'zip ; DROP TABLE t'
    """
    return " ".join("".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text).split())


@dataclass(frozen=True)
class Stage:
    """A stage of the job: its name, a note on what it does, and its statements."""

    name: str
    note: str
    sql: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The stages of a job, as its dry run recorded them."""

    stages: tuple[Stage, ...]
    nodes: int | None  # the size of the lattice; None if it depends on the data
    unknown_heights: tuple[str, ...]  # quasi-identifiers whose number of levels depends on the data
    local: bool = False  # a local recoding strategy, which does not search the lattice
    warnings: tuple[str, ...] = ()  # about parts of the source's files that are ignored

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
        """HTML for notebooks: stages that expand to their statements."""
        return "\n".join(
            f"<details><summary>{number}. {escape_html(stage.name)}: {escape_html(stage.note)}</summary>"
            f"<pre>{escape_html(''.join(f'{statement};' + chr(10) for statement in stage.sql))}</pre></details>"
            for number, stage in enumerate(self.stages, 1)
        )


class StatementRunner:
    """Runs the statements of a job. A dry run records them and returns example results."""

    def __init__(self, engine: WorkEngine, recorded: list[str] | None = None) -> None:
        self.engine = engine
        self.recorded = recorded
        self.stages: list[Stage] = []
        self.created: list[exp.Table] = []

    @property
    def dry(self) -> bool:
        return self.recorded is not None

    def rounds(self) -> Iterator[int]:
        """Number the rounds of a loop that ends itself; a dry run has a single round, as an example of all."""
        return iter(range(1)) if self.dry else itertools.count()

    def on(self, engine: WorkEngine) -> StatementRunner:
        """A runner for another engine, or with its own list of created tables; a dry run records in the same place."""
        return StatementRunner(engine, self.recorded)

    def finish_stage(self, stage: str, note: str) -> None:
        """In a dry run, end a stage: it has the statements recorded since the last one."""
        if self.recorded is not None:
            self.stages.append(Stage(stage, note, tuple(self.recorded)))
            self.recorded.clear()

    def create_table(self, target: exp.Table, query: exp.Query, engine: WorkEngine | None = None) -> exp.Table:
        statement = create_table_as(target, query)
        self.created.append(target.copy())
        if self.recorded is None:
            (engine or self.engine).execute(statement)
        else:
            self.recorded.append(self.engine.render(statement))
        return target.copy()

    def add(self, target: exp.Table, query: exp.Query) -> None:
        self.execute(exp.Insert(this=target.copy(), expression=query))

    def execute(self, statement: exp.Expr) -> None:
        """Run a statement without a result; a dry run records it."""
        if self.recorded is None:
            self.engine.execute(statement)
        else:
            self.record(statement)

    def record(self, statement: exp.Expr) -> None:
        """In a dry run, record a statement; otherwise do nothing."""
        if self.recorded is not None:
            self.recorded.append(self.engine.render(statement))

    def record_text(self, *statements: str) -> None:
        """In a dry run, record the texts of statements of another engine."""
        if self.recorded is not None:
            self.recorded += statements

    def drop_all_except(self, retained: Collection[exp.Expr]) -> None:
        """Drop all created tables except these."""
        self.drop(*(target for target in self.created if target not in retained))
        self.created = [target for target in self.created if target in retained]

    def drop(self, *tables: exp.Table) -> None:
        if self.recorded is None:
            for target in tables:
                self.engine.execute(drop_table(target.copy()))

    def fetch_rows(
        self, query: exp.Query, example: Sequence[tuple[Any, ...]], *, in_plan: bool = True
    ) -> Sequence[tuple[Any, ...]]:
        """The rows of a query. A dry run returns the example, and records the query if it belongs in the plan."""
        if self.recorded is None:
            return self.engine.rows(query)
        if in_plan:
            self.record(query)
        return example

    def count(self, relation: exp.Expr, example: int = 0) -> int:
        """The number of rows of a relation."""
        return int(self.fetch_rows(select([exp.Count(this=exp.Star())], relation.copy()), [(example,)])[0][0])

    def fetch_figures(self, query: exp.Select) -> Mapping[str, Any]:
        names = query.named_selects
        return dict(zip(names, self.fetch_rows(query, [(0,) * len(names)])[0], strict=True))
