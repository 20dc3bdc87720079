"""What the data holder has beside the releases: the source, the hierarchies, a table from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot import exp

from sqlanon.attacks.shown import Shown
from sqlanon.coding import value_counts
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, Problem, SourceError
from sqlanon.expressions import (
    anonymous,
    cast,
    col,
    create_table,
    create_temporary_view,
    is_there,
    named,
    native_type,
    number,
    select,
    star,
    subquery,
    table,
    text,
    union_all,
)
from sqlanon.hierarchies import Hierarchy, build_hierarchy, hierarchy_query
from sqlanon.hierarchies.labels import longest_query
from sqlanon.ledger import is_same_tree
from sqlanon.ledger.side_by_side import Trees
from sqlanon.policy import FileRule, MaskRule, Policy, SourceSection, table_parts
from sqlanon.sources import Source, bind_source, file_kind
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run

SOURCE, OUTSIDE = "source_rows", "outside_rows"
"""What the source and the outside table are called in the SQL that is shown."""


@dataclass(frozen=True)
class Private:
    """What the data holder has.

    Attributes
    ----------
    policy, run, columns:
        The policy, its run, and what the source's columns are to it.
    trees:
        The hierarchies of the quasi-identifiers, and of the sensitive attributes that have one.
    outside:
        The outside table, if one is given.
    """

    policy: Policy
    run: Run
    columns: Columns
    trees: Trees
    outside: Source | None

    @property
    def tables(self) -> Mapping[str, exp.Expr]:
        """The tables of the hierarchies, by attribute in lower case."""
        return {name: one.table for name, one in self.trees.hierarchies.items()}

    @property
    def heights(self) -> dict[str, int]:
        """Their heights, by attribute in lower case."""
        return {name: one.height for name, one in self.trees.hierarchies.items()}


def read_private(policy: Policy, run: Run, outside: str | None, shown: Shown) -> Private:
    """Bind the outside table, and build the hierarchies over the values of the source and of the outside table."""
    columns = match_columns(policy, run.source)
    steps = StatementRunner(run.engine)
    _show_source(policy.source, run.source, SOURCE, shown, policy)
    theirs = None if outside is None else _bind_outside(policy, run, outside, shown)
    known = {} if theirs is None else {name.lower(): name for name in theirs.columns}
    built: dict[str, Hierarchy] = {}
    problems: list[Problem] = []
    for name, attribute in policy.attributes.items():
        if attribute.hierarchy is None or attribute.role not in ("quasi", "sensitive"):
            continue
        column = columns.by_attribute[name]
        type_ = run.source.columns[column]
        own = value_counts(run.source.relation, column, counted=False)
        number_ = len(built)
        values = steps.make(run.work(f"attack_values_{number_}"), own)
        longest = _longest(run, attribute.hierarchy, values)
        target = run.work(f"attack_hierarchy_{number_}")
        hierarchy, found = build_hierarchy(
            run.engine, name, attribute.hierarchy, values, type_, target, on_unknown="suppress"
        )
        problems += found
        outside_column = known.get(name.lower()) if attribute.role == "quasi" else None
        if hierarchy is not None and theirs is not None and outside_column is not None:
            more = _outside_values(theirs.relation, outside_column, type_, longest, values)
            values = steps.make(run.work(f"attack_both_{number_}"), union_all(star(values), more))
            target = run.work(f"attack_hierarchy_of_both_{number_}")
            wider, _ = build_hierarchy(
                run.engine, name, attribute.hierarchy, values, type_, target, on_unknown="suppress"
            )
            # Who is not in the table may have a value that changes how all labels are written (the digits of 101 in
            # 020-029). Then theirs have no labels, and match nothing.
            if wider is not None and is_same_tree(run.engine, hierarchy, wider):
                hierarchy = wider
            else:
                target, outside_column = hierarchy.table, None
        if hierarchy is not None:
            built[name.lower()] = hierarchy
            _show_hierarchy(name, policy, run, (column, outside_column, type_), longest, target, shown)
    if problems:
        raise HierarchyError(problems)
    rules = {name.lower(): one.get("hierarchy") for name, one in policy.redacted()["attributes"].items()}
    return Private(policy, run, columns, Trees(built, rules), theirs)


def _longest(run: Run, rules: tuple[object, ...], values: exp.Table) -> int:
    """The longest text, which gives a mask its levels: the source's own, whatever the outside table has."""
    if not any(isinstance(rule, MaskRule) for rule in rules):
        return 0
    return max(1, run.engine.rows(longest_query(values))[0][0] or 1)


