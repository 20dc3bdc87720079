"""From a bound source to what the search needs: frequency set, hierarchies, marginals.

For the search the source is scanned once: its distinct combinations of values. All else is made from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.columns import Columns, match_columns, population_columns, released_columns
from sqlanon.counting import (
    Scan,
    beside_population,
    combinations,
    counts,
    domain_of,
    refuse_lost_values,
    scan,
    sensitive_tables,
    sensitive_values,
)
from sqlanon.engines.base import Engine
from sqlanon.errors import HierarchyError, InfeasibleError, Problem
from sqlanon.hierarchies import Hierarchy, build_hierarchy
from sqlanon.policy import Attribute, Policy
from sqlanon.privacy import Domain, Requirements, requirements_of
from sqlanon.quality import MEASURES, Marginals
from sqlanon.queries import coding as cd
from sqlanon.queries import frequency as fq
from sqlanon.queries.classes import ClassSpace
from sqlanon.queries.coding import Coded
from sqlanon.queries.names import Namer, create_table
from sqlanon.queries.recode import Column
from sqlanon.search import Lattice
from sqlanon.sources import Source
from sqlanon.steps import Steps
from sqlanon.workspace import Population


@dataclass(frozen=True)
class Prepared:
    """All that is known before the search.

    Attributes
    ----------
    policy, source, columns, released:
        What is asked, of what, what its columns are to the policy, and what is released of it.
    hierarchies, attributes:
        Of the quasi-identifiers, in the policy's order.
    sensitive_hierarchies:
        Of the sensitive attributes that need theirs.
    space:
        What classes are made from.
    marginals:
        What the attributes' own counts tell.
    own, population:
        What was scanned: of its tables, those of persons are still there.
    population_columns, population_person:
        The population's columns of the quasi-identifiers, and of its persons.
    """

    policy: Policy
    source: Source
    columns: Columns
    released: tuple[Column, ...]
    hierarchies: tuple[Hierarchy, ...]
    sensitive_hierarchies: Mapping[str, Hierarchy]
    attributes: tuple[Coded, ...]
    space: ClassSpace
    marginals: Marginals
    own: Scan
    population: Scan | None = None
    population_columns: tuple[str, ...] = ()
    population_person: str | None = None

    @property
    def types(self) -> list[str]:
        """The types of the quasi-identifiers in the source."""
        return [self.source.columns[column] for column in self.columns.quasi]

    @property
    def lattice(self) -> Lattice:
        """The generalizations within the attributes' level limits."""
        specs = [self.policy.attributes[name] for name in self.policy.quasi]
        heights = self.space.heights
        return Lattice(
            self.policy.quasi,
            tuple(min(spec.min_level, height) for spec, height in zip(specs, heights, strict=True)),
            tuple(
                height if spec.max_level is None else min(spec.max_level, height)
                for spec, height in zip(specs, heights, strict=True)
            ),
        )


def prepare(
    engine: Engine, policy: Policy, source: Source, work: Namer, population: Population | None = None
) -> Prepared:
    """Scan the source, build and validate the hierarchies, make the frequency set and the counts of sensitive values.

    Makes in the work schema: ``values_i``, ``hierarchy_i``, ``coded_i`` and ``frequency``; where requirements look at
    sensitive attributes ``sensitive_s``, ``pairs_s`` and ``distribution_d``.

    Parameters
    ----------
    engine, policy, source, work:
        Where, what is asked, of what, and how tables are named.
    population:
        The population table, where the policy has one.

    Raises
    ------
    SourceError
        The source or the population does not fit the policy.
    HierarchyError
        With the problems of all hierarchies.
    InfeasibleError
        The source has no rows.
    """
    columns = match_columns(policy, source)
    steps = Steps(engine)
    own = scan(steps, source.relation, columns.quasi, columns.sensitive, columns.person, work)
    rows = engine.rows(fq.row_count(own.raw))[0][0]
    if not rows:
        raise InfeasibleError("the source has no rows: there is nothing to release", None, 0, 0)
    types = [source.columns[column] for column in columns.quasi]
    reader = steps if population is None else Steps(population.engine)
    theirs = None if population is None else scan_population(reader, policy, population, types, work)
    sensitive = [sensitive_values(steps, own, s, work) for s in range(own.sensitive)]
    hierarchies, trees = _hierarchies(engine, policy, source, columns, own, theirs, work)
    attributes = tuple(
        _coded(engine, column, hierarchy, work(f"values_{i}"), work(f"coded_{i}"))
        for i, (column, hierarchy) in enumerate(zip(columns.quasi, hierarchies, strict=True))
    )
    coded = {
        name: _coded(engine, columns.by_attribute[name], tree, sensitive[s], work(f"sensitive_coded_{s}"))
        for s, name in enumerate(columns.sensitive_names)
        if (tree := trees.get(name)) is not None
    }
    domains = {
        name: domain_of(steps, sensitive[s], coded[name].height if name in coded else 0)
        for s, name in enumerate(columns.sensitive_names)
    }
    requirements = requirements_of(policy.privacy, policy.quasi, domains)
    measure = MEASURES[policy.search.measure]
    figures = [engine.rows(cd.marginals(attribute, measure.needs_entropy))[0] for attribute in attributes]
    marginals = _marginals(rows, hierarchies, figures, measure.needs_entropy)
    attributes = tuple(
        replace(attribute, unknown=bool(unknown))
        for attribute, unknown in zip(attributes, marginals.unknown, strict=True)
    )
    space = counted(steps, policy, columns, own, theirs, types, attributes, coded, domains, requirements, work)
    space = replace(space, heights=marginals.heights, unknown=any(marginals.unknown))
    steps.drop_all_but(_needed(space, own))
    if theirs is not None:
        reader.drop_all_but([table for table in (theirs.members,) if table is not None])
    return Prepared(
        policy,
        source,
        columns,
        released_columns(policy, source),
        hierarchies,
        trees,
        attributes,
        space,
        marginals,
        own,
        theirs,
        *(population_columns(policy, population.source) if population is not None else ()),
    )


