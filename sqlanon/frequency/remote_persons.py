"""Persons of a source whose rows stay elsewhere: they are counted there, and no person id leaves.

A person whose rows have one combination of quasi-identifiers adds up, in whatever class the combination ends: such
persons are counted once, by combination. The others, the *movers*, are kept on the server by the codes of their
combinations, and counted there for each generalization that is checked: how many distinct movers each class has, and
each sensitive value in it. Which rows a mover has would link these rows, so no number stands for one locally.

Names of columns on the server: ``q0, q1, ...``, ``s0, s1, ...`` and ``person`` as in `frequency.statements`; in the
coded table the codes of `coding` at all levels, ``known``, ``s0, s1, ...`` (codes of sensitive values) and ``person``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.distribution import ValuePairs
from sqlanon.frequency.statements import (
    PERSON,
    PERSONS,
    POPULATION_MOVER,
    count_persons,
    quasi_columns,
    raw_frequency,
)
from sqlanon.requirements.base import SHARE, VALUE
from sqlanon.sources.source import RemotePersons
from sqlanon.support.coding import KNOWN, ROWS, Coded, code_name
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    col,
    named,
    number,
    same,
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
    SELECT :keys, sum(r.n)::BIGINT AS n, count(*) FILTER (WHERE m.moves IS NULL) AS persons
    FROM (SELECT :own_keys, person, sum(n)::BIGINT AS n FROM :members GROUP BY :own_keys, person) AS r
    LEFT JOIN (SELECT person, true AS moves FROM :movers GROUP BY person) AS m ON r.person IS NOT DISTINCT FROM m.person
    GROUP BY :keys
""")
_COMBINATIONS_WITHOUT_MOVERS = template("""
    SELECT :keys, sum(r.n)::BIGINT AS n, count(*) AS persons
    FROM (SELECT :own_keys, person, sum(n)::BIGINT AS n FROM :members GROUP BY :own_keys, person) AS r
    GROUP BY :keys
""")
_PAIRS = template("""
    SELECT :keys, count(*) FILTER (WHERE m.moves IS NULL) AS n
    FROM (SELECT DISTINCT :renamed, person FROM :members) AS r
    LEFT JOIN (SELECT person, true AS moves FROM :movers GROUP BY person) AS m ON r.person IS NOT DISTINCT FROM m.person
    GROUP BY :keys
""")
_PAIRS_WITHOUT_MOVERS = template("""
    SELECT :keys, count(*) AS n
    FROM (SELECT DISTINCT :renamed, person FROM :members) AS r
    GROUP BY :keys
""")
_MOVERS_BY_VALUE = template("""
    SELECT value, count(*) AS n
    FROM (SELECT DISTINCT :value AS value, person FROM :movers) AS p
    GROUP BY value
""")
_DISTINCT_PERSONS = template("SELECT :keys, count(*) AS :count FROM (SELECT DISTINCT :keys, person FROM :coded) AS p")


@dataclass(frozen=True)
class RemoteMembers:
    """On the server, which persons are in which combinations with which sensitive values; of the movers again."""

    steps: StatementRunner  # runs statements there
    members: exp.Table
    movers: exp.Table | None
    quasi: int

    def combinations(self, target: exp.Table) -> exp.Table:
        """Make the combinations with their rows, and the persons that are in no other: these counts come here."""
        keys = [col(f"q{i}", "r") for i in range(self.quasi)]
        own_keys = quasi_columns(self.quasi)
        if self.movers is None:
            return self.steps.make(
                target, _COMBINATIONS_WITHOUT_MOVERS(keys=keys, own_keys=own_keys, members=self.members)
            )
        query = _COMBINATIONS(keys=keys, own_keys=own_keys, members=self.members, movers=self.movers)
        return self.steps.make(target, query)

    def pairs(self, target: exp.Table, sensitive: int, inner: Sequence[int] = ()) -> exp.Table:
        """Make the combinations with a sensitive value, and how many persons who are no movers have it there."""
        names = [(f"q{i}", f"q{i}") for i in range(self.quasi)]
        names += [(f"s{other}", f"o{i}") for i, other in enumerate(inner)] + [(f"s{sensitive}", "value")]
        renamed = [named(col(name), alias) for name, alias in names]
        keys = [col(alias, "r") for _, alias in names]
        if self.movers is None:
            return self.steps.make(target, _PAIRS_WITHOUT_MOVERS(keys=keys, renamed=renamed, members=self.members))
        query = _PAIRS(keys=keys, renamed=renamed, members=self.members, movers=self.movers)
        return self.steps.make(target, query)

    def movers_by_value(self, target: exp.Table, sensitive: int) -> exp.Table | None:
        """Make the distinct movers of each value of a sensitive attribute; None without movers."""
        if self.movers is None:
            return None
        return self.steps.make(target, _MOVERS_BY_VALUE(value=col(f"s{sensitive}"), movers=self.movers))


def scan_members(
    steps: StatementRunner,
    persons: RemotePersons,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    person: str,
    work: Namer,
) -> RemoteMembers:
    """Read the source once, where it is. Makes ``members`` and ``movers`` there."""
    there = steps if steps.dry and steps.engine is persons.engine else steps.on(persons.engine)
    members = there.make(work("members"), raw_frequency(persons.relation, quasi, sensitive, person))
    columns = [col(name, "r") for name in (*_numbered("q", quasi), *_numbered("s", sensitive))]
    movers = there.make(work("movers"), _MOVERS(columns=columns, keys=quasi_columns(len(quasi)), members=members))
    moving = there.ask(count_persons(movers), [(1,)])[0][0]
    return RemoteMembers(there, members, movers if moving else None, len(quasi))


