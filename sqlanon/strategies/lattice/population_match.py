"""Null-map and wrong-map: what the rows of a release match in a population that is generalized the same way.

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
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import KNOWN, ROWS, Coded, Levels
from sqlanon.support.expressions import aliased, all_of, cast, col, named, same, template, text

STRANGE = "sqlanon: in no hierarchy: "


_NULL_MAP = template("""
    SELECT coalesce((sum(class_size) FILTER (WHERE kept AND class_population = 0))::BIGINT, 0)
    FROM :judged AS j
""")
_WRONG_MAP = template("""
    SELECT coalesce(sum(own.n)::BIGINT, 0)
    FROM :own AS own
    SEMI JOIN (SELECT * FROM :judged AS j WHERE kept AND class_population > 0) AS kept ON :in_class
    ANTI JOIN :theirs AS theirs ON :same
""")


def _null_map(space: ClassSpace, levels: Levels) -> exp.Select:
    """One number: the rows of kept classes that match nobody of the population."""
    return _NULL_MAP(judged=judged_classes(space, levels))


def wrong_map(prepared: SearchInput, space: ClassSpace, levels: Levels) -> exp.Select | None:
    """One number: the rows of kept classes that match somebody of the population, but not the person that they are of;
    None where persons are not told apart in both tables.
    """
    own, theirs = prepared.members, None if prepared.population is None else prepared.population.members
    if own is None or theirs is None:
        return None
    attributes = prepared.attributes
    keys = space.keys(levels)
    codes: list[exp.Expr] = [named(col(key), f"key {key}") for key in keys]
    return _WRONG_MAP(
        own=_people(own, attributes, levels, keys),
        judged=judged_classes(space, levels, codes),
        in_class=all_of(col(key, "own").eq(col(f"key {key}", "kept")) for key in keys),
        theirs=_people(theirs, attributes, levels, keys, prepared.types),
        same=all_of(col(name, "own").eq(col(name, "theirs")) for name in (*keys, PERSON)),
    )


def generalized_population(
    population: exp.Table,
    columns: Sequence[str],
    attributes: Sequence[Coded],
    tops: Sequence[str | None],
    levels: Levels,
    types: Sequence[str],
    person: str | None,
    labelled: bool = False,
) -> exp.Select:
    """The population, recoded as the release is: its quasi-identifiers, and its persons.

    A value that is missing from the hierarchy is told apart from every label but ``*``.
    """
    query = exp.Select().from_(aliased(population, "s"))
    output: list[exp.Expr] = []
    for i, (attribute, name, level) in enumerate(zip(attributes, columns, levels, strict=True)):
        value: exp.Expr = cast(col(name, "s"), types[i])
        if level == attribute.height and tops[i] == TOP:
            value = text(TOP)
        elif level >= attribute.lowest_labelled:
            on = same(value, col("value", f"h{i}"))
            query = query.join(aliased(attribute.table, f"h{i}"), on=on, copy=False)
            strange = exp.Concat(expressions=[text(STRANGE), cast(value.copy(), "VARCHAR")], safe=True)
            value = exp.If(this=col(KNOWN, f"h{i}"), true=col(f"label_{level}", f"h{i}"), false=strange)
        elif labelled:
            value = cast(value, "VARCHAR")
        output.append(named(value, name))
    if person is not None:
        output.append(col(person, "s"))
    return query.select(*output, copy=False)


def _people(
    members: exp.Table,
    attributes: Sequence[Coded],
    levels: Levels,
    keys: Sequence[str],
    types: Sequence[str] | None = None,
) -> exp.Select:
    """The persons of a table with the codes of their classes. Ids are compared as text, and NULL is nobody's.

    With ``types`` it is the population: what it alone has is in no way unknown.
    """
    query, codes = encode_combinations(members, attributes, levels, types=types)
    if types is not None:
        codes[KNOWN] = exp.true()
    wanted = [named(codes[key], key) for key in keys]
    return query.select(*wanted, named(cast(col(PERSON, "r"), "VARCHAR"), PERSON), col(ROWS, "r"), copy=False)


@dataclass(frozen=True)
class PopulationMatch:
    """Figures of the kept rows of a release."""

    null_map: int  # rows that match nobody of the population
    # Rows that match somebody, but not the person that they are of; None where persons are not told apart in both.
    wrong_map: int | None


def match_population(engine: Engine, prepared: SearchInput, levels: Levels) -> PopulationMatch | None:
    """Count what kept rows match; None without a population."""
    if prepared.population is None:
        return None
    space = prepared.frequency_sets.at(levels)
    nobody = engine.rows(_null_map(space, levels))[0][0]
    query = wrong_map(prepared, space, levels)
    return PopulationMatch(nobody, None if query is None else engine.rows(query)[0][0])
