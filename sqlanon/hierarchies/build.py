"""Build a hierarchy: from the rules and values of an attribute to a validated table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, Problem
from sqlanon.expressions import (
    aliased,
    all_columns,
    col,
    drop_table,
    ident,
    is_null,
    named,
    select,
    subquery,
    text,
    union_all,
)
from sqlanon.hierarchies.labels import longest_query
from sqlanon.hierarchies.messages import Finding
from sqlanon.hierarchies.parts import (
    TOP,
    VALUE,
    Draft,
    Labelled,
    Listed,
    Part,
    choose,
    is_known,
    keys_name,
    keys_query,
    keys_table,
    to_type,
)
from sqlanon.hierarchies.rules import resolve
from sqlanon.hierarchies.validate import Check, Summary, checks, first_findings, summary, totals, usual_checks
from sqlanon.policy.rules import MaskRule, Rule


@dataclass(frozen=True)
class Hierarchy:
    """A validated hierarchy.

    Attributes
    ----------
    attribute:
        The attribute that it generalizes.
    table:
        One row per ground value: ``level_0`` (the column's type), ``level_1`` .. ``level_{height}`` (text).
        A column with NULLs has one more row for them: NULL below the top.
    height:
        Its top level.
    leaves:
        Its ground values, and one more if the column has NULLs; not if a population alone has.
    top:
        The label of its top level; ``None`` for height 0 and where there are no ground values at all.
    """

    attribute: str
    table: exp.Table
    height: int
    leaves: int
    top: str | None


EXAMPLE_LENGTH = 5
"""In a dry run, the longest text of a column: the levels of a mask depend on it."""

EXAMPLE_LEAVES = 1000
"""In a dry run, the values of a hierarchy, and of each of its levels."""


def build_hierarchy(
    steps: StatementRunner,
    attribute: str,
    rules: tuple[Rule, ...],
    values: exp.Table,
    column_type: str,
    target: exp.Table,
    on_unknown: str = "error",
    nullable: bool = True,
) -> tuple[Hierarchy | None, list[Problem]]:
    """Build a hierarchy as a table and validate it; a dry run has nothing to validate."""
    place, engine = f"attributes.{attribute}.hierarchy", steps.engine
    parts, flaws = resolve(rules, column_type, engine, _longest(steps, rules, values))
    if flaws:
        return None, [Problem(place, flaw) for flaw in flaws]
    draft = Draft(tuple(parts), values, column_type, nullable)
    try:
        steps.make(target, _query(draft))
    except Exception as error:  # each engine has errors of its own
        if not draft.listed:
            raise
        names = " and ".join(part.what for part in draft.listed.values())
        # Only errors about names and files are shown whole: others may quote values.
        told = type(error).__name__ in ("CatalogException", "BinderException", "ParserException", "IOException")
        reason = str(error).partition("\n")[0] if told else type(error).__name__
        return None, [Problem(place, f"the engine cannot read {names}: {reason}")]
    if steps.dry:
        return Hierarchy(attribute, target, draft.height, EXAMPLE_LEAVES, TOP if draft.height else None), []
    usual = usual_checks(draft, target, on_unknown)
    facts = Summary(*engine.rows(summary(draft, target, usual))[0])
    found = checks(draft, target, facts, usual)
    if messages := _messages(engine, draft, found):
        engine.execute(drop_table(target))
        return None, [Problem(place, message) for message in messages]
    top = TOP if parts[-1].top else facts.top
    leaves = min(facts.leaves, facts.ground + facts.nulls)
    return Hierarchy(attribute, target, draft.height, leaves, top if draft.height else None), []


def hierarchy_query(
    rules: Sequence[Rule],
    values: exp.Table,
    column_type: str,
    *,
    engine: Engine | None = None,
    longest: int = 1,
) -> exp.Select:
    """Return the query that makes a hierarchy's table; no rows are read, but hierarchy files are.

    Examples
    --------
    >>> from sqlanon.policy.rules import SuppressRule
    >>> from sqlanon.expressions import table
    >>> hierarchy_query([SuppressRule()], table("v"), "VARCHAR").sql("duckdb")
    'SELECT "value" AS "level_0", \\'*\\' AS "level_1" FROM (SELECT "value" AS "value" FROM "v") AS "v"'
    """
    parts, flaws = resolve(rules, column_type, engine, longest)
    if flaws:
        raise HierarchyError(Problem("hierarchy", flaw) for flaw in flaws)
    return _query(Draft(tuple(parts), values, column_type))


def _longest(steps: StatementRunner, rules: Sequence[Rule], values: exp.Table) -> int:
    if not any(isinstance(rule, MaskRule) for rule in rules):
        return 1
    return max(1, steps.look_up(longest_query(values), [(EXAMPLE_LENGTH,)])[0][0] or 1)


def _query(draft: Draft) -> exp.Select:
    first = draft.parts[0]
    if len(draft.parts) == 1 and isinstance(first, Listed):
        query = _listed_query(first, draft)
    else:
        query = _composed_query(draft.parts, draft.values)
    for index, part in draft.listed.items():
        keys = keys_query(part, draft.column_type)
        query = query.with_(ident(keys_name(index)), as_=keys, copy=False)
    return query


def _composed_query(parts: Sequence[Part], values: exp.Table) -> exp.Select:
    """Select the column's values, with the labels that each part gives them."""
    query = select([named(col(VALUE), VALUE)], values.copy())
    labels: list[exp.Expr] = []
    known: list[exp.Expr] = []
    for index, part in enumerate(parts):
        prefix = f"p{index}_"
        labelled = _joined(part, query, index) if isinstance(part, Listed) else part.extend(query, prefix)
        query = labelled.query
        labels += labelled.labels
        known += [labelled.known] if labelled.known is not None else []
    last = parts[-1]
    if last.top:
        labels.append(text(TOP))
    elif labels and isinstance(last, Listed):
        null_top = (is_null(col(VALUE)), subquery(_listed_top(last, len(parts) - 1)))
        labels[-1] = choose([null_top], labels[-1])
    whole = select(_level_columns(col(VALUE), labels), subquery(query, "v"))
    if known:
        whole.where(exp.or_(is_null(col(VALUE)), exp.and_(*known)), copy=False)
    return whole


def _level_columns(value: exp.Expr, labels: Sequence[exp.Expr]) -> list[exp.Expr]:
    return [named(label, f"level_{level}") for level, label in enumerate([value, *labels])]


def _joined(part: Listed, query: exp.Select, index: int) -> Labelled:
    """Look the values up among a part's keys."""
    names = [f"p{index}_c{level}" for level in range(1, part.levels + 1)]
    key = f"p{index}_key"
    everything = all_columns("v")
    columns: list[exp.Expr] = [everything, named(col("key", "k"), key)]
    columns += [named(col(f"c{level}", "k"), name) for level, name in enumerate(names, start=1)]
    equal = col(VALUE, "v").eq(col("key", "k"))
    joined = select(columns, subquery(query, "v"))
    joined.append("joins", exp.Join(this=aliased(keys_table(index), "k"), side="LEFT", on=equal))
    return Labelled(joined, tuple(col(name) for name in names), is_known(col(key)))


def _listed_query(part: Listed, draft: Draft) -> exp.Select:
    """Select all keys of a listed hierarchy, also those that the column lacks, and a row for its NULLs."""
    labels: list[exp.Expr] = [col(f"c{level}") for level in range(1, part.levels + 1)]
    if part.top:
        labels.append(text(TOP))
    listed = select(_level_columns(col("key"), labels), keys_table(0))
    listed.where(is_known(col("key")), copy=False)
    if not labels or not draft.nullable:
        return listed
    top = text(TOP) if part.top else subquery(_listed_top(part, 0))
    nulls = [*(to_type(exp.null(), "VARCHAR") for _ in labels[:-1]), top]
    null_row = select(_level_columns(col(VALUE), nulls), draft.values.copy()).where(is_null(col(VALUE)), copy=False)
    return select([exp.Star()], subquery(union_all(listed, null_row), "h"))


def _listed_top(part: Listed, index: int) -> exp.Select:
    return select([exp.Max(this=col(f"c{part.levels}"))], keys_table(index))


def _messages(engine: Engine, draft: Draft, found: Sequence[Check]) -> list[str]:
    """Return what is wrong: one message for each check that found something."""
    if not found:
        return []
    messages = []
    for index, total in sorted(engine.rows(totals(found, draft))):
        check = found[index]
        findings = [Finding(*row) for row in engine.rows(first_findings(check, draft))]
        messages.append(check.message(findings, total))
    return messages