def _needed(space: ClassSpace, own: Scan) -> list[exp.Expr]:
    """The tables that checks read, and who is in which combination."""
    sensitive = [table for one in space.sensitive.values() for table in (one.table, one.domain)]
    return [table for table in (space.frequency, own.members, *sensitive) if table is not None]


def scan_population(steps: Steps, policy: Policy, population: Population, types: Sequence[str], work: Namer) -> Scan:
    """Scan the population table, by the engine that reads it, into the work schema.

    Raises
    ------
    SourceError
        A column is missing, or has values that the source's column cannot have.
    """
    names, person = population_columns(policy, population.source)
    found = scan(steps, population.source.relation, names, (), person, work, "population_")
    refuse_lost_values(steps, found.raw, names, population.source.columns, types)
    return found


def counted(
    steps: Steps,
    policy: Policy,
    columns: Columns,
    own: Scan,
    population: Scan | None,
    types: Sequence[str],
    attributes: tuple[Coded, ...],
    coded: Mapping[str, Coded],
    domains: Mapping[str, Domain],
    requirements: Requirements,
    work: Namer,
) -> ClassSpace:
    """Make the frequency set and the counts of sensitive values: what classes are made from."""
    combined = combinations(steps, own, work)
    if population is not None:
        combined = beside_population(steps, combined, own, population, types, work)
    leaves = MEASURES[policy.search.measure].needs_leaves
    frequency = steps.make(work("frequency"), fq.frequency(combined, attributes, counts(own, population), leaves))
    return ClassSpace(
        frequency,
        tuple(attribute.height for attribute in attributes),
        requirements,
        sensitive=sensitive_tables(
            steps, own, requirements.distributions, columns.sensitive_names, attributes, coded, domains, work
        ),
        persons=own.persons,
        moving=own.moving is not None,
        population=population is not None,
        population_moving=population is not None and population.moving is not None,
    )


def _hierarchies(
    engine: Engine, policy: Policy, source: Source, columns: Columns, own: Scan, population: Scan | None, work: Namer
) -> tuple[tuple[Hierarchy, ...], dict[str, Hierarchy]]:
    """Build the hierarchies of the quasi-identifiers, and of the sensitive attributes that need theirs."""
    built: dict[str, Hierarchy] = {}
    problems: list[Problem] = []

    def build(name: str, values: exp.Table, target: exp.Table) -> None:
        spec, type_ = policy.attributes[name], source.columns[columns.by_attribute[name]]
        hierarchy, found = build_hierarchy(engine, name, spec.hierarchy or (), values, type_, target, spec.on_unknown)
        problems.extend(found)
        if hierarchy is not None:
            problems.extend(_level_problems(name, spec, hierarchy))
            built[name] = hierarchy

    for i, (name, column) in enumerate(zip(policy.quasi, columns.quasi, strict=True)):
        values = work(f"values_{i}")
        if population is None:
            engine.execute(create_table(values, cd.value_counts(own.raw, i)))
        else:
            mine = work(f"own_values_{i}")
            engine.execute(create_table(mine, cd.value_counts(own.raw, i)))
            both = cd.values_of_both(mine, population.raw, i, source.columns[column])
            engine.execute(create_table(values, both))
        build(name, values, work(f"hierarchy_{i}"))
    for s, name in enumerate(columns.sensitive_names):
        if any(one.attribute == name and one.distance == "hierarchical" for one in policy.privacy.t_closeness):
            build(name, work(f"sensitive_{s}"), work(f"sensitive_hierarchy_{s}"))
    if problems:
        raise HierarchyError(problems)
    return tuple(built[name] for name in policy.quasi), {
        name: built[name] for name in built if name not in policy.quasi
    }


def _level_problems(name: str, spec: Attribute, hierarchy: Hierarchy) -> list[Problem]:
    limits = {"min_level": spec.min_level, "max_level": spec.max_level}
    return [
        Problem(f"attributes.{name}.{key}", f"is {limit}, but the hierarchy's top level is {hierarchy.height}")
        for key, limit in limits.items()
        if limit is not None and limit > hierarchy.height
    ]


def _coded(engine: Engine, column: str, hierarchy: Hierarchy, values: exp.Table, coded: exp.Table) -> Coded:
    """Make an attribute's coded values. Whether it has unknown ones is seen in its marginals, later."""
    nullable = bool(engine.rows(cd.has_null(values))[0][0])
    query = cd.coded_values(values, hierarchy.table, hierarchy.height, hierarchy.top or "", nullable)
    engine.execute(create_table(coded, query))
    return Coded(column, hierarchy.height, coded, nullable, unknown=True)


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
