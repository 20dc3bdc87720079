"""The statements that a warehouse runs, in its dialect: the frequency set, the release, the audit.

The audit reads the released rows, whatever search found them. Each of its queries returns the classes that break a
requirement, with their figures, and no row if it holds. NULL counts as a separate value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlanon.engines.dialects.qualified import QualifiedDuckDB, qualify_functions
from sqlanon.engines.dialects.translation import translate_query
from sqlanon.engines.dialects.variables import without_variables
from sqlanon.engines.dialects.warehouses import WAREHOUSES
from sqlanon.engines.values import FLOATING_TYPES, canonical_float, canonical_value
from sqlanon.errors import PolicyError, Problem, SourceError
from sqlanon.policy import Policy
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.requirements import bind_conditions, examined_sensitive_attributes
from sqlanon.requirements.plain_sql import WarehouseRelease, class_sizes
from sqlanon.sources.frequency_set import COUNT_COLUMN
from sqlanon.support.coding import SOURCE_ALIAS
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    create_table,
    ident,
    is_not_null,
    number,
    select,
    subquery,
    table,
    template,
    text,
    unused_name,
)
from sqlanon.support.names import table_parts

TEXTS = "label_0"
"""The column of an uploaded table with its values as text, or as the open ends that they lie beyond."""

_FIGURES = template("""
    SELECT
        coalesce(sum(row_count)::BIGINT, 0) AS released_rows,
        count(*) AS classes,
        coalesce(min(row_count), 0) AS smallest_class
    FROM :classes
""")


def insert_query(statement: exp.Expr, placeholder: str, query: str) -> exp.Expr:
    """Put the data holder's query, unchanged, in place of a table; it may end with a comment."""
    for relation in list(statement.find_all(exp.Table)):
        if relation.name == placeholder:
            relation.set("this", exp.Var(this=f"({query.strip().rstrip(';')}\n)"))
    return statement


def canonicalize_values(statement: exp.Expr, dialect: str, types: Mapping[str, str]) -> exp.Expr:
    """Read values of the source in a translated statement as readers see them: one NaN, no -0.0, and texts by their
    characters, whatever the type or collation of their column considers equal.

    >>> query = select([as_column(col("x", "s"), "value_0")], exp.to_table("t", alias="s"))
    >>> print(canonicalize_values(query, "trino", {"x": "DOUBLE"}).sql("trino", pretty=True))
    SELECT
      CASE
        WHEN IS_NAN("s"."x")
        THEN CAST('NaN' AS DOUBLE)
        ELSE CAST("s"."x" + 0 AS DOUBLE)
      END AS "value_0"
    FROM t AS s
    """
    for alias in list(statement.find_all(exp.Alias)):
        value = alias.this
        if isinstance(value, exp.Column) and value.table == SOURCE_ALIAS and types.get(value.name) in FLOATING_TYPES:
            alias.set("this", _canonical_float(value, dialect, types[value.name]))
    if WAREHOUSES[dialect].as_text is not None:
        texts = {name for name, type_ in types.items() if type_ not in FLOATING_TYPES}
        for column in list(statement.find_all(exp.Column)):
            if column.table == SOURCE_ALIAS and column.name in texts:
                value = column.copy()
                is_text = exp.If(this=is_not_null(value.copy()), true=_as_text(value, dialect))
                column.replace(exp.Case(ifs=[is_text]))
    return statement


def group_by_text(counts: exp.Select, dialect: str) -> exp.Select:
    """Group a translated frequency set by texts, too: equal enumerations or texts without case may read differently.

    The rows of one combination are added up when they are read.

    >>> query = select([col("x")], exp.to_table("t"), [col("x")])
    >>> print(group_by_text(query, "postgres").sql("postgres"))
    SELECT "x" FROM t GROUP BY "x", CONCAT("x") COLLATE "pg_catalog"."C"
    """
    if WAREHOUSES[dialect].as_text is not None:
        group = counts.args["group"]
        texts = [_as_text(value.copy(), dialect) for value in group.expressions]
        group.set("expressions", [*group.expressions, *texts])
    return counts


def _as_text(value: exp.Expr, dialect: str) -> exp.Expr:
    return exp.Collate(this=anonymous(WAREHOUSES[dialect].as_text or "", value), expression=col("C", "pg_catalog"))


def _canonical_float(value: exp.Column, dialect: str, type_: str) -> exp.Expr:
    if dialect == "duckdb":
        return canonical_value(value, type_)
    warehouse = WAREHOUSES[dialect]
    native = warehouse.floats.get(type_, type_)
    if name := warehouse.is_nan:
        return canonical_float(value, native, anonymous(name, value))
    return canonical_float(value, native, exp.EQ(this=value, expression=cast(text("NaN"), native)))


