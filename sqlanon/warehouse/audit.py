"""The audit of a release in a warehouse: what is asked of its rows there, and nothing of how they were found.

Each query of violations returns the classes that break a requirement, with the figure that does: none, if it holds.
In what they are made of, ``q0, q1, ...`` are the columns that tell classes apart, ``value`` is a sensitive one, ``n``
its rows, ``p`` its share of the class and ``q`` that of the source. NULL is a value of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.expressions import col, free_name, named, number, same, select, subquery, total, union_all
from sqlanon.requirements.base import TOLERANCE, ClassRequirement, TableRequirement
from sqlanon.requirements.disclosure import AlphaK, BetaLikeness, DeltaDisclosure
from sqlanon.requirements.k_anonymity import KAnonymity
from sqlanon.requirements.l_diversity import DistinctDiversity, EntropyDiversity, JointDiversity, RecursiveDiversity
from sqlanon.requirements.t_closeness import TreeCloseness
from sqlanon.requirements.whole_table import AverageRisk, SampleUniqueness

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
    """The classes that break a requirement; None where plain SQL does not tell.

    Parameters
    ----------
    one:
        The requirement.
    release, source:
        Both are in the warehouse.
    quasi, sensitive:
        The columns of these roles.
    names:
        The columns by attribute.
    """
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
