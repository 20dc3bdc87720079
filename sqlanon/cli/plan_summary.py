"""A plan on one screen: what each stage reads and writes, how many statements it has, and the main one, shortened."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

if TYPE_CHECKING:
    from sqlanon.engines.statement_runner import Plan, Stage

WIDTH = 80
"""The longest line of a summary, in characters."""

_INDENT = "   "
_MOST_NAMES = 4
_TAIL = 28
_DIALECTS = ("duckdb", "postgres", "spark")


def plan_summary(plan: Plan, command: str) -> str:
    """The stages in two or three lines each; the command prints all statements."""
    lines: list[str] = []
    for number, stage in enumerate(plan.stages, 1):
        count = len(stage.sql)
        heading = f"{number}. {stage.name} ({count} statement{'' if count == 1 else 's'})"
        reads, writes = _tables(stage)
        flows = [f"{verb} {_few(names)}" for verb, names in (("reads", reads), ("writes", writes)) if names]
        lines += textwrap.wrap(
            f"{heading}: {'; '.join(flows) or stage.note}",
            WIDTH,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        if stage.sql:
            lines.append(_INDENT + _shortened(_main(stage.sql), WIDTH - len(_INDENT)))
    lines.append("")
    if plan.nodes is not None:
        lines.append(f"The lattice has {plan.nodes:,} generalizations.")
    else:
        names = ", ".join(plan.unknown_heights)
        lines.append(f"The size of the lattice depends on the data: on the values of {names}.")
    lines.append(f"All statements: {command}")
    return "\n".join(lines)


def _main(statements: tuple[str, ...]) -> str:
    """The statement that does the work of a stage: the last one that groups, else the last one."""
    return next((one for one in reversed(statements) if "GROUP BY" in one), statements[-1])


def _shortened(statement: str, width: int) -> str:
    """A statement in one line, without quotes and names of schemas: its head, and what it groups by."""
    text = re.sub(r'"((?:[^"]|"")*)"', r"\1", " ".join(statement.split()))
    text = re.sub(r"\b(?:sqlanon_work|temp)\.(?:run_\d+|main)\.", "", text)
    text = re.sub(r"\bsqlanon_work_run_\d+_source\b", "source", text)
    if len(text) <= width:
        return text
    grouped = text.rfind("GROUP BY")
    tail = "" if grouped < 0 else text[grouped : grouped + _TAIL].rpartition(",")[0] or text[grouped:][:_TAIL]
    tail += "" if text.endswith(tail) else " ..."
    head = text[: width - len(tail) - 5].rpartition(" ")[0]
    return f"{head} ... {tail}" if grouped >= 0 else f"{head} ..."


def _tables(stage: Stage) -> tuple[list[str], list[str]]:
    """What the statements of a stage read, and what they write; tables that they make for themselves are not read."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for statement in stage.sql:
        tree = _parsed(statement)
        if tree is None:
            continue
        target = tree.this if isinstance(tree, exp.Create | exp.Insert) else None
        if target is not None:
            target = target.find(exp.Table)
        if target is not None:
            writes[_name(target)] = None
        for name in _read(tree, target):
            if name not in writes:
                reads[name] = None
    return list(reads), list(writes)


def _read(tree: exp.Expr, target: exp.Expr | None) -> Iterator[str]:
    inside = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if table is target or table.name in inside:
            continue
        if isinstance(table.this, exp.Identifier):
            yield _name(table)
        else:  # a macro over the release
            yield "the release"


def _parsed(statement: str) -> exp.Expr | None:
    for dialect in _DIALECTS:
        try:
            return sqlglot.parse_one(statement, dialect=dialect)
        except SqlglotError:
            continue
    return None


def _name(table: exp.Expr) -> str:
    return "source" if re.fullmatch(r"sqlanon_work_run_\d+_source", table.name) else table.name


def _few(names: list[str]) -> str:
    shown = names if len(names) <= _MOST_NAMES else names[: _MOST_NAMES - 1]
    return ", ".join(shown) + ("" if len(shown) == len(names) else f" and {len(names) - len(shown)} more")