def create_release(target: exp.Table, rows: exp.Select) -> exp.Create:
    """``CREATE TABLE target AS``, in random order: otherwise rows could be matched to the source by their position.

    The outermost query is sorted, because warehouses do not keep the order of an inner one.
    """
    released = select([col(name) for name in rows.named_selects], subquery(rows, "released"))
    return create_table(target, released.order_by(exp.Rand(), copy=False))


def write_parquet(query: exp.Query, path: str) -> exp.Copy:
    """``COPY (query) TO path`` as Parquet, for DuckDB."""
    parquet = exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET"))
    return exp.Copy(this=exp.Subquery(this=query), kind=False, files=[text(path)], params=[parquet])


def select_uploaded(relation: exp.Table, columns: Sequence[str], open_ends: bool = False) -> exp.Select:
    """Columns of an intermediate table for a warehouse: codes as a type that all dialects have, and values as text,
    which every warehouse would write differently."""

    def value(name: str) -> exp.Expr:
        if name == TEXTS and not open_ends:
            return cast(col("value"), "VARCHAR")
        return cast(col(name), "INTEGER") if name.startswith("code_") else col(name)

    return select([as_column(value(name), name) for name in columns], relation.copy())


def release_figures(release: exp.Table, quasi: Sequence[str]) -> exp.Select:
    """One row: ``released_rows``, ``classes`` and ``smallest_class`` of the release."""
    return _FIGURES(classes=class_sizes(release, quasi))


def unexpected_figures(figures: exp.Select, expected: Mapping[str, int]) -> exp.Select:
    """The row of figures, unless it is as expected."""
    differs = exp.or_(*(exp.NEQ(this=col(name), expression=number(n)) for name, n in expected.items()), copy=False)
    query = template("SELECT :columns FROM :figures AS figures WHERE :differs")
    return query(columns=[col(name) for name in figures.named_selects], figures=figures, differs=differs)


def count_source_rows(relation: exp.Table) -> exp.Select:
    return template("SELECT count(*) AS source_rows FROM :source")(source=relation)


