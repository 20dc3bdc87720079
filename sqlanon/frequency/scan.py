"""From a scan of the source, and of a population, to what is counted: combinations, persons, sensitive values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon import coding as cd
from sqlanon.coding import ROWS, Coded
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.expressions import Namer, col, named, select, subquery
from sqlanon.frequency import distribution as ds
from sqlanon.frequency import statements as fq
from sqlanon.frequency.distribution import Pairs
from sqlanon.requirements import Distribution, Domain


@dataclass(frozen=True)
class Scan:
    """What was scanned of a table.

    Attributes
    ----------
    raw:
        The distinct combinations, made by `frequency.statements.raw_frequency`; or the source, under the same names.
    quasi:
        How many quasi-identifiers it has.
    counted:
        Whether ``n`` counts the rows; else each counts as one.
    members, moving:
        Where persons are counted: which are in which combinations, and those that are in several, if there are any.
    """

    raw: exp.Table | exp.Subquery
    quasi: int
    counted: bool = True
    members: exp.Table | None = None
    moving: exp.Table | None = None

    @property
    def persons(self) -> bool:
        """Whether persons are counted."""
        return self.members is not None


def in_place(relation: exp.Table, quasi: Sequence[str], sensitive: Sequence[str]) -> Scan:
    """A table that is read where it stands, as often as need be."""
    names = [(name, f"q{i}") for i, name in enumerate(quasi)] + [(name, f"s{i}") for i, name in enumerate(sensitive)]
    rows = select([named(col(name), alias) for name, alias in names], relation.copy())
    return Scan(subquery(rows, "source"), len(quasi), counted=False)


def scan(
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
    if person is None:
        return Scan(raw, len(quasi))
    members, moving = work(f"{prefix}members"), work(f"{prefix}movers")
    steps.make(members, fq.memberships(raw, len(quasi)))
    steps.make(moving, fq.movers(members))
    return Scan(raw, len(quasi), True, members, moving if steps.count(moving) else None)


def combinations(steps: StatementRunner, own: Scan, work: Namer, prefix: str = "") -> exp.Table | exp.Subquery:
    """Make the distinct combinations of quasi-identifiers where persons are counted; else what was scanned will do."""
    if own.members is None:
        return own.raw
    return steps.make(work(f"{prefix}combinations"), fq.combinations(own.members, own.moving, own.quasi))


def beside_population(
    steps: StatementRunner, combined: exp.Expr, own: Scan, population: Scan, types: Sequence[str], work: Namer
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
    query = fq.beside_population(combined, theirs, types, counts(own), moving)
    steps.make(target, query)
    return target


def counts(own: Scan, population: Scan | None = None) -> tuple[str, ...]:
    """The columns of the combinations that count."""
    found = [ROWS] if own.counted else []
    found += [fq.PERSONS] if own.persons else []
    found += [fq.MOVER] if own.moving is not None else []
    if population is not None:
        found += [fq.POPULATION]
        found += [fq.POPULATION_MOVER] if population.moving is not None else []
    return tuple(found)


def sensitive_pairs(steps: StatementRunner, own: Scan, number: int, work: Namer) -> Pairs:
    """A sensitive attribute's counts by combination, and its values with their shares of the source.

    Makes ``sensitive_s`` and, unless the source is read in place, ``pairs_s``.
    """
    moving = own.moving is not None
    if own.counted:
        query = ds.value_pairs(own.raw, own.quasi, number, (), own.persons, own.moving)
        pairs: exp.Expr = steps.make(work(f"pairs_{number}"), query)
    else:
        pairs = subquery(ds.plain_pairs(own.raw, own.quasi, number), "pairs")
    values = steps.make(work(f"sensitive_{number}"), ds.sensitive_values(pairs, moving, own.counted))
    return Pairs(pairs, values, counted=own.counted, moving=moving)


EXAMPLE_VALUES = 2
"""How many values a sensitive attribute has, where statements are only shown."""


def domain_of(steps: StatementRunner, values: exp.Table, height: int) -> Domain:
    """What the source tells of a sensitive attribute."""
    return Domain(steps.count(values, EXAMPLE_VALUES), height)


def distribution_pairs(
    steps: StatementRunner,
    own: Scan,
    asked: Sequence[Distribution],
    sensitive: Mapping[str, Pairs],
    coded: Mapping[str, Coded],
    work: Namer,
) -> dict[Distribution, Pairs]:
    """What the distributions that requirements look at are counted from.

    Makes ``nodes_s``, ``joint_pairs_s`` and ``domain_s``, as they are needed.
    """
    found = {}
    names = list(sensitive)
    for one in asked:
        pairs, index = sensitive[one.attribute], names.index(one.attribute)
        if one.kind == "nodes":
            tree = coded[one.attribute]
            nodes = steps.make(work(f"nodes_{index}"), ds.nodes(pairs.values, tree.table, tree.height))
            leaves = domain_of(steps, pairs.values, tree.height).values
            pairs = replace(pairs, values=nodes, leaves=leaves)
        elif one.kind == "joint":
            others = tuple(i for i in range(len(names)) if i != index)
            if own.counted:
                query = ds.value_pairs(own.raw, own.quasi, index, others, own.persons, own.moving)
                rows: exp.Expr = steps.make(work(f"joint_pairs_{index}"), query)
            else:
                rows = subquery(ds.plain_pairs(own.raw, own.quasi, index, others), "pairs")
            pairs = replace(pairs, rows=rows, inner=len(others))
        else:
            pairs = replace(pairs, domain=steps.make(work(f"domain_{index}"), ds.domain(pairs.values)))
        found[one] = pairs
    return found


def refuse_lost_values(
    steps: StatementRunner, raw: exp.Expr, names: Sequence[str], theirs: Mapping[str, str], types: Sequence[str]
) -> None:
    """Refuse a population with values that the source's columns cannot have."""
    for i, (name, type_) in enumerate(zip(names, types, strict=True)):
        if theirs[name] == type_:
            continue
        lost = steps.ask(cd.lost_by_cast(raw, i, type_, theirs[name]), [(0,)])[0][0]
        if lost:
            raise SourceError(
                f"population: column {name!r} is {theirs[name]} and the source's is {type_}: {lost} values cannot be "
                "cast; cast one of them with query = ..."
            )
