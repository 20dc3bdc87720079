"""The stage scan: read each column of the source and of a population once, then count combinations, persons and
sensitive values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency import statements
from sqlanon.frequency.codes import RowCodes
from sqlanon.frequency.distribution import (
    ValuePairs,
    count_value_pairs,
    hierarchy_nodes,
    number_sensitive_values,
    ordered_domain,
    row_pairs,
)
from sqlanon.frequency.remote_persons import RemoteMembers, scan_members
from sqlanon.hierarchies.build import AttributeValues
from sqlanon.policy import Policy
from sqlanon.requirements import Distribution, Domain
from sqlanon.sources.columns import Columns, match_columns, match_population_columns
from sqlanon.sources.source import Population, RemotePersons, Source
from sqlanon.support import coding
from sqlanon.support.coding import ROW_COUNT, CodedAttribute, quasi_column, sensitive_column
from sqlanon.support.expressions import Namer, as_column, col, select, subquery, total, union_all


@dataclass(frozen=True)
class Scan:
    raw: exp.Table | exp.Subquery  # from `frequency.statements.raw_frequency`, or the source with the same column names
    quasi: int  # number of quasi-identifiers
    has_counts: bool = True  # whether ``row_count`` counts rows; otherwise each row counts once
    members: exp.Table | None = None  # if persons are counted: the persons of each combination
    moving: exp.Table | None = None  # persons in several combinations, if there are any
    remote: RemoteMembers | None = None  # the same for a source whose rows stay remote

    @property
    def persons(self) -> bool:
        return self.members is not None or self.remote is not None

    def column(self, name: str) -> exp.Expr:
        """The scanned relation for a statement that reads one column; of a source, only that column."""
        if not isinstance(self.raw, exp.Subquery):
            return self.raw
        column = next(output for output in self.raw.this.expressions if output.alias == name)
        relation = self.raw.this.args["from_"].this
        return subquery(select([column.copy()], relation.copy()), self.raw.alias)


def scan_in_place(relation: exp.Table, quasi: Sequence[str], sensitive: Sequence[str]) -> Scan:
    """Use a table in place: statements read it whenever they need it."""
    names = [(name, quasi_column(i)) for i, name in enumerate(quasi)] + [
        (name, sensitive_column(i)) for i, name in enumerate(sensitive)
    ]
    rows = select([as_column(col(name), alias) for name, alias in names], relation.copy())
    return Scan(subquery(rows, "source"), len(quasi), has_counts=False)


def scan_table(
    runner: StatementRunner,
    relation: exp.Table,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    person: str | None,
    work: Namer,
    count_column: str | None = None,
) -> Scan:
    """Read a table once. ``count_column``, if given, has the number of rows that each row stands for.

    Creates ``frequency_raw``, and ``members`` and ``movers`` if persons are counted.
    """
    raw = work("frequency_raw")
    runner.create_table(raw, statements.raw_frequency(relation, quasi, sensitive, person, count_column))
    return scan_members_of(runner, raw, len(quasi), person is not None, work)


def scan_members_of(
    runner: StatementRunner, raw: exp.Table, quasi: int, persons: bool, work: Namer, prefix: str = ""
) -> Scan:
    """Count the persons of scanned combinations. Creates ``members`` and ``movers`` if persons are counted."""
    if not persons:
        return Scan(raw, quasi)
    members, moving = work(f"{prefix}members"), work(f"{prefix}movers")
    runner.create_table(members, statements.person_memberships(raw, quasi))
    runner.create_table(moving, statements.number_movers(members))
    return Scan(raw, quasi, True, members, moving if runner.count(moving) else None)


def make_combinations(runner: StatementRunner, scan: Scan, work: Namer, prefix: str = "") -> exp.Table | exp.Subquery:
    """Create the distinct combinations of quasi-identifiers if persons are counted; otherwise use the scanned table."""
    if scan.remote is not None:
        return scan.remote.combinations(work(f"{prefix}combinations"))
    if scan.members is None:
        return scan.raw
    return runner.create_table(
        work(f"{prefix}combinations"), statements.person_combinations(scan.members, scan.moving, scan.quasi)
    )


def combine_with_population(
    runner: StatementRunner, combined: exp.Expr, source_scan: Scan, population: Scan, types: Sequence[str], work: Namer
) -> exp.Table:
    """Create one table with the combinations of the source and of the population."""
    population_combinations = make_combinations(runner, population, work, "population_")
    if not population.persons:  # each row is a person
        keys = statements.quasi_columns(population.quasi)
        counted_rows = work("population_counted")
        rows = as_column(col(ROW_COUNT), statements.PERSONS)
        runner.create_table(counted_rows, select([*keys, rows], population_combinations.copy()))
        population_combinations = counted_rows
    target = work("combinations_of_both")
    moving = population.moving is not None
    query = statements.union_population(combined, population_combinations, types, count_columns(source_scan), moving)
    runner.create_table(target, query)
    return target


def count_columns(scan: Scan, population: Scan | None = None) -> tuple[str, ...]:
    names = [ROW_COUNT] if scan.has_counts else []
    names += [statements.PERSONS] if scan.persons else []
    names += [statements.MOVER] if scan.moving is not None else []
    if population is not None:
        names += [statements.POPULATION]
        names += [statements.POPULATION_MOVER] if population.moving is not None else []
    return tuple(names)


def sensitive_pairs(runner: StatementRunner, scan: Scan, number: int, work: Namer) -> ValuePairs:
    """Count the values of a sensitive attribute by combination, and number its values.

    Creates ``sensitive_s``, and ``pairs_s`` unless the source is read in place.
    """
    moving = scan.moving is not None
    if scan.remote is not None:
        return _remote_pairs(runner, scan.remote, number, work)
    if scan.has_counts:
        query = count_value_pairs(scan.raw, scan.quasi, number, (), scan.persons, scan.moving)
        pairs: exp.Expr = runner.create_table(work(f"pairs_{number}"), query)
    else:
        pairs = subquery(row_pairs(scan.raw, scan.quasi, number), "pairs")
    values = runner.create_table(work(f"sensitive_{number}"), number_sensitive_values(pairs, moving, scan.has_counts))
    return ValuePairs(pairs, values, has_counts=scan.has_counts, moving=moving)


def _remote_pairs(runner: StatementRunner, remote: RemoteMembers, number: int, work: Namer) -> ValuePairs:
    """Count the values of a source whose persons are counted remotely; also creates ``movers_by_value_s``."""
    pairs = remote.pairs(work(f"pairs_{number}"), number)
    movers = remote.movers_by_value(work(f"movers_by_value_{number}"), number)
    columns: list[exp.Expr] = [col("value"), col(ROW_COUNT)]
    counted_pairs: exp.Expr = pairs
    if movers is not None:
        counted_pairs = subquery(union_all(select(columns, pairs.copy()), select(columns, movers.copy())), "counted")
    values = runner.create_table(work(f"sensitive_{number}"), number_sensitive_values(counted_pairs, moving=False))
    return ValuePairs(pairs, values)


EXAMPLE_VALUES = 2
"""The number of values of a sensitive attribute in a dry run."""


def sensitive_domain(runner: StatementRunner, values: exp.Table, height: int) -> Domain:
    """The size of a sensitive attribute's domain, and the height of its hierarchy."""
    return Domain(runner.count(values, EXAMPLE_VALUES), height)