def count_distinct_values(release: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: the rows of the release, and the number of distinct values of each column."""
    counts = [as_column(exp.Count(this=exp.Distinct(expressions=[col(name)])), name) for name in columns]
    query = template("SELECT count(*) AS :rows, :counts FROM :release")
    return query(rows=ident(unused_name("released_rows", columns)), counts=counts, release=release)


DIALECTS = tuple(WAREHOUSES)

SUPPRESSED = "sqlanon_suppressed"
"""The uploaded table of suppressed classes."""

_SOURCE_QUERY = "sqlanon_source_query"
"""The placeholder for the data holder's query."""


def check_dialect(name: str) -> str:
    if name.lower() not in DIALECTS:
        raise PolicyError([Problem("dialect", f"must be one of {', '.join(DIALECTS)}, not {name!r}")], "the arguments")
    return name.lower()


@dataclass(frozen=True)
class WarehouseTarget:
    """The source table of a policy in a warehouse, and the table of its release.

    ``frequency_columns`` are those of the frequency set, and ``count`` is its column of counts. ``query`` is the data
    holder's, if it replaces the table. ``types`` are the known types of source columns.
    """

    source: exp.Table
    release: exp.Table
    frequency_columns: tuple[str, ...]
    count: str
    query: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_draft(cls, draft: ReleaseDraft) -> WarehouseTarget:
        return replace(cls.from_policy(draft.search_input.policy), types=draft.search_input.source.columns)

    @classmethod
    def from_policy(cls, policy: Policy) -> WarehouseTarget:
        section = policy.source
        source = table_parts(section.table) if section.table else ()
        if section.query is None and not source:
            raise SourceError(
                "source: names no table of a warehouse: add table = ..., as table, schema.table or "
                "database.schema.table, or query = ..."
            )
        release = table_parts(policy.release.table) if policy.release else ()
        if not release or (not section.frequency_set and release == source[-1:]):  # the default is the source's name
            release = ("release",)
        relation = table(*reversed(source)) if section.query is None else table(_SOURCE_QUERY, alias="source")
        sensitive = examined_sensitive_attributes(policy.privacy, policy.attributes_with_role("sensitive"))
        frequency_columns = tuple(dict.fromkeys((*policy.generalized_attributes, *sensitive)))
        count = unused_name(COUNT_COLUMN, policy.attributes)
        return cls(relation, table(*reversed(release)), frequency_columns, count, section.query)

    def text(self, query: exp.Select, dialect: str) -> str:
        return self._text(translate_query(query, dialect), dialect)

    def frequency_set_text(self, names: Mapping[str, str], dialect: str) -> str:
        columns = [names[name] for name in self.frequency_columns]
        query = template("SELECT :named, count(*) AS :count FROM :source GROUP BY :columns")(
            named=[as_column(col(name), name) for name in columns],
            count=ident(self.count),
            source=self.source,
            columns=[col(name) for name in columns],
        )
        counts = translate_query(query, dialect)
        assert isinstance(counts, exp.Select)
        return self._text(group_by_text(counts, dialect), dialect)

    def release_text(self, recoding: FullDomainRecoding, dialect: str) -> str:
        rows = translate_query(read_remotely(recoding, self.source).select(shuffled=False), dialect)
        assert isinstance(rows, exp.Select)
        return self._text(create_release(self.release.copy(), rows), dialect)

    def different_rows(self, recoding: FullDomainRecoding) -> exp.Select:
        """The rows that the release has more or less often than its statement returns them."""
        statement = read_remotely(recoding, self.source).select(shuffled=False)
        columns = statement.named_selects
        figures = ("in_statement", "in_release", "rows_of_statement", "rows_of_release")
        names = {name: ident(unused_name(name, columns)) for name in figures}
        values = [col(name) for name in columns]
        # GROUP BY compares rows: NULL equals NULL and NaN equals NaN in every dialect.
        return template("""
            SELECT :columns, sum(:in_statement) AS :rows_of_statement, sum(:in_release) AS :rows_of_release
            FROM (
                SELECT :columns, 1 AS :in_statement, 0 AS :in_release FROM :statement AS statement
                UNION ALL
                SELECT :columns, 0 AS :in_statement, 1 AS :in_release FROM :release
            ) AS compared
            GROUP BY :columns
            HAVING sum(:in_statement) <> sum(:in_release)
        """)(columns=values, statement=statement, release=self.release, **names)

    def _text(self, statement: exp.Expr, dialect: str) -> str:
        rewritten = {"VARCHAR", *FLOATING_TYPES} if WAREHOUSES[dialect].as_text is not None else FLOATING_TYPES
        types = {name: type_ for name, type_ in self.types.items() if type_ in rewritten}
        statement = without_variables(canonicalize_values(statement, dialect, types), dialect)
        if WAREHOUSES[dialect].full_names:
            statement = qualify_functions(statement)
        if self.query is not None:
            statement = insert_query(statement, _SOURCE_QUERY, self.query)
        return statement.sql(QualifiedDuckDB if dialect == "duckdb" else dialect, pretty=True)


def name_value_tables(columns: Sequence[str]) -> list[str]:
    """The names of the uploaded tables with the values and labels of each quasi-identifier.

    >>> name_value_tables(["zip", "Date of birth", "ß"])
    ['sqlanon_0_zip', 'sqlanon_1_date_of_birth', 'sqlanon_2']
    """
    plain = (re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:30] for name in columns)
    return [f"sqlanon_{i}_{name}".rstrip("_") for i, name in enumerate(plain)]


def read_remotely(recoding: FullDomainRecoding, source: exp.Table) -> FullDomainRecoding:
    """A recoding that reads uploaded tables."""
    names = name_value_tables([attribute.column for attribute in recoding.attributes])
    return replace(
        recoding,
        source=source.copy(),
        attributes=tuple(
            replace(attribute, table=table(name), texts=TEXTS)
            for attribute, name in zip(recoding.attributes, names, strict=True)
        ),
        suppressed=None if recoding.suppressed is None else table(SUPPRESSED),
    )


def setup_statements(dialect: str) -> tuple[str, ...]:
    return (*WAREHOUSES[dialect].settings, *WAREHOUSES[dialect].before)


@dataclass(frozen=True)
class WarehouseAudit:
    """The audit of a release in a warehouse: a query of violations by requirement, and the requirements that plain SQL
    over the release cannot verify."""

    violations: tuple[tuple[str, exp.Select], ...]
    not_in_sql: tuple[str, ...]


def audit_queries(policy: Policy, target: WarehouseTarget, names: Mapping[str, str]) -> WarehouseAudit:
    quasi = [names[name] for name in policy.generalized_attributes]
    sensitive = [names[name] for name in policy.attributes_with_role("sensitive")]
    release = WarehouseRelease(target.release, target.source, quasi, sensitive, names)
    bound = bind_conditions(policy.privacy, policy.generalized_attributes)
    queries = [(condition.name, requirement.violations(release)) for requirement, condition in bound]
    violations = tuple((name, query) for name, query in queries if query is not None)
    return WarehouseAudit(violations, tuple(name for name, query in queries if query is None))


def release_sql(draft: ReleaseDraft, dialect: str) -> str:
    """The statement that makes a release."""
    recoding = draft.statement
    assert isinstance(recoding, FullDomainRecoding)  # other strategies are refused for warehouses
    return WarehouseTarget.from_draft(draft).release_text(recoding, check_dialect(dialect))
