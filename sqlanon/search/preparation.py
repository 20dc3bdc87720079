"""The stages from a bound source to what the search needs: scan, hierarchies, frequency sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon import coding as cd
from sqlanon.coding import Coded, Column, Levels
from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, InfeasibleError, Problem
from sqlanon.expressions import Namer, table
from sqlanon.frequency.column_figures import NEARLY, nearly_unique
from sqlanon.frequency.distribution import Pairs
from sqlanon.frequency.scan import (
    EXAMPLE_VALUES,
    Scan,
    beside_population,
    combinations,
    counts,
    distribution_pairs,
    in_place,
    refuse_lost_values,
    scan,
    sensitive_pairs,
)
from sqlanon.frequency.sets import ClassSpace, FrequencySets, Ground
from sqlanon.hierarchies import Hierarchy, build_hierarchy
from sqlanon.measures import MEASURES, Marginals
from sqlanon.policy import Policy
from sqlanon.requirements import Domain, Requirements, hierarchies_needed, requirements_of
from sqlanon.search import Lattice
from sqlanon.search.levels import forbidden_levels, lattice_of, level_problems
from sqlanon.sources import NOT_THERE, Source
from sqlanon.sources.columns import Columns, listed, match_columns, population_columns, released_columns
from sqlanon.sources.run import Population


@dataclass(frozen=True)
class SearchInput:
    """All that is known before the search."""

    policy: Policy
    asked: Policy
    """What is asked of the search. That is the policy, but for a release that is based on earlier ones: then its
    levels are no finer than theirs, and the mark of the rows that they have is a quasi-identifier, the last one."""
    source: Source
    columns: Columns
    released: tuple[Column, ...]
    """What is asked, of what, what its columns are to the policy, and what is released of it."""
    hierarchies: tuple[Hierarchy, ...]
    sensitive_hierarchies: Mapping[str, Hierarchy]
    """Of the sensitive attributes that need theirs."""
    attributes: tuple[Coded, ...]
    """Of the quasi-identifiers, in the policy's order."""
    sets: FrequencySets
    """What classes are made from: frequency sets."""
    lattice: Lattice
    """The generalizations within the attributes' level limits, without forbidden labels."""
    requirements: Requirements
    """What is asked of classes."""
    marginals: Marginals
    """What the attributes' own counts tell."""
    own: Scan
    population: Scan | None = None
    """What was scanned: of its tables, those of persons are still there."""
    population_columns: tuple[str, ...] = ()
    population_person: str | None = None
    """The population's columns of the quasi-identifiers, and of its persons."""
    after: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    """The runs of the earlier releases that it is based on; and of those some of whose rows are not in the source
    any more, or are others now."""

    @property
    def work(self) -> Namer:
        """How tables of the run are named."""
        return self.sets.work

    @property
    def weights(self) -> list[float]:
        """Of the quasi-identifiers that the search has; the marks of earlier releases are no value that is lost."""
        own = [self.policy.attributes[name].weight for name in self.policy.generalized]
        return own + [0.0] * (len(self.attributes) - len(own))

    @property
    def own_attributes(self) -> tuple[Coded, ...]:
        """Of the policy's quasi-identifiers: without the marks of earlier releases."""
        return self.attributes[: len(self.policy.generalized)]

    @property
    def own_hierarchies(self) -> tuple[Hierarchy, ...]:
        """Of the policy's quasi-identifiers: without that of the marks of earlier releases."""
        return self.hierarchies[: len(self.policy.generalized)]

    @property
    def heights(self) -> dict[str, int]:
        """The heights of their hierarchies, by attribute."""
        return {one.attribute: one.height for one in self.own_hierarchies}

    @property
    def types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.source.columns[column] for column in self.columns.generalized]


@dataclass(frozen=True)
class Scanned:
    """The values of each attribute, with counts; and what combinations are counted from.

    The two runners know the tables that are dropped once the combinations are counted.
    """

    columns: Columns
    steps: StatementRunner
    reader: StatementRunner
    own: Scan
    population: Scan | None
    values: tuple[exp.Table, ...]
    sensitive: Mapping[str, Pairs]


@dataclass(frozen=True)
class Hierarchies:
    """The hierarchies of the quasi-identifiers, in the policy's order, and of sensitive attributes that need theirs."""

    quasi: tuple[Hierarchy, ...]
    sensitive: Mapping[str, Hierarchy]
    values: Mapping[str, _Values]


