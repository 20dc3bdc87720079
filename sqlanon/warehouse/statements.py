"""The statements that a warehouse runs, in its own dialect: the frequency set, the release, the audit.

The audit asks the released rows, and knows nothing of how they were found. Each of its queries returns the classes that
break a requirement, with the figure that does: none, if it holds. NULL is a value of its own.
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
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.release.draft import ReleaseDraft
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
"""The column of an uploaded table that has its values as text, or as the open ends that they lie beyond."""

_FREQUENCY_SET = template("SELECT :named, count(*) AS :count FROM :source GROUP BY :columns")
_FIGURES = template("""
    SELECT
        coalesce(sum(n)::BIGINT, 0) AS released_rows,
        count(*) AS classes,
        coalesce(min(n), 0) AS smallest_class
    FROM :classes
""")
_OTHER_FIGURES = template("SELECT :columns FROM :found AS figures WHERE :unlike")
# Rows are compared by GROUP BY: NULL equals NULL there and NaN equals NaN, in every dialect.
_OTHER_ROWS = template("""
    SELECT :columns, sum(:made) AS :rows_of_statement, sum(:found) AS :rows_of_release
    FROM (
        SELECT :columns, 1 AS :made, 0 AS :found FROM :statement AS statement
        UNION ALL
        SELECT :columns, 0 AS :made, 1 AS :found FROM :release
    ) AS "both"
    GROUP BY :columns
    HAVING sum(:made) <> sum(:found)
""")
_SOURCE_ROWS = template("SELECT count(*) AS source_rows FROM :source")
_DISTINCT_VALUES = template("SELECT count(*) AS :rows, :counts FROM :release")


def with_own_query(statement: exp.Expr, stand_in: str, query: str) -> exp.Expr:
    """A statement with the holder's own query, as it stands, in place of a table; a comment may end it."""
    for found in list(statement.find_all(exp.Table)):
        if found.name == stand_in:
            found.set("this", exp.Var(this=f"({query.strip().rstrip(';')}\n)"))
    return statement


def with_one_form(statement: exp.Expr, dialect: str, types: Mapping[str, str]) -> exp.Expr:
    """A translated statement that reads values of the source in the form that its reader sees: one NaN, no -0.0, and
    texts as they are written, whatever the type or collation of their column takes for equal.

    >>> query = select([as_column(col("x", "s"), "value_0")], exp.to_table("t", alias="s"))
    >>> print(with_one_form(query, "trino", {"x": "DOUBLE"}).sql("trino", pretty=True))
    SELECT
      CASE
        WHEN IS_NAN("s"."x")
        THEN CAST('NaN' AS DOUBLE)
        ELSE CAST("s"."x" + 0 AS DOUBLE)
      END AS "value_0"
    FROM t AS s
    """
    for found in list(statement.find_all(exp.Alias)):
        value = found.this
        if isinstance(value, exp.Column) and value.table == SOURCE_ALIAS and types.get(value.name) in FLOATING_TYPES:
            found.set("this", _one_form(value, dialect, types[value.name]))
    if WAREHOUSES[dialect].as_text is not None:
        texts = {name for name, type_ in types.items() if type_ not in FLOATING_TYPES}
        for column in list(statement.find_all(exp.Column)):
            if column.table == SOURCE_ALIAS and column.name in texts:
                column.replace(_text_or_null(column.copy(), dialect))
    return statement


def _text_or_null(value: exp.Expr, dialect: str) -> exp.Case:
    is_there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))
    return exp.Case(ifs=[exp.If(this=is_there, true=_as_text(value, dialect))])


def by_text_too(counted: exp.Select, dialect: str) -> exp.Select:
    """A translated frequency set that tells apart what reads differently: enumerations, and texts without case.

    A combination may have several rows then, which are added up when they are read.

    >>> query = select([col("x")], exp.to_table("t"), [col("x")])
    >>> print(by_text_too(query, "postgres").sql("postgres"))
    SELECT "x" FROM t GROUP BY "x", CONCAT("x") COLLATE "pg_catalog"."C"
    """
    if WAREHOUSES[dialect].as_text is not None:
        group = counted.args["group"]
        group.set("expressions", [*group.expressions, *(_as_text(one.copy(), dialect) for one in group.expressions)])
    return counted


def _as_text(value: exp.Expr, dialect: str) -> exp.Expr:
    return exp.Collate(this=anonymous(WAREHOUSES[dialect].as_text or "", value), expression=col("C", "pg_catalog"))


