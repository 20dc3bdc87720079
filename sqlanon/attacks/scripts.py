"""The SQL of attacks for people: queries over files under names that anybody can use, after what makes these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sqlglot import exp

from sqlanon.hierarchies import hierarchy_query
from sqlanon.ledger.joint.release_links import ComparedRelease
from sqlanon.ledger.released_hierarchies import CATALOG_IN_QUERIES
from sqlanon.policy import FileRule, MaskRule, Policy, SourceSection
from sqlanon.sources import Source
from sqlanon.sources.duckdb import parse_table_name
from sqlanon.sources.run import Run
from sqlanon.support.expressions import (
    aliased,
    anonymous,
    cast,
    col,
    create_temporary_table,
    create_temporary_view,
    fragment,
    ident,
    native_type,
    select_star,
    table,
    template,
    text,
)

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

    def name_query(self, own: exp.Table, public: exp.Table, query: exp.Query) -> None:
        """The name for people of a table that a query of other named relations makes."""
        needed: dict[str, None] = {}
        statement = create_temporary_table(public, self._renamed(query, needed))
        self.need(public.name, [f"{statement.sql('duckdb')};"], needed)
        self.name(own, public, public.name)

    def script(self, *queries: exp.Query) -> str:
        """The queries as anybody who has the files can run them."""
        needed: dict[str, None] = {}
        texts = [f"{self._renamed(query, needed).sql('duckdb', pretty=True)};" for query in queries]
        before = [statement for key in needed for statement in self._needs[key][0]]
        return "\n".join([*before, *texts])

    def _renamed(self, query: exp.Query, needed: dict[str, None]) -> exp.Query:
        """A query under names for people; the keys of what makes these are added to ``needed``."""

        def rename(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or _key(node) not in self._names:
                return node
            public, need = self._names[_key(node)]
            if need is not None:
                self._collect(need, needed)
            return aliased(public, node.alias) if node.alias else public.copy()

        renamed = query.transform(rename)
        assert isinstance(renamed, exp.Query)
        return renamed

    def _collect(self, key: str, needed: dict[str, None]) -> None:
        for other in self._needs[key][1]:
            self._collect(other, needed)
        needed.setdefault(key)


def _key(table: exp.Table) -> str:
    return "\n".join(part.name for part in table.parts) if isinstance(table.this, exp.Identifier) else table.sql()


def outside_values(rows: exp.Expr, column: str, type_: str, longest: int, known: exp.Expr | None) -> exp.Select:
    """The values that the outside table alone has: ``value`` and ``rows``. What the column cannot hold fits nothing."""
    value = exp.TryCast(this=col(column), to=native_type(type_))
    query = _OUTSIDE_VALUES(value=value, outside=rows)
    if longest:
        query = query.where(_FITS(longest=longest), copy=False)
    return query if known is None else query.where(_IS_UNKNOWN(known=known), copy=False)


def as_text(policy: Policy) -> frozenset[str]:
    """The columns, in lower case, that are read as text from files."""
    return frozenset(
        name.lower()
        for name, attribute in policy.attributes.items()
        if any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
    )


def write_source(section: SourceSection, source: Source, name: str, writer: ScriptWriter) -> None:
    """How people get at the source's rows, or at the outside table's."""
    view = table(name)
    statements: list[str] = []
    after: tuple[str, ...] = ()
    if source.scan is not None:
        statements.append(f"{create_temporary_view(view, select_star(source.scan)).sql('duckdb')};")
    else:
        if section.database is not None:
            attached = f"ATTACH {text(str(section.database)).sql('duckdb')} AS source (READ_ONLY);"
            writer.need("source database", [attached, "USE source;"])
            after = ("source database",)
        body = (
            section.query.strip().rstrip(";")
            if section.query
            else select_star(parse_table_name(section.table or "")).sql("duckdb")
        )
        statements.append(f"CREATE TEMPORARY VIEW {view.sql('duckdb')} AS {body};")
    writer.need(name, statements, after)
    writer.name(source.relation, view, name)


def write_hierarchy(
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
        more = outside_values(table(OUTSIDE), outside, type_, longest, None)
        more.set("expressions", [col("value", "o")])
        both = exp.union(both, more, distinct=True)
        needs.append(OUTSIDE)
    rules = policy.attributes[name].hierarchy or ()
    query = hierarchy_query(rules, values.copy(), type_, engine=run.engine, longest=longest or 1)
    key = f"hierarchy {name}"
    statements = [create_temporary_table(values, both), create_temporary_table(public, query)]
    writer.need(key, [f"{one.sql('duckdb')};" for one in statements], needs)
    writer.name(target, public, key)


def write_catalog(writer: ScriptWriter, path: Path) -> None:
    """How people get at the hierarchies of a catalog."""
    attached = f"ATTACH {text(str(path)).sql('duckdb')} AS {CATALOG_IN_QUERIES} (READ_ONLY);"
    writer.need(CATALOG_IN_QUERIES, [attached])


def write_release(writer: ScriptWriter, subject: ComparedRelease, alias: str) -> None:
    """How people get at the rows of a release."""
    path = text(str(subject.path))
    assert isinstance(subject.relation, exp.Table)  # as it was attached
    if subject.path.suffix.lower() == ".parquet":
        writer.name(subject.relation, exp.Table(this=anonymous("read_parquet", path)), None)
        return
    writer.need(alias, [f"ATTACH {path.sql('duckdb')} AS {ident(alias).sql('duckdb')} (READ_ONLY);"])
    writer.name(subject.relation, table(subject.manifest.table_name, "main", alias), alias)
