"""Columns whose values number people: where such a column repeats, several rows are of one person.

k rows of one person protect nobody. A repeated ``patient_id`` says so itself. Otherwise the values show it, whatever
the column is called: rows that share a value agree in what people keep (sex, date of birth, most often the place) far
more than rows of different values do. A ward or a doctor does not say who the patient is: such rows differ in sex and
age. A ZIP code or a name decides one thing about a person, and not the others.
Texts are compared as `engines.values.person_id` has them, and an empty one is no value.

Columns of the agreement, a row for each compared column: ``attribute`` (its position), ``persons`` (distinct values of
the key), ``repeated`` (those with several rows), ``alike`` (how likely two rows of one value agree, a mean over these
rows), ``by_chance`` (how likely two values of the key agree), ``different`` (distinct values among them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.engines.values import person_id
from sqlanon.hierarchies.parts import ColumnKind, column_kind
from sqlanon.sources.column_figures import approximate_counts_query
from sqlanon.sources.column_kinds import AGE, BIRTH, DATE, NAME, RACE, SEX, YEAR, find_kind, is_person_number
from sqlanon.sources.source import Source, WorkNames
from sqlanon.support.expressions import (
    cast,
    col,
    create_temporary_view,
    named,
    number,
    select,
    subquery,
    template,
    union_all,
)

MIN_PERSONS = 5
"""A column with fewer values numbers no people."""

MAX_ROWS_PER_PERSON = 400
"""On average a person has at most this number of rows."""

SAMPLE_ROWS = 20_000
"""The approximate number of rows that are compared; all rows of a value are in the sample, or none."""

_AGREES = 0.8
"""From this share of what chance leaves open, the rows of a value agree in a column."""
_AGES = 3
"""The ages of a person's rows, which may be years apart, agree at least this number of times as often as by chance."""
_BY_CHANCE = 1e-3
"""Repeated values that agree so seldom by chance are of one person."""
_AS_GOOD = 0.02
"""A coarser key is preferred to a finer one where its rows agree as well, up to this."""

_INNATE = (SEX, BIRTH, RACE, AGE)
_TIMES = (DATE, YEAR)
_SHARED = (
    NAME,
    "geographic subdivisions: a street address",
    "telephone numbers",
    "fax numbers",
    "URLs",
    "IP addresses",
)

RunQuery = Callable[[exp.Query], Sequence[tuple[Any, ...]]]
CountDistinct = Callable[[exp.Expr, Sequence[str]], exp.Query]


@dataclass(frozen=True)
class KeyColumn:
    """A column that may number people: its type, and whether it would be released."""

    name: str
    type: str
    is_released: bool

    @property
    def is_number(self) -> bool:
        """Whether it is no name, and nothing where people are reached: families share these."""
        kind = find_kind(self.name)
        is_text = column_kind(self.type) is ColumnKind.TEXT
        return not self.is_of_another_kind and (not is_text or kind is None or kind.name not in _SHARED)

    @property
    def is_of_another_kind(self) -> bool:
        """Whether its name says that it is something else, such as a place: only the traits of a body count then."""
        kind = find_kind(self.name)
        return kind is not None and kind.role != "identifying"


@dataclass(frozen=True)
class PersonColumn:
    """A column that numbers people, with the rows that have a value, its distinct values (an estimate, if these were
    counted in a sample), and all rows."""

    name: str
    values: int
    distinct: int
    rows: int
    is_estimate: bool = False

    @property
    def rows_per_person(self) -> float:
        """The rows of each person, on average."""
        return self.values / max(self.distinct, 1)

    @property
    def missing(self) -> int:
        """The rows without a value."""
        return self.rows - self.values


@dataclass(frozen=True)
class _Agreement:
    """How far the rows of one value of a key agree in a compared column."""

    name: str
    repeated: int
    alike: float
    by_chance: float
    is_unique: bool  # nearly every value of the key has its own

    @property
    def share(self) -> float:
        """0: as chance has it; 1: always."""
        return (self.alike - self.by_chance) / (1 - self.by_chance) if self.by_chance < 1 else 0.0

    @property
    def kind(self) -> str | None:
        kind = find_kind(self.name)
        return None if kind is None else kind.name

    @property
    def holds(self) -> bool:
        grows = self.kind == AGE and self.alike >= _AGES * self.by_chance
        return self.share >= _AGREES or grows


