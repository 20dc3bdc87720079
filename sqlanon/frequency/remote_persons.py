"""Count the persons of a source in the remote engine that holds it; person ids never leave it.

Persons whose rows all have one combination of quasi-identifiers are counted once, by combination, since their counts
add up in any class. The other persons, the *movers*, stay in a remote table with the codes of their combinations. For
each generalization that is checked, the remote engine counts the distinct movers of each class and of each sensitive
value in it. Numbers for movers would link rows of a person, so local tables have none.

Columns of the remote tables: ``quasi_0``, ..., ``sensitive_0``, ... and ``person`` as in `frequency.statements`; in the
coded table the codes of `coding` at all levels, ``known``, ``sensitive_0``, ... (codes of sensitive values) and
``person``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.distribution import ValuePairs
from sqlanon.frequency.statements import PERSON, PERSONS, POPULATION_MOVER, count_persons, quasi_columns, raw_frequency
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.sources.source import RemotePersons
from sqlanon.support.coding import (
    KNOWN,
    ROW_COUNT,
    CodedAttribute,
    code_column,
    inner_column,
    quasi_column,
    sensitive_column,
)
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    as_column,
    col,
    null_safe_equal,
    number,
    select,
    subquery,
    template,
    union_all,
)

_MOVERS = template("""
    SELECT :columns, r.person
    FROM :members AS r
    JOIN (
        SELECT person
        FROM (SELECT DISTINCT :keys, person FROM :members) AS p
        GROUP BY person
        HAVING count(*) > 1
    ) AS m ON r.person IS NOT DISTINCT FROM m.person
""")
_COMBINATIONS = template("""
    SELECT :keys, sum(r.row_count)::BIGINT AS row_count, count(*) FILTER (WHERE m.moves IS NULL) AS persons
    FROM (
        SELECT :source_keys, person, sum(row_count)::BIGINT AS row_count
        FROM :members
        GROUP BY :source_keys, person
    ) AS r
    LEFT JOIN (SELECT person, true AS moves FROM :movers GROUP BY person) AS m ON r.person IS NOT DISTINCT FROM m.person
    GROUP BY :keys
""")
_PAIRS = template("""
    SELECT :keys, count(*) FILTER (WHERE m.moves IS NULL) AS row_count
    FROM (SELECT DISTINCT :renamed, person FROM :members) AS r
    LEFT JOIN (SELECT person, true AS moves FROM :movers GROUP BY person) AS m ON r.person IS NOT DISTINCT FROM m.person
    GROUP BY :keys
""")
_MOVERS_BY_VALUE = template("""
    SELECT value, count(*) AS row_count
    FROM (SELECT DISTINCT :value AS value, person FROM :movers) AS p
    GROUP BY value