def distribution_pairs(
    runner: StatementRunner,
    scan: Scan,
    distributions: Sequence[Distribution],
    sensitive: Mapping[str, ValuePairs],
    coded: Mapping[str, CodedAttribute],
    work: Namer,
    codes: RowCodes | None = None,
) -> dict[Distribution, ValuePairs]:
    """The value pairs of each distribution that requirements need.

    Creates ``nodes_s``, ``joint_pairs_s`` and ``domain_s`` as needed.
    """
    pairs_by_distribution = {}
    names = list(sensitive)
    for distribution in distributions:
        pairs, index = sensitive[distribution.attribute], names.index(distribution.attribute)
        if codes is not None:
            pairs = replace(pairs, rows=codes.pairs(index))
        if distribution.kind == "nodes":
            tree = coded[distribution.attribute]
            nodes = runner.create_table(work(f"nodes_{index}"), hierarchy_nodes(pairs.values, tree.table, tree.height))
            leaves = sensitive_domain(runner, pairs.values, tree.height).values
            pairs = replace(pairs, values=nodes, leaves=leaves)
        elif distribution.kind == "joint":
            inner = tuple(i for i in range(len(names)) if i != index)
            if scan.remote is not None:
                rows: exp.Expr = scan.remote.pairs(work(f"joint_pairs_{index}"), index, inner)
            elif scan.has_counts:
                query = count_value_pairs(scan.raw, scan.quasi, index, inner, scan.persons, scan.moving)
                rows = runner.create_table(work(f"joint_pairs_{index}"), query)
            elif codes is not None:
                rows = codes.pairs(index, inner)
            else:
                rows = subquery(row_pairs(scan.raw, scan.quasi, index, inner), "pairs")
            pairs = replace(pairs, rows=rows, inner=len(inner))
        else:
            pairs = replace(pairs, domain=runner.create_table(work(f"domain_{index}"), ordered_domain(pairs.values)))
        pairs_by_distribution[distribution] = pairs
    return pairs_by_distribution