def can_number_people(name: str, type_: str) -> bool:
    """Whether a column can number people, by its type, and by its name unless that says what every person has.

    >>> [can_number_people(*one) for one in (("mrn", "BIGINT"), ("zip", "VARCHAR"), ("sex", "VARCHAR"))]
    [True, True, False]
    """
    if is_nested(type_) or type_ in ("BOOLEAN", "BLOB", "BIT", "GEOMETRY", "JSON"):
        return False
    if type_ != "UUID" and column_kind(type_) in (ColumnKind.DATE, ColumnKind.ZONED, ColumnKind.OTHER):
        return False
    kind = find_kind(name)
    return kind is None or kind.name not in (*_INNATE, *_TIMES)


def find_person_column(
    ask: RunQuery,
    relation: exp.Expr,
    keys: Sequence[KeyColumn],
    compared: Mapping[str, str],
    rows: int,
    counts: CountDistinct = approximate_counts_query,
) -> PersonColumn | None:
    """The column whose values number the people of a table with several rows of some of them; None if there is none.

    Parameters
    ----------
    ask:
        Answers a query with rows of figures.
    keys:
        The columns that may number people.
    compared:
        The types of the quasi-identifiers.
    rows:
        The rows of the table.
    counts:
        The query for the distinct values of columns, and their values that are not NULL.
    """
    if not keys:
        return None
    relation = _with_ids(relation, keys, compared)
    figures = iter(ask(counts(relation, [key.name for key in keys]))[0])
    found: list[tuple[KeyColumn, PersonColumn, float]] = []
    for key in keys:
        distinct, values = next(figures), next(figures)
        if not max(MIN_PERSONS, values / MAX_ROWS_PER_PERSON) <= distinct or values < 2 * MIN_PERSONS:
            continue
        others = {other: type_ for other, type_ in compared.items() if other != key.name and not is_nested(type_)}
        if not others:
            continue
        step = max(1, values // SAMPLE_ROWS)
        sample = _sample(relation, key.name, [*others], step)
        agreements, persons, repeated = _agreements(ask, sample, [*others])
        if repeated and _numbers_people(ask, sample, key, others, agreements):
            column = PersonColumn(key.name, values, min(persons * step, values), rows, step > 1)
            alike = [one.alike for one in agreements if one.holds and one.kind != AGE]
            found.append((key, column, sum(alike) / max(len(alike), 1)))
    return _best(found)


def _best(found: Sequence[tuple[KeyColumn, PersonColumn, float]]) -> PersonColumn | None:
    """The column of people: of those whose rows agree as well, one that gives each the most rows (a case belongs to one
    patient, who may have several cases), and of these the one that most rows have."""
    if not found:
        return None
    most = max(column.values for _, column, _ in found)
    whole = [one for one in found if 2 * one[1].values >= most]
    best = max(alike for _, _, alike in whole)
    as_good = [(key, column) for key, column, alike in whole if alike >= best - _AS_GOOD]
    columns = [column for key, column in as_good if key.is_number] or [column for _, column in as_good]
    coarsest = max(column.rows_per_person for column in columns)
    return max((one for one in columns if 3 * one.rows_per_person >= 2 * coarsest), key=lambda one: one.values)


def _numbers_people(
    ask: RunQuery, sample: exp.Select, key: KeyColumn, compared: Mapping[str, str], agreements: Sequence[_Agreement]
) -> bool:
    if is_person_number(key.name):
        return True
    varying = [one for one in agreements if one.by_chance < 0.95]
    innate = [one for one in varying if one.kind in _INNATE]
    lasting = [one for one in varying if one in innate or not _is_of_a_visit(one, compared)]
    alike = [one for one in lasting if one.holds]
    if not all(one.holds for one in innate) or not _is_borne_out(alike, min(2, max(1, len(lasting)))):
        return False
    is_half = 2 * len(alike) >= len(lasting)
    if key.is_of_another_kind:
        return _traits_of_a_body(innate) > 1
    if key.is_number and not key.is_released:
        return bool(innate) or is_half
    if key.is_number and _traits_of_a_body(innate) > 1:
        return True
    return is_half and _are_independent(ask, sample, [*compared], alike)


def _is_borne_out(alike: Sequence[_Agreement], least: int) -> bool:
    """Whether rows of one value agree in enough columns, and would hardly do so by chance."""
    if len(alike) < least:
        return False
    surprise = sum(-math.log(max(one.by_chance, 1e-9)) for one in alike if one.share >= _AGREES)
    return max(one.repeated for one in alike) * surprise >= -math.log(_BY_CHANCE)


def _traits_of_a_body(innate: Sequence[_Agreement]) -> int:
    """How many of sex, age and origin are among the columns."""
    return len({BIRTH if one.kind == AGE else one.kind for one in innate})


def _is_of_a_visit(agreement: _Agreement, compared: Mapping[str, str]) -> bool:
    """Whether a column is a date that may be another one in each row of a person."""
    dates = column_kind(compared[agreement.name]) in (ColumnKind.DATE, ColumnKind.ZONED)
    return agreement.kind == DATE or (dates and agreement.kind != BIRTH)


_WHOLE = template("SELECT :key AS person, :columns FROM :source WHERE :key IS NOT NULL")
_SAMPLE = template("SELECT :key AS person, :columns FROM :source WHERE :key IS NOT NULL AND md5(:key) < :bound")
_VALUES = template("SELECT person, :attribute AS attribute, :value AS value FROM sample")
_TRAITS = template("""
    SELECT person, attribute, min(value) AS value, sum(n) AS n, sum(n * (n - 1)) AS pairs
    FROM (
        SELECT person, attribute, value, count(*)::DOUBLE AS n
        FROM :values AS v
        GROUP BY person, attribute, value
    ) AS cells
    GROUP BY person, attribute
""")
_AGREEMENT = template("""
    WITH sample AS MATERIALIZED (SELECT * FROM :sample AS s),
    traits AS MATERIALIZED (SELECT * FROM :traits AS t),
    repeated AS (
        SELECT attribute, count(*) AS persons, sum(n) AS n, sum(pairs / (n - 1)) AS pairs
        FROM traits
        WHERE n > 1
        GROUP BY attribute
    ),
    chance AS (
        SELECT attribute, sum(n) AS persons, count(*) AS different, sum(n * (n - 1)) AS pairs
        FROM (SELECT attribute, value, count(*)::DOUBLE AS n FROM traits GROUP BY attribute, value) AS v
        GROUP BY attribute
    )
    SELECT
        c.attribute AS attribute,
        c.persons::BIGINT AS persons,
        coalesce(r.persons, 0) AS repeated,
        coalesce(r.pairs / r.n, 0)::DOUBLE AS alike,
        (c.pairs / greatest(c.persons * (c.persons - 1), 1))::DOUBLE AS by_chance,
        c.different AS different
    FROM chance AS c
    LEFT JOIN repeated AS r ON r.attribute = c.attribute
""")
_TOGETHER = template("""
    WITH sample AS MATERIALIZED (SELECT * FROM :sample AS s),
    traits AS MATERIALIZED (SELECT * FROM :traits AS t),
    pairs AS (
        SELECT a.attribute AS given, a.value AS given_value, b.attribute AS attribute, b.value AS value,
            count(*)::DOUBLE AS n
        FROM traits AS a
        JOIN traits AS b ON a.person = b.person
        WHERE a.attribute IN (:attributes) AND b.attribute IN (:attributes) AND a.attribute <> b.attribute
        GROUP BY a.attribute, a.value, b.attribute, b.value
    ),
    sharing AS (
        SELECT given, given_value, attribute, sum(n) AS n, sum(n * (n - 1)) AS alike
        FROM pairs
        GROUP BY given, given_value, attribute
        HAVING sum(n) > 1
    )
    SELECT given, attribute, (sum(alike / (n - 1)) / sum(n))::DOUBLE AS alike
    FROM sharing
    GROUP BY given, attribute
""")


def _with_ids(relation: exp.Expr, keys: Sequence[KeyColumn], compared: Mapping[str, str]) -> exp.Subquery:
    """The columns that are looked at; texts of the keys are ids."""
    texts = [key.name for key in keys if key.type == "VARCHAR"]
    names = dict.fromkeys([*(key.name for key in keys), *compared])
    columns: list[exp.Expr] = [named(person_id(col(name)), name) if name in texts else col(name) for name in names]
    return subquery(select(columns, relation.copy()), "ids")


def _sample(relation: exp.Expr, key: str, columns: Sequence[str], step: int) -> exp.Select:
    """The rows of some values of a key, with ``person`` and ``v0``, ``v1``, ..."""
    output: list[exp.Expr] = [named(col(name), f"v{i}") for i, name in enumerate(columns)]
    value = cast(col(key), "VARCHAR")
    if step == 1:
        return _WHOLE(key=value, columns=output, source=relation.copy())
    # A share of all hashes: each engine has this one.
    return _SAMPLE(key=value, columns=output, source=relation.copy(), bound=f"{16**8 // step:08x}")


def _traits(count: int) -> exp.Subquery:
    """By person of the sample and compared column one value, the person's rows, and its pairs of rows that agree."""
    values = [_VALUES(attribute=number(i), value=cast(col(f"v{i}"), "VARCHAR")) for i in range(count)]
    return subquery(_TRAITS(values=subquery(union_all(*values))))


def _agreements(ask: RunQuery, sample: exp.Select, names: Sequence[str]) -> tuple[list[_Agreement], int, int]:
    """The agreement in each compared column; the values of the key, and those with several rows."""
    answers = ask(_AGREEMENT(sample=subquery(sample.copy()), traits=_traits(len(names))))
    found = [
        _Agreement(names[attribute], repeated, alike, by_chance, different >= 0.9 * persons)
        for attribute, persons, repeated, alike, by_chance, different in answers
    ]
    persons = max((row[1] for row in answers), default=0)
    return found, persons, max((row[2] for row in answers), default=0)


def _are_independent(ask: RunQuery, sample: exp.Select, names: Sequence[str], alike: Sequence[_Agreement]) -> bool:
    """Whether two of the columns that the key decides do not decide one another: a person has several such traits."""
    if _traits_of_a_body([one for one in alike if one.kind in _INNATE]) > 1:
        return True
    by_position = {names.index(one.name): one for one in alike if not one.is_unique or one.kind in _INNATE}
    if len(by_position) < 2:
        return False
    positions = [number(position) for position in by_position]
    query = _TOGETHER(sample=subquery(sample.copy()), traits=_traits(len(names)), attributes=positions)
    given = {
        (first, second): (value - by_position[second].by_chance) / (1 - by_position[second].by_chance)
        for first, second, value in ask(query)
    }
    return any(
        max(given.get((first, second), 0.0), given.get((second, first), 0.0)) < 0.5
        for first in by_position
        for second in by_position
        if first < second and ((first, second) in given or (second, first) in given)
    )


_COLUMNS = template("SELECT :columns FROM :source")


def trim_person_ids(engine: Engine, source: Source, place: WorkNames, person: str | None) -> Source:
    """A source with the ids of its persons: ``"A12 "`` and ``"A12"`` are one, ``""`` is none."""
    names = {name.lower(): name for name in source.columns}
    name = names.get((person or "").lower())
    if name is None or source.access != "rows" or source.columns[name] != "VARCHAR":
        return source
    view = place.view("persons")
    columns: list[exp.Expr] = [
        named(person_id(col(column)), column) if column == name else col(column)
        for column in engine.columns(source.relation)
    ]
    engine.execute(create_temporary_view(view, _COLUMNS(columns=columns, source=source.relation)))
    return replace(source, relation=view)


_SMALL_CLASSES = template("""
    SELECT count(*) AS classes, coalesce(sum(rows), 0)::BIGINT AS rows
    FROM (
        SELECT
            count(*) AS rows,
            count(DISTINCT :id) + max((:id IS NULL)::INTEGER) AS persons
        FROM :released
        GROUP BY :keys
    ) AS classes
    WHERE persons < :least
""")


def small_classes_query(released: exp.Query, keys: Sequence[str], least: int) -> exp.Select:
    """One row: the classes with fewer than ``least`` values of ``person``, and their rows. Rows without a value are of
    one person.

    >>> from sqlanon.support.expressions import select, table
    >>> query = count_small_classes(select([col("person"), col("zip")], table("t")), ["zip"], 5)
    >>> query.named_selects
    ['classes', 'rows']
    """
    columns = [col(name) for name in keys]
    id_ = person_id(cast(col("person"), "VARCHAR"))
    return _SMALL_CLASSES(released=subquery(released, "r"), keys=columns, least=least, id=id_)
