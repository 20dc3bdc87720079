"""From the source to the frequency set: the private table as the search sees it.

Names of columns, all ours. In what is scanned: ``q0, q1, ...`` (values, one a quasi-identifier), ``s0, s1, ...``
(sensitive ones, where a requirement looks at them), ``person`` (where persons are counted) and ``n`` (rows). In the
combinations: ``q0, q1, ...``, ``n``, and with persons ``persons`` and ``mover``; with a population ``population`` and
``population_mover``. In the frequency set: the codes of `queries.coding` for values, ``known``, and the same counts.

A person is counted where all of its rows have the same quasi-identifiers by adding up, in whatever classes they end.
The others, the *movers*, are kept apart by a number, and counted as distinct numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.coding import KNOWN, ROWS, Coded, code_name, leaves_name
from sqlanon.queries.names import aliased, all_of, cast, col, named, number, same, select, subquery, total, where

PERSON = "person"
PERSONS = "persons"
MOVER = "mover"
POPULATION = "population"
POPULATION_MOVER = "population_mover"


def raw_frequency(
    source: exp.Table, quasi: Sequence[str], sensitive: Sequence[str] = (), person: str | None = None
) -> exp.Select:
    """One scan of the source: its distinct combinations of values, with counts.

    >>> from sqlanon.queries.names import table
    >>> raw_frequency(table("patients"), ["zip", "age"]).sql("duckdb")
    'SELECT "zip" AS "q0", "age" AS "q1", COUNT(*) AS "n" FROM "patients" GROUP BY "zip", "age"'
    """
    names = [(name, f"q{i}") for i, name in enumerate(quasi)]
    names += [(name, f"s{j}") for j, name in enumerate(sensitive)]
    names += [(person, PERSON)] if person is not None else []
    values: list[exp.Expr] = [named(col(name), alias) for name, alias in names]
    count = named(exp.Count(this=exp.Star()), ROWS)
    return select([*values, count], source.copy(), [col(name) for name, _ in names])


def row_count(raw: exp.Table) -> exp.Select:
    """The rows of the source."""
    return select([exp.Coalesce(this=total(col(ROWS)), expressions=[number(0)])], raw.copy())


def quasi_columns(count: int) -> list[exp.Expr]:
    """``q0, q1, ...``."""
    return [col(f"q{i}") for i in range(count)]


def memberships(raw: exp.Table, quasi: int) -> exp.Select:
    """Which persons are in which combinations, with their rows there."""
    keys = [*quasi_columns(quasi), col(PERSON)]
    return select([*keys, named(total(col(ROWS)), ROWS)], raw.copy(), [key.copy() for key in keys])


def person_count(rows: exp.Expr) -> exp.Select:
    """The distinct persons, as ``persons``; all rows without one are one person."""
    each = exp.Select(expressions=[col(PERSON)], distinct=exp.Distinct()).from_(rows.copy())
    return select([named(exp.Count(this=exp.Star()), PERSONS)], subquery(each, "p"))


def movers(members: exp.Table) -> exp.Select:
    """The persons that are in several combinations, each with a number. (Rows without a person are one person.)"""
    several = exp.GT(this=exp.Count(this=exp.Star()), expression=number(1))
    numbered = exp.Window(this=exp.RowNumber())
    query = select([col(PERSON), named(cast(numbered, "INTEGER"), MOVER)], members.copy(), [col(PERSON)])
    return query.having(several, copy=False)


def with_movers(relation: exp.Expr, alias: str, moving: exp.Table) -> exp.Select:
    """A join that gives each row of persons its mover, or NULL; to be completed with output columns."""
    on = same(col(PERSON, alias), col(PERSON, "m"))
    return exp.Select().from_(relation).join(aliased(moving, "m"), on=on, join_type="left", copy=False)


def settled() -> exp.Expr:
    """Whether a row's person is in one combination only."""
    return exp.Is(this=col(MOVER, "m"), expression=exp.null())


