"""The stage scan: each column of the source is read once, and of a population. Then what is counted of that:
combinations, persons, sensitive values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency import distribution as ds
from sqlanon.frequency import statements as fq
from sqlanon.frequency.codes import RowCodes
from sqlanon.frequency.distribution import ValuePairs
from sqlanon.frequency.remote_persons import RemoteMembers, scan_members
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy
from sqlanon.requirements import Distribution, Domain
from sqlanon.sources.columns import Columns, match_columns, match_population_columns
from sqlanon.sources.source import Population, RemotePersons, Source
from sqlanon.support import coding as cd
from sqlanon.support.coding import ROWS, Coded
from sqlanon.support.expressions import Namer, col, named, select, subquery, total, union_all


@dataclass(frozen=True)
class Scan:
    """What was scanned of a table."""

    raw: exp.Table | exp.Subquery  # made by `frequency.statements.raw_frequency`; or the source, under the same names
    quasi: int  # how many quasi-identifiers it has
    counted: bool = True  # whether ``n`` counts the rows; else each counts as one
    members: exp.Table | None = None  # where persons are counted: which are in which combinations
    moving: exp.Table | None = None  # and those that are in several, if there are any
    remote: RemoteMembers | None = None  # the same where the rows stay elsewhere

    @property
    def persons(self) -> bool:
        """Whether persons are counted."""
        return self.members is not None or self.remote is not None

    def column(self, name: str) -> exp.Expr:
        """What was scanned, for statements that read one column: of a source, that column alone."""
        if not isinstance(self.raw, exp.Subquery):
            return self.raw
        column = next(one for one in self.raw.this.expressions if one.alias == name)
        relation = self.raw.this.args["from_"].this
        return subquery(select([column.copy()], relation.copy()), self.raw.alias)


def scan_in_place(relation: exp.Table, quasi: Sequence[str], sensitive: Sequence[str]) -> Scan:
    """A table that is read where it stands, as often as need be."""
    names = [(name, f"q{i}") for i, name in enumerate(quasi)] + [(name, f"s{i}") for i, name in enumerate(sensitive)]
    rows = select([named(col(name), alias) for name, alias in names], relation.copy())
    return Scan(subquery(rows, "source"), len(quasi), counted=False)


def scan_table(
    steps: StatementRunner,
    relation: exp.Table,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    person: str | None,
    work: Namer,
    prefix: str = "",
    counted: str | None = None,
) -> Scan:
    """Read a table once. With ``counted``, that column says how many rows each of its rows stands for.

    Makes ``frequency_raw``, and where persons are counted ``members`` and ``movers``, all with the prefix.
    """
    raw = work(f"{prefix}frequency_raw")
    steps.make(raw, fq.raw_frequency(relation, quasi, sensitive, person, counted))
    return scan_members_of(steps, raw, len(quasi), person is not None, work, prefix)


def scan_members_of(
    steps: StatementRunner, raw: exp.Table, quasi: int, persons: bool, work: Namer, prefix: str = ""
) -> Scan:
    """What is counted of combinations that were scanned. Makes ``members`` and ``movers`` where persons are counted."""
    if not persons:
        return Scan(raw, quasi)
    members, moving = work(f"{prefix}members"), work(f"{prefix}movers")
    steps.make(members, fq.person_memberships(raw, quasi))
    steps.make(moving, fq.number_movers(members))
    return Scan(raw, quasi, True, members, moving if steps.count(moving) else None)


def make_combinations(steps: StatementRunner, own: Scan, work: Namer, prefix: str = "") -> exp.Table | exp.Subquery:
    """Make the distinct combinations of quasi-identifiers where persons are counted; else what was scanned will do."""
    if own.remote is not None:
        return own.remote.combinations(work(f"{prefix}combinations"))
    if own.members is None:
        return own.raw
    return steps.make(work(f"{prefix}combinations"), fq.person_combinations(own.members, own.moving, own.quasi))


def combine_with_population(
    steps: StatementRunner, combined: exp.Expr, own: Scan, population: Scan, types: Sequence[str], work: Namer
) -> exp.Table:
    """Make the combinations of the source and of the population in one table."""
    theirs = make_combinations(steps, population, work, "population_")
    if not population.persons:  # its rows are its persons
        keys = fq.quasi_columns(population.quasi)
        counted = work("population_counted")
        rows = named(col(ROWS), fq.PERSONS)
        steps.make(counted, select([*keys, rows], theirs.copy()))
        theirs = counted
    target = work("combinations_of_both")
    moving = population.moving is not None
    query = fq.union_population(combined, theirs, types, count_columns(own), moving)
    steps.make(target, query)
    return target


def count_columns(own: Scan, population: Scan | None = None) -> tuple[str, ...]:
    """The columns of the combinations that count."""
    found = [ROWS] if own.counted else []
    found += [fq.PERSONS] if own.persons else []
    found += [fq.MOVER] if own.moving is not None else []
    if population is not None:
        found += [fq.POPULATION]
        found += [fq.POPULATION_MOVER] if population.moving is not None else []
    return tuple(found)


def sensitive_pairs(steps: StatementRunner, own: Scan, number: int, work: Namer) -> ValuePairs:
    """A sensitive attribute's counts by combination, and its values with their shares of the source.

    Makes ``sensitive_s`` and, unless the source is read in place, ``pairs_s``.
    """
    moving = own.moving is not None
    if own.remote is not None:
        return _remote_pairs(steps, own.remote, number, work)
    if own.counted:
        query = ds.count_value_pairs(own.raw, own.quasi, number, (), own.persons, own.moving)
        pairs: exp.Expr = steps.make(work(f"pairs_{number}"), query)
    else:
        pairs = subquery(ds.row_pairs(own.raw, own.quasi, number), "pairs")
    values = steps.make(work(f"sensitive_{number}"), ds.number_sensitive_values(pairs, moving, own.counted))
    return ValuePairs(pairs, values, counted=own.counted, moving=moving)


def _remote_pairs(steps: StatementRunner, remote: RemoteMembers, number: int, work: Namer) -> ValuePairs:
    """The same of a source whose persons are counted elsewhere; makes ``movers_by_value_s``, too."""
    pairs = remote.pairs(work(f"pairs_{number}"), number)
    movers = remote.movers_by_value(work(f"movers_by_value_{number}"), number)
    columns: list[exp.Expr] = [col("value"), col(ROWS)]
    counted: exp.Expr = pairs
    if movers is not None:
        counted = subquery(union_all(select(columns, pairs.copy()), select(columns, movers.copy())), "counted")
    values = steps.make(work(f"sensitive_{number}"), ds.number_sensitive_values(counted, moving=False))
    return ValuePairs(pairs, values)


EXAMPLE_VALUES = 2
"""How many values a sensitive attribute has, where statements are only shown."""


def sensitive_domain(steps: StatementRunner, values: exp.Table, height: int) -> Domain:
    """What the source tells of a sensitive attribute."""
    return Domain(steps.count(values, EXAMPLE_VALUES), height)


def distribution_pairs(
    steps: StatementRunner,
    own: Scan,
    asked: Sequence[Distribution],
    sensitive: Mapping[str, ValuePairs],
    coded: Mapping[str, Coded],
    work: Namer,
    codes: RowCodes | None = None,
) -> dict[Distribution, ValuePairs]:
    """What the distributions that requirements look at are counted from.

    Makes ``nodes_s``, ``joint_pairs_s`` and ``domain_s``, as they are needed.
    """
    found = {}
    names = list(sensitive)
    for one in asked:
        pairs, index = sensitive[one.attribute], names.index(one.attribute)
        if codes is not None:
            pairs = replace(pairs, rows=codes.pairs(index))
        if one.kind == "nodes":
            tree = coded[one.attribute]
            nodes = steps.make(work(f"nodes_{index}"), ds.hierarchy_nodes(pairs.values, tree.table, tree.height))
            leaves = sensitive_domain(steps, pairs.values, tree.height).values
            pairs = replace(pairs, values=nodes, leaves=leaves)
        elif one.kind == "joint":
            others = tuple(i for i in range(len(names)) if i != index)
            if own.remote is not None:
                rows: exp.Expr = own.remote.pairs(work(f"joint_pairs_{index}"), index, others)
            elif own.counted:
                query = ds.count_value_pairs(own.raw, own.quasi, index, others, own.persons, own.moving)
                rows = steps.make(work(f"joint_pairs_{index}"), query)
            elif codes is not None:
                rows = codes.pairs(index, others)
            else:
                rows = subquery(ds.row_pairs(own.raw, own.quasi, index, others), "pairs")
            pairs = replace(pairs, rows=rows, inner=len(others))
        else:
            pairs = replace(pairs, domain=steps.make(work(f"domain_{index}"), ds.ordered_domain(pairs.values)))
        found[one] = pairs
    return found


def refuse_lost_values(
    steps: StatementRunner, raw: exp.Expr, names: Sequence[str], theirs: Mapping[str, str], types: Sequence[str]
) -> None:
    """Refuse a population with values that the source's columns cannot have."""
    for i, (name, type_) in enumerate(zip(names, types, strict=True)):
        if theirs[name] == type_:
            continue
        lost = steps.ask(cd.count_lost_by_cast(raw, i, type_, theirs[name]), [(0,)])[0][0]
        if lost:
            raise SourceError(
                f"population: column {name!r} is {theirs[name]} and the source's is {type_}: {lost} values cannot be "
                "cast; cast one of them with query = ..."
            )


