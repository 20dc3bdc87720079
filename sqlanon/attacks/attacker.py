"""What attacks are made with: releases, the private side that a policy gives, and a writer of the SQL for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.attacks.findings import Finding
from sqlanon.coding import value_counts
from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, Problem, SourceError
from sqlanon.expressions import (
    aliased,
    anonymous,
    cast,
    col,
    create_temporary_table,
    create_temporary_view,
    fragment,
    native_type,
    star,
    subquery,
    table,
    template,
    text,
    union_all,
)
from sqlanon.hierarchies import Hierarchy, build_hierarchy, hierarchy_query
from sqlanon.hierarchies.labels import longest_query
from sqlanon.ledger import is_same_tree
from sqlanon.ledger.release_links import NO_TREES, ComparedRelease, Trees, link, strange_columns
from sqlanon.ledger.row_matching import LinkedAttribute, ReleaseLink
from sqlanon.policy import FileRule, MaskRule, Policy, SourceSection, table_parts
from sqlanon.sources import Source, bind_source, file_kind
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run

SOURCE, OUTSIDE = "source_rows", "outside_rows"
"""The names of the source and of the outside table in the SQL for people."""

_OUTSIDE_VALUES = template("""
    SELECT o.value, 0 AS rows
    FROM (SELECT DISTINCT :value AS value FROM :outside) AS o
    WHERE NOT o.value IS NULL