def _one_form(value: exp.Column, dialect: str, type_: str) -> exp.Expr:
    if dialect == "duckdb":
        return canonical_value(value, type_)
    warehouse = WAREHOUSES[dialect]
    own = warehouse.floats.get(type_, type_)
    if name := warehouse.is_nan:
        return canonical_float(value, own, anonymous(name, value))
    return canonical_float(value, own, exp.EQ(this=value, expression=cast(text("NaN"), own)))


def create_release(target: exp.Table, rows: exp.Select) -> exp.Create:
    """``CREATE TABLE target AS``, in random order: else rows could be matched to the source by their position.

    It is the outermost query that is sorted: warehouses do not keep the order of an inner one.
    """
    released = select([col(name) for name in rows.named_selects], subquery(rows, "released"))
    return create_table(target, released.order_by(exp.Rand(), copy=False))


def written(query: exp.Query, path: str) -> exp.Copy:
    """``COPY (query) TO path``: as Parquet, by DuckDB."""
    parquet = exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET"))
    return exp.Copy(this=exp.Subquery(this=query), kind=False, files=[text(path)], params=[parquet])


def uploaded(relation: exp.Table, columns: Sequence[str], open_ends: bool = False) -> exp.Select:
    """What a warehouse gets of a table of ours: codes, which are the smallest integers here, as integers that all have;
    values as text, which each would write in its own way, as we do."""

    def value(name: str) -> exp.Expr:
        if name == TEXTS and not open_ends:
            return cast(col("value"), "VARCHAR")
        return cast(col(name), "INTEGER") if name.startswith("code_") else col(name)

    return select([as_column(value(name), name) for name in columns], relation.copy())


def figures(release: exp.Table, quasi: Sequence[str]) -> exp.Select:
    """One row: ``released_rows``, ``classes`` and ``smallest_class`` of the release."""
    return _FIGURES(classes=class_sizes(release, quasi))


def other_figures(found: exp.Select, expected: Mapping[str, int]) -> exp.Select:
    """The row of figures, unless it is as expected."""
    unlike = exp.or_(*(exp.NEQ(this=col(name), expression=number(n)) for name, n in expected.items()), copy=False)
    return _OTHER_FIGURES(columns=[col(name) for name in found.named_selects], found=found, unlike=unlike)


def other_rows(statement: exp.Select, release: exp.Table) -> exp.Select:
    """The rows that the release has more often, or less often, than the statement that makes it gives them."""
    columns = statement.named_selects
    names = {
        name: ident(unused_name(name, columns)) for name in ("made", "found", "rows_of_statement", "rows_of_release")
    }
    return _OTHER_ROWS(columns=[col(name) for name in columns], statement=statement, release=release, **names)


def row_count(relation: exp.Table) -> exp.Select:
    """One row: ``source_rows``."""
    return _SOURCE_ROWS(source=relation)