def _outside_values(rows: exp.Expr, column: str, type_: str, longest: int, known: exp.Expr | None) -> exp.Select:
    """The values that the outside table alone has: ``value`` and ``rows``. What the column cannot hold fits nothing."""
    value = exp.TryCast(this=col(column), to=native_type(type_))
    distinct = exp.Select(expressions=[named(value, "value")], distinct=exp.Distinct()).from_(rows.copy())
    query = select([col("value", "o"), named(number(0), "rows")], subquery(distinct, "o"))
    conditions: list[exp.Expr] = [is_there(col("value", "o"))]
    if longest:
        length = anonymous("length", cast(col("value", "o"), "VARCHAR"))
        conditions.append(length <= number(longest))
    if known is not None:
        same = col("value", "o").eq(col("value", "k"))
        there = select([number(1)], exp.alias_(known.copy(), "k", table=True)).where(same)
        conditions.append(~exp.Exists(this=there))
    return query.where(*conditions, copy=False)


def _bind_outside(policy: Policy, run: Run, outside: str, shown: Shown) -> Source:
    """A file, or a table of the database that the source is in."""
    if file_kind(outside):
        section = SourceSection(files=(str(Path(outside).absolute()),))
    else:
        section = SourceSection(database=policy.source.database, table=outside)
    place = replace(run.place, name=f"{run.place.name}_outside", table=run.work("outside_copy"))
    wanted = frozenset(name.lower() for name in policy.generalized)
    as_text = _as_text(policy)
    try:
        found = bind_source(run.engine, section, place, None, as_text, wanted)
    except SourceError as error:
        raise SourceError(f"--outside {outside}: {error}") from error
    if not wanted & {name.lower() for name in found.columns}:
        raise SourceError(
            f"--outside {outside}: it has no column of a quasi-identifier: {', '.join(policy.generalized)}"
        )
    _show_source(section, found, OUTSIDE, shown, policy)
    return found


def _as_text(policy: Policy) -> frozenset[str]:
    return frozenset(
        name.lower()
        for name, attribute in policy.attributes.items()
        if any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
    )


def _show_source(section: SourceSection, source: Source, name: str, shown: Shown, policy: Policy) -> None:
    """How people get at the source's rows, or at the outside table's."""
    view = table(name)
    statements: list[str] = []
    after: tuple[str, ...] = ()
    if source.files:
        kind = file_kind(source.files[0].name)
        files = exp.Array(expressions=[text(str(path)) for path in source.files])
        arguments: list[exp.Expr] = [files]
        if kind == "csv":
            texts = _as_text(policy)
            types = [
                exp.PropertyEQ(this=exp.to_identifier(column, quoted=True), expression=text("VARCHAR"))
                for column in source.columns
                if column.lower() in texts
            ]
            if types:
                arguments.append(exp.Var(this="types").eq(exp.Struct(expressions=types)))
        relation: exp.Expr = exp.Table(this=anonymous(f"read_{kind}", *arguments))
        statements.append(f"{create_temporary_view(view, star(relation)).sql('duckdb')};")
    else:
        if section.database is not None:
            attached = f"ATTACH {text(str(section.database)).sql('duckdb')} AS source (READ_ONLY);"
            shown.need("source database", [attached, "USE source;"])
            after = ("source database",)
        body = section.query.strip().rstrip(";") if section.query else star(_named_table(section.table)).sql("duckdb")
        statements.append(f"CREATE TEMPORARY VIEW {view.sql('duckdb')} AS {body};")
    shown.need(name, statements, after)
    shown.name(source.relation, view, name)


def _named_table(name: str | None) -> exp.Expr:
    *place, own = table_parts(name or "")
    return table(own, *reversed(place))


def _show_hierarchy(
    name: str,
    policy: Policy,
    run: Run,
    columns: tuple[str, str | None, str],
    longest: int,
    target: exp.Table,
    shown: Shown,
) -> None:
    """How people make a hierarchy."""
    column, outside, type_ = columns
    values, made = table(f"values_{name}"), table(f"hierarchy_{name}")
    own = exp.Select(expressions=[named(cast(col(column), type_), "value")], distinct=exp.Distinct())
    both: exp.Query = own.from_(table(SOURCE), copy=False)
    needs = [SOURCE]
    if outside is not None:
        more = _outside_values(table(OUTSIDE), outside, type_, longest, None)
        more.set("expressions", [col("value", "o")])
        both = exp.union(both, more, distinct=True)
        needs.append(OUTSIDE)
    rules = policy.attributes[name].hierarchy or ()
    query = hierarchy_query(rules, values.copy(), type_, engine=run.engine, longest=longest or 1)
    statements = [create_table(values, both), create_table(made, query)]
    key = f"hierarchy {name}"
    shown.need(key, [_temporary(one) for one in statements], needs)
    shown.name(target, made, key)


def _temporary(statement: exp.Create) -> str:
    statement.set("properties", exp.Properties(expressions=[exp.TemporaryProperty()]))
    return f"{statement.sql('duckdb')};"