def refuse_lost_values(
    runner: StatementRunner,
    raw: exp.Expr,
    names: Sequence[str],
    population_types: Mapping[str, str],
    types: Sequence[str],
) -> None:
    """Refuse a population whose values cannot be cast to the types of the source."""
    for i, (name, type_) in enumerate(zip(names, types, strict=True)):
        if population_types[name] == type_:
            continue
        lost = runner.fetch_rows(coding.count_lost_by_cast(raw, i, type_, population_types[name]), [(0,)])[0][0]
        if lost:
            raise SourceError(
                f"population: column {name!r} is {population_types[name]}, but the source's is {type_}: {lost} values "
                "cannot be cast; cast one of them with query = ..."
            )


@dataclass(frozen=True)
class ScannedPopulation:
    """A scanned population, with the names of its quasi-identifier columns and its person column."""

    scan: Scan
    columns: tuple[str, ...]
    person: str | None


@dataclass(frozen=True)
class ScanResult:
    """The values of each attribute with counts, and the scanned tables that combinations are counted from.

    Both runners know the tables that are dropped after the combinations are counted.
    """

    source: Source
    columns: Columns
    runner: StatementRunner
    reader: StatementRunner
    source_scan: Scan
    population: ScannedPopulation | None
    values: Mapping[str, AttributeValues]
    sensitive: Mapping[str, ValuePairs]

    @property
    def types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.source.columns[column] for column in self.columns.generalized]

    @property
    def population_scan(self) -> Scan | None:
        """The scan of the population, if there is one."""
        return None if self.population is None else self.population.scan


def scan_tables(
    runner: StatementRunner, policy: Policy, source: Source, work: Namer, population: Population | None = None
) -> ScanResult:
    """Read each column of the source and the population once, into tables of the work schema."""
    columns, scanning = match_columns(policy, source), runner.on(runner.engine)
    types = [source.columns[column] for column in columns.generalized]
    source_scan = scan_source(scanning, source, columns, work, population is not None)
    reader = scanning if population is None else population_runner(scanning, population)
    scanned = None if population is None else scan_population(reader, policy, population, types, work)
    tables = attribute_values(scanning, source_scan, None if scanned is None else scanned.scan, types, work)
    pairs = {name: sensitive_pairs(scanning, source_scan, s, work) for s, name in enumerate(columns.sensitive_names)}
    quasi = zip(policy.generalized_attributes, tables, types, strict=True)
    values = {name: AttributeValues(table, type_, scanned is not None) for name, table, type_ in quasi}
    for name, value_pairs in pairs.items():
        values[name] = AttributeValues(value_pairs.values, source.columns[columns.by_attribute[name]])
    runner.finish_stage("scan", "the values of each attribute, with counts: each column is read once")
    return ScanResult(source, columns, scanning, reader, source_scan, scanned, values, pairs)