""")


@dataclass(frozen=True)
class RemoteMembers:
    """Remote tables with the persons of each combination and sensitive value, and with the rows of the movers."""

    runner: StatementRunner  # runs statements in the remote engine
    members: exp.Table
    movers: exp.Table
    has_movers: bool
    quasi: int

    def combinations(self, target: exp.Table) -> exp.Table:
        """Create a local table of combinations with their rows, and their persons that are in no other combination."""
        keys = [col(quasi_column(i), "r") for i in range(self.quasi)]
        source_keys = quasi_columns(self.quasi)
        query = _COMBINATIONS(keys=keys, source_keys=source_keys, members=self.members, movers=self.movers)
        return self.runner.create_table(target, query)

    def pairs(self, target: exp.Table, sensitive: int, inner: Sequence[int] = ()) -> exp.Table:
        """Create a local table of combinations and sensitive values with the number of persons who are not movers."""
        names = [(quasi_column(i), quasi_column(i)) for i in range(self.quasi)]
        names += [(sensitive_column(s), inner_column(i)) for i, s in enumerate(inner)] + [
            (sensitive_column(sensitive), "value")
        ]
        renamed = [as_column(col(name), alias) for name, alias in names]
        keys = [col(alias, "r") for _, alias in names]
        query = _PAIRS(keys=keys, renamed=renamed, members=self.members, movers=self.movers)
        return self.runner.create_table(target, query)

    def movers_by_value(self, target: exp.Table, sensitive: int) -> exp.Table | None:
        """Create a local table with the distinct movers of each sensitive value; None without movers."""
        if not self.has_movers:
            return None
        return self.runner.create_table(
            target, _MOVERS_BY_VALUE(value=col(sensitive_column(sensitive)), movers=self.movers)
        )


def scan_members(
    runner: StatementRunner,
    persons: RemotePersons,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    person: str,
    work: Namer,
) -> RemoteMembers:
    """Scan the source once in its engine. Creates the remote tables ``person_members`` and ``person_movers``."""
    remote_runner = runner if runner.dry and runner.engine is persons.engine else runner.on(persons.engine)
    members = remote_runner.create_table(
        work("person_members"), raw_frequency(persons.relation, quasi, sensitive, person)
    )
    names = [*map(quasi_column, range(len(quasi))), *map(sensitive_column, range(len(sensitive)))]
    columns = [col(name, "r") for name in names]
    movers = remote_runner.create_table(
        work("person_movers"), _MOVERS(columns=columns, keys=quasi_columns(len(quasi)), members=members)
    )
    moving = remote_runner.fetch_rows(count_persons(movers), [(1,)])[0][0]
    return RemoteMembers(remote_runner, members, movers, moving > 0, len(quasi))


class RemoteMovers:
    """The remote table of movers with the codes of their combinations, and counts of it."""

    def __init__(self, runner: StatementRunner, work: Namer, coded: exp.Table, values: Sequence[exp.Table]) -> None:
        self.runner, self.work, self.coded = runner, work, coded
        self.values = tuple(values)  # of the sensitive attributes, from `number_sensitive_values`
        self._numbers = count()

    def distinct(self, keys: Sequence[str], count_name: str = PERSONS, within: exp.Expr | None = None) -> exp.Table:
        """Create a local table with the number of distinct movers by some columns of the coded table."""
        columns = [col(key) for key in keys]
        distinct_persons = template(
            "SELECT :keys, count(*) AS :count FROM (SELECT DISTINCT :keys, person FROM :coded) AS p"
        )
        query = distinct_persons(keys=columns, count=exp.to_identifier(count_name), coded=within or self.coded)
        query = query.group_by(*(column.copy() for column in columns), copy=False)
        return self.runner.create_table(self.work(f"movers_of_classes_{next(self._numbers)}"), query)

    def of_classes(self, classes: exp.Table, pairs: Sequence[tuple[str, str]]) -> exp.Subquery:
        """The movers of some classes; ``pairs`` are columns of the coded table and of the classes to join on."""
        query = select(
            [col(PERSON, "f"), *(col(sensitive_column(j), "f") for j in range(len(self.values)))],
            aliased(self.coded, "f"),
        )
        same_class = all_of(col(code, "f").eq(col(class_code, "x")) for code, class_code in pairs)
        return subquery(query.join(aliased(classes, "x"), on=same_class, copy=False), "f")

    def count(self, within: exp.Expr | None = None) -> int:
        return int(self.runner.fetch_rows(count_persons(within or self.coded), [(0,)], in_plan=False)[0][0])


def encode_movers(
    remote: RemoteMembers, attributes: Sequence[CodedAttribute], values: Sequence[exp.Table], work: Namer
) -> RemoteMovers | None:
    """Create the remote table ``movers_coded``: the codes of the movers' combinations and sensitive values."""
    if not remote.has_movers:
        return None
    query, output = exp.Select().from_(aliased(remote.movers, "r"), copy=False), list[exp.Expr]()
    for i, attribute in enumerate(attributes):
        if not attribute.height and not attribute.unknown:
            continue
        on = null_safe_equal(col(quasi_column(i), "r"), col("value", f"c{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"c{i}"), on=on, copy=False)
        output += [as_column(col(f"code_{j}", f"c{i}"), code_column(i, j)) for j in range(attribute.height)]
    output.append(
        as_column(all_of(col(KNOWN, f"c{i}") for i, attribute in enumerate(attributes) if attribute.unknown), KNOWN)
    )
    for j, table in enumerate(values):
        query = query.join(
            aliased(table, f"v{j}"),
            on=null_safe_equal(col(sensitive_column(j), "r"), col("value", f"v{j}")),
            copy=False,
        )
        output.append(as_column(col(VALUE, f"v{j}"), sensitive_column(j)))
    query = query.select(*output, col(PERSON, "r"), copy=False).distinct(copy=False)
    coded = remote.runner.create_table(work("movers_coded"), query)
    return RemoteMovers(remote.runner, work, coded, values)


def add_movers(settled: exp.Expr, keys: Sequence[str], counts: Sequence[str], movers: exp.Table) -> exp.Subquery:
    """Add the counts of movers to a frequency set, which then serves a single generalization."""
    columns = [col(key) for key in keys]
    settled_rows = select([*columns, *map(col, counts)], settled.copy())
    mover_counts = {POPULATION_MOVER: exp.null(), PERSONS: col(PERSONS)}
    mover_columns = [as_column(mover_counts.get(name, number(0)).copy(), name) for name in counts]
    mover_rows = select([*(key.copy() for key in columns), *mover_columns], movers.copy())
    return subquery(union_all(settled_rows, mover_rows), "frequency")


def add_movers_to_distribution(
    settled: exp.Expr,
    keys: Sequence[str],
    pairs: ValuePairs,
    sensitive: int,
    values: Sequence[exp.Table],
    movers: exp.Table,
) -> exp.Subquery:
    """Add the counts of movers to a distribution, which then serves a single generalization.

    ``movers`` are counted by the codes of the attribute's values, and of the other attributes for joint distributions.
    """
    inner_attributes = [i for i in range(len(values)) if i != sensitive] if pairs.inner else []
    inner = [inner_column(i) for i in range(pairs.inner)]
    settled_rows = select([col(name) for name in (*keys, *inner, VALUE, SHARE, ROW_COUNT)], settled.copy())
    output: list[exp.Expr] = [col(key, "m") for key in keys]
    output += [as_column(col("value", f"x{i}"), name) for i, name in enumerate(inner)]
    query = exp.Select().from_(aliased(movers, "m"), copy=False)
    leaf = VALUE if pairs.leaves is None else "leaf"
    query = query.join(
        aliased(pairs.values, "s"), on=col(sensitive_column(sensitive), "m").eq(col(leaf, "s")), copy=False
    )
    for i, inner_attribute in enumerate(inner_attributes):
        on = col(sensitive_column(inner_attribute), "m").eq(col(VALUE, f"x{i}"))
        query = query.join(aliased(values[inner_attribute], f"x{i}"), on=on, copy=False)
    query = query.select(
        *output, col(VALUE, "s"), col(SHARE, "s"), as_column(col(ROW_COUNT, "m"), ROW_COUNT), copy=False
    )
    return subquery(union_all(settled_rows, query), "distribution")