@dataclass(frozen=True)
class ScannedPopulation:
    """What was scanned of a population: its columns of the quasi-identifiers, and of its persons."""

    scan: Scan
    columns: tuple[str, ...]
    person: str | None


@dataclass(frozen=True)
class ScanResult:
    """The values of each attribute, with counts; and what combinations are counted from.

    The two runners know the tables that are dropped once the combinations are counted.
    """

    source: Source
    columns: Columns
    steps: StatementRunner
    reader: StatementRunner
    own: Scan
    population: ScannedPopulation | None
    values: Mapping[str, AttributeValues]
    sensitive: Mapping[str, ValuePairs]

    @property
    def types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.source.columns[column] for column in self.columns.generalized]

    @property
    def their_scan(self) -> Scan | None:
        """What was scanned of the population."""
        return None if self.population is None else self.population.scan


def scan_tables(
    steps: StatementRunner, policy: Policy, source: Source, work: Namer, population: Population | None = None
) -> ScanResult:
    """Read each column once.

    Makes in the work schema what `scan_source`, `scan_population`, `attribute_values` and `sensitive_pairs` say.
    """
    columns, scanning = match_columns(policy, source), steps.on(steps.engine)
    types = [source.columns[column] for column in columns.generalized]
    own = scan_source(scanning, source, columns, work, population is not None)
    reader = scanning if population is None else population_runner(scanning, population)
    theirs = None if population is None else scan_population(reader, policy, population, types, work)
    tables = attribute_values(scanning, own, None if theirs is None else theirs.scan, types, work)
    pairs = {name: sensitive_pairs(scanning, own, s, work) for s, name in enumerate(columns.sensitive_names)}
    quasi = zip(policy.generalized_attributes, tables, types, strict=True)
    values = {name: AttributeValues(table, type_, theirs is not None) for name, table, type_ in quasi}
    for name, one in pairs.items():
        values[name] = AttributeValues(one.values, source.columns[columns.by_attribute[name]])
    steps.finish("scan", "the values of each attribute, with counts: each column is read once")
    return ScanResult(source, columns, scanning, reader, own, theirs, values, pairs)