def scan_values(
    steps: StatementRunner, policy: Policy, source: Source, work: Namer, population: Population | None = None
) -> Scanned:
    """Read each column once.

    Makes in the work schema what `scan_source`, `scan_population`, `attribute_values` and `sensitive_pairs` say.
    """
    columns, steps = match_columns(policy, source), steps.on(steps.engine)
    types = [source.columns[column] for column in columns.generalized]
    own = scan_source(steps, source, columns, work, population is not None)
    reader = steps if population is None or steps.dry else steps.on(population.engine)
    theirs = None if population is None else scan_population(reader, policy, population, types, work)
    values = attribute_values(steps, own, theirs, types, work)
    sensitive = {name: sensitive_pairs(steps, own, s, work) for s, name in enumerate(columns.sensitive_names)}
    return Scanned(columns, steps, reader, own, theirs, tuple(values), sensitive)


def build_hierarchies(
    steps: StatementRunner, policy: Policy, source: Source, scanned: Scanned, work: Namer
) -> Hierarchies:
    """Build and validate the hierarchies over the values. Makes ``hierarchy_i`` and ``sensitive_hierarchy_s``."""
    columns, values = scanned.columns, _facts(steps, policy, scanned)
    if not values[policy.generalized[0]].rows and not steps.dry:
        raise InfeasibleError("the source has no rows: there is nothing to release", None, 0, 0)
    built: dict[str, Hierarchy] = {}
    problems: list[Problem] = []
    targets = {name: work(f"hierarchy_{i}") for i, name in enumerate(policy.generalized)}
    targets |= {
        name: work(f"sensitive_hierarchy_{s}")
        for s, name in enumerate(columns.sensitive_names)
        if name in hierarchies_needed(policy.privacy)
    }
    for name, target in targets.items():
        spec, type_, of = policy.attributes[name], source.columns[columns.by_attribute[name]], values[name]
        rules = spec.hierarchy or ()
        hierarchy, found = build_hierarchy(steps, name, rules, of.table, type_, target, spec.on_unknown, of.nullable)
        problems.extend(found)
        if hierarchy is not None:
            problems.extend(() if steps.dry else level_problems(steps, name, spec, hierarchy))
            built[name] = hierarchy
    if problems:
        raise HierarchyError(problems)
    quasi = tuple(built[name] for name in policy.generalized)
    return Hierarchies(quasi, {name: built[name] for name in built if name not in policy.generalized}, values)


def count_combinations(
    steps: StatementRunner,
    policy: Policy,
    source: Source,
    scanned: Scanned,
    trees: Hierarchies,
    work: Namer,
    population: Population | None = None,
) -> SearchInput:
    """Write labels as small integers, and say how classes are counted.

    Of a source that is read in place frequency sets are made later, where they are needed; of what was scanned there is
    one, and the scan is dropped. Makes ``coded_i`` and ``sensitive_coded_s``, and what `counted_from` says.
    """
    columns, values, own = scanned.columns, trees.values, scanned.own
    # Each engine writes the text of a number in its own way: it is made here.
    texts = source.access != "rows" and policy.release is not None and policy.release.suppressed == "mask"
    attributes = tuple(
        _coded(steps, columns.generalized[i], trees.quasi[i], values[name], work(f"coded_{i}"), texts)
        for i, name in enumerate(policy.generalized)
    )
    coded = {
        name: _coded(steps, columns.by_attribute[name], tree, values[name], work(f"sensitive_coded_{s}"))
        for s, name in enumerate(columns.sensitive_names)
        if (tree := trees.sensitive.get(name)) is not None
    }
    domains = {
        name: Domain(_count(values[name]), coded[name].height if name in coded else 0) for name in scanned.sensitive
    }
    requirements = requirements_of(policy.privacy, policy.generalized, domains)
    rows, measure = values[policy.generalized[0]].rows, MEASURES[policy.search.measure]
    figures = [_marginal_figures(steps, attribute, measure.needs_entropy) for attribute in attributes]
    marginals = _marginals(rows, trees.quasi, figures, measure.needs_entropy)
    attributes = tuple(
        replace(attribute, unknown=bool(unknown))
        for attribute, unknown in zip(attributes, marginals.unknown, strict=True)
    )
    types = [source.columns[column] for column in columns.generalized]
    ground = counted_from(
        scanned.steps, own, scanned.population, types, attributes, scanned.sensitive, coded, requirements, rows, work
    )
    space = class_space(own, scanned.population, marginals.heights, requirements, any(marginals.unknown))
    lattice = lattice_of(policy, marginals.heights, forbidden_levels(steps, policy, attributes))
    # What was scanned is let go of once it is counted, at levels that serve whatever is asked about later.
    floor = (0,) * len(attributes) if own.counted else lattice.bottom
    sets = FrequencySets(scanned.steps, work, ground, space, floor)
    if own.counted or steps.dry:
        _drop_scan(scanned, sets, floor)
    names, person = ((), None) if population is None else population_columns(policy, population.source)
    return SearchInput(
        policy=policy,
        asked=policy,
        source=source,
        columns=columns,
        released=released_columns(policy, source),
        hierarchies=trees.quasi,
        sensitive_hierarchies=trees.sensitive,
        attributes=attributes,
        sets=sets,
        lattice=lattice,
        requirements=requirements,
        marginals=marginals,
        own=own,
        population=scanned.population,
        population_columns=names,
        population_person=person,
    )