""")
_IS_UNKNOWN = fragment("NOT EXISTS(SELECT 1 FROM :known AS k WHERE o.value = k.value)")
_FITS = fragment("length(o.value::VARCHAR) <= :longest")
_DISTINCT_VALUES = template("SELECT DISTINCT :value AS value FROM :rows")
_VICTIMS = template("SELECT coalesce(sum(n)::BIGINT, 0) AS victims FROM :found AS v")

Found: TypeAlias = "tuple[list[Finding], list[str]]"
"""What an attack finds; and why it does not apply, or not everywhere."""


class ScriptWriter:
    """Writes queries for people: under names that they can use, after the statements that make these."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[exp.Table, str | None]] = {}
        self._needs: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def need(self, key: str, statements: Iterable[str], after: Iterable[str] = ()) -> None:
        """Statements, by a key; those of other keys come before."""
        self._needs[key] = (tuple(statements), tuple(after))

    def name(self, own: exp.Table, public: exp.Table, need: str | None) -> None:
        """The name for people of a relation of the run, and the key of what makes it."""
        self._names[_key(own)] = (public, need)

    def script(self, *queries: exp.Query) -> str:
        """The queries as anybody who has the files can run them."""
        needed: dict[str, None] = {}

        def renamed(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or _key(node) not in self._names:
                return node
            public, need = self._names[_key(node)]
            if need is not None:
                self._collect(need, needed)
            return aliased(public, node.alias) if node.alias else public.copy()

        texts = [f"{query.transform(renamed).sql('duckdb', pretty=True)};" for query in queries]
        before = [statement for key in needed for statement in self._needs[key][0]]
        return "\n".join([*before, *texts])

    def _collect(self, key: str, needed: dict[str, None]) -> None:
        for other in self._needs[key][1]:
            self._collect(other, needed)
        needed.setdefault(key)


def _key(table: exp.Table) -> str:
    return "\n".join(part.name for part in table.parts) if isinstance(table.this, exp.Identifier) else table.sql()


@dataclass(frozen=True)
class PrivateSide:
    """What the data holder has beside the releases: the source, the hierarchies, perhaps a table from outside."""

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


@dataclass(frozen=True)
class Attacker:
    """What attacks are made with; without ``counts`` no query is run, and all figures are 0."""

    engine: Engine
    subjects: Sequence[ComparedRelease]
    writer: ScriptWriter
    private: PrivateSide | None = None
    known: int = 1
    counts: bool = True

    @property
    def trees(self) -> Trees:
        """The hierarchies that are known."""
        return self.private.trees if self.private is not None else NO_TREES

    @property
    def decoys(self) -> dict[str, int]:
        """The rows of nobody, by the file of each release that has some."""
        return {str(one.path): one.manifest.decoys for one in self.subjects if one.manifest.decoys}

    def script(self, *queries: exp.Query) -> str:
        """The queries for people."""
        return self.writer.script(*queries)

    def figures(self, query: exp.Query) -> dict[str, Any]:
        """The one row of a query, by name."""
        names = query.named_selects
        row = self.engine.rows(query)[0] if self.counts else (0,) * len(names)
        return dict(zip(names, row, strict=True))

    def victims(self, query: exp.Select) -> int:
        """The rows of all victims that a query finds."""
        return int(self.figures(_VICTIMS(found=subquery(query)))["victims"])

    def pairs(self) -> Iterator[tuple[ComparedRelease, ComparedRelease, ReleaseLink]]:
        """All pairs of releases, the earlier first."""
        ordered = sorted(self.subjects, key=lambda one: one.manifest.published_at)
        for first, second in combinations(ordered, 2):
            yield first, second, link(first, second, self.trees)


def why_strange(attacker: Attacker, subject: ComparedRelease, attributes: Sequence[LinkedAttribute]) -> str | None:
    """Why the labels of a release cannot be compared with others; None: they can."""
    names = strange_columns(attacker.engine, subject, attributes) if attacker.counts else []
    if not names:
        return None
    listed = ", ".join(map(repr, names))
    shows = f"{subject.path} shows sets, medians, other values or many ranges of {listed}"
    return f"needs labels that are in the hierarchies: {shows}"


def read_private_side(policy: Policy, run: Run, outside: str | None, writer: ScriptWriter) -> PrivateSide:
    """Bind the outside table, and build the hierarchies over the values of the source and of the outside table."""
    columns = match_columns(policy, run.source)
    steps = StatementRunner(run.engine)
    _write_source(policy.source, run.source, SOURCE, writer, policy)
    theirs = None if outside is None else _bind_outside(policy, run, outside, writer)
    known = {} if theirs is None else {name.lower(): name for name in theirs.columns}
    built: dict[str, Hierarchy] = {}
    problems: list[Problem] = []
    for name, attribute in policy.attributes.items():
        if attribute.hierarchy is None or attribute.role not in ("quasi", "sensitive"):
            continue
        column = columns.by_attribute[name]
        type_ = run.source.columns[column]
        own = value_counts(run.source.relation, column, counted=False)
        number = len(built)
        values = steps.make(run.work(f"attack_values_{number}"), own)
        longest = _longest(run, attribute.hierarchy, values)
        target = run.work(f"attack_hierarchy_{number}")
        hierarchy, found = build_hierarchy(
            steps, name, attribute.hierarchy, values, type_, target, on_unknown="suppress"
        )
        problems += found
        outside_column = known.get(name.lower()) if attribute.role == "quasi" else None
        if hierarchy is not None and theirs is not None and outside_column is not None:
            more = _outside_values(theirs.relation, outside_column, type_, longest, values)
            values = steps.make(run.work(f"attack_both_{number}"), union_all(star(values), more))
            target = run.work(f"attack_hierarchy_of_both_{number}")
            wider, _ = build_hierarchy(steps, name, attribute.hierarchy, values, type_, target, on_unknown="suppress")
            # Who is not in the table may have a value that changes how all labels are written (the digits of 101 in
            # 020-029). Then theirs have no labels, and match nothing.
            if wider is not None and is_same_tree(run.engine, hierarchy, wider):
                hierarchy = wider
            else:
                target, outside_column = hierarchy.table, None
        if hierarchy is not None:
            built[name.lower()] = hierarchy
            _write_hierarchy(name, policy, run, (column, outside_column, type_), longest, target, writer)
    if problems:
        raise HierarchyError(problems)
    rules = {name.lower(): one.get("hierarchy") for name, one in policy.redacted()["attributes"].items()}
    return PrivateSide(policy, run, columns, Trees(built, rules), theirs)


def _longest(run: Run, rules: tuple[object, ...], values: exp.Table) -> int:
    """The longest text, which gives a mask its levels: the source's own, whatever the outside table has."""
    if not any(isinstance(rule, MaskRule) for rule in rules):
        return 0
    return max(1, run.engine.rows(longest_query(values=values))[0][0] or 1)


def _outside_values(rows: exp.Expr, column: str, type_: str, longest: int, known: exp.Expr | None) -> exp.Select:
    """The values that the outside table alone has: ``value`` and ``rows``. What the column cannot hold fits nothing."""
    value = exp.TryCast(this=col(column), to=native_type(type_))
    query = _OUTSIDE_VALUES(value=value, outside=rows)
    if longest:
        query = query.where(_FITS(longest=longest), copy=False)
    return query if known is None else query.where(_IS_UNKNOWN(known=known), copy=False)


def _bind_outside(policy: Policy, run: Run, outside: str, writer: ScriptWriter) -> Source:
    """A file, or a table of the database that the source is in."""
    if file_kind(outside):
        section = SourceSection(files=(str(Path(outside).absolute()),))
    else:
        section = SourceSection(database=policy.source.database, table=outside)
    place = replace(run.place, name=f"{run.place.name}_outside", table=run.work("outside_copy"))
    wanted = frozenset(name.lower() for name in policy.generalized)
    try:
        found = bind_source(run.engine, section, place, _as_text(policy), wanted)
    except SourceError as error:
        raise SourceError(f"--outside {outside}: {error}") from error
    if not wanted & {name.lower() for name in found.columns}:
        raise SourceError(
            f"--outside {outside}: it has no column of a quasi-identifier: {', '.join(policy.generalized)}"
        )
    _write_source(section, found, OUTSIDE, writer, policy)
    return found


def _as_text(policy: Policy) -> frozenset[str]:
    return frozenset(
        name.lower()
        for name, attribute in policy.attributes.items()
        if any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
    )


def _write_source(section: SourceSection, source: Source, name: str, writer: ScriptWriter, policy: Policy) -> None:
    """How people get at the source's rows, or at the outside table's."""
    view = table(name)
    statements: list[str] = []
    after: tuple[str, ...] = ()
    if source.files:
        kind = file_kind(source.files[0].name)
        arguments: list[exp.Expr] = [exp.array(*(text(str(path)) for path in source.files))]
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
            writer.need("source database", [attached, "USE source;"])
            after = ("source database",)
        body = section.query.strip().rstrip(";") if section.query else star(_named_table(section.table)).sql("duckdb")
        statements.append(f"CREATE TEMPORARY VIEW {view.sql('duckdb')} AS {body};")
    writer.need(name, statements, after)
    writer.name(source.relation, view, name)


def _named_table(name: str | None) -> exp.Expr:
    *place, own = table_parts(name or "")
    return table(own, *reversed(place))


def _write_hierarchy(
    name: str,
    policy: Policy,
    run: Run,
    columns: tuple[str, str | None, str],
    longest: int,
    target: exp.Table,
    writer: ScriptWriter,
) -> None:
    """How people build a hierarchy."""
    column, outside, type_ = columns
    values, public = table(f"values_{name}"), table(f"hierarchy_{name}")
    both: exp.Query = _DISTINCT_VALUES(value=cast(col(column), type_), rows=table(SOURCE))
    needs = [SOURCE]
    if outside is not None:
        more = _outside_values(table(OUTSIDE), outside, type_, longest, None)
        more.set("expressions", [col("value", "o")])
        both = exp.union(both, more, distinct=True)
        needs.append(OUTSIDE)
    rules = policy.attributes[name].hierarchy or ()
    query = hierarchy_query(rules, values.copy(), type_, engine=run.engine, longest=longest or 1)
    key = f"hierarchy {name}"
    statements = [create_temporary_table(values, both), create_temporary_table(public, query)]
    writer.need(key, [f"{one.sql('duckdb')};" for one in statements], needs)
    writer.name(target, public, key)