def _numbered(prefix: str, names: Sequence[str]) -> list[str]:
    return [f"{prefix}{i}" for i in range(len(names))]


class RemoteMovers:
    """The movers by the codes of their combinations, on the server; what is counted of them there comes here."""

    def __init__(self, steps: StatementRunner, work: Namer, coded: exp.Table, values: Sequence[exp.Table]) -> None:
        self.steps, self.work, self.coded = steps, work, coded
        self.values = tuple(values)  # of the sensitive attributes, made by `frequency.distribution.sensitive_values`
        self._numbers = count()

    def distinct(self, keys: Sequence[str], counted: str = PERSONS, within: exp.Expr | None = None) -> exp.Table:
        """Make the distinct movers by some columns of the coded table, and of no finer ones."""
        columns = [col(key) for key in keys]
        query = _DISTINCT_PERSONS(keys=columns, count=exp.to_identifier(counted), coded=within or self.coded)
        query = query.group_by(*(column.copy() for column in columns), copy=False)
        return self.steps.make(self.work(f"movers_of_classes_{next(self._numbers)}"), query)

    def of_classes(self, classes: exp.Table, pairs: Sequence[tuple[str, str]]) -> exp.Subquery:
        """The movers of some classes: by pairs of a column of the coded table, and one of the classes."""
        query = select(
            [col(PERSON, "f"), *(col(f"s{j}", "f") for j in range(len(self.values)))], aliased(self.coded, "f")
        )
        same_class = all_of(col(own, "f").eq(col(other, "x")) for own, other in pairs)
        return subquery(query.join(aliased(classes, "x"), on=same_class, copy=False), "f")

    def count(self, within: exp.Expr | None = None) -> int:
        """The movers, or those of some classes."""
        return int(self.steps.look_up(count_persons(within or self.coded), [(0,)])[0][0])


def encode_movers(
    remote: RemoteMembers, attributes: Sequence[Coded], values: Sequence[exp.Table], work: Namer
) -> RemoteMovers | None:
    """Write the codes of the movers' combinations and sensitive values, on the server. Makes ``movers_coded`` there."""
    if remote.movers is None:
        return None
    query, output = exp.Select().from_(aliased(remote.movers, "r"), copy=False), list[exp.Expr]()
    for i, attribute in enumerate(attributes):
        if not attribute.height and not attribute.unknown:
            continue
        on = same(col(f"q{i}", "r"), col("value", f"c{i}"), attribute.nullable)
        query = query.join(aliased(attribute.table, f"c{i}"), on=on, copy=False)
        output += [named(col(f"code_{j}", f"c{i}"), code_name(i, j)) for j in range(attribute.height)]
    output.append(named(all_of(col(KNOWN, f"c{i}") for i, one in enumerate(attributes) if one.unknown), KNOWN))
    for j, table in enumerate(values):
        query = query.join(aliased(table, f"v{j}"), on=same(col(f"s{j}", "r"), col("value", f"v{j}")), copy=False)
        output.append(named(col(VALUE, f"v{j}"), f"s{j}"))
    query = query.select(*output, col(PERSON, "r"), copy=False).distinct(copy=False)
    coded = remote.steps.make(work("movers_coded"), query)
    return RemoteMovers(remote.steps, work, coded, values)


def add_movers(settled: exp.Expr, keys: Sequence[str], counts: Sequence[str], movers: exp.Table) -> exp.Subquery:
    """A frequency set that serves one generalization: the classes of persons who are no movers, and those of movers."""
    columns = [col(key) for key in keys]
    own = select([*columns, *map(col, counts)], settled.copy())
    none = {POPULATION_MOVER: exp.null(), PERSONS: col(PERSONS)}
    theirs = [named(none.get(name, number(0)).copy(), name) for name in counts]
    return subquery(union_all(own, select([*(key.copy() for key in columns), *theirs], movers.copy())), "frequency")


def add_movers_to_distribution(
    settled: exp.Expr,
    keys: Sequence[str],
    pairs: ValuePairs,
    sensitive: int,
    values: Sequence[exp.Table],
    movers: exp.Table,
) -> exp.Subquery:
    """The counts of a sensitive attribute's values in the classes of one generalization, likewise; ``movers`` are
    counted by the codes of the attribute's values, and for joint ones of the others, too."""
    others = [i for i in range(len(values)) if i != sensitive] if pairs.inner else []
    inner = [f"o{i}" for i in range(pairs.inner)]
    own = select([col(name) for name in (*keys, *inner, VALUE, SHARE, ROWS)], settled.copy())
    output: list[exp.Expr] = [col(key, "m") for key in keys]
    output += [named(col("value", f"x{i}"), name) for i, name in enumerate(inner)]
    query = exp.Select().from_(aliased(movers, "m"), copy=False)
    leaf = VALUE if pairs.leaves is None else "leaf"
    query = query.join(aliased(pairs.values, "s"), on=col(f"s{sensitive}", "m").eq(col(leaf, "s")), copy=False)
    for i, other in enumerate(others):
        on = col(f"s{other}", "m").eq(col(VALUE, f"x{i}"))
        query = query.join(aliased(values[other], f"x{i}"), on=on, copy=False)
    query = query.select(*output, col(VALUE, "s"), col(SHARE, "s"), named(col(ROWS, "m"), ROWS), copy=False)
    return subquery(union_all(own, query), "distribution")
