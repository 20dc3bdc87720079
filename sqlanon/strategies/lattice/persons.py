"""The persons in the classes that a generalization keeps, or suppresses; each counts once, in however many it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace, FrequencySets, class_columns
from sqlanon.frequency.statements import MOVER, PERSONS, class_count
from sqlanon.strategies.lattice.classes import KEPT, judged_classes
from sqlanon.support.coding import Levels, code_name
from sqlanon.support.expressions import all_of, col, named, subquery, template, union_all


@dataclass(frozen=True)
class PersonFigures:
    """The persons of a source and of its release, where persons are counted.

    A person is suppressed where at least one of its rows is; it is partly released where another one is released.
    """

    persons: int
    suppressed: int
    partly_released: int
    smallest_class: int  # the persons of the class that has fewest

    @property
    def released(self) -> int:
        """All of whose rows are released."""
        return self.persons - self.suppressed


def person_figures(persons: int, suppressed: int, in_release: int, smallest_class: int) -> PersonFigures:
    """The figures of so many persons, of whom some have a suppressed row, and some a released one.

    >>> person_figures(10, 3, 9, 5)
    PersonFigures(persons=10, suppressed=3, partly_released=2, smallest_class=5)
    """
    return PersonFigures(persons, suppressed, suppressed + in_release - persons, smallest_class)


_MEMBERS = template("""
    SELECT :columns
    FROM :frequency AS f
    JOIN (SELECT :keys FROM :judged AS j WHERE :chosen) AS c ON :same
""")
_SMALLEST = template("SELECT coalesce(min(persons), 0) AS persons FROM :classes AS w")


def persons_in_classes(space: ClassSpace, several: Sequence[Levels], kept: bool) -> exp.Query:
    """Rows ``place, persons``: the distinct persons with a row in a class of a generalization that is kept, or in one
    that is not.

    Persons in one combination of quasi-identifiers add up; the others are distinct numbers (`frequency.statements`).
    """
    return union_all(*(_members(space, levels, kept, [_place(i), _persons(space)]) for i, levels in enumerate(several)))


def count_persons_in_classes(sets: FrequencySets, space: ClassSpace, levels: Levels, kept: bool) -> int:
    """The distinct persons with a row in a class of a generalization that is kept, or in one that is not.

    Of a source whose rows stay elsewhere, those in several combinations are counted there, in these classes.
    """
    steps, movers = sets.steps, sets.ground.movers
    if movers is None:
        return int(steps.look_up(persons_in_classes(space, [levels], kept), [(0, 0)])[0][1])
    pairs = class_columns(space, levels)
    output = [named(col(f"class_{key}"), other) for key, other in pairs]
    classes = judged_classes(space, levels, [named(col(key), f"class_{key}") for key, _ in pairs])
    query = _CLASSES(columns=output or [named(exp.true(), "every")], judged=subquery(classes))
    query = query.where(col(KEPT) if kept else ~col(KEPT), copy=False)
    chosen = steps.make(sets.work("chosen_classes"), query)
    same = all_of(col(key, "f").eq(col(other, "x")) for key, other in pairs)
    settled = _SETTLED(frequency=sets.settled_at(levels).frequency, classes=chosen, same=same)
    try:
        persons = int(steps.look_up(settled, [(0,)])[0][0])
        return persons + movers.count(movers.of_classes(chosen, pairs))
    finally:
        steps.drop(chosen)


_CLASSES = template("SELECT :columns FROM :judged AS j")
_SETTLED = template("SELECT coalesce(sum(f.persons)::BIGINT, 0) FROM :frequency AS f JOIN :classes AS x ON :same")


def fewest_persons_query(space: ClassSpace, levels: Levels, shown: int) -> exp.Select:
    """One number: the persons of the kept class with fewest, as a release shows it, by its first attributes alone."""
    codes = [col(code_name(i, level), "f") for i, level in space.below_top(levels) if i < shown]
    return _SMALLEST(classes=subquery(_members(space, levels, True, [_persons(space)]).group_by(*codes, copy=False)))


def _place(place: int) -> exp.Expr:
    return named(exp.Literal.number(place), "place")


def _persons(space: ClassSpace) -> exp.Expr:
    count = class_count(PERSONS, MOVER if space.moving else None)
    return named(exp.Coalesce(this=count, expressions=[exp.Literal.number(0)]), "persons")


def _members(space: ClassSpace, levels: Levels, kept: bool, columns: Sequence[exp.Expr]) -> exp.Select:
    """Columns of the rows of the frequency set in the classes that are kept, or in those that are not."""
    keys = space.keys(levels)
    names = [f"class_{key}" for key in keys]
    classes = judged_classes(space, levels, [named(col(key), name) for key, name in zip(keys, names, strict=True)])
    return _MEMBERS(
        columns=list(columns),
        frequency=space.frequency,
        keys=[col(name) for name in names] or [exp.true()],
        judged=subquery(classes),
        chosen=col(KEPT) if kept else ~col(KEPT),
        same=all_of(col(key, "f").eq(col(name, "c")) for key, name in zip(keys, names, strict=True)),
    )