def scan_source(runner: StatementRunner, source: Source, columns: Columns, work: Namer, population: bool) -> Scan:
    """Scan the source, or use it in place.

    A plain table is used in place. A query or view is expensive to read again, so its distinct combinations are scanned
    once; so are sources with persons or a population. A remote engine has counted its combinations itself.
    """
    if columns.person is not None and source.persons is None and source.access != "rows":
        raise SourceError(
            f"source.person: persons cannot be counted in {source.location}, and their ids never leave it"
        )
    if source.persons is not None:
        return _scan_remote_persons(runner, source, source.persons, columns, work)
    if source.combinations is not None:
        combinations, count = source.combinations.table, source.combinations.count
        return scan_table(runner, combinations, columns.generalized, columns.sensitive, None, work, count_column=count)
    if source.in_place and columns.person is None and not population:
        return scan_in_place(source.relation, columns.generalized, columns.sensitive)
    return scan_table(runner, source.relation, columns.generalized, columns.sensitive, columns.person, work)


def _scan_remote_persons(
    runner: StatementRunner, source: Source, persons: RemotePersons, columns: Columns, work: Namer
) -> Scan:
    """Scan a source whose rows stay remote and whose persons are counted remotely."""
    quasi, sensitive, person = columns.generalized, columns.sensitive, columns.person
    assert person is not None
    if not runner.dry:
        persons.open()
    remote = scan_members(runner, persons, quasi, sensitive, person, work)
    if source.combinations is not None:
        table, count = source.combinations.table, source.combinations.count
        return replace(scan_table(runner, table, quasi, sensitive, None, work, count_column=count), remote=remote)
    names = [*(quasi_column(i) for i in range(len(quasi))), *(sensitive_column(i) for i in range(len(sensitive)))]
    rows = select(
        [*map(col, names), as_column(total(col(ROW_COUNT)), ROW_COUNT)], remote.members.copy(), [*map(col, names)]
    )
    return Scan(runner.create_table(work("frequency_raw"), rows), len(quasi), remote=remote)


def scan_population(
    runner: StatementRunner, policy: Policy, population: Population, types: Sequence[str], work: Namer
) -> ScannedPopulation:
    """Scan the population table into the work schema, with the engine that reads it."""
    names, person = match_population_columns(policy, population.source)
    raw = scan_raw_population(runner, policy, population, types, work)
    population_scan = scan_members_of(runner, raw, len(names), person is not None, work, "population_")
    return ScannedPopulation(population_scan, names, person)


def population_runner(runner: StatementRunner, population: Population) -> StatementRunner:
    """The runner of the engine that reads the population; a dry run has only one."""
    return runner if runner.dry else runner.on(population.engine)


def scan_raw_population(
    runner: StatementRunner, policy: Policy, population: Population, types: Sequence[str], work: Namer
) -> exp.Table:
    """Create ``population_frequency_raw``: the population by combination and person.

    Refuses values that cannot be cast to the types of the source's quasi-identifiers.
    """
    names, person = match_population_columns(policy, population.source)
    query = statements.raw_frequency(population.source.relation, names, (), person)
    raw = runner.create_table(work("population_frequency_raw"), query)
    refuse_lost_values(runner, raw, names, population.source.columns, types)
    return raw


def attribute_values(
    runner: StatementRunner, scan: Scan, population: Scan | None, types: Sequence[str], work: Namer
) -> list[exp.Table]:
    """Create tables of each quasi-identifier's values with their rows, including those that only the population has.

    The tables are ``values_i``, and with a population ``own_values_i``.
    """
    tables = []
    for i, type_ in enumerate(types):
        query: exp.Query = coding.value_counts(scan.column(quasi_column(i)), quasi_column(i), scan.has_counts)
        if population is not None:
            source_values = runner.create_table(work(f"own_values_{i}"), query)
            query = coding.combined_values(source_values, population.raw, i, type_)
        tables.append(runner.create_table(work(f"values_{i}"), query))
    return tables
