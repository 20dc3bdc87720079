"""Counts of the persons in kept or suppressed classes. A person in several classes counts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace, FrequencySets, class_columns
from sqlanon.frequency.statements import MOVER, PERSONS, class_count
from sqlanon.strategies.lattice.classes import CANDIDATE, KEPT, evaluated_classes
from sqlanon.support.coding import Levels, code_column
from sqlanon.support.expressions import all_of, as_column, col, number, template, union_all, value_or_zero


@dataclass(frozen=True)
class PersonFigures:
    """The persons of a source and of its release, if persons are counted.

    A person with a suppressed row is suppressed, and partly released if another row is released.
    """

    persons: int
    suppressed: int
    partly_released: int
    smallest_class: int  # persons of the class with the fewest

    @property
    def fully_released(self) -> int:
        """Persons with all rows released."""
        return self.persons - self.suppressed


def person_figures(persons: int, suppressed: int, in_release: int, smallest_class: int) -> PersonFigures:
    """The figures of ``persons``, where ``suppressed`` of them have a suppressed row and ``in_release`` a released one.

    >>> person_figures(10, 3, 9, 5)
    PersonFigures(persons=10, suppressed=3, partly_released=2, smallest_class=5)
    """
    return PersonFigures(persons, suppressed, suppressed + in_release - persons, smallest_class)


def persons_in_classes(space: ClassSpace, generalizations: Sequence[Levels], kept: bool) -> exp.Query:
    """Rows ``candidate, persons``: by generalization, the distinct persons with a row in a kept (or suppressed) class.

    Persons in a single combination of quasi-identifiers are counted there; the others have numbers, which are counted
    as distinct (`frequency.statements`).
    """
    counts = [
        _class_members(space, levels, kept, [as_column(number(i), CANDIDATE), _count_persons(space)])
        for i, levels in enumerate(generalizations)
    ]
    return union_all(*counts)


def count_persons_in_classes(frequency_sets: FrequencySets, space: ClassSpace, levels: Levels, kept: bool) -> int:
    """Count the distinct persons with a row in a kept (or suppressed) class of a generalization.

    If rows stay on a server, persons in several combinations are counted there, for these classes.
    """
    runner, movers = frequency_sets.runner, frequency_sets.ground.movers
    if movers is None:
        return int(runner.fetch_rows(persons_in_classes(space, [levels], kept), [(0, 0)], in_plan=False)[0][1])
    pairs = class_columns(space, levels)
    evaluated = evaluated_classes(space, levels, [as_column(col(key), f"class_{key}") for key, _ in pairs])
    query = template("""
        WITH evaluated_classes AS (:evaluated_classes)
        SELECT :columns
        FROM evaluated_classes
        WHERE :is_chosen
    """)(
        evaluated_classes=evaluated,
        columns=[as_column(col(f"class_{key}"), name) for key, name in pairs] or [as_column(exp.true(), "every")],
        is_chosen=_is_chosen(kept),
    )
    chosen = runner.create_table(frequency_sets.work("chosen_classes"), query)
    settled = template("""
        SELECT coalesce(sum(f.persons)::BIGINT, 0)
        FROM :frequency AS f
        JOIN :chosen_classes AS c ON :same_class
    """)(
        frequency=frequency_sets.class_space_without_movers(levels).frequency,
        chosen_classes=chosen,
        same_class=all_of(col(key, "f").eq(col(name, "c")) for key, name in pairs),
    )
    try:
        persons = int(runner.fetch_rows(settled, [(0,)], in_plan=False)[0][0])
        return persons + movers.count(movers.of_classes(chosen, pairs))
    finally:
        runner.drop(chosen)


def fewest_persons_query(space: ClassSpace, levels: Levels, visible: int) -> exp.Select:
    """One number: the persons of the smallest kept class as readers see it, by its first ``visible`` attributes."""
    codes = [col(code_column(i, level), "f") for i, level in space.below_top(levels) if i < visible]
    classes = _class_members(space, levels, True, [_count_persons(space)]).group_by(*codes, copy=False)
    return template("""
        WITH visible_classes AS (:classes)
        SELECT coalesce(min(persons), 0) AS persons
        FROM visible_classes
    """)(classes=classes)


def _count_persons(space: ClassSpace) -> exp.Expr:
    count = class_count(PERSONS, MOVER if space.moving else None)
    return as_column(value_or_zero(value=count), "persons")


def _is_chosen(kept: bool) -> exp.Expr:
    return col(KEPT) if kept else ~col(KEPT)


def _class_members(space: ClassSpace, levels: Levels, kept: bool, columns: Sequence[exp.Expr]) -> exp.Select:
    """Columns of the frequency set's rows in kept (or suppressed) classes."""
    names = {key: f"class_{key}" for key in space.keys(levels)}
    evaluated = evaluated_classes(space, levels, [as_column(col(key), name) for key, name in names.items()])
    return template("""
        WITH
            evaluated_classes AS (:evaluated_classes),
            chosen_classes AS (SELECT :keys FROM evaluated_classes WHERE :is_chosen)
        SELECT :columns
        FROM :frequency AS f
        JOIN chosen_classes AS c ON :same_class
    """)(
        evaluated_classes=evaluated,
        keys=[col(name) for name in names.values()] or [exp.true()],
        is_chosen=_is_chosen(kept),
        columns=list(columns),
        frequency=space.frequency,
        same_class=all_of(col(key, "f").eq(col(name, "c")) for key, name in names.items()),
    )
