"""The statements that a warehouse runs, in its own dialect: the frequency set, the release, the audit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlanon.engines.dialects.postgres_qualified import by_full_names
from sqlanon.engines.dialects.qualified import Qualified
from sqlanon.engines.dialects.translation import translated
from sqlanon.engines.values import FLOATING
from sqlanon.errors import PolicyError, Problem, SourceError
from sqlanon.expressions import free_name, table
from sqlanon.policy import Policy, table_parts
from sqlanon.recode.recoding import Recoding
from sqlanon.release_draft import Made
from sqlanon.requirements import looked_at_sensitive, requirements_of
from sqlanon.sources import warehouse as wh
from sqlanon.warehouse import audit as wa

DIALECTS = ("bigquery", "databricks", "duckdb", "postgres", "snowflake", "spark", "trino")
"""The warehouses, by sqlglot's names of their dialects."""

SUPPRESSED = "sqlanon_suppressed"
"""The uploaded table of suppressed classes."""

_RELEASE = "release"

_OWN_QUERY = "sqlanon_source_query"
"""Stands for the holder's query."""

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "spark": (
        "SET spark.sql.ansi.enabled = TRUE",
        "SET spark.sql.caseSensitive = FALSE",
        "SET spark.sql.variable.substitute = FALSE",
        "SET spark.sql.parser.escapedStringLiterals = FALSE",
        "SET spark.sql.parser.quotedRegexColumnNames = FALSE",
        "SET spark.sql.path.enabled = FALSE",
        "SET spark.sql.functionResolution.sessionOrder = second",
    ),
    "postgres": ("SET standard_conforming_strings = on",),
}
"""The settings that the meaning of our statements depends on, where a session may have others."""

_BEFORE: Mapping[str, tuple[str, ...]] = {"trino": ("SET SESSION skip_redundant_sort = FALSE",)}
"""What must be run before the release. (Trino does not sort the rows of a new table unless it is told to.)"""


def dialect_of(name: str) -> str:
    """A dialect, by its name.

    Raises
    ------
    PolicyError
        There is no such one.
    """
    if name.lower() not in DIALECTS:
        raise PolicyError([Problem("dialect", f"must be one of {', '.join(DIALECTS)}, not {name!r}")])
    return name.lower()


@dataclass(frozen=True)
class Target:
    """Where a policy's table is in a warehouse, and where its release goes.

    Attributes
    ----------
    source, release:
        The tables.
    looked_at:
        The columns of the frequency set.
    count:
        Its column that counts.
    query:
        The holder's own, if that is the source.
    floats:
        The columns of the source that are known to have floating-point numbers, with their types.
    """

    source: exp.Table
    release: exp.Table
    looked_at: tuple[str, ...]
    count: str
    query: str | None = None
    floats: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_made(cls, made: Made) -> Target:
        """By the policy, and by the types of the columns that the frequency set has.

        Raises
        ------
        SourceError
            The policy names no table.
        """
        columns = made.prepared.source.columns
        floats = {name: type_ for name, type_ in columns.items() if type_ in FLOATING}
        return replace(cls.of(made.prepared.policy), floats=floats)

    @classmethod
    def of(cls, policy: Policy) -> Target:
        """By the policy.

        Raises
        ------
        SourceError
            It names no table.
        """
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
        looked_at = tuple(dict.fromkeys((*policy.generalized, *looked_at_sensitive(policy))))
        count = free_name(wh.COUNT, policy.attributes)
        return cls(source, table(*reversed(release)), looked_at, count, section.query)

    def frequency_set(self, names: Mapping[str, str]) -> exp.Select:
        """The query of the frequency set; names of columns by attribute."""
        return wh.frequency_set(self.source.copy(), [names[one] for one in self.looked_at], self.count)

    def text(self, query: exp.Select, dialect: str) -> str:
        """A query that was built for DuckDB, as the text that a warehouse runs."""
        return self._text(translated(query, dialect), dialect)

    def release_statement(self, recoding: Recoding, dialect: str) -> str:
        """The statement that makes the release, of how it would be made here."""
        rows = translated(over_there(recoding, self.source).select(shuffled=False), dialect)
        assert isinstance(rows, exp.Select)
        return self._text(wh.create_release(self.release.copy(), rows), dialect)

    def other_rows(self, recoding: Recoding) -> exp.Select:
        """The query of the rows in which the release and the statement that makes it differ."""
        return wa.other_rows(over_there(recoding, self.source).select(shuffled=False), self.release)

    def _text(self, statement: exp.Expr, dialect: str) -> str:
        statement = wh.without_variables(wh.with_one_form(statement, dialect, self.floats), dialect)
        if dialect == "postgres":
            statement = by_full_names(statement)
        if self.query is not None:
            statement = wh.with_own_query(statement, _OWN_QUERY, self.query)
        return statement.sql(Qualified if dialect == "duckdb" else dialect, pretty=True)