def combinations(members: exp.Table, moving: exp.Table | None, quasi: int, persons: bool = True) -> exp.Select:
    """The distinct combinations, and with movers one more row for each of them in each of its combinations.

    Parameters
    ----------
    members:
        `memberships`; or what was scanned, where persons are not counted.
    moving:
        `movers`, if there are any.
    quasi:
        How many quasi-identifiers there are.
    persons:
        Whether persons are counted.
    """
    keys: list[exp.Expr] = [col(f"q{i}", "r") for i in range(quasi)]
    rows = named(total(col(ROWS, "r")), ROWS)
    if not persons:
        return select([*keys, rows], aliased(members, "r"), [key.copy() for key in keys])
    count: exp.Expr = exp.Count(this=exp.Star())
    if moving is None:
        return select([*keys, rows, named(count, PERSONS)], aliased(members, "r"), [key.copy() for key in keys])
    mover = col(MOVER, "m")
    query = with_movers(aliased(members, "r"), "r", moving)
    query = query.select(*keys, mover, rows, named(where(count, settled()), PERSONS), copy=False)
    return query.group_by(*(key.copy() for key in keys), mover.copy(), copy=False)


def beside_population(
    own: exp.Table, population: exp.Table, quasi: Sequence[str], columns: Sequence[str], moving: bool
) -> exp.Union:
    """The combinations of the source and those of the population in one: each has no rows of the other.

    Parameters
    ----------
    own, population:
        Combinations of both; the population's have its persons, or its rows, in ``persons``.
    quasi:
        The types of the quasi-identifiers in the source.
    columns:
        The counts of the source's: ``n``, ``persons``, ``mover``.
    moving:
        Whether the population has movers.
    """
    keys = quasi_columns(len(quasi))
    none = [named(number(0), POPULATION), *([named(exp.null(), POPULATION_MOVER)] if moving else [])]
    ours = select([*keys, *(col(name) for name in columns), *none], own.copy())
    theirs: list[exp.Expr] = [named(cast(key.copy(), type_), key.name) for key, type_ in zip(keys, quasi, strict=True)]
    theirs += [named(exp.null() if name == MOVER else number(0), name) for name in columns]
    theirs += [named(col(PERSONS), POPULATION), *([named(col(MOVER), POPULATION_MOVER)] if moving else [])]
    return exp.union(ours, select(theirs, population.copy()), distinct=False, copy=False)


def coded_rows(
    raw: exp.Table,
    attributes: Sequence[Coded],
    leaves: bool,
    population: bool = False,
    types: Sequence[str] | None = None,
) -> tuple[exp.Select, list[exp.Expr]]:
    """The rows of a relation ``r`` with ``q0, q1, ...``, and the output columns with codes for these values.

    With ``leaves``, the leaves under each value too. What the population alone has counts as known: it is nobody's.
    With ``types``, the values are cast to the types of the source's columns.
    """
    output: list[exp.Expr] = []
    query = exp.Select().from_(aliased(raw, "r"))
    for i, attribute in enumerate(attributes):
        coded = f"c{i}"
        output += [named(col(f"code_{level}", coded), code_name(i, level)) for level in range(attribute.height)]
        if leaves:
            output += [
                named(cast(col(f"leaves_{level}", coded), "DOUBLE"), leaves_name(i, level))
                for level in range(1, attribute.height)
            ]
        value: exp.Expr = col(f"q{i}", "r")
        on = same(cast(value, types[i]) if types else value, col("value", coded), attribute.nullable)
        query = query.join(aliased(attribute.table, coded), on=on, copy=False)
    known = all_of(col(KNOWN, f"c{i}") for i, attribute in enumerate(attributes) if attribute.unknown)
    if population:
        nobody = exp.EQ(this=col(ROWS, "r"), expression=number(0))
        known = exp.Or(this=exp.Paren(this=known), expression=nobody)
    return query, [*output, named(known, KNOWN)]


def frequency(raw: exp.Table, attributes: Sequence[Coded], counts: Sequence[str], leaves: bool) -> exp.Select:
    """The frequency set: the combinations with codes for values, level by level.

    Parameters
    ----------
    raw:
        The combinations.
    attributes:
        The quasi-identifiers, in their order.
    counts:
        The counts that the combinations have: ``n``, ``persons``, ...
    leaves:
        Whether the measure needs the leaves under each value.
    """
    query, output = coded_rows(raw, attributes, leaves, POPULATION in counts)
    return query.select(*output, *(col(name, "r") for name in counts), copy=False)


def counted(fixed: str, moving: str | None) -> exp.Cast:
    """A count of a class: what adds up, and the distinct movers."""
    if moving is None:
        return total(col(fixed))
    distinct = exp.Count(this=exp.Distinct(expressions=[col(moving)]))
    return cast(exp.Add(this=exp.Sum(this=col(fixed)), expression=distinct), "BIGINT")
