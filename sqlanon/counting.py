"""From a scan of the source, and of a population, to what is counted: combinations, persons, sensitive values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.errors import SourceError
from sqlanon.privacy import Distribution, Domain
from sqlanon.queries import coding as cd
from sqlanon.queries import distribution as ds
from sqlanon.queries import frequency as fq
from sqlanon.queries.classes import SensitiveTable
from sqlanon.queries.coding import ROWS, Coded
from sqlanon.queries.names import Namer, col, named, select
from sqlanon.steps import Steps


@dataclass(frozen=True)
class Scan:
    """What was scanned of a table.

    Attributes
    ----------
    raw:
        The distinct combinations, made by `queries.frequency.raw_frequency`.
    quasi, sensitive:
        How many quasi-identifiers and sensitive attributes it has.
    members, moving:
        Where persons are counted: which are in which combinations, and those that are in several, if there are any.
    """

    raw: exp.Table
    quasi: int
    sensitive: int = 0
    members: exp.Table | None = None
    moving: exp.Table | None = None

    @property
    def persons(self) -> bool:
        """Whether persons are counted."""
        return self.members is not None


def scan(
    steps: Steps,
    relation: exp.Table,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    person: str | None,
    work: Namer,
    prefix: str = "",
) -> Scan:
    """Read a table once.

    Makes ``frequency_raw``, and where persons are counted ``members`` and ``movers``, all with the prefix.
    """
    raw = work(f"{prefix}frequency_raw")
    steps.make(raw, fq.raw_frequency(relation, quasi, sensitive, person))
    if person is None:
        return Scan(raw, len(quasi), len(sensitive))
    members, moving = work(f"{prefix}members"), work(f"{prefix}movers")
    steps.make(members, fq.memberships(raw, len(quasi)))
    steps.make(moving, fq.movers(members))
    there = bool(steps.ask(select([exp.Count(this=exp.Star())], moving.copy()), [(0,)])[0][0])
    return Scan(raw, len(quasi), len(sensitive), members, moving if there else None)


def combinations(steps: Steps, own: Scan, work: Namer, prefix: str = "") -> exp.Table:
    """Make the distinct combinations of quasi-identifiers, unless what was scanned is just that."""
    if not own.persons and not own.sensitive:
        return own.raw
    target = work(f"{prefix}combinations")
    query = fq.combinations(own.members or own.raw, own.moving, own.quasi, own.persons)
    steps.make(target, query)
    return target


def beside_population(
    steps: Steps, own: exp.Table, scanned: Scan, population: Scan, types: Sequence[str], work: Namer
) -> exp.Table:
    """Make the combinations of the source and of the population in one table."""
    theirs = combinations(steps, population, work, "population_")
    if not population.persons:  # its rows are its persons
        keys = fq.quasi_columns(population.quasi)
        counted = work("population_counted")
        rows = named(col(ROWS), fq.PERSONS)
        steps.make(counted, select([*keys, rows], theirs.copy()))
        theirs = counted
    target = work("combinations_of_both")
    moving = population.moving is not None
    query = fq.beside_population(own, theirs, types, counts(scanned), moving)
    steps.make(target, query)
    return target


def counts(own: Scan, population: Scan | None = None) -> tuple[str, ...]:
    """The columns of the frequency set that count."""
    found = [ROWS]
    found += [fq.PERSONS] if own.persons else []
    found += [fq.MOVER] if own.moving is not None else []
    if population is not None:
        found += [fq.POPULATION]
        found += [fq.POPULATION_MOVER] if population.moving is not None else []
    return tuple(found)


def sensitive_values(steps: Steps, own: Scan, number: int, work: Namer) -> exp.Table:
    """Make a sensitive attribute's counts by combination, and its values with their shares of the source.

    Makes ``pairs_s`` and ``sensitive_s``; gives the latter.
    """
    pairs, values = work(f"pairs_{number}"), work(f"sensitive_{number}")
    query = ds.value_pairs(own.raw, own.quasi, number, (), own.persons, own.moving)
    steps.make(pairs, query)
    steps.make(values, ds.sensitive_values(pairs, own.moving is not None))
    return values


EXAMPLE_VALUES = 2
"""How many values a sensitive attribute has, where statements are only shown."""


def domain_of(steps: Steps, values: exp.Table, height: int) -> Domain:
    """What the source tells of a sensitive attribute."""
    count = select([exp.Count(this=exp.Star())], values.copy())
    return Domain(steps.ask(count, [(EXAMPLE_VALUES,)])[0][0], height)


def sensitive_tables(
    steps: Steps,
    own: Scan,
    asked: Sequence[Distribution],
    names: Sequence[str],
    attributes: Sequence[Coded],
    coded: Mapping[str, Coded],
    domains: Mapping[str, Domain],
    work: Namer,
) -> dict[Distribution, SensitiveTable]:
    """Make the counts of sensitive values that requirements look at.

    Parameters
    ----------
    steps, own, work:
        How, of what, and how tables are named.
    asked:
        The distributions that are looked at.
    names:
        The sensitive attributes that were scanned, in order.
    attributes:
        The quasi-identifiers.
    coded, domains:
        The coded values of sensitive attributes with a hierarchy, and what the source tells of each attribute.
    """
    found = {}
    moving = own.moving is not None
    for number, one in enumerate(asked):
        index = names.index(one.attribute)
        values, pairs = work(f"sensitive_{index}"), work(f"pairs_{index}")
        inner: tuple[int, ...] = ()
        leaves = None
        if one.kind == "nodes":
            nodes = work(f"nodes_{index}")
            tree = coded[one.attribute]
            steps.make(nodes, ds.nodes(values, tree.table, tree.height))
            values, leaves = nodes, domains[one.attribute].values
        elif one.kind == "joint":
            inner = tuple(i for i in range(len(names)) if i != index)
            pairs = work(f"joint_pairs_{index}")
            steps.make(pairs, ds.value_pairs(own.raw, own.quasi, index, inner, own.persons, own.moving))
        domain = None
        if one.kind == "values":
            domain = work(f"domain_{index}")
            steps.make(domain, ds.domain(values))
        target = work(f"distribution_{number}")
        query = ds.distribution(pairs, values, attributes, len(inner), moving, leaves)
        steps.make(target, query)
        found[one] = SensitiveTable(target, len(inner), domain)
    return found


def refuse_lost_values(
    steps: Steps, raw: exp.Table, names: Sequence[str], theirs: Mapping[str, str], types: Sequence[str]
) -> None:
    """Refuse a population with values that the source's columns cannot have.

    Parameters
    ----------
    steps, raw:
        How, and what was scanned of the population.
    names, theirs, types:
        Its columns of the quasi-identifiers, the types of all its columns, and the types in the source.

    Raises
    ------
    SourceError
        Names the column; its values cannot be cast and back.
    """
    for i, (name, type_) in enumerate(zip(names, types, strict=True)):
        if theirs[name] == type_:
            continue
        lost = steps.ask(cd.lost_by_cast(raw, i, type_, theirs[name]), [(0,)])[0][0]
        if lost:
            raise SourceError(
                f"population: column {name!r} is {theirs[name]} and the source's is {type_}: {lost} values cannot be "
                "cast; cast one of them with query = ..."
            )