def unique_columns(engine: Engine, prepared: SearchInput, share: float = NEARLY) -> list[str]:
    """The columns that are released as they are, and are nearly unique; of those whose values are here, or counted."""
    names = [name for name in _as_they_are(prepared) if prepared.source.columns[name] != NOT_THERE]
    return nearly_unique(names, prepared.source.distinct_counts(engine, names), share) if names else []


def unique_warnings(prepared: SearchInput, unique: Sequence[str]) -> tuple[str, ...]:
    """Tell of columns that are released as they are, and re-identify by themselves."""
    not_there = [name for name in _as_they_are(prepared) if prepared.source.columns[name] == NOT_THERE]
    warnings: tuple[str, ...] = ()
    if not_there:
        message = f"whether the values of {listed(not_there)} re-identify people by themselves is not known here"
        warnings = (f"{message}: audit.sql of the export counts them in the warehouse",)
    return warnings + tuple(
        f"column {name!r} is nearly unique: its values re-identify people by themselves; make it identifying, "
        "or a quasi-identifier"
        for name in unique
    )


def _as_they_are(prepared: SearchInput) -> list[str]:
    noisy = prepared.columns.noisy
    return [column.name for column in prepared.released if column.quasi is None and column.name not in noisy]


def _drop_scan(scanned: Scanned, sets: FrequencySets, floor: Levels) -> None:
    """Drop what was made on the way to a frequency set: memory is for what is still needed."""
    space = sets.at(floor)
    sensitive = [table for one in space.sensitive.values() for table in (one.table, one.domain)]
    sensitive += [one.values for one in sets.ground.sensitive.values()]  # for rows that are suppressed after noise
    scanned.steps.drop_all_but(
        [table for table in (space.frequency, scanned.own.members, *sensitive) if table is not None]
    )
    if scanned.population is not None:
        scanned.reader.drop_all_but([table for table in (scanned.population.members,) if table is not None])


def scan_source(steps: StatementRunner, source: Source, columns: Columns, work: Namer, population: bool) -> Scan:
    """What is to be counted of the source.

    A table is read in place. What is dear to read again (a query, a view), and what persons or a population are counted
    beside, is scanned once for its distinct combinations. What another engine has was counted there.
    """
    if source.counted is not None:
        own, count = source.counted.table, source.counted.count
        return scan(steps, own, columns.generalized, columns.sensitive, None, work, counted=count)
    if source.in_place and columns.person is None and not population:
        return in_place(source.relation, columns.generalized, columns.sensitive)
    return scan(steps, source.relation, columns.generalized, columns.sensitive, columns.person, work)


def scan_population(
    steps: StatementRunner, policy: Policy, population: Population, types: Sequence[str], work: Namer
) -> Scan:
    """Scan the population table, by the engine that reads it, into the work schema."""
    names, person = population_columns(policy, population.source)
    found = scan(steps, population.source.relation, names, (), person, work, "population_")
    refuse_lost_values(steps, found.raw, names, population.source.columns, types)
    return found


