"""The stage hierarchies: build a validated table from the rules and values of each attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, InfeasibleError, Problem
from sqlanon.hierarchies.labels import longest_text
from sqlanon.hierarchies.levels import find_level_problems
from sqlanon.hierarchies.parts import TOP, HierarchyDraft, LabelledQuery, ListedLevels, keys_table
from sqlanon.hierarchies.rules import resolve_rules
from sqlanon.hierarchies.validate import (
    Finding,
    HierarchyCheck,
    Summary,
    checks,
    first_findings,
    summary,
    totals,
    usual_checks,
)
from sqlanon.policy import Policy
from sqlanon.policy.rules import IntervalsRule, MaskRule, Rule
from sqlanon.requirements import attributes_needing_hierarchies
from sqlanon.support import coding
from sqlanon.support.expressions import (
    Namer,
    all_of,
    as_column,
    cast,
    col,
    drop_table,
    fragment,
    is_not_null,
    null_safe_equal,
    template,
    text,
    union_all,
)


@dataclass(frozen=True)
class Hierarchy:
    """A validated hierarchy.

    Its table has one row per ground value: ``level_0`` (the column's type), ``level_1`` .. ``level_{height}`` (text). A
    column with NULLs has another row for them: NULL below the top. With ``open_ends``, ``label_0`` (text) is the
    released label at level 0: the value, or the label of the open end that it lies beyond.
    """

    attribute: str
    table: exp.Table
    height: int
    leaves: int  # number of ground values, plus one if the column of the source has NULLs
    top: str | None  # label of the top level; None for height 0 and without ground values
    open_ends: bool = False
    has_population_values: bool = False  # has values that only the population has, which are not leaves

    def released_column(self, level: int) -> str:
        """The column of its table that a release shows at a level."""
        return released_column(level, self.open_ends)


def released_column(level: int, open_ends: bool) -> str:
    """The column of a hierarchy's table that a release shows at a level.

    >>> released_column(0, False), released_column(0, True), released_column(1, True)
    ('level_0', 'label_0', 'level_1')
    """
    return "label_0" if open_ends and level == 0 else f"level_{level}"


EXAMPLE_TEXT_LENGTH = 5
"""Length of a column's longest text in a dry run; the levels of a mask depend on it."""

EXAMPLE_LEAVES = 1000
"""Number of values of a hierarchy, and of each of its levels, in a dry run."""


@dataclass(frozen=True)
class AttributeValues:
    """The values of an attribute with counts, and the type of its column."""

    table: exp.Table
    type: str
    has_population: bool = False  # the table has values that only the population has, with 0 rows


@dataclass(frozen=True)
class ValueFacts:
    """The number of values of an attribute (None in a dry run), whether NULL is one of them, and the rows."""

    count: int | None
    nullable: bool
    rows: int


@dataclass(frozen=True)
class Hierarchies:
    """The hierarchies of the quasi-identifiers, in the policy's order, and of sensitive attributes that need one; and
    the summaries of their values."""

    quasi: tuple[Hierarchy, ...]
    sensitive: Mapping[str, Hierarchy]
    facts: Mapping[str, ValueFacts]


def build_hierarchies(
    runner: StatementRunner, policy: Policy, values: Mapping[str, AttributeValues], work: Namer
) -> Hierarchies:
    """Build and validate the hierarchies of quasi-identifiers, then of the sensitive attributes that requirements need.

    Creates ``hierarchy_i`` and ``sensitive_hierarchy_s``.
    """
    facts = summarize_values(runner, values)
    if not facts[policy.generalized_attributes[0]].rows and not runner.dry:
        raise InfeasibleError("the source has no rows: there is nothing to release", None, 0, 0)
    built: dict[str, Hierarchy] = {}
    problems: list[Problem] = []
    sensitive = [name for name in values if name not in policy.generalized_attributes]
    targets = {name: work(f"hierarchy_{i}") for i, name in enumerate(policy.generalized_attributes)}
    targets |= {
        name: work(f"sensitive_hierarchy_{s}")
        for s, name in enumerate(sensitive)
        if name in attributes_needing_hierarchies(policy.privacy)
    }
    for name, target in targets.items():
        spec, attribute_values = policy.attributes[name], values[name]
        rules, nullable = spec.hierarchy or (), facts[name].nullable
        hierarchy, hierarchy_problems = build_hierarchy(
            runner, name, rules, attribute_values.table, attribute_values.type, target, spec.on_unknown, nullable,
            attribute_values.has_population,
        )  # fmt: skip
        problems.extend(hierarchy_problems)
        if hierarchy is not None:
            names = [hierarchy.released_column(level) for level in range(hierarchy.height + 1)]
            problems.extend(() if runner.dry else find_level_problems(runner, name, spec, target, names))
            built[name] = hierarchy
    if problems:
        raise HierarchyError(problems)
    runner.finish_stage("hierarchies", "one table an attribute, leaf to root, then validated")
    quasi = tuple(built[name] for name in policy.generalized_attributes)
    return Hierarchies(quasi, {name: built[name] for name in built if name not in policy.generalized_attributes}, facts)


def summarize_values(runner: StatementRunner, values: Mapping[str, AttributeValues]) -> dict[str, ValueFacts]:
    tables = [attribute_values.table for attribute_values in values.values()]
    rows = runner.fetch_rows(
        coding.value_summaries(tables), [(i, None, True, 0) for i in range(len(tables))], in_plan=False
    )
    return {name: ValueFacts(*row[1:]) for name, row in zip(values, rows, strict=True)}


def build_hierarchy(
    runner: StatementRunner,
    attribute: str,
    rules: tuple[Rule, ...],
    values: exp.Table,
    column_type: str,
    target: exp.Table,
    on_unknown: str = "error",
    nullable: bool = True,
    has_population: bool = False,
) -> tuple[Hierarchy | None, list[Problem]]:
    """Build the table of a hierarchy and validate it; a dry run has nothing to validate."""
    place, engine = f"attributes.{attribute}.hierarchy", runner.engine
    parts, flaws = resolve_rules(rules, column_type, engine, _longest(runner, rules, values))
    if flaws:
        return None, [Problem(place, flaw) for flaw in flaws]
    draft = HierarchyDraft(tuple(parts), values, column_type, nullable)
    open_ends = any(isinstance(rule, IntervalsRule) and rule.has_open_ends for rule in rules)
    try:
        runner.create_table(target, _query(draft))
    except Exception as error:  # each engine raises its own errors
        if not draft.listed_parts:
            raise
        names = " and ".join(part.name for part in draft.listed_parts.values())
        # Only errors about names and files are reported in full: others may quote values.
        harmless = ("CatalogException", "BinderException", "ParserException", "IOException")
        quotes_no_values = type(error).__name__ in harmless
        reason = str(error).partition("\n")[0] if quotes_no_values else type(error).__name__
        return None, [Problem(place, f"the engine cannot read {names}: {reason}")]
    if runner.dry:
        top = TOP if draft.height else None
        return Hierarchy(attribute, target, draft.height, EXAMPLE_LEAVES, top, open_ends), []
    usual = usual_checks(draft, target, on_unknown)
    facts = Summary(*engine.rows(summary(draft, target, usual))[0])
    if messages := _messages(engine, draft, checks(draft, target, facts, usual)):
        engine.execute(drop_table(target))
        return None, [Problem(place, message) for message in messages]
    top = (TOP if parts[-1].top else facts.top) if draft.height else None
    leaves = min(facts.leaves, facts.ground + facts.nulls)
    has_population_values = has_population and not draft.is_list
    if has_population_values:
        on = null_safe_equal(col("level_0", "h"), col("value", "v"), nullable)
        leaves_of_column = template("SELECT count(*) FROM :hierarchy AS h JOIN :values AS v ON :same WHERE v.rows > 0")
        leaves = int(engine.rows(leaves_of_column(hierarchy=target, values=values, same=on))[0][0])
    return Hierarchy(attribute, target, draft.height, leaves, top, open_ends, has_population_values), []


def hierarchy_query(
    rules: Sequence[Rule], values: exp.Table, column_type: str, *, engine: Engine | None = None, longest: int = 1
) -> exp.Select:
    """The query that creates a hierarchy's table; reads hierarchy files, but no rows.

    >>> from sqlanon.policy.rules import SuppressRule
    >>> from sqlanon.support.expressions import table
    >>> hierarchy_query([SuppressRule()], table("v"), "VARCHAR").sql("duckdb")
    'SELECT "value" AS "level_0", \\'*\\' AS "level_1" FROM (SELECT "value" AS "value" FROM "v") AS "v"'
    """
    parts, flaws = resolve_rules(rules, column_type, engine, longest)
    if flaws:
        raise HierarchyError(Problem("hierarchy", flaw) for flaw in flaws)
    return _query(HierarchyDraft(tuple(parts), values, column_type))


def _longest(runner: StatementRunner, rules: Sequence[Rule], values: exp.Table) -> int:
    if not any(isinstance(rule, MaskRule) for rule in rules):
        return 1
    return max(1, runner.fetch_rows(longest_text(values=values), [(EXAMPLE_TEXT_LENGTH,)], in_plan=False)[0][0] or 1)


def _messages(engine: Engine, draft: HierarchyDraft, checks: Sequence[HierarchyCheck]) -> list[str]:
    """One message for each check with findings."""
    messages = []
    for index, total in sorted(engine.rows(totals(checks, draft))) if checks else ():
        findings = [Finding(*row) for row in engine.rows(first_findings(checks[index], draft))]
        messages.append(checks[index].message(findings, total))
    return messages


def _query(draft: HierarchyDraft) -> exp.Select:
    first = draft.parts[0]
    if draft.is_list and isinstance(first, ListedLevels):
        return draft.with_keys(_listed_query(first, draft))
    return draft.with_keys(_composed_query(draft))


def _composed_query(draft: HierarchyDraft) -> exp.Select:
    """The values of the column with the labels of each part."""
    query = template("SELECT value AS value FROM :values")(values=draft.values)
    labels: list[exp.Expr] = []
    conditions: list[exp.Expr] = []
    ground: exp.Expr | None = None
    for index, part in enumerate(draft.parts):
        labelled = (
            _join_keys(part, query, index) if isinstance(part, ListedLevels) else part.extend(query, f"p{index}_")
        )
        query = labelled.query
        if labelled.open_end is not None:  # an open end also applies to all levels below
            lower = cast(col("value"), "VARCHAR") if ground is None else ground
            end_or_label = fragment("coalesce(:open_end, :label)")
            ground, *labels = (end_or_label(open_end=labelled.open_end, label=label) for label in (lower, *labels))
        labels += labelled.labels
        conditions += [labelled.known] if labelled.known is not None else []
    last = draft.parts[-1]
    if last.top:
        labels.append(text(TOP))
    elif labels and isinstance(last, ListedLevels):
        null_at_top = fragment("CASE WHEN value IS NULL THEN :top ELSE :label END")
        labels[-1] = null_at_top(top=_listed_top(last, len(draft.parts) - 1), label=labels[-1])
    columns: list[exp.Expr] = _level_columns(col("value"), labels)
    columns += [] if ground is None else [as_column(ground, released_column(0, open_ends=True))]
    composed = template("SELECT :levels FROM :query AS v")(levels=columns, query=query)
    is_known = fragment("value IS NULL OR (:known)")
    return composed.where(is_known(known=all_of(conditions)), copy=False) if conditions else composed


def _level_columns(value: exp.Expr, labels: Sequence[exp.Expr]) -> list[exp.Expr]:
    return [as_column(label, f"level_{level}") for level, label in enumerate([value, *labels])]


def _join_keys(part: ListedLevels, query: exp.Select, index: int) -> LabelledQuery:
    """Join the labels of a listed part to the values."""
    key, names = col(f"p{index}_key"), [f"p{index}_c{level}" for level in range(1, part.levels + 1)]
    columns = [as_column(col("key", "k"), key.name)]
    columns += [as_column(col(f"c{level}", "k"), name) for level, name in enumerate(names, start=1)]
    joined = template("SELECT v.*, :columns FROM :query AS v LEFT JOIN :keys AS k ON v.value = k.key")(
        columns=columns, query=query, keys=keys_table(index)
    )
    return LabelledQuery(joined, tuple(col(name) for name in names), is_not_null(key))


_LISTED = template("SELECT :levels FROM :keys WHERE key IS NOT NULL")
_NULL_ROW = template("SELECT :levels FROM :values WHERE value IS NULL")


def _listed_query(part: ListedLevels, draft: HierarchyDraft) -> exp.Select:
    """All keys of a listed hierarchy, including those that the column lacks, and a row for NULL."""
    labels: list[exp.Expr] = [col(f"c{level}") for level in range(1, part.levels + 1)]
    if part.top:
        labels.append(text(TOP))
    keys = _LISTED(levels=_level_columns(col("key"), labels), keys=keys_table(0))
    if not labels or not draft.nullable:
        return keys
    top = text(TOP) if part.top else _listed_top(part, 0)
    nulls = [*(cast(exp.null(), "VARCHAR") for _ in labels[:-1]), top]
    null_row = _NULL_ROW(levels=_level_columns(col("value"), nulls), values=draft.values)
    return template("SELECT * FROM :rows AS h")(rows=union_all(keys, null_row))


def _listed_top(part: ListedLevels, index: int) -> exp.Expr:
    return fragment("(SELECT max(:label) FROM :keys)")(label=col(f"c{part.levels}"), keys=keys_table(index))
