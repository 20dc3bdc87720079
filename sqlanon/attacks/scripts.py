"""The SQL of attacks for people: queries over files under plain names, after the statements that create these names."""

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
"""The names of the source and of the outside table in these scripts."""


class ScriptWriter:
    """Writes queries under public names of relations, after the statements that create them."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[exp.Table, str | None]] = {}
        self._setups: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def add_setup(self, key: str, statements: Iterable[str], after: Iterable[str] = ()) -> None:
        """Add statements by a key; the statements of the keys in ``after`` come first."""
        self._setups[key] = (tuple(statements), tuple(after))

    def name_relation(self, relation: exp.Table, public: exp.Table, setup: str | None) -> None:
        """Set the public name of a relation of the run, and the key of the statements that create it."""
        self._names[_key(relation)] = (public, setup)

    def name_query(self, relation: exp.Table, public: exp.Table, query: exp.Query) -> None:
        """Set the public name of a table that is created from a query of other named relations."""
        setups: dict[str, None] = {}
        statement = create_temporary_table(public, self._rename(query, setups))
        self.add_setup(public.name, [f"{statement.sql('duckdb')};"], setups)
        self.name_relation(relation, public, public.name)

    def write(self, *queries: exp.Query) -> str:
        """The queries as a script that runs wherever the files are."""
        setups: dict[str, None] = {}
        texts = [f"{self._rename(query, setups).sql('duckdb', pretty=True)};" for query in queries]
        statements = [statement for key in setups for statement in self._setups[key][0]]
        return "\n".join([*statements, *texts])

    def _rename(self, query: exp.Query, setups: dict[str, None]) -> exp.Query:
        """A query under public names; adds the keys of the statements that create these."""

        def rename(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or _key(node) not in self._names:
                return node
            public, setup = self._names[_key(node)]
            if setup is not None:
                self._collect(setup, setups)
            return aliased(public, node.alias) if node.alias else public.copy()

        renamed = query.transform(rename)
        assert isinstance(renamed, exp.Query)
        return renamed

    def _collect(self, key: str, setups: dict[str, None]) -> None:
        for earlier in self._setups[key][1]:
            self._collect(earlier, setups)
        setups.setdefault(key)


def _key(table: exp.Table) -> str:
    return "\n".join(part.name for part in table.parts) if isinstance(table.this, exp.Identifier) else table.sql()


def outside_values(rows: exp.Expr, column: str, type_: str, longest: int, source_values: exp.Expr | None) -> exp.Select:
    """The ``value`` and ``rows`` of values that only the outside table has, as far as the column can hold them."""
    query = template("""
        SELECT o.value, 0 AS rows
        FROM (SELECT DISTINCT :value AS value FROM :outside) AS o
        WHERE NOT o.value IS NULL
    """)(value=exp.TryCast(this=col(column), to=native_type(type_)), outside=rows)
    if longest:
        query = query.where(fragment("length(o.value::VARCHAR) <= :longest")(longest=longest), copy=False)
    if source_values is None:
        return query
    is_unknown = fragment("NOT EXISTS(SELECT 1 FROM :source_values AS k WHERE o.value = k.value)")(
        source_values=source_values
    )
    return query.where(is_unknown, copy=False)


def text_columns(policy: Policy) -> frozenset[str]:
    """The columns, in lower case, that are read as text from files."""
    return frozenset(
        name.lower()
        for name, attribute in policy.attributes.items()
        if any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
    )


def write_source(section: SourceSection, source: Source, name: str, writer: ScriptWriter) -> None:
    """Name the rows of the source, or of the outside table."""
    view = table(name)
    after: tuple[str, ...] = ()
    if source.scan is not None:
        statement = create_temporary_view(view, select_star(source.scan)).sql("duckdb")
    else:
        if section.database is not None:
            attach = f"ATTACH {text(str(section.database)).sql('duckdb')} AS source (READ_ONLY);"
            after = ("source database",)
            writer.add_setup(after[0], [attach, "USE source;"])
        query = (section.query or "").strip().rstrip(";")
        query = query or select_star(parse_table_name(section.table or "")).sql("duckdb")
        statement = f"CREATE TEMPORARY VIEW {view.sql('duckdb')} AS {query}"
    writer.add_setup(name, [f"{statement};"], after)
    writer.name_relation(source.relation, view, name)


def write_hierarchy(
    name: str,
    policy: Policy,
    run: Run,
    columns: tuple[str, str | None, str],
    longest: int,
    target: exp.Table,
    writer: ScriptWriter,
) -> None:
    """Name a hierarchy over the values of the source and of the outside table; ``columns`` are theirs, and the type."""
    column, outside, type_ = columns
    values, public = table(f"values_{name}"), table(f"hierarchy_{name}")
    value_query: exp.Query = template("SELECT DISTINCT :value AS value FROM :rows")(
        value=cast(col(column), type_), rows=table(SOURCE)
    )
    if outside is not None:
        more = outside_values(table(OUTSIDE), outside, type_, longest, None)
        more.set("expressions", [col("value", "o")])
        value_query = exp.union(value_query, more, distinct=True)
    rules = policy.attributes[name].hierarchy or ()
    query = hierarchy_query(rules, values.copy(), type_, engine=run.engine, longest=longest or 1)
    statements = [create_temporary_table(values, value_query), create_temporary_table(public, query)]
    after = [SOURCE] if outside is None else [SOURCE, OUTSIDE]
    writer.add_setup(f"hierarchy {name}", [f"{statement.sql('duckdb')};" for statement in statements], after)
    writer.name_relation(target, public, f"hierarchy {name}")


def write_catalog(writer: ScriptWriter, path: Path) -> None:
    """Attach the catalog with its recorded hierarchies."""
    attach = f"ATTACH {text(str(path)).sql('duckdb')} AS {CATALOG_IN_QUERIES} (READ_ONLY);"
    writer.add_setup(CATALOG_IN_QUERIES, [attach])


def write_release(writer: ScriptWriter, release: ComparedRelease, alias: str) -> None:
    """Name the rows of a release."""
    path = text(str(release.path))
    assert isinstance(release.relation, exp.Table)
    if release.path.suffix.lower() == ".parquet":
        writer.name_relation(release.relation, exp.Table(this=anonymous("read_parquet", path)), None)
        return
    writer.add_setup(alias, [f"ATTACH {path.sql('duckdb')} AS {ident(alias).sql('duckdb')} (READ_ONLY);"])
    writer.name_relation(release.relation, table(release.manifest.table_name, "main", alias), alias)