def scan_source(steps: StatementRunner, source: Source, columns: Columns, work: Namer, population: bool) -> Scan:
    """What is to be counted of the source.

    A table is read in place. What is dear to read again (a query, a view), and what persons or a population are counted
    beside, is scanned once for its distinct combinations. What another engine has was counted there.
    """
    if columns.person is not None and source.persons is None and source.access != "rows":
        raise SourceError(
            f"source.person: persons cannot be counted in {source.location}, and their ids never leave it"
        )
    if source.persons is not None:
        return _scan_remote_persons(steps, source, source.persons, columns, work)
    if source.combinations is not None:
        own, count = source.combinations.table, source.combinations.count
        return scan_table(steps, own, columns.generalized, columns.sensitive, None, work, counted=count)
    if source.in_place and columns.person is None and not population:
        return scan_in_place(source.relation, columns.generalized, columns.sensitive)
    return scan_table(steps, source.relation, columns.generalized, columns.sensitive, columns.person, work)


def _scan_remote_persons(
    steps: StatementRunner, source: Source, persons: RemotePersons, columns: Columns, work: Namer
) -> Scan:
    """Scan a source whose rows stay elsewhere, and whose persons are counted there."""
    quasi, sensitive, person = columns.generalized, columns.sensitive, columns.person
    assert person is not None
    if not steps.dry:
        persons.open()
    remote = scan_members(steps, persons, quasi, sensitive, person, work)
    if source.combinations is not None:
        table, count = source.combinations.table, source.combinations.count
        return replace(scan_table(steps, table, quasi, sensitive, None, work, counted=count), remote=remote)
    names = [*(f"q{i}" for i in range(len(quasi))), *(f"s{i}" for i in range(len(sensitive)))]
    rows = select([*map(col, names), named(total(col(ROWS)), ROWS)], remote.members.copy(), [*map(col, names)])
    return Scan(steps.make(work("frequency_raw"), rows), len(quasi), remote=remote)


