"""From a scan of the source, and of a population, to what is counted: combinations, persons, sensitive values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.privacy import Distribution, Domain
from sqlanon.queries import distribution as ds
from sqlanon.queries import frequency as fq
from sqlanon.queries.classes import SensitiveTable
from sqlanon.queries.coding import ROWS, Coded
from sqlanon.queries.names import Namer, col, create_table, drop_table, named, select


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
    engine: Engine,
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
    engine.execute(create_table(raw, fq.raw_frequency(relation, quasi, sensitive, person)))
    if person is None:
        return Scan(raw, len(quasi), len(sensitive))
    members, moving = work(f"{prefix}members"), work(f"{prefix}movers")
    engine.execute(create_table(members, fq.memberships(raw, len(quasi))))
    engine.execute(create_table(moving, fq.movers(members)))
    there = bool(engine.rows(select([exp.Count(this=exp.Star())], moving.copy()))[0][0])
    return Scan(raw, len(quasi), len(sensitive), members, moving if there else None)


def combinations(engine: Engine, own: Scan, work: Namer, prefix: str = "") -> exp.Table:
    """Make the distinct combinations of quasi-identifiers, unless what was scanned is just that."""
    if not own.persons and not own.sensitive:
        return own.raw
    target = work(f"{prefix}combinations")
    query = fq.combinations(own.members or own.raw, own.moving, own.quasi, own.persons)
    engine.execute(create_table(target, query))
    return target


def beside_population(
    engine: Engine, own: exp.Table, scanned: Scan, population: Scan, types: Sequence[str], work: Namer
) -> exp.Table:
    """Make the combinations of the source and of the population in one table."""
    theirs = combinations(engine, population, work, "population_")
    if not population.persons:  # its rows are its persons
        keys = fq.quasi_columns(population.quasi)
        counted = work("population_counted")
        rows = named(col(ROWS), fq.PERSONS)
        engine.execute(create_table(counted, select([*keys, rows], theirs.copy())))
        theirs = counted
    target = work("combinations_of_both")
    moving = population.moving is not None
    query = fq.beside_population(own, theirs, types, counts(scanned), moving)
    engine.execute(create_table(target, query))
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


def sensitive_values(engine: Engine, own: Scan, number: int, work: Namer) -> exp.Table:
    """Make a sensitive attribute's counts by combination, and its values with their shares of the source.

    Makes ``pairs_s`` and ``sensitive_s``; gives the latter.
    """
    pairs, values = work(f"pairs_{number}"), work(f"sensitive_{number}")
    query = ds.value_pairs(own.raw, own.quasi, number, (), own.persons, own.moving)
    engine.execute(create_table(pairs, query))
    engine.execute(create_table(values, ds.sensitive_values(pairs, own.moving is not None)))
    return values


def domain_of(engine: Engine, values: exp.Table, height: int) -> Domain:
    """What the source tells of a sensitive attribute."""
    return Domain(engine.rows(select([exp.Count(this=exp.Star())], values.copy()))[0][0], height)


def sensitive_tables(
    engine: Engine,
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
    engine, own, work:
        Where, of what, and how tables are named.
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
            engine.execute(create_table(nodes, ds.nodes(values, tree.table, tree.height)))
            values, leaves = nodes, domains[one.attribute].values
        elif one.kind == "joint":
            inner = tuple(i for i in range(len(names)) if i != index)
            pairs = work(f"joint_pairs_{index}")
            engine.execute(
                create_table(pairs, ds.value_pairs(own.raw, own.quasi, index, inner, own.persons, own.moving))
            )
        domain = None
        if one.kind == "values":
            domain = work(f"domain_{index}")
            engine.execute(create_table(domain, ds.domain(values)))
        target = work(f"distribution_{number}")
        query = ds.distribution(pairs, values, attributes, len(inner), moving, leaves)
        engine.execute(create_table(target, query))
        found[one] = SensitiveTable(target, len(inner), domain)
    return found


def drop_scanned(engine: Engine, own: Scan) -> None:
    """Drop what was scanned, for all that is counted is made; who is in which combination stays."""
    engine.execute(drop_table(own.raw.copy()))