def value_tables(columns: Sequence[str]) -> list[str]:
    """The names of the uploaded tables: of each quasi-identifier its values and labels.

    >>> value_tables(["zip", "Date of birth", "ß"])
    ['sqlanon_0_zip', 'sqlanon_1_date_of_birth', 'sqlanon_2']
    """
    plain = (re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:30] for name in columns)
    return [f"sqlanon_{i}_{name}".rstrip("_") for i, name in enumerate(plain)]


def over_there(recoding: Recoding, source: exp.Table) -> Recoding:
    """A recoding, over the table in the warehouse and the uploaded ones."""
    names = value_tables([attribute.column for attribute in recoding.attributes])
    return replace(
        recoding,
        source=source.copy(),
        attributes=tuple(
            replace(attribute, table=table(name), texts=wh.TEXTS)
            for attribute, name in zip(recoding.attributes, names, strict=True)
        ),
        suppressed=None if recoding.suppressed is None else table(SUPPRESSED),
    )


def settings(dialect: str) -> tuple[str, ...]:
    """What has to be run before any of the statements."""
    return _SETTINGS.get(dialect, ())


def before(dialect: str) -> tuple[str, ...]:
    """What has to be run before the release is made."""
    return (*settings(dialect), *_BEFORE.get(dialect, ()))


@dataclass(frozen=True)
class Audit:
    """The audit of a release in a warehouse.

    Attributes
    ----------
    violations:
        By what is asked, the query of what breaks it.
    not_told:
        What is asked, and plain SQL over the release does not tell.
    """

    violations: tuple[tuple[str, exp.Select], ...]
    not_told: tuple[str, ...]


def audit_of(policy: Policy, target: Target, names: Mapping[str, str]) -> Audit:
    """The queries of what breaks a policy's requirements.

    Parameters
    ----------
    policy, target:
        What is asked, and of what.
    names:
        The columns by attribute.
    """
    quasi = [names[name] for name in policy.generalized]
    sensitive = [names[name] for name in policy.with_role("sensitive")]
    asked = requirements_of(policy.privacy, policy.generalized)
    violations: list[tuple[str, exp.Select]] = []
    not_told: list[str] = []

    def add(name: str, query: exp.Select | None) -> None:
        if query is None:
            not_told.append(name)
        else:
            violations.append((name, query))

    for one in asked.classes:
        add(one.name, wa.breaking(one, target.release, target.source, quasi, sensitive, names))
    for shield in asked.shields:
        add(shield.name, wa.small_classes(target.release, [names[name] for name in shield.names], shield.k))
    for whole in asked.table:
        add(whole.name, wa.table_breaking(whole, target.release, quasi))
    if asked.population_uniqueness is not None:
        not_told.append(asked.population_uniqueness.name)
    return Audit(tuple(violations), tuple(not_told))


def sql_of(made: Made, dialect: str) -> str:
    """The statement that makes the release of what was found.

    Raises
    ------
    PolicyError
        There is no such dialect.
    """
    recoding = made.recoding
    assert isinstance(recoding, Recoding)  # policies for warehouses ask for nothing else
    return Target.of_made(made).release_statement(recoding, dialect_of(dialect))