def scan_population(
    steps: StatementRunner, policy: Policy, population: Population, types: Sequence[str], work: Namer
) -> ScannedPopulation:
    """Scan the population table, by the engine that reads it, into the work schema."""
    names, person = match_population_columns(policy, population.source)
    raw = scan_raw_population(steps, policy, population, types, work)
    found = scan_members_of(steps, raw, len(names), person is not None, work, "population_")
    return ScannedPopulation(found, names, person)


def population_runner(steps: StatementRunner, population: Population) -> StatementRunner:
    """The runner of the engine that reads a population; in a dry run all is recorded in one place."""
    return steps if steps.dry else steps.on(population.engine)


def scan_raw_population(
    steps: StatementRunner, policy: Policy, population: Population, types: Sequence[str], work: Namer
) -> exp.Table:
    """Make the population by combination and person, ``population_frequency_raw``. Its values can be cast to the types
    of the source's quasi-identifiers.
    """
    names, person = match_population_columns(policy, population.source)
    query = fq.raw_frequency(population.source.relation, names, (), person)
    raw = steps.make(work("population_frequency_raw"), query)
    refuse_lost_values(steps, raw, names, population.source.columns, types)
    return raw


def attribute_values(
    steps: StatementRunner, own: Scan, population: Scan | None, types: Sequence[str], work: Namer
) -> list[exp.Table]:
    """The values of each quasi-identifier with their rows; those that only the population has, too.

    Makes ``values_i``, and with a population ``own_values_i``.
    """
    made = []
    for i, type_ in enumerate(types):
        query: exp.Query = cd.value_counts(own.column(f"q{i}"), f"q{i}", own.counted)
        if population is not None:
            mine = steps.make(work(f"own_values_{i}"), query)
            query = cd.combined_values(mine, population.raw, i, type_)
        made.append(steps.make(work(f"values_{i}"), query))
    return made
