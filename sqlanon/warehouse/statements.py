"""The statements that a warehouse runs, in its own dialect: the frequency set, the release, the audit.

The audit asks the released rows, and knows nothing of how they were found. Each of its queries returns the classes that
break a requirement, with the figure that does: none, if it holds. In what they are made of, ``q0, q1, ...`` are the
columns that tell classes apart, ``value`` is a sensitive one, ``n`` its rows, ``p`` its share of the class and ``q``
that of the source. NULL is a value of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlanon.engines.dialects.postgres_qualified import by_full_names
from sqlanon.engines.dialects.qualified import Qualified
from sqlanon.engines.dialects.translation import translated
from sqlanon.engines.values import FLOATING
from sqlanon.errors import PolicyError, Problem, SourceError
from sqlanon.expressions import col, free_name, named, number, same, select, subquery, table, total, union_all
from sqlanon.policy import Policy, table_parts
from sqlanon.recode.recoding import Recoding
from sqlanon.release_draft import ReleaseDraft
from sqlanon.requirements import looked_at_sensitive, requirements_of
from sqlanon.requirements.base import TOLERANCE, ClassRequirement, TableRequirement
from sqlanon.requirements.disclosure import AlphaK, BetaLikeness, DeltaDisclosure
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.requirements.l_diversity import DistinctDiversity, EntropyDiversity, JointDiversity, RecursiveDiversity
from sqlanon.requirements.t_closeness import TreeCloseness
from sqlanon.requirements.whole_table import AverageRisk, SampleUniqueness
from sqlanon.sources import warehouse as wh

SIZE = "class_size"


def small_classes(release: exp.Table, quasi: Sequence[str], k: int) -> exp.Select:
    """The classes of fewer than k rows, over some of the quasi-identifiers.

    >>> from sqlanon.expressions import table
    >>> small_classes(table("r"), ["zip"], 5).sql("duckdb")
    'SELECT "zip" AS "zip", COUNT(*) AS "class_size" FROM "r" GROUP BY "zip" HAVING COUNT(*) < 5'
    """
    size: exp.Expr = exp.Count(this=exp.Star())
    keys: list[exp.Expr] = [named(col(name), name) for name in quasi]
    query = select([*keys, named(size, free_name(SIZE, quasi))], release.copy(), [col(name) for name in quasi])
    return query.having(exp.LT(this=size.copy(), expression=number(k)), copy=False)


def breaking(
    one: ClassRequirement,
    release: exp.Table,
    source: exp.Table,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    names: Mapping[str, str],
) -> exp.Select | None:
    """The classes that break a requirement; None where plain SQL does not tell."""
    if isinstance(one, KAnonymity):
        return small_classes(release, quasi, one.k)
    keys = list(quasi)
    if isinstance(one, JointDiversity):
        one = one.diversity
        keys += [name for name in sensitive if name != names[one.attribute]]
    found = _figure(one)
    if found is None or one.distribution is None:
        return None
    figure, condition, rows = found
    attribute = names[one.distribution.attribute]
    inner = _counted(release, keys, attribute)
    if rows == "ranked":
        inner = _ranked(inner, len(keys))
    elif rows == "shares":
        inner = _with_shares(inner, source, attribute, len(keys))
    own: list[exp.Expr] = [named(col(f"q{i}"), name) for i, name in enumerate(keys)]
    groups: list[exp.Expr] = [col(f"q{i}") for i in range(len(keys))]
    query = select([*own, named(figure, free_name("figure", keys))], subquery(inner, "v"), groups)
    return query.having(condition, copy=False)


def _figure(one: ClassRequirement) -> tuple[exp.Expr, exp.Expr, str] | None:
    """The figure of a class, over its values; when it breaks the requirement; and what it is worked out from."""
    match one:
        case DistinctDiversity() | EntropyDiversity() | AlphaK():
            return (*_of_counts(one), "counted")
        case RecursiveDiversity():
            return (*_of_ranks(one), "ranked")
        case TreeCloseness(word="equal") | DeltaDisclosure() | BetaLikeness():
            return (*_of_shares(one), "shares")
    return None


def _of_counts(one: DistinctDiversity | EntropyDiversity | AlphaK) -> tuple[exp.Expr, exp.Expr]:
    n, sum_ = col("n"), exp.Sum(this=col("n"))
    match one:
        case DistinctDiversity():
            values = exp.Count(this=exp.Star())
            return values, exp.LT(this=values.copy(), expression=number(one.l))
        case EntropyDiversity():
            logs = exp.Sum(this=exp.Mul(this=n, expression=exp.Ln(this=n.copy())))
            entropy = exp.Sub(this=exp.Ln(this=sum_), expression=_over(logs, sum_.copy()))
            return entropy, exp.LT(this=entropy.copy(), expression=number(math.log(one.l) - TOLERANCE))
        case AlphaK():
            share = _over(exp.Max(this=n), sum_)
            return share, exp.GT(this=share.copy(), expression=number(one.alpha + TOLERANCE))


def _of_ranks(one: RecursiveDiversity) -> tuple[exp.Expr, exp.Expr]:
    in_tail = exp.GTE(this=col("place"), expression=number(one.l))
    tail = exp.Sum(this=exp.Case(ifs=[exp.If(this=in_tail, true=col("n"))], default=exp.cast(number(0), "double")))
    # There may be no tail at all: then nothing is less than so many times of it.
    least = _over(exp.Max(this=col("n")), tail)
    holds = exp.LT(this=least.copy(), expression=number(one.c))
    broken = exp.Not(this=exp.Coalesce(this=exp.Paren(this=holds), expressions=[exp.false()]))
    return least, exp.false() if one.l == 1 else broken


def _of_shares(one: TreeCloseness | DeltaDisclosure | BetaLikeness) -> tuple[exp.Expr, exp.Expr]:
    p, q = col("p"), col("q")
    ratio = _over(p, q)
    match one:
        case TreeCloseness():
            # What a class has too much of, it has too little of elsewhere: half of the sum of both.
            too_much = exp.If(this=exp.GT(this=p.copy(), expression=q.copy()), true=exp.Sub(this=p, expression=q))
            distance = exp.Sum(this=exp.Case(ifs=[too_much], default=exp.cast(number(0), "double")))
            return distance, exp.GT(this=distance.copy(), expression=number(one.t + TOLERANCE))
        case DeltaDisclosure():
            far = exp.Max(this=exp.Abs(this=exp.Ln(this=ratio)))
            missing = exp.LT(this=exp.Count(this=exp.Star()), expression=exp.Max(this=col("values")))
            too_far = exp.GT(this=far.copy(), expression=number(one.delta + TOLERANCE))
            return far, exp.Or(this=missing, expression=too_far)
        case BetaLikeness():
            bound = exp.cast(number(one.beta), "double")
            if one.enhanced:
                rare = exp.Neg(this=exp.Ln(this=q.copy()))
                less = exp.If(this=exp.LT(this=rare, expression=bound), true=rare.copy())
                most = exp.Add(this=number(1.0), expression=exp.Case(ifs=[less], default=bound.copy()))
            else:
                most = exp.Add(this=number(1.0), expression=bound)
            gain = exp.Max(this=_over(ratio, exp.Paren(this=most)))
            return gain, exp.GT(this=gain.copy(), expression=number(1 + TOLERANCE))


def _counted(relation: exp.Table, keys: Sequence[str], attribute: str) -> exp.Select:
    """The values of a sensitive column in each class: ``q0, q1, ...``, ``value``, ``n``.

    Columns are renamed first: what is grouped by could have the name of something else, too.
    """
    own: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(keys)]
    renamed = select([*own, named(col(attribute), "value")], relation.copy())
    count = named(exp.cast(exp.Count(this=exp.Star()), "double"), "n")
    groups: list[exp.Expr] = [*_keys(len(keys)), col("value")]
    return select([*(one.copy() for one in groups), count], subquery(renamed, "r"), groups)


def _over(left: exp.Expr, right: exp.Expr) -> exp.Div:
    """A quotient; NULL where it would be by 0."""
    return exp.Div(this=left, expression=exp.Nullif(this=right, expression=number(0)))


def _ranked(counted: exp.Select, keys: int) -> exp.Select:
    """The same, with ``place``: 1 of the most frequent value of a class."""
    order = exp.Order(expressions=[exp.Ordered(this=col("n"), desc=True)])
    place = exp.Window(this=exp.RowNumber(), partition_by=[col(f"q{i}") for i in range(keys)], order=order)
    return select([*_keys(keys), col("n"), named(place, "place")], subquery(counted, "c"))


def _with_shares(counted: exp.Select, source: exp.Table, attribute: str, keys: int) -> exp.Select:
    """The same, with the shares ``p`` of the class and ``q`` of the source, and how many ``values`` the source has."""
    whole = exp.Window(this=exp.Sum(this=col("n")), partition_by=[col(f"q{i}") for i in range(keys)])
    own = select([*_keys(keys), col("value"), named(_over(col("n"), whole), "p")], subquery(counted, "c"))
    all_ = exp.Window(this=exp.Sum(this=col("n")))
    share = named(_over(col("n"), all_), "q")
    values = named(exp.Window(this=exp.Count(this=exp.Star())), "values")
    theirs = select([col("value"), share, values], subquery(_counted(source, (), attribute), "c"))
    output: list[exp.Expr] = [
        *(col(f"q{i}", "c") for i in range(keys)),
        col("p", "c"),
        col("q", "s"),
        col("values", "s"),
    ]
    on = same(col("value", "c"), col("value", "s"))
    return select(output, subquery(own, "c")).join(subquery(theirs, "s"), on=on, copy=False)


def _keys(keys: int) -> list[exp.Expr]:
    return [col(f"q{i}") for i in range(keys)]


def _sizes(release: exp.Table, quasi: Sequence[str]) -> exp.Subquery:
    size = named(exp.Count(this=exp.Star()), "n")
    return subquery(select([size], release.copy(), [col(name) for name in quasi]), "classes")


def table_breaking(one: TableRequirement, release: exp.Table, quasi: Sequence[str]) -> exp.Select | None:
    """One row with the figure of the release that breaks a requirement on all of it; None where SQL does not tell."""
    rows = exp.Sum(this=col("n"))
    match one:
        case AverageRisk(limit):
            part: exp.Expr = exp.Count(this=exp.Star())
        case SampleUniqueness(limit):
            single = exp.EQ(this=col("n"), expression=number(1))
            part = exp.Sum(this=exp.Case(ifs=[exp.If(this=single, true=number(1))], default=number(0)))
        case _:
            return None
    share = _over(part, rows)
    query = select([named(share, "figure")], _sizes(release, quasi))
    return query.having(exp.GT(this=share.copy(), expression=number(limit + TOLERANCE)), copy=False)


def figures(release: exp.Table, quasi: Sequence[str]) -> exp.Select:
    """One row: ``released_rows``, ``classes`` and ``smallest_class`` of the release."""
    output = {
        "released_rows": exp.Coalesce(this=total(col("n")), expressions=[number(0)]),
        "classes": exp.Count(this=exp.Star()),
        "smallest_class": exp.Coalesce(this=exp.Min(this=col("n")), expressions=[number(0)]),
    }
    return select([named(value, name) for name, value in output.items()], _sizes(release, quasi))


def other_figures(found: exp.Select, expected: Mapping[str, int]) -> exp.Select:
    """The row of figures, unless it is as expected."""
    unlike = [exp.NEQ(this=col(name), expression=number(value)) for name, value in expected.items()]
    output: list[exp.Expr] = [col(name) for name in found.named_selects]
    return select(output, subquery(found, "figures")).where(exp.or_(*unlike, copy=False), copy=False)


def other_rows(statement: exp.Select, release: exp.Table) -> exp.Select:
    """The rows that the release has more often, or less often, than the statement that makes it gives them.

    Rows are compared by ``GROUP BY``: NULL equals NULL there and NaN equals NaN, in every dialect.

    >>> from sqlanon.expressions import table
    >>> print(other_rows(select([col("zip")], table("t")), table("r")).sql("duckdb", pretty=True))
    SELECT
      "zip",
      SUM("made") AS "rows_of_statement",
      SUM("found") AS "rows_of_release"
    FROM (
      SELECT
        "zip",
        1 AS "made",
        0 AS "found"
      FROM (
        SELECT
          "zip"
        FROM "t"
      ) AS "statement"
      UNION ALL
      SELECT
        "zip",
        0 AS "made",
        1 AS "found"
      FROM "r"
    ) AS "both"
    GROUP BY
      "zip"
    HAVING
      SUM("made") <> SUM("found")
    """
    columns = statement.named_selects
    made, found = free_name("made", columns), free_name("found", columns)

    def counted(relation: exp.Expr, in_statement: int, in_release: int) -> exp.Select:
        marks: list[exp.Expr] = [named(number(in_statement), made), named(number(in_release), found)]
        return select([*map(col, columns), *marks], relation)

    both = union_all(counted(subquery(statement, "statement"), 1, 0), counted(release.copy(), 0, 1))
    sums = [exp.Sum(this=col(name)) for name in (made, found)]
    output: list[exp.Expr] = [
        *map(col, columns),
        named(sums[0], free_name("rows_of_statement", columns)),
        named(sums[1], free_name("rows_of_release", columns)),
    ]
    query = select(output, subquery(both, "both"), [col(name) for name in columns])
    return query.having(exp.NEQ(this=sums[0].copy(), expression=sums[1].copy()), copy=False)


def row_count(relation: exp.Table) -> exp.Select:
    """One row: ``source_rows``."""
    return select([named(exp.Count(this=exp.Star()), "source_rows")], relation)


def distinct_values(release: exp.Table, columns: Sequence[str]) -> exp.Select:
    """One row: the rows of the release, and how many distinct values each of some columns has."""
    counts: list[exp.Expr] = [named(exp.Count(this=exp.Distinct(expressions=[col(name)])), name) for name in columns]
    rows = named(exp.Count(this=exp.Star()), free_name("released_rows", columns))
    return select([rows, *counts], release.copy())


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
    """A dialect, by its name."""
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
    def of_made(cls, made: ReleaseDraft) -> Target:
        """By the policy, and by the types of the columns that the frequency set has."""
        columns = made.prepared.source.columns
        floats = {name: type_ for name, type_ in columns.items() if type_ in FLOATING}
        return replace(cls.of(made.prepared.policy), floats=floats)

    @classmethod
    def of(cls, policy: Policy) -> Target:
        """By the policy."""
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
        return other_rows(over_there(recoding, self.source).select(shuffled=False), self.release)

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
    """The queries of what breaks a policy's requirements."""
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
        add(one.name, breaking(one, target.release, target.source, quasi, sensitive, names))
    for shield in asked.shields:
        add(shield.name, small_classes(target.release, [names[name] for name in shield.names], shield.k))
    for whole in asked.table:
        add(whole.name, table_breaking(whole, target.release, quasi))
    if asked.population_uniqueness is not None:
        not_told.append(asked.population_uniqueness.name)
    return Audit(tuple(violations), tuple(not_told))


def sql_of(made: ReleaseDraft, dialect: str) -> str:
    """The statement that makes the release of what was found."""
    recoding = made.recoding
    assert isinstance(recoding, Recoding)  # policies for warehouses ask for nothing else
    return Target.of_made(made).release_statement(recoding, dialect_of(dialect))