def attribute_values(
    steps: StatementRunner, own: Scan, population: Scan | None, types: Sequence[str], work: Namer
) -> list[exp.Table]:
    """The values of each quasi-identifier with their rows; those that only the population has, too.

    Makes ``values_i``, and with a population ``own_values_i``.
    """
    made = []
    for i, type_ in enumerate(types):
        query: exp.Query = cd.value_counts(own.raw, f"q{i}", own.counted)
        if population is not None:
            mine = steps.make(work(f"own_values_{i}"), query)
            query = cd.values_of_both(mine, population.raw, i, type_)
        made.append(steps.make(work(f"values_{i}"), query))
    return made


def counted_from(
    steps: StatementRunner,
    own: Scan,
    population: Scan | None,
    types: Sequence[str],
    attributes: tuple[Coded, ...],
    sensitive: Mapping[str, Pairs],
    coded: Mapping[str, Coded],
    requirements: Requirements,
    rows: int,
    work: Namer,
) -> Ground:
    """What frequency sets and the counts of sensitive values are made from."""
    combined: exp.Expr = combinations(steps, own, work)
    if population is not None:
        combined = beside_population(steps, combined, own, population, types, work)
    pairs = distribution_pairs(steps, own, requirements.distributions, sensitive, coded, work)
    return Ground(combined, counts(own, population), pairs, attributes, rows)


def class_space(
    own: Scan, population: Scan | None, heights: Levels, requirements: Requirements, unknown: bool
) -> ClassSpace:
    """What is to be known of classes, beside the tables that they are counted from."""
    return ClassSpace(
        table("frequency"),
        heights,
        requirements,
        unknown,
        persons=own.persons,
        moving=own.moving is not None,
        population=population is not None,
        population_moving=population is not None and population.moving is not None,
    )


@dataclass(frozen=True)
class _Values:
    """An attribute's values: their table, how many there are (None in a dry run), whether NULL is one, and rows."""

    table: exp.Table
    count: int | None
    nullable: bool
    rows: int


def _facts(steps: StatementRunner, policy: Policy, scanned: Scanned) -> dict[str, _Values]:
    """What has to be known of the values of attributes, by name."""
    tables = dict(zip(policy.generalized, scanned.values, strict=True))
    tables |= {name: one.values for name, one in scanned.sensitive.items()}
    rows = steps.look_up(cd.facts(list(tables.values())), [(i, None, True, 0) for i in range(len(tables))])
    return {name: _Values(tables[name], *row[1:]) for name, row in zip(tables, rows, strict=True)}


def _count(values: _Values) -> int:
    return EXAMPLE_VALUES if values.count is None else values.count


def _coded(
    steps: StatementRunner,
    column: str,
    hierarchy: Hierarchy,
    values: _Values,
    coded: exp.Table,
    texts: bool = False,
) -> Coded:
    """Make an attribute's coded values. Whether it has unknown ones is seen in its marginals, later."""
    top, nullable = hierarchy.top or "", values.nullable
    query = cd.coded_values(values.table, hierarchy.table, hierarchy.height, top, nullable, values.count, texts)
    steps.make(coded, query)
    return Coded(column, hierarchy.height, coded, nullable, unknown=True, texts=cd.TEXTS if texts else None)


def _marginal_figures(steps: StatementRunner, attribute: Coded, entropy: bool) -> tuple[float, ...]:
    query = cd.marginals(attribute, entropy)
    return steps.look_up(query, [(0,) * len(query.selects)])[0]


def _marginals(
    rows: int, hierarchies: tuple[Hierarchy, ...], figures: list[tuple[float, ...]], entropy: bool
) -> Marginals:
    heights = tuple(hierarchy.height for hierarchy in hierarchies)
    leaves = tuple(hierarchy.leaves for hierarchy in hierarchies)
    unknown = tuple(int(row[0]) for row in figures)
    leaf_sums = tuple(
        (0.0, *row[1:height], *([(rows - u) * (n - 1.0)] if height else []))
        for row, height, n, u in zip(figures, heights, leaves, unknown, strict=True)
    )
    entropies = tuple((0.0, *row[max(height, 1) :]) for row, height in zip(figures, heights, strict=True))
    return Marginals(rows, heights, leaves, unknown, leaf_sums, entropies if entropy else ())