def distinct_values(release: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: the rows of the release, and how many distinct values each of some columns has."""
    counts = [as_column(exp.Count(this=exp.Distinct(expressions=[col(name)])), name) for name in columns]
    return _DISTINCT_VALUES(rows=ident(unused_name("released_rows", columns)), counts=counts, release=release)


DIALECTS = tuple(WAREHOUSES)

SUPPRESSED = "sqlanon_suppressed"
"""The uploaded table of suppressed classes."""

_RELEASE = "release"

_OWN_QUERY = "sqlanon_source_query"
"""Stands for the holder's query."""


def dialect_of(name: str) -> str:
    if name.lower() not in DIALECTS:
        raise PolicyError([Problem("dialect", f"must be one of {', '.join(DIALECTS)}, not {name!r}")], "the arguments")
    return name.lower()


@dataclass(frozen=True)
class Target:
    """Where a policy's table is in a warehouse, and where its release goes.

    ``looked_at`` are the columns of the frequency set, ``count`` its column that counts; ``query`` is the holder's own,
    if that is the source; ``types`` are those of the columns of the source that are known.
    """

    source: exp.Table
    release: exp.Table
    looked_at: tuple[str, ...]
    count: str
    query: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_draft(cls, draft: ReleaseDraft) -> Target:
        return replace(cls.of(draft.search_input.policy), types=draft.search_input.source.columns)

    @classmethod
    def of(cls, policy: Policy) -> Target:
        section = policy.source
        own = table_parts(section.table) if section.table else ()
        if section.query is None and not own:
            raise SourceError(
                "source: names no table of a warehouse: add table = ..., as table, schema.table or "
                "database.schema.table, or query = ..."
            )
        release = table_parts(policy.release.table) if policy.release else ()
        if not release or (not section.frequency_set and release == own[-1:]):  # by default, the source's own name
            release = (_RELEASE,)
        source = table(*reversed(own)) if section.query is None else table(_OWN_QUERY, alias="source")
        sensitive = examined_sensitive_attributes(policy.privacy, policy.attributes_with_role("sensitive"))
        looked_at = tuple(dict.fromkeys((*policy.generalized_attributes, *sensitive)))
        count = unused_name(COUNT_COLUMN, policy.attributes)
        return cls(source, table(*reversed(release)), looked_at, count, section.query)

    def frequency_set(self, names: Mapping[str, str]) -> exp.Select:
        columns = [names[one] for one in self.looked_at]
        return _FREQUENCY_SET(
            named=[as_column(col(name), name) for name in columns],
            count=ident(self.count),
            source=self.source,
            columns=[col(name) for name in columns],
        )

    def text(self, query: exp.Select, dialect: str) -> str:
        return self._text(translate_query(query, dialect), dialect)

    def frequency_set_text(self, names: Mapping[str, str], dialect: str) -> str:
        counted = translate_query(self.frequency_set(names), dialect)
        assert isinstance(counted, exp.Select)
        return self._text(by_text_too(counted, dialect), dialect)

    def release_statement(self, recoding: FullDomainRecoding, dialect: str) -> str:
        rows = translate_query(over_there(recoding, self.source).select(shuffled=False), dialect)
        assert isinstance(rows, exp.Select)
        return self._text(create_release(self.release.copy(), rows), dialect)

    def other_rows(self, recoding: FullDomainRecoding) -> exp.Select:
        return other_rows(over_there(recoding, self.source).select(shuffled=False), self.release)

    def _text(self, statement: exp.Expr, dialect: str) -> str:
        rewritten = {"VARCHAR", *FLOATING_TYPES} if WAREHOUSES[dialect].as_text is not None else FLOATING_TYPES
        types = {name: type_ for name, type_ in self.types.items() if type_ in rewritten}
        statement = without_variables(with_one_form(statement, dialect, types), dialect)
        if WAREHOUSES[dialect].full_names:
            statement = qualify_functions(statement)
        if self.query is not None:
            statement = with_own_query(statement, _OWN_QUERY, self.query)
        return statement.sql(QualifiedDuckDB if dialect == "duckdb" else dialect, pretty=True)


def value_tables(columns: Sequence[str]) -> list[str]:
    """The names of the uploaded tables: of each quasi-identifier its values and labels.

    >>> value_tables(["zip", "Date of birth", "ß"])
    ['sqlanon_0_zip', 'sqlanon_1_date_of_birth', 'sqlanon_2']
    """
    plain = (re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:30] for name in columns)
    return [f"sqlanon_{i}_{name}".rstrip("_") for i, name in enumerate(plain)]


def over_there(recoding: FullDomainRecoding, source: exp.Table) -> FullDomainRecoding:
    names = value_tables([attribute.column for attribute in recoding.attributes])
    return replace(
        recoding,
        source=source.copy(),
        attributes=tuple(
            replace(attribute, table=table(name), texts=TEXTS)
            for attribute, name in zip(recoding.attributes, names, strict=True)
        ),
        suppressed=None if recoding.suppressed is None else table(SUPPRESSED),
    )


def settings(dialect: str) -> tuple[str, ...]:
    return WAREHOUSES[dialect].settings


def before(dialect: str) -> tuple[str, ...]:
    return (*settings(dialect), *WAREHOUSES[dialect].before)


@dataclass(frozen=True)
class Audit:
    """The audit of a release in a warehouse: by requirement, the query of what breaks it; and the requirements that
    plain SQL over the release does not show."""

    violations: tuple[tuple[str, exp.Select], ...]
    not_in_sql: tuple[str, ...]


def audit_of(policy: Policy, target: Target, names: Mapping[str, str]) -> Audit:
    quasi, sensitive = (
        [names[name] for name in some]
        for some in (policy.generalized_attributes, policy.attributes_with_role("sensitive"))
    )
    released = WarehouseRelease(target.release, target.source, quasi, sensitive, names)
    bound = bind_conditions(policy.privacy, policy.generalized_attributes)
    found = [(condition.name, one.violations(released)) for one, condition in bound]
    violations = tuple((name, query) for name, query in found if query is not None)
    return Audit(violations, tuple(name for name, query in found if query is None))


def sql_of(draft: ReleaseDraft, dialect: str) -> str:
    """The statement that makes the release of what was found."""
    recoding = draft.statement
    assert isinstance(recoding, FullDomainRecoding)  # policies for warehouses ask for nothing else
    return Target.of_draft(draft).release_statement(recoding, dialect_of(dialect))
