"""Null-map and wrong-map: matches of released rows in a population that is generalized the same way.

Source: L. Sweeney, "Computational disclosure control" (2001), section 4.4: null-map and wrong-map protection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.frequency.sets import ClassSpace
from sqlanon.frequency.statements import PERSON, encode_combinations
from sqlanon.hierarchies.parts import TOP
from sqlanon.strategies.lattice.classes import evaluated_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import KNOWN, ROW_COUNT, CodedAttribute, Levels
from sqlanon.support.expressions import aliased, all_of, as_column, cast, col, null_safe_equal, template, text

UNKNOWN_PREFIX = "sqlanon: in no hierarchy: "


def wrong_map(search_input: SearchInput, space: ClassSpace, levels: Levels) -> exp.Select | None:
    """One number: the rows of kept classes that match the population, but not the person that they belong to.

    None if persons are not distinguished in both tables.
    """
    population = search_input.population
    members, population_members = search_input.members, None if population is None else population.members
    if members is None or population_members is None:
        return None
    keys = space.keys(levels)
    return template("""
        WITH
            evaluated_classes AS (:evaluated_classes),
            matched_classes AS (SELECT * FROM evaluated_classes WHERE kept AND class_population > 0)
        SELECT coalesce(sum(s.row_count)::BIGINT, 0)
        FROM :source_persons AS s
        SEMI JOIN matched_classes AS c ON :in_class
        ANTI JOIN :population_persons AS p ON :same_person
    """)(
        evaluated_classes=evaluated_classes(space, levels, [as_column(col(key), f"key {key}") for key in keys]),
        source_persons=_persons(members, search_input.attributes, levels, keys),
        in_class=all_of(col(key, "s").eq(col(f"key {key}", "c")) for key in keys),
        population_persons=_persons(population_members, search_input.attributes, levels, keys, search_input.types),
        same_person=all_of(col(name, "s").eq(col(name, "p")) for name in (*keys, PERSON)),
    )


def generalized_population(
    population: exp.Table,
    columns: Sequence[str],
    attributes: Sequence[CodedAttribute],
    tops: Sequence[str | None],
    levels: Levels,
    types: Sequence[str],
    person: str | None,
    labelled: bool = False,
) -> exp.Select:
    """The population recoded as the release is: its quasi-identifiers and its persons.

    A value that is missing from its hierarchy is distinguished from every label but ``*``.
    """
    query = exp.Select().from_(aliased(population, "s"))
    output: list[exp.Expr] = []
    for i, (attribute, name, level) in enumerate(zip(attributes, columns, levels, strict=True)):
        value: exp.Expr = cast(col(name, "s"), types[i])
        if level == attribute.height and tops[i] == TOP:
            value = text(TOP)
        elif level >= attribute.lowest_labelled:
            on = null_safe_equal(value, col("value", f"h{i}"))
            query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
            unknown = exp.Concat(expressions=[text(UNKNOWN_PREFIX), cast(value.copy(), "VARCHAR")], safe=True)
            value = exp.If(this=col(KNOWN, f"h{i}"), true=col(f"label_{level}", f"h{i}"), false=unknown)
        elif labelled:
            value = cast(value, "VARCHAR")
        output.append(as_column(value, name))
    if person is not None:
        output.append(col(person, "s"))
    return query.select(*output, copy=False)


def _persons(
    members: exp.Table,
    attributes: Sequence[CodedAttribute],
    levels: Levels,
    keys: Sequence[str],
    population_types: Sequence[str] | None = None,
) -> exp.Select:
    """The persons of a table with the codes of their classes; ids are compared as text, and NULL identifies no
    person.

    ``population_types`` marks the population, which has no unknown values.
    """
    query, codes = encode_combinations(members, attributes, levels, types=population_types)
    if population_types is not None:
        codes[KNOWN] = exp.true()
    columns = [as_column(codes[key], key) for key in keys]
    return query.select(*columns, as_column(cast(col(PERSON, "r"), "VARCHAR"), PERSON), col(ROW_COUNT, "r"), copy=False)


@dataclass(frozen=True)
class PopulationMatch:
    """Matches of the kept rows of a release in the population."""

    null_map: int
    """Rows without a match in the population."""
    wrong_map: int | None
    """Rows that match the population, but not the person that they belong to; None if persons are not distinguished in
    both tables."""


def match_population(engine: Engine, search_input: SearchInput, levels: Levels) -> PopulationMatch | None:
    """Count the matches of kept rows; None without a population."""
    if search_input.population is None:
        return None
    space = search_input.frequency_sets.class_space(levels)
    null_map = template("""
        WITH evaluated_classes AS (:evaluated_classes)
        SELECT coalesce((sum(class_size) FILTER (WHERE kept AND class_population = 0))::BIGINT, 0)
        FROM evaluated_classes
    """)(evaluated_classes=evaluated_classes(space, levels))
    unmatched = engine.rows(null_map)[0][0]
    query = wrong_map(search_input, space, levels)
    return PopulationMatch(unmatched, None if query is None else engine.rows(query)[0][0])
