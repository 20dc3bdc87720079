"""Queries from the source table to the frequency set.

Columns of scanned tables: ``quasi_0``, ... (values of the quasi-identifiers), ``sensitive_0``, ... (sensitive values
that requirements refer to), ``person`` (if persons are counted) and ``row_count`` (rows). Columns of combinations:
``quasi_0``, ..., ``row_count``, with persons ``persons`` and ``mover``, with a population ``population`` and
``population_mover``. The frequency set has the codes of `coding` instead of values, ``known``, and the same counts.

Persons whose rows all have the same quasi-identifiers are counted by addition, in any class. The other persons, the
*movers*, have a number, and are counted as distinct numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.support.coding import (
    KNOWN,
    ROW_COUNT,
    CodedAttribute,
    Levels,
    code_column,
    level_codes,
    quasi_column,
    sensitive_column,
)
from sqlanon.support.expressions import (
    aliased,
    all_columns,
    all_of,
    as_column,
    cast,
    col,
    null_safe_equal,
    number,
    select,
    subquery,
    template,
    total,
    union_all,
)

PERSON = "person"
PERSONS = "persons"
MOVER = "mover"
POPULATION = "population"
POPULATION_MOVER = "population_mover"
_MOVER_COLUMNS = (MOVER, POPULATION_MOVER)


def raw_frequency(
    source: exp.Table,
    quasi: Sequence[str],
    sensitive: Sequence[str] = (),
    person: str | None = None,
    count_column: str | None = None,
) -> exp.Select:
    """Scan the source once for its distinct combinations of values, with counts.

    >>> from sqlanon.support.expressions import table
    >>> raw_frequency(table("patients"), ["zip", "age"]).sql("duckdb")
    'SELECT "zip" AS "quasi_0", "age" AS "quasi_1", COUNT(*) AS "row_count" FROM "patients" GROUP BY "zip", "age"'
    """
    names = [(name, quasi_column(i)) for i, name in enumerate(quasi)]
    names += [(name, sensitive_column(j)) for j, name in enumerate(sensitive)]
    names += [(person, PERSON)] if person is not None else []
    values: list[exp.Expr] = [as_column(col(name), alias) for name, alias in names]
    count = as_column(exp.Count(this=exp.Star()) if count_column is None else total(col(count_column)), ROW_COUNT)
    return select([*values, count], source.copy(), [col(name) for name, _ in names])


def quasi_columns(count: int) -> list[exp.Expr]:
    """The columns ``quasi_0``, ..."""
    return [col(quasi_column(i)) for i in range(count)]


def person_memberships(raw: exp.Expr, quasi: int) -> exp.Select:
    """The persons of each combination, with their rows in it."""
    memberships = template("SELECT :keys, person, sum(row_count)::BIGINT AS row_count FROM :raw GROUP BY :keys, person")
    return memberships(keys=quasi_columns(quasi), raw=raw)


def count_persons(rows: exp.Expr, person: str = PERSON) -> exp.Select:
    """The number of distinct persons, as ``persons``; all rows without a person id are one person."""
    person_count = template("SELECT count(*) AS persons FROM (SELECT DISTINCT :person FROM :rows) AS p")
    return person_count(person=col(person), rows=rows)


def sum_rows_of_largest_persons(members: exp.Table, persons: int) -> exp.Select:
    """The total rows of the persons with the most rows, as ``row_count``."""
    return template("""
        SELECT coalesce(sum(row_count)::BIGINT, 0) AS row_count
        FROM (
            SELECT sum(row_count)::BIGINT AS row_count
            FROM :members
            GROUP BY person
            ORDER BY row_count DESC LIMIT :persons
        ) AS p
    """)(members=members, persons=persons)


def number_movers(members: exp.Table) -> exp.Select:
    """Number the persons that are in several combinations. (Rows without a person id are one person.)"""
    return template("""
        SELECT person, (row_number() OVER ())::INTEGER AS mover
        FROM :members
        GROUP BY person
        HAVING count(*) > 1
    """)(members=members)


def person_combinations(members: exp.Table, moving: exp.Table | None, quasi: int) -> exp.Select:
    """The distinct combinations; each mover has a separate row in each of its combinations."""
    keys = [col(quasi_column(i), "r") for i in range(quasi)]
    if moving is None:
        return template("""
            SELECT :keys, sum(r.row_count)::BIGINT AS row_count, count(*) AS persons
            FROM :members AS r
            GROUP BY :keys
        """)(keys=keys, members=members)
    return template("""
        SELECT :keys, m.mover, sum(r.row_count)::BIGINT AS row_count, count(*) FILTER (WHERE m.mover IS NULL) AS persons
        FROM :members AS r
        LEFT JOIN :movers AS m ON r.person IS NOT DISTINCT FROM m.person
        GROUP BY :keys, m.mover
    """)(keys=keys, members=members, movers=moving)


def union_population(
    source_rows: exp.Expr, population: exp.Expr, quasi: Sequence[str], columns: Sequence[str], moving: bool
) -> exp.Query:
    """The combinations of the source and of the population; each has zero counts for the other."""
    keys = quasi_columns(len(quasi))
    none = [as_column(number(0), POPULATION), *([as_column(exp.null(), POPULATION_MOVER)] if moving else [])]
    source_rows = select([*keys, *(col(name) for name in columns), *none], source_rows.copy())
    population_columns: list[exp.Expr] = [
        as_column(cast(key.copy(), type_), key.name) for key, type_ in zip(keys, quasi, strict=True)
    ]
    population_columns += [as_column(exp.null() if name == MOVER else number(0), name) for name in columns]
    population_columns += [
        as_column(col(PERSONS), POPULATION),
        *([as_column(col(MOVER), POPULATION_MOVER)] if moving else []),
    ]
    return union_all(source_rows, select(population_columns, population.copy()))


def encode_combinations(
    rows: exp.Expr,
    attributes: Sequence[CodedAttribute],
    levels: Levels,
    population: bool = False,
    types: Sequence[str] | None = None,
) -> tuple[exp.Select, dict[str, exp.Expr]]:
    """Join the codes of values to a relation ``r``; return the query, and the codes and ``known`` by name."""
    codes: dict[str, exp.Expr] = {}
    query = exp.Select().from_(aliased(rows, "r"), copy=False)
    for i, (attribute, level) in enumerate(zip(attributes, levels, strict=True)):
        if level == attribute.height and not attribute.unknown:
            continue
        coded = f"c{i}"
        if level < attribute.height:
            codes[code_column(i, level)] = col(f"code_{level}", coded)
        value: exp.Expr = col(quasi_column(i), "r")
        on = null_safe_equal(cast(value, types[i]) if types else value, col("value", coded), attribute.nullable)
        query = query.join(aliased(attribute.table, coded), on=on, copy=False)
    are_known = all_of(col(KNOWN, f"c{i}") for i, attribute in enumerate(attributes) if attribute.unknown)
    if population:
        has_no_rows = col(ROW_COUNT, "r").eq(0)
        are_known = exp.Paren(this=are_known) | has_no_rows
    return query, {**codes, KNOWN: are_known}


def count_frequency_set(
    combinations: exp.Expr, attributes: Sequence[CodedAttribute], levels: Levels, counts: Sequence[str]
) -> exp.Select:
    """The frequency set at some levels: combinations of codes, with the codes of all levels above."""
    query, codes = encode_combinations(combinations, attributes, levels, POPULATION in counts)
    number_movers: dict[str, exp.Expr] = {name: col(name, "r") for name in counts if name in _MOVER_COLUMNS}
    keys = codes | number_movers
    sums: dict[str, exp.Expr] = {name: total(col(name, "r")) for name in counts if name not in _MOVER_COLUMNS}
    sums = sums or {ROW_COUNT: exp.Count(this=exp.Star())}
    return add_upper_codes(group_and_sum(query, keys, sums), attributes, levels)


def group_and_sum(query: exp.Select, keys: Mapping[str, exp.Expr], sums: Mapping[str, exp.Expr]) -> exp.Select:
    """Group a query by ``keys``, and select these and ``sums``."""
    query = query.select(*(as_column(value, name) for name, value in {**keys, **sums}.items()), copy=False)
    return query.group_by(*(value.copy() for value in keys.values()), copy=False)


def add_upper_codes(query: exp.Query, attributes: Sequence[CodedAttribute], levels: Levels) -> exp.Select:
    """Add the codes of all levels above to rows with codes at some levels."""
    output: list[exp.Expr] = [all_columns("g")]
    wide = exp.Select().from_(subquery(query, "g"), copy=False)
    for i, (attribute, level) in enumerate(zip(attributes, levels, strict=True)):
        if level < attribute.height - 1:
            upper = f"u{i}"
            output += [
                as_column(col(f"code_{j}", upper), code_column(i, j)) for j in range(level + 1, attribute.height)
            ]
            on = col(code_column(i, level), "g").eq(col(f"code_{level}", upper))
            wide = wide.join(subquery(level_codes(attribute, level), upper), on=on, copy=False)
    return wide.select(*output, copy=False)


def class_count(fixed: str, moving: str | None) -> exp.Cast:
    """The count of a class: the sum of fixed counts, and the distinct movers."""
    if moving is None:
        return total(col(fixed))
    distinct = exp.Count(this=exp.Distinct(expressions=[col(moving)]))
    return cast(exp.Sum(this=col(fixed)) + distinct, "BIGINT")
